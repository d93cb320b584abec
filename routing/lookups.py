"""Looks names up in DNS, in threads that nobody has to wait for.

What the system's resolver does cannot be ended from outside: a name server that does not answer
holds a thread for half a minute or more, long after whoever asked has given up. So the threads are
daemons, which end with the process, and whoever asks for a name that is being looked up waits for
that very look-up.
"""

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Any

# An address as getaddrinfo gives it: family and what connect takes.
Address = tuple[int, Any]

_Question = tuple[str, int]
_Answer = list[Address] | Exception


class Lookups:
    """Look-ups of one loop, a bounded number at once."""

    def __init__(self, most: int) -> None:
        """Have at most so many threads."""
        self._places = asyncio.Semaphore(most)
        self._asked: dict[_Question, asyncio.Future[_Answer]] = {}

    async def find(self, name: str, port: int) -> list[Address]:
        """Return the addresses of a name, in the order in which they are to be tried.

        Being cancelled ends the wait, not the look-up.

        Raises:
            OSError: There are none, or no name server answers.
            UnicodeError: It is no name.
        """
        question = (name, port)
        answer = self._asked.get(question)
        if answer is None:
            await self._places.acquire()
            # Somebody may have asked the same meanwhile: two do no harm.
            answer = self._asked[question] = asyncio.get_running_loop().create_future()
            self._start(question, answer)
        found = await asyncio.shield(answer)
        if isinstance(found, Exception):
            raise found
        return found

    def _start(self, question: _Question, answer: "asyncio.Future[_Answer]") -> None:
        loop = asyncio.get_running_loop()

        def end(found: _Answer) -> None:
            self._places.release()
            if self._asked.get(question) is answer:
                del self._asked[question]
            answer.set_result(found)

        def work() -> None:
            found = _look_up(*question)
            # The loop may have ended before.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(end, found)

        try:
            threading.Thread(target=work, name=f"look-up of {question[0]}", daemon=True).start()
        except RuntimeError as exc:
            # There can be no more threads.
            end(OSError(str(exc)))


def _look_up(name: str, port: int) -> _Answer:
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        return exc
    return [(family, address) for family, _, _, _, address in found]
