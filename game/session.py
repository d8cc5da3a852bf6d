"""The desk: everything a front end needs to play, and nothing of how it is shown.

The command line, the plain text mode and the Textual screens drive one of these. It knows the
halls, who plays, what was recorded, and how to ask the engine; it draws nothing, and starts no
process before `ready`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.cache_plan import BudgetError
from engine.capabilities import Capabilities
from engine.domains import KnobError, Value
from engine.drafters import Drafters
from engine.machine import MachineProfile
from engine.model.config import ModelConfig
from engine.price import Price, price_on
from engine.resolve import Resolved, resolve
from engine.trial import TrialResult, TrialSpec
from game.build_check import find_open_stage, find_stage, positions_of, read_settings, spec_of
from game.engine_bridge import EngineBridge, MakeClient, OnEvent, make_worker_client
from game.outcome import EngineUnavailable, Outcome, SessionInputError
from game.player import Player
from game.profile_desk import ProfileDesk
from game.rules import facts as fact_rules
from game.rules.guess import check_guess, parse_guess
from game.rules.judge import judge
from game.rules.lesson import lesson_of
from game.rules.progress import ledger
from game.rules.standing import Entry, Standing
from game.rules.unjudged import unjudged
from game.rules.verdict import Verdict
from game.trial_record import record_of, scored_guess
from saves.documents import Record
from saves.store import Store
from story.facts import FactValue
from story.loader import load_stages, load_text
from story.schema import Stage, StageText

__all__ = ["EngineUnavailable", "Outcome", "Session", "SessionInputError"]


class Session(ProfileDesk):
    """One sitting of one player. Made by `open`; used from one thread."""

    def __init__(
        self, player: Player, bridge: EngineBridge, stages: tuple[Stage, ...], practice: bool
    ) -> None:
        super().__init__(player, stages)
        self._bridge = bridge
        self._practice = practice
        self._in_trial = False
        self._folded: tuple[int, str, tuple[Entry, ...], Standing] | None = None

    @classmethod
    def open(
        cls,
        home: Path | None = None,
        profile: str | None = None,
        worker: str | None = None,
        device: str = "cpu",
        model: str = "default",
        practice: bool = False,
        make_client: MakeClient = make_worker_client,
        draft: str = "",
    ) -> Session:
        """Read the halls and the profile; start nothing.

        `profile` None takes up the one last played (none, on a first start); a new name becomes a
        profile with its first change. `worker` is another machine's worker command line.
        `practice` keeps no records. `draft` is another model, which can draft for `model`.

        Raises:
            SaveError: that profile cannot be read, or the name cannot be.
            StoryError: a hall's file does not hold.
        """
        stages = load_stages()
        player = Player(Store(home))
        player.enter(profile)
        return cls(
            player, EngineBridge(worker, device, model, make_client, draft), stages, practice
        )

    # Words

    def stage_text(self, stage_id: str) -> StageText:
        """A hall's words in the player's language. Raises StoryError."""
        return load_text(stage_id, self.language)

    def closed_line(self, stage_id: str) -> str:
        """Why a sealed hall is sealed, in one sentence; "" where it is not."""
        hall = self.standing().halls[find_stage(self.stages, stage_id).id]
        if hall.state != "sealed":
            return ""
        if hall.needs is not None:
            return self.text("hall.needs", hall=self.stage_text(hall.needs).name)
        return self.stage_text(stage_id).closed or self.text("hall.not_built")

    def lesson_line(self, stage: Stage) -> str:
        """That this machine cannot show what the hall teaches, and which model could; "" where it
        can, or is not known yet."""
        lesson = lesson_of(stage, self.model_config, self.capabilities, self.machine)
        if lesson is None or not lesson.hidden:
            return ""
        return self.text(
            "hall.lesson_hidden" if lesson.shown_by else "hall.lesson_lost",
            hall=stage.id,
            model=self.model_name,
            bytes=f"{lesson.bytes_seconds * 1e3:.3g}",
            launch=f"{lesson.launch_seconds * 1e3:.3g}",
            other=lesson.shown_by,
        )

    def show_guess(self, stage_id: str, value: float | str | None) -> str:
        """A guess or a truth as it is read: the choice's words, or the number."""
        if value is None:
            return self.text("guess.unknown")
        return fact_rules.shown(value, self.stage_text(stage_id))

    def facts(
        self, stage_id: str, build: Mapping[str, Value] | None = None
    ) -> dict[str, FactValue]:
        """What the scenes before a trial may quote (see `story.facts.FACTS`)."""
        return self._facts(find_stage(self.stages, stage_id), build or {}, self.standing(), 0)

    # What was done

    def records(self) -> tuple[Record, ...]:
        """This player's records, oldest first; those the disk refused among them."""
        return self._player.records()

    def ledger(self) -> tuple[Entry, ...]:
        """What each record charged and repaid, oldest first."""
        return self._fold()[0]

    def standing(self) -> Standing:
        """Debt, halls, crowns and rank: a fold over the records."""
        return self._fold()[1]

    # The engine

    @property
    def capabilities(self) -> Capabilities | None:
        """The machine as the engine found it, now or in an earlier session."""
        return self._bridge.capabilities

    @property
    def drafters(self) -> Drafters:
        return self._bridge.drafters

    @property
    def model_config(self) -> ModelConfig | None:
        return self._bridge.model_config

    @property
    def model_name(self) -> str:
        return self._bridge.model_name

    @property
    def machine(self) -> MachineProfile | None:
        """The machine's measured ceilings, now or from an earlier session."""
        return self._bridge.machine

    @property
    def engine_ready(self) -> bool:
        return self._bridge.awake

    async def ready(self, on_event: OnEvent | None = None) -> None:
        """Start the engine, load the model, measure the machine if it never was.

        Raises:
            SessionInputError: the model or worker named cannot be used.
            EngineUnavailable: the engine could not be had.
        """
        await self._bridge.ready(on_event)

    async def abort(self) -> None:
        """Stop what the engine is doing; a trial then ends invalid, unrecorded."""
        await self._bridge.abort()

    async def close(self) -> None:
        """End the engine process and write what is not written yet."""
        try:
            await self._bridge.close()
        finally:
            self._player.close()

    # The forge

    def open_stage(self, stage_id: str) -> Stage:
        """The hall of that id, if it is built.

        Raises:
            SessionInputError: no such hall (names the nearest), or it is not open yet.
        """
        return find_open_stage(self.stages, stage_id)

    def parse_settings(self, stage_id: str, settings: Sequence[str]) -> dict[str, Value]:
        """`knob=value` texts as positions of this hall's knobs.

        Raises:
            SessionInputError: an unknown or foreign knob, a value it cannot take, a knob set twice
                to different values; names the nearest or the legal ones.
        """
        return read_settings(self.open_stage(stage_id), settings)

    def parse_guess(self, stage_id: str, text: str) -> float | str:
        """A guess as typed. Raises GuessError or SessionInputError; both name what is legal."""
        stage = self.open_stage(stage_id)
        if stage.guess is None:
            raise SessionInputError(f"the hall {stage.id!r} asks for no guess")
        return parse_guess(text, stage.guess)

    def check(self, stage_id: str, build: Mapping[str, Value]) -> Resolved | str | None:
        """The config that would run, or why none can; None while the machine is not known."""
        try:
            return self._resolve(positions_of(self.open_stage(stage_id), build))
        except ValueError as error:
            return str(error)

    def price(self, stage_id: str, build: Mapping[str, Value]) -> Price | None:
        """Bytes and operations by formula, its cache as the vessel leaves room for it; None where
        the build cannot run or is not known yet."""
        resolved, model = self.check(stage_id, build), self.model_config
        if not isinstance(resolved, Resolved) or model is None or self.capabilities is None:
            return None
        try:
            return price_on(resolved.config, model, self.capabilities, self.drafters)
        except ValueError:
            return None

    # The trial

    async def trial(
        self,
        stage_id: str,
        build: Mapping[str, Value],
        guess_value: float | str | None = None,
        hints_taken: int = 0,
        on_event: OnEvent | None = None,
        *,
        seed: int | None = None,
        scored: bool = True,
        stage: Stage | None = None,
    ) -> Outcome:
        """Run one trial, judge it, and enter it in the ledger.

        Without a guess it is practice. `scored` False carries a guess whose truth was shown
        before: it stays on the record and is not charged. `seed` fixes the prompts, which are
        fresh otherwise. `stage` is a hall of one's own (a file's), used instead of `stage_id`'s.

        A trial that the engine lost is recorded as `invalid` and costs nothing; one the player
        stopped is not recorded.

        Raises:
            SessionInputError: the build or guess cannot be, or a trial is running already.
        """
        stage = stage or self.open_stage(stage_id)
        positions = positions_of(stage, build)
        if guess_value is not None and stage.guess is not None:
            try:
                guess_value = check_guess(guess_value, stage.guess)
            except ValueError as error:
                raise SessionInputError(str(error)) from None
        if self._in_trial:
            raise SessionInputError("a trial is running; wait for it, or abort it")
        self._in_trial = True
        try:
            spec = spec_of(stage, positions, secrets.randbelow(2**31) if seed is None else seed)
            verdict, result = await self._run(stage, positions, spec, on_event)
        finally:
            self._in_trial = False
        return self._enter(stage, positions, verdict, result, guess_value, scored, hints_taken)

    async def _run(
        self,
        stage: Stage,
        positions: dict[str, Value],
        spec: TrialSpec,
        on_event: OnEvent | None,
    ) -> tuple[Verdict, TrialResult | None]:
        try:
            await self._bridge.ready(on_event)
            self._resolve(positions)
            result = await self._bridge.run_trial(spec, on_event)
        except EngineUnavailable as lost:
            return unjudged(lost.code, {"why": str(lost)}), None
        except (KnobError, BudgetError) as error:
            raise SessionInputError(str(error)) from None
        crowns = [(crown.name, crown.metric, crown.op, crown.bound) for crown in stage.crowns]
        return judge(result, stage.goals, crowns), result

    def _enter(
        self,
        stage: Stage,
        positions: dict[str, Value],
        verdict: Verdict,
        result: TrialResult | None,
        guess_value: float | str | None,
        scored: bool,
        hints_taken: int,
    ) -> Outcome:
        """Score the guess, keep the record, and say what it did to the ledger."""
        before = self.standing()
        guess, measured = scored_guess(stage, guess_value, verdict, scored)
        record: Record | None = None
        entry: Entry | None = None
        warning: str | None = None
        aborted = any(reason.code == "aborted" for reason in verdict.reasons)
        if not self._practice and not aborted:
            record, refused = self._player.keep(
                record_of(stage, positions, verdict, result, guess, hints_taken)
            )
            warning = self.text("save.record_refused", why=refused) if refused else None
            entry = self.ledger()[-1]
        after = self.standing()
        told = self._facts(stage, positions, after, hints_taken) | fact_rules.trial_facts(
            stage, self._text_of(stage), verdict, result, guess, measured, before.debt, after.debt
        )
        return Outcome(
            stage=stage.id,
            build=positions,
            verdict=verdict,
            result=result,
            record=record,
            guess=guess,
            debt_before=before.debt,
            debt_after=after.debt,
            charges=entry.charges if entry else (),
            crowns_new=entry.crowns_new if entry else (),
            facts=told,
            warning=warning,
        )

    # Inside

    def _fold(self) -> tuple[tuple[Entry, ...], Standing]:
        records = self.records()
        name = self.profile.key if self.profile is not None else ""
        if self._folded is None or self._folded[:2] != (len(records), name):
            self._folded = (len(records), name, *ledger(records, self.stages))
        return self._folded[2], self._folded[3]

    def _resolve(self, positions: Mapping[str, Value]) -> Resolved | None:
        """Raises KnobError where this machine or model cannot run it."""
        if self.capabilities is None or self.model_config is None:
            return None
        threads = self.machine.threads if self.machine is not None else None
        return resolve(positions, self.capabilities, self.model_config, threads, self.drafters)

    def _facts(
        self, stage: Stage, build: Mapping[str, Value], standing: Standing, hints_taken: int
    ) -> dict[str, FactValue]:
        return fact_rules.stage_facts(
            stage,
            build,
            standing,
            player=self.profile.name if self.profile is not None else "",
            hints_taken=hints_taken,
            capabilities=self.capabilities,
            model=self.model_config,
            model_name=self.model_name,
            machine=self.machine,
            drafters=self.drafters,
        )

    def _text_of(self, stage: Stage) -> StageText | None:
        """A hall's words; None for a hall of one's own, which has none here."""
        return self.stage_text(stage.id) if stage in self.stages else None
