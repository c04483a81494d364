"""Every overlay, component and example is what the code reads, calls and demands; and what the checks know of the
programs is what their code says."""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings
from tests.support.manifests import PRODUCTION, ROOT, TARGETS, path_of, rendered

from qim_common.cassandra import CassandraSettings
from qim_common.config import StoreSettings, WriterSettings
from qim_common.identity import Role
from qim_common.roles import CALLERS, CallerKind
from qim_devkit.kubernetes.checks import Suite, calls, faults, programs
from qim_devkit.kubernetes.checks.calls import SERVED_BY
from qim_devkit.kubernetes.checks.environment import LEFT_AT_DEFAULT, NOTICED_ELSEWHERE
from qim_devkit.kubernetes.checks.programs import IMAGES, MAINTENANCE, PROGRAMS, SCHEMA, USER, Program, StoreKind
from qim_devkit.kubernetes.checks.settings import variables_of
from qim_devkit.kubernetes.targets import Target

PACKAGES = ("qim_writer", "qim_session", "qim_admin")
INSTALLATIONS = [target for target in (*TARGETS, PRODUCTION) if "examples" not in str(target.directory)]
DOCKERFILES = {
    "qim-writer": "services/writer/Dockerfile",
    "qim-session": "services/session/Dockerfile",
    "qim-push": "services/session/push.Dockerfile",
    "qim-admin": "services/admin/Dockerfile",
    "qimctl": "services/admin/qimctl.Dockerfile",
}


@pytest.mark.parametrize("target", [*TARGETS, PRODUCTION], ids=lambda target: target.title)
def test_no_manifest_differs_from_the_code(target: Target) -> None:
    assert [str(fault) for fault in faults(rendered(target))] == []


def test_production_runs_every_program_and_dev_the_three_services() -> None:
    def components(target: Target) -> set[str]:
        suite = Suite.of(rendered(target))
        return {process.program.component for process in suite.processes} | {store.kind for store in suite.stores}

    assert components(PRODUCTION) == {program.component for program in PROGRAMS} | set(StoreKind)
    assert components(Target(ROOT / "overlays/dev")) == {"writer", "session", "admin", StoreKind.COMMIT}


def test_what_is_left_at_its_default_is_a_setting_that_no_overlay_sets() -> None:
    read = frozenset[str]().union(
        *(variables_of(cls) for program in PROGRAMS for cls in (*program.settings, *program.tiered)),
        *(program.variables for program in PROGRAMS),
    )
    assert read >= LEFT_AT_DEFAULT
    assert read >= NOTICED_ELSEWHERE.keys()
    assert not LEFT_AT_DEFAULT & NOTICED_ELSEWHERE.keys()
    tls = {"QIM_CASSANDRA_TLS_CA_FILE"}  # components/cassandra-tls is there to set it
    for target in INSTALLATIONS:
        for process in Suite.of(rendered(target)).processes:
            assert not process.container.environment.keys() & (LEFT_AT_DEFAULT - tls), process.where


def test_a_setting_that_the_code_gains_is_a_fault_until_somebody_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gaining(WriterSettings):
        colour: str = "red"

    newer = dataclasses.replace(programs.WRITER, settings=(Gaining,))
    monkeypatch.setattr(
        programs, "PROGRAMS", tuple(newer if one is programs.WRITER else one for one in programs.PROGRAMS)
    )
    found = [str(fault) for fault in faults(rendered(PRODUCTION))]
    assert len(found) == 1
    assert found[0].startswith(
        "Deployment qim-writer, container writer: QIM_COLOUR is not set, and qim-writer reads it"
    )


def test_a_role_that_may_call_more_is_a_fault_until_a_policy_lets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"/qim.session.v1.Session/MarkRead": {Role.GATEWAY: CallerKind.ACTOR, Role.BACKEND: CallerKind.NONE}}
    monkeypatch.setattr(calls, "CALLERS", {**CALLERS, **more})
    found = [str(fault) for fault in faults(rendered(PRODUCTION))]
    assert len(found) == 1
    assert found[0].startswith("Deployment qim-session: calls from role backend at port 7402/TCP are closed")


def test_a_role_that_may_call_less_is_a_fault_until_no_policy_lets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    less = {method: roles for method, roles in CALLERS.items() if Role.BACKEND not in roles}
    monkeypatch.setattr(calls, "CALLERS", less)
    found = [str(fault) for fault in faults(rendered(PRODUCTION))]
    assert any(fault.startswith("NetworkPolicy qim-admin: calls from role backend at port 7403/TCP") for fault in found)


@pytest.mark.parametrize("image", IMAGES)
def test_images_run_the_program_and_the_user_that_the_manifests_count_on(image: str) -> None:
    path = path_of(DOCKERFILES[image])
    last = {name: value for name, _, value in (line.partition(" ") for line in path.read_text().splitlines())}
    assert json.loads(last["ENTRYPOINT"]) == [IMAGES[image]]
    assert last["USER"] == f"{USER}:{USER}"
    assert "CMD" not in last


def test_every_program_is_an_entry_point_and_every_entry_point_a_program() -> None:
    mine = {point.name for point in entry_points(group="console_scripts") if point.module.split(".")[0] in PACKAGES}
    assert {program.name for program in PROGRAMS} == mine


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.component)
def test_a_program_reads_the_settings_that_its_modules_load(program: Program) -> None:
    if program.name == SCHEMA.name:
        module = "qim_admin.cli_schema" if program is SCHEMA else "qim_writer.recovery_wiring"
    else:
        (point,) = (one for one in entry_points(group="console_scripts") if one.name == program.name)
        module = point.module
    loaded = {name for tree in reachable(module).values() for name in loads(tree)}
    known: set[type[BaseSettings]] = {*program.settings, *program.tiered}
    assert loaded == {cls.__name__ for cls in known}


@pytest.mark.parametrize(
    "program", [one for one in PROGRAMS if one not in (SCHEMA, MAINTENANCE)], ids=lambda program: program.component
)
def test_a_program_connects_to_the_stores_that_its_modules_name(program: Program) -> None:
    (point,) = (one for one in entry_points(group="console_scripts") if one.name == program.name)
    named = {
        node.attr
        for tree in reachable(point.module).values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
    }
    kinds = {StoreKind.COMMIT: "commit_addrs", StoreKind.SESSION: "session_addrs"}
    assert program.stores == {kind for kind, attribute in kinds.items() if attribute in named}


def test_stores_and_archive_are_read_together_or_not_at_all() -> None:
    for program in PROGRAMS:
        with_stores = any(issubclass(cls, StoreSettings) for cls in program.settings)
        assert with_stores == bool(program.stores), program
        assert CassandraSettings not in program.tiered or with_stores, program


def test_every_service_of_the_role_table_is_served_by_a_component_that_names_it() -> None:
    assert {method.split("/")[1] for method in CALLERS} == SERVED_BY.keys()
    for service, component in SERVED_BY.items():
        spec = find_spec(f"qim_{component}")
        assert spec is not None
        assert spec.origin is not None
        sources = Path(spec.origin).parent.rglob("*.py")
        name = service.rsplit(".", 1)[1]
        assert any(f"add_{name}Servicer_to_server" in source.read_text() for source in sources), service


@functools.cache
def reachable(module: str) -> Mapping[str, ast.Module]:
    """The modules of the services that a module imports, directly or not, itself among them."""
    found: dict[str, ast.Module] = {}
    left = [module]
    while left:
        name = left.pop()
        if name in found or name.split(".")[0] not in PACKAGES:
            continue
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            continue
        found[name] = ast.parse(Path(spec.origin).read_text())
        left += imported(found[name])
    return found


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if is_module(node.module, alias.name))


def is_module(package: str, name: str) -> bool:
    if package.split(".")[0] not in PACKAGES or not name.islower():
        return False
    try:
        return find_spec(f"{package}.{name}") is not None
    except ModuleNotFoundError:
        return False


def loads(tree: ast.Module) -> Iterator[str]:
    """The classes that `load(...)` is called with."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="load"), args=[ast.Name(id=name), *_]):
                yield name
