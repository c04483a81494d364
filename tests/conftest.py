"""Fixtures that every test may ask for."""

pytest_plugins = ["tests.support.valkey", "tests.support.writers"]
"""The embedded servers; more fixture modules are named here."""
