"""What the process may use: a container's share, not the host's size."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

from engine import detect
from engine.serve.idle import openmp_runtimes

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and /sys")


def place(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_this_machine_is_described_completely() -> None:
    found = detect.detect()
    assert found.device == "cpu"
    assert found.device_name.strip()
    assert 1 <= found.physical_cores <= found.logical_cores <= (os.cpu_count() or 1)
    assert found.memory_bytes > 2**28
    assert found.instruction_set.split()[0] == torch.backends.cpu.get_cpu_capability()
    assert found.torch_version == metadata.version("torch")
    assert found.python_version == platform.python_version()
    assert set(found.precisions) == {"float32", "bfloat16", "float16"}
    assert found.precisions["float32"] == ""
    assert "plain" in found.linear_forms
    assert len(set(found.linear_forms)) == len(found.linear_forms)


def test_looking_twice_gives_one_fingerprint() -> None:
    assert detect.detect().fingerprint == detect.detect().fingerprint


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"sys/fs/cgroup/cpu.max": "nonsense\n"}, None),
        ({"sys/fs/cgroup/cpu.max": "100000 0\n"}, None),
        (
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            4.0,
        ),
        (
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
    ],
)
def test_the_groups_share_of_time(
    tmp_path: Path, files: dict[str, str], quota: float | None
) -> None:
    for path, text in files.items():
        place(tmp_path, path, text)
    assert detect.cpu_quota(tmp_path) == quota


def test_a_share_of_half_a_core_is_one_core(tmp_path: Path) -> None:
    place(tmp_path, "sys/fs/cgroup/cpu.max", "50000 100000")
    assert detect.logical_cores(tmp_path) == 1


@linux
def test_siblings_are_one_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads on four cores, of which this process may use six threads on three."""
    for cpu in range(8):
        siblings = f"{cpu % 4},{cpu % 4 + 4}\n"
        path = f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        place(tmp_path, path, siblings)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 4, 5, 6})
    assert detect.physical_cores(tmp_path) == 3
    assert detect.logical_cores(tmp_path) == 6


@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
def test_the_groups_memory_limit_counts_where_it_is_less(tmp_path: Path, file: str) -> None:
    machine = detect.memory_bytes(tmp_path)
    place(tmp_path, f"sys/fs/cgroup/{file}", str(machine // 2))
    assert detect.memory_bytes(tmp_path) == machine // 2
    place(tmp_path, f"sys/fs/cgroup/{file}", str(machine * 2))
    assert detect.memory_bytes(tmp_path) == machine


def test_a_limit_called_max_is_none(tmp_path: Path) -> None:
    place(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    assert detect.memory_bytes(tmp_path) == detect.memory_bytes(tmp_path / "nowhere")


def test_a_precision_that_fails_is_told_with_torchs_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError('"addmm_impl_cpu_" not implemented for \x1b[1mHalf\nmore')

    monkeypatch.setattr(torch.nn.functional, "linear", refuse)
    assert detect.why_not(torch.float16) == '"addmm_impl_cpu_" not implemented for Half'


def test_a_precision_that_gives_no_numbers_is_not_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch.nn.functional, "linear", lambda x, _: torch.full_like(x, float("nan"))
    )
    assert "non-finite" in detect.why_not(torch.float32)


RELEASE = """
import os, torch
from engine.serve.idle import release_threads
threads = lambda: len(os.listdir("/proc/self/task"))
torch.set_num_threads(4)
x = torch.randn(512, 512)
x @ x; torch.randn(1 << 20).exp_()
with_pool = threads()
released = release_threads()
without = threads()
same = torch.equal(x @ x, x @ x)
torch.randn(1 << 20).exp_()
back = threads() == with_pool
print(released >= 1, with_pool - without >= 3, back, torch.get_num_threads(), same)
"""


@linux
def test_released_threads_are_gone_and_come_back_when_needed() -> None:
    """Under the active policy they would spin; four threads leave three to release."""
    if not openmp_runtimes():
        pytest.skip("this torch uses no OpenMP runtime of its own")
    run = subprocess.run(
        (sys.executable, "-c", RELEASE),
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_WAIT_POLICY": "active"},
    )
    assert run.stdout.split() == ["True", "True", "True", "4", "True"], run.stderr


def test_openmp_runtimes_are_found_by_name(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 0 08:01 1  /venv/torch/lib/libgomp.so.1\n"
        "7f01-7f02 r--p 0 08:01 1  /venv/torch/lib/libgomp.so.1\n"
        "7f02-7f03 r-xp 0 08:01 2  /opt/intel/libiomp5.so\n"
        "7f03-7f04 r-xp 0 08:01 3  /usr/lib/llvm/libomp.so.5\n"
        "7f04-7f05 r-xp 0 08:01 4  /usr/lib/libgomposite.so.1\n"
        "7f05-7f06 rw-p 0 00:00 0  [heap]\n"
    )
    assert openmp_runtimes(maps) == (
        "/venv/torch/lib/libgomp.so.1",
        "/opt/intel/libiomp5.so",
        "/usr/lib/llvm/libomp.so.5",
    )
    assert openmp_runtimes(tmp_path / "none") == ()


def test_low_bit_forms_are_told_for_every_usable_precision() -> None:
    found = detect.detect()
    usable = {name for name, reason in found.precisions.items() if not reason}
    assert set(found.low_bit_forms) == usable
    assert all("packed" in forms for forms in found.low_bit_forms.values())
    assert found.weight_bits == {"8": "", "4": "", "3": "", "2": ""}


def test_a_width_that_no_form_takes_says_so() -> None:
    reasons = detect.weight_bits({"float32": ("int8-row",), "bfloat16": ("int4-group",)})
    assert reasons["8"] == reasons["4"] == ""
    assert "3 bits" in reasons["3"] and "2 bits" in reasons["2"]
    assert all(detect.weight_bits({}).values())
