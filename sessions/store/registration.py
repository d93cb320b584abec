"""Writing down a new session; `sessions.admission` decides whether it may be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sessions.models import Bundle, Session
from sessions.spec import SessionSpec
from sessions.states import Delivery


@dataclass(frozen=True)
class NewSession:
    """What is written down: the spec, the sealed env, and the archive with its list of files.

    `files` is `[{"path", "size"}]`, for staff. `token_sealed` is empty unless it is to be fetched.
    A session of a catalog app has neither archive nor files. `terms_version` is what its client
    accepted; empty: there was nothing to accept.
    """

    spec: SessionSpec
    env_sealed: bytes = field(repr=False)
    created_at: datetime
    archive: bytes = field(default=b"", repr=False)
    files: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    token_sealed: bytes = field(default=b"", repr=False)
    catalog_app_id: int | None = None
    terms_version: str = ""


def is_taken(session_id: str) -> bool:
    """Tell whether a row has this id, history included."""
    return Session.objects.filter(id=session_id).exists()


def insert(new: NewSession) -> None:
    """Write the rows of a new session; the caller holds the transaction."""
    session = Session.objects.create(
        id=new.spec.session_id,
        mode=new.spec.mode,
        image=new.spec.image,
        spec=new.spec.to_json(),
        env_sealed=new.env_sealed,
        created_at=new.created_at,
        catalog_app_id=new.catalog_app_id,
        app_name=new.spec.app_name,
        terms_version=new.terms_version,
    )
    if new.spec.delivery is Delivery.NONE:
        return
    Bundle.objects.create(
        session=session,
        archive=new.archive,
        files=list(new.files),
        token_sealed=new.token_sealed,
    )
