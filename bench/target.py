"""The process under measure (`bench.inside`), from its start to the end of its input."""

import asyncio
import os

os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"

# NB: this sets Django up, which everything else here needs before it is imported.
from django.core.management import call_command

import telorunner.asgi  # noqa: F401
from bench.inside import serve
from telorunner.database import access
from telorunner.server import server_loop


def main() -> None:
    """Make the database and serve."""
    call_command("migrate", interactive=False, verbosity=0, run_syncdb=True)
    with asyncio.Runner(loop_factory=lambda: server_loop) as runner:
        runner.run(serve())
    access.close()


if __name__ == "__main__":
    main()
