"""What a trial says of quantised weights and of their cost in quality, as names with figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.clean import clean
from engine.quality_report import Quality, Rung
from engine.quantised import LayerError, Quantised
from game.rules.cliff import past_the_cliff
from game.rules.weight_facts import worst_error
from game.widgets.figure_table import Row
from game.widgets.figures import duration, plain_number

Say = Callable[..., str]
EMBEDDING = -1
"""The layer under which the embedding's error stands."""
_RUNG = {False: "detail.ladder.rung", True: "detail.ladder.rung.fallen"}
_LOOKS_AT_NOTHING = "rtn"
_MOST = 200  # characters of any one foreign value


def weight_rows(say: Say, weights: Quantised, held: float | None = None) -> list[Row]:
    """Names are the interface text `detail.weights.<name>`. `held` are the bits a weight really
    held, where the account was kept; else they are the formula's."""
    method = method_words(say, weights.method)
    key = "detail.weights.method.figures" if weights.bits else "detail.weights.method.by_kind"
    mean = plain_number(weights.average_bits if held is None else held)
    rows = [
        (
            say("detail.weights.method"),
            say(key, method=method, bits=weights.bits, average=mean),
        ),
        (say("detail.weights.made"), _made(say, weights)),
    ]
    if weights.method != _LOOKS_AT_NOTHING and weights.layers:
        changed = say(
            "detail.weights.changed.figures",
            changed=weights.changed_layers,
            layers=weights.layers,
        )
        rows.append((say("detail.weights.changed"), changed))
    worst = worst_error(weights)
    if worst is not None:
        rows.append((say("detail.weights.worst"), error_words(say, worst)))
    rows += [(say("detail.weights.notice"), words) for words in notice_words(say, weights)]
    return rows


def quality_rows(say: Say, quality: Quality) -> list[Row]:
    """What was looked at beside KL: perplexity, and the questions."""
    rows = [
        (
            say("detail.perplexity"),
            say("detail.perplexity.figures", ratio=plain_number(quality.perplexity_ratio)),
        )
    ]
    probes = quality.probes
    if probes is not None:
        told = say(
            "detail.probes.figures", asked=probes.asked, known=probes.known, right=probes.right
        )
        rows.append((say("detail.probes"), told))
    return rows


def ladder_row(say: Say, ladder: Sequence[Rung]) -> Row:
    """KL of rounding to nearest at each width, the widest first."""
    rungs = sorted(ladder, key=lambda rung: -rung.bits)
    told = "; ".join(
        say(_RUNG[past_the_cliff(rung.kl)], bits=rung.bits, kl=plain_number(rung.kl))
        for rung in rungs
    )
    return say("detail.ladder"), told


def error_words(say: Say, error: LayerError) -> str:
    """Which matrix, and its error in per cent. Layers are counted from 1."""
    share = plain_number(error.error * 100)
    if error.layer == EMBEDDING:
        return say("detail.weights.error.embedding", share=share)
    matrix = matrix_words(say, error.name)
    return say("detail.weights.error", layer=error.layer + 1, matrix=matrix, share=share)


def matrix_words(say: Say, name: str) -> str:
    return _named(say, "piece.furnace.matrix", name)


def method_words(say: Say, method: str) -> str:
    """A method as the knob names it; one this game does not know keeps its own name."""
    return _named(say, "knob.value", method)


def notice_words(say: Say, weights: Quantised) -> list[str]:
    found = []
    for notice in weights.notices:
        details = {
            name: clean(value, _MOST, one_line=True) for name, value in notice.details.items()
        }
        found.append(_named(say, "notice", notice.code, **details))
    return found


def _named(say: Say, family: str, code: str, **details: str) -> str:
    """The interface text `<family>.<code>`, or the code itself where there is none."""
    code = clean(code, _MOST, one_line=True)
    words = say(f"{family}.{code}", **details)
    return code if words == f"[{family}.{code}]" else words


def _made(say: Say, weights: Quantised) -> str:
    """How long it took, apart from every clock of the trial, and what was read for it."""
    if weights.cached:
        return say("detail.weights.cached")
    parts = [say("detail.weights.seconds", time=duration(weights.seconds))]
    if weights.calibration_tokens:
        parts.append(say("detail.weights.read", tokens=f"{weights.calibration_tokens:,}"))
    return "".join(parts)
