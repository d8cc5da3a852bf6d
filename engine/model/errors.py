"""The one error a model file, a model folder or a model name can raise."""

from __future__ import annotations

from pathlib import Path

from engine.clean import clean


class ModelError(ValueError):
    """A model that cannot be used: says which file, what is wrong with it, what would be right."""


def fault(path: Path, text: str) -> ModelError:
    """The error for `path`; the text may quote names that the file itself gave."""
    return ModelError(clean(f"{path}: {text}", limit=2_000, one_line=True))
