"""When an image is pulled, in the contract's words."""

from enum import StrEnum


class PullPolicy(StrEnum):
    """The client's word for the Pod's imagePullPolicy."""

    MISSING = "missing"
    ALWAYS = "always"
    NEVER = "never"
