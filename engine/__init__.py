"""The inference engine and its worker process. It knows nothing of the game.

Importing this package, or any module named in `TORCH_FREE`, never imports torch or numpy:
the interface process touches only those.
"""

TORCH_FREE = (
    "engine.activations",
    "engine.cache_plan",
    "engine.cache_tensors",
    "engine.calls",
    "engine.capabilities",
    "engine.clean",
    "engine.client",
    "engine.config",
    "engine.fit",
    "engine.intervals",
    "engine.knobs",
    "engine.kv_format",
    "engine.legality",
    "engine.load",
    "engine.load_metrics",
    "engine.machine",
    "engine.messages",
    "engine.metrics",
    "engine.model.config",
    "engine.model.fetch",
    "engine.model.published",
    "engine.model.store",
    "engine.page_map",
    "engine.paths",
    "engine.precision",
    "engine.price",
    "engine.quality_report",
    "engine.quantised",
    "engine.recipe",
    "engine.resolve",
    "engine.trial",
    "engine.weight_format",
    "engine.work",
)
