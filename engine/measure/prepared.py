"""A build made ready for its trial: resolved, priced, its engine built, its account taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.config import EngineConfig
from engine.domains import KnobError
from engine.drafters import SELF_BITS, self_recipe
from engine.fit import weight_elements
from engine.load import request_count
from engine.measure.account import account
from engine.measure.harness import BuildEngine
from engine.measure.quantising import told, wanted, watched_at
from engine.measure.reporter import Reporter, Side
from engine.measure.shelf import Shelf
from engine.measure.timing import Clock
from engine.model.llama import Llama
from engine.price import Price, price
from engine.quantised import Quantised
from engine.resolve import Resolved
from engine.speculate.make import DraftWith
from engine.trial import MemoryAccount, TrialKind

MakeEngine = Callable[[Llama, EngineConfig, frozenset[int], DraftWith], BuildEngine]
"""(network, configuration, tokens that end an answer, what drafts beside the network)."""


@dataclass(frozen=True)
class Prepared:
    """`load_seconds` are those its weights took to be made ready (0 where they were), without those
    of quantising, which `quantised` tells (None where no weight was)."""

    side: Side
    resolved: Resolved
    engine: BuildEngine
    price: Price
    memory: MemoryAccount
    load_seconds: float
    forms: tuple[str, ...] = ()
    quantised: Quantised | None = None

    @property
    def config(self) -> EngineConfig:
        return self.resolved.config


def prepare(
    side: Side,
    resolved: Resolved,
    kind: TrialKind,
    shelf: Shelf,
    make_engine: MakeEngine,
    clock: Clock,
    desk: Reporter,
) -> Prepared:
    """Build the engine of one side and take its account, which runs its largest passes once.

    Weights that its recipe asks for are quantised first, unless they lie ready.

    Raises:
        KnobError: a trial of this kind starts all requests together, and they may not.
        BudgetError: not one request fits the memory budget.
        Aborted: the player stopped the trial.
    """
    config = resolved.config
    torch.set_num_threads(config.run.threads)
    recipe = wanted(config, shelf.config)
    watch, report = watched_at(desk, side), None
    if recipe is not None:
        report = shelf.quantised(recipe, config.run.precision, watch).report
    if config.draft.kind in SELF_BITS:  # not a part of loading either
        shelf.quantised(self_recipe(config.draft.kind, shelf.config), config.run.precision, watch)
    desk.progress("loading", 0, 1, detail=config.run.precision)
    start = clock()
    model = shelf.llama(config.run.precision, recipe, config.weights.crossover, watch)
    draft = shelf.drafting(config, model, watch)
    seconds = (clock() - start) / 1e9
    desk.check()
    engine = make_engine(model, config, shelf.tokenizer.eos_ids, draft)
    # Another model that drafts is dense, whatever the target is: its head tells whether those pack.
    dense = draft.kernel_path if isinstance(draft, Llama) and draft.config != model.config else None
    packed = "packed" in (dense or engine.kernel_path).get("head", "")
    forms = model.low_bit_forms
    found = price(config, shelf.config, packed, forms, shelf.drafters)
    _check_seats(kind, config, found)
    memory = account(
        found.parts, engine.allocated(), found.plan.tokens, weight_elements(shelf.config)
    )
    if report is not None:
        report = told(report, config, shelf.config, forms)
    return Prepared(side, resolved, engine, found, memory, seconds, forms, report)


def _check_seats(kind: TrialKind, config: EngineConfig, found: Price) -> None:
    """Runs that start together must not queue: their steps would no longer be those of the batch.

    Where the budget breaks instead, running out is a result; a served load queues as it should.
    """
    seats = found.plan.requests
    if kind == "serve" or config.memory.overflow == "break" or seats >= config.schedule.batch:
        return
    raise KnobError(
        f"schedule.batch={config.schedule.batch}: {seats} requests of {found.plan.capacity} tokens "
        f"fit the vessel at once, and this trial starts all together; nearest: {seats}"
    )


def check_one_load(candidate: EngineConfig, reference: EngineConfig) -> None:
    """Both builds of a served trial must serve the same load. Raises KnobError."""
    if candidate.workload != reference.workload or (
        request_count(candidate) != request_count(reference)
    ):
        raise KnobError(
            "a served trial gives both builds one load: workload.* must be equal in build and "
            "reference, and workload.requests set where their batches differ"
        )
