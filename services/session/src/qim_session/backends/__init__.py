"""The storage Protocols on Redis and on the writer's services."""
