"""`latency-wall model`: the models at hand, and how to get one."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from engine.clean import clean
from game.commands.mishap import refuse
from game.commands.options import json_option
from game.commands.output import print_json, talk


@click.group("model")
def command() -> None:
    """List, fetch, add or describe models."""


@command.command("list")
@json_option
def list_(as_json: bool) -> int:
    """The models that `--model` can name."""
    from engine.model.store import list_models

    models = list_models()
    rows = [{"name": m.name, "kind": m.kind, "path": str(m.path)} for m in models]
    if as_json:
        print_json(rows)
    elif rows:
        for row in rows:
            click.echo(clean(f"{row['name']}  ({row['kind']})  {row['path']}", one_line=True))
    else:
        talk("No model is here yet: latency-wall model fetch")
    return 0


@command.command("fetch")
@json_option
def fetch(as_json: bool) -> int:
    """Fetch the default model once; nothing is fetched when it is here and whole."""
    from engine.model.fetch import FetchProgress, fetch_default

    on_terminal = sys.stderr.isatty()

    def report(progress: FetchProgress) -> None:
        if on_terminal:
            _draw(progress.done, progress.total)

    path = fetch_default(report)
    if on_terminal:
        click.echo("\r" + " " * 60 + "\r", err=True, nl=False)
    if as_json:
        print_json({"path": str(path)})
    else:
        talk(f"The model is at {path}")
    return 0


def _draw(done: int, total: int) -> None:
    share = min(done / total, 1.0) if total else 0.0
    bar = "#" * round(share * 30)
    click.echo(f"\rmodel [{bar:<30}] {done / 1e6:5.1f} of {total / 1e6:.1f} MB", err=True, nl=False)


@command.command("add")
@click.argument("path")
@json_option
def add(path: str, as_json: bool) -> int:
    """Remember a GGUF file, a Hugging Face folder, or hub:org/name."""
    from engine.model.store import add_model

    source = add_model(path if path.startswith("hub:") else Path(path))
    if as_json:
        print_json({"name": source.name, "kind": source.kind, "path": str(source.path)})
    else:
        talk(f"Added: --model {clean(source.name, one_line=True)}")
    return 0


@command.command("info")
@click.argument("name", default="default")
@json_option
def info(name: str, as_json: bool) -> int:
    """Load a model in the engine process and say what it is."""
    return asyncio.run(_info(name, as_json))


async def _info(name: str, as_json: bool) -> int:
    from engine.client import WorkerClient
    from engine.messages import Failed, Load, Loaded

    client = WorkerClient()
    try:
        await client.start()
        done = await client.run(lambda job: Load(job=job, model=name), lambda event: None, 600)
    finally:
        await client.stop()
    if isinstance(done, Failed):
        return refuse(done)
    assert isinstance(done, Loaded)
    if as_json:
        print_json(done)
        return 0
    shape = done.model
    heads = f"{shape.heads} query heads, {shape.kv_heads} KV heads of {shape.head_dim}"
    click.echo(clean(f"{done.name}  ({shape.family})", one_line=True))
    click.echo(f"  {shape.layers} layers, hidden {shape.hidden}, {heads}")
    click.echo(f"  ffn {shape.intermediate}, vocabulary {shape.vocabulary}")
    click.echo(f"  context {shape.context}, {'tied' if shape.tied_head else 'own'} output head")
    click.echo(f"  KV cache {shape.kv_elements_per_token * 2:,} bytes a token at 16 bits")
    click.echo(f"  sha256 {done.digest}")
    click.echo(clean(f"  from {done.source}", one_line=True))
    return 0
