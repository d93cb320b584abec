"""The table of figures, on the terminal and in RESULTS.md; pure but for the file."""

import datetime
from collections.abc import Sequence
from pathlib import Path

from bench.figures import Figure

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
BEGIN = "<!-- what `make bench` writes begins here -->"
END = "<!-- what `make bench` writes ends here -->"


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as a Markdown table."""
    lines = ["| figure | value | target | | |", "| --- | ---: | ---: | --- | --- |"]
    for one in figures:
        value = f"{one.value:.3g}{one.unit}"
        target = f"{one.target}{one.unit}" if one.target.bound is not None else ""
        lines.append(f"| {one.name} | {value} | {target} | {one.verdict} | {one.detail} |")
    return "\n".join(lines)


def write(figures: Sequence[Figure], machine: Sequence[str]) -> None:
    """Replace the measured part of RESULTS.md; what people have written around it stays."""
    before, _, rest = RESULTS.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    day = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    described = "\n".join(f"- {line}" for line in [f"Taken on {day}", *machine])
    RESULTS.write_text(f"{before}{BEGIN}\n\n{described}\n\n{table(figures)}\n\n{END}{after}")
