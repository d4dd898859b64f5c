"""The guards of groups: rows, partial windows, gaps, and a state in snapshots and log."""

import warnings
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest

from aftlib import GaussianModel, Guard, Promise
from aftlib.core.planfile import StreamPlan
from aftlib.streaming import keyed
from aftlib.streaming.keyed import KeyedGuards
from aftlib.streaming.promise import fixed_part
from aftlib.streaming.rows import (
    MOST_SENSORS,
    STATES,
    TALLY,
    Arranged,
    arrange,
    frame_of,
    rows_of,
    tally_of,
)
from tests.plans import write_plan

NAMES = ["a", "b", "c", "d"]
WORKERS = [["a"], ["b"], ["c", "d"]]
MINUTE = 60_000_000
TERMS = {"workers": WORKERS, "epsilon": 0.5, "delta": 0.05, "window": "5min"}
PROMISE = Promise(**TERMS, samples=5)


def windows_of(rounds=400, seed=1):
    """Window results of four sensors that share a slow common part; with an outage and a gap."""
    rng = np.random.default_rng(seed)
    values = 0.2 * rng.normal(size=(rounds, 1)).cumsum(0) + 0.1 * rng.normal(size=(rounds, 4))
    values[rounds - 60 : rounds - 57, 0] = np.nan
    values[rounds - 40 : rounds - 30] = np.nan
    values[rounds - 20, 2:] = np.nan
    return values


def long(values, first=0, step=5, samples=5):
    """Rows as Spark's aggregation gives them, in an order of its own."""
    starts = (first + np.arange(len(values))) * step * MINUTE
    wide = pd.DataFrame(values, pd.Index(starts, name="start"), NAMES).reset_index()
    rows = wide.melt("start", var_name="sensor").dropna()
    rows = rows.assign(samples=samples, variance=0.01)
    return rows.sample(frac=1, random_state=1)


def processed(guards, windows):
    """The rows of some windows of one group as a frame, and their part of the log."""
    rounds, part = guards.process(arrange(windows.assign(key=0), guards.promise))
    return frame_of(rows_of(guards.promise, rounds)), part


def test_rows_are_those_of_one_guard():
    values = windows_of()
    rows, _ = processed(KeyedGuards(PROMISE), long(values))
    guard = Guard([[0], [1], [2, 3]], 0.5, 0.05)
    expected, lasting = [], []
    for window in values:
        expected.append(guard.update(window))
        lasting.append(guard.recoverable.cumprod(0).sum(0))
    certified = np.concatenate([each.certified for each in expected])
    estimate = np.concatenate([each.estimate for each in expected])
    half_width = np.concatenate([each.half_width for each in expected])
    listed = np.r_[0:365, 370:400]  # of a gap of ten windows the first five
    missing = np.isnan(values)
    state = np.where(missing, np.where(certified, "estimated", "lost"), "exact")
    assert (certified & missing).sum() >= 3 and (missing & ~certified).sum() > 20
    assert rows["start"].tolist() == np.repeat(listed * 5 * MINUTE, 4).tolist()
    assert rows["sensor"].tolist() == NAMES * len(listed)
    assert rows["state"].tolist() == state[listed].ravel().tolist()
    value = np.where(missing & certified, estimate, values)[listed]
    np.testing.assert_array_equal(rows["value"], value.ravel())
    shown = np.where(missing & certified, half_width, np.nan)[listed]
    np.testing.assert_array_equal(rows["half_width"], shown.ravel())
    assert rows["recoverable"].tolist() == np.array(lasting)[listed].ravel().tolist()
    assert rows["samples"].tolist() == np.where(missing, 0, 5)[listed].ravel().tolist()


def test_the_audit_sums_the_guards_outcomes_and_its_bound_holds():
    keyed = KeyedGuards(Promise(**TERMS | {"epsilon": 0.25}, samples=5))
    processed(keyed, long(windows_of()[:2]))
    np.testing.assert_array_equal(keyed.audit, 0)
    processed(keyed, long(windows_of()[2:], 2))
    number, wrong, slack = keyed.guards.outcomes[:, 0]
    audit = keyed.audit[:, 0]
    np.testing.assert_array_equal(audit[:2], [number.sum(0), wrong.sum(0)])
    known, errors, allowed = audit.sum(1)
    assert 0 < errors <= allowed <= 0.05 * known + slack.sum()


@pytest.mark.parametrize("often", [1000, 100])
def test_restarts_from_snapshot_and_log_change_nothing(often):
    """Every micro-batch begins with what was stored; snapshots are written never, or often."""
    values, whole, parts = windows_of(), KeyedGuards(PROMISE), []
    expected, _ = processed(whole, long(values))
    snapshots, log, token = [], [], KeyedGuards(PROMISE).token
    before = token
    for cut in np.split(np.arange(len(values)), [1, 2, 130, 300, 341, 362, 380]):
        guard = KeyedGuards(PROMISE)
        guard.restore(snapshots, before)
        guard.replay(log, token)
        rows, part = processed(guard, long(values[cut], cut[0]))
        parts.append(rows)
        log, token = [*log, part], guard.token
        if guard.states["logged"][0] >= often:
            snapshots, before, log = [guard.snapshot(0)], token, []
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), expected)
    assert bool(snapshots) == (often == 100)
    assert guard.states["guard"].tobytes() == whole.states["guard"].tobytes()
    guard = KeyedGuards(PROMISE)
    guard.restore(snapshots, before)
    with pytest.raises(ValueError, match="the guards' state must be .* is damaged"):
        guard.replay(log[:-1], token)
    with pytest.raises(ValueError, match="snapshot must have at least .* is damaged"):
        guard.restore([b"short"], before)


def test_a_partial_window_has_its_own_half_width():
    rows = long(np.ones((1, 4))).sort_values("sensor")
    rows["samples"], rows["variance"] = [5, 4, 3, 2], [4.0, 0.25, 25.0, 0.0]
    table, _ = processed(KeyedGuards(PROMISE), rows)
    assert table["state"].tolist() == ["exact", "estimated", "lost", "lost"]
    student = [3.182446, 4.302653]  # with 3 and 2 degrees of freedom
    half_width = student * np.sqrt([0.25 * (1 / 4 - 1 / 5), 25.0 * (1 / 3 - 1 / 5)])
    np.testing.assert_allclose(table["half_width"], [np.nan, *half_width, np.nan], rtol=1e-6)
    np.testing.assert_array_equal(table["value"], [1, 1, 1, np.nan])  # two of five are too few
    assert table["samples"].tolist() == [5, 4, 3, 2]
    exactly = Promise(**TERMS | {"epsilon": table["half_width"].iloc[1]}, samples=5)
    assert processed(KeyedGuards(exactly), rows)[0]["state"].iloc[1] == "estimated"
    total, _ = processed(KeyedGuards(Promise(**TERMS, samples=5, query="sum", share=0.2)), rows)
    np.testing.assert_allclose(total["value"], [1, 5 / 4, 5 / 3, 5 / 2])
    np.testing.assert_allclose(total["half_width"][1:3], 5 * half_width, rtol=1e-6)


def test_a_partial_window_counts_as_missing_if_the_promise_takes_whole_windows_only():
    """The way out where a worker dies within a window, and the samples are its first ones."""
    rows = long(np.ones((1, 4))).sort_values("sensor")
    rows["samples"], rows["variance"] = [5, 4, 3, 5], 0.25
    table, _ = processed(KeyedGuards(Promise(**TERMS, samples=5, share=1)), rows)
    assert table["state"].tolist() == ["exact", "lost", "lost", "exact"]
    np.testing.assert_array_equal(table["value"], [1, np.nan, np.nan, 1])


def test_a_single_sample_says_nothing_of_a_windows_error():
    """Not even with a variance of 0, which one sample always has where it is divided by m."""
    rows = long(np.ones((1, 4))).assign(samples=1, variance=0.0)
    table, _ = processed(KeyedGuards(Promise(**TERMS, samples=5, share=0.2)), rows)
    assert table["state"].tolist() == ["lost"] * 4
    assert table["half_width"].isna().all()


@pytest.mark.parametrize("sensors", [4, MOST_SENSORS, MOST_SENSORS + 1])
def test_the_tally_counts_rows_and_has_those_of_each_sensor_if_there_are_few(sensors):
    rng = np.random.default_rng(1)
    table = pd.DataFrame({
        "sensor": np.tile(np.arange(sensors), 10),
        "state": rng.choice(STATES, 10 * sensors, p=[0.5, 0.3, 0.2]),
        "samples": rng.integers(0, 3, 10 * sensors),
        "recoverable": rng.integers(0, 3, 10 * sensors),
    })  # fmt: skip
    audit = rng.random((3, sensors))
    tally = tally_of({name: table[name].to_numpy() for name in table}, audit)
    states = [(table["state"] == name).sum() for name in STATES]
    others = [(table["samples"] == 0).sum(), (table["recoverable"] > 0).sum()]
    expected = [*states, *others, *audit.sum(axis=1)]
    np.testing.assert_allclose(tally[: len(TALLY)], expected)
    estimated = (table["state"] == "estimated").groupby(table["sensor"]).sum()
    by_sensor = np.column_stack([np.full(sensors, 10), estimated, *audit[:2]])
    expected = by_sensor.ravel() if sensors <= MOST_SENSORS else []
    np.testing.assert_array_equal(tally[len(TALLY) :], expected)


@pytest.mark.parametrize("query", ["max(value)", "count(value)"])
def test_an_aggregate_is_used_as_it_is_and_of_whole_windows_only(query):
    """A sum would be extrapolated; here a part says nothing, and more samples change nothing."""
    promise = Promise.from_content(Promise(**TERMS, samples=5, query=query).content)
    rows = long(np.full((1, 4), 7.0)).sort_values("sensor")
    rows["samples"] = [5, 4, 6, 1]
    table, _ = processed(KeyedGuards(promise), rows)
    assert table["state"].tolist() == ["exact", "lost", "exact", "lost"]
    np.testing.assert_array_equal(table["value"], [7, np.nan, 7, np.nan])
    assert table["half_width"].isna().all()


@pytest.mark.parametrize("there", [3, 6, 20])
def test_the_half_width_of_partial_windows_holds_as_often_as_it_says(there):
    """Samples that are missing at random; the normal quantile instead of Student's would not do."""
    rng, names = np.random.default_rng(3), [str(i) for i in range(3000)]
    promise = Promise([names], epsilon=0.5, delta=0.1, window="5min", samples=30, share=0.1)
    samples = rng.normal(size=(30, 3000))
    part = samples[:there]
    rows = pd.DataFrame({
        "start": 0, "sensor": names, "value": part.mean(0), "samples": there,
        "variance": part.var(0, ddof=1),
    })  # fmt: skip
    table, _ = processed(KeyedGuards(promise), rows)
    off = np.abs(table["value"] - samples.mean(0))
    assert 0.89 <= (off <= table["half_width"]).mean() <= 0.91


@pytest.mark.parametrize(("n", "most"), [(50, 50_000), (2000, 1_000_000)])
def test_bytes_written_per_window_are_bounded(n, most):
    """On average, snapshots included; a snapshot has no more than the arrays in memory."""
    guards = KeyedGuards(Promise([[str(i)] for i in range(n)], 0.5, 0.05, "5min"))
    snapshot = guards.states.dtype.itemsize
    windows = max(keyed.LEAST_LOG, n // 3)
    assert (snapshot + windows * (16 + 8 * n)) / windows <= most


def test_a_long_gap_costs_no_more_than_a_short_one():
    """A millisecond's windows over half a century would be 1.6 · 10¹² rounds."""
    guard = KeyedGuards(Promise(**TERMS | {"window": "1ms"}))
    rows = pd.DataFrame({
        "start": [0, 50 * 365 * 86_400_000_000], "sensor": "a", "value": 1.0, "samples": 1,
        "variance": np.nan,
    })  # fmt: skip
    table, _ = processed(guard, rows)
    assert len(table) == 4 * (2 + guard.promise.horizons)
    assert guard.states["logged"].tolist() == [2]
    assert guard.guards.state.rounds.tolist() == [50 * 365 * 86_400_000 + 1]


@pytest.mark.parametrize("starts", [[2, 3], [1, 3], [3, 3], [4, 3]])
def test_a_window_before_the_due_one_is_refused_and_changes_no_state(starts):
    """Spark ends windows in order, so it shows that state and windows do not belong together."""
    guard = KeyedGuards(PROMISE)
    processed(guard, long(windows_of()[:3]))
    token = guard.token
    states = guard.states.tobytes()
    windows = Arranged(
        key=np.zeros(2, int),
        start=np.array(starts) * PROMISE.step,
        value=np.zeros((2, 4)),
        samples=np.full((2, 4), 5),
        variance=np.zeros((2, 4)),
    )
    with pytest.raises(ValueError, match="must come in the order of time, got .* is damaged"):
        guard.process(windows)
    assert (guard.token, guard.states.tobytes()) == (token, states)


def test_sensors_may_have_any_name_and_times_lie_before_1970():
    names = ["", " ", "nan", "None", "a\nb", "a\0", "a", "ä", "start"]
    promise = Promise(**(TERMS | {"workers": [[name] for name in names]}))
    rows = pd.DataFrame({
        "start": -5 * MINUTE, "sensor": names, "value": range(9), "samples": 5, "variance": 0.0
    })  # fmt: skip
    table, _ = processed(KeyedGuards(promise), rows)
    assert table["sensor"].tolist() == names
    assert table["value"].tolist() == [*range(9)]
    assert table["start"].tolist() == [-5 * MINUTE] * 9


@pytest.mark.parametrize("value", [np.nan, 1e100, -9e99, 1e90])
def test_wild_and_missing_values_do_not_end_a_stream(value):
    values = windows_of(200)
    values[100, 0], values[120] = value, value
    rows = long(np.nan_to_num(values, nan=5e99))
    rows.loc[rows["value"] == 5e99, "value"] = None
    table, _ = processed(KeyedGuards(PROMISE), rows)
    assert len(table) == 4 * 200
    exact = table.loc[table["state"] == "exact", "value"]
    assert (exact.abs() < 1e100).all()  # larger ones, and NaN, are no measurements


@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        ({"window": "10min"}, False),
        ({"horizons": 3}, False),
        ({"seasons": ["24h"]}, False),
        ({"epsilon": 0.7, "delta": 0.1, "workers": [["a"], ["b"]]}, True),
        ({"watermark": "1h", "ahead": "2h", "behind": "2000-01-01"}, True),
    ],
)
def test_the_fixed_part_changes_with_what_a_query_cannot_follow(change, goes_on):
    after = Promise(**TERMS | {"samples": 5} | change)
    assert (fixed_part(after.content) == fixed_part(PROMISE.content)) == goes_on


def test_a_promise_is_the_same_from_its_content():
    epsilon = pd.Series({"b": 0.2, "a": 0.1, "c": 0.3, "d": 0.4})
    promise = Promise(**TERMS | {"epsilon": epsilon, "seasons": ("24h",)}, watermark="1min")
    again = Promise.from_content(promise.content)
    assert again.limits == promise.limits == [0.1, 0.2, 0.3, 0.4]
    assert again.content == promise.content != PROMISE.content
    assert again.guard().to_bytes() == promise.guard().to_bytes()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"query": "max"}, "query must be mean, sum.* or an SQL aggregate of value .*, got 'max'"),
        ({"query": ["sum"]}, r"query must be mean, sum.* or an SQL .*, got \['sum'\]"),
        (
            {"query": "max(value)", "share": 0.9},
            r"share must be 1 with .*max\(value\)', got 0.9: le",
        ),
        (
            {
                "query": "max(value)",
                "model": GaussianModel(np.zeros(4), np.eye(4), NAMES),
            },
            r"model must be None with query = 'max\(value\)', got a model: leave .* mean or sum",
        ),
        ({"samples": 0}, "samples must be a whole number at least 1, got 0"),
        ({"share": 0}, "share must be above 0 and at most 1, got 0"),
        ({"slide": "6min"}, "slide must be above 0 and at most window = 5min, got 6min"),
        ({"slide": "0s"}, "slide must be above 0"),
        ({"window": "0s"}, "window must be above 0, got '0s'"),
        ({"window": "soon"}, "window must be a duration such as '10min', got 'soon'"),
        ({"window": 300}, "window must be a duration such as '10min', got 300"),
        ({"watermark": "-1s"}, "watermark must not be negative, got '-1s'"),
        ({"ahead": "later"}, "ahead must be a duration such as '10min', got 'later'"),
        ({"behind": "once"}, "behind must be a point in time such as '2020-01-01', got 'once'"),
        ({"behind": None}, "behind must be a point in time such as '2020-01-01', got None"),
        ({"workers": [["a"], ["a", "b"]]}, "each sensor once, got a twice"),
        ({"workers": ["hall", ["b"]]}, r"workers must be lists .* got 'hall': give \[\['hall'\], "),
        ({"workers": [[1], [2]]}, r"lists of sensors' names, got 1: give \[\['1'\], …\], and cast"),
        ({"delta": 1}, "delta must be above 0 and below 1"),
    ],
)
def test_impossible_promises_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        Promise(**(TERMS | changed))


def test_durations_may_be_timedeltas():
    durations = {"window": timedelta(minutes=5), "seasons": [pd.Timedelta("1h")]}
    promise = Promise(**TERMS | durations, watermark=timedelta(seconds=1))
    assert promise.width == 5 * MINUTE
    read = Promise.from_content(promise.content)
    assert (read.window, read.seasons) == (f"{5 * MINUTE}us", [f"{60 * MINUTE}us"])
    assert fixed_part(read.content) == fixed_part(promise.content)


def test_a_promise_comes_from_a_plan(tmp_path):
    plan = plan_file(tmp_path / "plan.json", step=60.0)
    promise = Promise.from_plan(plan, watermark="30s")
    assert promise.workers == [["b"], ["a"]] and promise.epsilon == {"b": 0.5, "a": 2.0}
    assert (promise.width, promise.step) == (10 * MINUTE, 5 * MINUTE)
    assert (promise.samples, promise.share, promise.watermark) == (10, 0.5, "30s")
    assert promise.guard().horizons == 3
    assert promise.seasons == [f"{24 * 5 * MINUTE}us"]
    changed = Promise.from_plan(plan, workers=[["a"], ["b"], ["7"]], epsilon={"7": 0.1, "b": 0.4})
    assert changed.epsilon == {"a": 2.0, "b": 0.4, "7": 0.1} and changed.seasons == promise.seasons
    assert Promise.from_plan(plan, workers=[["a"]]).limits == [2.0]
    with pytest.raises(ValueError, match="got none for '7', which the plan lacks: give epsilon="):
        Promise.from_plan(plan, workers=[["a"], ["b"], ["7"]])
    with pytest.raises(ValueError, match="plan must have times, got .* without step_seconds"):
        Promise.from_plan(plan_file(tmp_path / "steps.json", step=None))


def learned_text(rounds=300, start=0):
    """What a guard of the windows before `start` learned, as a plan holds it."""
    promise = Promise(**TERMS, samples=5, seasons=["2h"])
    guard = promise.guard()
    guard.update(windows_of(rounds + 60)[:rounds])
    terms = {"window": 5 * MINUTE, "slide": 5 * MINUTE, "query": "mean"}
    terms |= {"seasons": [120 * MINUTE], "until": start * 5 * MINUTE}
    return guard.learned(NAMES, terms).to_text()


def warm_plan(path, **changes):
    """The plan of a guard whose last window ended in 1970."""
    plan = {"assignment": WORKERS, "question.epsilon": dict.fromkeys(NAMES, 0.5)}
    plan |= {"question.delta": 0.05, "question.slide": 5, "data.step_seconds": 60}
    plan |= {"data.seasons_in_windows": [24.0], "learned": learned_text()}
    return write_plan(path, None, [(0, 5, NAMES)], **plan | changes)


def test_a_stream_begins_with_what_the_plans_guard_learned(tmp_path):
    path = warm_plan(tmp_path / "plan.json")
    warm = KeyedGuards(Promise.from_plan(path))
    cold = KeyedGuards(Promise.from_plan(path, learned=None))
    window = long(windows_of(302)[300:301], 7000)
    assert (processed(warm, window)[0]["recoverable"] > 0).all()
    assert (processed(cold, window)[0]["recoverable"] == 0).all()
    assert warm.token != cold.token
    np.testing.assert_array_equal(warm.audit, 0)


def test_the_plans_seasons_are_in_step_with_the_stream(tmp_path):
    """300 windows were learned, and the stream begins 7000.4 windows later."""
    promise = Promise.from_plan(warm_plan(tmp_path / "plan.json"))
    for start in (7000 * 5 * MINUTE, 7000 * 5 * MINUTE + 2 * MINUTE):
        state = promise.guard(start=start)._guards.state
        assert (state.rounds, state.phase) == (0, 300 + start / (5 * MINUTE))
    keyed = KeyedGuards(promise)
    processed(keyed, long(windows_of(302)[300:302], 7000))
    assert keyed.guards.state.phase == 7300


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"window": "10min"}, "window must be as in the plan, .*: 300000000 µs, got 600000000 µs"),
        ({"slide": "1min"}, "slide must be as in the plan, .*: 300000000 µs, got 60000000 µs"),
        ({"query": "sum"}, "query must be as in the plan, .*: 'mean', got 'sum'"),
        ({"seasons": ["24h"]}, r"seasons must be as .*: \[7200000000\] µs, got \[86400000000\] µs"),
        ({"workers": [["a"], ["b"]]}, "workers must be as .*'c', 'd'.*, got .'a', 'b'.;"),
        ({"workers": [*WORKERS, ["7"]], "epsilon": {"7": 1}}, "workers must be .* got .'7', 'a'"),
        ({"learned": "bm8gZ3VhcmQ="}, r"learned must be .* a damaged text \(its checksum"),
        ({"learned": "?"}, "learned must be what a plan's guard learned, got a damaged text"),
    ],
)
def test_what_a_plan_learned_is_refused_where_it_does_not_fit_and_the_fix_helps(
    tmp_path, changes, refused
):
    path = warm_plan(tmp_path / "plan.json")
    with pytest.raises(ValueError, match=refused) as error:
        Promise.from_plan(path, **changes)
    assert "learned=None" in str(error.value)
    Promise.from_plan(path, **changes | {"learned": None})
    Promise.from_plan(path, **{name: changes[name] for name in changes if name == "epsilon"})


def test_changes_to_which_a_plans_guard_fits_are_none_of_the_windows(tmp_path):
    path = warm_plan(tmp_path / "plan.json")
    changes = {"workers": [["d", "a"], ["c"], ["b"]], "epsilon": {"a": 0.9}, "delta": 0.1}
    changes |= {"horizons": 9, "watermark": "1h", "share": 1, "samples": 3}
    keyed = KeyedGuards(Promise.from_plan(path, **changes))
    rows, _ = processed(keyed, long(windows_of(302)[300:301], 7000))
    assert (rows["recoverable"] >= 4).all()


def test_what_is_too_long_for_sparks_state_is_left_out(tmp_path, monkeypatch):
    path = warm_plan(tmp_path / "plan.json")
    length = len(Promise.from_plan(path).learned)
    monkeypatch.setattr("aftlib.streaming.promise.MOST_LEARNED", length - 1)
    with pytest.warns(UserWarning, match="groups begin without it; give learned=None"):
        assert Promise.from_plan(path).learned is None
    with warnings.catch_warnings(action="error"):
        assert Promise.from_plan(path, learned=None).learned is None


def test_a_plan_of_windows_fits_any_query_that_made_them(tmp_path):
    """Its window is one sample, such as a maximum that Spark has computed before."""
    terms = {"window": 5 * MINUTE, "slide": 5 * MINUTE, "query": None, "seasons": [], "until": 0}
    text = PROMISE.guard().learned(NAMES, terms).to_text()
    changes = {"data.step_seconds": 300, "question.slide": 1, "data.seasons_in_windows": []}
    changes |= {"question.window": 1, "learned": text}
    path = warm_plan(tmp_path / "plan.json", **changes)
    for query in ("mean", "max(value)"):
        promise = Promise.from_plan(path, query=query, samples=10)
        assert promise.learned == text
    assert StreamPlan.read(path).terms() == {n: terms[n] for n in terms if n != "until"}


def test_a_known_model_and_a_predictor_begin_without_it(tmp_path):
    path = warm_plan(tmp_path / "plan.json")
    model = GaussianModel(np.zeros(4), np.eye(4), NAMES)
    assert Promise.from_plan(path, model=model).learned is None
    predictor = "tests.guard.test_predictor:Others"
    assert Promise.from_plan(path, predictor=predictor).learned is None
    for own in ({"model": model}, {"predictor": predictor}):
        with pytest.raises(ValueError, match="learned must be None beside a known model or a pre"):
            replace(Promise.from_plan(path), **own)
        replace(Promise.from_plan(path), **own, learned=None)


def plan_file(path, step):
    changes = {
        "assignment": [["b"], ["a"]],
        "question.epsilon": {"a": 2.0, "b": 0.5},
        "question.horizons": 3,
        "data.step_seconds": step,
        "data.seasons_in_windows": [24.0],
    }
    return write_plan(path, None, [(0, 10, ["a"])], **changes)
