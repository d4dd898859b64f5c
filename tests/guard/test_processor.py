"""The processor of keyed state without Spark: its variables, changed promises, old formats."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from aftlib.guard import keyed
from aftlib.guard.keyed import AUDIT, GuardCache, KeyedGuard
from aftlib.guard.keyed import PROMISE as PLACE
from aftlib.guard.operator import GuardProcessor
from aftlib.guard.promise import Promise
from tests.guard.test_keyed import ASKED, PROMISE, long, processed, windows_of

AFTER = Promise(**ASKED | {"workers": [["a"], ["b"], ["c", "e"]], "delta": 0.1}, samples=5)


class Variable:
    """A variable of Spark's state: a value, or a map."""

    def __init__(self):
        self.content = {}

    def get(self):
        return self.content.get(0)

    def update(self, value):
        self.content[0] = value

    def getValue(self, key):  # noqa: N802
        return self.content.get(key)

    def updateValue(self, key, value):  # noqa: N802
        self.content[key] = value

    def removeKey(self, key):  # noqa: N802
        del self.content[key]


class ListVariable:
    """A variable of Spark's state: a list."""

    def __init__(self):
        self.content = []

    def get(self):
        return iter(self.content)

    def clear(self):
        self.content = []

    def appendList(self, values):  # noqa: N802
        self.content = [*self.content, *values]


class Handle:
    """A group's variables by name."""

    def __init__(self):
        self.variables = {}

    def variable(self, name, *schema):
        return self.variables.setdefault(name, Variable())

    def getListState(self, name, *schema):  # noqa: N802
        return self.variables.setdefault(name, ListVariable())

    getValueState = getMapState = variable  # noqa: N815


def process(handle, promise, rows):
    processor = GuardProcessor(promise.content)
    processor.init(handle)
    return list(processor.handleInputRows(("g",), iter([rows]), None))


@pytest.fixture(params=["cached", "restored"])
def handle(request, monkeypatch):
    """Guards stay in memory between two micro-batches, or are read from the state each time."""
    size = {"cached": 2**30, "restored": 0}[request.param]
    monkeypatch.setattr(keyed, "_guards", GuardCache(size))
    return Handle()


@pytest.mark.parametrize("first", [100, 300])
def test_a_changed_promise_reads_the_state_of_the_one_before(handle, first):
    """Before the first snapshot and after it, and back again."""
    values = windows_of()
    other = long(values, 0).replace({"sensor": {"d": "e"}})
    process(handle, PROMISE, long(values[:first]))
    (changed,) = process(handle, AFTER, other[other["start"] >= first * 300_000_000])
    expected = KeyedGuard(PROMISE)
    expected.process(long(values[:first]))
    expected = expected.continue_with(AFTER)
    before = expected.audit
    table, _ = processed(expected, other[other["start"] >= first * 300_000_000])
    pd.testing.assert_frame_equal(changed[table.columns], table)
    audit = changed[list(AUDIT)]
    np.testing.assert_array_equal(audit.iloc[0], expected.audit - before)
    assert (audit[1:] == 0).all(axis=None)
    process(handle, PROMISE, long(values[:10], 400))
    head, chunks = handle.variables["head"], handle.variables["snapshot"]
    assert head.get()[0].endswith(PROMISE.digest)
    assert chunks.getValue((PLACE,)) == (PROMISE.content.encode(),)
    back = expected.continue_with(PROMISE)
    back.process(long(values[:10], 400))
    assert bytes(head.get()[1]) == back.token


def test_windows_of_sensors_that_left_change_nothing(handle):
    process(handle, PROMISE, long(windows_of(20)))
    before = handle.variables["head"].get()
    rows = long(np.ones((1, 4)), 20)
    assert process(handle, AFTER, rows[rows["sensor"] == "d"]) == []
    assert handle.variables["head"].get() == before
    (table,) = process(handle, AFTER, rows)
    assert table["sensor"].tolist() == ["a", "b", "c", "e"]
    assert np.isnan(table["value"].iloc[3])


def test_the_state_of_another_format_is_refused(handle):
    process(handle, PROMISE, long(windows_of(20)))
    head = handle.variables["head"]
    head.update((f"6 {PROMISE.digest}", *head.get()[1:]))
    with pytest.raises(ValueError, match="must be of format 7, got 6: go on with the version of"):
        process(handle, PROMISE, long(np.ones((1, 4)), 20))


def test_the_processor_loads_without_the_guard():
    """Spark loads it in a new process in every micro-batch."""
    code = "import sys, aftlib.guard.operator; print({'numba', 'pandas'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
