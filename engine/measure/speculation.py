"""A build that drafts, looked at once the clock has stopped: the proof that nothing was lost, and
three answers word by word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from msgspec.structs import replace

from engine.clean import clean
from engine.config import DraftConfig, EngineConfig
from engine.draft_report import DraftedText, DraftReport, Drawn, Fate, Lossless, Piece
from engine.measure.answers import parting
from engine.measure.asking import asked_for
from engine.measure.drawn import places_of, weigh
from engine.measure.harness import BuildEngine, Harness
from engine.measure.output_check import tolerance
from engine.measure.reporter import Reporter
from engine.measure.shelf import ShelfTokenizer
from engine.measure.timing import Answered
from engine.model.llama import Llama
from engine.recipe import recipe_of
from engine.run.scoring import score_chunks
from engine.schedule.sequence import SamplingParams

PROMPTS: Mapping[str, str] = {
    "story": "Tell me a short story about a lighthouse keeper and a storm.",
    "code": "Write a Python function that returns the largest number in a list.",
    "list": "List the days of the week in order.",
}
"""By kind of text: what is easy to foresee differs more between kinds than between drafts."""

TOKENS, FEWEST = 48, 8
"""Of an answer: as many as the build's cache has room for."""


def report(
    candidate: Harness, reference: Harness | None, judge: Llama, tokenizer: ShelfTokenizer
) -> DraftReport:
    """Of a candidate that drafts. Raises NonFiniteLogits."""
    desk = candidate.desk
    config = candidate.config
    proof, drawn = None, None
    if reference is not None and is_twin(config, reference.config):
        if config.sampling.temperature:
            drawn = drawn_alike(candidate.timed, judge, config.sampling.temperature, desk)
        else:
            allowed = tie(config, judge)
            proof = compare(reference.timed, candidate.timed, judge, allowed, desk)
    texts = tuple(_texts(candidate.engine, config, tokenizer, desk))
    return DraftReport(proof, texts, drawn)


def is_twin(drafting: EngineConfig, plain: EngineConfig) -> bool:
    """Whether they are the same but for the draft, which `plain` has not."""
    return plain.draft.most == 0 < drafting.draft.most and replace(
        drafting, draft=DraftConfig()
    ) == replace(plain, draft=DraftConfig())


def tie(config: EngineConfig, judge: Llama) -> float:
    """How far apart two scores of the float32 model may lie, in their standard deviations, where
    rounding still says which is the larger."""
    recipe = recipe_of(config.weights, judge.config)
    return tolerance(config.run.precision, config.cache.bits, recipe)


def compare(
    plain: Sequence[Answered],
    drafted: Sequence[Answered],
    judge: Llama,
    allowed: float,
    desk: Reporter,
) -> Lossless:
    """Runs of two builds on the same prompts, in the same order."""
    identical = ties = requests = 0
    widest = 0.0
    for number, (theirs, ours) in enumerate(zip(plain, drafted, strict=True)):
        desk.progress("lossless", number, len(drafted))
        for prompt, one, other in zip(ours.prompts, theirs.outputs, ours.outputs, strict=True):
            requests += 1
            place = parting(one, other)
            if place is None:
                identical += 1
                continue
            margin = _margin(judge, [*prompt, *one[:place]], one[place], other[place])
            if margin <= allowed:
                ties += 1
                widest = max(widest, margin)
    return Lossless(requests, identical, ties, widest, allowed)


def drawn_alike(
    runs: Sequence[Answered], judge: Llama, temperature: float, desk: Reporter
) -> Drawn | None:
    """Sampled runs of a build that drafts, held to the distribution of the float32 model: no two
    draws are alike, so there is no text to compare with. None without a run."""
    found: list[float] = []
    for number, run in enumerate(runs):
        desk.progress("lossless", number, len(runs))
        found += places_of(judge, [run], temperature)
    return weigh(found) if found else None


def _margin(judge: Llama, text: Sequence[int], one: int, other: int) -> float:
    """How far apart two words lie after a text, in standard deviations of all scores there."""
    *_, last = score_chunks(judge, text)
    row = last[-1]
    return float((row[one] - row[other]).abs() / row.std().clamp_min(1e-12))


def _texts(
    engine: BuildEngine, config: EngineConfig, tokenizer: ShelfTokenizer, desk: Reporter
) -> Iterator[DraftedText]:
    room = config.workload.prompt + config.workload.output
    for number, (kind, prompt) in enumerate(PROMPTS.items()):
        desk.progress("drafted", number, len(PROMPTS))
        try:
            ids = tokenizer.chat([("user", prompt)])
        except ValueError:  # the model's template takes no questions
            return
        tokens = min(TOKENS, room - len(ids))
        if tokens >= FEWEST:
            yield _text(engine, tokenizer, kind, ids, asked_for(config.sampling, ids, tokens))


def _text(
    engine: BuildEngine,
    tokenizer: ShelfTokenizer,
    kind: str,
    ids: list[int],
    params: SamplingParams,
) -> DraftedText:
    engine.reset()
    request = engine.add_request(ids, params)
    said: list[tuple[int, Fate]] = []
    drafted = accepted = steps = 0
    while engine.has_work:
        step = engine.step()
        given, verified = step.tokens.get(request, ()), step.drafts.get(request)
        steps += step.phase == "decode"
        if verified is None:
            said += [(token, "plain") for token in given]
            continue
        drafted += len(verified.tokens)
        accepted += verified.accepted
        said += _fates(given, verified.tokens, verified.accepted)
    engine.reset()
    return DraftedText(
        kind=kind,
        prompt=PROMPTS[kind],
        pieces=tuple(_pieces(tokenizer, said)),
        drafted=drafted,
        accepted=accepted,
        steps=steps,
        tokens=sum(fate != "rejected" for _, fate in said),
    )


def _fates(given: Sequence[int], draft: Sequence[int], accepted: int) -> Iterator[tuple[int, Fate]]:
    """Of a step's tokens, and of the drafted one that fell; an answer may end within its draft."""
    for token in given[:accepted]:
        yield token, "accepted"
    fell = accepted < len(draft)
    for token in given[accepted:]:
        if fell:
            yield draft[accepted], "rejected"
        yield token, "corrected" if fell else "added"


def _pieces(tokenizer: ShelfTokenizer, said: Sequence[tuple[int, Fate]]) -> Iterator[Piece]:
    for fate, run in groupby(said, key=lambda one: one[1]):
        text = clean(tokenizer.decode([token for token, _ in run]), limit=400)
        if text:
            yield Piece(text, fate)
