"""One build on the clock, run after run: the timed part of timeline and hold trials."""

from __future__ import annotations

from engine.measure.reporter import Reporter
from engine.measure.run_harness import RunHarness
from engine.measure.seen import Pace, Seen
from engine.measure.timing import Clock
from engine.measure.workload import Workload
from engine.trial import TrialSpec


def time_singles(
    spec: TrialSpec,
    build: RunHarness,
    workload: Workload,
    seen: Seen,
    desk: Reporter,
    clock: Clock,
) -> None:
    """Warm up, then `spec.repeats` timed units, each on fresh prompts.

    Raises:
        Flooded: the memory budget broke; in a hold trial that is a result.
        OutputFault, MetricError: a run that cannot be true.
        Aborted: the player stopped it.
    """
    desk.progress("warmup", 0, 1)
    build.warm_up(workload.prompts)
    pace = Pace(clock, build.warmed.seconds)
    for done in range(spec.repeats):
        desk.progress("timeline", done, spec.repeats, seconds_left=pace.left(done, spec.repeats))
        prompts = workload.prompts(build.prompts_needed, build.config.workload.prompt)
        seen.singles.append(build.run(prompts))
    desk.progress("timeline", spec.repeats, spec.repeats, seconds_left=0.0)
