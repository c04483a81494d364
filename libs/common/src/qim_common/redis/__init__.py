"""The connection to Redis or Valkey that the commit path needs, and the checks before an instance may be used.

`Instance` is what services hold; `Script`, `run` and `submit` call Lua; `check_instance` and `verify_topology` refuse
an instance that is unsafe or in the wrong place.
"""

from qim_common.redis.address import AddressError, RedisAddress
from qim_common.redis.connection import Argument, Connection, checked
from qim_common.redis.errors import (
    ConnectionLost,
    Demoted,
    FencedInstance,
    HandshakeRefused,
    NoScript,
    RedisUnavailable,
    ReplyError,
    StartRefused,
    TopologyMismatch,
    UnsafeRedis,
    UnusableFile,
)
from qim_common.redis.fingerprint import Fingerprint, Role, read_fingerprint, verify_topology
from qim_common.redis.instance import Hook, Instance
from qim_common.redis.safety import check_instance
from qim_common.redis.scripts import Script, ScriptLoader, load_script, run, submit

__all__ = [
    "AddressError",
    "Argument",
    "Connection",
    "ConnectionLost",
    "Demoted",
    "FencedInstance",
    "Fingerprint",
    "HandshakeRefused",
    "Hook",
    "Instance",
    "NoScript",
    "RedisAddress",
    "RedisUnavailable",
    "ReplyError",
    "Role",
    "Script",
    "ScriptLoader",
    "StartRefused",
    "TopologyMismatch",
    "UnsafeRedis",
    "UnusableFile",
    "check_instance",
    "checked",
    "load_script",
    "read_fingerprint",
    "run",
    "submit",
    "verify_topology",
]
