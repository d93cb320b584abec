"""Input on its way to a container, through one attach; no task is owned here.

What was typed waits in the inbox while there is no attach, and leaves it right before it is sent:
what may have reached the container through an attach that breaks is never sent again. A line that
is run twice is worse than one that is lost and told to be.

There is no end of input: the protocol that containers are attached by has no word for it, and a
viewer that leaves is not the end of a session. In a terminal Ctrl-D (the byte 4) ends what is read
line by line; an application with streams that waits for the end of its input is stopped instead.
Source: https://github.com/kubernetes/kubernetes/issues/89899
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from sessions.terminal import AttachStream, InputSource
from telorunner.errors import ClusterError

logger = logging.getLogger(__name__)

# A terminal that nobody has asked a size for.
DEFAULT_COLUMNS = 80
DEFAULT_ROWS = 24


async def relay_input(
    inbox: InputSource[Any],
    stream: AttachStream,
    *,
    is_tty: bool,
    until_typing: Callable[[], Awaitable[None]],
) -> None:
    """Send a size first, then what waits in the inbox; return when the attach takes no more.

    The first frame opens the start gate. Bytes wait for `until_typing`: before the container runs,
    an attach may be there that leads nowhere.
    """
    try:
        if is_tty:
            size = inbox.size
            await stream.resize(
                size.columns if size else DEFAULT_COLUMNS, size.rows if size else DEFAULT_ROWS
            )
        await until_typing()
        while True:
            pending = await inbox.peek()
            if pending.size is not None and is_tty:
                await stream.resize(pending.size.columns, pending.size.rows)
            if not stream.is_open:
                return
            inbox.commit(pending)
            if pending.data:
                await stream.write(pending.data)
    except ClusterError as exc:
        # Whoever reads the attach sees its end too, and deals with it.
        logger.debug("Input stopped: %s", exc)
