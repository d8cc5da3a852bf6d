"""Models from the Hugging Face hub, through its own client (extra `hub`)."""

from __future__ import annotations

import re
from pathlib import Path

from engine.clean import clean
from engine.model.errors import ModelError

HUB_PREFIX = "hub:"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?", re.ASCII)
_WANTED = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "*.safetensors",
    "model.safetensors.index.json",
)


def fetch_from_hub(name: str) -> Path:
    """The local folder of the hub model `org/name` or `org/name@revision`, fetched if need be.

    Weights come as safetensors only: pickled files are not even downloaded.

    Raises:
        ModelError: a name that cannot be one, the client is not installed, or the hub cannot be
            reached and the model is not in its cache.
    """
    if not _HUB_NAME.fullmatch(name):
        raise ModelError(
            f"{clean(name, 120, True)!r} is no hub name; write {HUB_PREFIX}org/name, with "
            f"@revision after it if need be"
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ModelError(
            "models from the hub need huggingface-hub: pip install 'latency-wall[hub]'"
        ) from None
    repository, _, revision = name.partition("@")
    try:
        return Path(
            snapshot_download(repository, revision=revision or None, allow_patterns=list(_WANTED))
        )
    except Exception as error:  # the client raises its HTTP library's errors, whichever that is
        reason = clean(str(error), limit=300, one_line=True) or type(error).__name__
        raise ModelError(
            f"{name} could not be fetched from the hub ({reason}); with the model already on this "
            f"machine, name its folder instead"
        ) from None
