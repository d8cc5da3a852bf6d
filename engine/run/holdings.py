"""What an engine holds, by part: the account that its vessel, its ledger and its floods rest on."""

from __future__ import annotations

from dataclasses import replace

from engine.cache.kv_cache import KVCache
from engine.cache_plan import CachePlan, vessel_bytes
from engine.config import EngineConfig
from engine.model.llama import Llama
from engine.run import activation_peak
from engine.run.runner import Runner
from engine.trial import Ledger


class Holdings:
    """The bytes of one engine: `model` and a `cache` of `plan`, under `config`.

    `draft` are the bytes of what drafts beside the model.

    Working memory is that foreseen until it has been measured.
    """

    def __init__(
        self, model: Llama, config: EngineConfig, plan: CachePlan, cache: KVCache, draft: int
    ) -> None:
        self._model = model
        self._config = config
        self._plan = plan
        self._cache = cache
        self._weights = model.weight_bytes
        self._draft = draft
        self._budget = vessel_bytes(config, model.config)
        self._foreseen = activation_peak.foreseen(model, config, plan)
        self._measured: int | None = None

    def measure(self, runner: Runner) -> None:
        """Run the configuration's largest passes on the cache, unless that was done before: it must
        be empty of sequences, and is cleared."""
        if self._measured is None:
            self._measured = activation_peak.measure(runner, self._config, self._plan)

    @property
    def parts(self) -> dict[str, int]:
        """weights, kv, activations (peak of a step), scratch, and draft where there is one."""
        parts = {
            "weights": self._weights,
            "kv": self._cache.nbytes,
            "activations": self._working,
            "scratch": self._model.frequencies.nbytes,
        }
        return parts | ({"draft": self._draft} if self._draft else {})

    @property
    def ledger(self) -> Ledger:
        """The account of this moment: what is reserved, and what of it is in use. Cheap."""
        held = self._cache.held_tokens
        return Ledger(
            budget=self._budget,
            parts=self.parts,
            held_bytes=held * self._cache.token_bytes,
            live_tokens=held,
        )

    def more_working(self, tokens: int) -> int:
        """Bytes of working memory that the cache with room for `tokens` more would bring."""
        plan = self._plan
        if plan.layout == "contiguous":
            larger = replace(plan, slots=plan.slots + 1)
        else:
            larger = replace(plan, blocks=plan.blocks + -(-tokens // plan.block_size))
        foreseen = activation_peak.foreseen(self._model, self._config, larger)
        return max(foreseen - self._working, 0)

    @property
    def _working(self) -> int:
        return self._foreseen if self._measured is None else self._measured
