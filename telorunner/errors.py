"""The runner's error tree.

    RunnerError                    code, http_status, is_retryable, fields
    ├── InvalidRequest             400 invalid_request      issues: path and message
    ├── InvalidJson                400 invalid_json
    ├── InvalidBundle              400 invalid_bundle
    ├── InvalidConfig              400 invalid_config
    ├── WatchDisabled              400 watch_disabled
    ├── AgentRequiresWatch         400 agent_requires_watch
    ├── InvalidAppName             400 invalid_app_name
    ├── ReservedAppName            400 reserved_app_name
    ├── DuplicateAppName           400 duplicate_app_name
    ├── OriginNotAllowed           403 origin_not_allowed
    ├── NotFound                   404 not_found
    ├── UnknownApp                 404 unknown_app
    ├── MethodNotAllowed           405 method_not_allowed
    ├── CapacityExceeded           409 too_many_sessions
    ├── BundleTooLarge             413 bundle_too_large
    ├── UnsupportedMediaType       415 unsupported_media_type
    ├── TermsRequired              428 terms_required       with the terms
    ├── StopFailed                 500 stop_failed
    ├── InternalError              500 internal_error
    ├── Unavailable                503 unavailable          with Retry-After
    ├── Stopping                   503 stopping
    ├── StartFailed                a stage of a start; ends a session, never a request
    ├── NothingToReplay            the session has ended and left no output of the app
    ├── ResizeUnsupported          the app has streams, not a terminal
    ├── StaleFence                 another engine owns the session by now
    ├── OwnerUnreachable           input cannot reach the engine that owns the session
    ├── ConfigError                a setting that cannot be used; boot ends with exit code 2
    └── ClusterError               what the Kubernetes API answered, or that it did not
        ├── ClusterUnavailable     no answer at all, or 429 and 5xx
        ├── Unauthorized           401
        ├── Forbidden              403 of RBAC
        │   ├── QuotaExceeded      403 of a ResourceQuota
        │   └── PodSecurityRefused 403 of Pod Security admission
        ├── ObjectNotFound         404
        │   └── NamespaceNotFound  404 of the namespace that an object was to be made in
        ├── Conflict               409 of a changed or existing object
        │   └── AlreadyExists
        ├── ResourceExpired        410
        └── NotReady               the container does not run yet, or the kubelet has not said so

The docstring of a class is its default message. What a client may read goes in `message` and in
`fields`; causes are chained (`from exc`) and reach only the log.
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class RunnerError(Exception):
    """The runner could not do what was asked."""

    code: ClassVar[str] = "internal_error"
    http_status: ClassVar[int] = 500
    is_retryable: ClassVar[bool] = False

    def __init__(self, message: str = "", **fields: Any) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.fields: Mapping[str, Any] = fields
        super().__init__(self.message)

    def body(self) -> dict[str, Any]:
        """Return the JSON error body: `error`, `message` and the fields of this failure."""
        return {"error": self.code, "message": self.message, **self.fields}


class InvalidRequest(RunnerError):
    """The request body is not valid."""

    code = "invalid_request"
    http_status = 400

    @classmethod
    def at(cls, path: str, message: str) -> "InvalidRequest":
        """Return the refusal of one value, named by its JSON Pointer."""
        return cls(issues=[{"path": path, "message": message}])


class InvalidJson(RunnerError):
    """The request body is not valid JSON."""

    code = "invalid_json"
    http_status = 400


class InvalidBundle(RunnerError):
    """The bundle cannot be used."""

    code = "invalid_bundle"
    http_status = 400


class InvalidConfig(RunnerError):
    """The session config names something that is not offered."""

    code = "invalid_config"
    http_status = 400


class WatchDisabled(RunnerError):
    """Watch sessions are not enabled on this runner."""

    code = "watch_disabled"
    http_status = 400


class AgentRequiresWatch(RunnerError):
    """An agent needs a watch session."""

    code = "agent_requires_watch"
    http_status = 400


class InvalidAppName(RunnerError):
    """An app's name must be a lower-case DNS label of at most 59 characters."""

    code = "invalid_app_name"
    http_status = 400


class ReservedAppName(RunnerError):
    """An app cannot have this name."""

    code = "reserved_app_name"
    http_status = 400


class DuplicateAppName(RunnerError):
    """Two apps have the same name."""

    code = "duplicate_app_name"
    http_status = 400


class OriginNotAllowed(RunnerError):
    """Requests from this origin are not allowed to change anything here."""

    code = "origin_not_allowed"
    http_status = 403


class NotFound(RunnerError):
    """There is nothing at this address."""

    code = "not_found"
    http_status = 404


class UnknownApp(RunnerError):
    """The catalog has no such app."""

    code = "unknown_app"
    http_status = 404


class MethodNotAllowed(RunnerError):
    """This address does not take the request's method."""

    code = "method_not_allowed"
    http_status = 405


class CapacityExceeded(RunnerError):
    """Every session the runner can keep is live. Stop one, or try again later."""

    code = "too_many_sessions"
    http_status = 409
    is_retryable = True


class BundleTooLarge(RunnerError):
    """The bundle is larger than this runner accepts."""

    code = "bundle_too_large"
    http_status = 413


class UnsupportedMediaType(RunnerError):
    """The request body must be application/json."""

    code = "unsupported_media_type"
    http_status = 415


class TermsRequired(RunnerError):
    """The usage terms must be accepted: send their version in x-telo-accepted-terms."""

    code = "terms_required"
    http_status = 428


class StopFailed(RunnerError):
    """The stop could not be recorded."""

    code = "stop_failed"


class InternalError(RunnerError):
    """Something went wrong inside the runner."""


class Unavailable(RunnerError):
    """The runner cannot reach its own storage just now. Try again shortly."""

    code = "unavailable"
    http_status = 503
    is_retryable = True


class Stopping(RunnerError):
    """The runner is shutting down. Try again shortly."""

    code = "stopping"
    http_status = 503
    is_retryable = True


class StartFailed(RunnerError):
    """The session could not be started."""

    def __init__(self, message: str = "", *, stage: str = "start") -> None:
        super().__init__(message)
        self.stage = stage


class NothingToReplay(RunnerError):
    """The session has ended, and there is no output of it to replay."""

    code = "nothing_to_replay"


class ResizeUnsupported(RunnerError):
    """An app with streams has no size."""

    code = "resize_unsupported"


class StaleFence(RunnerError):
    """Another engine owns this session by now."""


class OwnerUnreachable(RunnerError):
    """The engine that owns this session cannot be reached."""

    is_retryable = True


class ConfigError(RunnerError):
    """A setting cannot be used."""


class ClusterError(RunnerError):
    """The Kubernetes API rejected the request."""

    def __init__(
        self,
        message: str = "",
        *,
        status: int | None = None,
        reason: str = "",
        retry_after_seconds: float = 0.0,
    ) -> None:
        """Keep what a client may read of an answer: the HTTP status and the one-word reason.

        `retry_after_seconds` is how long the API wants not to be asked again.
        """
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


class ClusterUnavailable(ClusterError):
    """The Kubernetes API cannot be reached."""

    is_retryable = True


class Unauthorized(ClusterError):
    """The Kubernetes API does not accept the runner's credentials."""


class Forbidden(ClusterError):
    """The runner is not permitted to do this."""


class QuotaExceeded(Forbidden):
    """The session namespace's resource quota is exhausted."""


class PodSecurityRefused(Forbidden):
    """The session namespace's Pod Security level refuses this pod."""


class ObjectNotFound(ClusterError):
    """The object does not exist."""


class NamespaceNotFound(ObjectNotFound):
    """The session namespace does not exist."""


class Conflict(ClusterError):
    """The object was changed by somebody else."""

    is_retryable = True


class AlreadyExists(Conflict):
    """An object of that name exists already."""

    is_retryable = False


class ResourceExpired(ClusterError):
    """The resource version is too old."""

    is_retryable = True


class NotReady(ClusterError):
    """The container does not run yet."""

    is_retryable = True
