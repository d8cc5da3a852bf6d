"""The mountain, from the gate at its foot to the Mirror at its summit: one row a hall."""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static

from game.rules.standing import HallStanding, Standing
from game.screens.base import HallScreen
from game.waking import EngineState
from game.widgets.cells import clip
from game.widgets.engine_line import EngineLine
from game.widgets.figures import plain_number, share, times
from game.widgets.hall_detail import hall_detail
from game.widgets.hall_row import ASCII_MARKS, LIT_MARKS, Crown, HallRow, HallView, Marks
from game.widgets.metric_figure import metric_figure
from game.widgets.mountain import Mountain, Station
from story.schema import Stage

CROWNS = ("time", "memory", "quality", "pareto")
WIDE = Size(120, 34)
"""From this size the mountain is drawn and the hall's panel stands beside it."""
FIRST_ROW = 1
PANEL_CELLS, PANEL_MARGIN = 40, 7
"""Cells of the panel beside the mountain, and how many of them stay empty."""


class MapScreen(HallScreen[None]):
    DEFAULT_CSS: ClassVar[str] = """
    MapScreen #heading { height: 2; padding: 0 1; }
    MapScreen #slope { height: auto; }
    MapScreen Mountain { width: 0; display: none; }
    MapScreen #halls { width: 1fr; height: auto; padding: 0 1; }
    MapScreen #told { height: 1fr; padding: 1 1 0 1; scrollbar-size-vertical: 1; }
    MapScreen #told Static { width: 100%; height: auto; }
    MapScreen.-wide #slope { height: 1fr; }
    MapScreen.-wide Mountain { width: 1fr; height: 1fr; display: block; }
    MapScreen.-wide #halls { width: 46; height: 1fr; padding: 1 0 0 0; }
    MapScreen.-wide #told { width: 40; height: 1fr; padding: 1 2 0 4; }
    MapScreen.-wide.-ascii Mountain { display: none; }
    MapScreen.-wide.-ascii #halls { width: 1fr; padding: 1 0 0 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "climb(1)"),
        Binding("down,j", "climb(-1)"),
        Binding("home", "climb(99)"),
        Binding("end", "climb(-99)"),
        Binding("s,S", "settings", id="settings"),
        Binding("r,R", "trouble", id="trouble"),
    ]
    HELP_KEY: ClassVar[str] = "map.help"

    def __init__(self) -> None:
        super().__init__()
        self._chosen = 0
        self._standing: Standing | None = None

    def body(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        with Horizontal(id="slope"):
            yield Mountain()
            with Vertical(id="halls"):
                for stage in reversed(self.session.stages):
                    yield HallRow(stage.id)
            with VerticalScroll(id="told", can_focus=False):
                yield Static(id="detail", markup=False)
        yield EngineLine()

    @property
    def stage(self) -> Stage:
        """The hall that is chosen."""
        return self.session.stages[self._chosen]

    @property
    def standing(self) -> Standing:
        if self._standing is None:
            self._standing = self.session.standing()
        return self._standing

    def on_mount(self) -> None:
        self._stand()
        super().on_mount()

    def on_screen_resume(self) -> None:
        before = self._standing
        self._standing = None
        if before is not None and self.standing.passed != before.passed:
            self._stand()
        super().on_screen_resume()
        self.hall.check_engine()
        self.hall.tell_notices()

    def _stand(self) -> None:
        """Choose the hall where the player stands: theirs, or the next once that is passed."""
        stages = self.session.stages
        profile = self.session.profile
        here = next((at for at, one in enumerate(stages) if profile and one.id == profile.stage), 0)
        passed = self.standing.passed
        if stages[here].id in passed:
            waiting = [at for at, one in enumerate(stages)
                       if self.standing.halls[one.id].state == "open"]  # fmt: skip
            here = waiting[0] if waiting else here
        self._chosen = here

    # What is shown

    def retell(self) -> None:
        self._choose_layout(self.size)
        self._show_heading()
        self._show_halls()
        self.engine_changed(self.hall.engine_state)
        super().retell()

    @property
    def _wide(self) -> bool:
        return self.has_class("-wide")

    @property
    def _step(self) -> int:
        """Rows from one hall to the next."""
        if not self._wide:
            return 1
        return min((self.size.height - 6) // len(self.session.stages), 5)

    def _choose_layout(self, size: Size) -> None:
        wide = size.width >= WIDE.width and size.height >= WIDE.height
        self.set_class(wide, "-wide")
        self.set_class(self.hall.plain_glyphs, "-ascii")
        slope = self.query_one("#slope")
        slope.styles.layout = "horizontal" if wide else "vertical"
        slope.styles.height = "1fr"

    def _show_heading(self) -> None:
        profile = self.session.profile
        debt = self.standing.debt
        left = Content.styled(self.say("map.name"), "bold $bronze-bright")
        name = clip(profile.name, 24) if profile else ""
        right = Content.assemble(
            (name, "$silver"),
            "   ",
            (self.say(f"map.rank.{self.standing.rank}"), "$mist"),
            "   ",
            (self.say("map.debt", debt=debt), "$violet" if debt else "$cyan-bright"),
        )
        room = self.size.width - 2 - left.cell_length - right.cell_length
        self.query_one("#heading", Static).update(left + " " * max(room, 2) + right)

    def _show_halls(self) -> None:
        views = {stage.id: self._view(stage) for stage in self.session.stages}
        marks = self._marks
        for row in self.query(HallRow):
            row.show(views[row.stage], marks, row.stage == self.stage.id, self._step)
        rows = [stage.id for stage in reversed(self.session.stages)]
        self.query_one(Mountain).show(
            [
                Station(FIRST_ROW + self._step * at, views[one].state, one == self.stage.id)
                for at, one in enumerate(rows)
            ]
        )
        self._show_detail(views[self.stage.id])

    def _show_detail(self, view: HallView) -> None:
        text, hall = self.session.stage_text(view.stage), self.standing.halls[view.stage]
        width = PANEL_CELLS - PANEL_MARGIN if self._wide else max(self.size.width - 4, 20)
        detail = hall_detail(self.say, view, text, hall, width, self._wide)
        self.query_one("#detail", Static).update(detail)

    @property
    def _marks(self) -> Marks:
        return ASCII_MARKS if self.hall.plain_glyphs else LIT_MARKS

    def _view(self, stage: Stage) -> HallView:
        hall = self.standing.halls[stage.id]
        return HallView(
            stage=stage.id,
            name=self.session.stage_text(stage.id).name,
            state=hall.state,
            state_word=self.say(f"map.state.{hall.state}"),
            crowns=self._crowns(stage, hall),
            best=self._best(stage, hall),
            scar=self.say("map.scar") if hall.scar is not None else "",
            scar_words=self.say("map.scar.left.cliff") if stage.scar == "cliff" else "",
            debt=f"{hall.debt:+d}" if hall.debt else "",
            note=self._note(hall) if hall.state == "sealed" else "",
        )

    def _crowns(self, stage: Stage, hall: HallStanding) -> tuple[Crown, ...]:
        offered = bool(stage.crowns)
        return tuple(
            Crown(self.say(f"map.crown.{name}"), name in hall.crowns if offered else None)
            for name in CROWNS
        )

    def _best(self, stage: Stage, hall: HallStanding) -> str:
        """The best record's figures; where a hall has no goals, the guess that was scored."""
        if hall.best is not None and hall.best.figures:
            figures = dict(hall.best.figures)
            if "live_tokens" in figures:
                return self.say("map.best.live_tokens", value=f"{figures['live_tokens']:,.0f}")
            if {"throughput_ratio", "memory_use"} <= figures.keys():
                ratio, use = times(figures["throughput_ratio"]), figures["memory_use"] * 100
                return self.say("map.best.served", ratio=ratio, use=plain_number(use, 2))
            if {"weight_share", "tpot_ratio"} <= figures.keys():
                held, ratio = figures["weight_share"], times(figures["tpot_ratio"])
                return self.say("map.best.weights", share=share(held), ratio=ratio)
            if "average_bits" in figures:
                bits = plain_number(figures["average_bits"], 2)
                return self.say("map.best.bits", bits=bits)
            return "  ".join(metric_figure(name, value) for name, value in hall.best.figures)
        if hall.guess is not None:
            value = str(hall.guess.value)
            words = self.session.stage_text(stage.id).choices.get(value, value)
            return self.say("map.guessed", guess=words)
        return ""

    def _note(self, hall: HallStanding) -> str:
        if hall.needs is None:
            return self.say("map.unbuilt")
        return self.say("map.opens_after", hall=self.session.stage_text(hall.needs).name)

    def engine_changed(self, state: EngineState) -> None:
        self.query_one(EngineLine).tell(state, self.hall.engine_words())
        self.refresh_keys()

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        if self.told:
            self.retell()

    # What the keys do

    def key_words(self, binding_id: str) -> str | None:
        if binding_id == "go_on":
            return None if self._is_sealed else self.say("map.enter")
        if binding_id == "trouble" and self.hall.engine_state.phase != "failed":
            return None
        return super().key_words(binding_id)

    @property
    def _is_sealed(self) -> bool:
        return self.standing.halls[self.stage.id].state == "sealed"

    def action_climb(self, by: int) -> None:
        top = len(self.session.stages) - 1
        self._chosen = min(max(self._chosen + by, 0), top)
        self._show_halls()
        self.refresh_keys()

    def action_go_on(self) -> None:
        if not self._is_sealed:
            self.hall.open_stage(self.stage.id)

    def action_back(self) -> None:
        self.app.pop_screen()

    def action_settings(self) -> None:
        self.hall.open_settings()

    def action_trouble(self) -> None:
        if self.hall.engine_state.phase == "failed":
            self.hall.open_trouble()

    @on(HallRow.Chosen)
    def _clicked(self, message: HallRow.Chosen) -> None:
        message.stop()
        if message.stage == self.stage.id:
            self.action_go_on()
            return
        self._chosen = [stage.id for stage in self.session.stages].index(message.stage)
        self._show_halls()
        self.refresh_keys()
