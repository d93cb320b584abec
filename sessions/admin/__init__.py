"""What staff see of sessions in the Django admin: read only, engine rows hidden."""

from sessions.admin.sessions import SessionAdmin

__all__ = ["SessionAdmin"]
