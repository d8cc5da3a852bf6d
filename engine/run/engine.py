"""The engine: add_request, then step = schedule, run, postprocess, while there is work.

It never reads a clock, never prints, knows nothing of text. A step is one pass through the model,
in one phase; whoever wants to time a phase times its steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from types import MappingProxyType

from engine.cache.make import make_cache
from engine.config import EngineConfig
from engine.fit import fit_cache
from engine.model.llama import Llama
from engine.page_map import PageMap
from engine.run.attention_path import attention_path
from engine.run.budget import BudgetExceeded, make_flood
from engine.run.holdings import Holdings
from engine.run.made_for import check_made_for
from engine.run.outputs import EngineCounters, OnPart, StepOutput, Tally
from engine.run.runner import Runner, Scores
from engine.run.sampler import Sampler
from engine.schedule.plan import Plan
from engine.schedule.scheduler import NoRoom, Scheduler
from engine.schedule.sequence import Finish, SamplingParams, Sequence
from engine.speculate.draft import NOTHING, Draft
from engine.speculate.make import DraftWith, draft_bytes, make_proposer
from engine.speculate.speculator import Speculator, Verified
from engine.trial import DraftCounters, Flood, Ledger

__all__ = ["BudgetExceeded", "Engine", "EngineCounters", "SamplingParams", "StepOutput"]


class Engine:
    """Serves requests with one model under one configuration.

    The cache is allocated at once, as `engine.fit` plans it: room for `config.schedule.batch`
    requests of `capacity` tokens (the workload's prompt + output unless said otherwise), or what
    the memory budget leaves for it. The caller sets torch's thread count (`config.run.threads`),
    which belongs to the process and not to an engine.

    Raises:
        ValueError: the model was made in another precision, or of other bits, than the
            configuration asks for, a request would be longer than the model's context, or
            (BudgetError) not one request fits the memory budget.
    """

    def __init__(
        self,
        model: Llama,
        config: EngineConfig,
        *,
        eos_ids: Iterable[int] = (),
        capacity: int | None = None,
        draft: DraftWith = None,
    ) -> None:
        if model.precision != config.run.precision:
            raise ValueError(
                f"the model is in {model.precision} and the configuration asks for "
                f"{config.run.precision}; load it again in that precision"
            )
        check_made_for(model, config.weights)
        self.model = model
        self.config = config
        self.capacity = capacity or config.workload.prompt + config.workload.output
        if self.capacity > model.config.context:
            raise ValueError(
                f"requests of {self.capacity} tokens pass the model's context of "
                f"{model.config.context}; at most that many"
            )
        beside = draft_bytes(config.draft, draft, config.schedule.batch, self.capacity)
        self.plan = fit_cache(
            config,
            model.config,
            model.weight_bytes + beside,
            self.capacity,
            model.low_bit_forms,
        )
        self._eos_ids = frozenset(eos_ids)
        self._ids = count()
        self._cache = make_cache(
            self.plan,
            model.config,
            config.cache.bits,
            model.dtype,
            model.device,
            prefix_sharing=config.cache.prefix_sharing == "on",
        )
        self._holdings = Holdings(model, config, self.plan, self._cache, beside)
        self._runner = Runner(model, self._cache)
        self._scheduler = Scheduler(
            config.schedule,
            self._cache,
            model.config.context,
            block_size=self.plan.block_size if self.plan.layout == "paged" else 0,
            widest=config.workload.prompt,
            breaks=config.memory.overflow == "break",
            draft=config.draft.most,
        )
        self._sampler = Sampler()
        self._speculator = self._make_speculator(draft)
        self._tally = Tally()
        self._most_held = 0
        self._attention = attention_path(model, self.plan, config.cache.bits)

    # Requests

    def add_request(self, prompt_ids: Iterable[int], params: SamplingParams) -> int:
        """Queue a request and give its id.

        Raises:
            ValueError: it could never run (too long, empty, or a token the model has not).
        """
        prompt = tuple(prompt_ids)
        vocabulary = self.model.config.vocabulary
        for token in prompt:
            if not 0 <= token < vocabulary:
                raise ValueError(f"token {token} is not in the vocabulary: 0 to {vocabulary - 1}")
        sequence = Sequence(next(self._ids), prompt, params)
        self._scheduler.add(sequence)
        self._sampler.open(sequence.id, params)
        return sequence.id

    def step(self, on_part: OnPart = lambda _: None) -> StepOutput:
        """One pass: schedule, run, postprocess; where drafts are made, schedule, draft, verify,
        postprocess. `on_part` is called after each of the middle two, with its name.

        Raises:
            ValueError: there is no work.
            BudgetExceeded: a request finds no room and must not wait; nothing has changed.
            NonFiniteLogits: the model's scores are not numbers; the step's requests are dropped.
        """
        try:
            plan = self._scheduler.schedule()
        except NoRoom as lack:
            raise BudgetExceeded(self._flood(lack.tokens)) from None
        self._tally.planned(plan)
        drafts: Mapping[int, Draft] = {}
        speculator = self._speculator if plan.phase == "decode" else None
        if speculator is not None:
            for request in plan.preempted:
                speculator.close(request)
            plan, drafts = speculator.draft(plan)
            on_part("draft")
        try:
            scores = self._runner.run(plan)
        except ArithmeticError:
            for piece in plan.pieces:
                self._drop(piece.sequence.id, spoiled=True)
            raise
        if speculator is not None:
            on_part("verify")
        self._most_held = max(self._most_held, self._cache.held_tokens)
        if speculator is not None and any(piece.drafted for piece in plan.pieces):
            return self._postprocess(plan, *self._verify(speculator, scores, drafts))
        return self._postprocess(plan, self._draw(plan, scores), {})

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    def abort(self, request: int) -> None:
        """Drop a request, waiting or running.

        Raises:
            ValueError: no such request, or it has finished.
        """
        self._drop(request)

    def reset(self) -> None:
        """Drop every request, forget all that is cached, and count from zero again.

        Ids go on counting: none is ever given twice.
        """
        for request in self._scheduler.ids:
            self._drop(request)
        self._cache.clear()
        self._cache.check_integrity()
        self._tally = Tally()
        if self._speculator is not None:
            self._speculator.reset()
        self._most_held = 0

    # Account

    def allocated(self) -> dict[str, int]:
        """Bytes held, by part (see `Holdings.parts`).

        The first call on an idle engine runs the configuration's largest passes once, on its own
        cache, to see their temporary tensors, and clears the cache after them: call it outside
        timed runs. While requests are there, and until then, activations are those foreseen.
        """
        if not self.has_work:
            self._holdings.measure(self._runner)
        return self._holdings.parts

    def ledger(self) -> Ledger:
        """The account of this moment: what is reserved, and what of it is in use. Cheap."""
        return self._holdings.ledger

    def page_map(self) -> PageMap:
        """What every part of the cache holds, to be drawn."""
        return self._cache.page_map()

    @property
    def counters(self) -> EngineCounters:
        """Sums since the last reset."""
        return self._tally.counters(self._cache.copies)

    @property
    def draft_counters(self) -> DraftCounters:
        """What became of drafts since the last reset."""
        return DraftCounters() if self._speculator is None else self._speculator.counters

    @property
    def held_tokens(self) -> int:
        """Distinct tokens of running requests in the cache."""
        return self._cache.held_tokens

    @property
    def most_held_tokens(self) -> int:
        """The most `held_tokens` during any pass since the last reset: a request that ends with a
        pass was held while it ran."""
        return self._most_held

    @property
    def reserved_tokens(self) -> int:
        """Token slots set aside for running requests."""
        return self._cache.reserved_tokens

    @property
    def running(self) -> int:
        """Requests in the cache."""
        return self._scheduler.running

    @property
    def waiting(self) -> int:
        """Requests in line."""
        return self._scheduler.waiting

    @property
    def kernel_path(self) -> dict[str, str]:
        """The kernels that run, by operation: linear, attention, norm, rope, head; and draft, who
        drafts and by which kernels, where somebody does.

        Attention names every form that this cache lets run, and the width of its keys and values
        where it is not the run's own.
        """
        drafting = self._speculator
        path = self.model.kernel_path | {"attention": self._attention}
        return path | ({} if drafting is None else {"draft": drafting.proposer.form})

    # One step

    def _draw(self, plan: Plan, scores: Scores) -> dict[int, tuple[int, ...]]:
        """The next token of each sequence whose scores are those of one: in the middle of a prompt
        they foretell a known token, and a draw would be lost to the request's stream of chance."""
        speaking = {piece.sequence.id for piece in plan.pieces if piece.speaks}
        rows = [row for row, one in enumerate(scores.sequence_ids) if one in speaking]
        if not rows:
            return {}
        ids, logits, greedy = scores.sequence_ids, scores.logits, scores.greedy
        if len(rows) < len(ids):
            ids, logits, greedy = tuple(ids[row] for row in rows), logits[rows], greedy[rows]
        drawn = self._sampler.sample(ids, logits, greedy)
        if self._speculator is not None:
            for row, one in zip(rows, ids, strict=True):
                self._speculator.proposer.hear(one, scores.hidden[row])
        return {one: (token,) for one, token in zip(ids, drawn, strict=True)}

    def _verify(
        self, speculator: Speculator, scores: Scores, drafts: Mapping[int, Draft]
    ) -> tuple[dict[int, tuple[int, ...]], dict[int, Verified]]:
        """The tokens that stand of each sequence's draft, with the one that follows them; what was
        rejected leaves the cache."""
        said: dict[int, tuple[int, ...]] = {}
        verified: dict[int, Verified] = {}
        rows = (scores.logits, scores.greedy, scores.hidden)
        parts = zip(*(one.split_with_sizes(scores.counts) for one in rows), strict=True)
        for one, (logits, greedy, hidden) in zip(scores.sequence_ids, parts, strict=True):
            draft = drafts.get(one, NOTHING)
            outcome = self._sampler.verify(one, draft, logits, greedy)
            speculator.proposer.hear(one, hidden[outcome.accepted])
            said[one] = (*draft.tokens[: outcome.accepted], outcome.token)
            self._cache.rewind(one, self._cache.length(one) - len(draft.tokens) + outcome.accepted)
            if draft.tokens:
                verified[one] = Verified(draft.tokens, outcome.accepted)
        return said, verified

    def _postprocess(
        self, plan: Plan, said: dict[int, tuple[int, ...]], verified: dict[int, Verified]
    ) -> StepOutput:
        tokens: dict[int, tuple[int, ...]] = {}
        first: list[int] = []
        finished: dict[int, Finish] = {}
        again = 0
        for piece in plan.pieces:
            sequence = piece.sequence
            one = sequence.id
            stood = verified[one].accepted if one in verified else 0
            again += sequence.advance(piece.count - len(piece.drafted) + stood)
            if plan.phase == "decode" and self._speculator is not None:
                self._speculator.settled(one, verified.get(one))
            if one not in said:
                continue
            if not sequence.output_ids:
                first.append(one)
            tokens[one], sequence.finish = self._ends(sequence, said[one])
            sequence.output_ids.extend(tokens[one])
            if sequence.finish is not None:
                finished[one] = sequence.finish
                self._drop(one)
        rows = sum(piece.count for piece in plan.pieces)
        if plan.phase == "prefill":
            self._tally.prefilled(rows, again)
        return StepOutput(
            phase=plan.phase,
            sequence_ids=tuple(piece.sequence.id for piece in plan.pieces),
            rows=rows,
            tokens=MappingProxyType(tokens),
            first_tokens=tuple(first),
            finished=MappingProxyType(finished),
            admitted=MappingProxyType({one.sequence.id: one.cached for one in plan.admitted}),
            preempted=plan.preempted,
            drafts=MappingProxyType(verified),
        )

    def _ends(
        self, sequence: Sequence, said: tuple[int, ...]
    ) -> tuple[tuple[int, ...], Finish | None]:
        """What of `said` counts, and whether the request ends with it: nothing follows an end of
        text."""
        if not sequence.params.ignore_eos:
            for place, token in enumerate(said):
                if token in self._eos_ids:
                    return said[: place + 1], "stop"
        return said, "length" if len(said) == sequence.left else None

    def _drop(self, request: int, spoiled: bool = False) -> None:
        self._scheduler.remove(request, spoiled)
        self._sampler.close(request)
        if self._speculator is not None:
            self._speculator.close(request)

    def _make_speculator(self, draft: DraftWith) -> Speculator | None:
        asked = self.config.draft
        seats = self.config.schedule.batch
        proposer = make_proposer(asked, self.model, self._cache, self._sampler, seats, draft)
        if proposer is None:
            return None
        return Speculator(proposer, self._sampler, asked.length, asked.adaptive == "on")

    def _flood(self, asked_tokens: int) -> Flood:
        return make_flood(
            self.ledger(),
            self.plan,
            asked_tokens=asked_tokens,
            vacant_tokens=self._cache.vacant_tokens,
            running=self.running,
            needs=(sequence.most_cached for sequence in self._scheduler.sequences),
            working_bytes=self._holdings.more_working(asked_tokens),
        )
