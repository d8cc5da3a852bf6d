"""The name of the attention that runs: every form a layout takes, and the width it reads."""

from __future__ import annotations

from engine.cache.paged_span import decode_form
from engine.cache_plan import CachePlan
from engine.model.llama import Llama
from kernels.attention import decode


def attention_path(model: Llama, plan: CachePlan, bits: int) -> str:
    """For example "sdpa-flash + paged-queries bfloat16, kv 8".

    Paged, prefill runs the fused kernel over gathered blocks and decode another over the pool;
    contiguous, single rows that see all there is of theirs run in C where that is to be had. The
    width of keys and values is named where it is not the run's own (`bits` 0).
    """
    forms, precision = model.kernel_path["attention"].rsplit(" ", 1)
    if plan.layout == "paged":
        forms += f" + {decode_form(plan.block_size)}"
    elif decode.takes(model.config.head_dim, model.dtype):
        forms += f" + {decode.FORM}"
    return f"{forms} {precision}" + (f", kv {bits}" if bits else "")
