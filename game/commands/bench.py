"""`latency-wall bench`: the machine's ceilings and how near the engine comes to them."""

from __future__ import annotations

import asyncio
import sys

import click

from engine.messages import AnyEvent, Bench, BenchDone, Calibrate, Failed, Load
from game.commands.mishap import refuse
from game.commands.options import engine_options, json_option
from game.commands.output import ProgressTalk, print_json, talk


@click.command("bench")
@click.option(
    "--peers/--no-peers",
    default=None,
    help="Time transformers' generate in the same run (default: where it is installed).",
)
@click.option("--recalibrate", is_flag=True, help="Measure the machine anew first.")
@engine_options
@json_option
def command(
    peers: bool | None,
    recalibrate: bool,
    device: str,
    model: str,
    worker: str | None,
    as_json: bool,
) -> int:
    """Ceilings, prefill and decode rates, and the share of the ceiling reached."""
    return asyncio.run(_bench(peers, recalibrate, model, worker, device, as_json))


def peers_installed() -> bool:
    from importlib.util import find_spec

    return find_spec("transformers") is not None and find_spec("accelerate") is not None


async def _bench(
    peers: bool | None,
    recalibrate: bool,
    model: str,
    worker: str | None,
    device: str,
    as_json: bool,
) -> int:
    from engine.client import WorkerClient, worker_command

    progress = ProgressTalk(quiet=as_json and not sys.stderr.isatty())
    want_peers = peers if peers is not None else worker is None and peers_installed()
    client = WorkerClient(worker_command(worker), device=device)
    done: AnyEvent
    try:
        await client.start()
        for make in (
            lambda job: Load(job=job, model=model),
            lambda job: Calibrate(job=job, force=recalibrate),
            lambda job: Bench(job=job, peers=want_peers),
        ):
            done = await client.run(make, progress, deadline=1200)
            if isinstance(done, Failed):
                return refuse(done)
    finally:
        progress.close()
        await client.stop()
    assert isinstance(done, BenchDone)
    if as_json:
        print_json(done)
    else:
        show(done)
    return 0


def show(done: BenchDone) -> None:
    """Two tables: what the machine can do, and what the engine did on it."""
    from rich.console import Console
    from rich.table import Table

    ceilings = done.profile.ceilings
    console = Console()
    table = Table(title="Ceilings of this machine", title_justify="left", box=None)
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_row("read bandwidth", f"{ceilings.read_bytes_per_second / 1e9:.1f} GB/s")
    for precision, flops in ceilings.flops_per_second.items():
        table.add_row(f"matmul {precision}", f"{flops / 1e12:.3f} TFLOP/s")
    table.add_row("operator call", f"{ceilings.dispatch_seconds * 1e6:.1f} µs")
    table.add_row("threads", f"{done.profile.threads}, {done.profile.wait_policy} wait")
    table.add_row("noise (A/A)", f"{done.profile.noise * 100:.1f} %")
    console.print(table)
    peers = any(rate.ratio_to_peer for rate in done.rates)
    rates = Table(title="The engine on this machine", title_justify="left", box=None)
    for heading in ("phase", "precision", "bound by"):
        rates.add_column(heading, no_wrap=True)
    for heading in ("batch", "tokens", "tokens/s", "of ceiling", *(["against peer"] * peers)):
        rates.add_column(heading, justify="right", no_wrap=True)
    for rate in done.rates:
        cells = [rate.name, rate.precision, rate.bound_by, str(rate.batch), str(rate.tokens)]
        cells += [f"{rate.tokens_per_second:.1f}", f"{rate.share * 100:.0f} %"]
        if peers:
            cells.append(f"{rate.ratio_to_peer:.2f} x" if rate.ratio_to_peer else "-")
        rates.add_row(*cells)
    console.print(rates)
    named = sorted({rate.peer for rate in done.rates if rate.peer})
    if named:
        talk(f"peer: {', '.join(named)}, same weights, in the same run")
    for name, form in done.kernel_path.items():
        talk(f"path: {name}: {form}")
