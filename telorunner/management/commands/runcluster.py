"""Runs the local cluster of the data folder in the foreground, until SIGINT or SIGTERM.

All that it decides is in `telorunner.localcluster`.
"""

import asyncio
import signal
from typing import Any

from django.core.management.base import BaseCommand

from telorunner import conf
from telorunner.localcluster.cluster import ClusterSettings, run_local_cluster
from telorunner.localcluster.ingress.server import IngressPorts
from telorunner.localcluster.node.images import Images
from telorunner.localcluster.resources import GATEWAY_VERSIONS


class Command(BaseCommand):
    """The command."""

    help = "Run the local cluster alone: a small Kubernetes API whose pods are local processes."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until a signal comes."""
        settings = conf.load()
        ports = IngressPorts(settings.local_ingress_port, settings.local_ingress_tls_port)
        cluster = ClusterSettings(
            data_dir=settings.data_dir,
            session_namespace=settings.session_namespace,
            images=Images(kernel_image=settings.image, extra=settings.local_images),
            kubelet_delays=settings.local_kubelet_delays,
            gateway_versions=GATEWAY_VERSIONS if settings.local_gateway_api else (),
            ingress=ports if settings.local_ingress else None,
        )
        signals = (signal.SIGINT, signal.SIGTERM)
        asyncio.run(run_local_cluster(cluster, signals, report=self._report))

    def _report(self, line: str) -> None:
        self.stdout.write(line)
        # Whoever reads a pipe waits for this line.
        self.stdout.flush()
