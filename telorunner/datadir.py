"""The data folder: what the embedded defaults write, readable by this user only.

It makes the folder and the generated secret key, and lends the lock that says that one process uses
an SQLite database. It reads no settings.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from telorunner.errors import ConfigError

SECRET_KEY_FILE = "secret-key"  # noqa: S105 - a file's name
DATABASE_FILE = "telorunner.sqlite3"

_FOLDER_MODE = 0o700
_FILE_MODE = 0o600
# Well over the 50 characters that Django's deployment check asks for.
_SECRET_KEY_BYTES = 48


def prepare(data_dir: Path) -> None:
    """Make the folder and its secret key where they are missing.

    Raises:
        ConfigError: The folder cannot be made or written.
    """
    try:
        data_dir.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        _make_secret_key(data_dir / SECRET_KEY_FILE)
    except OSError as exc:
        raise ConfigError(
            f"RUNNER_DATA_DIR: must be a folder that can be written: {exc.strerror}."
        ) from exc


def read_secret_key(data_dir: Path) -> str:
    """Return the generated key, or an empty string where there is none yet.

    Raises:
        ConfigError: There is one, but it cannot be read.
    """
    try:
        return (data_dir / SECRET_KEY_FILE).read_text(encoding="ascii").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(
            f"RUNNER_DATA_DIR: the file {SECRET_KEY_FILE} in it cannot be read."
        ) from exc


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Hold an SQLite database for this process; the kernel gives it back however the process ends.

    Raises:
        ConfigError: Another process holds it, or its folder cannot be written.
    """
    lock = database.with_name(f"{database.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
    except OSError as exc:
        raise ConfigError(
            f"DATABASE_URL: the database's folder cannot be written: {exc.strerror}."
        ) from exc
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise ConfigError(
                "RUNNER_DATA_DIR: another runner is using this folder's database. Stop it, name "
                "another folder, or give both a PostgreSQL database by DATABASE_URL."
            ) from exc
        yield
    finally:
        os.close(descriptor)


def _make_secret_key(path: Path) -> None:
    """Write a new key unless there is one; of two processes at once, the first one's key stays."""
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(_SECRET_KEY_BYTES))
        # A link, unlike a rename, never replaces a key that somebody may already have used.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)
