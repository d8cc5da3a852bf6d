"""Trains the draft that ships with the default model, on what `draft_text.py` gathered.

    python benchmarks/train_draft.py FOLDER [--steps 4500] [--minutes 75] [--out FILE]

The network is `engine.speculate.head`. From each of the target's rows it foretells four tokens in a
row, fed the target's own: the loss is the divergence from the target's distribution over the usual
words, which is made again of the next rows. AdamW, a warm-up and a cosine; the last fiftieth of the
shards is never trained on. FOLDER/checkpoint.safetensors is written every two minutes and gone on
from; FOLDER/log.jsonl keeps what was seen. The end, or Ctrl+C, writes the weights, in 8 bits.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "active")

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from engine.model.llama import Llama
from engine.model.loader import load_model
from engine.model.store import find_model
from engine.speculate.head import HeadShape
from engine.speculate.head_file import write_head

SHAPE = HeadShape(hidden=576, inner=1024, steps=4)
WORDS = 8192
SEGMENT = 48
"""Neighbouring positions that learn together: each row's distribution then serves four steps."""

SEGMENTS = 12
WEIGHTS = (1.0, 0.8, 0.65, 0.5)
"""Of the steps in the loss: a later token counts only where the earlier ones stood."""

PEAK_RATE, WARM_UP = 1.5e-3, 200
SAVE_SECONDS = 120.0


class Network(nn.Module):
    """As `engine.speculate.head` runs it, in float32."""

    rows: Tensor

    def __init__(self, target: Llama, words: Tensor) -> None:
        super().__init__()
        hidden, inner = SHAPE.hidden, SHAPE.inner
        self.gate = nn.Linear(2 * hidden, inner, bias=False)
        self.up = nn.Linear(2 * hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)
        self.state_norm, self.token_norm, self.out_norm = (
            nn.RMSNorm(hidden, target.config.norm_eps) for _ in range(3)
        )
        nn.init.zeros_(self.down.weight)
        rows = target.embedding.rows(words)
        self.register_buffer("rows", rows.clone(), persistent=False)

    def move(self, state: Tensor, word: Tensor) -> Tensor:
        x = torch.cat((self.state_norm(state), self.token_norm(word)), dim=-1)
        moved: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return state + moved

    def scores(self, state: Tensor) -> Tensor:
        return functional.linear(self.out_norm(state), self.rows)

    def tensors(self, words: Tensor) -> dict[str, Tensor]:
        """As `HeadShape.tensors` names them."""
        matrices = {name: getattr(self, name).weight for name in ("gate", "up", "down")}
        gains = {n: getattr(self, n).weight for n in ("state_norm", "token_norm", "out_norm")}
        kept = {name: tensor.detach().clone() for name, tensor in (matrices | gains).items()}
        return kept | {"words": words}


@dataclass(frozen=True)
class Lessons:
    """All shards side by side; `starts` are the positions where a segment can begin."""

    hidden: Tensor
    tokens: Tensor
    starts: Tensor

    @classmethod
    def read(cls, paths: Sequence[Path]) -> Lessons:
        span = SEGMENT + SHAPE.steps
        hidden: list[Tensor] = []
        tokens: list[Tensor] = []
        starts: list[int] = []
        before = 0
        for path in paths:
            shard = load_file(path)
            ends = [*shard["begins"].tolist()[1:], len(shard["tokens"])]
            for begin, end in zip(shard["begins"].tolist(), ends, strict=True):
                starts += range(before + begin, before + end - span + 1)
            hidden.append(shard["hidden"])
            tokens.append(shard["tokens"].long())
            before += len(shard["tokens"])
        return cls(torch.cat(hidden), torch.cat(tokens), torch.tensor(starts))

    def draw(self, chance: torch.Generator) -> tuple[Tensor, Tensor]:
        """Rows [B, S + 4, H] and tokens [B, S + 4] of some segments."""
        chosen = self.starts[torch.randint(len(self.starts), (SEGMENTS,), generator=chance)]
        places = chosen[:, None] + torch.arange(SEGMENT + SHAPE.steps)
        return self.hidden[places].float(), self.tokens[places]


def losses(
    network: Network, target: Llama, hidden: Tensor, tokens: Tensor
) -> tuple[Tensor, list[float]]:
    """The weighted divergence, and of every step the share of places where both like one word best.

    `hidden` [B, S + 4, H], `tokens` [B, S + 4]: token i was drawn from row i.
    """
    with torch.no_grad():
        feature = target.final_norm(hidden.flatten(0, 1)).view_as(hidden)
        truth = functional.linear(feature, network.rows).log_softmax(-1)
        words = target.embedding.rows(tokens.flatten()).float().view_as(hidden)
    state = feature[:, :SEGMENT]
    total, equal = torch.zeros(()), []
    for step, weight in enumerate(WEIGHTS):
        state = network.move(state, words[:, step : step + SEGMENT])
        ours = network.scores(state).log_softmax(-1)
        theirs = truth[:, step + 1 : step + 1 + SEGMENT]
        total = total + weight * functional.kl_div(
            ours.flatten(0, 1), theirs.flatten(0, 1), reduction="batchmean", log_target=True
        )
        equal.append(float((ours.argmax(-1) == theirs.argmax(-1)).float().mean()))
    return total / sum(WEIGHTS), equal


def usual_words(lessons: Lessons, vocabulary: int) -> Tensor:
    counts = torch.bincount(lessons.tokens, minlength=vocabulary)
    return counts.argsort(descending=True, stable=True)[:WORDS].sort().values


def rate(step: int, steps: int) -> float:
    warm = min(step / WARM_UP, 1.0)
    return PEAK_RATE * warm * 0.5 * (1 + math.cos(math.pi * min(step / steps, 1.0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=4500)
    parser.add_argument("--minutes", type=float, default=75.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    loaded = load_model(find_model("default"))
    target = Llama(loaded.config, loaded.tensors, "float32")
    shards = sorted(options.folder.glob("shard-*.safetensors"))
    kept = max(len(shards) // 50, 1)
    lessons, unseen = Lessons.read(shards[:-kept]), Lessons.read(shards[-kept:])
    words = usual_words(lessons, loaded.config.vocabulary)
    covered = float(torch.isin(unseen.tokens, words).float().mean())
    network = Network(target, words)
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=0.01, betas=(0.9, 0.95))
    checkpoint, log = options.folder / "checkpoint.safetensors", options.folder / "log.jsonl"
    step = resume(checkpoint, network, optimiser)
    print(f"{len(lessons.tokens)} tokens, words cover {covered:.4f} of unseen, from step {step}")
    began = saved = time.monotonic()
    try:
        while step < options.steps and time.monotonic() - began < 60 * options.minutes:
            chance = torch.Generator().manual_seed(step)
            loss, equal = losses(network, target, *lessons.draw(chance))
            for group in optimiser.param_groups:
                group["lr"] = rate(step, options.steps)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            step += 1
            if step % 100 == 0 or step == options.steps:
                told = {"step": step, "loss": float(loss.detach()), "equal": equal}
                told |= look(network, target, unseen)
                told["seconds"] = round(time.monotonic() - began, 1)
                with log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(told) + "\n")
                print(told, flush=True)
            if time.monotonic() - saved > SAVE_SECONDS:
                save(checkpoint, network, optimiser, step)
                saved = time.monotonic()
    finally:
        save(checkpoint, network, optimiser, step)
        if options.out is not None:
            about = {"tokens": str(len(lessons.tokens)), "trained": str(step)}
            write_head(options.out, SHAPE, network.tensors(words), loaded.digest, about)


@torch.no_grad()
def look(network: Network, target: Llama, unseen: Lessons) -> dict[str, object]:
    """The same figures on shards that were never trained on."""
    chance = torch.Generator().manual_seed(1)
    seen = [losses(network, target, *unseen.draw(chance)) for _ in range(4)]
    shares = [sum(column) / len(seen) for column in zip(*(e for _, e in seen), strict=True)]
    return {"unseen": sum(float(one) for one, _ in seen) / len(seen), "unseen_equal": shares}


def save(path: Path, network: Network, optimiser: torch.optim.Optimizer, step: int) -> None:
    """The network and what its optimiser remembers of every parameter."""
    kept = {"step": torch.tensor(step)}
    for name, parameter in network.named_parameters():
        kept[name] = parameter.detach()
        kept |= {f"{name}/{word}": value for word, value in optimiser.state[parameter].items()}
    part = path.with_suffix(".part")
    save_file(kept, part)
    part.replace(path)


def resume(path: Path, network: Network, optimiser: torch.optim.Optimizer) -> int:
    """Take up what `save` left; gives the steps done, 0 where there is nothing."""
    if not path.exists():
        return 0
    kept = load_file(path)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(kept[name])
            words = ("step", "exp_avg", "exp_avg_sq")
            optimiser.state[parameter] = {word: kept[f"{name}/{word}"] for word in words}
    return int(kept["step"])


if __name__ == "__main__":
    main()
