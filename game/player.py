"""Who plays: one profile, its settings, its records; and what could not be written of them.

What the disk refuses is kept in memory and tried again at the next write, so that a full disk
ends no game. Every refusal and every damaged save is told once, through `take_notices`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, get_args

import msgspec

from engine.domains import nearest_name
from game.outcome import SessionInputError
from saves.canonical import seal
from saves.documents import Profile, Record, Settings
from saves.faults import Damage, SaveError, UnknownProfileError
from saves.json_file import DOCUMENT_VERSION
from saves.profile_name import checked_name
from saves.store import Store

SEEN_SECONDS = 2.0
"""Lines read are written at most this often: the interface must not wait for the disk."""
FASTEST_TEXT = 1000
DEFAULT_NAME = {"en": "Traveller", "zh": "旅人"}

Say = Callable[..., str]
"""An interface text by key: `say("save.damaged", path=...)`."""


class Player:
    """`profile` is None until one is chosen or made; settings live in memory until then."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self.profile: Profile | None = None
        self._settings = Settings()
        self._records: list[Record] | None = None
        self._unsaved: list[Record] = []
        self._unwritten = False
        self._refusals: list[str] = []
        self._marked = ""
        self._clock = clock
        self._written_at = clock()

    @property
    def settings(self) -> Settings:
        return self.profile.settings if self.profile is not None else self._settings

    @property
    def unsaved(self) -> int:
        """Records that are in memory alone, because the disk refused them."""
        return len(self._unsaved)

    def enter(self, name: str | None) -> None:
        """Take up the profile of that name, or the one last played.

        A name that no profile has is taken as a new one, which is written with its first change.

        Raises:
            SaveError: that profile cannot be read, or the name cannot be.
        """
        if name is None:
            try:
                self.profile = self.store.last_used()
            except SaveError as error:
                self._refuse(str(error))
            self._marked = self.profile.id if self.profile is not None else ""
            return
        try:
            self.profile = self.store.load(name)
        except UnknownProfileError:
            self.profile = Profile(DOCUMENT_VERSION, checked_name(name), "", self._settings)

    def profiles(self) -> tuple[Profile, ...]:
        """Every profile there is. Raises SaveError."""
        return self.store.list_profiles()

    def create(self, name: str) -> Profile:
        """A new profile, with the settings of this moment, and now the one that plays.

        Raises:
            SaveError: the name cannot be or is taken, or the disk refused.
        """
        self.flush()
        self._take_up(self.store.create(name, self.settings))
        assert self.profile is not None
        return self.profile

    def use(self, name: str) -> Profile:
        """Play on as another profile. Raises SaveError as `Store.load` does."""
        chosen = self.store.load(name)
        self.flush()
        self._take_up(chosen)
        return chosen

    def rename(self, name: str) -> Profile:
        """Raises SaveError: the name cannot be or is taken, the disk refused, or nobody plays."""
        self.profile = self.store.rename(self.settled(), name)
        self._unwritten = False
        return self.profile

    def delete(self, name: str) -> None:
        """Move a profile to the trash; if it was the one that plays, nobody does then."""
        doomed = self.store.load(name)
        self.store.delete(doomed)
        if self.profile is not None and self.profile.id == doomed.id:
            self._settings = self.profile.settings
            self.profile, self._records = None, None
            self._unwritten = False
        self._unsaved = [one for one in self._unsaved if one.profile != doomed.key]

    def update_settings(self, changes: dict[str, Any]) -> Settings:
        """Change settings and keep them; one the disk refuses holds for this session.

        Raises:
            SessionInputError: no such setting, or a value it cannot take.
        """
        settings = changed(self.settings, changes)
        if self.profile is None:
            self._settings = settings
        elif settings != self.profile.settings:
            self._change(settings=settings)
            self.flush()
        return settings

    def mark_seen(self, ids: Iterable[str]) -> None:
        """Lines that were read. Written every other second at most, and by `flush`."""
        if self.profile is None:
            return
        known = set(self.profile.seen)
        new = tuple(line for line in dict.fromkeys(ids) if line not in known)
        if new:
            self._change(seen=self.profile.seen + new)
            if self._clock() - self._written_at >= SEEN_SECONDS:
                self.flush()

    def stand_at(self, stage_id: str) -> None:
        if self.profile is not None and self.profile.stage != stage_id:
            self._change(stage=stage_id)
            self.flush()

    def records(self) -> tuple[Record, ...]:
        """This player's whole records, oldest first; those the disk refused among them."""
        if self._records is None:
            kept: tuple[Record, ...] = ()
            key = self.profile.key if self.profile is not None else ""
            if self.profile is not None and self.profile.id:
                try:
                    kept = self.store.records(self.profile)
                except SaveError as error:
                    self._refuse(str(error))
            self._records = [*kept, *(one for one in self._unsaved if one.profile == key)]
        return tuple(self._records)

    def keep(self, record: Record) -> tuple[Record, str | None]:
        """Add a record; returns it sealed, and why the disk refused it if it did.

        `record.profile` is filled in here.
        """
        trouble: str | None = None
        try:
            self.settled()
        except SaveError as error:
            trouble = str(error)
        self.records()
        key = self.profile.key if self.profile is not None else ""
        sealed = seal(msgspec.structs.replace(record, profile=key))
        assert self._records is not None
        self._records.append(sealed)
        self._unsaved.append(sealed)
        return sealed, trouble or self._save_records()

    def settled(self) -> Profile:
        """The profile that plays, on the disk; one is made where there is none.

        Raises:
            SaveError: the disk refused.
        """
        if self.profile is not None and self.profile.id:
            return self.profile
        before = self.profile
        name = before.name if before is not None else DEFAULT_NAME[self.settings.language]
        try:
            made = self.store.load(name)
        except UnknownProfileError:
            made = self.store.create(name, self.settings)
        old_key = before.key if before is not None else ""
        self._unsaved = [
            seal(msgspec.structs.replace(one, profile=made.key)) if one.profile == old_key else one
            for one in self._unsaved
        ]
        self._take_up(made)
        if before is not None and before.seen:
            self._change(seen=before.seen)
        assert self.profile is not None
        return self.profile

    def flush(self) -> None:
        """Write what is not written yet; what the disk refuses stays in memory and is told."""
        self._written_at = self._clock()
        if not self._unwritten and not self._unsaved:
            return
        try:
            settled = self.settled()
            if self._unwritten:
                self.store.save(settled)
                self._unwritten = False
        except SaveError as error:
            self._refuse(str(error))
            return
        trouble = self._save_records()
        if trouble is not None:
            self._refuse(trouble)

    def take_notices(self, say: Say) -> tuple[str, ...]:
        """What happened to saves since the last call, as sentences to show."""
        told = tuple(_damage(damage, say) for damage in self.store.take_notices())
        refused = tuple(say("save.refused", why=why) for why in self._refusals)
        self._refusals.clear()
        return told + refused

    def close(self) -> None:
        self.flush()
        self.store.close()

    def _take_up(self, profile: Profile) -> None:
        self.profile, self._records, self._unwritten = profile, None, False
        self._mark()

    def _mark(self) -> None:
        """Remember who plays as the one to go on with; looking alone does not count."""
        if self.profile is None or self.profile.id in ("", self._marked):
            return
        try:
            self.store.mark_used(self.profile)
            self._marked = self.profile.id
        except SaveError as error:
            self._refuse(str(error))

    def _change(self, **changes: Any) -> None:
        assert self.profile is not None
        self.profile = msgspec.structs.replace(self.profile, **changes)
        self._unwritten = True

    def _save_records(self) -> str | None:
        """Append what is in memory alone, oldest first; stops at the first refusal."""
        self._mark()
        while self._unsaved:
            try:
                self.store.append(self._unsaved[0])
            except SaveError as error:
                return str(error)
            self._unsaved.pop(0)
        return None

    def _refuse(self, why: str) -> None:
        if why not in self._refusals:
            self._refusals.append(why)


def changed(settings: Settings, changes: dict[str, Any]) -> Settings:
    """`settings` with `changes`, checked.

    Raises:
        SessionInputError: names the nearest setting, or what the value may be.
    """
    fields = Settings.__struct_fields__
    for name in changes:
        if name not in fields:
            nearest = nearest_name(name, fields)
            raise SessionInputError(f"no setting is named {name!r}; nearest: {nearest}")
    try:
        new = msgspec.convert({**msgspec.to_builtins(settings), **changes}, Settings)
    except msgspec.ValidationError as error:
        legal = "; ".join(_legal(name) for name in changes)
        raise SessionInputError(f"{error}; legal: {legal}") from None
    if not 0 <= new.text_speed <= FASTEST_TEXT:
        raise SessionInputError(f"text_speed {new.text_speed}: legal: {_legal('text_speed')}")
    return new


def _legal(name: str) -> str:
    kinds = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    if name == "text_speed":
        return f"text_speed 0 to {FASTEST_TEXT} characters a second"
    words = get_args(kinds[name])
    return f"{name} {', '.join(map(str, words))}" if words else f"{name} true, false"


def _damage(damage: Damage, say: Say) -> str:
    if damage.aside is None:
        return say("save.restored", path=str(damage.path))
    key = "save.damaged" if damage.rescued else "save.damaged_lost"
    return say(
        key,
        path=str(damage.path),
        aside=str(damage.aside),
        why=damage.why,
        rescued=damage.rescued,
    )
