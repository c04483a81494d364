"""Two of the demo's pictures as one SVG, for README."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final

from rich.console import Console

from qim_devkit.demo.chapter import ALL_STAYS
from qim_devkit.demo.pictures import Pictures
from qim_devkit.demo.play import Performance

COLUMNS: Final = 100

# rich's own template names fonts on the web; a picture in a repository should need nothing.
_FORMAT: Final = """<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 {width} {height}">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
 white-space: pre; font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
<rect width="{width}" height="{height}" rx="8" fill="#292929"/>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def save_poster(performance: Performance, path: Path) -> None:
    """Draw the plain member table and qim's answer, as they were found, into `path`."""
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False, emoji=False, markup=False
    )
    pictures = Pictures(performance.played, width=COLUMNS, ascii_only=False)
    play = next(play for play in performance.played if play.policy == ALL_STAYS)
    console.print(pictures.of_table(play))
    console.print(pictures.of_policy(play))
    path.write_text(console.export_svg(title="make demo", code_format=_FORMAT, unique_id="qim"), encoding="utf-8")
