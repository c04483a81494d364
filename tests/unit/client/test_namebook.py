"""The names seen so far: remembered, merged, and no harm when the file is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from qim_client.namebook import NameBook
from qim_client.names import user_id
from qim_common.errors import InvalidArgument
from qim_common.ids import TenantId, show

TENANT = TenantId(1)


def test_what_was_typed_is_shown_as_a_name_later(tmp_path: Path) -> None:
    path = tmp_path / "new" / "names.json"
    book = NameBook(path)
    ben, hikers = book.user("Ben"), book.group("hikers")
    book.save()
    again = NameBook(path)
    assert again.show_user(ben) == "Ben"
    assert again.show_conversation(hikers, TENANT) == "hikers"


def test_ids_that_nobody_named_are_shown_as_uuids() -> None:
    book, stranger = NameBook(), user_id("stranger")
    assert book.show_user(stranger) == show(stranger)
    assert book.user(show(stranger)) == stranger
    assert book.show_user(stranger) == show(stranger)


def test_a_direct_conversation_is_shown_as_the_other_person() -> None:
    book = NameBook()
    ana = book.user("ana")
    conversation, peer = book.conversation("@ben", TENANT, ana)
    assert peer == user_id("ben")
    assert book.show_conversation(conversation, TENANT, ana) == "@ben"
    assert book.show_conversation(conversation, TENANT) == show(conversation)


def test_two_processes_keep_each_others_names(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    one, other = NameBook(path), NameBook(path)
    ana, ben = one.user("ana"), other.user("ben")
    one.save()
    other.save()
    book = NameBook(path)
    assert (book.show_user(ana), book.show_user(ben)) == ("ana", "ben")


@pytest.mark.parametrize("content", ["", "[]", '{"users": 1, "groups": {}}', '{"users": {}}', "\xff"])
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, content: str) -> None:
    path = tmp_path / "names.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(InvalidArgument, match=r"names\.json.*delete it"):
        NameBook(path)


def test_nothing_is_written_when_nothing_is_new(tmp_path: Path) -> None:
    NameBook(tmp_path / "names.json").save()
    assert list(tmp_path.iterdir()) == []
