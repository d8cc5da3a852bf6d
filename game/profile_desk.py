"""The part of the desk that knows who plays: profiles, settings, what was read, what was saved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from game.build_check import find_stage
from game.player import Player
from saves.documents import Profile, Settings
from story.loader import load_interface
from story.schema import Language, Stage


class ProfileDesk:
    """Who plays, and in which language. `Session` is one of these with an engine beside it."""

    def __init__(self, player: Player, stages: tuple[Stage, ...]) -> None:
        self.stages = stages
        self._player = player
        self._spoken: Language | None = None

    @property
    def profile(self) -> Profile | None:
        return self._player.profile

    @property
    def settings(self) -> Settings:
        return self._player.settings

    def update_settings(self, **changes: Any) -> Settings:
        """Change settings by name and keep them. Raises SessionInputError."""
        if "language" in changes:
            self._spoken = None
        return self._player.update_settings(changes)

    def profiles(self) -> tuple[Profile, ...]:
        """Every profile, by name. Raises SaveError."""
        return self._player.profiles()

    def create_profile(self, name: str) -> Profile:
        """Make a profile and play as it. Raises SaveError: a bad or taken name, a full disk."""
        return self._player.create(name)

    def use_profile(self, name: str) -> Profile:
        """Play on as another profile. Raises SaveError."""
        return self._player.use(name)

    def rename_profile(self, name: str) -> Profile:
        """Rename the profile that plays. Raises SaveError."""
        return self._player.rename(name)

    def delete_profile(self, name: str) -> None:
        """Move a profile into the trash folder. Raises SaveError."""
        self._player.delete(name)

    def mark_seen(self, ids: Iterable[str]) -> None:
        """Remember lines as read. Cheap: the disk is reached every other second at most."""
        self._player.mark_seen(ids)

    def stand_at(self, stage_id: str) -> None:
        """Remember the hall the player is in."""
        self._player.stand_at(find_stage(self.stages, stage_id).id)

    def take_notices(self) -> tuple[str, ...]:
        """What happened to saves since the last call, in the player's language; each once."""
        return self._player.take_notices(self.text)

    @property
    def language(self) -> Language:
        """The language of this sitting: the player's own, unless `speak` said otherwise."""
        return self._spoken or self.settings.language

    def text(self, key: str, /, **values: object) -> str:
        """An interface text in the player's language."""
        return load_interface(self.language).text(key, **values)

    def speak(self, language: Language) -> None:
        """Use `language` for this sitting and leave the player's own setting as it is."""
        self._spoken = language
