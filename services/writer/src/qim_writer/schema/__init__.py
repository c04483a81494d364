"""The writer's tables in Cassandra, as numbered migrations: `<number>_<name>.cql` (qim_common.cassandra.migrations)."""
