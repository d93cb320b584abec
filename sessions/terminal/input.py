"""Input on its way to a container, through one attach; no task is owned here.

What was typed leaves the inbox only when the attach has taken it, so that a broken attach costs no
keystroke: the next one goes on with it.
"""

import asyncio
import logging
from typing import Any

from sessions.terminal import AttachStream, InputSource
from telorunner.errors import ClusterError

logger = logging.getLogger(__name__)

# A terminal that nobody has asked a size for.
DEFAULT_COLUMNS = 80
DEFAULT_ROWS = 24


async def relay_input(
    inbox: InputSource[Any], stream: AttachStream, *, is_tty: bool, is_up: asyncio.Event
) -> None:
    """Send a size first, then what waits in the inbox; return when the attach takes no more.

    The first frame opens the start gate. Bytes wait for `is_up`: before the container runs, an
    attach may be there that leads nowhere. Cancelling leaves in the inbox what is on its way.
    """
    try:
        if is_tty:
            size = inbox.size
            await stream.resize(
                size.columns if size else DEFAULT_COLUMNS, size.rows if size else DEFAULT_ROWS
            )
        await is_up.wait()
        while True:
            pending = await inbox.peek()
            if pending.size is not None and is_tty:
                await stream.resize(pending.size.columns, pending.size.rows)
            if pending.data:
                await stream.write(pending.data)
            inbox.commit(pending)
    except ClusterError as exc:
        # Whoever reads the attach sees its end too, and deals with it.
        logger.debug("Input stopped: %s", exc)
