"""The form of the runner's log lines."""

import logging
import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_EXTRAS = ("session", "action")


class LineFormatter(logging.Formatter):
    """Time, level, logger, message, and then the session and action where a record has them.

    What a client sent cannot forge a line: control characters in a message are escaped. Only a
    traceback spans lines.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: D102 - inherited
        record.message = _CONTROL.sub(_escape, record.message)
        extras = (
            f" {name}={_CONTROL.sub(_escape, str(value))}"
            for name in _EXTRAS
            if (value := getattr(record, name, None)) is not None
        )
        return super().formatMessage(record) + "".join(extras)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
