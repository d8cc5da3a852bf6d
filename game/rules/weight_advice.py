"""What to do about weights in fewer bits, by the goal that broke. Pure: codes of interface text."""

from __future__ import annotations

from collections.abc import Iterable

from engine.trial import TrialResult

_TOO_HEAVY = frozenset({"weight_share", "average_bits"})
_QUALITY = frozenset({"kl", "top1", "perplexity_ratio", "probes_right"})
_PACKED, _DECODED = "packed-", " plain"
"""How the name of a form begins whose codes lie packed, and what tells that they are decoded for
every product. `onednn-packed` is none of these: it multiplies by full-width weights."""


def weight_advice(broken: Iterable[str], result: TrialResult) -> tuple[str, ...]:
    """Codes in the order of the broken goals, each once; none where weights are not to blame."""
    found = (_advice(metric, result) for metric in broken)
    return tuple(dict.fromkeys(code for code in found if code))


def _advice(metric: str, result: TrialResult) -> str:
    if metric in _TOO_HEAVY:
        return "fewer_bits"
    if result.quantised is None:
        return ""
    if metric in _QUALITY:
        return "better_method" if result.quantised.method == "rtn" else "finer_grid"
    if metric == "ttft_ratio" and not _made_dense(result):
        return "dense_prefill"
    if metric == "tpot_ratio" and _decodes(result):
        return "fast_width"
    return ""


def _made_dense(result: TrialResult) -> bool:
    """Whether prefill multiplied by dense weights already: its passes have more rows than the
    crossover, at which advice to set it would be void."""
    config = result.config
    rows = config.schedule.prefill_chunk or config.workload.prompt
    return 0 < config.weights.crossover < min(rows, config.workload.prompt)


def _decodes(result: TrialResult) -> bool:
    """Whether a matrix is unpacked for every product, as `kernel_path` names its forms."""
    forms = (form for part in ("linear", "head") for form in _forms(result, part))
    return any(form.startswith(_PACKED) and _DECODED in form for form in forms)


def _forms(result: TrialResult, part: str) -> list[str]:
    return result.kernel_path.get(part, "").split(" + ")
