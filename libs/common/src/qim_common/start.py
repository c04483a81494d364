"""Refusing to start: what a process says when it must not serve as it is configured or where it runs."""


class StartRefusedError(Exception):
    """The process must not serve like this; the message says what is wrong and how to mend it.

    `run_service` prints it as one line and exits with 1.
    """
