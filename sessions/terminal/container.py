"""The ways to a container in a cluster, as a terminal takes them; holds nothing open itself."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from sessions.terminal import AttachStream, TerminalTarget
from telorunner.kube import attach, logs
from telorunner.kube.client import Cluster


@dataclass(frozen=True)
class ClusterContainer:
    """A target's container; of its log at most `log_limit_bytes` are read."""

    cluster: Cluster
    target: TerminalTarget
    log_limit_bytes: int

    def open_attach(self) -> AbstractAsyncContextManager[AttachStream]:
        """Attach to it."""
        target = self.target
        return attach.open_attach(
            self.cluster, target.pod_name, target.container, tty=target.is_tty
        )

    async def read_log(self, last_lines: int | None = None) -> logs.ContainerLog:
        """Return the end of its log, of no more lines than these."""
        target = self.target
        return await logs.read_log(
            self.cluster,
            target.pod_name,
            target.container,
            limit_bytes=self.log_limit_bytes,
            last_lines=last_lines,
        )
