"""What outlives the process: a profile, its settings, and its records. Values only."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from engine.domains import Value


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Settings(_Value, frozen=True):
    """Interface settings of a profile. `text_speed` is characters a second; 0 shows at once."""

    language: Literal["zh", "en"] = "en"
    text_speed: int = 40
    auto: bool = False
    skip_seen: bool = False
    reduced_motion: bool = False
    colour: Literal["auto", "none"] = "auto"


class Profile(_Value, frozen=True):
    """`stage` is where the player stands; `seen` the ids of lines already read.

    `id` is given once and survives a change of name: it names the file, and records carry it.
    """

    version: int
    name: str
    created_at: str
    settings: Settings = Settings()
    stage: str = "gate"
    seen: tuple[str, ...] = ()
    id: str = ""

    @property
    def key(self) -> str:
        """What the profile's records carry as `profile`."""
        return self.id or self.name


class LastUsed(_Value, frozen=True):
    """`profile` is the key of the profile last played."""

    version: int
    profile: str


class GuessRecord(_Value, frozen=True):
    """`factor` is the error as a ratio >= 1 (dial), or 1 right / 0 wrong for choices.

    `truth` is what was measured; None where the trial was invalid.
    """

    value: float | str
    truth: float | str | None
    factor: float | None
    close: bool | None


class Record(_Value, frozen=True):
    """One sealed trial. `digest` is the SHA-256 of the row's canonical JSON without it.

    `profile` is the profile's key, which a change of name leaves alone.
    `verdict` and `result` are the judge's and the engine's values as plain JSON.
    """

    digest: str
    version: int
    profile: str
    stage: str
    recorded_at: str
    build: dict[str, Value]
    guess: GuessRecord | None
    verdict: dict[str, Any]
    result: dict[str, Any] | None
    hints_taken: int = 0
