"""What a scene may quote or depend on, and how lines are chosen and filled for one play.

A line is told where all its conditions hold. A condition on a fact this play does not have does
not hold; a line that quotes such a fact is not told: a hole is never shown. A scene therefore
needs a line that rests on `ALWAYS` facts alone (the linter sees to it).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from story.filling import fill, placeholders
from story.schema import Condition, Line, Reply

FactValue = float | str | bool
Facts = Mapping[str, FactValue]
Kind = Literal["number", "text", "bool"]
Known = Literal["always", "machine", "guess", "trial"]
"""From when on a fact can be had: always, once the machine is measured, once the guess is
sealed, once a trial has run."""


@dataclass(frozen=True)
class Fact:
    """`words` are the only values a text fact can take (empty: free text); `low` and `high` bound
    a number."""

    name: str
    kind: Kind
    known: Known
    doc: str
    words: tuple[str, ...] = ()
    low: float = 0.0
    high: float = math.inf


_BOUNDS = ("bandwidth", "compute", "launch overhead", "capacity", "quality", "none")
_ALL = (
    Fact("player", "text", "always", "the profile's name"),
    Fact("debt", "number", "always", "latency debt now (after this trial, once it is judged)"),
    Fact("attempts", "number", "always", "judged trials in this hall, this one included"),
    Fact("hints_taken", "number", "always", "hints taken in this hall, 0 to 3", high=3),
    Fact("device", "text", "machine", "name of the processor the model runs on"),
    Fact("model", "text", "machine", "name of the model"),
    Fact("weights_mb", "number", "machine", "weights of this build's precision, 10^6 bytes"),
    Fact("kv_kb_token", "number", "machine", "KV cache of one token at that precision, 10^3 bytes"),
    Fact("bandwidth_gb", "number", "machine", "measured read bandwidth, 10^9 bytes/s"),
    Fact("flops_t", "number", "machine", "measured matmul rate at that precision, 10^12 FLOP/s"),
    Fact("floor_ms", "number", "machine", "weights / bandwidth: least time of a decode step, ms"),
    Fact("batch", "number", "always", "requests served together in the build"),
    Fact("precision", "text", "always", "run.precision of the build"),
    Fact("prompt", "number", "always", "prompt tokens a request"),
    Fact("output", "number", "always", "output tokens a request"),
    Fact("guess", "number", "guess", "the number on the dial; for choices the choice's id (text)"),
    Fact("guess_word", "text", "guess", "the guess as shown: the choice's text, or the number"),
    Fact("truth", "number", "trial", "what was measured; for choices the choice's id (text)"),
    Fact("truth_word", "text", "trial", "the truth as shown"),
    Fact("guess_factor", "number", "trial", "error of a dial guess as a ratio >= 1", low=1),
    Fact("guess_close", "bool", "trial", "the guess was right, or within the dial's factor"),
    Fact("debt_before", "number", "trial", "latency debt before this trial"),
    Fact(
        "debt_change",
        "number",
        "trial",
        "debt now less debt before; negative when repaid",
        low=-math.inf,
    ),
    Fact(
        "verdict",
        "text",
        "trial",
        "the judge's word",
        ("pass", "fail", "inconclusive", "invalid"),
    ),
    Fact("bound_by", "text", "trial", "what bound the run as a whole", _BOUNDS),
    Fact("bound_share", "number", "trial", "share of that ceiling reached, 0 to 1"),
    Fact("decode_bound", "text", "trial", "what bound decode", _BOUNDS),
    Fact("prefill_bound", "text", "trial", "what bound prefill", _BOUNDS),
    Fact("broken_goal", "text", "trial", "metric of the first goal that broke; empty if none"),
    Fact("prefill_ms_token", "number", "trial", "prefill time a prompt token, ms (reference)"),
    Fact("decode_ms_token", "number", "trial", "TPOT, ms (reference)"),
    Fact("prefill_tokens_s", "number", "trial", "prefill throughput of the build, tokens/s"),
    Fact("decode_tokens_s", "number", "trial", "decode throughput of the build, tokens/s"),
    Fact("decode_share_percent", "number", "trial", "share of the run spent in decode, percent"),
    Fact("prefill_share_percent", "number", "trial", "share of the run spent in prefill, percent"),
    Fact("decode_cost_ratio", "number", "trial", "TPOT over prefill time a token (reference)"),
    Fact("decode_throughput_ratio", "number", "trial", "decode throughput over the reference's"),
    Fact("tpot_ratio", "number", "trial", "TPOT over the reference's"),
    Fact("memory_ratio", "number", "trial", "bytes held over the reference's"),
    Fact("kl", "number", "trial", "mean KL divergence to float32, nats a token"),
    Fact("top1", "number", "trial", "share of equal most likely tokens, 0 to 1"),
    Fact("prefill_ceiling_percent", "number", "trial", "prefill's share of its ceiling, percent"),
    Fact("decode_ceiling_percent", "number", "trial", "decode's share of its ceiling, percent"),
    # Derived here from the facts above, wherever those are had.
    Fact("weight_bytes", "number", "always", "bytes a weight takes at the build's precision"),
    Fact(
        "intensity", "number", "always", "FLOP a byte of weights in a decode step: 2 batch / bytes"
    ),
    Fact("ridge", "number", "machine", "FLOP a byte at which compute binds: rate / bandwidth"),
    Fact("past_ridge", "bool", "machine", "decode's intensity has reached the ridge"),
    Fact("kv_mb", "number", "machine", "KV cache of the batch at its last token, 10^6 bytes"),
    Fact("kv_percent", "number", "machine", "kv_mb as a share of weights_mb, percent"),
    Fact("guess_over", "bool", "trial", "a dial guess was above the truth"),
    Fact("build_tpot_ms", "number", "trial", "TPOT of the build, ms"),
)

FACTS: Mapping[str, Fact] = {fact.name: fact for fact in _ALL}
ALWAYS = frozenset(fact.name for fact in _ALL if fact.known == "always")
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
