"""One container of a pod from its image to its end, with the reasons that it may wait for.

The processes belong to `Container`; who calls `live` owns its task, and must stop the container
itself after cancelling it (a start that is under way is undone).
"""

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from telorunner.localcluster.node import process
from telorunner.localcluster.node.container import Container
from telorunner.localcluster.node.environment import (
    ConfigTrouble,
    Lookup,
    build_argv,
    build_env,
    check_user,
)
from telorunner.localcluster.node.images import Image, ImageTrouble, make_tools
from telorunner.localcluster.node.logs import LogFile, last_lines
from telorunner.localcluster.node.settings import NodeSettings
from telorunner.localcluster.node.status import (
    LOST,
    LOST_CODE,
    NEVER_STARTED,
    ContainerView,
    Running,
    State,
    Terminated,
    Waiting,
)
from telorunner.localcluster.node.volumes import Mounts, VolumeTrouble, container_mounts
from telorunner.localcluster.recorder import WARNING, EventRecorder

# A kubelet tries again after 10 s and more; nothing can be learnt here from waiting as long.
PULL_BACKOFF_SECONDS = 1.0
CONFIG_RETRY_SECONDS = 1.0
START_ERROR_CODE = 128
# What is read of a termination message, and of the log where the policy falls back to it.
# Source: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
MESSAGE_FILE_BYTES = 4096
MESSAGE_LINES = 80
MESSAGE_BYTES = 2048
# What a kubelet says of a container that was to start when its pod ended.
LOST_MESSAGE = "The container could not be located when the pod was terminated"


@dataclass(frozen=True)
class PodContext:
    """What the containers of a pod share. `changed` is called after every change of a state."""

    pod: Mapping[str, Any]
    folder: Path
    settings: NodeSettings
    events: EventRecorder
    lookup: Lookup
    changed: Callable[[], None]
    pod_ip: str = ""

    @property
    def volumes_dir(self) -> Path:
        """Where the folders of the volumes are."""
        return self.folder / "volumes"


class ContainerRun:
    """A container of a pod: its state, its log, and its processes while there are some."""

    def __init__(
        self, spec: Mapping[str, Any], folder: Path, *, is_init: bool, waits_for_init: bool
    ) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.is_init = is_init
        # An init container that runs beside the others, from before them until after them.
        self.is_sidecar = is_init and spec.get("restartPolicy") == "Always"
        self.has_started = asyncio.Event()
        self.folder = folder
        self.log = LogFile(folder / "0.log")
        self._message_file = folder / "termination-log"
        self.container: Container | None = None
        self.state: State = Waiting("PodInitializing" if waits_for_init else "ContainerCreating")
        self._container_id = ""
        self._image_id = ""

    @property
    def field_path(self) -> str:
        """The container's name in events."""
        return f"spec.{'initContainers' if self.is_init else 'containers'}{{{self.name}}}"

    @property
    def is_running(self) -> bool:
        """Whether there are processes to be stopped."""
        return self.container is not None and not isinstance(self.state, Terminated)

    def view(self) -> ContainerView:
        """Return what the pod's status says of it."""
        return ContainerView(
            self.spec, self.state, self._container_id, self._image_id, is_sidecar=self.is_sidecar
        )

    async def live(self, context: PodContext) -> bool:
        """Start the container, wait for its end and say whether it succeeded."""
        image = await self._wait_for_image(context)
        self._image_id = image.image_id
        launch = await self._wait_for_config(context, image)
        self._container_id = f"local://{secrets.token_hex(32)}"
        context.events.record(
            "Created", f"Created container: {self.name}", field_path=self.field_path
        )
        try:
            started = await process.start(launch)
        except process.StartFailure as exc:
            self._fail_start(context, exc.message)
            return False
        self.container = Container(
            started,
            self.log,
            tty=launch.tty,
            stdin=launch.stdin,
            stdin_once=bool(self.spec.get("stdinOnce")),
        )
        self._set_state(context, Running(self.container.started_at))
        context.events.record(
            "Started", f"Started container {self.name}", field_path=self.field_path
        )
        self.has_started.set()
        await self.container.wait()
        self.note_end(context)
        return self.view().has_succeeded

    def note_end(self, context: PodContext) -> None:
        """Take over how the processes ended, once they have."""
        end = None if self.container is None else self.container.exit
        if end is None or isinstance(self.state, Terminated):
            return
        message = self._read_message(has_failed=end.exit_code != 0)
        times = (end.started_at, end.finished_at)
        self._set_state(context, Terminated(end.exit_code, end.reason, *times, message))

    def lose(self) -> None:
        """Give up a container that did not start before its pod ended."""
        if isinstance(self.state, Waiting):
            self.state = Terminated(LOST_CODE, LOST, None, None, LOST_MESSAGE)

    def _read_message(self, *, has_failed: bool) -> str:
        """Return what the container has left as its last word; "" for nothing."""
        with suppress(OSError), open(self._message_file, "rb", opener=_open_own_file) as file:
            if message := file.read(MESSAGE_FILE_BYTES):
                return message.decode(errors="replace")
        if has_failed and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            return last_lines(self.log, lines=MESSAGE_LINES, limit_bytes=MESSAGE_BYTES)
        return ""

    def _set_state(self, context: PodContext, state: State) -> None:
        self.state = state
        context.changed()

    def _warn(self, context: PodContext, reason: str, message: str) -> None:
        context.events.record(reason, message, type_=WARNING, field_path=self.field_path)

    def _fail_start(self, context: PodContext, message: str) -> None:
        self._warn(context, "Failed", f"Error: {message}")
        self.log.close()
        times = (NEVER_STARTED, time.time())
        self._set_state(context, Terminated(START_ERROR_CODE, "StartError", *times, message))

    async def _wait_for_image(self, context: PodContext) -> Image:
        """Return the image; without one, tell so as a kubelet does and wait for ever."""
        reference = self.spec["image"]
        try:
            image = context.settings.images.find(reference, self.spec.get("imagePullPolicy", ""))
        except ImageTrouble as exc:
            await self._tell_image_trouble(context, exc)
            await asyncio.Event().wait()
            raise
        message = f'Container image "{reference}" already present on machine'
        context.events.record("Pulled", message, field_path=self.field_path)
        return image

    async def _tell_image_trouble(self, context: PodContext, trouble: ImageTrouble) -> None:
        reference = self.spec["image"]
        told = {"ErrImageNeverPull": "ErrImageNeverPull", "InvalidImageName": "InspectFailed"}
        if trouble.reason == "ErrImagePull":
            pulling = f'Pulling image "{reference}"'
            context.events.record("Pulling", pulling, field_path=self.field_path)
            self._warn(context, "Failed", f'Failed to pull image "{reference}": {trouble.message}')
        else:
            self._warn(context, told[trouble.reason], trouble.message)
        self._warn(context, "Failed", f"Error: {trouble.reason}")
        self._set_state(context, Waiting(trouble.reason, trouble.message))
        if trouble.reason == "ErrImagePull":
            await asyncio.sleep(PULL_BACKOFF_SECONDS)
            back_off = f'Back-off pulling image "{reference}"'
            context.events.record("BackOff", back_off, field_path=self.field_path)
            self._warn(context, "Failed", "Error: ImagePullBackOff")
            message = f"{back_off}: ErrImagePull: {trouble.message}"
            self._set_state(context, Waiting("ImagePullBackOff", message))

    async def _wait_for_config(self, context: PodContext, image: Image) -> process.Launch:
        """Return how to start; while a value's source is missing, tell so and try again."""
        is_told = False
        while True:
            try:
                return self._plan(context, image)
            except (ConfigTrouble, VolumeTrouble) as exc:
                if not is_told:
                    self._warn(context, "Failed", f"Error: {exc.message}")
                    self._set_state(context, Waiting("CreateContainerConfigError", exc.message))
                is_told = True
            await asyncio.sleep(CONFIG_RETRY_SECONDS)

    def _plan(self, context: PodContext, image: Image) -> process.Launch:
        mounts = container_mounts(self.spec, context.volumes_dir)
        if message_path := self.spec.get("terminationMessagePath"):
            self._message_file.parent.mkdir(parents=True, exist_ok=True)
            self._message_file.touch()
            mounts = mounts.adding(message_path, self._message_file)
        named = build_env(context.pod, self.spec, context.pod_ip, context.lookup)
        check_user(context.pod, self.spec, image)
        tools = self.folder / "bin"
        search = make_tools(tools, context.settings.images.kernel_command)
        tty = bool(self.spec.get("tty"))
        env = {"HOSTNAME": context.pod["metadata"]["name"]}
        if tty:
            env["TERM"] = "xterm"
        env |= {name: mounts.map(value) for name, value in named.items()}
        env["PATH"] = f"{tools}:{env['PATH']}" if "PATH" in env else search
        env["TELO_STANDIN_BIND"] = context.pod_ip
        argv = build_argv(self.spec, image, named)
        return process.Launch(
            argv=tuple(mounts.map(word) for word in argv),
            env=env,
            working_dir=self._working_dir(mounts),
            tools=tools,
            tty=tty,
            stdin=bool(self.spec.get("stdin")),
        )

    def _working_dir(self, mounts: Mounts) -> str:
        """Return the working directory: mapped, or the machine's own, else a folder of the pod's.

        Without a `workingDir` too: an image's root directory is not the machine's.
        """
        named = self.spec.get("workingDir")
        if named:
            mapped = mounts.map(named)
            if mapped == named and Path(named).exists():
                return str(named)
            if mapped != named:
                with suppress(FileExistsError, NotADirectoryError):
                    Path(mapped).mkdir(parents=True, exist_ok=True)
                return mapped
        root = self.folder / "root"
        root.mkdir(parents=True, exist_ok=True)
        return str(root)


def _open_own_file(path: str, flags: int) -> int:
    """Open without following a link or waiting for a writer: the container may have put either."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
