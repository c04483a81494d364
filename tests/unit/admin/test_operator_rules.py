"""What operators and back ends may ask: initiators, roles, people, pages; and the journal's line for every call."""

from __future__ import annotations

import pytest

from qim.admin.v1 import admin_pb2
from qim_admin.backends.log_journal import LogJournal
from qim_admin.domain.authority import LEAST_ROLE, principal_of, require_role
from qim_admin.domain.calls import OperatorCall
from qim_admin.domain.changes import ChangeAsked, ChangeKind, RemovedHistory, parse_change
from qim_admin.domain.groups import parse_page_size
from qim_common.bindings import OperatorRole
from qim_common.errors import InvalidArgument, RoleNotAllowed, TooManyItems
from qim_common.identity import Peer, PrincipalKind, Role
from qim_common.ids import ConversationId, TenantId

GROUP = ConversationId(b"\x02" + b"g" * 15)
ANA, BEN = b"a" * 16, b"b" * 16
OPERATOR = Peer("qim.local", Role.OPERATOR, "olga")
BACKEND = Peer("qim.local", Role.BACKEND, "shop")


def asked(
    user_ids: list[bytes],
    *,
    request_id: bytes = b"r" * 16,
    owner_user_id: bytes = b"",
    leaver_history: int = 0,
) -> ChangeAsked:
    return ChangeAsked(
        ChangeKind.ADD, 1, request_id, GROUP, user_ids, owner_user_id=owner_user_id, leaver_history=leaver_history
    )


def test_a_back_end_speaks_for_the_end_user_whom_it_names() -> None:
    principal = principal_of(BACKEND, TenantId(1), ANA)
    assert (principal.kind, principal.name, principal.initiator) == (PrincipalKind.BACKEND, "shop", ANA)


def test_an_operator_speaks_for_nobody() -> None:
    assert principal_of(OPERATOR, TenantId(1), b"").initiator is None
    with pytest.raises(InvalidArgument, match="initiator_user_id: may be named by a back end only"):
        principal_of(OPERATOR, TenantId(1), ANA)


def test_an_initiator_is_an_id() -> None:
    with pytest.raises(InvalidArgument, match="initiator_user_id"):
        principal_of(BACKEND, TenantId(1), b"short")


def test_a_gateway_is_no_principal() -> None:
    with pytest.raises(RoleNotAllowed):
        principal_of(Peer("qim.local", Role.GATEWAY, "g"), TenantId(1), b"")


READ = {"GetGroup", "ListMembers", "GroupTimeline", "ExplainVisibility"}
MODERATE = READ | {"AddMembers", "RemoveMembers", "ClearGroupHistory", "FreezeGroup", "RunRetention"}
ALL = MODERATE | {"UpdateGroupSettings", "TransferOwnership"}


@pytest.mark.parametrize(
    ("caller", "roles", "may"),
    [
        (OPERATOR, frozenset({OperatorRole.ADMIN}), ALL),
        (OPERATOR, frozenset({OperatorRole.MODERATOR}), MODERATE),
        (OPERATOR, frozenset({OperatorRole.VIEWER}), READ),
        (OPERATOR, frozenset({OperatorRole.VIEWER, OperatorRole.MODERATOR}), MODERATE),
        (OPERATOR, frozenset[OperatorRole](), set[str]()),
        (BACKEND, frozenset[OperatorRole](), ALL),
    ],
)
def test_who_may_ask_for_what(caller: Peer, roles: frozenset[OperatorRole], may: set[str]) -> None:
    def allowed(method: str) -> bool:
        try:
            require_role(method, caller, roles)
        except RoleNotAllowed:
            return False
        return True

    assert {method for method in LEAST_ROLE if allowed(method)} == may


def test_a_refusal_names_the_roles_that_would_do() -> None:
    with pytest.raises(RoleNotAllowed, match=r"FreezeGroup is not for operator olga: .* moderator, admin"):
        require_role("FreezeGroup", OPERATOR, frozenset({OperatorRole.VIEWER}))


def test_a_dry_run_is_for_everybody_with_a_role() -> None:
    require_role("RunRetention", OPERATOR, frozenset({OperatorRole.VIEWER}), dry_run=True)
    with pytest.raises(RoleNotAllowed):
        require_role("RunRetention", OPERATOR, frozenset({OperatorRole.VIEWER}))
    with pytest.raises(RoleNotAllowed):
        require_role("RunRetention", OPERATOR, frozenset(), dry_run=True)


def test_every_method_that_is_served_has_its_least_role() -> None:
    methods = set(admin_pb2.DESCRIPTOR.services_by_name["GroupAdmin"].methods_by_name)
    assert methods - set(LEAST_ROLE) == {"FindGroups"}


def test_people_stay_in_call_order() -> None:
    change = parse_change(asked([BEN, ANA], owner_user_id=ANA), GROUP)
    assert (change.people, change.owner, change.leaver_history) == ((BEN, ANA), ANA, RemovedHistory.GROUP_SETTING)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (asked([]), "user_ids"),
        (asked([ANA, b"short"]), "user_ids[1]"),
        (asked([bytes(16)]), "user_ids[0]"),
        (asked([ANA], request_id=b""), "request_id"),
        (asked([ANA], owner_user_id=BEN), "owner_user_id"),
        (asked([ANA], owner_user_id=b"x"), "owner_user_id"),
        (asked([ANA], leaver_history=9), "leaver_history"),
    ],
)
def test_a_bad_field_is_named(change: ChangeAsked, field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_change(change, GROUP)
    assert refused.value.violations[0].field == field


def test_a_thousand_people_and_no_more() -> None:
    people = [number.to_bytes(16, "big") for number in range(1, 1002)]
    assert len(parse_change(asked(people[:1000]), GROUP).people) == 1000
    with pytest.raises(TooManyItems):
        parse_change(asked(people), GROUP)


@pytest.mark.parametrize("size", [0, 1001])
def test_pages_have_1_to_1000_rows(size: int) -> None:
    with pytest.raises(InvalidArgument, match="page_size"):
        parse_page_size(size)


def test_the_journal_writes_who_what_and_the_outcome_but_nothing_that_a_caller_typed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", logger="qim_admin.journal"):
        LogJournal().record(
            OperatorCall("AddMembers", OPERATOR, 1, b"\nforged line", people=2, outcome="INVALID_ARGUMENT")
        )
    (record,) = caplog.records
    fields = vars(record)
    assert fields["caller"] == "spiffe://qim.local/qim/operator/olga"
    assert (fields["action"], fields["people"], fields["outcome"]) == ("AddMembers", 2, "INVALID_ARGUMENT")
    assert fields["group"] == "(12 bytes)"
