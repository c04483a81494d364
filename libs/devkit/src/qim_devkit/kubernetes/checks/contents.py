"""Files that somebody edits: a process takes what is in them, as its own code reads it.

Only what the manifests hold can be looked at; Secrets that are made elsewhere are taken for right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from qim_common.bindings import BindingsDocument, BindingsError
from qim_common.tokens import TokenKeyError, parse_keys
from qim_devkit.kubernetes.checks.fault import Fault
from qim_devkit.kubernetes.checks.suite import Process, Suite

READERS: Final[Mapping[str, Callable[[bytes], object]]] = {
    "QIM_BINDINGS_FILE": lambda content: BindingsDocument.parse(content, "the bindings"),
    "QIM_TOKEN_KEY_FILE": lambda content: parse_keys(content, "the token keys"),
}
"""Variable that names a file -> what reads it, and raises for what it does not take."""


def faults(suite: Suite) -> list[Fault]:
    """Contents that no process would start with."""
    return [fault for process in suite.processes for fault in _of(process)]


def _of(process: Process) -> list[Fault]:
    found = []
    for variable, reader in READERS.items():
        path = process.container.environment.get(variable, "") if variable in process.variables else ""
        if path not in process.container.files:
            continue
        try:
            reader(process.container.files[path])
        except (BindingsError, TokenKeyError) as error:
            found.append(Fault(process.where, f"{variable}: {error}", "the process would not start with it"))
    return found
