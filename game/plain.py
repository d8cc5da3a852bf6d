"""The whole game as lines of text: for screen readers, slow links and curious pipes.

Same session, same rules, same order of steps as the screens: scene, guess, forge, trial, verdict,
insight. Nothing is drawn, nothing moves; every prompt names its answers.
"""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Callable, Iterable

import click

from engine.clean import clean
from engine.knobs import KNOBS, KnobError, Value
from engine.messages import AnyEvent, Progress
from game.commands.trial_report import goal_line, verdict_lines
from game.session import Outcome, Session, SessionInputError
from story.facts import quote, tell
from story.schema import Line, SceneName, Stage

Read = Callable[[str], str]
Write = Callable[[str], None]


class Leave(Exception):
    """The player asked to go: `q` at any prompt, or the end of the input."""


def read_line(prompt: str) -> str:
    try:
        return input(prompt)
    except EOFError:
        raise Leave from None


class PlainGame:
    """One sitting. `read` and `write` are replaced in tests."""

    def __init__(
        self, session: Session, read: Read = read_line, write: Write = click.echo, width: int = 78
    ) -> None:
        self.session = session
        self._read = read
        self._write = write
        self._width = width

    async def play(self) -> int:
        """Until the player leaves. Returns the exit status."""
        try:
            self._write(self.say("plain.welcome"))
            while True:
                await self._map()
        except Leave:
            self._write(self.say("plain.farewell"))
        finally:
            await self.session.close()
        return 0

    def say(self, key: str, **values: object) -> str:
        return self.session.text(key, **values)

    async def ask(self, prompt: str) -> str:
        """One line from the player; `q` leaves, and `zh` or `en` changes the language."""
        while True:
            answer = clean(await asyncio.to_thread(self._read, prompt + " "), 200, True).strip()
            if answer.lower() in ("q", "quit", "exit"):
                raise Leave
            if answer.lower() in ("zh", "en"):
                self.session.update_settings(language=answer.lower())
                self._write(self.say("plain.language_changed"))
                continue
            return answer

    async def choose(self, prompt: str, options: list[str]) -> int:
        """A numbered choice; returns its index."""
        for number, option in enumerate(options, 1):
            self._write(f"  {number}. {option}")
        while True:
            answer = await self.ask(prompt)
            if answer.isdigit() and 1 <= int(answer) <= len(options):
                return int(answer) - 1
            self._write(self.say("plain.choose_number", count=len(options)))

    async def _map(self) -> None:
        standing = self.session.standing()
        self._write("")
        self._write(self.say("plain.map", debt=standing.debt))
        halls = []
        for stage in self.session.stages:
            hall = standing.halls[stage.id]
            state = self.say(f"plain.state.{hall.state}")
            crowns = " ".join(self.say(f"plain.crown.{name}") for name in hall.crowns)
            name = self.session.stage_text(stage.id).name
            halls.append(f"{name}: {state}{'; ' + crowns if crowns else ''}")
        index = await self.choose(self.say("plain.which_hall"), halls)
        stage = self.session.stages[index]
        if standing.halls[stage.id].state == "sealed":
            self._write(self.session.closed_line(stage.id))
            return
        await self.hall(stage)

    async def hall(self, stage: Stage) -> None:
        """One hall from its first line to its insight, or until the player steps back."""
        text = self.session.stage_text(stage.id)
        self._write("")
        self._write(f"== {text.name} ==")
        self._paragraph(text.place)
        await self._scene(stage, "arrival", {})
        guess = await self._guess(stage)
        await self._scene(stage, "forge", {})
        build = dict(stage.build)
        hints, scored = 0, True
        while True:
            taken = await self._forge(stage, build, hints)
            if taken is None:
                return
            hints = taken
            outcome = await self._trial(stage, build, guess, hints, scored)
            if outcome is None:
                continue
            scored = scored and outcome.verdict.word == "invalid"
            await self._after(stage, outcome)
            if outcome.verdict.word == "pass":
                await self._scene(stage, "insight", outcome.facts)
                self._insight(stage, outcome)
                return

    async def _scene(
        self, stage: Stage, name: SceneName, facts: dict[str, str | float | bool]
    ) -> None:
        lines = self.session.stage_text(stage.id).scenes.get(name, ())
        facts = {**self.session.facts(stage.id), **facts}
        told = tell(lines, facts)
        for line in told:
            await self._line(line)
        self.session.mark_seen([line.id for line in told])

    async def _line(self, line: Line) -> None:
        who = "" if line.who == "narrator" else self.say(f"speaker.{line.who}") + ": "
        self._paragraph(who + line.text)
        if line.choices:
            index = await self.choose(
                self.say("plain.your_answer"), [reply.text for reply in line.choices]
            )
            reply = line.choices[index]
            self._paragraph(f"{self.say(f'speaker.{reply.who}')}: {reply.answer}")

    async def _guess(self, stage: Stage) -> float | str:
        assert stage.guess is not None
        text = self.session.stage_text(stage.id)
        self._write("")
        self._paragraph(text.question)
        if stage.guess.kind == "choice":
            options = [text.choices[choice] for choice in stage.guess.choices]
            index = await self.choose(self.say("plain.seal_choice"), options)
            return stage.guess.choices[index]
        prompt = self.say(
            "plain.seal_dial", low=f"{stage.guess.low:g}", high=f"{stage.guess.high:g}"
        )
        while True:
            try:
                return self.session.parse_guess(stage.id, await self.ask(prompt))
            except ValueError as error:
                self._write(clean(str(error)))

    async def _forge(self, stage: Stage, build: dict[str, Value], hints: int) -> int | None:
        """Let the player turn knobs in `build`; hints taken so far, or None to step back."""
        while True:
            self._write("")
            self._write(self.say("plain.forge"))
            for name in stage.knobs:
                knob = KNOBS[name]
                shown = knob.domain.show(build.get(name, knob.default))
                self._write(
                    f"  {self.say('knob.' + name)} ({name}): {shown}; {knob.domain.describe()}"
                )
            for goal in stage.goals:
                self._write(f"  {self.say('metric.' + goal.metric)} {goal.op} {goal.bound:g}")
            answer = await self.ask(self.say("plain.forge_prompt"))
            if answer in ("", "t"):
                return hints
            if answer == "b":
                return None
            if answer == "h":
                hints = self._hint(stage, hints)
                continue
            try:
                build.update(self.session.parse_settings(stage.id, [answer]))
            except (KnobError, SessionInputError) as error:
                self._write(clean(str(error)))

    def _hint(self, stage: Stage, taken: int) -> int:
        hints = self.session.stage_text(stage.id).hints
        taken = min(taken + 1, len(hints))
        for number, hint in enumerate(hints[:taken], 1):
            self._paragraph(f"{number}. {hint}")
        return taken

    async def _trial(
        self,
        stage: Stage,
        build: dict[str, Value],
        guess: float | str,
        hints: int,
        scored: bool,
    ) -> Outcome | None:
        """Run it; None where the build cannot be (and the player has been told why)."""
        self._write(self.say("plain.trial_begins"))
        report = PhaseReport(self._write, self.say)
        try:
            await self.session.ready(report)
            return await self.session.trial(
                stage.id, build, guess, hints_taken=hints, on_event=report, scored=scored
            )
        except SessionInputError as error:
            self._write(clean(str(error)))
            return None

    async def _after(self, stage: Stage, outcome: Outcome) -> None:
        self._write("")
        for line in verdict_lines(self.session, outcome):
            self._write(line)
        scenes: dict[str, SceneName] = {"pass": "passed", "fail": "failed"}
        await self._scene(stage, scenes.get(outcome.verdict.word, "undecided"), outcome.facts)

    def _insight(self, stage: Stage, outcome: Outcome) -> None:
        text = self.session.stage_text(stage.id)
        for part in (text.formula, text.published, text.correction):
            told = quote(part, outcome.facts) if part else None
            if told:
                self._paragraph(told)
        for goal in outcome.verdict.goals:
            self._write(goal_line(self.session, goal))

    def _paragraph(self, text: str) -> None:
        for line in wrapped(text, self._width):
            self._write(line)


class PhaseReport:
    """One line when a phase of the trial begins; nothing in between, so a reader can follow."""

    def __init__(self, write: Write, say: Callable[..., str]) -> None:
        self._write = write
        self._say = say
        self._phase = ""

    def __call__(self, event: AnyEvent) -> None:
        if isinstance(event, Progress) and event.phase != self._phase:
            self._phase = event.phase
            self._write(self._say(f"phase.{event.phase}"))


def wrapped(text: str, width: int) -> Iterable[str]:
    """Lines no wider than `width` cells: by words, and by characters where a word is too wide."""
    from rich.cells import cell_len, chop_cells

    if cell_len(text) == len(text):
        return textwrap.wrap(text, width) or [""]
    return chop_cells(text, width) or [""]
