"""One hall as lines of text, from its first line to its insight."""

from __future__ import annotations

from engine.fit import weight_elements
from engine.knobs import KNOBS
from engine.messages import Account, AnyEvent, Progress
from game.commands.trial_report import verdict_lines
from game.outcome import Outcome, SessionInputError
from game.plain_voice import Voice
from game.rules.guess import dial_unit
from game.session import Session
from game.visit import Visit
from game.widgets.figures import plain_number
from game.wording import figure
from story.facts import quote
from story.schema import Line, SceneName

_DESCENDING = {"flood": "plain.descending", "cliff": "report.weights.descending"}
"""What is asked of a player whose hall still lacks its scar, by that scar."""
_UNITS = {"x": "plain.unit.times", "MB": "plain.unit.mb", "%": "plain.unit.percent"}


class PlainHall:
    """The order of the steps is `Attempt`'s, so none can be skipped here either."""

    def __init__(self, session: Session, voice: Voice, stage_id: str) -> None:
        self.session = session
        self.voice = voice
        self.visit = Visit(session, stage_id)
        self.attempt = self.visit.attempt
        self.stage = self.attempt.stage

    async def play(self) -> None:
        """Until the hall is passed or the player steps back to the map. Raises Leave."""
        self.voice.tell("")
        self.voice.tell(f"== {self.visit.text.name} ==")
        self.voice.tell(self.visit.text.place)
        await self._scene("arrival")
        self.attempt.move("guess")
        await self._guess()
        await self._scene("forge")
        self.attempt.move("forge")
        while await self._forge():
            self.attempt.move("trial")
            outcome = await self._trial()
            if outcome is None:
                self.attempt.move("forge")
                continue
            self.attempt.judged(outcome)
            await self._aftermath(outcome)
            if self.attempt.complete:
                await self._insight()
                break
            if self.attempt.passed and self.attempt.descending:
                self.attempt.move("descent")
                await self._scene("descent")
            self.attempt.move("forge")
        self.attempt.move("left")

    async def _scene(self, name: SceneName) -> None:
        lines = self.visit.lines(name, self.visit.facts())
        for line in lines:
            await self._line(line)
        self.session.mark_seen([line.id for line in lines])

    async def _line(self, line: Line) -> None:
        self._speech(line.who, line.text)
        if line.choices:
            texts = [reply.text for reply in line.choices]
            reply = line.choices[await self.voice.choose("plain.your_answer", texts)]
            self._speech(reply.who, reply.answer)

    def _speech(self, who: str, text: str) -> None:
        if who == "narrator":
            self.voice.tell(text)
        else:
            name = self.session.text(f"speaker.{who}")
            self.voice.tell(self.session.text("plain.speech", who=name, text=text))

    async def _guess(self) -> None:
        stage, text = self.stage, self.visit.text
        assert stage.guess is not None
        self.voice.tell("")
        self.voice.tell(text.question)
        if stage.guess.kind == "choice":
            options = [text.choices[choice] for choice in stage.guess.choices]
            index = await self.voice.choose("plain.seal_choice", options)
            self.attempt.seal(stage.guess.choices[index])
            return
        low, high = f"{stage.guess.low:g}", f"{stage.guess.high:,g}"
        unit = self.session.text(_UNITS.get(dial_unit(stage.guess), "plain.unit.none"))
        while True:
            answer = await self.voice.ask("plain.seal_dial", low=low, high=high, unit=unit)
            try:
                self.attempt.seal(self.session.parse_guess(stage.id, answer))
            except ValueError as error:
                self.voice.tell(str(error))
            else:
                return

    async def _forge(self) -> bool:
        """Let the player turn knobs; False where they step back to the map."""
        self._show_forge()
        while True:
            answer = await self.voice.ask("plain.forge_prompt")
            match answer.lower():
                case "" | "t":
                    return True
                case "b":
                    return False
                case "h":
                    self._hint()
                case "r":
                    self.attempt.reset()
                    self._show_forge()
                case _:
                    self._turn(answer)

    def _turn(self, setting: str) -> None:
        try:
            turned = self.session.parse_settings(self.stage.id, [setting])
        except ValueError as error:
            self.voice.tell(str(error))
            return
        for knob, value in turned.items():
            self.attempt.turn(knob, value)
        self._show_forge()

    def _show_forge(self) -> None:
        stage, build, say = self.stage, self.attempt.build, self.session.text
        self.voice.tell("")
        self.voice.say("plain.forge")
        for name in stage.knobs:
            domain = KNOBS[name].domain
            shown = domain.show(build.get(name, KNOBS[name].default))
            title = f"{say('knob.' + name)} ({name})"
            self.voice.tell(f"{title} = {shown}; {domain.describe()}", indent="  ")
        for goal in stage.goals:
            bound = f"{goal.op} {figure(goal.metric, goal.bound)}"
            self.voice.tell(f"{say('metric.' + goal.metric)} {bound}", indent="  ")
        if self.attempt.descending:
            self.voice.say(_DESCENDING[stage.scar or "flood"])
        self._show_price()
        trouble = self.session.check(stage.id, build)
        if isinstance(trouble, str):
            self.voice.tell(trouble, indent="  ")

    def _show_price(self) -> None:
        """What the build will hold by formula, in its vessel where it has one."""
        price = self.session.price(self.stage.id, self.attempt.build)
        if price is None:
            return
        self.voice.say("plain.price", memory=f"{price.total / 1e6:.0f}")
        model = self.session.model_config
        if model is not None and "weights.bits" in self.stage.knobs:
            bits = 8 * price.weights / weight_elements(model)
            share = plain_number(100 * bits / 16)
            self.voice.say("report.weights.price", share=share, bits=plain_number(bits))
        if price.vessel is None:
            return
        plan = price.plan
        room = "plain.price_blocks" if plan.layout == "paged" else "plain.price_slots"
        self.voice.say(
            room,
            vessel=f"{price.vessel / 1e6:.0f}",
            count=plan.units,
            size=plan.block_size if plan.layout == "paged" else plan.capacity,
            tokens=f"{plan.tokens:,}",
        )
        asked = int(self.attempt.build.get("schedule.batch", 1))
        breaks = self.attempt.build.get("memory.overflow") == "break"
        if breaks and plan.requests < asked:
            self.voice.say("plain.price_floods", asked=asked, fits=plan.requests)

    def _hint(self) -> None:
        hints = self.visit.text.hints
        taken = min(self.attempt.take_hint(), len(hints))
        for number, hint in enumerate(hints[:taken], 1):
            self.voice.tell(f"{number}. {hint}", indent="  ")

    async def _trial(self) -> Outcome | None:
        """Run it; None where the build cannot be, and the player has been told why."""
        attempt = self.attempt
        self.voice.say("plain.trial_begins")
        report = PhaseReport(self.voice)
        try:
            outcome = await self.session.trial(
                self.stage.id,
                attempt.build,
                attempt.guess,
                hints_taken=attempt.hints_taken,
                on_event=report,
                scored=attempt.scored,
            )
        except SessionInputError as error:
            self.voice.tell(str(error))
            return None
        return None if outcome.aborted else outcome

    async def _aftermath(self, outcome: Outcome) -> None:
        self.voice.tell("")
        for line in verdict_lines(self.session, outcome):
            self.voice.tell(line.strip(), indent="  " if line.startswith(" ") else "")
        if outcome.warning:
            self.voice.tell(outcome.warning)
        self.attempt.move("aftermath")
        await self._scene(self.attempt.aftermath_scene)

    async def _insight(self) -> None:
        self.attempt.move("insight")
        await self._scene("insight")
        text, facts = self.visit.text, self.visit.facts()
        for part in (text.formula, text.published, text.correction):
            told = quote(part, facts) if part else None
            if told:
                self.voice.tell(told)


class PhaseReport:
    """One line when a phase of the trial begins, and one when the vessel breaks; nothing in
    between, so a reader can follow."""

    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self._phase = ""
        self._flooded = False

    def __call__(self, event: AnyEvent) -> None:
        if isinstance(event, Progress) and event.phase != self._phase:
            self._phase = event.phase
            self._voice.say(f"phase.{event.phase}")
        if isinstance(event, Account) and event.flood is not None and not self._flooded:
            self._flooded = True
            self._voice.say("plain.flood_now")
