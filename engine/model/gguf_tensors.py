"""The weights of a GGUF file, dequantised to float32 and put in half-split rotary order."""

from __future__ import annotations

from collections.abc import Iterator

import gguf
import numpy as np
import torch
from torch import Tensor

from engine.model.errors import fault
from engine.model.gguf_header import TensorInfo
from engine.model.layout import GGUFLayout


def iterate_gguf_tensors(layout: GGUFLayout) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a checked GGUF file, float32, with its name here, one at a time.

    The file is mapped, and `gguf.quants`, the format's own package, dequantises each tensor as it
    is asked for.

    Raises:
        ModelError: the file can no longer be read, or changed since it was checked.
    """
    path = layout.header.path
    try:
        data = np.memmap(path, dtype=np.uint8, mode="r")
    except (OSError, ValueError) as error:
        raise fault(path, f"cannot be mapped ({error})") from None
    for name, stored_name in layout.names.items():
        info = layout.header.tensors[stored_name]
        if info.start + info.size > data.size:
            raise fault(path, "became shorter while it was being read")
        yield name, _undo_interleaving(layout, name, _dequantise(data, info))


def _dequantise(data: np.ndarray, info: TensorInfo) -> Tensor:
    """One tensor in float32, [rows, columns] or [width]."""
    kind = gguf.GGMLQuantizationType[info.type.name]
    raw = data[info.start : info.start + info.size]
    if info.type.name == "F32":
        return torch.from_numpy(raw.view("<f4").astype(np.float32)).reshape(info.shape)
    if info.type.name == "F16":
        return torch.from_numpy(raw.view("<f2").astype(np.float32)).reshape(info.shape)
    rows = raw.reshape(*info.shape[:-1], -1)  # [rows, bytes a row]
    return torch.from_numpy(gguf.quants.dequantize(rows, kind)).reshape(info.shape)


def _undo_interleaving(layout: GGUFLayout, name: str, tensor: Tensor) -> Tensor:
    """q and k of a llama file back in half-split order; everything else as it is.

    The llama converter reorders the rows of each head from the half-split pairs (i, i + D/2) to
    neighbours (2i, 2i + 1). Undone per head: [D/2, 2] -> [2, D/2].
    """
    part = name.rsplit(".", 1)[-1]
    if layout.config.family != "llama" or part not in ("q", "k", "q_bias", "k_bias"):
        return tensor
    heads = layout.config.heads if part.startswith("q") else layout.config.kv_heads
    pairs = tensor.reshape(heads, layout.config.head_dim // 2, 2, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape).contiguous()
