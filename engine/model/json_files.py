"""JSON files of a model folder: bounded in size, and typed where they are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.clean import clean
from engine.model.errors import fault

MAX_BYTES = 16 * 2**20


@dataclass(frozen=True)
class JSONObject:
    """One JSON object and the file it came from; `within` names the way to a nested one.

    A key that is absent or null takes the default; without a default, or with a value of another
    kind, the getters raise ModelError naming file and key.
    """

    path: Path
    values: dict[str, object]
    within: str = ""

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise fault(
                self.path, f"{self._name(key)} should be a whole number, not {shown(value)}"
            )
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise fault(self.path, f"{self._name(key)} should be a number, not {shown(value)}")
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise fault(self.path, f"{self._name(key)} should be text, not {shown(value)}")
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise fault(self.path, f"{self._name(key)} should be true or false, not {shown(value)}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._get(key, None)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise fault(self.path, f"{self._name(key)} should be a list of texts")
        return tuple(value)

    def child(self, key: str) -> JSONObject:
        value = self._get(key, None)
        if not isinstance(value, dict):
            raise fault(self.path, f"{self._name(key)} should be an object, not {shown(value)}")
        return JSONObject(self.path, value, f"{self.within}{key}.")

    def _get(self, key: str, default: object) -> object:
        value = self.values.get(key)
        value = default if value is None else value
        if value is None:
            raise fault(self.path, f"{self._name(key)} is missing")
        return value

    def _name(self, key: str) -> str:
        return repr(f"{self.within}{key}")


def read_object(path: Path, most: int = MAX_BYTES) -> JSONObject:
    """The JSON object in the file at `path`.

    Raises:
        ModelError: the file is missing, longer than `most` bytes, or not a JSON object.
    """
    raw = read_bounded(path, most)
    try:
        return JSONObject(path, msgspec.json.decode(raw, type=dict[str, object]))
    except RecursionError:
        raise fault(path, "nests its JSON too deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise fault(path, f"is not the JSON object expected: {error}") from None


def read_bounded(path: Path, most: int) -> bytes:
    """The bytes of a file that may not be longer than `most`.

    Raises:
        ModelError: the file is missing, unreadable or too long.
    """
    try:
        if not path.is_file():
            raise fault(path, "is missing" if not path.exists() else "is not a regular file")
        with path.open("rb") as file:
            raw = file.read(most + 1)
    except OSError as error:
        raise fault(path, f"cannot be read ({error.strerror or error})") from None
    if len(raw) > most:
        raise fault(path, f"is longer than {most} bytes, the most that is read of such a file")
    return raw


def shown(value: object) -> str:
    """`value` as an error message may quote it."""
    return clean(repr(value), limit=80, one_line=True)
