"""Crash trials: how many, and which of a long series are done already."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from aftlib.command.batch import library_hash
from aftlib.core.paths import data_dir

FULL = os.environ.get("AFT_TRIALS") == "full"


@pytest.fixture
def once(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Make a long series resumable: with AFT_TRIALS=full, a trial done on this code is not redone.

    The test calls the fixture's value when the trial has passed.
    """
    path = data_dir() / "crash-trials.json"
    key = f"{library_hash()}:{request.node.nodeid}"
    done = set(json.loads(path.read_text())) if FULL and path.exists() else set()
    if key in done:
        pytest.skip("passed in an earlier run on the same code; delete data/crash-trials.json")

    def record_pass() -> None:
        if FULL:
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(sorted({*done, key})))

    return record_pass
