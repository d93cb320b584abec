"""The state folder of a local cluster: its lock, token, port, certificates and kubeconfig.

All of it is readable by its owner only. Pods and objects are not kept.
"""

import base64
import fcntl
import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from telorunner.errors import ConfigError

FOLDER = "localcluster"
KUBECONFIG = "kubeconfig"
# The files that keep what the API and the ingress listen on.
API_PORT, INGRESS_PORT, INGRESS_TLS_PORT = "port", "ingress-port", "ingress-tls-port"
HOST = "127.0.0.1"
LOCK_ATTEMPTS = 10
LOCK_RETRY_SECONDS = 0.02
_TOKEN_BYTES = 32
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600
# An address range is taken by whoever holds this UDP port on its last address.
_GUARD_PORT = 20127


def prepare(data_dir: Path) -> Path:
    """Make the state folder in a data folder and return it.

    Raises:
        ConfigError: It cannot be made.
    """
    folder = data_dir / FOLDER
    try:
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as exc:
        raise ConfigError(
            f"RUNNER_DATA_DIR: must be a folder that can be written: {exc.strerror}."
        ) from exc
    return folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a state folder for this process; the kernel gives it back however the process ends.

    Raises:
        ConfigError: A local cluster runs on it already.
    """
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    # Whoever asks `is_locked` holds the lock for a moment, so one refusal is none.
    for attempt in range(LOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            if attempt == LOCK_ATTEMPTS - 1:
                raise ConfigError(
                    "RUNNER_DATA_DIR: a local cluster is running for this folder already."
                ) from exc
            time.sleep(LOCK_RETRY_SECONDS)
        else:
            return


def is_locked(data_dir: Path) -> bool:
    """Say whether a local cluster runs for a data folder."""
    try:
        descriptor = os.open(data_dir / FOLDER / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes) -> None:
    """Put a file in place in one step, readable by its owner only."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.replace(path)


def load_token(folder: Path) -> str:
    """Return the bearer token of a state folder, made at its first use."""
    path = folder / "token"
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        token = ""
    if not token:
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        write_file(path, token.encode())
    return token


def open_listener(folder: Path, port: int, name: str = API_PORT) -> socket.socket:
    """Return a listening socket: on `port`, else on the last one of that name while it is free.

    Raises:
        OSError: `port` was given and is taken.
    """
    last = read_port(folder, name)
    if not port and last is not None:
        with suppress(OSError, OverflowError):
            return _listen(last)
    listener = _listen(port)
    write_file(folder / name, str(listener.getsockname()[1]).encode())
    return listener


def read_port(folder: Path, name: str) -> int | None:
    """Return the port that was last listened on under a name, None where it is not known."""
    try:
        return int((folder / name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def ingress_url(data_dir: Path) -> str | None:
    """Return where the ingress of a running local cluster takes HTTP, None where it has none."""
    port = read_port(data_dir / FOLDER, INGRESS_PORT)
    return None if port is None else f"http://{HOST}:{port}"


def _listen(port: int) -> socket.socket:
    return socket.create_server((HOST, port), backlog=1024)


@contextmanager
def reserved_address_range() -> Iterator[str]:
    """Hold a loopback network that no other local cluster on this machine uses.

    Raises:
        ConfigError: There is none left.
    """
    start = secrets.randbelow(256)
    for offset in range(256):
        third = (start + offset) % 256
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as guard:
            try:
                guard.bind((f"127.20.{third}.254", _GUARD_PORT))
            except OSError:
                continue
            yield f"127.20.{third}.0/24"
            return
    raise ConfigError("No loopback address range is left for another local cluster.")


@dataclass(frozen=True)
class Access:
    """What a kubeconfig says: where the server is, how to trust it and how to be known there."""

    url: str
    token: str = field(repr=False)
    ca_pem: bytes
    namespace: str


def write_kubeconfig(path: Path, access: Access) -> None:
    """Write the kubeconfig of a local cluster."""
    name = "telorunner-local"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": access.url,
                    "certificate-authority-data": base64.b64encode(access.ca_pem).decode(),
                },
            }
        ],
        "users": [{"name": name, "user": {"token": access.token}}],
        "contexts": [
            {
                "name": name,
                "context": {"cluster": name, "user": name, "namespace": access.namespace},
            }
        ],
        "current-context": name,
    }
    write_file(path, yaml.safe_dump(content, sort_keys=False).encode())
