"""Let OpenMP's threads go when a job is done.

Under an active wait policy they spin between parallel regions, for minutes after the last one:
an idle worker would keep a core busy, slow the interface, and disturb the next measurement. They
are made again by the next job's first parallel region (about a tenth of a millisecond).
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_OPENMP = re.compile(r"(/\S*/lib(?:gomp|iomp5|omp)(?:-[0-9a-f]+)?\.so[.0-9]*)$", re.MULTILINE)
_HARD = 2
"""omp_pause_hard of OpenMP 5.0: free the threads, keep the settings."""


def release_threads() -> int:
    """Ask every OpenMP runtime in this process to free its threads; returns how many did.

    To be called by the thread that ran the parallel regions, outside of one. Linux only:
    elsewhere the runtimes stop spinning by themselves after 0.2 s.
    """
    released = 0
    for path in openmp_runtimes():
        try:
            released += ctypes.CDLL(path).omp_pause_resource_all(_HARD) == 0
        except (OSError, AttributeError):  # unloaded meanwhile, or older than OpenMP 5.0
            continue
    return released


def openmp_runtimes(maps: Path = _MAPS) -> tuple[str, ...]:
    """The OpenMP libraries this process has loaded, each once."""
    try:
        return tuple(dict.fromkeys(_OPENMP.findall(maps.read_text())))
    except OSError:
        return ()
