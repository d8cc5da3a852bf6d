"""A real session over a folder of the test's own, with an engine that never runs.

The bridge answers with canned values: what `ready` tells, what it fails with, and the trial that
comes back are given by the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import msgspec
from canned_trials import CAPABILITIES, MACHINE, MODEL, make_result

from engine.capabilities import Capabilities
from engine.drafters import NO_OTHERS
from engine.machine import MachineProfile
from engine.messages import AnyEvent
from engine.model.config import ModelConfig
from engine.trial import TrialResult, TrialSpec
from game.engine_bridge import EngineBridge, OnEvent
from game.player import Player
from game.session import Session
from saves.documents import Record
from saves.store import Store
from story.loader import load_stages


class FakeBridge:
    """Stands for `EngineBridge`. `hold` keeps `ready` from ending until it is set."""

    drafters = NO_OTHERS

    def __init__(
        self,
        events: Iterable[AnyEvent] = (),
        trouble: Exception | None = None,
        result: TrialResult | None = None,
        trial_events: Iterable[AnyEvent] = (),
    ) -> None:
        self.events, self.trial_events = tuple(events), tuple(trial_events)
        self.trouble, self.result = trouble, result
        self.hold: asyncio.Event | None = None
        self.awake = False
        self.closed = False
        self.aborted = False
        self.asked = 0
        self.specs: list[TrialSpec] = []
        self.capabilities: Capabilities | None = CAPABILITIES
        self.model_config: ModelConfig | None = MODEL
        self.model_name = "SmolLM2-135M-Instruct"
        self.machine: MachineProfile | None = MACHINE

    async def ready(self, on_event: OnEvent | None = None) -> None:
        self.asked += 1
        for event in self.events:
            if on_event is not None:
                on_event(event)
            await asyncio.sleep(0)
        if self.hold is not None:
            await self.hold.wait()
        if self.trouble is not None:
            raise self.trouble
        self.awake = True

    async def run_trial(self, spec: TrialSpec, on_event: OnEvent | None = None) -> TrialResult:
        self.specs.append(spec)
        for event in self.trial_events:
            if on_event is not None:
                on_event(event)
            await asyncio.sleep(0)
        return self.result or make_result(spec.stage, "pass", dict(spec.build))

    async def abort(self) -> None:
        self.aborted = True

    async def close(self) -> None:
        self.closed = True


def make_session(
    home: Path,
    language: str = "zh",
    *,
    name: str | None = "林默",
    records: Iterable[Record] = (),
    bridge: FakeBridge | None = None,
    **settings: Any,
) -> Session:
    """A session at `home`, of a profile `name` (None: nobody yet) that holds `records`.

    Motion is reduced and text appears at once unless `settings` say otherwise.
    """
    store = Store(home)
    player = Player(store)
    player.enter(None)
    player.update_settings(
        {"language": language, "reduced_motion": True, "text_speed": 0, **settings}
    )
    if name is not None:
        key = player.create(name).key
        for record in records:
            store.append(msgspec.structs.replace(record, profile=key, digest=""))
    stages = load_stages()
    return Session(player, cast(EngineBridge, bridge or FakeBridge()), stages, practice=False)
