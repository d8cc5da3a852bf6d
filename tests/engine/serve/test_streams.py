"""The log that fds 1 and 2 become: bounded, readable, clean."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from engine.serve.streams import bound_log, read_tail


def test_a_log_past_its_bound_is_set_aside_while_writers_hold_it(tmp_path: Path) -> None:
    script = """
import os, pathlib, sys
from engine.serve.streams import bound_log, take_streams
streams = take_streams(pathlib.Path(sys.argv[1]))
os.write(1, b"a" * 90)
bound_log(streams.log, limit=100)
os.write(1, b"b" * 90)
bound_log(streams.log, limit=100)
os.write(1, b"c")
os.write(streams.events, str(streams.log).encode())
"""
    run = subprocess.run(
        (sys.executable, "-c", script, str(tmp_path)), capture_output=True, text=True, check=True
    )
    log = Path(run.stdout)
    assert log.read_text() == "c"
    assert log.with_suffix(".old").read_text() == "a" * 90 + "b" * 90


def test_a_log_tail_is_bounded_and_clean(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 9000 + b"\n\x1b]0;title\x07\xffend\x1b[31m\n")
    tail = read_tail(log)
    assert tail.endswith("\ufffdend")
    assert "\x1b" not in tail
    assert len(tail) <= 4096
    assert read_tail(tmp_path / "none") == ""
    bound_log(tmp_path / "none")
