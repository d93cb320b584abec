"""The refusal of a change, which all actions share."""

from telorunner.errors import RunnerError


class ChangeRefused(RunnerError):
    """The catalog is not changed like this.

    `field` names what in a form it is about; empty: the whole.
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field
