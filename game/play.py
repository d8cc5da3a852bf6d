"""Leads the player through a hall: which screen follows which, and what each may do.

`Attempt` keeps the rules; this keeps the screens in step with it. Every screen of the hall holds
the same `StageRun` and asks it to go on; none knows what comes next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from game.attempt import Told
from game.outcome import SessionInputError
from game.visit import Visit

if TYPE_CHECKING:
    from engine.domains import Value
    from engine.messages import AnyEvent
    from game.app import LatencyWallApp
    from game.screens.base import HallScreen
    from game.session import Outcome
    from story.schema import SceneName


class StageRun(Visit):
    """One visit to the hall `stage_id`, from its first line until the player is back on the map."""

    def __init__(self, app: LatencyWallApp, stage_id: str) -> None:
        super().__init__(app.session, stage_id)
        self.app = app
        self._on_stack = False
        self._running = asyncio.Lock()

    # The way through

    def start(self) -> None:
        self._scene("arrival")

    def scene_over(self) -> None:
        """The last line of the scene was read."""
        room = self.attempt.room
        if room == "arrival":
            self._to_guess()
        elif room == "counsel":
            self._to_forge()
        elif room == "aftermath":
            self._after_aftermath()
        elif room == "descent":
            self._to_forge()
        elif room == "insight":
            self.leave()

    def seal(self, guess: float | str) -> None:
        self.attempt.seal(guess)
        self._scene("forge")

    def begin_trial(self) -> None:
        from game.screens.trial import TrialScreen

        self.attempt.move("trial")
        self._show(TrialScreen(self))

    def start_trial(
        self,
        on_event: Callable[[AnyEvent], None],
        ended: Callable[[Outcome], None],
        refused: Callable[[SessionInputError | OSError | RuntimeError], None],
    ) -> None:
        """Run the trial beside the interface; one of `ended` and `refused` is called once.

        The work belongs to the application and not to a screen: a screen that leaves does not
        tear down a conversation with the engine. A trial still being stopped is waited for.
        """

        async def run() -> None:
            attempt = self.attempt
            async with self._running:
                try:
                    outcome = await self.session.trial(
                        attempt.stage.id,
                        self.changed_build(),
                        attempt.guess,
                        attempt.hints_taken,
                        on_event,
                        scored=attempt.scored,
                    )
                except (SessionInputError, OSError, RuntimeError) as error:
                    refused(error)
                    return
            ended(outcome)

        self.app.run_worker(run(), group="trial")

    def changed_build(self) -> dict[str, Value]:
        """The positions this hall's knobs stand in."""
        attempt = self.attempt
        return {name: attempt.build[name] for name in attempt.stage.knobs if name in attempt.build}

    def trial_stopped(self, trouble: str = "") -> None:
        """The trial did not come to a verdict: back to the forge, with nothing lost."""
        self.attempt.move("forge")
        self._open_forge(trouble)

    def judged(self, outcome: Outcome) -> None:
        from game.screens.verdict import VerdictScreen

        self.attempt.judged(outcome)
        self._show(VerdictScreen(self))

    def after_verdict(self) -> None:
        self.attempt.move("aftermath")
        self._scene(self.attempt.aftermath_scene)

    def tune_again(self) -> None:
        self._to_forge()

    def set_build(self, build: Mapping[str, Value]) -> None:
        for knob, value in build.items():
            if knob in self.attempt.stage.knobs:
                self.attempt.turn(knob, value)

    def leave(self) -> None:
        """Back to the map. What was sealed and judged is on record; the rest costs nothing."""
        self.attempt.move("left")
        if self._on_stack:
            self._on_stack = False
            self.app.pop_screen()

    def remember(self, told: Told) -> None:
        self.attempt.tell(told)
        self.session.mark_seen([told.line if told.reply is None else told.reply])

    # Screens

    def _scene(self, scene: SceneName) -> None:
        from game.screens.scene import SceneScreen

        facts = self.facts()
        if self.lines(scene, facts):
            self._show(SceneScreen(self, scene, facts))
        else:
            self.scene_over()

    def _to_guess(self) -> None:
        from game.screens.guess import GuessScreen

        self.attempt.move("guess")
        self._show(GuessScreen(self))

    def _to_forge(self) -> None:
        self.attempt.move("forge")
        self._open_forge()

    def _open_forge(self, trouble: str = "") -> None:
        from game.screens.forge import ForgeScreen

        self._show(ForgeScreen(self, trouble))

    def _after_aftermath(self) -> None:
        from game.screens.insight import InsightScreen

        attempt = self.attempt
        if attempt.complete:
            attempt.move("insight")
            self._show(InsightScreen(self))
        elif attempt.passed and attempt.descending:
            attempt.move("descent")
            self._scene("descent")
        else:
            self._to_forge()

    def _show(self, screen: HallScreen[None]) -> None:
        """One screen of the hall lies on the map at a time."""
        if self._on_stack:
            self.app.switch_screen(screen)
        else:
            self._on_stack = True
            self.app.push_screen(screen)
