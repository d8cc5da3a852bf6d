"""`latency-wall chat`: one answer, streamed, with what it cost."""

from __future__ import annotations

import asyncio
import sys

import click

from engine.clean import clean
from engine.domains import Value
from engine.messages import AnyEvent, Chat, ChatDone, Failed, Load, Tokens
from game.commands.mishap import refuse
from game.commands.options import (
    draft_option,
    engine_options,
    json_option,
    parse_settings,
    set_option,
)
from game.commands.output import print_json, talk

_WARMTH = "sampling.temperature"


@click.command("chat")
@click.argument("prompt", required=False)
@set_option
@click.option("--max-tokens", type=click.IntRange(1, 4096), default=128, show_default=True)
@click.option("--temperature", type=click.FloatRange(0.0, 2.0), help="As --set temperature=.")
@click.option("--top-p", type=click.FloatRange(0.0, 1.0, min_open=True), default=1.0)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@engine_options
@draft_option
@json_option
def command(
    prompt: str | None,
    settings: tuple[str, ...],
    max_tokens: int,
    temperature: float | None,
    top_p: float,
    seed: int,
    device: str,
    model: str,
    draft_model: str,
    worker: str | None,
    as_json: bool,
) -> int:
    """One answer to PROMPT (or to stdin), streamed, with TTFT, TPOT and memory."""
    build = parse_settings(settings)
    if temperature is not None and build.setdefault(_WARMTH, temperature) != temperature:
        raise click.UsageError(
            f"temperature is set twice, to {build[_WARMTH]} and to {temperature}; set it once"
        )
    if prompt is None:
        if sys.stdin.isatty():
            talk("Ask something, then end with Ctrl+D:")
        prompt = sys.stdin.read()
    if not prompt.strip():
        raise click.UsageError("the prompt is empty; write one, or pipe text in")
    make = {
        "prompt": prompt,
        "build": build,
        "max_tokens": max_tokens,
        "top_p": top_p,
        "seed": seed,
    }
    return asyncio.run(_chat(make, (model, draft_model), worker, device, as_json))


async def _chat(
    fields: dict[str, str | int | float | dict[str, Value]],
    models: tuple[str, str],
    worker: str | None,
    device: str,
    as_json: bool,
) -> int:
    from engine.client import WorkerClient, worker_command

    def stream(event: AnyEvent) -> None:
        if isinstance(event, Tokens) and not as_json:
            click.echo(clean(event.text), nl=False)

    client = WorkerClient(worker_command(worker), device=device)
    try:
        await client.start()
        loaded = await client.run(lambda job: Load(job, *models), stream, deadline=600)
        if isinstance(loaded, Failed):
            return refuse(loaded)
        done = await client.run(lambda job: Chat(job=job, **fields), stream, deadline=1800)  # type: ignore[arg-type]
    finally:
        await client.stop()
    if isinstance(done, Failed):
        return refuse(done)
    assert isinstance(done, ChatDone)
    if as_json:
        print_json(done)
    else:
        click.echo()
        report(done)
    return 0


def report(done: ChatDone) -> None:
    tpot = f"{done.tpot * 1e3:.1f} ms" if done.tpot is not None else "one token only"
    talk(
        f"TTFT {done.ttft * 1e3:.0f} ms ({done.prompt_tokens} tokens in), "
        f"TPOT {tpot} ({done.output_tokens} out), "
        f"memory {done.memory_bytes / 1e6:.0f} MB, path {', '.join(done.kernel_path.values())}"
    )
