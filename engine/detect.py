"""What this machine can do: the processor and memory the process may use, and what torch runs here.

A container's share counts, not the host's size: the scheduler's affinity and the control group's
quota bound the cores, its memory limit bounds the memory. What torch can do is found by doing it.
"""

from __future__ import annotations

import math
import os
import platform
import subprocess
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import torch

from engine.capabilities import Capabilities
from engine.clean import clean
from engine.weight_format import FUSED, JOINED, NATIVE, ROW_MAJOR, WIDTHS
from kernels.block import few_rows
from kernels.gate.swiglu import is_native
from kernels.linear.dispatch import available_forms, reads_rows
from kernels.linear.fused import fused_functions
from kernels.linear.low_bit_forms import available_low_bit_forms

_PRECISIONS: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_NATIVE = {
    "avx512_bf16": "BF16",
    "avx512_vnni": "VNNI",
    "amx_bf16": "AMX",
    "bf16": "BF16",
    "i8mm": "I8MM",
    "sve": "SVE",
}
"""Processor flags that change which kernels are fast, and their short names (x86, then Arm)."""

_ROOT = Path("/")


def detect() -> Capabilities:
    """This machine's CPU as an engine would use it."""
    logical = logical_cores()
    low_bit = low_bit_forms()
    return Capabilities(
        device="cpu",
        device_name=processor_name(),
        physical_cores=min(physical_cores(), logical),
        logical_cores=logical,
        memory_bytes=memory_bytes(),
        instruction_set=instruction_set(),
        torch_version=str(torch.__version__),
        python_version=platform.python_version(),
        platform=platform.platform(),
        precisions={name: why_not(dtype) for name, dtype in _PRECISIONS.items()},
        linear_forms=linear_forms(),
        low_bit_forms=low_bit,
        weight_bits=weight_bits(low_bit),
    )


def why_not(dtype: torch.dtype) -> str:
    """ "" where a decoder's operations run in `dtype` on this CPU, else what torch says."""
    x = torch.ones(4, 4, dtype=dtype)
    try:
        with torch.inference_mode():
            y = torch.nn.functional.linear(torch.nn.functional.silu(x), x)
            heads = y.view(1, 1, 4, 4)
            torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
            finite = bool(torch.isfinite(y.float()).all())
    except RuntimeError as error:
        return clean(str(error).splitlines()[0], limit=200, one_line=True)
    return "" if finite else "a small product came out non-finite"


def linear_forms() -> tuple[str, ...]:
    """Every form in which some usable precision multiplies here, in a fixed order."""
    forms: dict[str, None] = {}
    for dtype in _PRECISIONS.values():
        if not why_not(dtype):
            forms |= dict.fromkeys(available_forms(dtype))
    return tuple(forms)


def low_bit_forms() -> dict[str, tuple[str, ...]]:
    """By usable precision, the forms of quantised weights whose product comes out right here, and
    what else distinguishes this machine's kernels (`engine.weight_format`)."""
    usable = {name: dtype for name, dtype in _PRECISIONS.items() if not why_not(dtype)}
    return {
        name: (*available_low_bit_forms(dtype), *_compiled(dtype)) for name, dtype in usable.items()
    }


def _compiled(dtype: torch.dtype) -> tuple[str, ...]:
    """What runs in C here; of widths, four bits stand for all."""
    found = {
        NATIVE: is_native(dtype),
        ROW_MAJOR: reads_rows(dtype),
        FUSED: fused_functions(4, dtype) is not None,
        JOINED: few_rows.is_native(dtype, 4),
    }
    return tuple(name for name, there in found.items() if there)


def weight_bits(forms: Mapping[str, Collection[str]]) -> dict[str, str]:
    """By width, "" where some form takes it in some precision, else why none does.

    int8 and int4 forms take their own width, the packed one takes any.
    """
    found = {form for names in forms.values() for form in names}

    def why_none(bits: int) -> str:
        taken = any(form == "packed" or form.startswith(f"int{bits}-") for form in found)
        return "" if taken else f"no kernel here multiplies by weights of {bits} bits"

    return {str(bits): why_none(bits) for bits in WIDTHS}


def instruction_set() -> str:
    """torch's own word for its kernels (AVX512, AVX2, ...) and the extensions that matter."""
    words = [torch.backends.cpu.get_cpu_capability()]
    flags = set(_cpuinfo("flags", "Features").split())
    words += [word for flag, word in _NATIVE.items() if flag in flags and word not in words]
    return " ".join(words)


def processor_name() -> str:
    name = _cpuinfo("model name", "Model", "Hardware") or _sysctl("machdep.cpu.brand_string")
    return clean(name or platform.processor() or platform.machine(), limit=80, one_line=True)


def logical_cores(root: Path = _ROOT) -> int:
    """Hardware threads this process may keep busy, rounded up from the group's quota."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota = cpu_quota(root)
    return max(1, count if quota is None else min(count, math.ceil(quota)))


def physical_cores(root: Path = _ROOT) -> int:
    """Cores behind the threads this process may use: sets of siblings are counted once."""
    allowed: Iterable[int] = ()
    if hasattr(os, "sched_getaffinity"):
        allowed = os.sched_getaffinity(0)
    topology = [
        _read(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        for cpu in allowed
    ]
    if topology and all(topology):
        return len(set(topology))
    count = _sysctl("hw.physicalcpu")
    return int(count) if count.isdecimal() else os.cpu_count() or 1


def cpu_quota(root: Path = _ROOT) -> float | None:
    """CPUs' worth of time the control group grants; None without a limit."""
    quota, _, period = _read(root / "sys/fs/cgroup/cpu.max").partition(" ")
    if not quota:  # version 1
        quota = _read(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us")
        period = _read(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us")
    if quota.isdecimal() and period.isdecimal() and int(quota) > 0 and int(period) > 0:
        return int(quota) / int(period)
    return None


def memory_bytes(root: Path = _ROOT) -> int:
    """Memory the process may use: the machine's, or the control group's limit if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for place in ("memory.max", "memory/memory.limit_in_bytes"):
        limit = _read(root / "sys/fs/cgroup" / place)
        if limit.isdecimal() and 0 < int(limit) < total:
            return int(limit)
    return total


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _cpuinfo(*keys: str, root: Path = _ROOT) -> str:
    """The first value that /proc/cpuinfo has under one of `keys`, in their order."""
    found: dict[str, str] = {}
    for line in _read(root / "proc/cpuinfo").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            found.setdefault(key.strip(), value.strip())
    return next((found[key] for key in keys if found.get(key)), "")


def _sysctl(name: str) -> str:
    if platform.system() != "Darwin":
        return ""
    try:
        answer = subprocess.run(
            ("sysctl", "-n", name), capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()
