"""Live streams: attachments, what they get from the logs, and how they catch up (docs/decisions/0011)."""
