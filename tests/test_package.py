"""Descriptions of the package agree, and the wheel holds all files that it needs."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml

import aftlib
from aftlib import __main__ as command_line
from tests.versions import build_wheel

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
SOURCES = [path for path in (ROOT / "aftlib").rglob("*.*") if path.parent.name != "__pycache__"]


def test_the_version_is_the_same_everywhere():
    assert PROJECT["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "aftlib.__version__"}
    assert CITATION["version"] == aftlib.__version__
    newest = next(line for line in (ROOT / "CHANGELOG.md").open() if line.startswith("## "))
    assert newest.split()[1] == f"[{aftlib.__version__}]"


def test_a_citation_names_what_the_package_names():
    assert CITATION["cff-version"] == "1.2.0" and CITATION["type"] == "software"
    assert CITATION["message"] and CITATION["abstract"]
    assert CITATION["title"] == (ROOT / "README.md").read_text().splitlines()[0].removeprefix("# ")
    for name in ("license", "authors", "keywords"):
        assert CITATION[name] == PROJECT[name]


@pytest.mark.slow
def test_the_wheel_has_the_command_and_what_is_not_python_too(tmp_path):
    path = build_wheel(tmp_path)
    assert path.name.startswith(f"aftlib-{aftlib.__version__}-")
    with zipfile.ZipFile(path) as wheel:
        (information,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
        assert b"aft = aftlib.__main__:main" in wheel.read(information)
        missing = {path.relative_to(ROOT).as_posix() for path in SOURCES} - {*wheel.namelist()}
    assert missing == set()


BARE = """
import aftlib
from aftlib import *
import numpy as np
import sys

model = GaussianModel.fit(np.random.default_rng(0).normal(size=(50, 4)), shrinkage="auto")
asked = Requirement(epsilon=2.5, delta=0.05)
for assign in (assign_best, assign_greedy, assign_packed, assign_spread):
    assert len(assign(model, 2, asked).workers) == 2
assert isinstance(assign_random(model, 2, asked, np.random.default_rng(0)), Assignment)
assert isinstance(select_replay(model, 0.5), ReplaySet)
plan = plan_checkpoints(model, 12, asked, RecoveryTime(0, 1), t_sla_ms=9)
assert isinstance(plan, CheckpointPlan) and len(plan.times) == len(plan.replay) + 1
histogram = ExponentialHistogram(window=7, epsilon=0.5)
for event in (0, 1, 1, 0, 1, 1):
    histogram.update(event)
assert histogram.estimate() == 4

rng = np.random.default_rng(1)
histogram = ExponentialHistogram(window=100, epsilon=0.1)
print(histogram.estimates(rng.random(1_000) < 0.3)[-3:].tolist())
histogram.update(np.ones(777, bool))
print(histogram.estimates(rng.random(130) < 0.9, article=True)[-3:].tolist(), histogram.buckets)
sums = [ExponentialHistogram(60, 0.1, timed=True, values="integers") for _ in range(2)]
for each in sums:
    each.update(rng.integers(0, 50, 500), timestamps=np.sort(rng.integers(0, 600, 500)))
print(sums[0].merge(sums[1]).buckets)
guard = Guard([[0], [1], [2]], epsilon=0.5, delta=0.05)
guard.update(rng.normal(size=(400, 1)) + 0.1 * rng.normal(size=(400, 3)))
assert guard.recoverable[0].all()
lost = guard.update([np.nan, 0.5, 0.6])
print(lost.estimate[0, 0].round(6), lost.certified[0, 0])
assert {*aftlib.__all__} <= {*globals()}

promise = Promise([["a"], ["b"]], epsilon=0.5, delta=0.05, window="10min")
assert promise.sensors == ["a", "b"]
"""
WITHOUT_SPARK = """
for function in (recoverable, repair):
    try:
        function(None, None, promise)
    except ModuleNotFoundError as error:
        assert "which is not installed: install aftlib with the extra spark" in str(error)
    else:
        raise AssertionError(f"{function} must name its extra")
"""
# Refuses all but Python's own modules and the library's required packages.
REFUSE = """
class Refuse:
    def find_spec(self, name, *_):
        top = name.partition(".")[0]
        needed = {"aftlib", "numpy", "scipy", "pandas", "dateutil", "six", "pytz", "tzdata"}
        if top not in needed | sys.stdlib_module_names and not top.startswith("_"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
"""


def test_every_public_name_works_with_numpy_scipy_and_pandas_alone():
    """The results are those of the compiled loops."""
    printed = []
    for refuse in ("", REFUSE):
        code = f"import sys\n{refuse}{BARE}assert ('numba' in sys.modules) != {bool(refuse)}"
        code += WITHOUT_SPARK if refuse else ""
        command = [sys.executable, "-W", "error", "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[0] == printed[1]
    assert printed[0].count("\n") == 4


@pytest.mark.parametrize(
    ("missing", "error", "message"),
    [
        ("tqdm", SystemExit, r"aft needs tqdm, .* '\.\[notebooks\]'"),
        ("pyspark.sql", SystemExit, r"aft needs pyspark, .* '\.\[spark\]'"),
        ("numba", SystemExit, r"aft needs numba, .* '\.\[fast\]'"),
        ("aftlib.gone", ModuleNotFoundError, "No module named 'aftlib.gone'"),
    ],
)
def test_a_command_that_lacks_a_package_names_its_extra(missing, error, message, monkeypatch):
    absent = ModuleNotFoundError(f"No module named {missing!r}", name=missing)
    monkeypatch.setattr("aftlib.command.cli.main", Mock(side_effect=absent))
    with pytest.raises(error, match=message):
        command_line.main()


BOTH = """
import runpy
import sys
for arguments, status in ((["--help"], 0), (["readings.csv"], 2)):
    sys.argv = ["aft", "plan", *arguments]
    try:
        runpy.run_module("aftlib", run_name="__main__")
    except SystemExit as ended:
        assert ended.code == status, ended.code
    print("===")
"""


def test_the_command_prints_in_any_encoding(tmp_path):
    """Its help, an error and a plan contain ε and δ, which few 8-bit encodings have."""
    encoding = "latin-1"
    environment = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONPATH": str(ROOT)}
    rows = [f"2026-01-01T{hour:02}:00,{hour % 5},{hour % 5 + 0.1}" for hour in range(24)]
    (tmp_path / "readings.csv").write_text("\n".join(["time,küche,ε-sensor", *rows]))
    command = [sys.executable, "-c", BOTH]
    done = subprocess.run(command, capture_output=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0 and b"encode character" not in done.stderr, done.stderr
    about, error, _ = done.stdout.decode(encoding).split("===")
    assert "?" in about and "?" in error
