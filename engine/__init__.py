"""The inference engine and its worker process. It knows nothing of the game.

Importing this package, or any module named in `TORCH_FREE`, never imports torch or numpy:
the interface process touches only those.
"""

TORCH_FREE = (
    "engine.capabilities",
    "engine.clean",
    "engine.client",
    "engine.config",
    "engine.intervals",
    "engine.knobs",
    "engine.machine",
    "engine.messages",
    "engine.metrics",
    "engine.model.config",
    "engine.model.fetch",
    "engine.model.store",
    "engine.paths",
    "engine.price",
    "engine.trial",
)
