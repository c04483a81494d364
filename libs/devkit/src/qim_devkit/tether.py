"""Ends a child process when its supervisor ends, however that ends: no orphan keeps a port or a data directory.

A tethered command is started through this file, which asks the kernel for the signal (Linux, PR_SET_PDEATHSIG) and then
becomes the command, under the same process id. On other systems it only becomes the command: a supervisor that is
killed there leaves its children behind, and the next start finds their ports taken.

The kernel watches the thread that started the child, so tethered children are started from a thread that lives as long
as they do. SIGKILL is safe: qim and its store are built to survive it.

This file is run as a script without site-packages, to start in a few milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def tethered(command: Sequence[str]) -> list[str]:
    """The command that runs `command` (an absolute path and its arguments) and ends with this process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main(arguments: Sequence[str]) -> None:
    """Become the command in `arguments[1:]`, tethered to the process `arguments[0]`."""
    supervisor, *command = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != int(supervisor):
            raise SystemExit(f"the supervisor {supervisor} has ended")
    os.execv(command[0], command)  # noqa: S606 - becoming the command is the purpose


if __name__ == "__main__":
    main(sys.argv[1:])
