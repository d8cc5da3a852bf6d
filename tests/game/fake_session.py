"""A session without a disk, an engine or a clock, for tests of the screens.

Stages and words are the real ones; standing and records are what the test gives it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from canned_trials import CAPABILITIES, MODEL

from engine.messages import Event
from game.rules.progress import standing
from game.rules.standing import Standing
from saves.documents import Profile, Record, Settings
from story.loader import load_interface, load_stages, load_text
from story.schema import StageText


class FakeSession:
    """Everything the screens call. `events` are told to whoever calls `ready`."""

    def __init__(
        self,
        language: str = "zh",
        *,
        name: str | None = "林默",
        records: tuple[Record, ...] = (),
        events: tuple[Event, ...] = (),
        trouble: Exception | None = None,
        **settings: Any,
    ) -> None:
        self._settings = Settings(
            language=language,  # type: ignore[arg-type]
            **{"reduced_motion": True, "text_speed": 0, **settings},
        )
        self._profiles: dict[str, Profile] = {}
        self._current: str | None = None
        if name is not None:
            self.create_profile(name)
        self.stages = load_stages()
        self.capabilities = CAPABILITIES
        self.model_config = MODEL
        self.machine = None
        self.closed = False
        self.seen: set[str] = set()
        self.trouble = trouble
        self._records = records
        self._events = events
    @property
    def profile(self) -> Profile | None:
        return None if self._current is None else self._profiles[self._current]

    @property
    def settings(self) -> Settings:
        return self._settings if self.profile is None else self.profile.settings

    def update_settings(self, **changes: Any) -> Settings:
        self._settings = msgspec.structs.replace(self.settings, **changes)
        if self._current is not None:
            changed = msgspec.structs.replace(self._profiles[self._current], settings=self.settings)
            self._profiles[self._current] = msgspec.structs.replace(
                changed, settings=self._settings
            )
        return self._settings

    def text(self, key: str, /, **values: object) -> str:
        return load_interface(self.settings.language).text(key, **values)

    def stage_text(self, stage_id: str) -> StageText:
        try:
            return load_text(stage_id, self.settings.language)
        except ValueError:
            return StageText(stage=stage_id, name=stage_id, place="", closed="sealed")

    def standing(self) -> Standing:
        return standing(self._records, self.stages)

    def records(self) -> tuple[Record, ...]:
        return self._records

    def profiles(self) -> tuple[Profile, ...]:
        return tuple(self._profiles.values())

    def create_profile(self, name: str) -> Profile:
        if name in self._profiles:
            raise ValueError(f"{name!r} is taken")
        self._profiles[name] = Profile(1, name, "2026-01-02T03:04:05+00:00", self._settings)
        self._current = name
        return self._profiles[name]

    def mark_seen(self, ids: Any) -> None:
        self.seen.update(ids)

    async def ready(self, on_event: Any = None) -> None:
        for event in self._events:
            if on_event is not None:
                on_event(event)
            await asyncio.sleep(0)
        if self.trouble is not None:
            raise self.trouble

    async def abort(self) -> None:
        await asyncio.sleep(0)

    async def close(self) -> None:
        self.closed = True
