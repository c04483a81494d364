"""Logs, metrics and traces: set up in one place, named in one place."""
