"""The archive of the backend tiered, in Cassandra."""
