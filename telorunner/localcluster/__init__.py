"""A small Kubernetes cluster on loopback for development, the demo and tests. It is no sandbox.

It speaks the API that the product uses of a real cluster, and runs pods as processes of this user.
"""

from telorunner.localcluster.cluster import (
    ClusterSettings,
    LocalCluster,
    open_local_cluster,
    run_local_cluster,
)

__all__ = ["ClusterSettings", "LocalCluster", "open_local_cluster", "run_local_cluster"]
