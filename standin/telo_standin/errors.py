"""What can go wrong with an application, as the terminal shows it.

StandinError
├── ManifestError   the application cannot be loaded (found by ``telo check`` too)
├── EvaluationError a CEL expression has no value
└── RunError        a step of a running application failed

``Interrupted`` is no error: it is how a signal unwinds the main thread.
"""


class StandinError(Exception):
    """The stand-in kernel cannot go on."""


class ManifestError(StandinError):
    """The manifest cannot be loaded."""


class EvaluationError(StandinError):
    """An expression has no value."""


class RunError(StandinError):
    """A step failed."""


class Interrupted(BaseException):
    """A signal asked the kernel to stop.

    It derives from BaseException so that no step can take it for its own failure.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number
