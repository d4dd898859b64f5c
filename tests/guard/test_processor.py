"""The processor of keyed state without Spark: its variables, changed promises, old formats."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from aftlib.guard import groups
from aftlib.guard.groups import AUDIT, GuardCache
from aftlib.guard.groups import PROMISE as PLACE
from aftlib.guard.keyed import KeyedGuard
from aftlib.guard.operator import GuardProcessor
from aftlib.guard.promise import Promise
from tests.guard.test_keyed import ASKED, PROMISE, long, processed, windows_of

AFTER = Promise(**ASKED | {"workers": [["a"], ["b"], ["c", "e"]], "delta": 0.1}, samples=5)


class MapState(dict):
    """A map of Spark's state."""

    def getValue(self, key):  # noqa: N802
        return self.get(key)

    def updateValue(self, key, value):  # noqa: N802
        self[key] = value

    def removeKey(self, key):  # noqa: N802
        del self[key]


class Handle:
    """A bucket's variables by name."""

    def __init__(self):
        self.variables = {}

    def getMapState(self, name, *schema):  # noqa: N802
        return self.variables.setdefault(name, MapState())


def process(handle, promise, rows):
    processor = GuardProcessor(promise.content, "string")
    processor.init(handle)
    rows = rows if "key" in rows else rows.assign(key="g")
    return list(processor.handleInputRows((7,), iter([rows]), None))


@pytest.fixture(params=["cached", "restored"])
def handle(request, monkeypatch):
    """Guards stay in memory between two micro-batches, or are read from the state each time."""
    size = {"cached": 2**30, "restored": 0}[request.param]
    monkeypatch.setattr(groups, "_guards", GuardCache(size))
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
    head, chunks = handle.variables["heads"]["g",], handle.variables["snapshot"]
    assert head[0].endswith(PROMISE.digest)
    assert chunks["g", PLACE] == (PROMISE.content.encode(),)
    back = expected.continue_with(PROMISE)
    back.process(long(values[:10], 400))
    assert head[1] == back.token


def test_the_groups_of_a_bucket_do_not_touch_each_other(handle):
    """Windows of three groups come mixed, and one group joins later."""
    values = {group: windows_of(60) + i for i, group in enumerate("xyz")}
    tables, alone = [], {group: KeyedGuard(PROMISE) for group in values}
    expected = []
    for cut in np.split(np.arange(60), [1, 20, 45]):
        parts = [
            long(values[group][cut], cut[0]).assign(key=group)
            for group in values
            if group != "z" or cut[0]
        ]
        rows = pd.concat(parts).sample(frac=1, random_state=1)
        tables += process(handle, PROMISE, rows)
        for part in parts:
            group = part["key"].iloc[0]
            expected.append(processed(alone[group], part)[0].assign(key=group))
    heads = handle.variables["heads"]
    assert {group: heads[group,][1] for group in values} == {
        group: guard.token for group, guard in alone.items()
    }
    both = [pd.concat(each).sort_values(["key", "start", "sensor"]) for each in (tables, expected)]
    columns = both[1].columns
    pd.testing.assert_frame_equal(
        both[0][columns].reset_index(drop=True),
        both[1].reset_index(drop=True),
        check_dtype=False,
    )


def test_windows_of_sensors_that_left_change_nothing(handle):
    process(handle, PROMISE, long(windows_of(20)))
    before = handle.variables["heads"]["g",]
    rows = long(np.ones((1, 4)), 20)
    assert process(handle, AFTER, rows[rows["sensor"] == "d"]) == []
    assert handle.variables["heads"]["g",] == before
    (table,) = process(handle, AFTER, rows)
    assert table["sensor"].tolist() == ["a", "b", "c", "e"]
    assert np.isnan(table["value"].iloc[3])


def test_the_state_of_another_format_is_refused(handle):
    process(handle, PROMISE, long(windows_of(20)))
    heads = handle.variables["heads"]
    heads["g",] = (f"6 {PROMISE.digest}", *heads["g",][1:])
    with pytest.raises(ValueError, match="must be of format 7, got 6: go on with the version of"):
        process(handle, PROMISE, long(np.ones((1, 4)), 20))


def test_the_processor_loads_without_the_guard():
    """Spark loads it in a new process in every micro-batch."""
    code = "import sys, aftlib.guard.operator; print({'numba', 'pandas'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
