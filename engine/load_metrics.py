"""What is measured of a served load: definitions that turn raw loads into figures.

Torch-free and pure. By request: queueing, TTFT, the ITL list, TPOT = (finished - TTFT) / (n - 1).
By load: throughput is output tokens over wall time; use of memory is the share of the token slots
set aside that held a token; the prefix hit rate is the share of prompt tokens found in the cache.
"""

from __future__ import annotations

from statistics import fmean

from engine.trial import LoadSample, RequestSample


def throughput(sample: LoadSample) -> float:
    """Output tokens of every request over the load's wall time, tokens/s."""
    return sample.output_tokens / sample.wall_seconds


def request_tpot(request: RequestSample) -> float:
    """Seconds a token after the first; a request has at least two."""
    return (request.finished - request.ttft) / (request.output_tokens - 1)


def load_ttft(sample: LoadSample) -> float:
    """Mean TTFT over requests, queueing included, in seconds."""
    return fmean(request.ttft for request in sample.requests)


def load_tpot(sample: LoadSample) -> float:
    """Mean TPOT over requests, in seconds."""
    return fmean(request_tpot(request) for request in sample.requests)


def queueing(sample: LoadSample) -> float:
    """Mean seconds a request waited before its first token ran."""
    return fmean(request.queued for request in sample.requests)


def memory_use(sample: LoadSample) -> float:
    """Tokens held over token slots set aside, both means over the load's passes: 0 to 1."""
    return sample.held_tokens / sample.reserved_tokens


def prefix_hit_rate(sample: LoadSample) -> float:
    """Share of prompt tokens found in the prefix cache on first admission: 0 to 1."""
    return sample.cached_tokens / sample.prompt_tokens
