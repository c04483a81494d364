"""Programs of the project as processes, and how they ended."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODULES = {"qim": "qim_devkit.cli", "qimctl": "qim_admin.cli", "qim-archiver": "qim_writer.archiver_main"}
SECONDS = 30


@dataclass(frozen=True)
class Ended:
    """What a run left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of stdout, each stretch of spaces as one."""
        return [" ".join(line.split()) for line in self.out.splitlines()]

    @property
    def json(self) -> Any:
        """Stdout as one JSON document."""
        return json.loads(self.out)


async def run_program(
    program: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    stdin: str = "",
    columns: int = 200,
) -> Ended:
    """Run one of `MODULES` to its end; `environment` beside this process's, without its QIM_CONFIG."""
    inherited = {name: value for name, value in os.environ.items() if name != "QIM_CONFIG"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        MODULES[program],
        *arguments,
        cwd=directory,
        env={**inherited, "COLUMNS": str(columns), **(environment or {})},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(stdin.encode()), SECONDS)
    return Ended(process.returncode or 0, out.decode(), err.decode())
