"""Memory Abyss: the vessel, the orb of the weights, and the water that is the account.

What is shown, the surest first: the account of a broken vessel, the account measured now or at the
most, and by formula what the build at hand would hold. Before the guess is sealed the formula is
silent about keys and values; then the needle of the dial moves the water.
"""

from __future__ import annotations

from textual.app import ComposeResult

from engine.price import Price
from engine.trial import Flood, Ledger
from game.widgets.basin import Basin, Entry
from game.widgets.figures import size
from game.widgets.hall_piece import HallPiece
from game.widgets.ink import Ink
from game.widgets.water import Waters, WaterWords

MEGA = 1e6


class AbyssPiece(HallPiece):
    def compose(self) -> ComposeResult:
        yield Basin()

    def update_piece(self) -> None:
        basin = self.query_one(Basin)
        found = self._reading()
        if found is None:
            basin.say_nothing(self.say("piece.abyss.unknown"))
            return
        waters, entries = found
        words = WaterWords(self.say("piece.abyss.rim"), self.say("piece.abyss.beyond"))
        basin.show(waters, entries, words, self.pace)

    def _reading(self) -> tuple[Waters, list[Entry]] | None:
        frame = self.frame
        price = frame.prices.get("candidate")
        account = frame.measured.accounts.get("candidate")
        if frame.supposed is not None and price is not None and price.vessel is not None:
            return self._supposed(price, price.vessel, frame.supposed)
        if frame.measured.flood is not None:
            return self._broken(frame.measured.flood)
        if account is not None and account.budget is not None:
            return self._measured(account, account.budget, price)
        if price is not None and price.vessel is not None:
            return self._by_formula(price, price.vessel)
        return None

    # What the account says

    def _measured(
        self, account: Ledger, vessel: int, price: Price | None
    ) -> tuple[Waters, list[Entry]]:
        result = self.frame.result
        at_rest = result is not None
        predicted = float(result.memory.predicted_bytes) if result is not None else None
        if predicted is None and price is not None:
            predicted = float(price.total)
        waters = _waters(account, vessel, predicted=predicted)
        head = self.say("piece.abyss.most" if at_rest else "piece.abyss.now")
        entries = [Entry(head, ink="bronze"), *self._parts(waters)]
        entries += [
            self._entry("in_all", waters.reserved, "strong"),
            Entry(self.say("piece.abyss.tokens"), f"{account.live_tokens:,}", "silver"),
        ]
        if not at_rest:
            crest = self.frame.measured.crests.get("candidate")
            if crest is not None:
                most = f"{crest.live_tokens:,}"
                entries.append(Entry(self.say("piece.abyss.tokens_most"), most, "text", 3))
        if predicted is not None:
            entries.append(self._entry("predicted", predicted, "silver", 2))
        return waters, entries

    def _broken(self, flood: Flood) -> tuple[Waters, list[Entry]]:
        account = flood.ledger
        vessel = account.budget or account.reserved_bytes + flood.free_bytes
        waters = _waters(account, vessel, asked=flood.asked_bytes)
        entries = [
            Entry(self.say("piece.abyss.broke"), ink="danger"),
            self._entry("vessel", vessel, "strong", 1),
            *self._parts(waters),
            self._entry("free", flood.free_bytes, "text"),
            self._entry("asked", flood.asked_bytes, "danger"),
            self._entry("over", flood.asked_bytes - flood.free_bytes, "danger", 1),
            Entry(self.say("piece.abyss.tokens"), f"{account.live_tokens:,}", "silver", 2),
            Entry(
                self.say("piece.abyss.running"),
                self.say("piece.abyss.of", count=flood.running, all=flood.requests),
                "text",
                3,
            ),
            Entry(self.say("piece.abyss.fits"), f"{flood.fits:,}", "text", 2),
        ]
        return waters, entries

    def _by_formula(self, price: Price, vessel: int) -> tuple[Waters, list[Entry]]:
        if self.frame.veiled:
            waters = Waters(float(vessel), float(price.weights))
            entries = [
                Entry(self.say("piece.abyss.before"), ink="bronze"),
                self._entry("vessel", vessel, "strong"),
                self._entry("weights", price.weights, "bronze"),
                self._entry("room", vessel - price.weights, "text"),
            ]
            return waters, entries
        held = min(price.live, price.kv)
        waters = Waters(
            vessel=float(vessel),
            weights=float(price.weights),
            held=float(held),
            working=float(price.activations + price.scratch),
            empty=float(price.kv - held),
            asked=float(max(price.live - price.kv, 0)),
        )
        tokens = price.live // price.plan.token_bytes
        entries = [Entry(self.say("piece.abyss.formula"), ink="bronze"), *self._parts(waters)]
        if waters.asked:
            entries.append(self._entry("asked_more", waters.asked, "danger"))
        entries.append(self._entry("in_all", waters.top, "danger" if waters.over else "strong"))
        if waters.over:
            entries.append(self._entry("over", waters.over, "danger"))
        entries.append(Entry(self.say("piece.abyss.tokens_would"), f"{tokens:,}", "silver"))
        return waters, entries

    def _supposed(self, price: Price, vessel: int, megabytes: float) -> tuple[Waters, list[Entry]]:
        """Weights, and on them the cache that the needle names."""
        guess = megabytes * MEGA
        held = min(guess, float(vessel - price.weights))
        waters = Waters(float(vessel), float(price.weights), held=held, asked=guess - held)
        entries = [
            Entry(self.say("piece.abyss.supposed"), ink="bronze"),
            self._entry("vessel", vessel, "strong", 1),
            self._entry("weights", price.weights, "bronze"),
            self._entry("guess", guess, "wall"),
            self._entry("in_all", waters.top, "danger" if waters.over else "strong"),
        ]
        if waters.over:
            entries.append(self._entry("over", waters.over, "danger"))
        else:
            fits = int((vessel - price.weights) // guess) if guess > 0 else 0
            entries.append(Entry(self.say("piece.abyss.such"), f"{fits:,}", "text", 1))
        return waters, entries

    def _parts(self, waters: Waters) -> list[Entry]:
        found = [
            self._entry("weights", waters.weights, "bronze"),
            self._entry("held", waters.held, "wall"),
        ]
        if waters.empty:
            found.append(self._entry("empty", waters.empty, "water"))
        found.append(self._entry("working", waters.working, "text", 4))
        return found

    def _entry(self, key: str, count: float, ink: Ink, rank: int = 0) -> Entry:
        return Entry(self.say(f"piece.abyss.{key}"), size(count), ink, rank)


def _waters(account: Ledger, vessel: int, asked: int = 0, predicted: float | None = None) -> Waters:
    """An account's parts as heights; whatever is neither weights nor KV is working memory."""
    parts = account.parts
    weights, cache = parts.get("weights", 0), parts.get("kv", 0)
    held = min(account.held_bytes, cache)
    return Waters(
        vessel=float(vessel),
        weights=float(weights),
        held=float(held),
        working=float(account.reserved_bytes - weights - cache),
        empty=float(cache - held),
        asked=float(asked),
        predicted=predicted,
    )
