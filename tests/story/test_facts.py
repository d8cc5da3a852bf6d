"""Choosing and filling lines: conditions, absent facts, facts that follow from others."""

from __future__ import annotations

import pytest

from story.facts import ALWAYS, FACTS, derive, holds, quote, tell
from story.schema import Condition, Line, Reply


def line(text: str, *when: Condition, choices: tuple[Reply, ...] = ()) -> Line:
    return Line(id="x", who="elder", text=text, when=when, choices=choices)


@pytest.mark.parametrize(
    ("op", "value", "fact", "expected"),
    [
        (">=", 3, 3, True),
        (">", 3, 3, False),
        ("<=", 3, 3.0, True),
        ("<", 3, 2.9, True),
        ("==", 3.0, 3, True),
        ("!=", 3, 4, True),
        ("==", "compute", "compute", True),
        ("!=", "compute", "bandwidth", True),
        ("==", True, True, True),
        ("==", True, 1, False),
        ("==", 1, True, False),
        (">=", 1, True, False),
        (">=", "a", "b", False),
        (">=", 1, "7", False),
        ("==", "1", 1, False),
    ],
)
def test_a_condition_compares_only_what_is_alike(
    op: str, value: object, fact: object, expected: bool
) -> None:
    condition = Condition(fact="debt", op=op, value=value)  # type: ignore[arg-type]
    assert holds(condition, {"debt": fact}) is expected  # type: ignore[dict-item]


@pytest.mark.parametrize("op", [">=", "<=", "==", "!="])
def test_a_condition_on_an_absent_fact_does_not_hold(op: str) -> None:
    assert not holds(Condition(fact="kl", op=op, value=1), {})  # type: ignore[arg-type]


def test_lines_are_told_in_order_where_every_condition_holds() -> None:
    few = Condition(fact="attempts", op="<=", value=1)
    owing = Condition(fact="debt", op=">=", value=5)
    lines = [line("a"), line("b", few), line("c", few, owing), line("d {debt}")]
    told = tell(lines, {"attempts": 1, "debt": 2})
    assert [one.text for one in told] == ["a", "b", "d 2"]
    assert lines[3].text == "d {debt}"


def test_a_line_that_quotes_an_absent_fact_is_not_told() -> None:
    assert tell([line("KL {kl}"), line("{attempts}")], {"attempts": 1})[0].text == "1"


def test_replies_are_filled_and_those_with_holes_left_out() -> None:
    replies = (
        Reply(id="a", text="{debt}?", answer="{debt}!"),
        Reply(id="b", text="kl", answer="{kl}"),
    )
    (told,) = tell([line("ask", choices=replies)], {"debt": 3})
    assert [(reply.text, reply.answer) for reply in told.choices] == [("3?", "3!")]


def test_a_formula_with_a_hole_is_none() -> None:
    assert quote("{weights_mb} / {bandwidth_gb}", {"weights_mb": 538.0}) is None
    assert quote("{weights_mb:.0f}", {"weights_mb": 538.2}) == "538"
    assert quote("no facts", {}) == "no facts"


def test_derived_facts_follow_the_textbook() -> None:
    facts = derive(
        {"precision": "bfloat16", "batch": 8, "flops_t": 2.3, "bandwidth_gb": 22.0,
         "guess": 18.0, "truth": 34.0, "decode_ms_token": 29.0, "tpot_ratio": 1.5}
    )  # fmt: skip
    assert facts["weight_bytes"] == 2
    assert facts["intensity"] == 8  # 2 FLOP a weight a request, 2 bytes a weight
    assert facts["ridge"] == pytest.approx(2.3e12 / 22e9)
    assert facts["past_ridge"] is False
    roof = {"precision": "float32", "flops_t": 0.37, "bandwidth_gb": 22.0}  # ridge at 16.8
    assert [derive({**roof, "batch": n})["past_ridge"] for n in (32, 33, 34)] == [
        False,
        False,
        True,
    ]
    assert facts["guess_over"] is False
    assert facts["build_tpot_ms"] == pytest.approx(43.5)


def test_derived_facts_need_what_they_derive_from() -> None:
    assert derive({"precision": "int7", "batch": 8}) == {"precision": "int7", "batch": 8}
    assert "guess_over" not in derive({"guess": "compute", "truth": "bandwidth"})
    assert "ridge" not in derive({"flops_t": 1.0, "bandwidth_gb": 0.0})
    assert derive({"precision": "float32", "batch": 1, "intensity": 9.0})["intensity"] == 9.0


def test_every_fact_is_documented_and_named_once() -> None:
    assert all(fact.doc and fact.name == name for name, fact in FACTS.items())
    assert {"player", "debt", "attempts", "batch"} <= ALWAYS
    assert not {"truth", "device", "guess"} & ALWAYS
