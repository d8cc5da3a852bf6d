"""What a trained draft is worth on questions it never saw, by kind of text, beside a look-up: the
figures of its card.

    python benchmarks/draft_card.py HEAD [--questions 64] [--log LOG] [--markdown FILE]

HEAD is the file that `train_draft.py` wrote, LOG its log. The default model in float32 answers
held-out questions of `draft_prompts.toml` greedily, 64 tokens each, sixteen at a time, once for
every draft. Of each: accepted over drafted tokens, the share of first places that stood, and mean
tokens a step. What a drafted token costs is timed at batch 1, beside a step without a draft.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "active")

import torch
from draft_prompts import Question, questions

from engine.config import DraftConfig, EngineConfig, RunConfig, ScheduleConfig, WorkloadConfig
from engine.model.llama import Llama
from engine.model.loader import LoadedModel, load_model
from engine.model.store import find_model
from engine.run.engine import Engine, SamplingParams
from engine.speculate.head import DraftHead
from engine.speculate.head_file import read_head
from engine.speculate.make import DraftWith

BATCH, PROMPT, WORDS = 16, 80, 64
DRAFTS = (
    DraftConfig("trained", 1),
    DraftConfig("trained", 2),
    DraftConfig("trained", 4),
    DraftConfig("ngram", 2),
    DraftConfig("ngram", 4),
)


@dataclass
class Fate:
    """Of all drafts for one kind of text."""

    drafted: int = 0
    accepted: int = 0
    first: int = 0
    first_stood: int = 0
    steps: int = 0

    def add(self, tokens: int, accepted: int) -> None:
        self.drafted += tokens
        self.accepted += accepted
        self.first += 1
        self.first_stood += accepted > 0

    def __add__(self, other: Fate) -> Fate:
        return Fate(
            *(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True))
        )

    @property
    def told(self) -> str:
        if not self.drafted:
            return "- | - | -"
        rate, first = self.accepted / self.drafted, self.first_stood / self.first
        return f"{rate:.2f} | {first:.2f} | {1 + self.accepted / self.steps:.2f}"


@dataclass
class Answers:
    said: list[list[int]]
    fates: dict[str, Fate] = field(default_factory=dict)

    @property
    def all(self) -> Fate:
        return sum(self.fates.values(), Fate())


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    loaded = load_model(find_model("default"))
    model = Llama(loaded.config, loaded.tensors, "float32")
    shape, tensors, about = read_head(arguments.head, loaded.digest)
    head = DraftHead(shape, tensors, model)
    learned = sum(t.numel() for name, t in tensors.items() if name != "words")
    asked = questions(held_out=True)[: arguments.questions]
    lines = [
        f"# A draft for {loaded.name}",
        "",
        f"A recurrent head of {shape.inner} on the model's last residual rows, with the model's "
        f"own scores for {len(head.words):,} usual words (`engine/speculate/head.py`): {learned:,} "
        f"learned numbers, 8 bits each in a file of {arguments.head.stat().st_size / 1e6:.1f} MB.",
        "",
        f"Distilled from {int(about['tokens']):,} tokens that the model said itself, "
        f"{int(about['trained']):,} steps of AdamW; no other text. Made by "
        "`benchmarks/draft_text.py` and `benchmarks/train_draft.py`, seeds as they stand there, "
        f"for the model of SHA-256 {loaded.digest}.",
        "",
        *log_lines(arguments.log),
        f"## Acceptance on {len(asked)} questions that were held out",
        "",
        f"Greedy answers of {WORDS} tokens, float32. *rate* is accepted over drafted tokens, "
        "*first* the share of first places that stood, *a step* mean tokens of a step.",
        "",
        "| draft | kind | rate | first | a step |",
        "|---|---|---|---|---|",
    ]
    plain = answer(model, loaded, asked, DraftConfig(), None)
    for draft in DRAFTS:
        found = answer(model, loaded, asked, draft, head if draft.kind == "trained" else None)
        same = sum(one == other for one, other in zip(plain.said, found.said, strict=True))
        name = f"{draft.kind} {draft.length}"
        lines.append(
            f"| {name} | all ({same} of {len(asked)} answers the same) | {found.all.told} |"
        )
        lines += [f"| {name} | {kind} | {fate.told} |" for kind, fate in found.fates.items()]
    lines += ["", cost_line(model, loaded, asked, head)]
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text, encoding="utf-8")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("head", type=Path)
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--markdown", type=Path)
    return parser.parse_args()


def engine_for(model: Llama, draft: DraftConfig, network: DraftWith, batch: int) -> Engine:
    config = EngineConfig(
        workload=WorkloadConfig(PROMPT, WORDS),
        schedule=ScheduleConfig(batch),
        run=RunConfig("float32", torch.get_num_threads()),
        draft=draft,
    )
    return Engine(model, config, draft=network)


def answer(
    model: Llama,
    loaded: LoadedModel,
    asked: Sequence[Question],
    draft: DraftConfig,
    network: DraftWith,
) -> Answers:
    engine = engine_for(model, draft, network, BATCH)
    params = SamplingParams(max_tokens=WORDS, ignore_eos=True)
    kinds: dict[int, str] = {}
    said: dict[int, list[int]] = {}
    fates: dict[str, Fate] = defaultdict(Fate)
    for question in asked:
        request = engine.add_request(loaded.tokenizer.chat([("user", question.text)]), params)
        kinds[request], said[request] = question.kind, []
    while engine.has_work:
        step = engine.step()
        for request, tokens in step.tokens.items():
            said[request].extend(tokens)
            if step.phase == "decode":
                fates[kinds[request]].steps += 1
        for request, verified in step.drafts.items():
            fates[kinds[request]].add(len(verified.tokens), verified.accepted)
    return Answers(list(said.values()), dict(sorted(fates.items())))


def cost_line(model: Llama, loaded: LoadedModel, asked: Sequence[Question], head: DraftHead) -> str:
    """Median over some answers of a drafted token's seconds, in steps without a draft."""
    plain = engine_for(model, DraftConfig(), None, 1)
    drafting = engine_for(model, DraftConfig("trained", 4), head, 1)
    ratios = []
    for question in asked[:6]:
        prompt = loaded.tokenizer.chat([("user", question.text)])
        step = seconds_a_step(plain, prompt)
        ratios.append(seconds_a_step(drafting, prompt, "draft") / 4 / step)
    cost = statistics.median(ratios)
    return f"A drafted token takes {cost:.3f} of a step of the float32 model, at batch 1, measured."


def seconds_a_step(engine: Engine, prompt: Sequence[int], part: str = "") -> float:
    """Median seconds of a decode step, or of one part of it."""
    engine.reset()
    engine.add_request(prompt, SamplingParams(max_tokens=WORDS, ignore_eos=True))
    found: list[float] = []
    while engine.has_work:
        moments: dict[str, float] = {}
        begun = time.perf_counter()

        def hear(name: str, moments: dict[str, float] = moments) -> None:
            moments[name] = time.perf_counter()

        step = engine.step(hear)
        if step.phase == "decode":
            found.append((moments[part] if part else time.perf_counter()) - begun)
    return statistics.median(found)


def log_lines(log: Path | None) -> list[str]:
    """The training as it was seen, every few hundred steps."""
    if log is None:
        return []
    seen: list[Mapping[str, object]] = [json.loads(line) for line in log.read_text().splitlines()]
    last = {int(str(one["step"])): one for one in seen}
    kept = [one for step, one in sorted(last.items()) if step % 500 == 0 or step == max(last)]
    return [
        "| step | divergence, unseen | equal first words, unseen, by place |",
        "|---|---|---|",
        *(
            f"| {one['step']} | {float(str(one['unseen'])):.2f} | "
            + ", ".join(f"{share:.2f}" for share in _floats(one["unseen_equal"]))
            + " |"
            for one in kept
        ),
        "",
    ]


def _floats(value: object) -> list[float]:
    assert isinstance(value, list)
    return [float(one) for one in value]


if __name__ == "__main__":
    main()
