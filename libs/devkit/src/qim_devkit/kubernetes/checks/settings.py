"""A settings class read from a container's environment instead of this process's."""

from __future__ import annotations

import functools
import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource

from qim_common.config import PREFIX, explain


def variables_of(cls: type[BaseSettings]) -> frozenset[str]:
    """The variables that a class reads."""
    return frozenset(f"{PREFIX}{name.upper()}" for name in cls.model_fields)


@functools.cache
def path_variables(cls: type[BaseSettings]) -> frozenset[str]:
    """Those that name a file."""
    return frozenset(
        f"{PREFIX}{name.upper()}" for name, field in cls.model_fields.items() if _names_path(field.annotation)
    )


def _names_path(annotation: object) -> bool:
    return annotation is Path or any(_names_path(part) for part in get_args(annotation))


@dataclass(frozen=True)
class Read:
    """What became of one class: the settings, or one line per variable at fault."""

    cls: type[BaseSettings]
    settings: BaseSettings | None
    lines: tuple[str, ...] = ()


def read(cls: type[BaseSettings], environment: Mapping[str, str], files: Mapping[str, bytes]) -> Read:
    """The settings in exactly this environment, with these files.

    Args:
        files: absolute path -> content. A path that is not among them names no file.
    """
    paths = path_variables(cls)
    mapped = {
        name: _path_here(value, files) if name in paths else value
        for name, value in environment.items()
        if name in variables_of(cls)
    }
    source = _Source(cls)
    source.env_vars = {name.lower(): value for name, value in mapped.items()}
    settings = cls.__new__(cls)
    try:
        # The class's own __init__ would read the environment of this process, too.
        BaseModel.__init__(settings, **source())
    except ValidationError as error:
        return Read(cls, None, tuple(explain(error)))
    return Read(cls, settings)


class _Source(EnvSettingsSource):
    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {}


def _path_here(path: str, files: Mapping[str, bytes]) -> str:
    content = files.get(path)
    return str(_directory() / "no-such-file") if content is None else str(_file(content))


def _file(content: bytes) -> Path:
    path = _directory() / hashlib.sha256(content).hexdigest()
    if not path.exists():
        path.write_bytes(content)
    return path


@functools.cache
def _keeper() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="qim-manifests-")


def _directory() -> Path:
    return Path(_keeper().name)


def value_of(found: Mapping[type[BaseSettings], Read], field: str) -> Any:
    """A field of whichever class has it; None where none has, or where its class is at fault."""
    for one in found.values():
        if one.settings is not None and field in type(one.settings).model_fields:
            return getattr(one.settings, field)
    return None
