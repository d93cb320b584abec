"""What registering a session costs beside a view that writes one row."""

import json
import os

from bench.child import Child
from bench.figures import Figure, at_most, median_ratio, quantile
from bench.processes import target_and_readers
from bench.scale import Scale

BODY = json.dumps(
    {
        "bundle": {
            "entryRelativePath": "telo.yaml",
            "files": [{"relativePath": "telo.yaml", "contents": "kind: Telo.Application\n"}],
        },
        "env": {"GREETING": "hello"},
        "config": {"image": "telorun/node:latest-slim", "pullPolicy": "missing"},
    }
)
_SHARES = {"p50": 0.5, "p95": 0.95}


def measure(scale: Scale) -> list[Figure]:
    """Create sessions and rows in turn, on every database there is."""
    figures = _on_database("SQLite", scale, DATABASE_URL="")
    if url := os.environ.get("BENCH_POSTGRES_URL"):
        figures += _on_database("PostgreSQL", scale, DATABASE_URL=url)
    return figures


def _on_database(name: str, scale: Scale, **environment: str) -> list[Figure]:
    mine: dict[str, list[float]] = {share: [] for share in _SHARES}
    bare: dict[str, list[float]] = {share: [] for share in _SHARES}
    with target_and_readers(**environment) as (target, readers, ports):
        for path in ("/bench/row", "/v1/sessions"):
            _post(readers, ports, path, scale)
        for _ in range(scale.rounds):
            for path, found in (("/bench/row", bare), ("/v1/sessions", mine)):
                lasted = _post(readers, ports, path, scale)
                for share, value in _SHARES.items():
                    found[share].append(quantile(lasted, value))
            target.ask("clear")
        calls = target.ask("calls")
    figures = [
        Figure(
            f"create: {share} of {scale.parallel} parallel / bare row, {name}",
            median_ratio(mine[share], bare[share]),
            at_most(4),
            f"{_ms(mine[share])} against {_ms(bare[share])}",
        )
        for share in _SHARES
    ]
    detail = f"{scale.creates * (scale.rounds + 1)} creates, {name}"
    return [*figures, Figure("create: calls to the cluster", calls, at_most(0), detail)]


def _post(readers: Child, ports: dict[str, int], path: str, scale: Scale) -> list[float]:
    lasted: list[float] = readers.ask(
        "post",
        port=ports["product"],
        path=path,
        body=BODY,
        parallel=scale.parallel,
        count=scale.creates,
    )
    return lasted


def _ms(values: list[float]) -> str:
    return f"{quantile(values, 0.5) * 1000:.0f} ms"
