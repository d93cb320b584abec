"""The supervisor: owns one live session, from taking it up to its end or to handing it over."""

from sessions.supervisor.ownership import Lease, Owner
from sessions.supervisor.run import UNEXPECTED, Supervisor

__all__ = ["UNEXPECTED", "Lease", "Owner", "Supervisor"]
