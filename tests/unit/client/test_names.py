"""Names that stand for ids: what they derive, and what is no name."""

from __future__ import annotations

import pytest
from blake3 import blake3

from qim_client import names
from qim_client.names import NameKind
from qim_common.errors import InvalidArgument
from qim_common.ids import TenantId, direct_conversation_id, show

ANA = "16d153a5-2ca1-a8ee-51ab-fc8a2d6f41c8"


def test_a_name_derives_the_same_id_for_ever() -> None:
    assert show(names.user_id("ana")) == ANA
    assert names.user_id("ana") == blake3(b"qim.dev-name.v1\0user\0ana").digest(16)


def test_a_group_name_derives_a_group_id_of_its_own() -> None:
    group = names.group_id("ana")
    assert group[0] == 2
    assert group[1:] != names.user_id("ana")[1:]


def test_upper_case_composed_form_and_spaces_around_are_the_same_name() -> None:
    assert names.user_id(" Ana ") == names.user_id("ana")
    assert names.user_id("Zoe\u0308") == names.user_id("zo\u00eb")


def test_a_uuid_is_taken_as_it_is() -> None:
    assert show(names.user_id(ANA.upper())) == ANA


@pytest.mark.parametrize("text", ["", "   ", "@ana", "-ana", "a" * 65, "a\nb", "a\x1b[31mb"])
def test_what_is_no_name_is_refused_naming_the_field(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^INVALID_ARGUMENT: person: "):
        names.user_id(text, "person")


def test_the_uuid_of_another_kind_is_no_group() -> None:
    with pytest.raises(InvalidArgument, match="first byte"):
        names.group_id("01000000-0000-0000-0000-000000000001")


def test_a_uuid_that_is_all_zero_is_nobody() -> None:
    with pytest.raises(InvalidArgument, match="all zero"):
        names.user_id("00000000-0000-0000-0000-000000000000")


def test_an_at_sign_means_the_direct_conversation() -> None:
    tenant, me, ben = TenantId(1), names.user_id("ana"), names.user_id("ben")
    assert names.conversation_id("@ben", tenant, me) == direct_conversation_id(tenant, me, ben)
    assert names.conversation_id("hikers", tenant, me) == names.group_id("hikers")


def test_each_kind_has_ids_of_its_own() -> None:
    assert len({names.derived_id(kind, "ana")[1:] for kind in NameKind}) == 3
