"""One visit to a hall, whatever shows it: the attempt, and the words and facts that fit it now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from engine.trial import TrialResult
from game.attempt import Attempt, hints_on_record, truth_was_shown
from story.facts import FactValue, tell

if TYPE_CHECKING:
    from game.session import Session
    from story.schema import Line, SceneName, StageText


class Visit:
    """The rules of the visit are `attempt`'s; this joins them to the session and the story.

    Raises:
        SessionInputError: no such hall, or one that is not open.
    """

    def __init__(self, session: Session, stage_id: str) -> None:
        self.session = session
        stage = session.open_stage(stage_id)
        records = session.records()
        self.attempt = Attempt(stage, truth_known=truth_was_shown(stage_id, records))
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
        return known

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
                try:
                    return msgspec.convert(record.result, TrialResult)
                except msgspec.ValidationError:
                    return None
        return None
