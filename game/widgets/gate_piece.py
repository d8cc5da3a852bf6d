"""Bronze Gate: the rune-cut door, and, once a request has run, its time laid out."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.geometry import Region

from engine.trial import RunSample
from game.measured import typical_run
from game.roof_points import shares_of_ceilings
from game.widgets.drawn import Picture
from game.widgets.figures import duration
from game.widgets.hall_piece import HallPiece
from game.widgets.ink import Line, Run
from game.widgets.phase_table import PhaseHeads, PhaseRow, draw_phases
from game.widgets.runes import RuneField, Script
from game.widgets.timeline import INK_OF, PHASES, Phase, Spell, draw_timeline, spells


class GatePiece(HallPiece):
    DEFAULT_CSS = """
    GatePiece { align: center middle; }
    GatePiece RuneField { height: 1fr; width: 1fr; }
    GatePiece Picture { height: auto; padding: 1 2 0 2; }
    """

    def compose(self) -> ComposeResult:
        yield RuneField(self._script)
        yield Picture(id="timeline")

    @property
    def _script(self) -> Script:
        if getattr(self.app, "plain_glyphs", False):
            return "ascii"
        return "zh" if self.say("piece.script") == "zh" else "en"

    def update_piece(self) -> None:
        runes, picture = self.query_one(RuneField), self.query_one(Picture)
        parts, total = self._parts()
        runes.display, picture.display = not parts, bool(parts)
        if parts:
            picture.show(lambda columns, rows, plain: self._draw(parts, total, columns, plain))
            return
        runes.show(self._script, self.frame.debt)
        runes.drift(self.pace == "free")
        size = self.size
        width, height = min(30, size.width // 3), max(size.height - 3, 1)
        runes.open_door(Region((size.width - width) // 2, size.height - height, width, height))

    @property
    def _band_rows(self) -> int:
        """What the title, the axis and the table leave; past eight rows more says nothing more."""
        return min(max(self.size.height - 14, 3), 8)

    def _sample(self) -> RunSample | None:
        result = self.frame.result
        return None if result is None else typical_run(result.singles)

    def _parts(self) -> tuple[tuple[Spell, ...], float]:
        """What has run of the request, and the time the whole is expected to take."""
        sample = self._sample()
        if sample is not None:
            found = spells(sample)
            return found, sum(part.seconds for part in found)
        known = self.frame.measured
        rates, shape = known.candidate, self.frame.shape.get("candidate")
        if rates.prefill is None or rates.decode is None or shape is None:
            return (), 0.0
        batch, prompt, output = shape
        prefill, step = rates.prefill * batch * prompt, rates.decode * batch
        # Off the clock the request has run to its end.
        at = {"prefill": 0, "decode": known.position, None: output - 1}[known.phase]
        done = min(max(at, 0), output - 1)
        parts = (Spell("prefill", prefill), *(Spell("decode", step),) * done)
        return parts, prefill + step * (output - 1)

    def _draw(
        self, parts: tuple[Spell, ...], total: float, columns: int, plain: bool
    ) -> list[Line]:
        title = self.say("piece.gate.title", total=duration(total))
        lines: list[Line] = [(Run(title, "dim"),), ()]
        lines += draw_timeline(parts, columns, plain, total, self._band_rows)
        lines.append(())
        rows = [self._row(phase, parts, total) for phase in PHASES if self._has(phase, parts)]
        heads = PhaseHeads(
            self.say("piece.head.time"),
            self.say("piece.head.of_run"),
            self.say("piece.head.bandwidth"),
            self.say("piece.head.compute"),
        )
        return lines + draw_phases(rows, heads, columns, plain)

    @staticmethod
    def _has(phase: str, parts: tuple[Spell, ...]) -> bool:
        return any(part.phase == phase for part in parts)

    def _row(self, phase: Phase, parts: tuple[Spell, ...], total: float) -> PhaseRow:
        spent = [part.seconds for part in parts if part.phase == phase]
        work, ceilings = self.frame.work.get("candidate"), self.frame.ceilings
        shares: tuple[float | None, float | None] = (None, None)
        if work is not None and ceilings is not None and phase != "other" and spent:
            piece = work.prefill if phase == "prefill" else work.decode
            one = sum(spent) / len(spent)
            shares = shares_of_ceilings(piece, one, ceilings, self.frame.precision["candidate"])
        return PhaseRow(
            name=self.say(f"piece.phase.{phase}"),
            ink=INK_OF[phase],
            seconds=sum(spent),
            of_run=sum(spent) / total if total > 0 else 0.0,
            bandwidth=shares[0],
            compute=shares[1],
        )
