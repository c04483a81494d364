"""Configuration: environment variables with the prefix `QIM_`, validated at start, with messages that say how to mend.

Each service has one settings class, made of what every server needs and of what some need. `load` reads it or ends the
process with one line per variable at fault.
"""

from qim_common.config.addresses import comma_list, split_listen
from qim_common.config.loading import EXIT_CODE, PREFIX, explain, load
from qim_common.config.services import (
    AdminSettings,
    ArchiverSettings,
    ProcessSettings,
    PushSettings,
    PushWebhookSettings,
    ServerSettings,
    SessionSettings,
    TokenSettings,
    WriterSettings,
)
from qim_common.config.stores import StoreSettings

__all__ = [
    "EXIT_CODE",
    "PREFIX",
    "AdminSettings",
    "ArchiverSettings",
    "ProcessSettings",
    "PushSettings",
    "PushWebhookSettings",
    "ServerSettings",
    "SessionSettings",
    "StoreSettings",
    "TokenSettings",
    "WriterSettings",
    "comma_list",
    "explain",
    "load",
    "split_listen",
]
