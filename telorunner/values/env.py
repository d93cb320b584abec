"""Environment variables as the cluster and `exec` take them; pure.

The sentences are for whoever set the variable; none repeats a value, which may be a secret.

Source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ (env)
"""

import re

NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*", re.ASCII)
MAX_NAME_LENGTH = 256
# MAX_ARG_STRLEN of Linux, 128 KiB, counts the "=" and the NUL behind them too.
MAX_VARIABLE_BYTES = 131_072 - 2
MAX_TOTAL_BYTES = 1_048_576
# Of one app: its form has a field for each and more, and Django reads at most 1000 of a form.
MAX_APP_VARIABLES = 400


def name_problem(name: str) -> str:
    """Return what is wrong with a name; empty: nothing."""
    if len(name) > MAX_NAME_LENGTH:
        return f"the name has more than {MAX_NAME_LENGTH} characters"
    if NAME.fullmatch(name) is None:
        return f"the name must match {NAME.pattern}"
    return ""


def value_problem(value: str) -> str:
    """Return what is wrong with a value; empty: nothing."""
    return "the value holds a NUL" if "\0" in value else ""


def size_problem(name: str, value: str) -> str:
    """Return what is wrong with a variable's size; empty: nothing."""
    if size_bytes(name, value) > MAX_VARIABLE_BYTES:
        return "name and value together must be under 128 KiB"
    return ""


def size_bytes(name: str, value: str) -> int:
    """Return how much of the limits a variable takes."""
    return len(name.encode()) + len(value.encode())
