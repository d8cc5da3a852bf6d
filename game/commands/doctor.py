"""`latency-wall doctor`: what is here, what is missing, and how to get it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from importlib import metadata
from importlib.util import find_spec
from typing import Literal

import click
import msgspec

from engine.clean import clean
from game.commands.options import engine_options, json_option
from game.commands.output import print_json

State = Literal["ok", "missing", "note"]
ROOMS = ("game", "engine", "kernels", "story", "saves")
MARK: dict[State, str] = {"ok": "+", "missing": "!", "note": "-"}


class Finding(msgspec.Struct, frozen=True):
    """One line of the report; `cure` says what to do, "" where nothing is needed."""

    name: str
    state: State
    found: str
    cure: str = ""


@click.command("doctor")
@engine_options
@json_option
def command(device: str, model: str, worker: str | None, as_json: bool) -> int:
    """Device, memory, ceilings, kernels, model and terminal; what is missing, how to get it."""
    findings = [
        python_version(),
        *package_owners(),
        model_at_hand(model),
        *asyncio.run(engine_findings(worker, device)),
        terminal_size(),
        terminal_text(),
        data_folder(),
        *extras(),
    ]
    if as_json:
        missing = any(finding.state == "missing" for finding in findings)
        print_json({"ready": not missing, "findings": findings})
        return 0
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        found = clean(finding.found, one_line=True)
        click.echo(f"{MARK[finding.state]} {finding.name:<{width}}  {found}")
        if finding.cure:
            click.echo(f"  {'':<{width}}  -> {clean(finding.cure, one_line=True)}")
    click.echo("\n+ here   - for your knowledge   ! missing")
    return 0


def python_version() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    fits = sys.version_info >= (3, 11)
    return Finding("python", "ok" if fits else "missing", version, "" if fits else "Python 3.11+")


def package_owners() -> list[Finding]:
    """The packages keep bare names; another distribution that owns one would shadow ours."""
    owners = metadata.packages_distributions()
    clashes = {
        room: [name for name in owners.get(room, ()) if name != "latency-wall"] for room in ROOMS
    }
    return [
        Finding(
            f"package {room}",
            "missing",
            f"also owned by {', '.join(sorted(set(names)))}",
            "install Latency Wall in an environment of its own (make play does)",
        )
        for room, names in clashes.items()
        if names
    ] or [Finding("packages", "ok", "no other distribution owns game, engine, kernels, ...")]


def model_at_hand(name: str) -> Finding:
    from engine.model.store import ModelError, find_model

    try:
        source = find_model(name)
    except ModelError as error:
        cure = "latency-wall model fetch" if name == "default" else "latency-wall model list"
        return Finding("model", "missing", str(error), cure)
    return Finding("model", "ok", f"{source.name} at {source.path}")


async def engine_findings(worker: str | None, device: str) -> list[Finding]:
    """Start the engine process and let it say what it has."""
    from engine.client import WorkerClient, WorkerDied, worker_command
    from engine.machine import load_profile

    client = WorkerClient(worker_command(worker), device=device)
    try:
        hello = await client.start()
    except (WorkerDied, OSError, ValueError) as error:
        cure = "run latency-wall worker by hand and read what it says"
        return [Finding("engine", "missing", str(error), cure)]
    finally:
        await client.stop()
    has = hello.capabilities
    usable = [name for name, reason in has.precisions.items() if not reason]
    findings = [
        Finding("engine", "ok", f"torch {has.torch_version}, Python {has.python_version}"),
        Finding(
            "device",
            "ok",
            f"{has.device} {has.device_name}, {has.physical_cores} cores ({has.logical_cores} "
            f"logical), {has.instruction_set}, {has.memory_bytes / 2**30:.0f} GiB",
        ),
        Finding("precisions", "ok", ", ".join(usable)),
        *(
            Finding(f"  {name}", "note", reason)
            for name, reason in has.precisions.items()
            if reason
        ),
        Finding("kernels", "ok", f"linear: {', '.join(has.linear_forms)}"),
    ]
    profile = load_profile(has.fingerprint)
    if profile is None:
        cure = "the first trial measures it, or latency-wall bench --recalibrate"
        return [*findings, Finding("ceilings", "note", "not measured yet", cure)]
    ceilings = profile.ceilings
    rates = ", ".join(
        f"{name} {rate / 1e12:.2f} TFLOP/s" for name, rate in ceilings.flops_per_second.items()
    )
    return [
        *findings,
        Finding(
            "ceilings",
            "ok",
            f"read {ceilings.read_bytes_per_second / 1e9:.1f} GB/s, {rates} "
            f"(measured {profile.measured_at[:10]})",
        ),
        Finding(
            "threads",
            "ok",
            f"{profile.threads}, {profile.wait_policy} wait, noise {profile.noise * 100:.1f} %",
        ),
    ]


def terminal_size() -> Finding:
    if not sys.stdout.isatty():
        return Finding("terminal", "note", "none: headless commands only")
    columns, rows = shutil.get_terminal_size()
    if columns < 60 or rows < 20:
        return Finding("terminal", "missing", f"{columns} x {rows}", "the game needs 60 x 20")
    best = "" if columns >= 120 and rows >= 40 else "works; at 120 x 40 the set pieces breathe"
    return Finding("terminal", "ok", f"{columns} x {rows}", best)


def terminal_text() -> Finding:
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    colour = "no colour (NO_COLOR)" if os.environ.get("NO_COLOR") else os.environ.get("TERM", "")
    if encoding != "utf8":
        cure = "set LANG to a UTF-8 locale, such as C.UTF-8; or play --plain"
        return Finding("text", "missing", f"{encoding or 'unknown encoding'}, {colour}", cure)
    return Finding("text", "ok", f"UTF-8, {colour or 'no TERM'}")


def data_folder() -> Finding:
    from saves.paths import data_home

    home = data_home()
    place = home
    while not place.exists():
        place = place.parent
    if os.access(place, os.W_OK):
        return Finding("saves", "ok", str(home))
    return Finding("saves", "missing", f"{home} cannot be written", "set LATENCY_WALL_HOME")


def extras() -> list[Finding]:
    wanted = {
        "transformers": ("peer timing in bench", "pip install 'latency-wall[oracle]'"),
        "huggingface_hub": ("models from a hub", "pip install 'latency-wall[hub]'"),
    }
    findings = []
    for package, (purpose, cure) in wanted.items():
        here = find_spec(package) is not None
        found = f"{'here' if here else 'not here'} ({purpose})"
        findings.append(Finding(package, "ok" if here else "note", found, "" if here else cure))
    return findings
