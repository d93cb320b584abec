"""What ends the command-line client early.

ClientFailure   a sentence for the user and the exit code
└── SessionGone the runner does not know the session any more
"""

UNUSABLE = 2
"""The exit code when nothing could be started: a wrong command, a refusal, no answer."""


class ClientFailure(Exception):
    """The client cannot go on.

    ``lines`` are shown to the user as they are; ``code`` is the process's exit code.
    """

    def __init__(self, *lines: str, code: int = UNUSABLE) -> None:
        super().__init__(*lines)
        self.lines = lines
        self.code = code


class SessionGone(ClientFailure):
    """The runner does not know the session."""

    def __init__(self) -> None:
        super().__init__("the runner does not know the session any more", code=1)
