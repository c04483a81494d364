"""The typed asyncio client of qim: for gateways, operators, the command lines, load generators and tests.

`GatewayClient` acts for end users, `OperatorClient` for operators and back ends. Every call has a deadline, is repeated
with the same ids while that helps (`RetryPolicy`), and raises the `QimError` of the reason that the service answered.
docs/client.md shows it by example.
"""

from qim_client.actor import ActorClient
from qim_client.answers import (
    Conversation,
    ConversationPage,
    Explanation,
    FrozenDelivery,
    GroupCreated,
    GroupDetails,
    GroupRetention,
    HistoryPage,
    Left,
    MailboxEntry,
    MailboxPage,
    MemberPage,
    MembershipChanges,
    MembershipResult,
    MessagesFound,
    ReadMark,
    RetentionPage,
    SendOutcome,
    Sent,
    TimelinePage,
    VisibleRange,
)
from qim_client.attachment import Attachment
from qim_client.config import ClientConfig, ClientConfigError, GatewayProfile, OperatorProfile, TlsFiles
from qim_client.frames import FrameStream, LiveFrames
from qim_client.gateway import GatewayClient, actor
from qim_client.live_events import (
    Attached,
    Delivered,
    Detached,
    FlagsChanged,
    LiveEvent,
    ReadMarked,
    Resumed,
    ResyncRequired,
    StateChanged,
    StatesChanged,
)
from qim_client.operators import OperatorClient
from qim_client.retry import RetryPolicy
from qim_client.sending import SendStream
from qim_client.subscribing import Subscription
from qim_client.values import (
    DeviceCursor,
    Direction,
    GroupSettings,
    Member,
    MemberRole,
    MembershipChange,
    MembershipEvent,
    Message,
    Outgoing,
    SeqRange,
    StateEntry,
    Stay,
)
from qim_common.enums import LeaverHistory, MemberState, NewcomerPolicy, RejoinHistory
from qim_common.errors import QimError, Reason
from qim_common.ids import ConversationId, DeviceId, TenantId, UserId, uuid7

__all__ = [
    "ActorClient",
    "Attached",
    "Attachment",
    "ClientConfig",
    "ClientConfigError",
    "Conversation",
    "ConversationId",
    "ConversationPage",
    "Delivered",
    "Detached",
    "DeviceCursor",
    "DeviceId",
    "Direction",
    "Explanation",
    "FlagsChanged",
    "FrameStream",
    "FrozenDelivery",
    "GatewayClient",
    "GatewayProfile",
    "GroupCreated",
    "GroupDetails",
    "GroupRetention",
    "GroupSettings",
    "HistoryPage",
    "LeaverHistory",
    "Left",
    "LiveEvent",
    "LiveFrames",
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
    "OperatorProfile",
    "Outgoing",
    "QimError",
    "ReadMark",
    "ReadMarked",
    "Reason",
    "RejoinHistory",
    "Resumed",
    "ResyncRequired",
    "RetentionPage",
    "RetryPolicy",
    "SendOutcome",
    "SendStream",
    "Sent",
    "SeqRange",
    "StateChanged",
    "StateEntry",
    "StatesChanged",
    "Stay",
    "Subscription",
    "TenantId",
    "TimelinePage",
    "TlsFiles",
    "UserId",
    "VisibleRange",
    "actor",
    "uuid7",
]
