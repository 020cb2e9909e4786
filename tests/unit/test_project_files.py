"""What the files of the project say of each other: package, workflows, make, citation."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from msprobe import __version__

if sys.version_info >= (3, 11):
    import tomllib

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
#: Distributions that are imported under a different name.
MODULES = {"python-calamine": "python_calamine"}

needs_toml = pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is part of Python 3.11 and later")


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=~;\[ ]", text)[0] for text in requirements}


def steps_of(path: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@needs_toml
def test_each_package_of_an_extra_is_imported_somewhere() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    unused = {
        name
        for packages in project()["project"]["optional-dependencies"].values()
        for name in names_of(packages)
        if not re.search(
            rf"^\s*(?:import|from) {MODULES.get(name, name)}\b|['\"]{MODULES.get(name, name)}\b", text, re.M
        )
    }
    assert unused == set()


@needs_toml
@pytest.mark.parametrize("page", ["install.md", "install.zh.md"])
def test_the_page_of_the_installation_has_each_extra_with_its_packages(page: str) -> None:
    shown = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.M))
    extras = project()["project"]["optional-dependencies"]
    assert shown.keys() == extras.keys()
    assert not [name for name, packages in extras.items() for one in names_of(packages) if one not in shown[name]]


@needs_toml
def test_what_developers_need_is_a_group_and_no_extra() -> None:
    found = project()
    assert found["project"]["optional-dependencies"].keys().isdisjoint(found["dependency-groups"])
    assert {"pytest", "mypy", "ruff"} <= names_of(found["dependency-groups"]["dev"])


@needs_toml
def test_wheels_are_built_for_each_python_that_the_package_names() -> None:
    found = project()
    named = {text.rpartition(" ")[2] for text in found["project"]["classifiers"] if "Python :: 3." in text}
    built = {re.sub(r"cp3(\d+)-\*", r"3.\1", text) for text in found["tool"]["cibuildwheel"]["build"]}
    assert named == built
    assert f">={min(named, key=lambda text: int(text[2:]))}" == found["project"]["requires-python"]


def test_workflows_call_make_targets_that_there_are() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    called = set()
    for path in WORKFLOWS:
        text = path.read_text(encoding="utf-8")
        called |= set(re.findall(r"^\s*- run: make ([\w -]+?)(?: \w+=.*)?$", text, re.MULTILINE))
        for listed in re.findall(r"target: \[(.*)\]", text):
            called |= {name.strip() for name in listed.split(",")}
    targets = {name for words in called for name in words.split()}
    assert {"test", "lint", "docs"} <= targets
    assert [name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def test_steps_of_workflows_do_one_thing_and_jobs_end() -> None:
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert workflow["permissions"] == {"contents": "read"}
        assert all("timeout-minutes" in job for job in workflow["jobs"].values())
        assert all(("run" in step) != ("uses" in step) for step in steps_of(path))


def test_only_a_tag_publishes_and_without_a_password() -> None:
    text = (ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8")
    publish = yaml.safe_load(text)["jobs"]["publish"]
    assert publish["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert publish["permissions"] == {"id-token": "write"}
    assert "secrets." not in text


def test_the_citation_has_the_version_of_the_package() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == __version__


@pytest.mark.parametrize("name", ["CONTRIBUTING.md"])
def test_commit_subjects_that_are_called_good_are_short_and_have_an_area(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8").partition("## Commits")[2].partition("\n## ")[0]
    examples = re.findall(r"```\n(.*?)\n```", text, re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        subject, _, body = example.partition("\n\n")
        assert re.fullmatch(r"[a-z_]+: \S.{,70}", subject)
        assert len(subject) <= 72
        assert body


@needs_toml
def test_each_change_is_a_file_of_a_kind_that_a_release_knows() -> None:
    found = project()["tool"]["towncrier"]
    kinds = {kind["directory"] for kind in found["type"]}
    folder = ROOT / found["directory"]
    files = {path.name for path in folder.iterdir()} - set(found["ignore"])
    assert not [name for name in files if not re.fullmatch(rf"[\w+-]*\.({'|'.join(kinds)})\.md", name)]
    assert found["start_string"] in (ROOT / found["filename"]).read_text(encoding="utf-8")
