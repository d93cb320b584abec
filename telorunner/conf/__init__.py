"""The runner's configuration: read from the environment once, validated, frozen."""

from telorunner.conf.settings import PROJECT_DIR, ClusterKind, Settings, load

__all__ = ["PROJECT_DIR", "ClusterKind", "Settings", "load"]
