"""What passes through an attached stream: channels, sizes, input, and how it ends."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.conformance.attaching import (
    CLOSE,
    ERROR,
    RESIZE,
    STDERR,
    STDIN,
    STDOUT,
    SUCCESS,
    V4,
    V5,
    attach,
)
from tests.conformance.client import Access, Api
from tests.conformance.pods import (
    Recorder,
    is_running,
    make_shell_pod,
    pods_path,
    standing_pods,
    state_of,
)

TERMINAL = {"stdin": "true", "stdout": "true", "tty": "true"}
BIG_BYTES = 5 * 1024 * 1024
SIZE_TRIES = 50
MAY_LACK_BYTES = 512 * 1024
# A size is in the answer, since not every `stty` prints one.
_TERMINAL = 'while read -r word; do echo "[$word $(stty size)]"; done'
_PODS = {
    # name: what runs, and the container's other fields.
    "terminal": (_TERMINAL, {"stdin": True, "tty": True}),
    "sized": (_TERMINAL, {"stdin": True, "tty": True}),
    "cat": ("cat; echo over; exit 3", {"stdin": True}),
    "once": ("cat; echo over; exit 4", {"stdin": True, "stdinOnce": True}),
    "both": ("while read -r word; do echo $word; echo e$word >&2; done", {"stdin": True}),
    "deaf": ("while :; do echo out; echo err >&2; sleep 0.2; done", {}),
    "big": (f"read -r go; head -c {BIG_BYTES} /dev/zero | tr '\\0' x", {"stdin": True}),
    "fails": ("read -r go; echo last; exit 5", {"stdin": True}),
    "asked": ('trap "echo bye; exit 7" TERM; while :; do sleep 0.1; done', {"stdin": True}),
    "forced": ('trap "" TERM; while :; do sleep 0.1; done', {"stdin": True}),
}


@pytest.fixture(scope="module")
def pods(access: Access) -> Iterator[str]:
    """The namespace of pods that run."""
    with standing_pods(access, _create) as namespace:
        yield namespace


async def _create(recorder: Recorder) -> None:
    async with recorder.api.watch(pods_path(recorder.namespace)) as watch:
        await recorder.create(
            make_shell_pod(name, text, **fields) for name, (text, fields) in _PODS.items()
        )
        await recorder.follow(watch, dict.fromkeys(_PODS, is_running))


async def ended_state(api: Api, namespace: str, name: str) -> object:
    """Return the state of a pod's container once it has ended."""
    recorder = Recorder(api, namespace)
    async with api.watch(pods_path(namespace), fieldSelector=f"metadata.name={name}") as watch:
        await recorder.follow(watch, {name: lambda pod: "terminated" in state_of(pod)})
    return state_of(recorder.stories[name].last)["terminated"]


@pytest.mark.parametrize("protocol", [V4, V5])
async def test_the_first_frame_is_an_empty_one(api: Api, pods: str, protocol: str) -> None:
    async with attach(api, pods, "terminal", protocol, **TERMINAL) as attached:
        assert await attached.next() == (STDOUT, b"")
        assert attached.protocol == protocol


async def test_it_is_on_the_lowest_channel_that_was_asked_for(api: Api, pods: str) -> None:
    async with attach(api, pods, "deaf", stderr="true") as attached:
        assert await attached.next() == (STDERR, b"")


@pytest.mark.parametrize("protocol", [V4, V5])
async def test_stdout_and_stderr_have_channels_of_their_own(
    api: Api, pods: str, protocol: str
) -> None:
    async with attach(api, pods, "both", protocol) as attached:
        await attached.send(STDIN, b"one\n")
        assert await attached.until(b"\n") == b"one\n"
        assert await attached.until(b"\n", STDERR) == b"eone\n"


async def test_only_the_channels_that_were_asked_for_are_sent(api: Api, pods: str) -> None:
    for asked, other in ((STDOUT, STDERR), (STDERR, STDOUT)):
        name = {STDOUT: "stdout", STDERR: "stderr"}[asked]
        async with attach(api, pods, "deaf", **{name: "true"}) as attached:
            while attached.output(asked).count(b"\n") < 2:
                await attached.next()
            assert attached.output(other) == b""


async def test_who_says_tty_gets_no_stderr(api: Api, pods: str) -> None:
    asked = {"stdout": "true", "stderr": "true", "tty": "true"}
    async with attach(api, pods, "deaf", **asked) as attached:
        while attached.output().count(b"\n") < 2:
            await attached.next()
        assert attached.output(STDERR) == b""


async def test_input_for_a_container_that_takes_none_is_dropped(api: Api, pods: str) -> None:
    async with attach(api, pods, "deaf") as attached:
        await attached.send(STDIN, b"hello\n")
        seen = await attached.until(b"out\nout\n")
        assert b"hello" not in seen


@pytest.mark.parametrize("protocol", [V4, V5])
async def test_a_terminal_gets_its_size_and_echoes(api: Api, pods: str, protocol: str) -> None:
    async with attach(api, pods, "terminal", protocol, **TERMINAL) as attached:
        for columns, rows in ((100, 40), (90, 30)):
            await attached.resize(columns, rows)
            # A size goes a way of its own, and input may overtake it.
            for number in range(SIZE_TRIES):
                word = f"{columns}-{number}"
                await attached.send(STDIN, f"{word}\n".encode())
                answer = f"[{word} {rows} {columns}]\r\n".encode()
                if answer in await attached.until(f"[{word} ".encode(), ends_with=b"]\r\n"):
                    break
            assert answer in attached.output()
            assert attached.output().count(f"{word}\r\n".encode()) == 1


async def test_frames_of_other_channels_and_empty_ones_are_ignored(api: Api, pods: str) -> None:
    async with attach(api, pods, "terminal", **TERMINAL) as attached:
        await attached.send(7, b"what")
        await attached.send(STDOUT, b"what")
        await attached.send(STDIN, b"")
        await attached.send(STDIN, b"odd\n")
        await attached.until(b"[odd")
        assert b"what" not in attached.output()


@pytest.mark.parametrize("wrong", [b"nonsense", b'{"Width":70000,"Height":10}', b"{]"])
async def test_after_a_wrong_size_the_next_one_holds_up_the_input_of_this_client(
    api: Api, pods: str, wrong: bytes
) -> None:
    async with attach(api, pods, "sized", **TERMINAL) as attached:
        await attached.send(RESIZE, wrong)
        await attached.send(STDIN, b"heard\n")
        await attached.until(b"[heard")
        await attached.resize(60, 20)
        await attached.send(STDIN, b"unheard\n")
        async with attach(api, pods, "sized", **TERMINAL) as other:
            await other.send(STDIN, b"other\n")
            await other.until(b"[other")
        # Its output goes on.
        assert b"unheard" not in await attached.until(b"[other")


async def test_two_clients_see_the_same_and_may_both_type(api: Api, pods: str) -> None:
    async with (
        attach(api, pods, "terminal", **TERMINAL) as first,
        attach(api, pods, "terminal", V5, **TERMINAL) as second,
    ):
        # A client is connected before it is attached: its own input comes through then.
        await first.send(STDIN, b"two\n")
        await first.until(b"[two")
        await second.send(STDIN, b"three\n")
        for attached in (second, first):
            await attached.until(b"[three")
        await first.send(STDIN, b"four\n")
        for attached in (first, second):
            assert (await attached.until(b"[four")).count(b"[three") == 1


async def test_who_leaves_can_come_back_and_was_not_waited_for(api: Api, pods: str) -> None:
    async with attach(api, pods, "cat") as attached:
        await attached.send(STDIN, b"five\n")
        await attached.until(b"five\n")
    async with attach(api, pods, "cat") as attached:
        await attached.send(STDIN, b"six\n")
        assert await attached.until(b"six\n") == b"six\n", "what was said before is not told again"


async def test_the_end_of_input_under_v5_ends_the_stay_and_not_the_input(
    api: Api, pods: str
) -> None:
    async with attach(api, pods, "cat", V5) as attached:
        await attached.send(CLOSE, bytes((STDIN,)))
        assert (await attached.rest())[-1] == (ERROR, SUCCESS)
        assert attached.close_code == 1000
    async with attach(api, pods, "cat") as attached:
        await attached.send(STDIN, b"seven\n")
        await attached.until(b"seven\n")


async def test_under_v5_a_terminals_stay_ends_too(api: Api, pods: str) -> None:
    async with attach(api, pods, "terminal", V5, **TERMINAL) as attached:
        await attached.send(CLOSE, bytes((STDIN,)))
        assert (await attached.rest())[-1] == (ERROR, SUCCESS)
    async with attach(api, pods, "terminal", **TERMINAL) as attached:
        await attached.send(STDIN, b"eight\n")
        await attached.until(b"[eight")


def is_all(api: Api, output: bytes, whole: bytes) -> bool:
    """Tell whether a stream that was closed with Success had all of a container's output.

    A real kubelet closes it so though tens of KiB of the end are still in its pipe.
    """
    may_lack = MAY_LACK_BYTES if api.is_real else 0
    return whole.startswith(output) and len(whole) - len(output) <= may_lack


async def test_with_stdin_once_the_end_of_input_is_the_applications(api: Api, pods: str) -> None:
    async with attach(api, pods, "once", V5) as attached:
        await attached.send(STDIN, b"x\n")
        await attached.until(b"x\n")
        await attached.send(CLOSE, bytes((STDIN,)))
        frames = await attached.rest()
        assert is_all(api, attached.output(), b"x\nover\n")
        assert frames[-1] == (ERROR, SUCCESS)
    state = await ended_state(api, pods, "once")
    assert isinstance(state, dict)
    assert state["exitCode"] == 4


async def test_5_mib_arrive_in_frames_of_32_kib_but_perhaps_for_the_end(
    api: Api, pods: str
) -> None:
    async with attach(api, pods, "big") as attached:
        await attached.send(STDIN, b"\n")
        frames = await attached.rest()
        assert attached.close_code == 1000
    assert is_all(api, attached.output(), b"x" * BIG_BYTES)
    assert max(len(data) for _, data in frames) <= 32 * 1024
    assert frames[-1] == (ERROR, SUCCESS)


async def test_a_container_that_fails_ends_the_stream_as_a_success(api: Api, pods: str) -> None:
    async with attach(api, pods, "fails") as attached:
        await attached.send(STDIN, b"\n")
        frames = await attached.rest()
        assert is_all(api, attached.output(), b"last\n")
        # The exit code is the status's to tell, never the stream's.
        assert frames[-1] == (ERROR, SUCCESS)
        assert attached.close_code == 1000
    state = await ended_state(api, pods, "fails")
    assert isinstance(state, dict)
    assert state["exitCode"] == 5


@pytest.mark.parametrize(
    ("pod", "grace_seconds", "last_words", "patience_seconds"),
    # On a busy machine, and still long before the thirty seconds are over.
    [("asked", "30", b"bye\n", 12.0), ("forced", "0", b"", 10.0)],
)
async def test_a_deletion_is_told_by_the_end_of_the_stream_when_the_container_has_ended(
    api: Api, pods: str, pod: str, grace_seconds: str, last_words: bytes, patience_seconds: float
) -> None:
    async with attach(api, pods, pod) as attached:
        await attached.next()
        query = {"gracePeriodSeconds": grace_seconds}
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        await api.ask("DELETE", pods_path(pods, pod), query=query)
        frames = await attached.rest()
        took_seconds = loop.time() - started_at
        assert is_all(api, attached.output(), last_words)
        assert frames[-1] == (ERROR, SUCCESS)
        assert attached.close_code == 1000
    # A kubelet gives everybody two seconds, also where it is told to give none.
    assert took_seconds >= (1.9 if pod == "forced" else 0)
    assert took_seconds < patience_seconds + 3
