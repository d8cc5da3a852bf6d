"""One visit to a hall, whatever shows it: the attempt, and the words and facts that fit it now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.trial import TrialResult
from game.attempt import Attempt, hints_on_record, truth_was_shown
from game.rules.facts import trial_facts
from game.rules.progress import counts
from game.rules.weight_facts import answer_facts
from game.trial_record import result_of, verdict_of
from story.facts import FactValue, tell

if TYPE_CHECKING:
    from game.rules.verdict import Verdict
    from game.session import Session
    from saves.documents import Record
    from story.schema import Line, SceneName, StageText


_OF_NOW = frozenset(
    {"player", "debt", "debt_before", "debt_change", "attempts", "hints_taken", "met", "scar",
     "floods", "flooded", "falls", "fallen"}
)  # fmt: skip
"""Facts that a trial of earlier does not tell better than the one just judged."""
_WORDS = frozenset({"answers", "same_answers", "asked", "full_answer", "babble"})
"""Facts of what was said side by side."""


class Visit:
    """The rules of the visit are `attempt`'s; this joins them to the session and the story.

    Raises:
        SessionInputError: no such hall, or one that is not open.
    """

    def __init__(self, session: Session, stage_id: str) -> None:
        self.session = session
        stage = session.open_stage(stage_id)
        records = session.records()
        hall = session.standing().halls[stage_id]
        self.attempt = Attempt(
            stage,
            truth_known=truth_was_shown(stage_id, records),
            met=hall.met,
            scarred=hall.scar is not None,
        )
        self.attempt.hints_taken = hints_on_record(stage_id, records)

    @property
    def text(self) -> StageText:
        """The hall's words in the language of this moment."""
        return self.session.stage_text(self.attempt.stage.id)

    def facts(self) -> dict[str, FactValue]:
        """All that a line may quote now: the profile, the sealed guess, the last trial."""
        attempt = self.attempt
        known: dict[str, FactValue] = dict(self.session.facts(attempt.stage.id))
        known["hints_taken"] = attempt.hints_taken
        if attempt.guess is not None:
            known["guess"] = attempt.guess
            known["guess_word"] = self.guess_word(attempt.guess)
        if attempt.outcome is not None:
            known |= attempt.outcome.facts
        if attempt.room == "insight" and attempt.scarring:
            won = self._won()
            known |= {name: value for name, value in won.items() if name not in _OF_NOW}
        if attempt.room == "insight" and attempt.stage.scar == "cliff":
            known = {name: value for name, value in known.items() if name not in _WORDS}
            known |= self._babble()
        return known

    def _babble(self) -> Mapping[str, FactValue]:
        """What the build said that left this hall's scar: the babble that is kept."""
        scar = self.session.standing().halls[self.attempt.stage.id].scar
        record = next((one for one in self.session.records() if one.digest == scar), None)
        result = result_of(record) if record is not None else None
        return answer_facts(result.quality) if result is not None and result.quality else {}

    def _won(self) -> Mapping[str, FactValue]:
        """The facts of the latest trial that met this hall's goals: an insight that the scar's
        own trial opens is drawn from the run that held, with what broke beside it."""
        for outcome in reversed(self.attempt.outcomes):
            if outcome.verdict.word == "pass":
                return outcome.facts
        for record in reversed(self.session.records()):
            if record.stage == self.attempt.stage.id and counts(record, self.attempt.stage):
                verdict = verdict_of(record)
                if verdict is not None and verdict.word == "pass":
                    return self._told_by(record, verdict)
        return {}

    def _told_by(self, record: Record, verdict: Verdict) -> Mapping[str, FactValue]:
        debt = self.session.standing().debt
        guess, stage = record.guess, self.attempt.stage
        truth = guess.truth if guess is not None else None
        result = result_of(record)
        told = trial_facts(stage, self.text, verdict, result, guess, truth, debt, debt)
        return {**self.session.facts(stage.id, record.build), **told}

    def guess_word(self, value: float | str) -> str:
        """A guess or a truth as it is read: the choice's words, or the number."""
        return self.session.show_guess(self.attempt.stage.id, value)

    def lines(self, scene: SceneName, facts: Mapping[str, FactValue]) -> tuple[Line, ...]:
        """The lines of a scene as told with these facts, in the language of this moment."""
        words = {
            f"{name}_word": self.guess_word(value)
            for name in ("guess", "truth")
            if isinstance(value := facts.get(name), float | str)
        }
        return tell(self.text.scenes.get(scene, ()), {**facts, **words})

    def last_result(self) -> TrialResult | None:
        """What the latest trial of this hall on record measured, for its set piece."""
        for record in reversed(self.session.records()):
            if record.stage == self.attempt.stage.id and record.result is not None:
                return result_of(record)
        return None
