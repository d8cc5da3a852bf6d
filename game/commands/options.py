"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from engine.domains import Value
from engine.knobs import KNOBS, parse_setting

Function = TypeVar("Function", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
device_option = click.option(
    "--device", type=click.Choice(["cpu", "cuda", "mps"]), default="cpu", show_default=True
)
model_option = click.option(
    "--model", default="default", show_default=True, help="A GGUF file, a folder, or a name."
)
draft_option = click.option(
    "--draft-model",
    "draft_model",
    default="",
    metavar="MODEL",
    help="Another model of the same tokenizer, for draft.kind=model.",
)
profile_option = click.option("--profile", default=None, help="Whose ledger; else the last one.")
worker_option = click.option(
    "--worker", default=None, metavar="CMD", help='Another machine: "ssh box latency-wall worker".'
)
set_option = click.option(
    "--set", "settings", multiple=True, metavar="KNOB=VALUE", help="Turn a knob; repeatable."
)
language_option = click.option("--lang", type=click.Choice(["zh", "en"]), default=None)


def engine_options(function: Function) -> Function:
    """--device, --model and --worker: where and with what the engine runs."""
    return device_option(model_option(worker_option(function)))


def parse_settings(settings: Sequence[str], allowed: Sequence[str] = ()) -> dict[str, Value]:
    """`--set` texts as knob positions.

    Raises:
        KnobError: as `parse_setting`, or a knob set twice.
    """
    from engine.domains import KnobError

    build: dict[str, Value] = {}
    for text in settings:
        name, value = parse_setting(text, allowed or tuple(KNOBS))
        if name in build and build[name] != value:
            raise KnobError(f"{name} is set twice: {build[name]} and {value}; set it once")
        build[name] = value
    return build
