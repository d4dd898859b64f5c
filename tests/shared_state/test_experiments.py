"""D3's experiments: frames that add up, a table by hand, verdicts that can fall."""

import json
import shutil
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from aftlib.shared_state import experiments as d3
from aftlib.shared_state import figures
from aftlib.shared_state.claims import CLAIMS
from aftlib.shared_state.experiments import failures as deaths
from aftlib.shared_state.experiments import stores
from aftlib.shared_state.experiments.failures import restarted_tasks
from aftlib.shared_state.experiments.stores import MODES
from aftlib.shared_state.experiments.throughputs import require_same
from aftlib.shared_state.scaling import MergeCosts, ShuffleCosts, expected_states
from aftlib.shared_state.strategies import STRATEGIES
from aftlib.shared_state.sums import SliceSums
from aftlib.shared_state.supervisor import run_job
from aftlib.shared_state.tuplelog import TupleLog, TupleStream
from benchmarks.merging import TOTALS, require_equal
from tests.judging import verdict

AT = ["strategy", "skew", "tasks"]
TASKS = [1, 2, 4, 8, 16, 24, 32, 48, 96]
STREAMS = [TupleStream(1000, skew=skew) for skew in (0.0, 1.2, 1.4, 2.0)]


@pytest.fixture(scope="module")
def given(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return d3.inputs(
        spark, folder, skews=[0.0, 2.0], tuples=100_000, keys=1_000, seed=1, partitions=2
    )


@pytest.fixture(scope="module")
def measured(spark, given):
    return d3.measured(spark, given, [1, 2], 1, warm_up=False)


@pytest.fixture(scope="module")
def failures(spark, given):
    return d3.one_task_crashes(spark, given[0], 2, every=20_000, after=25_000)


@pytest.fixture(scope="module")
def ran():
    """Stages that `sharing` ran, and the accounts of them, by the names of their folders."""
    return {}


@pytest.fixture(scope="module")
def sharing(tmp_path_factory, ran):
    def kept(stage):
        account = run_job(stage)
        ran[stage.directory.name] = stage, account
        return account

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deaths, "run_job", kept)
        return d3.servers_and_tasks_crash(tmp_path_factory.mktemp("sharing"), 20_000, seed=1)


@pytest.fixture
def again(sharing, ran):  # noqa: ARG001
    """Leaves what a stage of `sharing` left, of the same name, instead of running it once more."""

    def leave(stage):
        before, account = ran[stage.directory.name]
        shutil.copytree(before.output, stage.output)
        for fault in stage.faults:
            fault.notes.mkdir(exist_ok=True)
            fault.note.write_text(json.dumps({"pid": 1, "reached": fault.after}))
        return account

    return leave


@pytest.fixture(scope="module")
def locality():
    return d3.states_or_locality([100, 1_000], 20_000, 2.0, repeats=1)


@pytest.fixture(scope="module")
def imbalance(spark):
    return d3.imbalances(spark, STREAMS, TASKS)


def costs():
    shuffle = {("upfront", s.skew, 1): ShuffleCosts(0.3, 3e-7, 3e-7) for s in STREAMS}
    work = {0.0: 8e-8, 1.2: 6e-8, 1.4: 5e-8, 2.0: 4e-8}
    late = {(n, s, 1): MergeCosts(0.3, work[s], 4e-8) for n in STRATEGIES[1:] for s in work}
    return shuffle | late


def test_table_1_by_hand(spark, tmp_path):
    state, windows, done = d3.table_1(spark, tmp_path)
    assert windows.to_numpy().tolist() == [
        ["[0, 10)", 0, 10 + 30 + 2 + 3],
        ["[0, 10)", 1, 20 + 40 + 1],
        ["[5, 15)", 0, 30 + 50 + 2],
        ["[5, 15)", 1, 40 + 4],
        ["[10, 20)", 0, 50],
        ["[10, 20)", 1, 4 + 5],
        ["[15, 25)", 1, 5],
    ]
    assert state["slice"].unique().tolist() == ["[0, 5)", "[5, 10)", "[10, 15)", "[15, 20)"]
    assert done.partitions["tuples"].tolist() == [5, 5]
    assert done.partitions["late"].tolist() == [0, 0]


def test_measured_covers_every_run(measured):
    assert len(measured) == 3 * 2 * 2
    assert (measured["tuples"] == 100_000).all()
    assert (measured["count"] == 100_000).all()
    assert measured.groupby("skew")["states"].agg(set).map(len).tolist() == [1, 1]
    np.testing.assert_allclose(measured["throughput"], 100_000 / measured["seconds"])
    behind = measured.set_index("strategy")["receiver_s"]
    assert (behind["upfront"] > 0).all()
    assert behind[list(STRATEGIES[1:])].isna().all()


def test_runs_that_disagree_are_refused():
    sums = SliceSums(1)
    sums.add(np.array([[0], [1], [2]]))
    one, none = sums.take(), sums.take()
    with pytest.raises(RuntimeError, match="late gives other sums than the run before"):
        require_same(one, none, "late")


def test_the_benchmarks_systems_must_agree():
    totals = {"skew": 0.0, "keys": 2, "sum": 7, "count": 3}
    frame = pd.DataFrame([{"system": name, **totals} for name in ("ours", "other")])
    assert require_equal([frame, pd.DataFrame(), frame.assign(skew=2.0, sum=8)]) is None
    for name in TOTALS:
        with pytest.raises(RuntimeError, match="systems disagree, nothing can be compared"):
            require_equal([frame, frame.assign(**{name: 1})])


def test_the_model_goes_through_what_was_measured(measured, imbalance):
    streams = [TupleStream(100_000, 1_000, skew) for skew in (0.0, 2.0)]
    costs = d3.fitted(measured, imbalance, streams)
    assert set(costs) == {(n, s, p) for n in STRATEGIES for s in (0.0, 2.0) for p in (1, 2)}
    model = d3.modelled(costs, imbalance, streams, 100_000).set_index(AT)["throughput"]
    middle = measured.groupby(AT)["throughput"].median()
    np.testing.assert_allclose(model.loc[middle.index], middle)
    beyond = costs["late global", 2.0, 2]
    assert model["late global", 2.0, 24] == beyond.throughput(
        100_000, 24, expected_states(streams[1].shares, 100_000 // 24)
    )


def test_costs_by_hand():
    """Service and what is left of a run; where services overlap, they are shortened."""
    stream = TupleStream(1000, 1, 0.0)  # one key: a sum a task
    run = {"skew": 0.0, "tasks": 2, "tuples": 1000, "throughput": 100.0, "sender_s": np.nan,
           "receiver_s": np.nan, "read_s": 1, "parse_s": 2, "sum_s": 1, "merge_s": 6}  # fmt: skip
    shuffled = {"strategy": "upfront", "sender_s": 4.0, "receiver_s": 2.0}
    measured = pd.DataFrame([run | {"strategy": "late local"}, run | shuffled])
    loads = pd.DataFrame({"skew": [0.0], "tasks": [2], "imbalance": [1.5]})
    costs = d3.fitted(measured, loads, [stream])
    late = costs["late local", 0.0, 2]  # 10 s: 4 / 2 of work, 2 sums of 3 s, 2 left
    assert (late.fixed_s, late.tuple_s, late.merge_s) == pytest.approx((2, 4e-3, 3))
    upfront = costs["upfront", 0.0, 2]  # 10 s: 4 / 2, and 2 on the busiest, which has 3 / 4
    assert upfront == ShuffleCosts(6.5, 4e-3, 2e-3)
    faster = d3.fitted(measured.assign(throughput=250.0), loads, [stream])
    assert faster["late local", 0.0, 2] == MergeCosts(0.0, 2e-3, 1.5)


def test_imbalance_is_near_the_digests(imbalance):
    """Within a few per cent, for Spark's hash function is not the digest's."""
    wide = imbalance.pivot_table(index="tasks", columns="skew", values="imbalance")
    for skew, expected in ((1.2, (2.18, 5.27, 19.4)), (1.4, (3.01, 8.11, 31.5))):
        assert wide.loc[[8, 24, 96], skew].tolist() == pytest.approx(expected, rel=0.1)
    assert wide.loc[[8, 24, 96], 2.0].tolist() == pytest.approx((4.97, 14.6, 58.4), rel=0.05)
    assert (wide.loc[1] == 1).all()


def test_the_model_foresees_more_tasks_from_fewer(measured, imbalance):
    unused = {("upfront", 0.0, 2): ShuffleCosts(9, 9, 9)}  # what is foreseen does not count itself
    found = d3.held_out(measured, costs() | unused, imbalance, STREAMS)
    assert len(found) == 3 * 2
    row = found.set_index(AT).loc[("upfront", 0.0, 2)]
    assert row["modelled"] == pytest.approx(100_000 / (0.3 + 0.03), rel=0.01)
    runs = measured.set_index(AT)["throughput"]
    assert row["measured"] == runs["upfront", 0.0, 2]
    assert row["ratio"] == row["modelled"] / row["measured"]


def test_model_is_its_closed_form(imbalance):
    model = d3.modelled(costs(), imbalance, STREAMS, 10**8, pipelined=True)
    at = model.set_index(AT)["throughput"]
    assert at["upfront", 2.0, 96] == pytest.approx(1 / (3e-7 * 0.6079), rel=0.02)
    assert at["upfront", 0.0, 1] == pytest.approx(10**8 / (0.3 + 60))
    assert set(model["strategy"]) == {"upfront"}  # the others have nothing to pipeline
    at = d3.modelled(costs(), imbalance, STREAMS, 10**8).set_index(AT)["throughput"]
    assert at["late local", 0.0, 2] == pytest.approx(10**8 / (0.3 + 4 + 2 * 100_000 * 4e-8))
    table = d3.costs_table(costs(), STREAMS, 10**8).set_index(["strategy", "skew"])
    assert table.loc[("upfront", 1.4), "b"] == 0.5
    assert table.loc[("upfront", 2.0), "ends_at"] == pytest.approx(2 / 0.6079, rel=1e-3)
    assert table.loc[("late local", 0.0), "ends_at"] == pytest.approx((8 / 4e-3) ** 0.5)


def test_locality_holds_what_its_cases_say(locality):
    states = locality.set_index(["keys", "case"])["states"].unstack()
    assert (states["skewed"] == states["uniform, few keys"]).all()
    assert (states["skewed, all sums kept"] == states.index).all()
    assert (states["uniform"] > states["skewed"]).all()
    assert (locality[["add_ns", "take_ms"]] > 0).all(axis=None)


def test_a_death_disturbs_only_behind_a_pipelined_shuffle(failures):
    rows = failures.set_index("strategy")
    assert rows["disturbed"].to_dict() == {
        "upfront, pipelined shuffle": 1,
        "upfront, Spark's shuffle on disk": 0,
        "late global": 0,
    }
    assert (rows["error"] == 0).all()
    assert 0 < rows.loc["late global", "again"] <= 20_000
    assert rows.loc["upfront, pipelined shuffle", "twice"] > 0
    assert rows["twice"].isna().tolist() == [False, True, True]
    assert rows["dead_pid"].nunique() == 3


def test_healthy_tasks_that_began_anew_are_counted():
    tries = [{"task": t, "attempt": a, "tuples": 5} for t, a in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert restarted_tasks(tries, 1) == 1
    assert restarted_tasks([each for each in tries if each["task"] == 1], 1) == 0
    assert restarted_tasks([{"task": 0, "attempt": 2, "tuples": 5}], 1) == 1


def test_one_task_cannot_be_left_over(spark, given):
    with pytest.raises(ValueError, match="tasks must be at least 2 .*, got 1"):
        d3.one_task_crashes(spark, given[0], 1, 1, 1)


def test_a_death_that_never_comes_is_refused(spark, given):
    with pytest.raises(ValueError, match="after must be below .*, got 1000000: nobody died"):
        d3.one_task_crashes(spark, given[0], 2, every=40_000, after=1_000_000)


def test_a_death_disturbs_only_its_own_among_servers(sharing):
    calm, task, server = (
        sharing[sharing["run"] == name].set_index("task")
        for name in ("undisturbed", "a task dies", "a server dies")
    )
    assert not calm["dead"].any()
    assert task.index[task["dead"]].tolist() == ["task-0-0"]
    assert server.index[server["dead"]].tolist() == ["task-0-0", "task-0-1"]
    for run in (calm, task, server):
        assert (run.loc[~run["dead"], "joined"] == 1).all()
        assert (run.loc[~run["dead"], "read_again"] == 0).all()
        assert (run.loc[run["dead"], "joined"] > 1).all()
    assert (sharing["error"] == 0).all()


IN_SPARK = pd.DataFrame({"strategy": [*deaths.WAYS], "tuples": 9, "again": 1,
                         "disturbed": [1, 0, 0], "error": 0})  # fmt: skip


def death_verdict(id, failures, sharing):
    return verdict(CLAIMS, {"failures": failures, "sharing": sharing}, id)


def test_deaths_settle_their_claims(failures, sharing):
    for given in (failures, IN_SPARK):
        assert death_verdict("D3-5", given, sharing) == "holds"
        assert death_verdict("D3-8", given, sharing) == "holds"


def test_a_window_that_a_death_loses_turns_its_claim(tmp_path, monkeypatch, again):
    def loses_a_window(stage):
        account = again(stage)
        if stage.faults:
            next(stage.output.iterdir()).unlink()
        return account

    monkeypatch.setattr(deaths, "run_job", loses_a_window)
    found = d3.servers_and_tasks_crash(tmp_path, 1_000, seed=1)
    assert found.groupby("run")["error"].max().to_dict() == {
        "undisturbed": 0, "a task dies": 1, "a server dies": 1,
    }  # fmt: skip
    assert death_verdict("D3-8", IN_SPARK, found) == "deviates"
    assert death_verdict("D3-5", IN_SPARK, found) == "holds"


def test_a_death_that_takes_the_server_along_turns_its_claim(tmp_path, monkeypatch, again):
    def takes_the_server_along(stage):
        if stage.directory.name != "a-task-dies":
            return again(stage)
        along = [replace(fault, point="server-0 merged") for fault in stage.faults]
        return run_job(replace(stage, faults=(*stage.faults, *along)))

    monkeypatch.setattr(deaths, "run_job", takes_the_server_along)
    found = d3.servers_and_tasks_crash(tmp_path, 20_000, seed=1)
    assert death_verdict("D3-5", IN_SPARK, found) == "deviates"
    assert death_verdict("D3-8", IN_SPARK, found) == "holds"


def test_a_run_without_its_death_is_refused(tmp_path, monkeypatch, again):
    def spared(stage):
        return again(replace(stage, faults=()))

    monkeypatch.setattr(deaths, "run_job", spared)
    with pytest.raises(RuntimeError, match="a task dies, but nobody died: take more tuples"):
        d3.servers_and_tasks_crash(tmp_path, 1_000, seed=1)


def test_servers_sum_the_same_as_the_strategies(tmp_path):
    stream = TupleStream(50_000, 1_000, 1.4)
    log = TupleLog.draw(tmp_path / "log", stream, 4)
    found = d3.served([d3.Input(stream, log)], [1, 2], 2, times=3)
    draws = [stream.draw(index) for index in range(stream.ranges)]
    assert found[["tasks", "repeat"]].to_numpy().tolist() == [[1, 0], [2, 0], [1, 1], [2, 1]]
    assert (found["tuples"] == 150_000).all()
    assert (found["sum"] == 3 * sum(int(values.sum()) for _, _, values in draws)).all()
    assert (found["states"] == len(np.unique(np.concatenate([d[1] for d in draws])))).all()
    np.testing.assert_allclose(found["throughput"], 150_000 / found["seconds"])


def test_stores_bear_what_is_asked_of_them():
    found = d3.merges(d3.EMBEDDED, [1_000], 3_000, seed=1)
    assert found[["store", "flush"]].to_numpy().tolist() == [
        ["memory", "barrier"], ["rocksdb", "merge"], ["rocksdb", "barrier"],
        ["sqlite", "merge"], ["sqlite", "barrier"],
    ]  # fmt: skip
    assert (found[["with_barriers_per_s", "barrier_most_ms"]] > 0).all(axis=None)
    assert (found["with_barriers_per_s"] < found["merges_per_s"]).all()


def test_what_is_timed_is_merged():
    held = []

    @contextmanager
    def counted(flush):
        with d3.EMBEDDED["sqlite"](flush) as table:
            yield table
            held.append((table.read().values.sum(), table.progress()[0].offset))

    d3.merges({"counted": counted}, [1_000], 2_000, seed=1)
    assert held == [(11_000, 9_000), (11_000, 9_000)]


def test_checkpoints_are_timed_against_their_own_turn(monkeypatch):
    """Of stages that are not run, which tests of the streams do."""
    asked, seconds = [], iter([2.0, 4.0, 8.0, 3.0, 5.0, 4.5])

    def streamed(_, own, checkpoint_s, commit_s):
        asked.append((checkpoint_s, commit_s))
        assert own == "memory"
        return next(seconds), 1.0

    monkeypatch.setattr(stores, "_streamed", streamed)
    found = d3.checkpoints(["memory"], 20_000, runs=2)
    assert found["mode"].tolist() == 2 * list(MODES)
    assert found["throughput"].tolist() == (20_000 / found["seconds"]).tolist()
    without, local, both = MODES.values()
    assert asked == [without, local, both, local, both, without]
    assert found["seconds"].tolist() == [2.0, 4.0, 8.0, 4.5, 3.0, 5.0]
    assert found["lost"].tolist() == pytest.approx([0, 0.5, 0.75, 0, -0.5, 0.1])
    figure = figures.checkpoints(found, "title")
    assert list(figure.data[0].y) == (found["throughput"] / 1e6).tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: d3.merges(d3.EMBEDDED, [], 1, 1), "keys must hold at least one value"),
        (lambda: d3.merges(d3.EMBEDDED, [10], 0, 1), "rows must be at least 1, got 0"),
        (lambda: d3.checkpoints([], 10, 1), "stores must be at least 1, got 0"),
        (lambda: d3.checkpoints(["memory"], 1, 1), "tuples must be at least 2, got 1"),
        (lambda: d3.checkpoints(["memory"], 10, 0), "runs must be at least 1, got 0"),
        (lambda: d3.checkpoints(["no"], 10, 1), "own must be one of .*, got 'no'"),
    ],
)
def test_stores_are_not_timed_on_nothing(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_other_engines_are_the_stored_ones(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setenv("AFT_HOME", str(tmp_path))
    assert d3.other_engines().empty
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    rates = {"late local": {"0": [2.5, 2, 3]}}
    stored = {f"{kind}_million_tuples_a_second": rates for kind in ("spark", "flink", "one_core")}
    stored |= {
        "tuples": 10,
        "runs": 3,
        "flink_million_tuples_a_second": "left out: no Java compiler",
    }
    stored |= {"memory_gb_at_most_by_tuples": {"1,000": 1.5, "10": 1}}
    (results / "merging.json").write_text(json.dumps(stored))
    assert d3.other_engines().to_numpy().tolist() == [
        [10, 3, "two tasks", "Spark, late local", 0.0, 2.5e6],
        [10, 3, "one core", "late local", 0.0, 2.5e6],
    ]
    more = stored | {"memory_gb_at_most_by_tuples": {"10": 2}}
    (results / "merging-9.json").write_text(json.dumps(more))
    assert d3.memory_stored().to_numpy().tolist() == [[10, 2], [1_000, 1.5]]


def test_every_skew_is_drawn():
    skews = [i / 10 for i in range(9)]
    model = pd.DataFrame({"strategy": "upfront", "skew": skews, "tasks": 1, "throughput": 1e6})
    model = model.assign(tuples=10, pipelined=False)
    figure = figures.scaling(model, model, "upfront", "title")
    assert len(figure.data) == 2 * len(skews)
    assert list(figure.data[1].y) == [1]


def test_figures_show_what_the_frames_hold(measured, imbalance, locality, failures):
    wide = (costs(), imbalance, STREAMS)
    model = pd.concat([d3.modelled(*wide, 100_000), d3.modelled(*wide, 10**8, True)])
    figure = figures.scaling(measured, model, "upfront", "title")
    assert [trace.name for trace in figure.data[:3]] == [
        "uniform, modelled", "uniform, modelled, pipelined", "uniform, measured",
    ]  # fmt: skip
    first, second = (step.args[0]["x"] for step in figure.layout.sliders[0].steps)
    assert [list(trace.x) for trace in figure.data] == first
    assert first[:3] == [TASKS, [], [1, 2]] and second[:3] == [[], TASKS, []]
    assert len(figures.scaling(measured, model, "late local", "title").data) == 8
    begun = figures.scaling(measured, model, "upfront", "title", start=10**8)
    assert begun.layout.sliders[0].active == 1
    assert [list(trace.x) for trace in begun.data] == second
    drawn = figures.by_skew(measured, 2, "title").data
    assert [trace.name for trace in drawn if trace.showlegend] == list(STRATEGIES)
    bars = figures.breakdown(measured, 2, "title")
    total = sum(np.array(bar.x) for bar in bars.data)
    chosen = measured[(measured["tasks"] == 2) & (measured["skew"] == 0)].set_index("strategy")
    merging = dict(zip(bars.data[4].y, bars.data[4].x, strict=True))["late global"]
    row = chosen.loc["late global"]
    assert merging == pytest.approx(row["merge_s"] - row["task_merge_s"] / 2)
    assert (total >= chosen.loc[list(bars.data[0].y), "seconds"].to_numpy() - 1e-9).all()
    shown = figures.locality(locality, "title", start=1_000)
    assert len(shown.data[0].x) == 5
    assert list(figures.failures(failures, "title").data[0].x) == failures["again"].tolist()
