"""The names of a chat: from the book of the other commands, which may be written meanwhile."""

from __future__ import annotations

from pathlib import Path

from tests.support.chat_feed import ANA, BEN, HIKERS

from qim_client.namebook import NameBook
from qim_common.ids import TenantId, direct_conversation_id
from qim_devkit.chat.names import BookNames

TENANT = TenantId(1)


def learn(path: Path, *people: str, group: str = "hikers") -> None:
    book = NameBook(path)
    for name in people:
        book.user(name)
    book.group(group)
    book.save()


def test_names_of_people_groups_and_direct_conversations(tmp_path: Path) -> None:
    learn(tmp_path / "names.json", "ana", "ben")
    names = BookNames(tmp_path / "names.json", TENANT, ANA)
    assert (names.person(BEN), names.conversation(HIKERS)) == ("ben", "hikers")
    assert names.conversation(direct_conversation_id(TENANT, ANA, BEN)) == "@ben"


def test_an_id_without_a_name_is_shortened_until_another_command_learns_it(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    names = BookNames(path, TENANT, ANA)
    assert names.person(BEN) == f"{BEN.hex()[:8]}…"
    learn(path, "ben")
    assert names.person(BEN) == "ben"


def test_a_damaged_book_leaves_the_names_known_so_far(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    learn(path, "ben")
    names = BookNames(path, TENANT, ANA)
    assert names.person(BEN) == "ben"
    path.write_text("{")
    assert names.person(BEN) == "ben"
