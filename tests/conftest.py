"""Fixtures that every test may ask for."""

pytest_plugins = ["tests.support.valkey", "tests.support.writers", "tests.support.shifted_clock"]
"""The embedded servers; more fixture modules are named here."""
