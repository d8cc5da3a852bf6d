"""What a build's speed cost in quality: figures, questions, texts side by side. Torch-free."""

from __future__ import annotations

import msgspec


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Probes(_Value, frozen=True):
    """Short questions with short answers. Only the `known` count, which the full model gets right;
    `right` of these the build got right."""

    asked: int
    known: int
    right: int


class Answer(_Value, frozen=True):
    """One prompt answered greedily by the full model and by the build.

    `differs` is the index of the first token that is not the same, None where none is.
    """

    prompt: str
    full: str
    build: str
    differs: int | None = None


class Quality(_Value, frozen=True):
    """Against the float32 model, teacher-forced: mean KL (nats a token), share of equal top-1.

    `kl_by_position` is the mean KL of each run of `position_tokens` positions of a window, in
    order. `probes` and `answers` are there where a trial asked for them.
    """

    kl: float
    top1: float
    perplexity_ratio: float
    scored_tokens: int
    text_digest: str
    kl_by_position: tuple[float, ...] = ()
    position_tokens: int = 0
    probes: Probes | None = None
    answers: tuple[Answer, ...] = ()


class Rung(_Value, frozen=True):
    """Rounding to nearest at one width, whole model: a rung of the ladder down the cliff."""

    bits: int
    kl: float
    top1: float
