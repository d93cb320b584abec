"""Which layer publishes sessions: decided once at boot, from settings and what is there; pure.

A refusal is one sentence that names the variables which decide, and boot ends with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from routing.routes import Layer
from telorunner.conf import Settings
from telorunner.conf.routing import ProbeAddress, RoutingMode
from telorunner.errors import ClusterError, ConfigError
from telorunner.kube.errors import cause

# Those that the runner speaks, the better one first.
GATEWAY_VERSIONS = ("v1", "v1beta1")
# A cluster may have a crowd of IngressClasses, and a refusal is one line.
MAX_NAMED_CLASSES = 5

_API = "the Gateway API (HTTPRoutes of gateway.networking.k8s.io, v1 or v1beta1)"


@dataclass(frozen=True)
class RoutingSettings:
    """What an operator has set; an empty text is "not set".

    `probe_address` is where hosts are asked; None: they are not.
    """

    mode: RoutingMode = "auto"
    base_domain: str = ""
    ready_timeout_seconds: int = 60
    is_probing: bool = False
    probe_address: ProbeAddress | None = None
    ingress_class: str = ""
    tls_secret: str = ""
    gateway_name: str = ""
    gateway_namespace: str = ""
    gateway_section_name: str = ""


@dataclass(frozen=True)
class IngressClass:
    """An IngressClass of the cluster, and whether it is marked as the default one."""

    name: str
    is_default: bool = False


@dataclass(frozen=True)
class Offered:
    """What the cluster has.

    `ingress_classes` is None where they were not asked for, or could not be listed: then
    `ingress_failure` says why. `gateway_versions` are the served versions of the Gateway API that
    have HTTPRoutes; `gateway_failure` says why they are not known.
    """

    ingress_classes: tuple[IngressClass, ...] | None = None
    ingress_failure: ClusterError | None = None
    gateway_versions: tuple[str, ...] = ()
    gateway_failure: ClusterError | None = None


@dataclass(frozen=True)
class Decision:
    """The layer, and why it is this one, in a sentence.

    An empty `ingress_class` leaves the class to the cluster; `gateway_version` belongs to the
    gateway layer.
    """

    layer: Layer
    why: str
    ingress_class: str = ""
    gateway_version: str = ""


def routing_settings(config: Settings) -> RoutingSettings:
    """Return what the configuration says about routing."""
    return RoutingSettings(
        mode=config.routing_mode,
        base_domain=config.routing_base_domain,
        ready_timeout_seconds=config.route_ready_timeout_seconds,
        is_probing=config.is_route_probing,
        probe_address=config.route_probe_address,
        ingress_class=config.ingress_class,
        tls_secret=config.ingress_tls_secret,
        gateway_name=config.gateway_name,
        gateway_namespace=config.gateway_namespace or config.session_namespace,
        gateway_section_name=config.gateway_section_name,
    )


def needs_cluster(settings: RoutingSettings) -> bool:
    """Tell whether the decision depends on what the cluster has; if not, it is not asked."""
    return settings.mode != "none" and bool(settings.base_domain)


def decide(settings: RoutingSettings, offered: Offered) -> Decision:
    """Return the layer that publishes sessions.

    Raises:
        ConfigError: The settings ask for what is not there, or leave open what must be decided.
    """
    if settings.mode == "none":
        return Decision(Layer.NONE, "SESSION_ROUTING_MODE is none.")
    if not settings.base_domain:
        return Decision(Layer.NONE, "SESSION_ROUTING_BASE_DOMAIN is not set.")
    if settings.mode == "ingress":
        return _ingress(settings, offered, "SESSION_ROUTING_MODE is ingress.")
    if settings.mode == "gateway":
        return _gateway(settings, offered, "SESSION_ROUTING_MODE is gateway.")
    return _automatic(settings, offered)


def _automatic(settings: RoutingSettings, offered: Offered) -> Decision:
    """Take what was named, then what the cluster marks, then what alone is there."""
    if settings.gateway_name:
        return _gateway(settings, offered, "SESSION_GATEWAY_NAME names a Gateway.")
    if settings.ingress_class:
        return _ingress(settings, offered, "SESSION_INGRESS_CLASS names a class.")
    classes = offered.ingress_classes or ()
    if any(one.is_default for one in classes):
        return _ingress(settings, offered, "The cluster has a default IngressClass.")
    if unknown := _unknown(offered):
        raise ConfigError(
            "SESSION_ROUTING_MODE: auto cannot decide without knowing what the cluster has: "
            f"{' and '.join(unknown)}; mend that, or set SESSION_INGRESS_CLASS or "
            "SESSION_GATEWAY_NAME"
        )
    is_served = bool(_version(offered))
    if classes and is_served:
        raise ConfigError(
            "SESSION_ROUTING_MODE: auto cannot decide between Ingress and Gateway: the cluster has "
            f"IngressClasses ({_names(classes)}), none of them the default, and the Gateway API; "
            "set SESSION_INGRESS_CLASS or SESSION_GATEWAY_NAME"
        )
    if is_served:
        raise ConfigError(
            "SESSION_GATEWAY_NAME: must name the Gateway that publishes sessions: the cluster has "
            "the Gateway API and no IngressClass; or set SESSION_ROUTING_MODE to none"
        )
    if not classes:
        raise ConfigError(
            "SESSION_ROUTING_MODE: auto finds nothing that could publish sessions: the cluster has "
            f"no IngressClass and does not serve {_API}; install one of them, or set "
            "SESSION_ROUTING_MODE to none"
        )
    return _ingress(settings, offered, "The cluster has IngressClasses and no Gateway API.")


def _unknown(offered: Offered) -> list[str]:
    """Return what could not be found out, and why: that is no absence."""
    unknown = []
    if offered.ingress_failure is not None:
        why = cause(offered.ingress_failure)
        unknown.append(f"its IngressClasses could not be listed, because {why}")
    if offered.gateway_failure is not None:
        why = cause(offered.gateway_failure)
        unknown.append(f"whether it serves the Gateway API could not be asked, because {why}")
    return unknown


def _gateway(settings: RoutingSettings, offered: Offered, why: str) -> Decision:
    if not settings.gateway_name:
        raise ConfigError(
            "SESSION_GATEWAY_NAME: must name the Gateway that publishes sessions, because "
            "SESSION_ROUTING_MODE is gateway"
        )
    variable = "SESSION_ROUTING_MODE" if settings.mode == "gateway" else "SESSION_GATEWAY_NAME"
    if offered.gateway_failure is not None:
        raise ConfigError(
            f"{variable}: asks for a Gateway, but whether the cluster serves the Gateway API could "
            f"not be asked, because {cause(offered.gateway_failure)}"
        )
    version = _version(offered)
    if not version:
        raise ConfigError(
            f"{variable}: asks for a Gateway, but the cluster does not serve {_API}; install it, "
            "or set SESSION_ROUTING_MODE to ingress or none"
        )
    if settings.tls_secret:
        raise ConfigError(
            "SESSION_INGRESS_TLS_SECRET: must not be set where a Gateway publishes sessions: its "
            "listener holds the certificate; unset it, or set SESSION_ROUTING_MODE to ingress"
        )
    return Decision(Layer.GATEWAY, why, gateway_version=version)


def _ingress(settings: RoutingSettings, offered: Offered, why: str) -> Decision:
    name, remark = _ingress_class(settings.ingress_class, offered)
    return Decision(Layer.INGRESS, f"{why} {remark}", ingress_class=name)


def _ingress_class(named: str, offered: Offered) -> tuple[str, str]:
    """Return the class that Ingresses name, which may be none, and a sentence about it.

    A default class is named too: the cluster adds it only to an Ingress that is created, so that
    one which is older than the default would never get it, and may refuse where it has several.
    Where none is named, as when they cannot be listed, the publisher keeps what the cluster adds.

    Source: https://kubernetes.io/docs/concepts/services-networking/ingress/#default-ingress-class
    """
    classes = offered.ingress_classes
    if named:
        if classes is None or named in {one.name for one in classes}:
            return named, f"Ingresses are of the class {named}."
        return named, f"Ingresses are of the class {named}, which the cluster does not list."
    if classes is None:
        remark = "Ingresses name no class (SESSION_INGRESS_CLASS)."
        if offered.ingress_failure is not None:
            why = cause(offered.ingress_failure)
            remark += f" IngressClasses could not be listed, because {why}."
        return "", remark
    # Of several the first by name, so that every start takes the same one.
    for one in sorted(classes, key=lambda one: one.name):
        if one.is_default or len(classes) == 1:
            return one.name, f"Ingresses are of the class {one.name}."
    return "", "Ingresses name no class, and the cluster has no default (SESSION_INGRESS_CLASS)."


def _version(offered: Offered) -> str:
    return next((name for name in GATEWAY_VERSIONS if name in offered.gateway_versions), "")


def _names(classes: Sequence[IngressClass]) -> str:
    names = sorted(one.name for one in classes)
    more = len(names) - MAX_NAMED_CLASSES
    return ", ".join(names[:MAX_NAMED_CLASSES]) + (f" and {more} more" if more > 0 else "")
