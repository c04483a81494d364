"""Settings from the environment, or the end of the process with one line per variable at fault."""

import sys
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings

PREFIX: Final = "QIM_"
EXIT_CODE: Final = 2
_Settings = TypeVar("_Settings", bound=BaseSettings)


def load(cls: type[_Settings], **overrides: Any) -> _Settings:
    """The settings from the environment, `overrides` before it.

    On a fault: one line on stderr per variable (name, what is wrong, how to mend it), then exit code 2. The value
    itself is not repeated, it may be a password.
    """
    try:
        return cls(**overrides)
    except ValidationError as error:
        lines = "\n".join(f"  {line}" for line in explain(error))
        print(f"qim cannot start with this configuration:\n{lines}", file=sys.stderr)
        raise SystemExit(EXIT_CODE) from None


def explain(error: ValidationError) -> list[str]:
    """One line per variable at fault."""
    return sorted({_line(fault) for fault in error.errors(include_url=False, include_input=False)})


def _line(fault: ErrorDetails) -> str:
    if not fault["loc"]:
        return fault["msg"]
    name = PREFIX + str(fault["loc"][0]).upper()
    match fault["type"]:
        case "missing":
            return f"{name}: is not set; set it (docs/configuration.md)"
        case "path_not_file":
            return f"{name}: names no file; check the path, `make up` writes development files under .qim/"
        case "string_pattern_mismatch":
            return f"{name}: has a form that is not taken; it must match {fault['ctx']['pattern']}"
        case _:
            return f"{name}: {fault['msg']}"
