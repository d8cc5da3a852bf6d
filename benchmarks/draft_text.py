"""What the target says, and the residual row that each token was drawn from: the draft's lessons.

    python benchmarks/draft_text.py FOLDER [--tokens 600000] [--threads 2]

The default model answers the questions of `draft_prompts.toml`, held-out ones left aside, in
float32, every other one greedily and the rest at temperature 0.8 from fixed seeds. Each shard is
one batch of answers, written whole or not at all: run again, it goes on after the last. A shard has
`hidden` [N, H] bfloat16, the last layer's rows, `tokens` [N] int32, what was drawn from each, and
`begins` [R] int64, where each answer begins.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from itertools import islice
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "active")

import torch
from draft_prompts import Question, in_rounds, questions
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine.config import EngineConfig, RunConfig, ScheduleConfig, WorkloadConfig
from engine.model.llama import Llama
from engine.model.loader import LoadedModel, load_model
from engine.model.store import find_model
from engine.run.engine import Engine, SamplingParams
from engine.run.runner import Runner, Scores
from engine.schedule.plan import Plan

BATCH, PROMPT, LENGTH = 48, 80, 160
TEMPERATURE = 0.8


class Recorder(Runner):
    """A runner that keeps the row each token is drawn from."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner.model, runner.cache)
        self.rows: dict[int, list[Tensor]] = defaultdict(list)

    def run(self, plan: Plan) -> Scores:
        scores = super().run(plan)
        speaking = {piece.sequence.id for piece in plan.pieces if piece.speaks}
        for one, row in zip(scores.sequence_ids, scores.hidden.to(torch.bfloat16), strict=True):
            if one in speaking:
                self.rows[one].append(row)
        return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=600_000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.folder.mkdir(parents=True, exist_ok=True)
    done = sorted(options.folder.glob("shard-*.safetensors"))
    gathered = sum(map(tokens_in, done))
    loaded = load_model(find_model("default"))
    model = Llama(loaded.config, loaded.tensors, "float32")
    asked = in_rounds(questions(held_out=False))
    number = len(done)
    asked = islice(asked, number * BATCH, None)
    while gathered < options.tokens:
        batch = [(round_, one) for round_, one in islice(asked, BATCH)]
        path = options.folder / f"shard-{number:05d}.safetensors"
        gathered += write(path, answer(model, loaded, batch, number, options.threads))
        number += 1
        print(f"{gathered} tokens in {number} shards", file=sys.stderr, flush=True)


def answer(
    model: Llama, loaded: LoadedModel, batch: list[tuple[int, Question]], seed: int, threads: int
) -> list[tuple[Tensor, list[int]]]:
    """Rows [n, H] and the n tokens of every answer."""
    config = EngineConfig(
        workload=WorkloadConfig(prompt=PROMPT, output=LENGTH),
        schedule=ScheduleConfig(batch=len(batch)),
        run=RunConfig("float32", threads),
    )
    engine = Engine(model, config, eos_ids=loaded.tokenizer.eos_ids)
    recorder = Recorder(engine._runner)
    engine._runner = recorder
    said: dict[int, list[int]] = {}
    for place, (again, question) in enumerate(batch):
        greedy = again == 0 and place % 2 == 0
        params = SamplingParams(
            max_tokens=LENGTH,
            temperature=0.0 if greedy else TEMPERATURE,
            seed=seed * BATCH + place,
        )
        said[engine.add_request(loaded.tokenizer.chat([("user", question.text)]), params)] = []
    while engine.has_work:
        for request, tokens in engine.step().tokens.items():
            said[request].extend(tokens)
    return [(torch.stack(recorder.rows[one]), tokens) for one, tokens in said.items()]


def write(path: Path, answers: list[tuple[Tensor, list[int]]]) -> int:
    """One shard; gives its tokens."""
    lengths = torch.tensor([len(tokens) for _, tokens in answers])
    every = [token for _, tokens in answers for token in tokens]
    shard = {
        "hidden": torch.cat([rows for rows, _ in answers]),
        "tokens": torch.tensor(every, dtype=torch.int32),
        "begins": lengths.cumsum(0) - lengths,
    }
    assert len(shard["hidden"]) == len(every)
    part = path.with_suffix(".part")
    save_file(shard, part)
    part.replace(path)
    return len(every)


def tokens_in(path: Path) -> int:
    with safe_open(path, "pt") as file:
        return int(file.get_slice("tokens").get_shape()[0])


if __name__ == "__main__":
    main()
