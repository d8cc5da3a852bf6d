"""The trial: the set piece plays what the engine does, drawn twice a second while clocks run."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.timer import Timer

from engine.clean import clean
from engine.messages import AnyEvent, Pressed, Progress
from game.measured import BuildName, Measured, hear
from game.outcome import Outcome, SessionInputError
from game.screens.hall_screen import InHallScreen
from game.screens.pressing_words import PRESSING, pressed_words
from game.waking import EngineState
from game.widgets.abba import draw_order
from game.widgets.bars import draw_bar
from game.widgets.cells import pad, pad_left
from game.widgets.drawn import Picture
from game.widgets.figures import duration
from game.widgets.hall_piece import Frame
from game.widgets.ink import Line, Run
from game.widgets.typesetting import paragraph

if TYPE_CHECKING:
    from engine.price import Price
    from game.play import StageRun

TIMED_PHASES = frozenset({"calibrating", "warmup", "pairs", "timeline", "runs"})
DRAW_SECONDS = 0.5
PATIENCE_SECONDS = 1.0
"""How long an abort may take before the player is back in the forge all the same."""


class TrialScreen(InHallScreen):
    """Nothing here draws more than twice a second: the drawing must not cost the measurement.

    Events are folded as they come and shown at the next beat. Esc stops the trial; whatever the
    engine still does after that is waited for by the next trial, not by the player.
    """

    DEFAULT_CSS: ClassVar[str] = """
    TrialScreen HallPiece { height: 1fr; margin-top: 1; }
    TrialScreen #progress { padding: 0 2; height: 6; margin-top: 1; }
    TrialScreen.-short #progress { height: 7; margin-top: 0; }
    """
    HELP_KEY: ClassVar[str] = "help.play.trial"

    def __init__(self, visit: StageRun) -> None:
        super().__init__(visit)
        self.known = Measured()
        self.stopping = False
        self.trouble = ""
        self._ended = False
        self._dirty = False
        self._pressed: Pressed | None = None
        self._prices: dict[BuildName, Price] = {}
        self._timer: Timer | None = None

    def body(self) -> ComposeResult:
        yield self.make_piece()
        yield Picture(self._draw_progress, id="progress")

    def on_mount(self) -> None:
        self.hall.set_calm(True)
        self._count_work()
        self._timer = self.set_interval(DRAW_SECONDS, self.beat)
        self.visit.start_trial(self.hear_event, self.ended, self.refused)

    def on_unmount(self) -> None:
        self.hall.set_calm(False)

    def _count_work(self) -> None:
        """Work by formula, for the roofline; nothing where the machine is not known yet."""
        self._prices = self.prices()

    def piece_frame(self) -> Frame:
        stage = self.attempt.stage
        machine = self.session.machine
        shapes = {}
        for build, positions in (
            ("candidate", {**stage.build, **self.attempt.build}),
            ("reference", stage.reference_to(self.attempt.build)),
        ):
            shapes[build] = (
                int(positions.get("schedule.batch", 1)),
                int(positions.get("workload.prompt", 128)),
                int(positions.get("workload.output", 24)),
            )
        return Frame(
            debt=self.session.standing().debt,
            measured=self.known,
            ceilings=machine.ceilings if machine is not None else None,
            work={build: price for build, price in self._prices.items()},
            shape=shapes,
            precision={build: price.precision for build, price in self._prices.items()},
            prices=self._prices,
        )

    # What the engine says

    def hear_event(self, event: AnyEvent) -> None:
        self.known = hear(self.known, event)
        if isinstance(event, Pressed):
            self._pressed = event
        elif isinstance(event, Progress) and event.phase not in PRESSING:
            self._pressed = None
        self._dirty = True

    def engine_changed(self, state: EngineState) -> None:
        # The end of the engine's waking is not the end of the trial's calm.
        if not self._ended:
            self.hall.set_calm(True)
        self._dirty = True

    def beat(self) -> None:
        """Twice a second: show what was heard since the last time."""
        if not self._dirty or self._ended:
            return
        self._dirty = False
        if not self._prices:
            self._count_work()
        self.update_pieces()
        self.refresh_keys()
        self.query_one("#progress", Picture).refresh()

    def ended(self, outcome: Outcome) -> None:
        """The trial came back. One that the player stopped has no verdict to show."""
        if self._ended:
            return
        self._ended = True
        if outcome.aborted or self.stopping:
            self.visit.trial_stopped(self.say("trial.stopped"))
        else:
            self.visit.judged(outcome)

    def refused(self, error: SessionInputError | OSError | RuntimeError) -> None:
        """There was no trial: the build cannot be, or the engine cannot be had."""
        if not self._ended:
            self._ended = True
            self.visit.trial_stopped(clean(str(error), one_line=True))

    # What stands on the screen

    def _draw_progress(self, width: int, rows: int, plain: bool) -> list[Line]:
        phase, share_done, left = self._progress()
        right = self.say("trial.left", time=duration(left)) if left is not None else ""
        head = (
            Run(pad(phase, max(width - 24, 8)), "strong"),
            Run(pad_left(right, min(24, width)), "silver"),
        )
        lines: list[Line] = [head, draw_bar(share_done, width, "bronze", plain)]
        progress = self.known.progress
        if progress is not None and progress.phase == "pairs" and progress.total > 0:
            lines.append(draw_order(progress.done, progress.total, progress.order, width))
            served = self.attempt.stage.trial == "serve"
            lines += paragraph(
                self.say("trial.order.loads" if served else "trial.order"), width, "dim"
            )
        elif self._pressed is not None:
            model = self.session.model_config
            layers = model.layers if model is not None else 0
            lines += [*paragraph(pressed_words(self.say, self._pressed, layers), width, "text"), ()]
        else:
            lines += [(), ()]
        timed = progress is not None and progress.phase in TIMED_PHASES
        note = "trial.calm" if timed else "trial.untimed"
        if self._pressed is not None:
            note = "trial.note.pressing"
        if self.stopping:
            return lines + paragraph(self.say("trial.stopping"), width, "danger")
        return lines + paragraph(self.say(note), width, "dim")

    def _progress(self) -> tuple[str, float, float | None]:
        """Words, share done, seconds left: of the trial, or of the engine's waking before it."""
        progress = self.known.progress
        if progress is None:
            state = self.hall.engine_state
            key = state.phase if state.busy else "waiting"
            return self.say(f"phase.{key}"), state.share or 0.0, state.seconds_left
        if self._pressed is not None:
            pressed = self._pressed
            words = self.say("trial.pressing", done=pressed.done, total=pressed.total)
            return words, pressed.done / max(pressed.total, 1), progress.seconds_left
        done = progress.done / progress.total if progress.total > 0 else 0.0
        words = self.say(f"phase.{progress.phase}")
        if progress.phase == "pairs":
            number = min(progress.done + 1, progress.total)
            words = self.say("trial.pair", number=number, total=progress.total)
        elif progress.total > 1:
            words = f"{words}  {min(progress.done + 1, progress.total)}/{progress.total}"
        return words, done, progress.seconds_left

    def retell(self) -> None:
        self.query_one("#progress", Picture).refresh()
        super().retell()

    # Keys

    def action_back(self) -> None:
        if self.stopping or self._ended:
            return
        self.stopping = True
        self.query_one("#progress", Picture).refresh()
        self.refresh_keys()
        self.run_worker(self.session.abort(), group="abort", exit_on_error=False)
        self.set_timer(PATIENCE_SECONDS, self._give_up_waiting)

    def _give_up_waiting(self) -> None:
        if not self._ended:
            self._ended = True
            self.visit.trial_stopped(self.say("trial.stopped"))

    def key_words(self, binding_id: str) -> str | None:
        if binding_id == "back":
            return None if self.stopping else self.say("trial.key.stop")
        if binding_id == "ledger":
            return None
        return super().key_words(binding_id)
