"""The rows: sessions, their bundles, the engines that own them, and the lock that makes caps exact.

Only `sessions.store`, `sessions.admission` and the actions write them.
"""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from catalog.models import App
from sessions.states import LIVE, Mode, StatusKind
from telorunner.values.dns import MAX_LABEL_LENGTH
from telorunner.values.image import MAX_REFERENCE_LENGTH
from telorunner.values.terms import MAX_VERSION_LENGTH


class Engine(models.Model):
    """A process that owns sessions, for as long as it renews this row."""

    id = models.CharField(primary_key=True, max_length=32)
    started_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.id


class RetainedSessions(models.Manager["Session"]):
    """Sessions that clients can still read: what all of /v1 and every cap counts."""

    def get_queryset(self) -> models.QuerySet["Session"]:
        """Leave out evicted rows, which only staff still see."""
        return super().get_queryset().filter(evicted_at__isnull=True)


class Session(models.Model):
    """One run of a bundle, from its registration until its history is purged."""

    id = models.CharField(primary_key=True, max_length=12)
    mode = models.CharField(max_length=8, choices=[(mode, mode) for mode in Mode])
    status = models.CharField(
        max_length=10, choices=[(kind, kind) for kind in StatusKind], default=StatusKind.STARTING
    )
    exit_code = models.IntegerField(null=True, blank=True)
    message = models.TextField(blank=True, help_text="Why the session failed, as clients read it.")
    image = models.CharField(max_length=MAX_REFERENCE_LENGTH)
    # The app of the catalog that it runs now; None again from its end on, so that what asks for an
    # app's sessions, or deletes an app, meets live ones only. The name stays.
    catalog_app = models.ForeignKey(
        App, null=True, blank=True, on_delete=models.SET_NULL, related_name="sessions"
    )
    app_name = models.CharField(
        "app", max_length=MAX_LABEL_LENGTH, blank=True, default="", db_default=""
    )
    # The terms that its client accepted; empty: there were none.
    terms_version = models.CharField(
        max_length=MAX_VERSION_LENGTH, blank=True, default="", db_default=""
    )
    # What SessionSpec.to_json returns.
    spec = models.JSONField()
    # The endpoints of `running`, as the stream told them.
    endpoints = models.JSONField(default=list, blank=True)
    # The last progress event's phase and message, told again after a restart.
    progress_phase = models.CharField(max_length=10, blank=True)
    progress_message = models.TextField(blank=True)
    # [{"host", "port", "state", "reason"}]: how the public hosts stand, as the stream told it last.
    routes = models.JSONField(
        default=list, db_default=models.Value([], models.JSONField()), blank=True
    )
    # Sealed by telorunner.secretbox; emptied at the terminal status.
    env_sealed = models.BinaryField(default=b"", blank=True)

    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True, help_text="First seen running.")
    ended_at = models.DateTimeField(null=True, blank=True)
    evicted_at = models.DateTimeField(null=True, blank=True)
    stop_requested_at = models.DateTimeField(null=True, blank=True)
    # The user name of the staff member who asked; empty: a client of the API did.
    stop_requested_by = models.CharField(max_length=150, blank=True, default="", db_default="")

    engine = models.ForeignKey(
        Engine, null=True, blank=True, on_delete=models.SET_NULL, related_name="sessions"
    )
    fence = models.PositiveBigIntegerField(default=0)
    pod_name = models.CharField(max_length=MAX_LABEL_LENGTH, blank=True)
    pod_uid = models.CharField(max_length=64, blank=True)
    # Numbers up to these may have been given to clients; after a restart numbering goes on above.
    event_numbers = models.PositiveBigIntegerField(default=0)
    output_numbers = models.PositiveBigIntegerField(default=0)

    objects = models.Manager()
    retained = RetainedSessions()

    class Meta:
        ordering: ClassVar = ["-created_at"]
        permissions: ClassVar = [("stop_session", "Can stop session")]
        indexes: ClassVar = [
            # The admin's default order, and the age that retention is judged by.
            models.Index(fields=["-created_at"], name="session_created"),
            # What engines look for every second, out of a long history.
            models.Index(
                fields=["engine", "created_at"],
                name="session_live",
                condition=Q(status__in=sorted(LIVE)),
            ),
            # What admission counts and evicts.
            models.Index(
                fields=["status", "ended_at"], name="session_retained", condition=Q(evicted_at=None)
            ),
            # What engines look for every few seconds: what other processes have evicted since.
            models.Index(
                fields=["evicted_at"],
                name="session_evicted",
                condition=Q(evicted_at__isnull=False),
            ),
            # What the admin filters its list by: each gives the rows in the list's order.
            models.Index(fields=["status", "-created_at"], name="session_by_status"),
            models.Index(fields=["mode", "-created_at"], name="session_by_mode"),
            models.Index(fields=["image", "-created_at"], name="session_by_image"),
            models.Index(fields=["app_name", "-created_at"], name="session_by_app"),
        ]
        constraints: ClassVar = [
            # A row that says how it ended also says when, and a live one does not.
            models.CheckConstraint(
                name="session_ended_at_iff_terminal",
                condition=Q(status__in=sorted(LIVE), ended_at=None)
                | (~Q(status__in=sorted(LIVE)) & Q(ended_at__isnull=False)),
            ),
            models.CheckConstraint(
                name="session_exit_code_iff_exited",
                condition=Q(status=StatusKind.EXITED, exit_code__isnull=False)
                | (~Q(status=StatusKind.EXITED) & Q(exit_code=None)),
            ),
            # Only what has ended may be evicted: a live session is never taken from its clients.
            models.CheckConstraint(
                name="session_evicted_only_when_ended",
                condition=Q(evicted_at=None) | Q(ended_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.id


class Bundle(models.Model):
    """A session's files as a deterministic tar.gz.

    The archive is emptied when nothing needs it any more: once it was fetched, not fetched in time,
    or the session has ended. The row goes when the session is evicted.
    """

    session = models.OneToOneField(Session, primary_key=True, on_delete=models.CASCADE)
    archive = models.BinaryField()
    # What the pod fetches the archive with, sealed by telorunner.secretbox; emptied with it.
    token_sealed = models.BinaryField(default=b"", db_default=b"", blank=True)
    # The one transfer that may send the archive's last piece, and since when it may.
    claim = models.CharField(max_length=32, blank=True, default="", db_default="")
    claimed_at = models.DateTimeField(null=True, blank=True)
    # [{"path", "size"}], for staff.
    files = models.JSONField(default=list)

    def __str__(self) -> str:
        return str(self.session_id)


class Limits(models.Model):
    """The one row whose lock admission holds, so that caps are exact across processes."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(name="limits_is_one_row", condition=Q(id=1)),
        ]

    def __str__(self) -> str:
        return "limits"
