"""README's picture of two chats side by side: `python -m qim_devkit.chat.poster docs/chat.svg`."""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
from pathlib import Path
from typing import Final

from qim_devkit.chat.story import Window, tell, town
from qim_devkit.demo.staging import on_suite
from qim_devkit.suite import Suite

GAP: Final = 24
FONTS: Final = 'ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace'

_FONT_FACE: Final = re.compile(r"@font-face\s*\{[^}]*\}")
_FONT_FAMILY: Final = re.compile(r"font-family:[^;]*;")
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_OPENING: Final = re.compile(r'<svg[^>]*viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*>')


def side_by_side(pictures: list[str]) -> str:
    """One SVG of several that rich exported, without its fonts on the web: a picture in a repository needs nothing.

    Raises ValueError where one of them is no such picture, or would still load something.
    """
    drawn: list[str] = []
    left = height = 0.0
    for picture in pictures:
        plain = _FONT_FAMILY.sub(
            f"font-family: {FONTS}; white-space: pre;", _FONT_FACE.sub("", _COMMENT.sub("", picture))
        )
        opening = _OPENING.search(plain)
        if opening is None:
            raise ValueError("no picture that rich exported")
        width, own_height = float(opening[1]), float(opening[2])
        place = f'<svg x="{left:g}" width="{width:g}" height="{own_height:g}" viewBox="0 0 {width:g} {own_height:g}">'
        drawn.append(place + plain[opening.end() :].strip())
        left, height = left + width + GAP, max(height, own_height)
    lines = "\n".join(drawn).replace("rgba(255,255,255,0.35)", "#555555")
    trimmed = "\n".join(line.rstrip() for line in lines.splitlines() if line.strip())
    whole = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 {left - GAP:g} {height:g}">\n'
        f"{trimmed}\n</svg>\n"
    )
    if re.search(r"url\((?!#)|href=|@import", whole):
        raise ValueError("the picture would load something")
    return whole


async def _pictures() -> list[str]:
    pictures: list[str] = []

    async def draw(*windows: Window) -> None:
        pictures.extend([await _screenshot(window) for window in windows])

    with tempfile.TemporaryDirectory(prefix="qim-chat-") as directory:
        suite = Suite(Path(directory) / "suite")

        async def play() -> None:
            async with town(suite) as there:
                await tell(there, draw)

        await on_suite(suite, play)
    return pictures


async def _screenshot(window: Window) -> str:
    window.app.screen.set_focus(None)  # without the blinking cursor
    await window.pilot.pause()
    return window.app.export_screenshot(title=window.title)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m qim_devkit.chat.poster", description="README's picture of chats.")
    parser.add_argument("path", type=Path, metavar="FILE", help="where to draw it, such as docs/chat.svg")
    target: Path = parser.parse_args().path
    target.write_text(side_by_side(asyncio.run(_pictures())), encoding="utf-8")
