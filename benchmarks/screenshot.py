"""A true picture of a screen as SVG: every glyph stands in its own cells.

Textual's own export gives a run of wide characters the length of its characters, so Chinese is
squeezed to half its width. Here a run of narrow characters is stretched to its cells, and every
wide character is set by itself in the middle of its two.

    python benchmarks/screenshot.py enter --language zh --size 120x40 --out title.svg
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.cells import cell_len
from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.strip import Strip

from game.theme import INK, SILVER

if TYPE_CHECKING:
    from game.session import Session

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE, MARGIN = 9.0, 19.0, 15.0, 14.0
BASELINE = 14.4  # from the top of a cell
_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
"""Column and row of each bit of a braille character, in Unicode's order."""
FONTS = (
    "'JetBrains Mono','Fira Code',Menlo,Consolas,'DejaVu Sans Mono',"
    "'Noto Sans Mono CJK SC','Sarasa Mono SC','PingFang SC','Microsoft YaHei',monospace"
)


@dataclass(frozen=True)
class Run:
    """Text that begins at cell `x`; `wide` where it is one character of two cells."""

    x: int
    text: str
    cells: int
    style: Style


def runs(strip: Strip) -> Iterator[Run]:
    """The pieces of a line, split so that each can be placed by its cells."""
    x = 0
    for text, style, _ in strip:
        piece = ""
        for char in text:
            width = cell_len(char)
            if width == 1 and (not piece or is_braille(piece[0]) == is_braille(char)):
                piece += char
                continue
            if piece:
                yield Run(x, piece, len(piece), style or Style())
                x += len(piece)
                piece = ""
            if width == 1:
                piece = char
                continue
            if width == 2:
                yield Run(x, char, 2, style or Style())
            x += width
        if piece:
            yield Run(x, piece, len(piece), style or Style())
            x += len(piece)


def svg(lines: Sequence[Strip], width: int, title: str) -> str:
    """One SVG document of `lines`, each `width` cells wide."""
    across = width * CELL_WIDTH + 2 * MARGIN
    down = len(lines) * CELL_HEIGHT + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across:g} {down:g}" '
        f'font-family="{FONTS}" font-size="{FONT_SIZE:g}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{across:g}" height="{down:g}" rx="8" fill="{INK}"/>',
    ]
    for y, strip in enumerate(lines):
        line = list(runs(strip))
        parts += [_ground(run, y) for run in line if _colours(run.style)[1] != INK]
        parts += [_glyphs(run, y) for run in line if run.text.strip()]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _colours(style: Style) -> tuple[str, str]:
    """(ink, ground) as hexadecimal; dim text is mixed halfway into its ground."""
    ink = Color.from_rich_color(style.color).hex if style.color else SILVER
    ground = Color.from_rich_color(style.bgcolor).hex if style.bgcolor else INK
    ink, ground = ink.lower(), ground.lower()
    if style.reverse:
        ink, ground = ground, ink
    if style.dim:
        ink = Color.parse(ink).blend(Color.parse(ground), 0.5).hex
    return ink, ground


def _ground(run: Run, y: int) -> str:
    return (
        f'<rect x="{MARGIN + run.x * CELL_WIDTH:g}" y="{MARGIN + y * CELL_HEIGHT:g}" '
        f'width="{run.cells * CELL_WIDTH + 0.4:g}" height="{CELL_HEIGHT + 0.4:g}" '
        f'fill="{_colours(run.style)[1]}"/>'
    )


def is_braille(char: str) -> bool:
    return "\u2800" <= char <= "\u28ff"


def _dots(run: Run, y: int) -> str:
    """Braille as the dots it stands for: fonts draw it in widths of their own."""
    radius = CELL_WIDTH / 7
    path = ""
    for place, char in enumerate(run.text):
        left = MARGIN + (run.x + place) * CELL_WIDTH
        for bit, (column, row) in enumerate(_DOTS):
            if ord(char) - 0x2800 >> bit & 1:
                across = left + (column * 2 + 1) * CELL_WIDTH / 4 - radius
                down = MARGIN + y * CELL_HEIGHT + (row * 2 + 1) * CELL_HEIGHT / 8
                path += f"M{across:.4g} {down:.4g}a{radius:.3g} {radius:.3g} 0 1 0 "
                path += f"{2 * radius:.3g} 0a{radius:.3g} {radius:.3g} 0 1 0 {-2 * radius:.3g} 0"
    return f'<path d="{path}" fill="{_colours(run.style)[0]}"/>' if path else ""


def _glyphs(run: Run, y: int) -> str:
    if is_braille(run.text[0]):
        return _dots(run, y)
    shown = run.text.rstrip()
    lead = len(shown) - len(shown.lstrip())
    shown = shown.lstrip()
    style = run.style
    look = ' font-weight="bold"' if style.bold else ""
    look += ' font-style="italic"' if style.italic else ""
    look += ' text-decoration="underline"' if style.underline else ""
    left = MARGIN + (run.x + lead) * CELL_WIDTH
    if cell_len(shown) == 2 and len(shown) == 1:
        place = f'x="{left + CELL_WIDTH:g}" text-anchor="middle"'
    else:
        length = len(shown) * CELL_WIDTH
        place = f'x="{left:g}" textLength="{length:g}" lengthAdjust="spacingAndGlyphs"'
    return (
        f'<text {place} y="{MARGIN + y * CELL_HEIGHT + BASELINE:g}" xml:space="preserve" '
        f'fill="{_colours(style)[0]}"{look}>{escape(shown)}</text>'
    )


def picture(app: App[None], title: str = "Latency Wall") -> str:
    """The screen that `app` shows now, as an SVG document."""
    screen = app.screen
    strips = screen._compositor.render_strips(screen.size)
    return svg(strips, screen.size.width, title)


async def _take(keys: Sequence[str], session: Session, size: tuple[int, int]) -> str:
    from game.app import LatencyWallApp

    class Still(LatencyWallApp):
        """The game without its engine: a picture needs none."""

        def wake_engine(self) -> None:
            pass

    app = Still(session)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.5)
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.3)
        return picture(app)


@click.command()
@click.argument("keys", nargs=-1)
@click.option("--language", type=click.Choice(["zh", "en"]), default="en", show_default=True)
@click.option("--size", default="120x40", show_default=True, help="Columns x rows.")
@click.option("--home", type=click.Path(file_okay=False, path_type=Path), help="A data folder.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def main(keys: tuple[str, ...], language: str, size: str, home: Path | None, out: Path) -> None:
    """Open the game, press KEYS one after another, and draw what then stands on the screen.

    Without --home a traveller is made who has been nowhere yet.
    """
    from game.session import Session

    columns, _, rows = size.partition("x")
    if not (columns.isdigit() and rows.isdigit()):
        raise click.BadParameter(f"{size!r} is not a size; for example 120x40", param_hint="--size")
    with tempfile.TemporaryDirectory() as folder:
        session = Session.open(home or Path(folder))
        session.update_settings(language=language, reduced_motion=True)
        if session.profile is None:
            session.create_profile("林默" if language == "zh" else "Ada")
        document = asyncio.run(_take(keys, session, (int(columns), int(rows))))
    out.write_text(document, encoding="utf-8")
    click.echo(f"{out}: {len(document):,} bytes", err=True)


if __name__ == "__main__":
    main()
