"""The typed asyncio client of qim: for gateways, operators, the command lines, load generators and tests.

`GatewayClient` acts for end users, `OperatorClient` for operators and back ends. Every call has a deadline, is repeated
with the same ids while that helps (`RetryPolicy`), and raises the `QimError` of the reason that the service answered.
"""

from qim_client.actor import ActorClient
from qim_client.answers import (
    Conversation,
    ConversationPage,
    Explanation,
    FrozenDelivery,
    GroupCreated,
    GroupDetails,
    HistoryPage,
    Left,
    MailboxEntry,
    MailboxPage,
    MemberPage,
    MembershipChanges,
    MembershipResult,
    MessagesFound,
    ReadMark,
    SendOutcome,
    Sent,
    TimelinePage,
    VisibleRange,
)
from qim_client.frames import FrameStream
from qim_client.gateway import GatewayClient, actor
from qim_client.operators import OperatorClient
from qim_client.retry import RetryPolicy
from qim_client.sending import SendStream
from qim_client.values import (
    DeviceCursor,
    Direction,
    GroupSettings,
    LeaverHistory,
    Member,
    MemberRole,
    MembershipChange,
    MembershipEvent,
    MemberState,
    Message,
    NewcomerPolicy,
    Outgoing,
    RejoinHistory,
    SeqRange,
    StateEntry,
    Stay,
)

__all__ = [
    "ActorClient",
    "Conversation",
    "ConversationPage",
    "DeviceCursor",
    "Direction",
    "Explanation",
    "FrameStream",
    "FrozenDelivery",
    "GatewayClient",
    "GroupCreated",
    "GroupDetails",
    "GroupSettings",
    "HistoryPage",
    "LeaverHistory",
    "Left",
    "MailboxEntry",
    "MailboxPage",
    "Member",
    "MemberPage",
    "MemberRole",
    "MemberState",
    "MembershipChange",
    "MembershipChanges",
    "MembershipEvent",
    "MembershipResult",
    "Message",
    "MessagesFound",
    "NewcomerPolicy",
    "OperatorClient",
    "Outgoing",
    "ReadMark",
    "RejoinHistory",
    "RetryPolicy",
    "SendOutcome",
    "SendStream",
    "Sent",
    "SeqRange",
    "StateEntry",
    "Stay",
    "TimelinePage",
    "VisibleRange",
    "actor",
]
