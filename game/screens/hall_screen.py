"""What the screens inside a hall share: the run they belong to, and the hall's set piece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType

from engine.drafters import cost_ratio
from engine.knobs import KNOBS
from engine.metrics import METRICS
from engine.resolve import Resolved
from game.measured import BuildName, Measured, settled
from game.screens.base import HallScreen
from game.waking import EngineState
from game.widgets.abyss_piece import AbyssPiece
from game.widgets.cliff_piece import CliffPiece
from game.widgets.footholds import footholds_of, rungs_of
from game.widgets.furnace_piece import FurnacePiece
from game.widgets.gate_piece import GatePiece
from game.widgets.hall_piece import Frame, HallPiece
from game.widgets.kept import Keeping, keeping_of
from game.widgets.keys import KeyHint
from game.widgets.paging_piece import PagingPiece
from game.widgets.pendulum_piece import PendulumPiece
from game.widgets.plaza_piece import PlazaPiece
from game.widgets.trial_points import trial_points

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.domains import Value
    from engine.price import Price
    from engine.trial import TrialResult
    from game.attempt import Attempt
    from game.play import StageRun

KEY_GAP = 2
_DROPPED_FIRST = (
    "leave",
    "language",
    "turn_fine",
    "ledger",
    "look_back",
    "help",
    "turn_view",
    "reset",
    "choose",
)
PIECES: dict[str, type[HallPiece]] = {
    "gate": GatePiece,
    "pendulum": PendulumPiece,
    "abyss": AbyssPiece,
    "furnace": FurnacePiece,
    "paging": PagingPiece,
    "precision": CliffPiece,
    "plaza": PlazaPiece,
}


class InHallScreen(HallScreen[None]):
    """A screen of one visit. Esc steps back to the map unless a subclass says otherwise."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b,B", "look_back", id="look_back"),
        Binding("v,V", "turn_view", id="turn_view"),
    ]

    def __init__(self, visit: StageRun) -> None:
        super().__init__()
        self.visit = visit
        self._was_calm = False

    @property
    def attempt(self) -> Attempt:
        return self.visit.attempt

    def make_piece(self) -> HallPiece:
        """The hall's set piece; a hall without one of its own has the Wall's runes."""
        return PIECES.get(self.attempt.stage.id, GatePiece)(self.say)

    def piece_frame(self) -> Frame:
        """What the set piece may show now: the last trial of this visit, or what is on record."""
        outcome = self.attempt.outcome
        result = outcome.result if outcome is not None else self.visit.last_result()
        machine = self.session.machine
        return Frame(
            debt=self.session.standing().debt,
            measured=Measured() if result is None else settled(result),
            result=result,
            ceilings=result.ceilings if result else machine.ceilings if machine else None,
            work={}
            if result is None
            else {"candidate": result.candidate_work, "reference": result.reference_work},
            shape={},
            precision={}
            if result is None
            else {
                "candidate": result.candidate_work.precision,
                "reference": result.reference_work.precision,
            },
            prices=self.prices(result),
            veiled=self.attempt.guess is None and not self.attempt.truth_known,
        )

    def _with_weights(self, frame: Frame) -> Frame:
        """`frame`, and in a hall about the weights how they are kept and what records say of it."""
        stage = self.attempt.stage
        if not any(name.startswith("weights.") for name in stage.knobs):
            return frame
        records = self.session.records()
        return replace(
            frame,
            keeping=self._keeping(frame.result),
            footholds=footholds_of(records, stage.id) if stage.ladder else (),
            rungs=rungs_of(records, stage.id) if stage.ladder and not frame.veiled else (),
            goals={goal.metric: goal.bound for goal in stage.goals},
        )

    def _keeping(self, result: TrialResult | None) -> Keeping | None:
        config, model = self._config(result), self.session.model_config
        return None if model is None or config is None else keeping_of(config.weights, model)

    def _config(self, result: TrialResult | None) -> EngineConfig | None:
        """Of a trial as it was run, else of the knobs as they stand; None where they cannot be."""
        if result is not None:
            return result.config
        stage, build = self.attempt.stage, self.attempt.build
        changed = {name: build[name] for name in stage.knobs if name in build}
        resolved = self.session.check(stage.id, changed)
        return resolved.config if isinstance(resolved, Resolved) else None

    def _with_drafts(self, frame: Frame) -> Frame:
        """`frame`, and in a hall about drafts what its records say of them and what one costs."""
        stage = self.attempt.stage
        if not any(name.startswith("draft.") for name in stage.knobs):
            return frame
        return replace(
            frame,
            drafts=trial_points(self.session.records(), stage),
            draft_cost=self._draft_cost(frame.result),
            goals={goal.metric: goal.bound for goal in stage.goals},
        )

    def _draft_cost(self, result: TrialResult | None) -> float | None:
        config, model = self._config(result), self.session.model_config
        machine = self.session.capabilities
        if config is None or model is None or machine is None:
            return None
        forms = machine.low_bit_forms.get(config.run.precision, ())
        try:
            return cost_ratio(config, model, self.session.drafters, forms)
        except ValueError:  # nothing of the kind can draft here; the forge says so
            return None

    def prices(self, result: TrialResult | None = None) -> dict[BuildName, Price]:
        """Both builds by formula: of a trial as it was run, else of the knobs as they stand."""
        stage = self.attempt.stage
        positions = self.attempt.build if result is None else result.spec.build
        builds: dict[BuildName, Mapping[str, Value]] = {
            "candidate": positions,
            "reference": stage.reference_to(positions),
        }
        found: dict[BuildName, Price] = {}
        for build, values in builds.items():
            changed = {name: values[name] for name in stage.knobs if name in values}
            price = self.session.price(stage.id, changed)
            if price is not None:
                found[build] = price
        return found

    def guess_words(self, value: float | str) -> str:
        """A guess or a truth of this hall with its unit; a choice in its own words."""
        rule = self.attempt.stage.guess
        if isinstance(value, str) or rule is None:
            return self.visit.guess_word(value)
        number, metric = self.visit.guess_word(value), METRICS[rule.metric]
        if metric.kind == "ratio":
            return self.say("guess.value", value=number)
        return f"{number} {metric.unit}"

    def update_pieces(self) -> None:
        """Tell the set piece what is known, and let it move as far as the settings allow."""
        for piece in self.query(HallPiece):
            piece.show(self._with_drafts(self._with_weights(self.piece_frame())))
            piece.set_pace("still" if self.reduced_motion else "timed" if self.calm else "free")

    def retell(self) -> None:
        self.set_class(self.short, "-short")
        self.update_pieces()
        super().retell()

    def engine_changed(self, state: EngineState) -> None:
        """The engine began or ended something timed: move no faster than that allows."""
        super().engine_changed(state)
        if self._was_calm != self.calm:
            self._was_calm = self.calm
            self.update_pieces()

    def on_resize(self, event: events.Resize) -> None:
        """What fits has changed: the views of the set piece, the keys on the strip."""
        self.call_after_refresh(self._sized)

    def _sized(self) -> None:
        if self.is_mounted:
            self.retell()

    @property
    def short(self) -> bool:
        """Below 24 rows: margins go, and what is said twice is said once."""
        return self.app.size.height < 24

    def key_hints(self) -> list[KeyHint]:
        """What does not fit goes in this order; the hint, unlike elsewhere, stays to the last."""
        hints = super().key_hints()
        room = self.app.size.width - 2
        for name in _DROPPED_FIRST:
            if sum(hint.cells + KEY_GAP for hint in hints) - KEY_GAP > room:
                hints = [hint for hint in hints if hint.id != name]
        return hints

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        action = action.partition("(")[0]
        if action == "turn_view":
            return any(
                piece.two_views and not piece.room_for_both for piece in self.query(HallPiece)
            )
        if action == "look_back":
            return bool(self.attempt.told)
        return super().check_action(action, parameters)

    def action_turn_view(self) -> None:
        for piece in self.query(HallPiece):
            piece.turn_view()

    def action_look_back(self) -> None:
        from game.screens.history import HistoryScreen

        self.app.push_screen(HistoryScreen(self.visit))

    def action_back(self) -> None:
        self.visit.leave()

    def knob_words(self, name: str, value: Value) -> str:
        """A knob's position as it is read: numbers as they are, named positions in words."""
        shown = KNOBS[name].domain.show(value)
        if isinstance(value, int | float) and shown in (str(value), f"{value:g}"):
            return shown
        return self._named(f"knob.value.{shown}", shown)

    def _named(self, key: str, otherwise: str) -> str:
        words = self.say(key)
        return otherwise if words == f"[{key}]" else words
