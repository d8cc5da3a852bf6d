"""Seconds that looking at a build's quality takes, part by part, on the default model.

    python benchmarks/quality.py [--set weights.bits=4 ...] [--ladder] [--json FILE]

Three looks at one build, each with a book of its own: by a machine that never met the model, and
asks the full model everything; by a process for which the full model's words lie on disk; and by
one that has read the text for another build before, which is what a trial pays as a rule. Weights
are quantised and networks made beforehand. --ladder scores rounding at every width as well.

OpenMP's threads wait actively, as calibration sets it for trials on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "active")

import torch

from engine.config import EngineConfig
from engine.detect import detect
from engine.knobs import parse_setting
from engine.measure.quality import Looked, QualityBook
from engine.measure.quantising import wanted
from engine.measure.reporter import Reporter
from engine.measure.shelf import Shelf
from engine.measure.timing import system_clock
from engine.messages import Event, Progress
from engine.model.loader import load_model
from engine.model.store import find_model
from engine.resolve import resolve
from engine.trial import TrialSpec
from engine.weight_format import WIDTHS

BUDGET = 10.0
"""Seconds that a look may take at default settings on two cores."""

DEFAULTS = ("run.precision=bfloat16", "weights.bits=4", "weights.method=awq", "weights.group=32")


class Parts:
    """Seconds by phase, from the progress that a look tells: a phase lasts until the next one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._phase = ""
        self._since = time.perf_counter()

    def hear(self, event: Event) -> None:
        if isinstance(event, Progress) and event.phase != self._phase:
            self._turn(event.phase)

    @contextmanager
    def timed(self) -> Iterator[None]:
        self._phase, self._since = "", time.perf_counter()
        yield
        self._turn("")

    def _turn(self, phase: str) -> None:
        now = time.perf_counter()
        if self._phase:
            spent = self.seconds.get(self._phase, 0.0)
            self.seconds[self._phase] = spent + now - self._since
        self._phase, self._since = phase, now


def main() -> None:
    arguments = parse_arguments()
    loaded = load_model(find_model("default"))
    shelf = Shelf(loaded)
    settings = dict(parse_setting(text) for text in arguments.set or DEFAULTS)
    config = resolve(settings, detect(), loaded.config, arguments.threads).config
    make_ready(shelf, config)
    spec = TrialSpec("bench", "hold", settings, {}, seed=0, probes=True)
    report: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        first = QualityBook(Path(folder))
        report["first on this machine"], looked = look(first, shelf, config, spec)
        process = QualityBook(Path(folder))
        report["first of a process"], _ = look(process, shelf, config, spec)
        other = resolve({"run.precision": "bfloat16"}, detect(), loaded.config, arguments.threads)
        following = QualityBook(Path(folder))
        following.look(shelf, other.config, spec, silent())
        report["after another build"], _ = look(following, shelf, config, spec)
        if arguments.ladder:
            climb = TrialSpec("bench", "hold", settings, {}, seed=0, ladder=WIDTHS)
            report["ladder"], climbed = look(first, shelf, config, climb)
            for rung in climbed.ladder:
                print(f"{rung.bits} bits: KL {rung.kl:.4f}, top-1 {100 * rung.top1:.1f} %")
    describe(looked, report)
    if arguments.json:
        document = {"threads": config.run.threads, "settings": settings, "seconds": report}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--set", action="append", metavar="KNOB=VALUE", help=" ".join(DEFAULTS))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--ladder", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def make_ready(shelf: Shelf, config: EngineConfig) -> None:
    """Both full networks and the build's own, so that no look pays for them."""
    torch.set_num_threads(config.run.threads)
    for precision in ("float32", "bfloat16"):
        shelf.llama(precision)
    recipe = wanted(config, shelf.config)
    model = shelf.llama(config.run.precision, recipe, config.weights.crossover)
    print("; ".join(f"{name}: {form}" for name, form in model.kernel_path.items()))


def look(
    book: QualityBook, shelf: Shelf, config: EngineConfig, spec: TrialSpec
) -> tuple[dict[str, float], Looked]:
    """Seconds by part, with `all`; and what was seen."""
    parts = Parts()
    begun = time.perf_counter()
    with parts.timed():
        looked = book.look(shelf, config, spec, reporter(parts))
    return parts.seconds | {"all": time.perf_counter() - begun}, looked


def reporter(parts: Parts) -> Reporter:
    return Reporter(0, parts.hear, lambda: False, system_clock)


def silent() -> Reporter:
    return Reporter(0, lambda _: None, lambda: False, system_clock)


def describe(looked: Looked, report: dict[str, dict[str, float]]) -> None:
    quality = looked.quality
    print(f"KL {quality.kl:.4f}, top-1 {100 * quality.top1:.1f} %", end="")
    print(f", perplexity x {quality.perplexity_ratio:.3f} over {quality.scored_tokens} tokens")
    print("by position:", " ".join(f"{kl:.3f}" for kl in quality.kl_by_position))
    if quality.probes is not None:
        probes = quality.probes
        print(f"probes: {probes.right} of {probes.known} known, {probes.asked} asked")
    for answer in quality.answers:
        print(f"- {answer.prompt} (differs from token {answer.differs})")
        print(f"    full:  {answer.full!r}\n    build: {answer.build!r}")
    for name, seconds in report.items():
        parts = ", ".join(f"{part} {spent:.1f}" for part, spent in seconds.items() if part != "all")
        word = "" if name == "ladder" else " (within" if seconds["all"] <= BUDGET else " (BEYOND"
        limit = f"{word} {BUDGET:.0f} s)" if word else ""
        print(f"{name}: {seconds['all']:.1f} s{limit}: {parts}")


if __name__ == "__main__":
    main()
