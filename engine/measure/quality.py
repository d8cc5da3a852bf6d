"""What a build's speed cost in quality, in four ways of looking, each of them once.

How its scores diverge from the full model's (`comparison`); which questions it still answers and
what it says beside the full model (`asked`); and, of the model as a whole, how far it falls at each
width (`ladder`). A build is looked at on the kernels that were timed, after the clock has stopped.
The float32 model is asked once: what it said is kept on disk (`full_model`), and what it made of
the text, the residual stream of its last layer, in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from msgspec.structs import replace

from engine.config import EngineConfig
from engine.measure.alarm import alarm, row_of
from engine.measure.asked import build_spoken, full_spoken
from engine.measure.comparison import (
    FEWEST_SCORED,
    POSITION_TOKENS,
    FullText,
    OnChunk,
    QualityError,
    compare_with,
    read_text,
    windows,
)
from engine.measure.full_model import FullModel, asked_digest, load_full_model, save_full_model
from engine.measure.ladder import Stairs, measure_rung, rung_name
from engine.measure.probes import questions
from engine.measure.quantising import wanted
from engine.measure.reporter import Reporter
from engine.measure.shelf import Shelf
from engine.measure.workload import corpus_digest, corpus_text
from engine.model.llama import Llama
from engine.quality_report import Quality, Rung
from engine.quant.monotone import Row
from engine.quantised import Notice
from engine.trial import TrialSpec

__all__ = ["Looked", "QualityBook", "QualityError", "measure_quality"]

Place = tuple[str, str, str, int, str]
"""Of a build: model, recipe, precision, KV bits, kernels."""


def measure_quality(
    reference: Llama,
    candidate: Llama,
    token_ids: Sequence[int],
    on_chunk: OnChunk | None = None,
    bits: int = 0,
    text: FullText | None = None,
) -> Quality:
    """`candidate` against the float32 `reference` on at least 2,048 tokens of the text.

    `candidate` keeps its keys and values in `bits`, as `cache.bits` says it; the reference in full.
    The float32 model against itself is the identity and is not run. `text` is what the reference
    made of these tokens, where that is known. `on_chunk` may raise to stop.

    Raises:
        ValueError: `reference` is not in float32, or the text is too short.
        QualityError: a score is not finite.
    """
    hear: OnChunk = on_chunk or (lambda *_: None)
    if candidate is reference and bits == 0 and reference.precision == "float32":
        scored = sum(len(one) - 1 for one in windows(token_ids, reference.config.context))
        return Quality(0.0, 1.0, 1.0, scored, corpus_digest())
    if text is None:
        text = read_text(reference, token_ids, lambda: hear(0, FEWEST_SCORED))
    found = compare_with(reference, text, candidate, hear, bits)
    return Quality(
        kl=found.kl,
        top1=found.top1,
        perplexity_ratio=found.perplexity_ratio,
        scored_tokens=found.scored,
        text_digest=corpus_digest(),
        kl_by_position=found.by_position(text.width),
        position_tokens=POSITION_TOKENS,
    )


@dataclass(frozen=True)
class Looked:
    """`notices` say what about the figures cannot be as it should."""

    quality: Quality
    ladder: tuple[Rung, ...] = ()
    notices: tuple[Notice, ...] = ()


class QualityBook:
    """What this process has looked at. `home` keeps what full models said, None keeps nothing.

    What a full model made of the text is kept until another model's is read.
    """

    def __init__(self, home: Path | None = None) -> None:
        self._home = home
        self._figures: dict[Place, Quality] = {}
        self._rows: dict[Place, Row] = {}
        self._full: dict[str, FullModel] = {}
        self._text: tuple[str, FullText] | None = None

    def look(self, shelf: Shelf, config: EngineConfig, spec: TrialSpec, desk: Reporter) -> Looked:
        """The quality of the build `config` of the model on `shelf`, as far as `spec` asks for it,
        with the build's own threads.

        Raises:
            ValueError: a rung of a width that no grid has.
            QualityError, NonFiniteLogits: a score is not finite.
            Aborted: the player stopped it; what was looked at until then is kept.
        """
        torch.set_num_threads(config.run.threads)
        recipe = wanted(config, shelf.config)
        model = shelf.llama(config.run.precision, recipe, config.weights.crossover)
        path = ";".join(f"{name}={form}" for name, form in sorted(model.kernel_path.items()))
        made = "" if recipe is None else recipe.digest(shelf.digest, model.precision)
        place = (shelf.digest, made, model.precision, config.cache.bits, path)
        quality = self._scores(place, shelf, config, model, desk)
        if spec.probes:
            quality = self._words(place, shelf, config, model, desk)
        row = self._rows.get(place)
        notice = None if row is None else alarm(row, self._rows.values())
        return Looked(
            quality=quality,
            ladder=self._ladder(shelf, spec.ladder, model.precision, desk),
            notices=() if notice is None else (notice,),
        )

    def _scores(
        self, place: Place, shelf: Shelf, config: EngineConfig, model: Llama, desk: Reporter
    ) -> Quality:
        """Figures of the build's scores, without its words."""
        if place not in self._figures:
            reference, bits = shelf.llama("float32"), config.cache.bits
            desk.progress("quality", 0, FEWEST_SCORED)

            def hear(done: int, total: int) -> None:
                desk.progress("quality", done, total)

            identical = model is reference and bits == 0
            text = None if identical else self._read(shelf, desk)
            token_ids = shelf.tokenizer.encode(corpus_text())
            found = measure_quality(reference, model, token_ids, hear, bits, text)
            row = row_of(config, shelf.config, shelf.digest, found.kl)
            if row is not None:
                self._rows[place] = row
            self._figures[place] = found
        return replace(self._figures[place], probes=None, answers=())

    def _words(
        self, place: Place, shelf: Shelf, config: EngineConfig, model: Llama, desk: Reporter
    ) -> Quality:
        """The build's figures with its marks and its answers."""
        figures = self._figures[place]
        if figures.probes is None:
            known = self._known(shelf.digest)
            spoken = known.spoken
            if spoken is None or spoken.asked != asked_digest(questions()):
                spoken = full_spoken(shelf, config.run.threads, desk)
                self._keep(replace(known, spoken=spoken))
            marks, words = build_spoken(shelf, config, model, spoken, desk)
            figures = self._figures[place] = replace(figures, probes=marks, answers=words)
        return figures

    def _ladder(
        self, shelf: Shelf, widths: Sequence[int], precision: str, desk: Reporter
    ) -> tuple[Rung, ...]:
        """The model rounded to nearest at each of `widths`, in their order."""
        names = [rung_name(bits, shelf.config, shelf.digest, precision) for bits in widths]
        for number, (name, bits) in enumerate(zip(names, widths, strict=True)):
            known = self._known(shelf.digest)
            if name in known.rungs:
                continue
            text, stairs = self._read(shelf, desk), Stairs(desk, number, len(widths), bits)
            reference = shelf.llama("float32")
            rung = measure_rung(bits, reference, text, shelf.tensors, precision, stairs)
            self._keep(replace(known, rungs=known.rungs | {name: rung}))
        known = self._known(shelf.digest)
        return tuple(known.rungs[name] for name in names)

    def _read(self, shelf: Shelf, desk: Reporter) -> FullText:
        """What the full model makes of the evaluation text."""
        if self._text is None or self._text[0] != shelf.digest:
            token_ids = shelf.tokenizer.encode(corpus_text())
            text = read_text(shelf.llama("float32"), token_ids, desk.check)
            self._text = (shelf.digest, text)
        return self._text[1]

    def _known(self, digest: str) -> FullModel:
        if digest not in self._full:
            self._full[digest] = load_full_model(digest, self._home)
        return self._full[digest]

    def _keep(self, known: FullModel) -> None:
        self._full[known.digest] = known
        save_full_model(known, self._home)
