"""The comparison backend on the run's Cassandra cluster; every test has a tenant of its own."""

from tests.support.scylla import chat, scylla_schema, scylla_session

__all__ = ["chat", "scylla_schema", "scylla_session"]
