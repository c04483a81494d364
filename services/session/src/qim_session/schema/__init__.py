"""The session service's tables in Cassandra, as numbered migrations: `<number>_<name>.cql`."""
