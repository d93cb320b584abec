#!/usr/bin/env python
"""The operators' command line: serve, migrate, createsuperuser and the rest of Django's.

A setting that cannot be used ends it with one readable line and exit code 2.
"""

import os
import sys

from django.core.management import execute_from_command_line
from django.db import DatabaseError

from telorunner import conf, datadir
from telorunner.errors import ConfigError

EXIT_FAILED = 1
EXIT_CONFIG = 2
# 128 + SIGINT, as a shell tells it.
EXIT_INTERRUPTED = 130
# What writes into the data folder needs it, and its secret key, before Django reads the settings.
WRITING_COMMANDS = frozenset(
    {"serve", "migrate", "makemigrations", "createsuperuser", "runcluster"}
)
# Where the accounts are: SQLite and PostgreSQL name it where it is missing.
ACCOUNTS_TABLE = "auth_user"
NO_TABLES = "The database has no tables yet: start the runner once, such as by make run."


def main(argv: list[str]) -> int:
    """Run one command; return its exit code."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "telorunner.settings")
    try:
        if argv[1:] and argv[1] in WRITING_COMMANDS and not {"-h", "--help"} & set(argv):
            datadir.prepare(conf.load().data_dir)
        if argv[1:2] == ["runcluster"]:
            run_cluster(argv)
        else:
            execute_from_command_line(argv)
    except ConfigError as exc:
        sys.stderr.write(f"telorunner: {exc}\n")
        return EXIT_CONFIG
    except DatabaseError as exc:
        if argv[1:2] != ["createsuperuser"] or ACCOUNTS_TABLE not in str(exc):
            raise
        sys.stderr.write(f"telorunner: {NO_TABLES}\n")
        return EXIT_FAILED
    except KeyboardInterrupt:
        # Before a command handles signals itself, such as while Django is being imported.
        return EXIT_INTERRUPTED
    return 0


def run_cluster(argv: list[str]) -> None:
    """Run the local cluster without Django's applications.

    It uses none of them, and they take longer to load than all of it. Nothing else differs from
    how Django runs a command.
    """
    # NB: imported here, for the other commands load nothing of the local cluster.
    from django.conf import settings
    from django.utils.log import configure_logging

    from telorunner.management.commands.runcluster import Command

    configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)
    Command().run_from_argv(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
