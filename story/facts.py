"""What a scene may quote or depend on, and how lines are chosen and filled for one play.

A line is told where all its conditions hold. A condition on a fact this play does not have does
not hold; a line that quotes such a fact is not told: a hole is never shown. A scene therefore
needs a line that rests on `ALWAYS` facts alone (the linter sees to it).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from story.fact_table import TABLE, Fact
from story.filling import fill, placeholders
from story.schema import Condition, Line, Reply

FactValue = float | str | bool
Facts = Mapping[str, FactValue]

FACTS: Mapping[str, Fact] = {fact.name: fact for fact in TABLE}
ALWAYS = frozenset(fact.name for fact in TABLE if fact.known == "always")
EITHER = frozenset({"guess", "truth"})
"""Facts that are a number in a hall with a dial and a word in a hall with choices."""

_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def holds(condition: Condition, facts: Facts) -> bool:
    """False where the fact is absent, or is compared in size with something of another type."""
    if condition.fact not in facts:
        return False
    value, against = facts[condition.fact], condition.value
    both_numbers = _is_number(value) and _is_number(against)
    if condition.op in _COMPARE:
        return both_numbers and _COMPARE[condition.op](value, against)
    same = (both_numbers or type(value) is type(against)) and value == against
    return same if condition.op == "==" else not same


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def derive(facts: Facts) -> dict[str, FactValue]:
    """`facts` with those that follow from others. A fact given already is never replaced."""

    def number(name: str) -> float | None:
        value = facts.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    found: dict[str, FactValue] = {}
    width = _BYTES.get(str(facts.get("precision")))
    batch, rate, bandwidth = number("batch"), number("flops_t"), number("bandwidth_gb")
    guess, truth = number("guess"), number("truth")
    decode, ratio = number("decode_ms_token"), number("tpot_ratio")
    per_token, weights = number("kv_kb_token"), number("weights_mb")
    prompt, output = number("prompt"), number("output")
    if width is not None:
        found["weight_bytes"] = width
        if batch is not None:
            found["intensity"] = 2 * batch / width  # one multiply and one add a weight a request
    if rate is not None and bandwidth:
        found["ridge"] = ridge = rate * 1e3 / bandwidth
        if width is not None and batch is not None:
            found["past_ridge"] = 2 * batch / width >= ridge
    if per_token is not None and prompt is not None and output is not None and batch is not None:
        cached = per_token * (prompt + output) * batch / 1e3
        found["kv_mb"] = cached
        if weights:
            found["kv_percent"] = 100 * cached / weights
    if guess is not None and truth is not None:
        found["guess_over"] = guess > truth
    if decode is not None and ratio is not None:
        found["build_tpot_ms"] = decode * ratio
    request, factor, held = number("kv_request_mb"), number("gqa_factor"), number("held_mb")
    if request is not None and factor is not None:
        found["kv_request_full_mb"] = request * factor
    if held is not None and weights is not None:
        found["kv_over_weights"] = held > weights
    return {**found, **facts}


def tell(lines: Iterable[Line], facts: Facts) -> tuple[Line, ...]:
    """The lines told in this play, in order, with their texts and replies filled."""
    known = derive(facts)
    return tuple(
        msgspec.structs.replace(
            line, text=fill(line.text, known), choices=_replies(line.choices, known)
        )
        for line in lines
        if all(holds(condition, known) for condition in line.when) and quotable(line.text, known)
    )


def _replies(replies: Iterable[Reply], facts: Facts) -> tuple[Reply, ...]:
    return tuple(
        msgspec.structs.replace(
            reply, text=fill(reply.text, facts), answer=fill(reply.answer, facts)
        )
        for reply in replies
        if quotable(reply.text, facts) and quotable(reply.answer, facts)
    )


def quotable(text: str, facts: Facts) -> bool:
    """True where every fact that `text` quotes is among `facts`."""
    return all(name in facts for name in placeholders(text))


def quote(text: str, facts: Facts) -> str | None:
    """`text` filled from the facts; None where one is absent. For a stage's `formula`."""
    known = derive(facts)
    return fill(text, known) if quotable(text, known) else None
