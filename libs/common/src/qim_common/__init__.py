"""What the services of qim share; each module has one subject and none of them knows a service."""
