"""What an import was asked to do, and where it takes up: a new cursor, or the one of an interrupted run."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from qim_client import GroupSettings
from qim_client.words import newcomer_words
from qim_devkit.importing.cursor import Cursor, CursorError, CursorFile
from qim_devkit.importing.lines import Survey, digest


@dataclass(frozen=True, slots=True)
class Plan:
    """The group and how it is created; `group` and `owner` as they were typed."""

    tenant: int
    group: str
    owner: str
    settings: GroupSettings

    def by_option(self) -> Mapping[str, str]:
        """What a resumed import has to ask for again, under the options' names."""
        return {
            "--tenant": str(self.tenant),
            "--group": self.group,
            "--owner": self.owner,
            "--newcomer": newcomer_words(self.settings.newcomer, self.settings.last_n),
            "--rejoin": self.settings.rejoin.name.lower(),
            "--leaver": self.settings.leaver.name.lower(),
        }


def take_up(file: CursorFile, plan: Plan, history: Path, survey: Survey, *, renew_ids: bool) -> Cursor:
    """Where the import stands: behind the last answered line of an interrupted run, or at the beginning.

    Args:
        renew_ids: the line at which it stands was not carried out, so that it may have an id that nobody has seen.

    Raises:
        CursorError: the cursor is of another history, or was begun with other options.
        ImportFileError: the history cannot be read.
    """
    now = int(time.time() * 1000)
    cursor = file.cursor
    if cursor is None:
        return Cursor(secrets.token_hex(16), now, plan.by_option(), survey.size, survey.digest)
    for option, value in plan.by_option().items():
        if (before := cursor.plan.get(option)) != value:
            raise CursorError(
                f"{file.path}: this import was begun with {option} {before}, not {value}; name another "
                "cursor file to begin another import"
            )
    if digest(history, cursor.size) != cursor.digest:
        raise CursorError(f"{file.path}: this import was begun with another history; it may only have grown since")
    cursor = replace(cursor, size=survey.size, digest=survey.digest)
    return replace(cursor, ids_ms=now) if renew_ids else cursor
