"""A model read from disk, ready for the engine: config, tensors, tokenizer, digest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

from engine.model.config import ModelConfig
from engine.model.digest import file_digest, files_digest
from engine.model.errors import fault
from engine.model.fetch import DEFAULT_WHEEL, default_path
from engine.model.folder_tokenizer import folder_tokenizer
from engine.model.gguf_tensors import iterate_gguf_tensors
from engine.model.gguf_tokenizer import gguf_tokenizer
from engine.model.layout import FolderLayout, inspect_folder, inspect_gguf
from engine.model.permute import ChannelOrders
from engine.model.safetensors_tensors import read_folder_tensors
from engine.model.store import ModelSource
from engine.model.tokenizer import Tokenizer


@dataclass(frozen=True)
class LoadReport:
    """What loading did: seconds by step, the file's tensor types, bytes on disk and in memory."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    types: Mapping[str, int] = field(default_factory=dict)
    file_bytes: int = 0
    tensor_bytes: int = 0
    permuted: bool = False


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory, on the CPU.

    `tensors` has the names and shapes of `tensor_names.expected_shapes`, q and k in half-split
    rotary order: float32 from a GGUF file, the saved types from a folder. `digest` is the SHA-256
    of what was read; `source` says where from.
    """

    config: ModelConfig
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer
    digest: str
    name: str
    source: str
    report: LoadReport = field(default_factory=LoadReport, repr=False)


def load_model(source: ModelSource) -> LoadedModel:
    """Read a model whole.

    Raises:
        ModelError: names the file and the fault; everything that names and sizes can show is
            checked before the first weight is read.
    """
    steps = _Steps()
    return _load_gguf(source, steps) if source.kind == "gguf" else _load_folder(source, steps)


def _load_gguf(source: ModelSource, steps: _Steps) -> LoadedModel:
    with steps.timed("check"):
        layout = inspect_gguf(source.path)
    with steps.timed("digest"):
        digest = file_digest(source.path)
        if source.path == default_path() and digest != DEFAULT_WHEEL.model_sha256:
            raise fault(
                source.path,
                f"has SHA-256 {digest} and not {DEFAULT_WHEEL.model_sha256}: it is damaged; "
                f"`latency-wall model fetch` replaces it",
            )
    with steps.timed("tokenizer"):
        tokenizer = gguf_tokenizer(layout.header)
        _check_vocabulary(source, layout.config, tokenizer)
    permuted = layout.header.quantised
    with steps.timed("weights"):
        tensors = iterate_gguf_tensors(layout)
        if permuted:
            orders = ChannelOrders(layout.config)
            tensors = ((name, orders.apply(name, tensor)) for name, tensor in tensors)
        loaded = dict(tensors)
    stored = [layout.header.tensors[name] for name in layout.names.values()]
    report = steps.report(
        types=(info.type.name for info in stored),
        file_bytes=sum(info.size for info in stored),
        tensors=loaded,
        permuted=permuted,
    )
    return LoadedModel(
        layout.config, loaded, tokenizer, digest, source.name, str(source.path), report
    )


def _load_folder(source: ModelSource, steps: _Steps) -> LoadedModel:
    with steps.timed("check"):
        layout = inspect_folder(source.path)
    with steps.timed("digest"):
        digest = files_digest(source.path, _read_files(layout))
    with steps.timed("tokenizer"):
        tokenizer = folder_tokenizer(source.path)
        _check_vocabulary(source, layout.config, tokenizer)
    with steps.timed("weights"):
        loaded = read_folder_tensors(layout)
    report = steps.report(
        types=(layout.stored[name].dtype for name in layout.names.values()),
        file_bytes=sum(tensor.nbytes for tensor in loaded.values()),
        tensors=loaded,
        permuted=False,
    )
    return LoadedModel(
        layout.config, loaded, tokenizer, digest, source.name, str(source.path), report
    )


def _read_files(layout: FolderLayout) -> list[str]:
    """The files that make the model what it is: weights, config, tokenizer, template."""
    weights = {tensor.file.name for tensor in layout.stored.values()}
    others = (
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    )
    return [*weights, *(name for name in others if (layout.folder / name).exists())]


def _check_vocabulary(source: ModelSource, config: ModelConfig, tokenizer: Tokenizer) -> None:
    if tokenizer.vocabulary_size > config.vocabulary:
        raise fault(
            source.path,
            f"has a tokenizer of {tokenizer.vocabulary_size} tokens and an embedding of only "
            f"{config.vocabulary}",
        )


class _Steps:
    """The seconds each step of a load takes."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self._seconds[step] = time.perf_counter() - begin

    def report(
        self,
        types: Iterable[str],
        file_bytes: int,
        tensors: Mapping[str, Tensor],
        permuted: bool,
    ) -> LoadReport:
        return LoadReport(
            seconds=dict(self._seconds),
            types=dict(Counter(types)),
            file_bytes=file_bytes,
            tensor_bytes=sum(tensor.nbytes for tensor in tensors.values()),
            permuted=permuted,
        )
