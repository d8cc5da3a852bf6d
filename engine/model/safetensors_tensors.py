"""The weights of a Hugging Face folder, in the types they were saved in."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.model.errors import fault
from engine.model.layout import FolderLayout


def read_folder_tensors(layout: FolderLayout) -> dict[str, Tensor]:
    """Every tensor of a checked folder, under its name here; transformers' order is half-split.

    Raises:
        ModelError: a file can no longer be read, or changed since it was checked.
    """
    by_file: dict[Path, list[str]] = {}
    for name, stored_name in layout.names.items():
        by_file.setdefault(layout.stored[stored_name].file, []).append(name)
    tensors: dict[str, Tensor] = {}
    for path, names in by_file.items():
        try:
            with safe_open(path, framework="pt") as file:
                for name in names:
                    tensors[name] = file.get_tensor(layout.names[name])
        except (OSError, SafetensorError) as error:
            raise fault(path, f"cannot be read ({error})") from None
    return {name: tensors[name] for name in layout.names}
