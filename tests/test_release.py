"""Files that reviewers, contributors and forges read: they name what is there."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from aftlib.command.batch import find_notebook
from aftlib.command.cli import main, read_values
from aftlib.command.documents import DOCUMENTS
from aftlib.command.light import describe_check
from tests.test_makefile import targets

ROOT = Path(__file__).parents[1]
CHECK = yaml.safe_load((ROOT / "codecheck.yml").read_text())
FULL = json.loads((ROOT / "reports" / "full.json").read_text())
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in (ROOT / ".github" / "workflows").glob("*.yml")
}
COMMANDS = [
    pytest.param(page, command, id=command)
    for page in ("docs/gallery.md", "ARTIFACT.md", "README.md")
    for command in re.findall(r"\baft run [^`#\n]+", (ROOT / page).read_text())
    if "NAME=VALUE" not in command
]


def test_the_check_follows_the_rules_of_codecheck():
    """https://codecheck.org.uk/spec/config/1.0/: what authors give; a checker adds the rest."""
    assert CHECK["version"] == "https://codecheck.org.uk/spec/config/1.0/"
    assert CHECK["paper"]["title"] and all(author["name"] for author in CHECK["paper"]["authors"])
    files = [entry["file"] for entry in CHECK["manifest"]]
    assert len(set(files)) == len(files) == 2 + len(DOCUMENTS)
    assert not any(Path(file).is_absolute() or ".." in file for file in files)
    assert {*CHECK} == {"version", "paper", "manifest"}  # no check has been made
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_the_check_is_made_from_the_scorecard():
    assert yaml.safe_load(describe_check(FULL)) == CHECK
    compared = " ".join(entry["comment"] for entry in CHECK["manifest"])
    for claim in FULL["claims"]:
        assert f"{claim['id']} {claim['verdict']}" in compared


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_of_a_page_name_parameters_of_the_notebook(page, command):
    _, _, notebook, *options = command.split()
    assert options[::2] == ["-p"] * (len(options) // 2)
    _, document = find_notebook(notebook)
    values = document.parameters.parse(read_values(tuple(options[1::2])))
    document.parameters(**{name: value for name, value in values.items() if name != "data"})


def test_pages_show_commands_of_the_command_line():
    for page in ("docs/gallery.md", "ARTIFACT.md", "README.md", "docs/reports.md"):
        text = (ROOT / page).read_text()
        assert {*re.findall(r"\baft (\w+)", text)} <= {*main.commands}
        assert {*re.findall(r"`make (\w+)", text)} <= targets()


@pytest.mark.parametrize("name", WORKFLOWS)
def test_each_step_of_a_workflow_is_a_target_of_make(name):
    steps = [step for job in WORKFLOWS[name]["jobs"].values() for step in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]
    assert commands or name == "release"
    for command in commands:
        assert re.fullmatch(r"make (\w+)( \w+=\S+( }})?)*|make setup PYTHON=python\S.*", command)
        assert command.split()[1] in targets()
    assert all(re.search(r"@(v\d|release/v\d)", step["uses"]) for step in steps if "uses" in step)


def test_each_python_that_is_named_is_tested():
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    named = re.findall(r":: (3\.\d+)", " ".join(classifiers))
    matrix = WORKFLOWS["check"]["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == named
    assert {system.split("-")[0] for system in matrix["os"]} == {"ubuntu", "macos"}


def test_what_is_run_before_a_commit_is_a_part_of_make_lint():
    makefile = (ROOT / "Makefile").read_text()
    assert "\nlint: rules\n" in makefile
    recipes = re.findall(r"^(?:rules|lint):.*\n((?:\t.*\n)+)", makefile, re.M)
    lint = "".join(recipes).replace("$(bin)", ".venv/bin")
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    for hook in hooks:
        assert hook["entry"].removesuffix(" --force-exclude") in lint
    assert len(hooks) == lint.count("\n")


def test_an_issue_asks_for_version_message_and_plan():
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "fault.yml").read_text())
    required = {
        field["id"] for field in form["body"] if field.get("validations", {}).get("required")
    }
    assert required == {"version", "message"}
    assert "plan" in {field["id"] for field in form["body"]}
    assert "aft --version" in json.dumps(form)
