"""The records: an append-only SQLite table whose rows are named by their content.

WAL with `synchronous=FULL`: a row is on the disk when `append` returns. Rows are never changed
or removed, triggers refuse both. A row whose digest does not match its content is listed apart
and never counted. A database that SQLite calls damaged is set aside whole, and what can still be
read of it is carried into a new one.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from saves.canonical import canonical_text, digest_of, parse, seal
from saves.documents import Record
from saves.faults import Damage, NewerSaveError, SaveError, cannot
from saves.migrations import APPLICATION_ID, LATEST, migrate, user_version
from saves.rescue import readable_rows, set_aside

BUSY_SECONDS = 5.0
HEADER_BYTES = 100

T = TypeVar("T")


@dataclass(frozen=True)
class BadRow:
    """A row that does not hold together: kept, named, never counted."""

    sequence: int
    digest: str
    why: str


@dataclass(frozen=True)
class Listing:
    """Whole records in the order they were made, and the rows set aside among them."""

    records: tuple[Record, ...]
    bad: tuple[BadRow, ...]


class RecordTable:
    """One process's hold on the records database; opened at first use, in one thread."""

    def __init__(self, path: Path, on_damage: Callable[[Damage], None]) -> None:
        self._path = path
        self._on_damage = on_damage
        self._connection: sqlite3.Connection | None = None
        self._opened_as: tuple[int, int] | None = None

    def append(self, record: Record) -> Record:
        """Seal `record` (its digest is computed here) and put it on the disk.

        The same record appended twice stands once.

        Raises:
            SaveError: it could not be written; the message says why and where.
            ValueError: it holds a number that JSON cannot (NaN, infinity).
        """
        sealed = seal(record)
        row = (sealed.digest, sealed.profile, sealed.stage, canonical_text(sealed))

        def write(connection: sqlite3.Connection) -> None:
            with _transaction(connection):
                _insert(connection, row)

        self._use(write)
        return sealed

    def read(self, profile: str | None = None) -> Listing:
        """The records of one profile (by its key), or of everyone.

        Raises:
            SaveError: the database is there and cannot be read.
        """
        if self._connection is None and not self._path.exists():
            return Listing((), ())
        where, values = ("WHERE profile = ?", (profile,)) if profile is not None else ("", ())
        query = f"SELECT sequence, digest, profile, stage, content FROM record {where}"
        rows = self._use(lambda held: held.execute(query + " ORDER BY sequence", values).fetchall())
        records: list[Record] = []
        bad: list[BadRow] = []
        for sequence, digest, owner, stage, content in rows:
            try:
                records.append(_verified(digest, owner, stage, content))
            except (ValueError, TypeError) as error:
                bad.append(BadRow(int(sequence), str(digest), str(error)))
        return Listing(tuple(records), tuple(bad))

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the one writer's lock of this data folder, across processes.

        It is let go when the block ends, and by the system when the process dies.

        Raises:
            SaveError: the lock was not free in time, or the folder cannot be written.
        """
        self._use(lambda connection: connection.execute("BEGIN IMMEDIATE"))
        connection = self._connection
        assert connection is not None
        try:
            yield
        finally:
            connection.execute("ROLLBACK")

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _use(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Do `act` on the open database; once more on a new one where this one is damaged."""
        try:
            return act(self._open())
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise self._told(error) from None
            self._start_anew(str(error))
        try:
            return act(self._open())
        except sqlite3.DatabaseError as error:
            raise self._told(error) from None

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        _refuse_newer_header(self._path)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot("make the folder of", self._path, error) from None
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._opened_as = _identity(self._path)
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        standing = user_version(connection)
        if standing > LATEST:
            raise NewerSaveError(_newer(self._path, standing))
        mark = int(connection.execute("PRAGMA application_id").fetchone()[0])
        tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
        if mark != APPLICATION_ID and tables:
            raise _Foreign("a database, but not one of this game's")
        if standing < LATEST:
            # Where WAL is not to be had (some network drives) SQLite keeps its rollback journal.
            connection.execute("PRAGMA journal_mode = WAL")
            migrate(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    def _start_anew(self, why: str) -> None:
        """Set the damaged database aside and carry its readable rows into a new one."""
        opened_as, self._opened_as = self._opened_as, None
        self.close()
        if opened_as is not None and _identity(self._path) != opened_as:
            return  # Another process has set it aside already.
        try:
            aside = set_aside(self._path)
        except OSError as error:
            raise cannot("set aside the damaged", self._path, error) from None
        rescued = 0
        fresh = self._open()
        with _transaction(fresh):
            for row in readable_rows(aside):
                try:
                    record = _verified(row.digest, row.profile, row.stage, row.content)
                except (ValueError, TypeError):
                    continue  # It stays where it is, in the file set aside.
                _insert(fresh, (record.digest, record.profile, record.stage, row.content))
                rescued += 1
        self._on_damage(Damage(self._path, aside, why, rescued))

    def _told(self, error: sqlite3.DatabaseError) -> SaveError:
        return SaveError(f"cannot use the records in {self._path}: {error}")


class _Foreign(sqlite3.DatabaseError):
    pass


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """True for a file that is no database or a broken one; not for a lock or a full disk."""
    if isinstance(error, _Foreign):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return False
    return (code & 0xFF) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise


def _insert(connection: sqlite3.Connection, row: tuple[str, str, str, str]) -> None:
    standing = connection.execute("SELECT content FROM record WHERE digest = ?", row[:1]).fetchone()
    if standing is None:
        connection.execute(
            "INSERT INTO record (digest, profile, stage, content) VALUES (?, ?, ?, ?)", row
        )


def _verified(digest: str, profile: str, stage: str, content: str) -> Record:
    """Raises ValueError where the row's parts do not agree with one another."""
    if not isinstance(content, str) or digest_of(content) != digest:
        raise ValueError("its digest does not match its content")
    try:
        record = parse(content, digest)
    except msgspec.ValidationError as error:
        raise ValueError(f"its content is not a record of this game: {error}") from None
    if (record.profile, record.stage) != (profile, stage):
        raise ValueError("its columns do not agree with its content")
    return record


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _refuse_newer_header(path: Path) -> None:
    """Read the version from the file's own header, so that a newer save is not even opened.

    Source: the SQLite file format, user version: 4 bytes, big-endian, at offset 60.
    """
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise cannot("read", path, error) from None
    ours = header[68:72] == APPLICATION_ID.to_bytes(4, "big")
    version = int.from_bytes(header[60:64], "big")
    if header.startswith(b"SQLite format 3\0") and ours and version > LATEST:
        raise NewerSaveError(_newer(path, version))


def _newer(path: Path, version: int) -> str:
    return (
        f"{path} has version {version} and this game reads up to {LATEST}: "
        "it was left untouched; play it with the newer game"
    )
