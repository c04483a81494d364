"""`python -m qim_devkit.kubernetes.check`, which `make k8s-check` runs: manifests, as everything that reads them does.

Renders each target and compares it with the published schemas of two versions of Kubernetes, with what the code reads
and calls (qim_devkit.kubernetes.checks), and with a real API server that is started for it. Prints a line for each step
and one for each fault. Exit code 0 when all agree, 1 when one does not, 2 when nothing could be checked.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from qim_devkit.kubernetes import checks
from qim_devkit.kubernetes.apiserver import ApiServer, ApiServerError
from qim_devkit.kubernetes.checks.suite import COMPONENT
from qim_devkit.kubernetes.dry_run import dry_run
from qim_devkit.kubernetes.pods import pod_template, workloads
from qim_devkit.kubernetes.render import Manifests, RenderError
from qim_devkit.kubernetes.schemas import VERSIONS, check_schemas
from qim_devkit.kubernetes.targets import Target, targets_below
from qim_devkit.kubernetes.tools import KubernetesToolMissing, find_kubectl, kubernetes_version
from qim_devkit.protos import repository_root

_NAME_WIDTH: Final = 22


@dataclass(frozen=True, slots=True)
class Step:
    """One way to look at a target.

    Attributes:
        name: of the step.
        counts: what it found, in words.
        faults: what is wrong, one line each.
    """

    name: str
    counts: str
    faults: tuple[str, ...] = ()


def steps(target: Target, server: ApiServer | None, *, code: bool | None = None) -> Iterator[Step]:
    """Look at a target; the first step renders it, and is the only one where that fails.

    Args:
        server: takes part where there is one.
        code: whether to compare with the code; by default where a writer runs, which is not so in every example.

    Raises:
        ApiServerError: the server does not answer.
        KubernetesToolMissing: there is no kubectl.
    """
    try:
        manifests = target.render()
    except RenderError as error:
        yield Step("kustomize", "refused", tuple(line.strip() for line in str(error).splitlines() if line.strip()))
        return
    yield Step("kustomize", _counted(len(manifests.documents), "object"))
    yield from (_schemas(manifests, version) for version in VERSIONS)
    if _is_suite(manifests) if code is None else code:
        faults = tuple(map(str, checks.faults(manifests)))
        yield Step("the code", _counted(len(list(workloads(manifests))), "workload"), faults)
    if server is not None:
        yield _dry_run(manifests, server)


def _is_suite(manifests: Manifests) -> bool:
    pods = (pod_template(workload).get("metadata", {}) for workload in workloads(manifests))
    return any((pod.get("labels") or {}).get(COMPONENT) == "writer" for pod in pods)


def _schemas(manifests: Manifests, version: str) -> Step:
    report = check_schemas(manifests.documents, version)
    counts = f"{report.checked} checked"
    if report.uncovered:
        kinds = sorted({name.partition("/")[0] for name in report.uncovered})
        counts += f", {len(report.uncovered)} not covered ({', '.join(kinds)}: of operators)"
    return Step(f"schemas {version}", counts, tuple(map(str, report.faults)))


def _dry_run(manifests: Manifests, server: ApiServer) -> Step:
    report = dry_run(server, manifests.documents)
    counts = f"{report.accepted} accepted"
    if report.unknown:
        counts += f", {len(report.unknown)} not tried, no CRD here (--crds): {', '.join(report.unknown)}"
    return Step(f"API server {kubernetes_version()}", counts, report.faults)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def check(
    overlay: Annotated[
        list[Path] | None, typer.Option(help="Check this directory, such as an overlay of your own; may be repeated.")
    ] = None,
    crds: Annotated[
        list[Path] | None, typer.Option(help="CRDs of an operator, a file or directory: check its kinds by them.")
    ] = None,
    server: Annotated[
        bool, typer.Option(help="Ask a real API server, which is built with Go the first time (minutes).")
    ] = True,
) -> None:
    """Check Kubernetes manifests against schemas, the code and a real API server; by default all below deploy/k8s."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    targets = [Target(one) for one in overlay or ()] or targets_below(repository_root() / "deploy" / "k8s")
    began = time.monotonic()
    try:
        find_kubectl()
        with _server(console, crds or (), wanted=server) as running:
            faults = sum(_shown(console, target, running, code=True if overlay else None) for target in targets)
    except (KubernetesToolMissing, ApiServerError) as error:
        console.print(f"k8s-check: {error}")
        raise typer.Exit(2) from None
    if not targets:
        console.print("k8s-check: there is nothing to check")
        raise typer.Exit(2)
    seconds = time.monotonic() - began
    result = _counted(faults, "fault") if faults else "no fault"
    console.print(f"k8s-check: {_counted(len(targets), 'target')}, {result}; {seconds:.1f} s")
    raise typer.Exit(1 if faults else 0)


@contextlib.contextmanager
def _server(console: Console, crds: Sequence[Path], *, wanted: bool) -> Iterator[ApiServer | None]:
    """A running server; None, after saying why, where there is none. In CI that is an error."""
    if not wanted:
        console.print("API server: skipped (--no-server)")
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            running = stack.enter_context(ApiServer())
        except KubernetesToolMissing as error:
            if os.environ.get("CI"):
                raise
            console.print(f"API server: skipped, {error}")
            yield None
            return
        for path in crds:
            running.install(path)
        yield running


def _shown(console: Console, target: Target, server: ApiServer | None, *, code: bool | None) -> int:
    """Print what a target's steps say; the number of faults."""
    console.print(target.title)
    number = 0
    for step in steps(target, server, code=code):
        console.print(f"  {step.name:<{_NAME_WIDTH}}{step.counts}")
        for fault in step.faults:
            console.print(f"    FAULT {fault}")
        number += len(step.faults)
    return number


def main() -> None:
    """The command line."""
    typer.run(check)


if __name__ == "__main__":
    main()
