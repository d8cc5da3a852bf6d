"""From an exception to the one sentence the interface may show."""

from __future__ import annotations

import re
import sys
from typing import Literal

from engine.cache_plan import BudgetError
from engine.clean import clean
from engine.domains import KnobError
from engine.messages import Failed
from engine.model.errors import ModelError

Kind = Literal["input", "model", "aborted", "memory", "internal"]

MESSAGE_LIMIT = 600
_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory", re.I)


class Aborted(Exception):
    """The player stopped this job."""


class InputError(ValueError):
    """What was asked cannot be; says what would be right."""


def kind_of(error: BaseException) -> Kind:
    """Which of the protocol's kinds of failure `error` is.

    torch reports that memory ran out as a RuntimeError on CPU and as OutOfMemoryError on a GPU.
    """
    if isinstance(error, Aborted):
        return "aborted"
    if isinstance(error, KnobError | InputError):
        return "input"
    if isinstance(error, ModelError):
        return "model"
    if isinstance(error, BudgetError):
        return "memory"
    budget = sys.modules.get("engine.run.budget")
    if budget is not None and isinstance(error, budget.BudgetExceeded):
        return "memory"
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (
        torch is not None and isinstance(error, torch.OutOfMemoryError)
    ):
        return "memory"
    if isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error)):
        return "memory"
    return "internal"


def failure(job: int, error: BaseException, kind: Kind | None = None) -> Failed:
    """The event that answers `job`; `detail` names the exception where the fault is ours."""
    kind = kind or kind_of(error)
    name = type(error).__name__
    text = clean(str(error), limit=MESSAGE_LIMIT, one_line=True)
    if kind == "aborted":
        text = "stopped"
    elif kind == "memory":
        text = f"not enough memory: {text}" if text else "not enough memory"
    return Failed(
        job=job, kind=kind, message=text or name, detail=name if kind == "internal" else ""
    )
