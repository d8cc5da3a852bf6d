"""Writes the calibration text: what the default model says when it goes on from given openings.

    python benchmarks/calibration_text.py [--tokens 67000] [--seed 0] [--append] [--out FILE]

Quantisation methods watch activations on this text, so it must look like what the model meets and
must not be the text that quality is judged on. The openings (`calibration_openings.txt`) were
written for this project; the model continues each, several times, by sampling at temperature 1.0
and top-p 0.9 from fixed seeds in bfloat16. A chat opening is asked as a question. Passages that
go round in circles, or name links, faiths or crimes that a small model invents things about, are
left out. Kinds take turns, so that any beginning of the text is a mixture.
The text depends on the machine's rounding; what ships is one run, kept as it came out.
"""

from __future__ import annotations

import argparse
import re
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.config import EngineConfig, RunConfig, ScheduleConfig, WorkloadConfig
from engine.model.llama import Llama
from engine.model.loader import LoadedModel, load_model
from engine.model.store import find_model
from engine.run.engine import Engine, SamplingParams

OPENINGS = Path(__file__).with_name("calibration_openings.txt")
TEXT = Path(__file__).parents[1] / "engine" / "quant" / "corpus" / "calibration.txt"
AS_WRITTEN = "as written"
BATCH, LENGTH, PROMPT = 16, 224, 128
TEMPERATURE, TOP_P = 1.0, 0.9
LEAST_CHARACTERS = 200
CIRCLES = 0.42
"""Deflated over plain size: below this a passage mostly repeats itself."""

UNWANTED = re.compile(
    r"https?://(?!example)|www\.|\b(nazi|jew(s|ish)?\b|muslim|christian|catholic|islam|terroris|rap(e|ist)\b"
    r"|suicid|sex|porn|slave|racis|murder|kill|drug|abus)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Opening:
    kind: str
    text: str


def read_openings(path: Path = OPENINGS) -> tuple[Opening, ...]:
    """Sections headed `## kind`. Raises ValueError where one is empty."""
    openings = []
    for section in re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        kind, _, text = section.partition("\n")
        if not text.strip():
            raise ValueError(f"{path} has an empty opening of kind {kind!r}")
        openings.append(Opening(kind.strip(), text.strip("\n")))
    return tuple(openings)


def take_turns(openings: Sequence[Opening]) -> list[Opening]:
    """Every kind spread evenly over the whole: opening i of n of a kind stands at (i + 1/2) / n."""
    by_kind: dict[str, list[Opening]] = defaultdict(list)
    for opening in openings:
        by_kind[opening.kind].append(opening)
    placed = [
        ((index + 0.5) / len(group), kind, opening)
        for kind, group in by_kind.items()
        for index, opening in enumerate(group)
    ]
    return [opening for _, _, opening in sorted(placed, key=lambda place: place[:2])]


def continuations(
    engine: Engine, loaded: LoadedModel, openings: Sequence[Opening], seed: int
) -> list[str]:
    """What the model says after each opening; the tokens depend on `seed` and its place in it."""
    tokenizer = loaded.tokenizer
    requests: dict[int, int] = {}
    for index, opening in enumerate(openings):
        chat = opening.kind == "chat"
        prompt = (
            tokenizer.chat([("user", opening.text)]) if chat else tokenizer.encode(opening.text)
        )
        params = SamplingParams(
            max_tokens=LENGTH, temperature=TEMPERATURE, top_p=TOP_P, seed=seed * 1000 + index
        )
        requests[engine.add_request(prompt, params)] = index
    said: dict[int, list[int]] = defaultdict(list)
    while engine.has_work:
        for request, given in engine.step().tokens.items():
            words = (token for token in given if token not in tokenizer.eos_ids)
            said[requests[request]].extend(words)
    engine.reset()
    return [tokenizer.decode(said[index]) for index in range(len(openings))]


def passage(opening: Opening, continuation: str) -> str | None:
    """Opening and continuation up to its last whole sentence or line; None where it is no use."""
    joint = "\n" if opening.kind == "chat" else ""
    whole = (opening.text + joint + continuation).replace("\ufffd", "")
    if opening.kind in ("prose", "chat"):
        ends = [match.end() for match in re.finditer(r"[.!?][\"')]?(?=\s|$)", whole)]
        whole = whole[: ends[-1]] if ends else whole
    whole = re.sub(r"\n{2,}", "\n", whole).strip()
    data = whole.encode()
    circular = len(zlib.compress(data, 9)) < CIRCLES * len(data)
    if len(whole) < LEAST_CHARACTERS or circular or UNWANTED.search(whole):
        return None
    return whole


def passages(engine: Engine, loaded: LoadedModel, seed: int, with_written: bool) -> Iterator[str]:
    """Without end: every round goes over all openings with fresh seeds. What is kept as written
    comes in the first round only, and `with_written` says whether at all."""
    openings = take_turns(read_openings())
    while True:
        asked = [one for one in openings if with_written or one.kind != AS_WRITTEN]
        for start in range(0, len(asked), BATCH):
            batch = asked[start : start + BATCH]
            spoken = [one for one in batch if one.kind != AS_WRITTEN]
            said = iter(continuations(engine, loaded, spoken, seed))
            seed += 1
            for opening in batch:
                if opening.kind == AS_WRITTEN:
                    yield opening.text
                elif (text := passage(opening, next(said))) is not None:
                    yield text
        with_written = False


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=67_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first batch")
    parser.add_argument("--append", action="store_true", help="go on after what is there")
    parser.add_argument("--out", type=Path, default=TEXT)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    loaded = load_model(find_model("default"))
    config = EngineConfig(
        workload=WorkloadConfig(prompt=PROMPT, output=LENGTH),
        schedule=ScheduleConfig(batch=BATCH),
        run=RunConfig(precision="bfloat16", threads=options.threads),
    )
    engine = Engine(
        Llama(loaded.config, loaded.tensors, "bfloat16"), config, eos_ids=loaded.tokenizer.eos_ids
    )
    written: list[str] = []
    if options.append:
        written = options.out.read_text(encoding="utf-8").strip().split("\n\n")
    tokens = len(loaded.tokenizer.encode("\n\n".join(written)))
    for text in passages(engine, loaded, options.seed, not options.append):
        written.append(text)
        tokens += len(loaded.tokenizer.encode(text + "\n\n"))
        options.out.write_text("\n\n".join(written) + "\n", encoding="utf-8")
        print(f"\r{tokens} tokens in {len(written)} passages", end="", file=sys.stderr)
        if tokens >= options.tokens:
            break
    print(file=sys.stderr)


if __name__ == "__main__":
    main()
