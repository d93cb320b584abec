"""What the stand-in kernel knows: modules, their kinds and members, and each kind's fields."""

from typing import NamedTuple

APPLICATION = "Telo.Application"
APPLICATION_FIELDS = frozenset({"imports", "ports", "variables", "targets"})
STEP_FIELDS = frozenset({"name", "invoke", "inputs"})


class Kind(NamedTuple):
    """A kind's fields besides ``kind`` and ``metadata``, and which of them must be there."""

    required: frozenset[str]
    optional: frozenset[str] = frozenset()


class Module(NamedTuple):
    """An importable module: the kinds it brings and the ready-made resources it exports."""

    kinds: dict[str, Kind]
    members: frozenset[str] = frozenset()


MODULES: dict[str, Module] = {
    "console": Module({}, frozenset({"writeLine", "readLine"})),
    "http-server": Module(
        kinds={
            "Server": Kind(frozenset({"port"}), frozenset({"host", "mounts"})),
            "Api": Kind(frozenset({"routes"})),
        }
    ),
    "run": Module(
        kinds={
            "Value": Kind(frozenset({"value"}), frozenset({"inputs", "inputType"})),
            "Sequence": Kind(frozenset({"steps"}), frozenset({"outputs", "inputs", "inputType"})),
        }
    ),
    # Known by name only, so that what is refused is the kind that a manifest asks for.
    "fs": Module({}),
}
# What `invoke` and a route's `handler` may name, and what may stand alone in `targets`.
INVOCABLE = frozenset({("run", "Value"), ("run", "Sequence")})
BOOTABLE = frozenset({*INVOCABLE, ("http-server", "Server")})
