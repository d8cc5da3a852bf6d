"""What can still be read of a damaged records database.

The damaged file is only ever moved and read: it keeps whatever it held.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from saves.faults import aside_path

COMPANIONS = ("-wal", "-shm", "-journal")
LARGEST_GAP = 10_000


@dataclass(frozen=True)
class RawRow:
    """A row as it was read: nothing about it is checked yet."""

    sequence: int
    digest: str
    profile: str
    stage: str
    content: str


def set_aside(path: Path) -> Path:
    """Move the database and its log files together, so that the log still belongs to it.

    Raises:
        OSError: the folder cannot be written.
    """
    aside = aside_path(path)
    for companion in COMPANIONS:
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + companion).replace(aside.with_name(aside.name + companion))
    path.replace(aside)
    return aside


def readable_rows(damaged: Path) -> Iterator[RawRow]:
    """Rows of a damaged database in their order, past broken pages where some stand beyond them.

    A scan stops at the first broken page, so the table is walked from both ends, and the gap
    between is asked for row by row.
    """
    try:
        connection = sqlite3.connect(f"{damaged.as_uri()}?mode=ro", uri=True, isolation_level=None)
    except sqlite3.Error:
        return
    with contextlib.closing(connection):
        # Lets SQLite read a file shorter than its own header says; nothing can be written here.
        with contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA writable_schema = ON")
        found: dict[int, RawRow] = {}
        for order in ("ASC", "DESC"):
            for row in _scan(connection, f"ORDER BY sequence {order}", ()):
                found[row.sequence] = row
        for sequence in _missing(connection, found):
            for row in _scan(connection, "WHERE sequence = ?", (sequence,)):
                found[row.sequence] = row
    for sequence in sorted(found):
        yield found[sequence]


def _scan(connection: sqlite3.Connection, clause: str, values: tuple[int, ...]) -> Iterator[RawRow]:
    """Rows until the first that cannot be read."""
    query = f"SELECT sequence, digest, profile, stage, content FROM record {clause}"
    try:
        for row in connection.execute(query, values):
            if isinstance(row[0], int) and all(isinstance(part, str) for part in row[1:]):
                yield RawRow(*row)
    except sqlite3.Error:
        return


def _missing(connection: sqlite3.Connection, found: dict[int, RawRow]) -> Iterator[int]:
    """Sequence numbers between those found, up to the last the table ever gave out."""
    last = max(found, default=0)
    with contextlib.suppress(sqlite3.Error):
        given = connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'record'"
        ).fetchone()
        if given and isinstance(given[0], int):
            last = max(last, given[0])
    for sequence in range(1, min(last, LARGEST_GAP) + 1):
        if sequence not in found:
            yield sequence
