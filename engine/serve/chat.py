"""One answer, streamed and timed: TTFT, TPOT and the engine's own memory account."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from engine.config import EngineConfig, SamplingConfig, WorkloadConfig
from engine.messages import Chat, ChatDone, Tokens
from engine.model.llama import Llama
from engine.model.loader import LoadedModel
from engine.run.engine import Engine, SamplingParams
from engine.schedule.sequence import Finish
from engine.serve.failures import InputError
from engine.serve.jobs import Desk
from engine.speculate.make import DraftWith

Clock = Callable[[], float]
"""Seconds that only go forward."""


def single_request(config: EngineConfig, prompt_tokens: int, output_tokens: int) -> EngineConfig:
    """`config` for a single request of this length: a chat is one sequence, whatever the batch.

    Cache and memory settings stay: the answer is held as they say, within the budget they set.
    """
    return msgspec.structs.replace(
        config,
        workload=WorkloadConfig(prompt=prompt_tokens, output=output_tokens),
        schedule=msgspec.structs.replace(config.schedule, batch=1),
    )


def answer(
    command: Chat,
    loaded: LoadedModel,
    model: Llama,
    config: EngineConfig,
    desk: Desk,
    clock: Clock = time.perf_counter,
    draft: DraftWith = None,
) -> ChatDone:
    """Run the prompt through the chat template and stream what the model says.

    TTFT runs from the request to its first token, TPOT is the mean gap after it:
    (end - first) / (n - 1), None below two tokens. The end token counts as a token (the model
    produced it) and is not text.

    Raises:
        InputError: the prompt is empty, or with `max_tokens` passes the model's context.
        BudgetError: the memory budget holds no request of that length.
        Aborted: the player stopped it.
    """
    prompt = prompt_ids(command, loaded)
    tokenizer = loaded.tokenizer
    config = single_request(config, len(prompt), command.max_tokens)
    engine = Engine(model, config, eos_ids=tokenizer.eos_ids, draft=draft)
    params = sampling(command, config.sampling)
    text = tokenizer.stream()
    pieces: list[str] = []
    moments: list[float] = []
    finish: Finish = "length"

    def say(piece: str) -> None:
        if piece:
            pieces.append(piece)
            desk.emit(Tokens(job=desk.job, text=piece, index=len(moments)))

    begun = clock()
    request = engine.add_request(prompt, params)
    while engine.has_work:
        desk.check()
        step = engine.step()
        now = clock()
        for token in step.tokens.get(request, ()):
            moments.append(now)
            if token not in tokenizer.eos_ids:
                say(text.push(token))
        finish = step.finished.get(request, finish)
    say(text.flush())
    gaps = len(moments) - 1
    return ChatDone(
        job=desk.job,
        text="".join(pieces),
        prompt_tokens=len(prompt),
        output_tokens=len(moments),
        ttft=moments[0] - begun,
        tpot=(moments[-1] - moments[0]) / gaps if gaps else None,
        memory_bytes=sum(engine.allocated().values()),
        kernel_path=engine.kernel_path,
        finish=finish,
    )


def prompt_ids(command: Chat, loaded: LoadedModel) -> list[int]:
    """The prompt as the model's chat template frames it. Raises InputError."""
    if not command.prompt.strip():
        raise InputError("the prompt is empty; ask something")
    if command.max_tokens < 1:
        raise InputError(f"max_tokens is {command.max_tokens}; at least 1")
    ids = loaded.tokenizer.chat([("user", command.prompt)])
    room = loaded.config.context - len(ids)
    if command.max_tokens > room:
        fits = f"at most {room} fit" if room > 0 else "shorten the prompt"
        raise InputError(
            f"the prompt takes {len(ids)} tokens of the model's {loaded.config.context}, so an "
            f"answer of {command.max_tokens} tokens has no room: {fits}"
        )
    return ids


def sampling(command: Chat, config: SamplingConfig) -> SamplingParams:
    """Raises InputError for a nucleus outside its range."""
    try:
        return SamplingParams(
            max_tokens=command.max_tokens,
            temperature=config.temperature,
            top_p=command.top_p,
            seed=command.seed,
        )
    except ValueError as error:
        raise InputError(str(error)) from None
