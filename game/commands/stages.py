"""`latency-wall stages`: the halls, their state, crowns and best records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from engine.clean import clean
from game.commands.options import json_option, language_option, profile_option
from game.commands.output import print_json

if TYPE_CHECKING:
    from story.schema import Language


@click.command("stages")
@profile_option
@language_option
@json_option
def command(profile: str | None, lang: Language | None, as_json: bool) -> int:
    """The halls: their state, crowns and best records."""
    from game.session import Session

    session = Session.open(profile=profile)
    if lang:
        session.speak(lang)
    standing = session.standing()
    rows: list[dict[str, Any]] = [
        {
            "id": stage.id,
            "order": stage.order,
            "name": session.stage_text(stage.id).name,
            "state": standing.halls[stage.id].state,
            "crowns": list(standing.halls[stage.id].crowns),
            "attempts": standing.halls[stage.id].attempts,
            "debt": standing.halls[stage.id].debt,
            "best": standing.halls[stage.id].best,
            "goals_met": standing.halls[stage.id].met,
            "scar": {"demanded": stage.scar, "record": standing.halls[stage.id].scar},
        }
        for stage in session.stages
    ]
    if as_json:
        print_json({"debt": standing.debt, "stages": rows})
        return 0
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("id", "name", "state", "crowns", "scar", "attempts", "debt"):
        table.add_column(heading)
    for row in rows:
        cells = (row["id"], row["name"], row["state"], " ".join(row["crowns"]) or "-",
                 _scar(row["scar"]), row["attempts"],
                 f"{row['debt']:+d}" if row["debt"] else "0")  # fmt: skip
        table.add_row(*(Text(clean(str(cell), one_line=True)) for cell in cells))
    Console().print(table)
    click.echo(f"\ndebt {standing.debt}")
    return 0


def _scar(scar: dict[str, str | None]) -> str:
    """`left` once a record failed as the hall demands, `to come` where none did yet; else `-`."""
    if scar["record"] is not None:
        return "left"
    return "to come" if scar["demanded"] else "-"
