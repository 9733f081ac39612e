"""CITATION.cff, pyproject.toml and other files about the project agree with the package and with each other."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import rrnn

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parent.parent


def read_yaml(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_citation_describes_this_version(project: dict[str, Any]) -> None:
    citation = read_yaml("CITATION.cff")
    assert citation["version"] == rrnn.__version__
    released = f"## [{rrnn.__version__}] - {citation['date-released']}\n"
    assert released in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert citation["title"] == project["name"]
    assert citation["abstract"] == project["description"]
    # The other licence is that of the bundled font; a list in CITATION.cff would mean "or".
    assert project["license"] == f"{citation['license']} AND LPPL-1.3c"
    assert citation["authors"] == project["authors"]
    assert citation["keywords"] == project["keywords"]
    assert project["authors"][0]["name"] in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_the_citation_and_the_readme_name_the_same_paper() -> None:
    paper = read_yaml("CITATION.cff")["preferred-citation"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    authors = " and ".join(
        f"{author['family-names']}, {author['given-names']}" for author in paper["authors"]
    )
    assert f"{{{paper['title']}}}" in readme and f"{{{authors}}}" in readme
    assert f"{{{paper['collection-title']}}}" in readme and f"{{{paper['year']}}}" in readme
    assert f"{{{paper['start']}--{paper['end']}}}" in readme


def test_the_workflow_runs_ci_on_every_supported_python(project: dict[str, Any]) -> None:
    job = read_yaml(".github/workflows/ci.yml")["jobs"]["test"]
    named = [name.rpartition(" ")[2] for name in project["classifiers"] if "Python :: 3." in name]
    assert job["strategy"]["matrix"]["python"] == named
    assert project["requires-python"] == f">={named[0]}"
    (command,) = [step["run"] for step in job["steps"] if "run" in step]
    assert (ROOT / command).stat().st_mode & 0o100


def test_the_project_names_no_addresses(project: dict[str, Any]) -> None:
    """Until the project has a public home, an address would be an invented one."""
    assert not project.get("urls")
