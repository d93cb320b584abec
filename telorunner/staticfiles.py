"""The admin's static files, out of the installed packages, as an ASGI application.

WhiteNoise finds them and decides on headers; its Django middleware is not used, because it would
cost every request a thread and Django warns about file responses under ASGI.
"""

import asyncio
from functools import cache

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped] # no types
from whitenoise.responders import StaticFile  # type: ignore[import-untyped] # no types

_READING_METHODS = frozenset({"GET", "HEAD"})


class StaticFiles:
    """Answers for known files; everything else goes to the wrapped application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._files = _find_files()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, or what the application answers."""
        file = self._files.get(scope["path"]) if scope["type"] == "http" else None
        if file is None or scope["method"] not in _READING_METHODS:
            await self._app(scope, receive, send)
            return
        response = await asyncio.to_thread(_read, file, scope)
        await response(scope, receive, send)


@cache
def _find_files() -> dict[str, StaticFile]:
    """List the packages' files, once a process: nothing is looked up by a client's path."""
    files: dict[str, StaticFile] = WhiteNoiseMiddleware().files
    return files


def _read(file: StaticFile, scope: Scope) -> Response:
    environ = {
        f"HTTP_{name.decode('latin-1').upper().replace('-', '_')}": value.decode("latin-1")
        for name, value in scope["headers"]
    }
    found = file.get_response(scope["method"], environ)
    body = b""
    if found.file is not None:
        with found.file as opened:
            body = opened.read()
    return Response(body, status_code=int(found.status), headers=dict(found.headers))
