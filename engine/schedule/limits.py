"""What can never run is refused at the door, with both bounds and what would fit."""

from __future__ import annotations

from bisect import bisect_left

from engine.cache.kv_cache import KVCache


def longest_cached(cache: KVCache) -> int:
    """Most tokens of one request that the cache can ever hold, with nothing else in it."""
    lengths = range(1, cache.capacity + 1)
    return bisect_left(lengths, True, key=lambda tokens: not cache.ever_fits(tokens))


def check_fits(prompt: int, new: int, context: int, cached: int) -> None:
    """A prompt of `prompt` tokens and `new` new ones, of which the last is never cached.

    `context` is the model's, `cached` the most tokens of one request that the cache can hold.

    Raises:
        ValueError: it could never run; names the bounds and what would fit.
    """
    if prompt == 0:
        raise ValueError("the prompt is empty; at least one token is needed")
    limit = min(context, cached + 1)
    if prompt + new > limit:
        raise ValueError(
            f"a prompt of {prompt} tokens and {new} new ones make {prompt + new}; the model's "
            f"context is {context} tokens and the cache holds at most {cached} of one request: "
            f"{_what_fits(prompt, new, limit)}"
        )


def _what_fits(prompt: int, new: int, limit: int) -> str:
    shorter_prompt = f"a prompt of at most {limit - new} tokens would fit"
    fewer_new = f"at most {limit - prompt} new tokens would fit"
    if limit - new < 1 and limit - prompt < 1:
        return f"prompt and new tokens together must be at most {limit}"
    if limit - prompt < 1:
        return shorter_prompt
    return fewer_new if limit - new < 1 else f"{fewer_new}, or {shorter_prompt}"
