"""Verdicts of the canned trials of memory, written by hand and not by the judge."""

from __future__ import annotations

from canned_trials import Case

from game.rules.verdict import GoalOutcome, Remark, Verdict

FLOOD_DETAILS = {
    "budget": "511", "asked": "23.8", "free": "9.32", "over": "14.5", "held": "502",
    "running": "7", "requests": "8", "fits": "7", "tokens": "7,175",
}  # fmt: skip
"""What the judge says of `make_hold("flooded")`, in MB, worked by hand."""


def abyss_verdict(case: Case = "pass", crowns: tuple[str, ...] = ("memory",)) -> Verdict:
    """The verdict of `make_hold(case)`, written by hand and not by the judge."""
    live = {"pass": 8248.0, "fail": 1031.0, "flooded": 7175.0}.get(case, 0.0)
    enough, flooded = case == "pass", case == "flooded"
    kl = 0.0013 if enough else 0.0006
    goals = (
        GoalOutcome("live_tokens", ">=", 8192, live, (live, live), enough),
        GoalOutcome("kl", "<=", 0.01, 0.0, (0.0, 0.0), None)
        if flooded
        else GoalOutcome("kl", "<=", 0.01, kl, (kl, kl), True),
    )
    missed = {"metric": "live_tokens", "measured": "1,031", "op": ">=", "bound": "8,192",
              "low": "1,031", "high": "1,031"}  # fmt: skip
    metrics = {
        "live_tokens": live, "kv_request_mb": 47.2, "vessel_share": 0.848 if enough else 0.703,
        "kl": kl, "top1": 0.976 if enough else 0.984, "memory_bytes": 433.3e6,
        "decode_throughput": 310.0, "decode_ceiling_share": 0.35, "prefill_ceiling_share": 0.6,
        "decode_time_share": 0.1, "prefill_time_share": 0.89, "other_time_share": 0.01,
        "tpot": 0.023, "ttft": 4.9, "prefill_throughput": 1667.0,
    }  # fmt: skip
    if flooded:
        metrics = {"live_tokens": live, "kv_request_mb": 47.2, "vessel_share": 0.982,
                   "memory_bytes": 501.7e6}  # fmt: skip
    reasons = {
        "pass": (Remark("all_hold"),),
        "fail": (Remark("goal_broken", missed),),
        "flooded": (Remark("flooded", FLOOD_DETAILS),),
    }.get(case, (Remark("wrong_output", {"what": "its tokens are not the model's"}),))
    void = case not in ("pass", "fail", "flooded")
    return Verdict(
        word="pass" if enough else "invalid" if void else "fail",
        goals=() if void else goals,
        metrics={} if void else metrics,
        bound_by="none" if void else "compute" if enough else "capacity",
        bound_share=0.6 if enough else 0.0,
        phase_bounds={} if void or flooded else {"prefill": "compute", "decode": "bandwidth"},
        reasons=reasons,
        advice=() if enough else (Remark("nothing_lost" if void else "smaller_footprint"),),
        crowns=crowns if enough else (),
        pairs_used=0,
        noise_cv=0.0 if void or flooded else 0.01,
    )


def paging_verdict(case: Case = "pass", crowns: tuple[str, ...] = ("memory",)) -> Verdict:
    """The verdict of `make_serve(case)`, written by hand and not by the judge."""
    use = {"pass": 0.969, "straddle": 0.977}.get(case, 0.454)
    ratio = {"pass": 1.62, "straddle": 1.5}.get(case, 1.0)
    width = 0.03 if case == "straddle" else 0.008
    won, void = case == "pass", case not in ("pass", "fail", "straddle")
    fast = True if won else None if case == "straddle" else False
    goals = (
        GoalOutcome("memory_use", ">=", 0.9, use, (use, use), use >= 0.9),
        GoalOutcome("throughput_ratio", ">=", 1.5, ratio,
                    (ratio * (1 - width), ratio * (1 + width)), fast),
    )  # fmt: skip
    missed = [
        Remark("goal_broken", {"metric": "memory_use", "measured": "45.4 %", "op": ">=",
                               "bound": "90 %", "low": "45.4 %", "high": "45.4 %"}),
        Remark("goal_broken", {"metric": "throughput_ratio", "measured": "1", "op": ">=",
                               "bound": "1.5", "low": "0.992", "high": "1.01"}),
    ]  # fmt: skip
    across = Remark("straddles", {"metric": "throughput_ratio", "measured": "1.5", "op": ">=",
                                  "bound": "1.5", "low": "1.46", "high": "1.55"})  # fmt: skip
    metrics = {
        "memory_use": use, "throughput_ratio": ratio, "throughput": 63.0 * ratio, "kl": 0.0006,
        "top1": 0.984, "reference_use": 45.4, "prefix_hit_rate": 0.304 if won else 0.0,
        "queueing": 3.1 if won else 5.4, "recomputed_share": 0.0, "ttft_ratio": 0.6 if won else 1.0,
        "tpot_ratio": 1.4 if won else 1.0, "memory_bytes": 387.2e6,
    }  # fmt: skip
    return Verdict(
        word="pass" if won else "invalid" if void else "inconclusive" if fast is None else "fail",
        goals=() if void else goals,
        metrics={} if void else metrics,
        bound_by="none" if void else "capacity" if case == "fail" else "bandwidth",
        bound_share=0.0 if void or case == "fail" else 0.42,
        phase_bounds={} if void else {"prefill": "compute", "decode": "bandwidth"},
        reasons=(Remark("all_hold"),)
        if won
        else (Remark("unstable", {"runs": "10", "cv": "40"}),)
        if void
        else (across,)
        if fast is None
        else tuple(missed),
        advice=() if won else (Remark("smaller_footprint" if case == "fail" else "nothing_lost"),),
        crowns=crowns if won else (),
        pairs_used=0 if void else 32 if fast is None else 8,
        noise_cv=0.0 if void else 0.05 if fast is None else 0.01,
    )
