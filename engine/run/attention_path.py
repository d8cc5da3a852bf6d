"""The name of the attention that runs: every form a layout takes, and the width it reads."""

from __future__ import annotations

from engine.cache.paged_span import decode_form
from engine.cache_plan import CachePlan
from engine.model.llama import Llama
from kernels.attention import decode


def attention_path(model: Llama, plan: CachePlan, bits: int) -> str:
    """For example "sdpa-flash + paged-queries bfloat16, kv 8".

    Prefill runs the fused kernel, over gathered blocks where the cache is paged. Single rows run in
    C where that is to be had, and paged else over the pool in another form. The width of keys and
    values is named where it is not the run's own (`bits` 0).
    """
    forms, precision = model.kernel_path["attention"].rsplit(" ", 1)
    plain = bits == 0 or (bits == 16 and model.dtype.itemsize == 2)
    native = model.device == "cpu" and decode.takes(model.config.head_dim, model.dtype)
    if native and (plain or plan.layout == "contiguous"):
        forms += f" + {decode.FORM}"
    elif plan.layout == "paged":
        forms += f" + {decode_form(plan.block_size)}"
    return f"{forms} {precision}" + (f", kv {bits}" if bits else "")
