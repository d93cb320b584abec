"""What an engine asks of the cluster, and how fast it is, with one session and with many."""

import tempfile

from bench.child import started
from bench.figures import NO_TARGET, Figure, at_most, quantile
from bench.processes import QUIET
from bench.scale import Scale


def measure(scale: Scale) -> list[Figure]:
    """Fill an engine with sessions and time what happens to a few more."""
    with (
        tempfile.TemporaryDirectory(prefix="telorunner-bench-") as folder,
        started("bench.crowd", **{**QUIET, "LOG_LEVEL": "error"}, RUNNER_DATA_DIR=folder) as crowd,
    ):
        crowd.ask("start", count=1)
        few = crowd.ask("watches")
        alone = [crowd.ask("change") for _ in range(scale.changes)]
        crowd.ask("start", count=scale.sessions - 1)
        many = crowd.ask("watches")
        crowded = [crowd.ask("change") for _ in range(scale.changes)]
    counts = f"{few['list']} and {many['list']} lists"
    p95 = quantile(crowded, 0.95) * 1000
    p50 = quantile(crowded, 0.5)
    return [
        Figure("watches at 1 session", few["watch"], at_most(4), counts),
        Figure(f"watches at {scale.sessions:,} sessions", many["watch"], at_most(4), counts),
        Figure(
            f"pod change to row and stream, {scale.sessions:,} sessions",
            p95,
            at_most(100),
            f"p95 of {scale.changes}; p50 {p50 * 1000:.0f} ms, "
            f"longest {max(crowded) * 1000:.0f} ms",
            unit=" ms",
        ),
        Figure(
            "the same / with few sessions",
            p50 / quantile(alone, 0.5),
            NO_TARGET,
            f"p50; {quantile(alone, 0.5) * 1000:.0f} ms with few",
        ),
    ]
