"""The pages for people: every variable is in the README, and what they name and link to exists."""

import re
from pathlib import Path

import pytest
import yaml

from telorunner.conf import Settings

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = [README, *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"))]
PAGES += sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")])

VARIABLES = {str(field.validation_alias) for field in Settings.model_fields.values()}
# Not those of which only the beginning is given, as in RUNNER_LOCAL_*.
NAME = re.compile(r"(?<![A-Z_])(?:RUNNER|SESSION|DJANGO)_[A-Z_]*\b(?!\*)")
NOT_OURS = re.compile(r"DJANGO_(SUPERUSER_(USERNAME|EMAIL|PASSWORD)|SETTINGS_MODULE)")
ROW = re.compile(r"^\| (`[A-Z][^|]*) \|[^|]*\|[^|]+\|$", re.MULTILINE)
CODE = re.compile(r"`([A-Z_]+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def title(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as a forge makes them."""
    words = (
        re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(page.read_text())
    )
    return {heading.replace(" ", "-") for heading in words}


def test_the_readme_has_a_row_for_each_variable_and_for_nothing_else() -> None:
    rows = [name for row in ROW.findall(README.read_text()) for name in CODE.findall(row)]
    assert sorted(rows) == sorted(VARIABLES)


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_pages_name_only_variables_that_there_are(page: Path) -> None:
    named = {name for name in NAME.findall(page.read_text()) if not NOT_OURS.fullmatch(name)}
    assert named <= VARIABLES


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text()):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_manifests_can_be_applied_as_they_stand(page: Path) -> None:
    for block in YAML.findall(page.read_text()):
        for manifest in yaml.safe_load_all(block):
            assert {"apiVersion", "kind", "metadata", "spec"} <= set(manifest)
