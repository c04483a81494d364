"""How the command lines are called from here, for hints that can be pasted into a terminal."""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path


def program(name: str) -> str:
    """The script `name` of this environment, relative to the working directory where it lies below it; quoted."""
    script = Path(sys.executable).parent / name
    with contextlib.suppress(ValueError):
        script = script.relative_to(Path.cwd())
    return shlex.quote(str(script))
