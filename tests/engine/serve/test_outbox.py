"""Thinning: order, rate, and that no text is lost."""

from __future__ import annotations

import os
import threading
import time

import msgspec

from engine.messages import (
    Account,
    Event,
    Failed,
    Pages,
    Progress,
    Tokens,
    decode_event,
)
from engine.page_map import PageMap
from engine.serve.outbox import Outbox
from engine.trial import Flood, Ledger


class Pipe:
    def __init__(self) -> None:
        self.read_end, write_end = os.pipe()
        self.write_end = write_end

    def events(self) -> list[Event]:
        """Everything written, once the writing end is closed."""
        os.close(self.write_end)
        with os.fdopen(self.read_end, "rb") as stream:
            return [decode_event(line) for line in stream]


def outbox(pipe: Pipe, rate: float = 20.0) -> Outbox:
    return Outbox(pipe.write_end, on_broken=lambda: None, rate=rate)


def test_of_fast_progress_the_last_one_counts_and_precedes_the_answer() -> None:
    pipe = Pipe()
    box = outbox(pipe)
    for done in range(1, 1001):
        box.put(Progress(1, "pairs", done, 1000))
    box.put(Failed(1, "input", "the answer"))
    box.put(Progress(2, "pairs", 0, 1))
    assert box.flush(5)
    events = pipe.events()
    steps = [event.done for event in events if isinstance(event, Progress) and event.job == 1]
    assert steps == sorted(steps)
    assert steps[-1] == 1000
    assert len(steps) < 100
    assert [type(event) for event in events[-3:]] == [Progress, Failed, Progress]


def test_events_of_one_kind_leave_at_most_at_the_rate() -> None:
    """In t seconds at most 1 + 20 t of a kind, whatever this machine's speed."""
    pipe = Pipe()
    box = outbox(pipe)
    begun = time.monotonic()
    while time.monotonic() - begun < 0.5:
        box.put(Tokens(1, "x", 1))
        box.put(Progress(1, "pairs", 1, 2))
        time.sleep(0.001)
    assert box.flush(5)
    taken = time.monotonic() - begun
    events = pipe.events()
    for kind in (Tokens, Progress):
        assert sum(isinstance(event, kind) for event in events) <= 2 + 20 * taken


def test_a_held_event_leaves_without_another_one_to_push_it() -> None:
    pipe = Pipe()
    box = outbox(pipe)
    box.put(Tokens(1, "a", 1))
    box.put(Tokens(1, "b", 2))
    with os.fdopen(os.dup(pipe.read_end), "rb") as stream:
        text = ""
        while text != "ab":
            event = decode_event(stream.readline())
            assert isinstance(event, Tokens)
            text += event.text


def test_tokens_are_joined_in_order_and_carry_the_last_index() -> None:
    pipe = Pipe()
    box = outbox(pipe, rate=0.001)
    for index, text in enumerate(["first", "the ", "二", "\n🙂"]):
        box.put(Tokens(1, text, index))
    assert box.flush(5)
    texts = [event for event in pipe.events() if isinstance(event, Tokens)]
    assert "".join(event.text for event in texts) == "firstthe 二\n🙂"
    assert texts[-1].index == 3
    assert len(texts) <= 2


LEDGER = Ledger(100, {"kv": 60}, 20, 4)
PAGES = PageMap("paged", 16, "FF..", 32, 32)


def test_of_accounts_and_pages_the_last_one_counts() -> None:
    pipe = Pipe()
    box = outbox(pipe)
    for held in range(500):
        ledger = msgspec.structs.replace(LEDGER, live_tokens=held)
        box.put(Account(1, "candidate", ledger))
        box.put(Pages(1, "candidate", PAGES, running=2, waiting=1, finished=held))
    box.put(Failed(1, "input", "the answer"))
    assert box.flush(5)
    events = pipe.events()
    accounts = [event for event in events if isinstance(event, Account)]
    pages = [event for event in events if isinstance(event, Pages)]
    assert accounts[-1].ledger.live_tokens == pages[-1].finished == 499
    assert len(accounts) < 100 and len(pages) < 100
    assert isinstance(events[-1], Failed)


def test_the_account_of_a_flood_is_never_replaced() -> None:
    pipe = Pipe()
    box = outbox(pipe, rate=0.01)
    flood = Flood(LEDGER, 90, 40, 2, 3, 2)
    box.put(Account(1, "candidate", LEDGER))
    box.put(Account(1, "candidate", LEDGER, flood))
    for _ in range(50):
        box.put(Account(1, "candidate", LEDGER))
    assert box.flush(5)
    floods = [event.flood for event in pipe.events() if isinstance(event, Account)]
    assert floods.count(flood) == 1 and floods[0] is None


def test_a_broken_pipe_is_told_once_and_flush_does_not_wait() -> None:
    pipe = Pipe()
    told = threading.Event()
    box = Outbox(pipe.write_end, on_broken=told.set)
    os.close(pipe.read_end)
    box.put(Progress(1, "pairs", 0, 1))
    assert told.wait(5)
    box.put(Progress(1, "pairs", 1, 1))
    assert box.flush(5)
    os.close(pipe.write_end)
