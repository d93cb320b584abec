"""What the node agent is told at its start. Pure."""

from dataclasses import dataclass, field
from pathlib import Path

from telorunner.localcluster.node.images import Images

NODE_NAME = "local"
HOST_IP = "127.0.0.1"


@dataclass(frozen=True)
class NodeSettings:
    """Where the node keeps its files, what its images are, and how fast it is.

    `state_dir` holds a folder for every pod; it belongs to one node alone, and what a crashed one
    left there (processes too) is cleaned up at the start. `kubelet_delays` makes containers and
    statuses as late as they are on a real node. `address_range` is a loopback network such as
    127.40.7.0/24; every pod gets an address of its own out of it. Ephemeral storage is measured
    every `storage_period_seconds`, as often as a kubelet does.
    """

    state_dir: Path
    images: Images = field(default_factory=Images)
    kubelet_delays: bool = False
    address_range: str = "127.20.0.0/24"
    storage_period_seconds: float = 10.0
