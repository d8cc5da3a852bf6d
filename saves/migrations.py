"""The shape of the records database, one numbered step after another.

A step is never edited once released; a new shape is a new step. `PRAGMA user_version` holds the
number of the last step taken, and the table `migration` says when each was.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime

APPLICATION_ID = 0x4C57616C
"""Marks the file as this game's ("LWal"), so that another program's database is never written."""


@dataclass(frozen=True)
class Migration:
    number: int
    name: str
    statements: tuple[str, ...]


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        1,
        "append-only records",
        (
            # `content` is the record's canonical JSON; the other columns repeat parts of it so
            # that a profile's records can be found without reading everyone's.
            """
            CREATE TABLE record (
                sequence INTEGER PRIMARY KEY AUTOINCREMENT,
                digest TEXT NOT NULL UNIQUE CHECK (length(digest) = 64),
                profile TEXT NOT NULL,
                stage TEXT NOT NULL,
                content TEXT NOT NULL
            )
            """,
            "CREATE INDEX record_profile ON record (profile, sequence)",
            """
            CREATE TRIGGER record_no_update BEFORE UPDATE ON record
            BEGIN SELECT RAISE(ABORT, 'records are append-only'); END
            """,
            """
            CREATE TRIGGER record_no_delete BEFORE DELETE ON record
            BEGIN SELECT RAISE(ABORT, 'records are append-only'); END
            """,
            # INSERT OR REPLACE deletes without firing the trigger above.
            """
            CREATE TRIGGER record_no_replace BEFORE INSERT ON record
            WHEN EXISTS (
                SELECT 1 FROM record WHERE digest = NEW.digest OR sequence = NEW.sequence
            )
            BEGIN SELECT RAISE(ABORT, 'records are append-only'); END
            """,
        ),
    ),
)
LATEST = MIGRATIONS[-1].number


def user_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection) -> None:
    """Take every step not yet taken, each in its own transaction.

    `connection` is in autocommit mode. Two processes may call this at once: the version is read
    again once the write lock is held.
    """
    while user_version(connection) < LATEST:
        connection.execute("BEGIN IMMEDIATE")
        try:
            standing = user_version(connection)
            if standing < LATEST:
                _take(connection, MIGRATIONS[standing])
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _take(connection: sqlite3.Connection, step: Migration) -> None:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migration "
        "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL)"
    )
    for statement in step.statements:
        connection.execute(statement)
    connection.execute(
        "INSERT INTO migration VALUES (?, ?, ?)",
        (step.number, step.name, datetime.now(UTC).isoformat(timespec="seconds")),
    )
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {step.number}")
