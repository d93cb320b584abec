"""What the checks of the Pod Security Standards look at, and how they speak of it. Pure."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

Finding = tuple[str, str]
Context = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """What is checked: the spec and the annotations of a pod."""

    spec: dict[str, Any]
    annotations: dict[str, str] = field(default_factory=dict)

    @property
    def context(self) -> Context:
        """Return the security context of the pod as a whole."""
        return self.spec.get("securityContext") or {}

    @property
    def containers(self) -> list[tuple[str, dict[str, Any], Context]]:
        """Return (name, container, security context): init containers first."""
        return [
            (container["name"], container, container.get("securityContext") or {})
            for group in ("initContainers", "containers")
            for container in self.spec.get(group) or []
        ]

    @property
    def is_windows(self) -> bool:
        """Return whether the pod says that it is for Windows nodes."""
        return (self.spec.get("os") or {}).get("name") == "windows"


Check = Callable[[Candidate], Finding | None]


def except_on_windows(check: Check) -> Check:
    """Return a check that lets Windows pods pass: Linux has what it is about."""
    return lambda candidate: None if candidate.is_windows else check(candidate)


def quoted(values: Iterable[str]) -> str:
    """Return values in quotes, separated by commas."""
    return ", ".join(f'"{value}"' for value in values)


def named(word: str, values: Collection[str]) -> str:
    """Return a noun, in the plural where needed, with its values in quotes."""
    return f"{word}{'s' if len(values) > 1 else ''} {quoted(values)}"


def setters_of(candidate: Candidate, is_wrong: Callable[[Context], bool]) -> str:
    """Return whose security context is wrong: "pod and container ...", "" for nobody's."""
    parts = ["pod"] if is_wrong(candidate.context) else []
    found = [name for name, _, context in candidate.containers if is_wrong(context)]
    if found:
        parts.append(named("container", found))
    return " and ".join(parts)


def use(subjects: Collection[str]) -> str:
    """Return the verb for one or several subjects."""
    return "uses" if len(subjects) == 1 else "use"


def seccomp_type(context: Context) -> str:
    """Return the type of the seccomp profile, "" for none."""
    return str((context.get("seccompProfile") or {}).get("type", ""))


def added_capabilities(candidate: Candidate, allowed: Collection[str]) -> dict[str, set[str]]:
    """Return the capabilities that containers add beyond those allowed, by container."""
    added = {
        name: set((context.get("capabilities") or {}).get("add") or []) - set(allowed)
        for name, _, context in candidate.containers
    }
    return {name: capabilities for name, capabilities in added.items() if capabilities}


def no_more_capabilities(added: dict[str, set[str]]) -> str:
    """Return the advice not to add these capabilities."""
    listed = quoted(sorted(set().union(*added.values())))
    who = named("container", added)
    return f"{who} must not include {listed} in securityContext.capabilities.add"
