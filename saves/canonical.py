"""The one text of a record, and the name that text gives it.

Canonical JSON: keys sorted, no white space, ASCII with escapes, floats as Python's shortest
round-trip form, no NaN and no infinity. A record's digest is the SHA-256 of that text without
the digest itself: whoever holds the record can check its name.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec

from saves.documents import Record


def canonical_text(record: Record) -> str:
    """The record as canonical JSON, without its digest.

    Raises:
        ValueError: a number that JSON cannot hold (NaN, infinity).
    """
    plain: dict[str, Any] = msgspec.to_builtins(record)
    plain.pop("digest")
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def parse(text: str, digest: str) -> Record:
    """The record whose canonical JSON is `text`. Does not compare digests.

    Raises:
        ValueError: not JSON, or not the shape of a record (msgspec.ValidationError).
    """
    plain: Any = msgspec.json.decode(text)
    if not isinstance(plain, dict):
        raise ValueError("not a JSON object")
    return msgspec.convert({**plain, "digest": digest}, Record)


def seal(record: Record) -> Record:
    """`record` under its right name, its values as they will read back (18 becomes 18.0).

    Raises:
        ValueError: as `canonical_text`.
    """
    settled = parse(canonical_text(record), "")
    return msgspec.structs.replace(settled, digest=digest_of(canonical_text(settled)))


def holds(record: Record) -> bool:
    """True where the record's digest names its content."""
    return digest_of(canonical_text(record)) == record.digest
