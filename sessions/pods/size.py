"""How large an environment a pod can carry; pure.

Source: https://etcd.io/docs/latest/dev-guide/limit/ (1.5 MiB for an object) and the API server's
limit of 3 MiB for a request's body.
"""

from collections.abc import Mapping

import orjson

from sessions.pods.run import literal

# NB: each attempt with a pod that is larger counts against the namespace's quota, though there is
# no pod.
MAX_STORED_ENV_BYTES = 1_310_720
MAX_SENT_ENV_BYTES = 2_621_440
# What a variable costs besides its name, once more, and its value: who set it (managedFields).
VARIABLE_OVERHEAD_BYTES = 80


def fits_into_a_pod(env: Mapping[str, str]) -> bool:
    """Tell whether the Kubernetes API takes a pod with these variables."""
    stored_bytes = sent_bytes = 0
    for name, value in env.items():
        written = literal(value)
        overhead_bytes = 2 * len(name) + VARIABLE_OVERHEAD_BYTES
        stored_bytes += overhead_bytes + len(written.encode())
        sent_bytes += overhead_bytes + len(orjson.dumps(written))
    return stored_bytes <= MAX_STORED_ENV_BYTES and sent_bytes <= MAX_SENT_ENV_BYTES
