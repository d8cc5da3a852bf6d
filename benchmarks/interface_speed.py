"""How fast the interface is: the first frame of a cold start, and a key's way to the screen.

The game runs in a pseudo-terminal of its own, as a player would start it, on an empty data folder.
First frame: from the start of the process until the whole title has been written. Key echo: from
a key's bytes until the first byte of the answer, while one process a core burns the processor in
the trial's place.

    python benchmarks/interface_speed.py --runs 15 --json speed.json
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import random
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import click

FRAME_TARGET_MS, ECHO_TARGET_MS = 400.0, 50.0
_FRAME_ENDS_WITH = b"Ctrl+Q"  # the key strip is the last thing of the title's frame
_PATIENCE = 20.0  # seconds
_QUIET = 0.12  # seconds without output after which an answer is over
_BURN = "import time\nend = time.time() + {seconds}\nwhile time.time() < end: sum(range(9999))\n"


@dataclass(frozen=True)
class Figures:
    """Milliseconds; `cores` is how many burners ran during the key presses.

    `processor_ms` is what the game itself used of a core up to its first frame: on a machine with
    other work to do it says more than the wall clock. Empty where the system does not tell.
    """

    first_frame_ms: tuple[float, ...]
    processor_ms: tuple[float, ...]
    key_echo_ms: tuple[float, ...]
    cores: int
    size: str

    @property
    def first_frame_median(self) -> float:
        return median(self.first_frame_ms)

    @property
    def key_echo_p95(self) -> float:
        return percentile(self.key_echo_ms, 0.95)


def percentile(values: tuple[float, ...], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed (nearest rank)."""
    ordered = sorted(values)
    rank = max(int(-(-share * len(ordered) // 1)), 1)
    return ordered[rank - 1]


class Game:
    """The game in a pseudo-terminal of `columns` x `rows`."""

    def __init__(self, home: Path, columns: int, rows: int) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {
            **os.environ,
            "LATENCY_WALL_HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
        }
        environment.pop("NO_COLOR", None)
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from game.cli import main; main()"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)

    def read(self, timeout: float) -> bytes:
        """What is there within `timeout` seconds; empty where nothing came."""
        ready, _, _ = select.select([self.master], [], [], timeout)
        if not ready:
            return b""
        with contextlib.suppress(OSError):
            return os.read(self.master, 1 << 16)
        return b""

    def wait_for(self, mark: bytes) -> float:
        """Seconds from the start until `mark` was written. Raises TimeoutError."""
        seen = b""
        while time.perf_counter() - self.started < _PATIENCE:
            seen += self.read(0.5)
            if mark in seen:
                return time.perf_counter() - self.started
        raise TimeoutError(f"the game did not write {mark!r}; it wrote: {seen[-400:]!r}")

    def processor_seconds(self) -> float | None:
        """User and system time the game has used so far; None off Linux."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def settle(self, quiet: float = _QUIET) -> None:
        """Read until nothing has come for `quiet` seconds."""
        while self.read(quiet):
            pass

    def press(self, key: bytes) -> float | None:
        """Seconds from the key to the first byte of the answer; None where none came."""
        pressed = time.perf_counter()
        os.write(self.master, key)
        return time.perf_counter() - pressed if self.read(2.0) else None

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.master)


@contextlib.contextmanager
def game(home: Path, columns: int, rows: int) -> Iterator[Game]:
    running = Game(home, columns, rows)
    try:
        yield running
    finally:
        running.close()


def make_home(home: Path) -> None:
    """A traveller with still runes: drift would be taken for the answer to a key."""
    from game.session import Session

    session = Session.open(home)
    session.update_settings(language="zh", reduced_motion=True)
    session.create_profile("Pace")


def first_frames(
    home: Path, runs: int, columns: int, rows: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Wall and processor milliseconds of each cold start, to the end of its first frame."""
    wall, processor = [], []
    for _ in range(runs):
        with game(home, columns, rows) as running:
            wall.append(running.wait_for(_FRAME_ENDS_WITH) * 1e3)
            used = running.processor_seconds()
            if used is not None:
                processor.append(used * 1e3)
    return tuple(wall), tuple(processor)


def key_echoes(home: Path, presses: int, columns: int, rows: int, cores: int) -> tuple[float, ...]:
    """Up and down on the map, at a player's uneven pace, while every core is busy."""
    pace = random.Random(11)
    with game(home, columns, rows) as running:
        running.wait_for(_FRAME_ENDS_WITH)
        running.settle(1.5)
        os.write(running.master, b"\r")
        running.settle(3.0)
        seconds = presses * 0.6 + 20
        burners = [
            subprocess.Popen([sys.executable, "-c", _BURN.format(seconds=seconds)])
            for _ in range(cores)
        ]
        try:
            times = []
            for number in range(presses):
                running.settle()
                time.sleep(pace.uniform(0.02, 0.2))
                answer = running.press(b"\x1b[A" if number % 2 == 0 else b"\x1b[B")
                if answer is not None:
                    times.append(answer * 1e3)
        finally:
            for burner in burners:
                burner.kill()
                burner.wait()
    return tuple(times)


def table(figures: Figures) -> str:
    rows = (
        ("first frame, median", figures.first_frame_median, FRAME_TARGET_MS),
        ("first frame, worst", max(figures.first_frame_ms), None),
        ("its processor time", median(figures.processor_ms or (float("nan"),)), None),
        ("key echo, median", median(figures.key_echo_ms), None),
        ("key echo, p95", figures.key_echo_p95, ECHO_TARGET_MS),
    )
    lines = [f"{figures.size}, {figures.cores} cores burning during key presses"]
    for name, value, target in rows:
        goal = "" if target is None else f"   target {target:.0f}"
        lines.append(f"{name:<22}{value:8.1f} ms{goal}")
    return "\n".join(lines)


@click.command()
@click.option("--runs", default=11, show_default=True, help="Cold starts.")
@click.option("--presses", default=100, show_default=True, help="Keys pressed.")
@click.option("--size", default="120x40", show_default=True, help="Columns x rows.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path))
def main(runs: int, presses: int, size: str, json_file: Path | None) -> None:
    """Measure the first frame and the key echo on this machine."""
    columns, _, rows = size.partition("x")
    if not (columns.isdigit() and rows.isdigit()):
        raise click.BadParameter(f"{size!r} is not a size; for example 120x40", param_hint="--size")
    if runs < 1 or presses < 1:
        raise click.BadParameter("at least one run and one press are needed")
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        make_home(home)
        frames, processor = first_frames(home, runs, int(columns), int(rows))
        echoes = key_echoes(home, presses, int(columns), int(rows), cores)
    figures = Figures(frames, processor, echoes, cores, size)
    click.echo(table(figures))
    if json_file is not None:
        summary = {
            **asdict(figures),
            "first_frame_median_ms": figures.first_frame_median,
            "key_echo_p95_ms": figures.key_echo_p95,
        }
        json_file.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
