"""Run an application: its targets in order, its resources when they are invoked.

The kernel owns no process-wide state: signals, exit codes and the terminal's first line belong to
``main``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from telo_standin import console
from telo_standin.errors import RunError
from telo_standin.events import Events
from telo_standin.expressions import Ref, resolve
from telo_standin.manifest import Manifest, Resource
from telo_standin.references import exported_member

# A resource that invokes itself would only exhaust Python's own stack.
MAX_DEPTH = 50
ServerStarter = Callable[["Kernel", Resource], None]


class Kernel:
    """One application and its scope (``ports`` and ``variables``)."""

    def __init__(self, manifest: Manifest, settings: Mapping[str, Any], events: Events) -> None:
        self.manifest = manifest
        self.events = events
        self.settings = settings
        self.is_serving = False

    def boot(self, start_server: ServerStarter) -> None:
        """Run the targets, one after the other.

        Raises:
            StandinError: one of them failed.
        """
        for resource in self.manifest.resources.values():
            self.events.emit(f"{resource.kind}.{resource.name}.Created")
        scope = {**self.settings, "steps": {}}
        for target in self.manifest.targets:
            if isinstance(target, dict):
                self._run_step(target, scope, 0)
                continue
            resource = self.manifest.resources[target.target]
            if resource.module == "http-server":
                start_server(self, resource)
                self.is_serving = True
            else:
                self.invoke(target, {})

    def invoke(self, ref: Ref, inputs: Mapping[str, Any], depth: int = 0) -> Any:
        """Return what a member or resource gives back for its inputs.

        Raises:
            StandinError: it failed.
        """
        if depth > MAX_DEPTH:
            raise RunError(f"{ref.target} is invoked within itself")
        self.events.emit(f"{ref.target}.Invoked")
        member = exported_member(self.manifest, ref)
        if member is not None:
            return console.MEMBERS[member](inputs)
        resource = self.manifest.resources[ref.target]
        scope = {**self.settings, "inputs": dict(inputs), "steps": {}}
        if resource.type_name == "Value":
            return resolve(resource.fields["value"], scope)
        self._run_steps(resource.fields["steps"] or (), scope, depth)
        return resolve(resource.fields.get("outputs") or {}, scope)

    def _run_steps(self, steps: Sequence[Any], scope: dict[str, Any], depth: int) -> None:
        for step in steps:
            self._run_step(step, scope, depth)

    def _run_step(self, step: Mapping[str, Any], scope: dict[str, Any], depth: int) -> None:
        inputs = resolve(step.get("inputs") or {}, scope)
        result = self.invoke(step["invoke"], inputs, depth + 1)
        if "name" in step:
            scope["steps"][step["name"]] = {"result": result}
