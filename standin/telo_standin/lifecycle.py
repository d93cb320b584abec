"""One run from its first event to its last, with the debug stream where it is asked for."""

import signal
import sys
from collections.abc import Mapping
from typing import Any

from telo_standin.errors import Interrupted, StandinError
from telo_standin.events import Events
from telo_standin.kernel import Kernel
from telo_standin.manifest import Manifest, Resource

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run(manifest: Manifest, settings: Mapping[str, Any], inspect: tuple[str, int] | None) -> int:
    """Run an application to its end and return the exit code.

    A server runs until a signal; under ``inspect`` so does an application that has done its work,
    as with the real kernel, so that its events can still be read.
    """
    events = Events()
    if inspect is not None:
        from telo_standin.debug_server import start_debug_server

        start_debug_server(inspect, events, manifest.name)
    code = 1
    try:
        code = _run(Kernel(manifest, settings, events), is_held=inspect is not None)
    except Interrupted as exc:
        code = 128 + exc.signal_number
    except StandinError as exc:
        events.emit("Kernel.RunFailed", {"phase": "run", "message": str(exc)})
        _report(str(exc))
    finally:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        events.emit("Kernel.Stopping")
        events.emit("Kernel.Stopped", {"exitCode": code})
        events.close()
    return code


def _run(kernel: Kernel, *, is_held: bool) -> int:
    kernel.events.emit("Kernel.Initialized")
    kernel.events.emit("Kernel.Starting")
    ports = [
        {"port": kernel.settings["ports"][name], "protocol": setting.protocol}
        for name, setting in kernel.manifest.ports.items()
    ]
    kernel.events.emit("Kernel.PortsResolved", {"ports": ports})
    kernel.boot(_start_server)
    kernel.events.emit("Kernel.Started")
    if not (kernel.is_serving or is_held):
        return 0
    # Blocked first: a signal between a check and a pause would be slept over.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    raise Interrupted(signal.sigwait(STOP_SIGNALS))


def _start_server(kernel: Kernel, resource: Resource) -> None:
    from telo_standin.web import start_server

    start_server(kernel, resource)


def _report(message: str) -> None:
    sys.stdout.buffer.write(f"error: {message}\n".encode("utf-8", "replace"))
    sys.stdout.buffer.flush()
