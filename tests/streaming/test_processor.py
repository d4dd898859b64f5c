"""The processor of keyed state without Spark: its records, changed promises, old formats."""

import json
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from aftlib.guard.guard import VERSION
from aftlib.streaming import groups, keyed
from aftlib.streaming.cache import GuardCache
from aftlib.streaming.keyed import KeyedGuards
from aftlib.streaming.operator import GuardProcessor
from aftlib.streaming.promise import Promise
from aftlib.streaming.rows import SENSOR_TALLY, TALLY
from tests.streaming.test_keyed import (
    PROMISE,
    TERMS,
    learned_text,
    long,
    processed,
    windows_of,
)

AFTER = Promise(**TERMS | {"workers": [["a"], ["b"], ["c", "e"]], "delta": 0.1}, samples=5)


class Handle(dict):
    """A bucket's state, which is a map of records by name."""

    def getMapState(self, name, *schema):
        return self

    def getValue(self, key):
        return self.get(*key)

    def updateValue(self, key, value):
        (name,) = key
        self[name] = value

    @property
    def token(self):
        return self["bucket"][0]

    def about(self, name):
        """The content of a record in JSON."""
        return json.loads(self[name][1])

    def named(self, kind):
        """The names of the parts of the log, or of the chunks of snapshots."""
        return [name for name in self if name.startswith(kind)]

    def stored_parts(self):
        """How many parts of the log and snapshots are there, and how many the bucket counts."""
        about = self.about("bucket")
        counted = [about["log_parts"], about["snapshots"]]
        return [len(self.named(kind)) for kind in ("log", "chunk")], counted


def processor_of(handle, promise):
    processor = GuardProcessor(promise.content, "string", promise.learned)
    processor.init(handle)
    return processor


def states_of(handle, promise):
    """The stored guard of each group."""
    stored = processor_of(handle, promise).guards()
    keyed = stored.stored()
    groups._guards.keep(keyed)
    return {key: keyed.states["guard"][place].tobytes() for key, place in stored.places.items()}


def audit_of(table, sensors=4):
    """What the tally of a table has for `SHADOW_AUDIT`: two counts by sensor, the third in all."""
    tally, *others = table["tally"]
    assert not any(others)
    by_sensor = tally[len(TALLY) :].reshape(sensors, len(SENSOR_TALLY))
    return *by_sensor[:, 2:].T, tally[TALLY.index("allowed")]


def require_audit(table, expected):
    """Compare the tally of a table with (audited, wrong, allowed) by sensor."""
    audited, wrong, allowed = audit_of(table)
    np.testing.assert_array_equal([audited, wrong], expected[:2])
    np.testing.assert_allclose(allowed, expected[2].sum(), rtol=1e-12)


def process(handle, promise, rows):
    processor = processor_of(handle, promise)
    rows = rows if "key" in rows else rows.assign(key="g")
    return list(processor.handleInputRows((7,), iter([rows]), None))


@pytest.fixture(params=["cached", "restored"])
def handle(request, monkeypatch, tmp_path):
    """Guards stay in memory between two micro-batches, or are read from the state each time."""
    size = {"cached": 2**30, "restored": 0}[request.param]
    monkeypatch.setattr(groups, "_guards", GuardCache(size, tmp_path))
    return Handle()


@pytest.mark.parametrize("first", [100, 300])
def test_a_changed_promise_begins_anew(handle, first):
    """Before the first snapshot and after it; its windows go on, its guards have forgotten."""
    values = windows_of()
    other = long(values, 0).replace({"sensor": {"d": "e"}})
    process(handle, PROMISE, long(values[:first]))
    rest = other[other["start"] >= first * 300_000_000]
    (changed,) = process(handle, AFTER, rest)
    expected = KeyedGuards(AFTER)
    table, _ = processed(expected, rest)
    pd.testing.assert_frame_equal(changed[table.columns], table)
    require_audit(changed, expected.audit[:, 0])
    assert handle.token == expected.token
    stored, counted = handle.stored_parts()
    assert stored == counted and sum(stored) == 1  # nothing of the former guard stays


@pytest.mark.parametrize("first", [30, 100, 300])
@pytest.mark.parametrize("warm", [False, True])
def test_a_changed_promise_keeps_what_its_guards_learned(handle, first, warm):
    """Sensor a has another ε, and c and d have workers of their own; two groups go on.

    The metrics count the slack of an account that begins anew, and no other.
    """
    learned = {"seasons": ["2h"], "learned": learned_text()} if warm else {}
    before = Promise(**TERMS, samples=5, **learned)
    changes = {"epsilon": {**dict.fromkeys("bcd", 0.5), "a": 0.7}, "workers": [[c] for c in "dcba"]}
    after = Promise(**TERMS | changes, samples=5, **learned)
    values = windows_of()
    sites = {"g": values, "h": values + 1}
    parts = [long(sites[key][:first]).assign(key=key) for key in sites]
    process(handle, before, pd.concat(parts))
    tables = {}
    alone = {}
    audits = {}
    for key in sites:
        keyed = KeyedGuards(before)
        processed(keyed, long(sites[key][:first]))
        alone[key] = keyed.under(after)
        audits[key] = alone[key].audit[:, 0]
        assert (audits[key][2] > 0).tolist() == [False, False, warm or first > 150, False]
        tables[key] = processed(alone[key], long(sites[key][first : first + 3], first))[0]
        assert (tables[key]["recoverable"][:4] > 0).any() == (warm or first > 150)
    for key, expected in tables.items():
        rows = long(sites[key][first : first + 3], first).assign(key=key)
        (table,) = process(handle, after, rows)
        pd.testing.assert_frame_equal(table[expected.columns], expected)
        require_audit(table, alone[key].audit[:, 0] - audits[key])
    assert states_of(handle, after) == {
        key: keyed.states["guard"].tobytes() for key, keyed in alone.items()
    }
    assert handle.about("origin") == {"content": after.content, "learned": after.learned}


@pytest.mark.parametrize("first", [30, 300])
def test_a_newer_plan_changes_nothing_of_guards_that_go_on(handle, first):
    """Their accounts, too, go on; a new group begins with what the newer plan's guard learned."""
    old = Promise(**TERMS, samples=5, seasons=["2h"], learned=learned_text())
    new = replace(old, learned=learned_text(rounds=200))
    assert len(old.content) < 1000 < len(old.learned)  # it is hashed for every micro-batch
    values = windows_of()
    process(handle, old, long(values[:first]))
    rows = [long(values[first:340], first), long(values[:1], 340).assign(key="new")]
    table = pd.concat([process(handle, new, each)[0] for each in rows], ignore_index=True)
    whole = KeyedGuards(old)
    processed(whole, long(values[:first]))
    fresh = KeyedGuards(new)
    expected = [processed(whole, rows[0])[0], processed(fresh, rows[1])[0]]
    expected = pd.concat(expected, ignore_index=True)
    pd.testing.assert_frame_equal(table[expected.columns], expected)
    assert (table["recoverable"] > 0).all()


def test_a_guard_that_has_no_use_for_what_was_learned_begins_anew(handle):
    """A former predictor may not even be there any more."""
    values = windows_of()
    one = Promise(**TERMS, samples=5, predictor="tests.guard.test_predictor:Others")
    for before, after in ((one, PROMISE), (PROMISE, one)):
        state = Handle()
        process(state, before, long(values[:200]))
        _, content, _ = state["origin"]
        state["origin"] = None, content.replace(b":Others", b":Gone"), None
        (table,) = process(state, after, long(values[200:220], 200))
        expected, _ = processed(KeyedGuards(after), long(values[200:220], 200))
        pd.testing.assert_frame_equal(table[expected.columns], expected)


def test_the_process_that_asks_for_the_variable_prints_no_more(monkeypatch, capsys):
    """Spark starts it when a query starts, also in a session of the user's own."""
    for program, printed in (("worker.py", "x"), ("transform_with_state_driver_worker.py", "")):
        monkeypatch.setattr(sys, "argv", [program])
        monkeypatch.setattr(sys, "stdout", sys.stdout)
        pickle.loads(pickle.dumps(GuardProcessor(PROMISE.content, "string")))
        print("x", end="")
        assert capsys.readouterr().out == printed


def test_the_groups_of_a_bucket_do_not_touch_each_other(handle):
    """Windows of three groups come mixed, and one group joins later."""
    values = {group: windows_of(60) + i for i, group in enumerate("xyz")}
    tables, alone = [], {group: KeyedGuards(PROMISE) for group in values}
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
    states = {group: guard.states["guard"].tobytes() for group, guard in alone.items()}
    assert states_of(handle, PROMISE) == states
    both = [pd.concat(each).sort_values(["key", "start", "sensor"]) for each in (tables, expected)]
    columns = both[1].columns
    pd.testing.assert_frame_equal(
        both[0][columns].reset_index(drop=True),
        both[1].reset_index(drop=True),
        check_dtype=False,
    )


def test_windows_of_sensors_that_left_change_nothing(handle):
    process(handle, AFTER, long(windows_of(20)).replace({"sensor": {"d": "e"}}))
    before = handle["bucket"]
    rows = long(np.ones((1, 4)), 20)
    assert process(handle, AFTER, rows[rows["sensor"] == "d"]) == []
    assert handle["bucket"] is before
    (table,) = process(handle, AFTER, rows)
    assert table["sensor"].tolist() == ["a", "b", "c", "e"]
    assert np.isnan(table["value"].iloc[3])


def test_the_state_of_another_format_is_refused(handle):
    process(handle, PROMISE, long(windows_of(20)))
    token, content, keys = handle["bucket"]
    handle["bucket"] = token, json.dumps(json.loads(content) | {"format": 6}).encode(), keys
    with pytest.raises(
        ValueError, match=f"must be of format {VERSION}, got 6: go on with the version of"
    ):
        process(handle, PROMISE, long(np.ones((1, 4)), 20))


def test_the_log_of_a_group_stays_short_and_a_silent_group_costs_nothing(handle, monkeypatch):
    """A micro-batch has a window of one group; another group had only the first."""
    monkeypatch.setattr(keyed, "LEAST_LOG", 20)
    values = windows_of(80)
    process(handle, PROMISE, long(values[:1]).assign(key="silent"))
    assert handle.stored_parts() == ([1, 0], [1, 0])
    first = None
    for start, window in enumerate(values):
        if not np.isnan(window).all():
            process(handle, PROMISE, long(window[np.newaxis], start))
        first = first or handle.get("chunk 0 0")
    assert 20 < len(handle.named("log")) <= 41
    assert len(first[1]) > 1000 and handle["chunk 0 0"] is first
    rows = pd.concat([long(values[:1], 999).assign(key=key) for key in ("g", "silent")])
    (table,) = process(handle, PROMISE, rows)
    alone = KeyedGuards(PROMISE)
    processed(alone, long(values[:1]))
    expected, _ = processed(alone, long(values[:1], 999))
    table = table[table["key"] == "silent"][expected.columns].reset_index(drop=True)
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)


@pytest.mark.parametrize(("often", "shared"), [(10_000, False), (20, False), (20, True)])
def test_processes_that_take_turns_have_the_state_of_one(monkeypatch, tmp_path, often, shared):
    """Three have the groups in turn. Of different executors, they catch up from the log."""
    monkeypatch.setattr(keyed, "LEAST_LOG", often)
    read = []
    values = {group: windows_of(280) + ord(group) for group in "gh"}

    def run(caches):
        handle, results = Handle(), []
        for first, last in [(0, 190), *((start, start + 1) for start in range(190, 280))]:
            monkeypatch.setattr(groups, "_guards", caches[last % len(caches)])
            parts = [long(values[group][first:last], first).assign(key=group) for group in values]
            results += process(handle, PROMISE, pd.concat(parts).dropna())
            results.append({"token": handle.token})
        return results

    expected = run([GuardCache(folder=tmp_path / "one")])
    get = Handle.getValue
    monkeypatch.setattr(Handle, "getValue", lambda self, key: read.append(*key) or get(self, key))
    folders = ["all"] * 3 if shared else ["first", "second", "third"]
    results = run([GuardCache(folder=tmp_path / folder) for folder in folders])
    assert len(results) == len(expected) > 150
    for one, other in zip(results, expected, strict=True):
        if isinstance(one, dict):
            assert one == other
        else:
            pd.testing.assert_frame_equal(one, other)
    tables = [table for table in results if not isinstance(table, dict)]
    audited = [table["tally"].iloc[0][TALLY.index("audited")] for table in tables]
    assert sum(audited) > 1000
    read = [name for name in read if name.startswith(("log", "chunk"))]
    if often == 10_000:
        assert read.count("log 0") == 2  # two processes when they began
    assert bool(read) != shared


@pytest.mark.parametrize("part", ["log", "chunk"])
def test_a_damaged_checkpoint_is_refused(monkeypatch, tmp_path, part):
    """A part of the state is missing when the process starts again."""
    monkeypatch.setattr(groups, "_guards", GuardCache(0, tmp_path))
    handle, values = Handle(), windows_of(300)
    process(handle, PROMISE, long(values[:290]))
    process(handle, PROMISE, long(values[290:299], 290))
    del handle[handle.named(part)[-1]]
    with pytest.raises(ValueError, match="the checkpoint is damaged; restore it from a copy"):
        process(handle, PROMISE, long(values[299:], 299))


def test_the_processor_loads_without_the_guard():
    """Spark loads it in a new process in every micro-batch."""
    code = "import sys, aftlib.streaming.operator; print({'numba', 'pandas'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
