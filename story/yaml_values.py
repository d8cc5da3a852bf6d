"""A document turned into values of a type, its faults put back at the line that was written.

msgspec names a fault's path; a mapping's key it writes as `[...]`, so the key is found by trying
each alone. All of this runs only once a file is already known to be wrong.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from engine.domains import nearest_name
from story.yaml_reader import Document, Step, StoryError

T = TypeVar("T")
_PLACE = re.compile(r"(?P<what>.*?)(?: - at (?P<key>`key` in )?`(?P<path>\$.*)`)?\Z", re.S)
_STEP = re.compile(r"\.(?P<name>[A-Za-z_]\w*)|\[(?P<index>\d+)\]|\[\.\.\.\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`\Z", re.S)


def convert(document: Document, kind: type[T]) -> T:
    """The document as a value of `kind`, strictly: no coercion, no unknown field.

    Raises:
        StoryError: at the line of what does not fit, naming the nearest legal field or word.
    """
    try:
        return msgspec.convert(document.value, kind, strict=True)
    except msgspec.ValidationError as error:
        raise _placed(document, kind, str(error)) from None


def _placed(document: Document, kind: Any, message: str) -> StoryError:
    match = _PLACE.match(message)
    assert match is not None
    what, at_key = match["what"], match["key"] is not None
    path = _find(document.value, kind, message, match["path"] or "", at_key)
    inside = _type_at(kind, path[:-1] if at_key else path)
    unknown = _UNKNOWN.match(what)
    if unknown:
        name = unknown["name"]
        return document.error(
            (*path, name), f"no field is named {name!r}{_nearest(name, _fields(inside))}", True
        )
    written = path[-1] if at_key else value_at(document.value, path)
    words = _words(getattr(inside, "key_type", None) if at_key else inside)
    if words and isinstance(written, str):
        fault = f"{written!r} is not one of: {', '.join(words)}{_nearest(written, words)}"
        return document.error(path, fault, at_key)
    hint = "; put it in quotes" if what.startswith("Expected `str`, got `") else ""
    return document.error(path, what[:1].lower() + what[1:] + hint, at_key)


def _nearest(word: str, legal: tuple[str, ...]) -> str:
    return f"; nearest: {nearest_name(word, legal)}" if legal else ""


def _find(root: Any, kind: Any, message: str, shown: str, at_key: bool) -> tuple[Step, ...]:
    path: tuple[Step, ...] = ()
    for step in _STEP.finditer(shown):
        if step["name"] is not None:
            path = (*path, step["name"])
        elif step["index"] is not None:
            path = (*path, int(step["index"]))
        else:
            path = (*path, *_guilty_key(root, kind, message, path))
    return (*path, *_guilty_key(root, kind, message, path)) if at_key else path


def _guilty_key(root: Any, kind: Any, message: str, path: tuple[Step, ...]) -> tuple[Step, ...]:
    """The first key of the mapping at `path` that alone brings the same message, if any."""
    inner = value_at(root, path)
    for key in inner if isinstance(inner, dict) else ():
        try:
            msgspec.convert(_only(root, path, key), kind, strict=True)
        except msgspec.ValidationError as error:
            if str(error) == message:
                return (key,)
    return ()


def _only(value: Any, path: tuple[Step, ...], key: str) -> Any:
    """A copy of `value` whose mapping at `path` holds nothing but `key`."""
    if not path:
        return {key: value[key]}
    copy = value.copy()
    copy[path[0]] = _only(value[path[0]], path[1:], key)
    return copy


def value_at(value: Any, path: tuple[Step, ...]) -> Any:
    """What stands at `path`; None where nothing does."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _type_at(kind: Any, path: tuple[Step, ...]) -> msgspec.inspect.Type:
    """The type a value at `path` must have. An optional type counts as the type itself."""
    found = _plain(msgspec.inspect.type_info(kind))
    for step in path:
        if isinstance(found, msgspec.inspect.StructType):
            fields = {field.encode_name: field.type for field in found.fields}
            found = _plain(fields.get(str(step), msgspec.inspect.AnyType()))
        elif isinstance(found, msgspec.inspect.DictType):
            found = _plain(found.value_type)
        elif isinstance(found, msgspec.inspect.VarTupleType):
            found = _plain(found.item_type)
    return found


def _plain(kind: msgspec.inspect.Type) -> msgspec.inspect.Type:
    if isinstance(kind, msgspec.inspect.UnionType):
        others = [one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType)]
        return others[0] if len(others) == 1 else kind
    return kind


def _fields(kind: msgspec.inspect.Type) -> tuple[str, ...]:
    if isinstance(kind, msgspec.inspect.StructType):
        return tuple(field.encode_name for field in kind.fields)
    return ()


def _words(kind: msgspec.inspect.Type | None) -> tuple[str, ...]:
    if isinstance(kind, msgspec.inspect.LiteralType):
        return tuple(str(value) for value in kind.values)
    return ()
