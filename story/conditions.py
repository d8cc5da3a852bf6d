"""Can conditions hold together, and do a scene's conditions leave a gap? Reasoning for the linter.

A fact's possible values are sampled: its words, true and false, or every threshold that occurs
with a point on either side of it. For conditions that only compare with constants this is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from story.fact_table import Fact
from story.facts import FactValue, holds
from story.schema import Condition, Line


def possible(
    fact: Fact, conditions: Iterable[Condition], words: Sequence[str] = ()
) -> tuple[FactValue, ...]:
    """Values of `fact` that tell the conditions on it apart. `words` narrow a text fact's own."""
    mine = [condition for condition in conditions if condition.fact == fact.name]
    if fact.kind == "bool":
        return (True, False)
    known = tuple(words) or fact.words
    if known:
        return known
    if fact.kind == "text":
        named = {str(condition.value) for condition in mine}
        return (*sorted(named), "".join(sorted(named)) + "?")
    points = {float(one.value) for one in mine if not isinstance(one.value, str | bool)}
    around = {value + side for value in points for side in (-1e-6, 0.0, 1e-6)}
    around |= {value for value in (fact.low, fact.high) if math.isfinite(value)} or {0.0}
    return tuple(sorted(value for value in around if fact.low <= value <= fact.high))


def agree(value: FactValue, fact: str, conditions: Iterable[Condition]) -> bool:
    """True where `value` meets every condition on `fact`."""
    return all(holds(one, {fact: value}) for one in conditions if one.fact == fact)


def contradiction(
    facts: Iterable[Fact], line: Line, words: dict[str, tuple[str, ...]]
) -> str | None:
    """The fact no value of which meets all of the line's conditions; None where there is none."""
    for fact in facts:
        values = possible(fact, line.when, words.get(fact.name, ()))
        if not any(agree(value, fact.name, line.when) for value in values):
            return fact.name
    return None


def gaps(fact: Fact, lines: Sequence[Line], words: tuple[str, ...]) -> tuple[FactValue, ...]:
    """Values of `fact` that none of the lines conditioned on it is told for."""
    asking = [line for line in lines if any(one.fact == fact.name for one in line.when)]
    every = [condition for line in asking for condition in line.when]
    return tuple(
        value
        for value in possible(fact, every, words)
        if asking and not any(agree(value, fact.name, line.when) for line in asking)
    )
