"""What the machine can do, as the worker found it. Torch-free: the worker fills it in."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.weight_format import ROW_MAJOR, WIDENED

Device = Literal["cpu", "cuda", "mps"]


class Capabilities(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`precisions` maps each precision to "" when it runs here, or to the reason it does not.

    `low_bit_forms` names, by precision, the forms of `engine.weight_format` whose kernels run here;
    "packed" runs everywhere. `weight_bits` maps a width to "" or to why no kernel here takes it.
    """

    device: Device
    device_name: str
    physical_cores: int
    logical_cores: int
    memory_bytes: int
    instruction_set: str
    torch_version: str
    python_version: str
    platform: str
    precisions: dict[str, str]
    linear_forms: tuple[str, ...]
    low_bit_forms: dict[str, tuple[str, ...]] = {}
    weight_bits: dict[str, str] = {}

    def packs(self, precision: str) -> bool:
        """Whether dense weights of `precision` are multiplied from a packed copy."""
        as_they_lie = {WIDENED, ROW_MAJOR} & set(self.low_bit_forms.get(precision, ()))
        return "packed" in self.linear_forms and not as_they_lie

    @property
    def fingerprint(self) -> str:
        """Names the class of machine: two runs compare only where it is equal."""
        parts = (
            self.device,
            self.device_name,
            f"{self.physical_cores}p{self.logical_cores}l",
            self.instruction_set,
            f"torch {self.torch_version}",
        )
        return " | ".join(parts)
