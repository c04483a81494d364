"""The names seen so far on a developer's machine, so that ids in answers can be shown as names.

A file of JSON, `{"users": {UUID: name}, "groups": {UUID: name}}`. It is a convenience: without it ids are shown as
UUIDs. It is replaced as a whole, so a reader never meets half of it; of two writers at once the later one wins.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from qim_client import names
from qim_common.errors import InvalidArgument
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId, direct_conversation_id, show

FILE_NAME = "names.json"


class NameBook:
    """Names by id, and ids by what a developer types, which is remembered until `save`.

    `path` None keeps everything in memory. A file that cannot be read raises InvalidArgument naming it.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._users, self._groups = _read(path)
        self._changed = False

    def user(self, text: str, field: str = "user") -> UserId:
        """The person that was typed, by UUID or name. Raises InvalidArgument naming `field`."""
        user = names.user_id(text, field)
        if names.as_uuid(text) is None:
            self._remember(self._users, show(user), names.parse_name(text, field))
        return user

    def group(self, text: str, field: str = "group") -> ConversationId:
        """The group that was typed, by UUID or name. Raises InvalidArgument naming `field`."""
        group = names.group_id(text, field)
        if names.as_uuid(text) is None:
            self._remember(self._groups, show(group), names.parse_name(text, field))
        return group

    def device(self, text: str, field: str = "device") -> DeviceId:
        """The device that was typed, by UUID or name. Raises InvalidArgument naming `field`."""
        return names.device_id(text, field)

    def conversation(
        self, text: str, tenant: TenantId, me: UserId, field: str = "conversation"
    ) -> tuple[ConversationId, UserId | None]:
        """The conversation that was typed, and the other person when it was typed as `@PERSON`.

        Raises InvalidArgument naming `field`.
        """
        if text.startswith(names.DIRECT_PREFIX):
            peer = self.user(text[1:], field)
            return direct_conversation_id(tenant, me, peer), peer
        if names.as_uuid(text) is None:
            return self.group(text, field), None
        return names.conversation_id(text, tenant, me, field), None

    def show_user(self, user: bytes) -> str:
        """The person's name, or the UUID."""
        shown = show(user)
        return self._users.get(shown, shown)

    def show_conversation(self, conversation: bytes, tenant: TenantId, me: UserId | None = None) -> str:
        """The group's name; `@PERSON` for a direct conversation of `me` with somebody known; else the UUID."""
        shown = show(conversation)
        if shown in self._groups:
            return self._groups[shown]
        for user, name in self._users.items() if me is not None else ():
            raw = names.as_uuid(user)
            if raw and me and direct_conversation_id(tenant, me, UserId(raw)) == conversation:
                return names.DIRECT_PREFIX + name
        return shown

    def save(self) -> None:
        """Write what is new, together with what other processes have written meanwhile."""
        if self._path is None or not self._changed:
            return
        users, groups = _read(self._path)
        document = {"users": {**users, **self._users}, "groups": {**groups, **self._groups}}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(document, file, ensure_ascii=False, indent=1, sort_keys=True)
        Path(temporary).replace(self._path)
        self._changed = False

    def _remember(self, known: dict[str, str], shown: str, name: str) -> None:
        if shown not in known:
            known[shown] = name
            self._changed = True


def _read(path: Path | None) -> tuple[dict[str, str], dict[str, str]]:
    if path is None or not path.exists():
        return {}, {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return _texts(document["users"]), _texts(document["groups"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InvalidArgument(str(path), "is not a book of names; delete it, it is made anew") from None


def _texts(section: Mapping[str, object]) -> dict[str, str]:
    return {key: value for key, value in section.items() if isinstance(value, str) and names.as_uuid(key)}
