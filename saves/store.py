"""The player's data as the game sees it: profiles, the last one used, and the records.

Every write is whole or absent, across crashes and across two games open at once. What is damaged
is set aside under a name of its own and told in `notices`; what is newer is refused untouched.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from saves.documents import LastUsed, Profile, Record, Settings
from saves.faults import Damage, ProfileNameError, SaveError, UnknownProfileError, cannot
from saves.json_file import (
    BACKUP,
    DOCUMENT_VERSION,
    backup_path,
    read_document,
    remove_stale_parts,
    sync_folder,
    write_document,
)
from saves.paths import House, data_home
from saves.profile_name import checked_name, folded, is_key, new_key, same_name
from saves.record_table import BadRow, RecordTable

MANY_PROFILES = 20


class Store:
    """One data folder, held by one thread. Opening it reads and writes nothing."""

    def __init__(self, home: Path | None = None) -> None:
        self.house = House(Path(home) if home is not None else data_home())
        self.notices: list[Damage] = []
        self._table = RecordTable(self.house.records, self.notices.append)

    @property
    def home(self) -> Path:
        return self.house.root

    def take_notices(self) -> tuple[Damage, ...]:
        """Damage met since the last call; each is told once."""
        taken = tuple(self.notices)
        self.notices.clear()
        return taken

    def list_profiles(self) -> tuple[Profile, ...]:
        """Every profile that can be read, by name.

        A profile a newer game wrote is left out and left alone; `load` says so.

        Raises:
            SaveError: the folder is there and cannot be read.
        """
        found: list[Profile] = []
        for key in self._keys():
            with contextlib.suppress(SaveError):
                profile = self._read(key)
                if profile is not None:
                    found.append(profile)
        return tuple(sorted(found, key=lambda profile: (folded(profile.name), profile.id)))

    def create(self, name: str, settings: Settings | None = None) -> Profile:
        """A new profile, on the disk when this returns.

        Raises:
            ProfileNameError: the name cannot be, or is taken (names differ by more than case).
            SaveError: it could not be written.
        """
        name = checked_name(name)
        profile = Profile(
            version=DOCUMENT_VERSION,
            name=name,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            settings=settings or Settings(),
            id=new_key(name),
        )
        with self._table.exclusive():
            self._refuse_taken(name)
            write_document(self.house.profile(profile.id), profile)
        return profile

    def load(self, name: str) -> Profile:
        """The profile of that name (in any case) or of that key.

        Raises:
            UnknownProfileError: there is none; lists those that exist.
            NewerSaveError: a newer version of the game wrote it.
            SaveError: it cannot be read.
        """
        if is_key(name) and name in self._keys():
            profile = self._read(name)
            if profile is not None:
                return profile
        profiles = self.list_profiles()
        for profile in profiles:
            if same_name(profile.name, name):
                return profile
        names = ", ".join(profile.name for profile in profiles[:MANY_PROFILES])
        raise UnknownProfileError(
            f"no profile is named {name!r}; " + (f"there are: {names}" if names else "none exists")
        )

    def save(self, profile: Profile) -> None:
        """Write the profile over the one of its key; the one before stays as `.bak`.

        Two games that save one profile do not mix: the last to write stands.

        Raises:
            SaveError: it could not be written, or it never came from `create` or `load`.
        """
        if not is_key(profile.id):
            raise SaveError(f"{profile.name!r} is not a profile of this store: create it first")
        path = self.house.profile(profile.id)
        remove_stale_parts(path.parent)
        write_document(path, msgspec.structs.replace(profile, version=DOCUMENT_VERSION))

    def rename(self, profile: Profile, name: str) -> Profile:
        """The same profile under another name; its file and its records stay where they are.

        Raises:
            ProfileNameError: the name cannot be, or another profile has it.
            SaveError: it could not be written.
        """
        name = checked_name(name)
        renamed = msgspec.structs.replace(profile, name=name)
        with self._table.exclusive():
            self._refuse_taken(name, but=profile.id)
            self.save(renamed)
        return renamed

    def delete(self, profile: Profile) -> Path:
        """Move the profile into the trash folder and return where it lies; records stay.

        Raises:
            SaveError: it could not be moved.
        """
        path = self.house.profile(profile.id)
        moved = self.house.trash / path.name
        try:
            self.house.trash.mkdir(parents=True, exist_ok=True)
            # The backup first: a backup without its document would be taken for a rescue.
            with contextlib.suppress(FileNotFoundError):
                backup_path(path).replace(backup_path(moved))
            path.replace(moved)
        except OSError as error:
            raise cannot("move to the trash", path, error) from None
        sync_folder(self.house.profiles)
        return moved

    def last_used(self) -> Profile | None:
        """The profile last played, or the only one there is; None where that cannot be said."""
        with contextlib.suppress(SaveError):
            reading = read_document(self.house.last_used, LastUsed)
            if reading.value is not None and is_key(reading.value.profile):
                profile = self._read(reading.value.profile)
                if profile is not None:
                    return profile
        profiles = self.list_profiles()
        return profiles[0] if len(profiles) == 1 else None

    def mark_used(self, profile: Profile) -> None:
        """Remember the profile for `last_used`. Raises SaveError as `save` does."""
        write_document(self.house.last_used, LastUsed(DOCUMENT_VERSION, profile.id))

    def append(self, record: Record) -> Record:
        """Seal `record` and put it on the disk; returns it under its digest.

        Raises:
            SaveError: it could not be written.
            ValueError: it holds a number JSON cannot.
        """
        return self._table.append(record)

    def records(self, profile: Profile | None = None) -> tuple[Record, ...]:
        """Whole records of one profile, or of all, oldest first. Raises SaveError."""
        return self._table.read(profile.key if profile else None).records

    def bad_rows(self) -> tuple[BadRow, ...]:
        """Rows whose digest does not match their content: kept, named, counted nowhere."""
        return self._table.read().bad

    def find_record(self, digest: str) -> Record:
        """The one record whose digest begins with `digest` (8 characters or more).

        Raises:
            SaveError: none does, or several do.
        """
        prefix = digest.strip().lower()
        if len(prefix) < 8:
            raise SaveError(f"{digest!r} is too short to name a record: 8 characters or more")
        found = [record for record in self.records() if record.digest.startswith(prefix)]
        if len(found) == 1:
            return found[0]
        raise SaveError(f"{'several records have' if found else 'no record has'} digest {digest!r}")

    def close(self) -> None:
        self._table.close()

    def _keys(self) -> tuple[str, ...]:
        """Keys that have a document, or the backup of one."""
        folder = self.house.profiles
        try:
            names = [entry.name for entry in folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise cannot("list", folder, error) from None
        endings = (".json", f".json{BACKUP}")
        keys = {name.removesuffix(end) for name in names for end in endings if name.endswith(end)}
        return tuple(sorted(key for key in keys if is_key(key)))

    def _read(self, key: str) -> Profile | None:
        reading = read_document(self.house.profile(key), Profile)
        if reading.damage is not None:
            self.notices.append(reading.damage)
        if reading.value is None:
            return None
        # The file's name is the key, whatever a hand-edited document says of itself; and its
        # text is as foreign as any file's.
        name = _readable_name(reading.value.name, key)
        return msgspec.structs.replace(reading.value, id=key, name=name)

    def _refuse_taken(self, name: str, but: str = "") -> None:
        for other in self.list_profiles():
            if other.id != but and same_name(other.name, name):
                raise ProfileNameError(f"the name {other.name!r} is taken; choose another")


def _readable_name(name: str, key: str) -> str:
    try:
        return checked_name(name)
    except ProfileNameError:
        return key
