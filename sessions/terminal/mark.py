"""The start mark on its way out: it comes first, once, and clients never see it; pure.

A start text prints it right before the application where its gate was opened by an attach. With it
as the first bytes of an attach, nothing was printed before.
"""


class MarkFilter:
    """Takes a mark away from the very beginning of a container's output.

    The same bytes are the application's own anywhere else. While only a part of the mark has come
    it is kept back, which no terminal shows: it is a command that has not ended yet.
    """

    def __init__(self, mark: bytes) -> None:
        self._left = mark
        self._kept = b""

    @property
    def awaits(self) -> bytes:
        """The rest of the mark; b"" once the beginning has passed."""
        return self._left

    def pass_through(self, data: bytes) -> bytes:
        """Return what clients are to get of the next bytes."""
        if not self._left or not data:
            return data
        if data.startswith(self._left):
            data = data[len(self._left) :]
            self._left = self._kept = b""
            return data
        if self._left.startswith(data):
            self._kept += data
            self._left = self._left[len(data) :]
            return b""
        return self.give_up() + data

    def give_up(self) -> bytes:
        """Return what was kept back: it is no mark, or the output has ended."""
        kept, self._left, self._kept = self._kept, b"", b""
        return kept
