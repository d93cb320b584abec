#!/usr/bin/env python
"""The operators' command line: serve, migrate, createsuperuser and the rest of Django's.

A setting that cannot be used ends it with one readable line and exit code 2.
"""

import os
import sys

from django.core.management import execute_from_command_line

from telorunner import conf, datadir
from telorunner.errors import ConfigError

EXIT_CONFIG = 2
# 128 + SIGINT, as a shell tells it.
EXIT_INTERRUPTED = 130
# What writes into the data folder needs it, and its secret key, before Django reads the settings.
WRITING_COMMANDS = frozenset(
    {"serve", "migrate", "makemigrations", "createsuperuser", "runcluster"}
)


def main(argv: list[str]) -> int:
    """Run one command; return its exit code."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "telorunner.settings")
    try:
        if argv[1:] and argv[1] in WRITING_COMMANDS and not {"-h", "--help"} & set(argv):
            datadir.prepare(conf.load().data_dir)
        execute_from_command_line(argv)
    except ConfigError as exc:
        sys.stderr.write(f"telorunner: {exc}\n")
        return EXIT_CONFIG
    except KeyboardInterrupt:
        # Before a command handles signals itself, such as while Django is being imported.
        return EXIT_INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
