"""What a build will cost, by formula, before anything runs.

Torch-free: the forge shows these figures while the player turns the knobs. Bytes are exact for
weights and cache; working memory follows the tensors of a pass (`engine.activations`). The cache is
the one the engine will plan: in a vessel, what the rest leaves (`engine.fit`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from engine.activations import activation_bytes
from engine.cache_plan import CachePlan, vessel_bytes
from engine.capabilities import Capabilities
from engine.config import EngineConfig
from engine.drafters import NO_OTHERS, Drafters, held_bytes
from engine.fit import fit_cache, scratch_bytes, weight_bytes
from engine.load import mean_load
from engine.model.config import ModelConfig
from engine.precision import element_bytes
from engine.recipe import recipe_of
from engine.trial import PhaseWork, Work
from engine.work import decode_work, prefill_work, running


@dataclass(frozen=True)
class Price:
    """Bytes by part, as the engine's own account names them, and the work of both phases.

    `prefill` is one run's whole prefill, `decode` one mean decode step of that run: where somebody
    drafts, what it takes at the least, without a draft. `plan` is the
    cache, `vessel` the memory budget in bytes, None without one. `live` are the bytes of keys and
    values that the workload wants in the cache at once: where running out breaks the run it may
    pass the cache, and that is the flood.
    """

    weights: int
    kv: int
    activations: int
    scratch: int
    prefill: Work
    decode: Work
    precision: str
    plan: CachePlan
    vessel: int | None
    live: int
    draft: int = 0

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """Keyed as `Engine.allocated()`: weights, kv, activations, scratch, and draft where
        something beside the target drafts."""
        parts = {
            "weights": self.weights,
            "kv": self.kv,
            "activations": self.activations,
            "scratch": self.scratch,
        }
        return parts | ({"draft": self.draft} if self.draft else {})

    @property
    def work(self) -> PhaseWork:
        return PhaseWork(precision=self.precision, prefill=self.prefill, decode=self.decode)


def price(
    config: EngineConfig,
    model: ModelConfig,
    packed_head: bool = True,
    forms: Collection[str] = (),
    drafters: Drafters = NO_OTHERS,
) -> Price:
    """The cost of `config` on `model`, for which `drafters` can draft.

    Args:
        packed_head: the machine multiplies by a packed copy of the weights, so that a tied head is
            a second copy of the embedding (look-up needs rows, the product a packed matrix).
        forms: the low-bit forms of this machine in the build's precision.

    Raises:
        BudgetError: the vessel cannot hold one request.
        ValueError: a precision with no known width, or a group that does not divide a matrix's
            rows, or a draft of a kind that there is none of.
    """
    size = element_bytes(config.run.precision)
    recipe = recipe_of(config.weights, model)
    weights = weight_bytes(model, size, packed_head, recipe, forms)
    draft = held_bytes(config, model, drafters, packed_head, forms)
    plan = fit_cache(config, model, weights + draft, forms=forms)
    together = running(config, plan)
    return Price(
        weights=weights,
        kv=plan.nbytes,
        activations=activation_bytes(config, model, size, plan, forms),
        scratch=scratch_bytes(model),
        prefill=prefill_work(config, model, together, forms),
        decode=decode_work(config, model, together, forms),
        precision=config.run.precision,
        plan=plan,
        vessel=vessel_bytes(config, model),
        live=live_bytes(config, plan),
        draft=draft,
    )


def price_on(
    config: EngineConfig,
    model: ModelConfig,
    machine: Capabilities,
    drafters: Drafters = NO_OTHERS,
) -> Price:
    """The cost of `config` in the kernel forms that `machine` has. Raises as `price`."""
    forms = machine.low_bit_forms.get(config.run.precision, ())
    return price(config, model, machine.packs(config.run.precision), forms, drafters)


def live_bytes(config: EngineConfig, plan: CachePlan) -> int:
    """Keys and values of the requests that are to be held at once, when their answers are done.

    The last token of an answer is never cached. Mixed lengths count at their means, a shared
    beginning once. Without `memory.overflow: break` no more can be live than the cache holds.
    """
    load = mean_load(config)
    seats = min(config.schedule.batch, len(load))
    shared = config.workload.system if config.cache.prefix_sharing == "on" else 0
    tokens = sum(shape.prompt + shape.output - 1 - shared for shape in load) * seats // len(load)
    wanted = (tokens + shared) * plan.token_bytes
    if config.memory.overflow == "break":
        return wanted
    if plan.layout == "contiguous":
        return min(wanted, wanted * plan.slots // seats)
    return min(wanted, plan.nbytes)
