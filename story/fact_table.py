"""The facts there are: their names, kinds, and from when on each can be had.

`story.facts` chooses and fills lines from them; `game.rules.facts` finds their values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Kind = Literal["number", "text", "bool"]
Known = Literal["always", "machine", "guess", "trial"]
"""From when on a fact can be had: always, once the machine is measured, once the guess is
sealed, once a trial has run."""


@dataclass(frozen=True)
class Fact:
    """`words` are the only values a text fact can take (empty: free text); `low` and `high` bound
    a number. `of` narrows a trial's fact to one kind of trial: `flood`, one that broke the memory
    budget, or `runs`, one whose runs came to their end."""

    name: str
    kind: Kind
    known: Known
    doc: str
    words: tuple[str, ...] = ()
    low: float = 0.0
    high: float = math.inf
    of: Literal["", "flood", "runs"] = ""


def _of_runs(name: str, doc: str) -> Fact:
    """A number that only runs which came to their end can give."""
    return Fact(name, "number", "trial", doc, of="runs")


_BOUNDS = ("bandwidth", "compute", "launch overhead", "capacity", "quality", "none")
_WIDTHS = ("full", "8", "4", "3", "2")
_RUNGS = ("8", "4", "3", "2", "none")
_METHODS = ("rtn", "gptq", "awq", "smoothquant", "qat")
_DRAFTS = ("none", "ngram", "self8", "self4", "exit", "trained", "model")
_TEXTS = ("story", "code", "list")
TABLE = (
    Fact("player", "text", "always", "the profile's name"),
    Fact("debt", "number", "always", "latency debt now (after this trial, once it is judged)"),
    Fact("attempts", "number", "always", "judged trials in this hall, this one included"),
    Fact("hints_taken", "number", "always", "hints taken in this hall, 0 to 3", high=3),
    Fact("device", "text", "machine", "name of the processor the model runs on"),
    Fact("model", "text", "machine", "name of the model"),
    Fact("weights_mb", "number", "machine", "weights of this build's precision, 10^6 bytes"),
    Fact(
        "kv_kb_token",
        "number",
        "machine",
        "KV cache of one token as this build keeps it, 10^3 bytes",
    ),
    Fact("bandwidth_gb", "number", "machine", "measured read bandwidth, 10^9 bytes/s"),
    Fact("flops_t", "number", "machine", "measured matmul rate at that precision, 10^12 FLOP/s"),
    Fact("floor_ms", "number", "machine", "weights / bandwidth: least time of a decode step, ms"),
    Fact("batch", "number", "always", "requests served together in the build"),
    Fact("precision", "text", "always", "run.precision of the build"),
    Fact("prompt", "number", "always", "prompt tokens a request"),
    Fact("output", "number", "always", "output tokens a request"),
    Fact("kv_bits", "text", "always", "width the cache keeps numbers in", ("full", "16", "8", "4")),
    Fact("layout", "text", "always", "layout of the cache", ("contiguous", "paged")),
    Fact("block_size", "number", "always", "tokens a block of a paged cache", low=1),
    Fact("sharing", "text", "always", "prefix sharing", ("on", "off")),
    Fact("requests", "number", "always", "requests of a load (of a run: the batch)", low=1),
    Fact("system_tokens", "number", "always", "tokens that every prompt of a load begins with"),
    Fact("scar", "bool", "always", "the hall has its scar (this trial's included)"),
    Fact("met", "bool", "always", "the hall's goals were met (this trial's included)"),
    Fact("floods", "number", "always", "floods of this hall on record, this one included"),
    Fact("vessel_mb", "number", "machine", "the memory budget, 10^6 bytes"),
    Fact("predicted_mb", "number", "machine", "the whole build by formula, 10^6 bytes"),
    Fact("slots", "number", "machine", "contiguous slots of the longest request in the vessel"),
    Fact("heads", "number", "machine", "query heads of the model", low=1),
    Fact("kv_heads", "number", "machine", "KV heads of the model", low=1),
    Fact("gqa_factor", "number", "machine", "query heads that share a KV head", low=1),
    Fact("guess", "number", "guess", "the number on the dial; for choices the choice's id (text)"),
    Fact("guess_word", "text", "guess", "the guess as shown: the choice's text, or the number"),
    Fact("truth", "number", "trial", "what was measured; for choices the choice's id (text)"),
    Fact("truth_word", "text", "trial", "the truth as shown"),
    Fact("guess_factor", "number", "trial", "error of a dial guess as a ratio >= 1", low=1),
    Fact("guess_close", "bool", "trial", "the guess was right, or within the dial's factor"),
    Fact("debt_before", "number", "trial", "latency debt before this trial"),
    Fact(
        "debt_change",
        "number",
        "trial",
        "debt now less debt before; negative when repaid",
        low=-math.inf,
    ),
    Fact(
        "verdict",
        "text",
        "trial",
        "the judge's word",
        ("pass", "fail", "inconclusive", "invalid"),
    ),
    Fact("bound_by", "text", "trial", "what bound the run as a whole", _BOUNDS),
    _of_runs("bound_share", "share of that ceiling reached, 0 to 1"),
    Fact("decode_bound", "text", "trial", "what bound decode", _BOUNDS, of="runs"),
    Fact("prefill_bound", "text", "trial", "what bound prefill", _BOUNDS, of="runs"),
    Fact("broken_goal", "text", "trial", "metric of the first goal that broke; empty if none"),
    _of_runs("prefill_ms_token", "prefill time a prompt token, ms (reference)"),
    _of_runs("decode_ms_token", "TPOT, ms (reference)"),
    _of_runs("prefill_tokens_s", "prefill throughput of the build, tokens/s"),
    _of_runs("decode_tokens_s", "decode throughput of the build, tokens/s"),
    _of_runs("decode_share_percent", "share of the run spent in decode, percent"),
    _of_runs("prefill_share_percent", "share of the run spent in prefill, percent"),
    _of_runs("decode_cost_ratio", "TPOT over prefill time a token (reference)"),
    _of_runs("decode_throughput_ratio", "decode throughput over the reference's"),
    _of_runs("tpot_ratio", "TPOT over the reference's"),
    Fact("memory_ratio", "number", "trial", "bytes held over the reference's"),
    _of_runs("kl", "mean KL divergence to float32, nats a token"),
    _of_runs("top1", "share of equal most likely tokens, 0 to 1"),
    _of_runs("prefill_ceiling_percent", "prefill's share of its ceiling, percent"),
    _of_runs("decode_ceiling_percent", "decode's share of its ceiling, percent"),
    # Memory: of the build's own account in this trial.
    Fact("flooded", "bool", "trial", "the memory budget broke in this trial"),
    Fact("live_tokens", "number", "trial", "distinct tokens the cache held at once, at the most"),
    Fact("held_mb", "number", "trial", "KV bytes that held tokens, at the most, 10^6 bytes"),
    Fact("memory_mb", "number", "trial", "bytes allocated in all, 10^6 bytes"),
    Fact("vessel_percent", "number", "trial", "bytes allocated as a share of the vessel, percent"),
    Fact("kv_request_mb", "number", "trial", "KV cache of 2,048 tokens, measured, 10^6 bytes"),
    Fact("flood_running", "number", "trial", "requests held when the vessel broke", of="flood"),
    Fact("flood_asked_mb", "number", "trial", "what one more asked for, 10^6 bytes", of="flood"),
    Fact("flood_over_mb", "number", "trial", "asked less what was free, 10^6 bytes", of="flood"),
    Fact("flood_fits", "number", "trial", "most of these requests that would fit", of="flood"),
    # A served load: medians over its runs.
    _of_runs("memory_use_percent", "slots set aside that held a token, percent"),
    _of_runs("reference_use_percent", "the same of the reference, percent"),
    _of_runs("throughput_ratio", "output tokens/s over the reference's"),
    _of_runs("throughput_tokens_s", "output tokens/s of the build"),
    _of_runs("ttft_ratio", "TTFT, queueing included, over the reference's"),
    _of_runs("hit_percent", "prompt tokens found in the prefix cache, percent"),
    _of_runs("preemptions", "requests put back for want of room"),
    _of_runs("recomputed_tokens", "tokens computed again after that"),
    _of_runs("copies", "blocks copied on write"),
    _of_runs("most_running", "most requests at once in the build"),
    _of_runs("reference_running", "most requests at once in the reference"),
    _of_runs("waste_tokens", "mean empty slots a running request of the build"),
    # Weights in fewer bits: what the build asks for, what came of it.
    Fact("weight_bits", "text", "always", "width the layers' weights are kept in", _WIDTHS),
    Fact("method", "text", "always", "how weights are quantised", _METHODS),
    Fact("group", "text", "always", "weights that share a scale: a number, auto or row"),
    Fact("symmetric", "text", "always", "grids with their middle at zero", ("on", "off")),
    Fact("calibration", "number", "always", "tokens that the methods may read beforehand"),
    Fact("crossover", "number", "always", "rows above which weights are made dense; 0: never"),
    Fact("attention_bits", "text", "always", "width of q, k, v and o", ("same", *_WIDTHS)),
    Fact("mlp_bits", "text", "always", "width of gate, up and down", ("same", *_WIDTHS)),
    Fact("embedding_bits", "text", "always", "width of embedding and head", ("auto", *_WIDTHS)),
    Fact("edge_bits", "text", "always", "width of the first and last layers", ("same", *_WIDTHS)),
    Fact("cliff_kl", "number", "always", "KL from which a build counts as fallen, nats a token"),
    Fact("falls", "number", "always", "falls of this hall on record, this one included"),
    Fact("lesson_hidden", "bool", "machine", "calls, not bytes, bind the hall's reference here"),
    Fact("bytes_ms", "number", "machine", "least time of its decode step for bytes, ms"),
    Fact("launch_ms", "number", "machine", "time its decode step spends in calls alone, ms"),
    Fact("shown_elsewhere", "bool", "machine", "a published model would show the lesson here"),
    Fact("shown_by", "text", "machine", "the smallest such model"),
    Fact("sixteen_mb", "number", "machine", "the weights in 16 bits, 10^6 bytes"),
    Fact("share_percent", "number", "machine", "this build's weights by formula, percent of that"),
    _of_runs("weight_share_percent", "bytes the weights held, percent of 16-bit"),
    _of_runs("average_bits", "bits a weight held in the mean, scales and zeros included"),
    _of_runs("four_bit_gain", "TPOT of the reference over a four-bit build's"),
    _of_runs("pressed_seconds", "time quantising took; 0 where the weights came from disk"),
    _of_runs("changed_layers", "layers the method changed beyond rounding to nearest"),
    _of_runs("layers", "layers of the model"),
    Fact("calibration_short", "bool", "trial", "fewer tokens were read than a layer is wide"),
    _of_runs("worst_layer", "layer with the largest error, counted from 1"),
    Fact("worst_matrix", "text", "trial", "its matrix", ("qkv", "o", "gate_up", "down"), of="runs"),
    _of_runs("worst_error_percent", "its error, percent of what it should give"),
    _of_runs("probes_known", "questions that the full model answers right"),
    _of_runs("probes_right", "of these, the ones the build answered right"),
    _of_runs("probes_percent", "their share, percent"),
    _of_runs("same_answers", "answers that are the full model's, token for token"),
    _of_runs("answers", "answers laid side by side"),
    Fact("fallen", "bool", "trial", "the build's model has lost its meaning: KL at the cliff"),
    Fact("breaking_bits", "text", "trial", "widest width at which rounding falls", _RUNGS),
    _of_runs("rung8_kl", "KL of rounding the whole model to 8 bits"),
    _of_runs("rung4_kl", "KL of rounding the whole model to 4 bits"),
    _of_runs("rung3_kl", "KL of rounding the whole model to 3 bits"),
    _of_runs("rung2_kl", "KL of rounding the whole model to 2 bits"),
    Fact("asked", "text", "trial", "a question both models were asked", of="runs"),
    Fact("full_answer", "text", "trial", "what the full model said to it", of="runs"),
    Fact("babble", "text", "trial", "what the build said to it", of="runs"),
    # Drafts: who writes ahead, what stood, what it cost, and the proof that nothing was lost.
    Fact("draft_kind", "text", "always", "who drafts", _DRAFTS),
    Fact("draft_length", "number", "always", "tokens a draft may have", low=1),
    Fact("draft_cost_percent", "number", "machine", "weights a drafted token reads, % of a step's"),
    _of_runs("acceptance_percent", "accepted over drafted tokens in the timed runs, percent"),
    _of_runs("step_tokens", "mean tokens that a decode step gave a request"),
    _of_runs("draft_share_percent", "share of decode that went into drafting, percent"),
    _of_runs("even_tokens", "tokens a step must give for this draft to pay here"),
    _of_runs("even_percent", "acceptance from which on it pays; absent where none does"),
    _of_runs("speed_up", "the reference's TPOT over the build's"),
    _of_runs("story_percent", "acceptance while telling a story, percent"),
    _of_runs("code_percent", "acceptance while writing code, percent"),
    _of_runs("list_percent", "acceptance while writing a list, percent"),
    Fact("best_kind", "text", "trial", "the kind foreseen best", _TEXTS, of="runs"),
    Fact("worst_kind", "text", "trial", "the kind foreseen worst", _TEXTS, of="runs"),
    _of_runs("compared", "answers compared with those of the same build without a draft"),
    _of_runs("near_ties", "of these, answers that parted where rounding decides"),
    Fact("temperature", "number", "always", "how freely tokens are drawn; 0 is greedy", low=0),
    _of_runs("drawn_tokens", "sampled tokens held to the model's own distribution"),
    _of_runs("drawn_percent", "how often fair draws lie as far from it, percent"),
    Fact("lossless", "bool", "trial", "nothing was lost: same answers, or fair draws", of="runs"),
    # Derived here from the facts above, wherever those are had.
    Fact("weight_bytes", "number", "always", "bytes a weight takes at the build's precision"),
    Fact(
        "intensity", "number", "always", "FLOP a byte of weights in a decode step: 2 batch / bytes"
    ),
    Fact("ridge", "number", "machine", "FLOP a byte at which compute binds: rate / bandwidth"),
    Fact("past_ridge", "bool", "machine", "decode's intensity has reached the ridge"),
    Fact("kv_mb", "number", "machine", "KV cache of the batch at its last token, 10^6 bytes"),
    Fact("kv_percent", "number", "machine", "kv_mb as a share of weights_mb, percent"),
    Fact("guess_over", "bool", "trial", "a dial guess was above the truth"),
    _of_runs("build_tpot_ms", "TPOT of the build, ms"),
    Fact("kv_request_full_mb", "number", "trial", "kv_request_mb, had every head its own KV head"),
    Fact("kv_over_weights", "bool", "trial", "the KV held came to more than the weights"),
)
