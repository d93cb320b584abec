"""The reserved paths of public hosts: proves that a request for a host came to this runner.

It decides nothing: what is no host's reserved path goes on to the rest of the application.
"""

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sessions import runtime


class Proofs:
    """Answers probes of public hosts, an ASGI application.

    Before Django, as liveness is: hosts are asked now and then for as long as they are there, and
    their names are none of the runner's own.
    """

    def __init__(self, otherwise: ASGIApp) -> None:
        """Take what answers everything else."""
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            Stopping: The process is going down.
        """
        found = runtime.current().router.answer(_host(scope), scope["path"])
        if found is None or scope["method"] != "GET":
            await self._otherwise(scope, receive, send)
            return
        body, headers = found
        await Response(body, headers=dict(headers))(scope, receive, send)


def _host(scope: Scope) -> str:
    hosts: list[bytes] = [value for name, value in scope["headers"] if name == b"host"]
    return hosts[0].decode("latin-1") if len(hosts) == 1 else ""
