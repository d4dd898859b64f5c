"""D3's experiments: frames that add up, a table by hand, verdicts that can turn."""

import json
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import psycopg
import pytest

from aftlib.shared_state import figures
from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.claims import CLAIMS
from aftlib.shared_state.experiments import parameters, servers, strategies
from aftlib.shared_state.experiments.servers import MODES
from aftlib.shared_state.experiments.strategies import METHODS, shared_table
from aftlib.shared_state.job import Account
from aftlib.shared_state.scaling import BROKEN
from aftlib.shared_state.stores import FILES
from aftlib.shared_state.stores.postgres import PostgresTable
from aftlib.shared_state.stores.sql import SqliteTable
from aftlib.shared_state.stores.tables import FLUSHES
from aftlib.shared_state.strategies import STRATEGIES
from aftlib.shared_state.tuplelog import TupleLog, TupleStream
from benchmarks.merging import TOTALS, require_equal
from tests.judging import verdict
from tests.refusals import refused


@pytest.fixture(scope="module")
def drawn_inputs(spark, tmp_path_factory):
    streams = [TupleStream(100_000, 1_000, skew) for skew in (0.0, 2.0)]
    return parameters.inputs(spark, tmp_path_factory.mktemp("data"), streams, partitions=2)


@pytest.fixture(scope="module")
def failures(spark, drawn_inputs):
    return strategies.one_task_crashes(spark, drawn_inputs[0], 2, every=20_000, after=25_000)


@pytest.fixture(scope="module")
def sharing(tmp_path_factory):
    return servers.servers_and_tasks_crash(tmp_path_factory.mktemp("sharing"), 1_000, seed=1)


def pretend(job, losing=False, inject=True):
    """Instead of a run: its only window, the marks of its faults, and who has joined how often."""
    job.output.mkdir(parents=True)
    if not (losing and job.faults):
        (job.output / "window-0.csv").write_text("0,1,1\n")
    joined = {f"task-{server}-{task}": 1 for server in range(2) for task in range(2)}
    for fault in job.faults:
        crashed = fault.target.replace("server", "task")
        joined |= {name: 2 for name in joined if name.startswith(crashed)}
        if inject:
            job.injector.marker(fault).parent.mkdir()
            job.injector.marker(fault).touch()
    return Account(joined, {}, 0, 1.0, {})


def test_table_1_by_hand(spark, tmp_path):
    state, windows, result = strategies.table_1(spark, tmp_path)
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
    assert result.partitions["tuples"].tolist() == [5, 5]
    assert result.partitions["late"].tolist() == [0, 0]


def test_measured_covers_every_run(spark, drawn_inputs):
    measured = strategies.measured(spark, drawn_inputs, [1, 2], 1, warm_up=False)
    assert len(measured) == 3 * 2 * 2
    assert (measured["tuples"] == 100_000).all()
    assert (measured["count"] == 100_000).all()
    assert measured.groupby("skew")["states"].agg(set).map(len).tolist() == [1, 1]
    np.testing.assert_allclose(measured["throughput"], 100_000 / measured["seconds"])
    behind = measured.set_index("strategy")["receiver_s"]
    assert (behind["upfront"] > 0).all()
    assert behind[list(STRATEGIES[1:])].isna().all()


def test_the_warm_up_is_run_but_not_counted():
    runs = []

    def run(each, strategy, tasks):
        runs.append((each.stream.skew, strategy, tasks))
        return {"tuples": 10, "seconds": len(runs)}

    inputs = [SimpleNamespace(stream=TupleStream(1, skew=skew)) for skew in (0.0, 2.0)]
    frame = strategies.measure(run, inputs, ["a", "b"], [1], repeats=2, warm_up=True)
    first, second = [(0.0, "a", 1), (0.0, "b", 1)], [(2.0, "a", 1), (2.0, "b", 1)]
    assert runs == first + 2 * (first + second)
    assert frame["repeat"].tolist() == [0] * 4 + [1] * 4
    assert frame["throughput"].tolist() == [10 / n for n in range(3, 11)]


def test_the_benchmarks_systems_must_agree():
    totals = {"skew": 0.0, "keys": 2, "sum": 7, "count": 3}
    frame = pd.DataFrame([{"system": name, **totals} for name in ("ours", "other")])
    assert require_equal([frame, pd.DataFrame(), frame.assign(skew=2.0, sum=8)]) is None
    for name in TOTALS:
        with pytest.raises(RuntimeError, match="systems disagree, nothing can be compared"):
            require_equal([frame, frame.assign(**{name: 1})])


@pytest.mark.parametrize(
    ("master", "named", "kind"),
    [
        ("local[2]", True, SqliteTable),
        ("spark://head:7077", False, SqliteTable),
        ("spark://head:7077", True, PostgresTable),
    ],
)
def test_tasks_of_a_cluster_share_the_postgres_that_is_named(
    master, named, kind, postgres_url, tmp_path, monkeypatch
):
    monkeypatch.setenv("AFT_POSTGRES_URL", postgres_url if named else "")
    cluster = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    with shared_table(cluster, tmp_path) as table:
        with table() as one:
            one.merge(Partials(*np.ones((2, 1), int), np.ones((1, 2), int)), {})
        with table() as other:
            assert isinstance(other, kind) and len(other.read()) == 1
    if kind is PostgresTable:  # nothing is left there
        with psycopg.connect(postgres_url) as connection:
            query = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
            assert connection.execute(query, [other.schema]).fetchone() == (0,)


def test_a_crash_disturbs_others_only_behind_a_pipelined_shuffle(failures):
    rows = failures.set_index("strategy")
    assert rows["disturbed"].to_dict() == {
        "upfront, pipelined shuffle": 1,
        "upfront, Spark's shuffle on disk": 0,
        "late global": 0,
        BROKEN: 0,
    }
    assert (rows["error"].drop(BROKEN) == 0).all() and rows.loc[BROKEN, "error"] > 0
    assert 0 < rows.loc["late global", "again"] <= 20_000
    assert rows.loc["upfront, pipelined shuffle", "twice"] > 0
    assert rows["twice"].isna().tolist() == [False, True, True, True]
    assert rows.loc["upfront, Spark's shuffle on disk", "again"] > 0
    assert rows["crashed_pid"].nunique() == 4


def test_crashes_that_cannot_happen_are_refused(spark, drawn_inputs):
    with pytest.raises(ValueError, match="tasks must be at least 2.*, got 1"):
        strategies.one_task_crashes(spark, drawn_inputs[0], 1, 1, 1)
    with pytest.raises(ValueError, match="after must be below .*, got 1000000: no task crashed"):
        strategies.one_task_crashes(spark, drawn_inputs[0], 2, every=40_000, after=1_000_000)


IN_SPARK = pd.DataFrame({"strategy": [*METHODS], "tasks": 2, "tuples": 9, "again": 1,
                         "disturbed": [1, 0, 0, 0], "error": [0, 0, 0, 1]})  # fmt: skip


def crash_verdicts(failures, sharing):
    frames = {"failures": failures, "sharing": sharing}
    return [verdict(CLAIMS, frames, id) for id in ("D3-5", "D3-8")]


def test_crashes_settle_their_claims(failures, sharing):
    for crashes in (failures, IN_SPARK):
        assert crash_verdicts(crashes, sharing) == ["holds", "holds"]
    crashed = sharing.loc[sharing["crashed"], ["run", "task"]].to_numpy().tolist()
    assert crashed == [
        ["a task crashes", "task-0-0"],
        *(["a server crashes", f"task-0-{i}"] for i in range(2)),
    ]


@pytest.mark.parametrize(("losing", "second"), [(False, "holds"), (True, "deviates")])
def test_a_window_that_a_crash_loses_turns_its_claim(tmp_path, monkeypatch, losing, second):
    monkeypatch.setattr(servers, "run_job", partial(pretend, losing=losing))
    sharing = servers.servers_and_tasks_crash(tmp_path, 1_000, seed=1)
    assert sharing.groupby("run", sort=False)["error"].max().tolist() == [0, losing, losing]
    assert crash_verdicts(IN_SPARK, sharing) == ["holds", second]


def test_a_run_without_its_crash_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "run_job", partial(pretend, inject=False))
    with pytest.raises(RuntimeError, match="a task crashes, but no process was killed: take more"):
        servers.servers_and_tasks_crash(tmp_path, 1_000, seed=1)


def test_servers_sum_the_same_as_the_strategies(tmp_path):
    stream = TupleStream(50_000, 1_000, 1.4)
    log = TupleLog.draw(tmp_path / "log", stream, 4)
    served = servers.served([parameters.Input(stream, log)], [2], 1, times=3)
    draws = [stream.draw(index) for index in range(stream.ranges)]
    assert served[["tasks", "repeat", "tuples"]].to_numpy().tolist() == [[2, 0, 150_000]]
    assert served["sum"].tolist() == [3 * sum(int(values.sum()) for _, _, values in draws)]
    assert served["states"].tolist() == [len(np.unique(np.concatenate([d[1] for d in draws])))]
    np.testing.assert_allclose(served["throughput"], 150_000 / served["seconds"])


def test_merges_are_timed_of_every_store_and_flush():
    merges = servers.merges(servers.EMBEDDED, [1_000], 3_000, seed=1, turns=2)
    both = [[store, flush] for store in FILES for flush in FLUSHES][1:]  # memory never flushes
    assert merges["turn"].tolist() == [0] * len(both) + [1] * len(both)
    assert merges[["store", "flush"]].to_numpy().tolist() == 2 * both
    assert (merges[["with_barriers_per_s", "barrier_most_ms"]] > 0).all(axis=None)
    assert (merges["with_barriers_per_s"] < merges["merges_per_s"]).all()


def test_timed_rows_are_merged():
    held = []

    @contextmanager
    def counted(flush):
        with servers.EMBEDDED["sqlite"](flush) as table:
            yield table
            held.append((table.read().values.sum(), table.progress()[0].offset))

    servers.merges({"counted": counted}, [1_000], 2_000, seed=1)
    assert held == [(11_000, 9_000), (11_000, 9_000)]


def test_checkpoints_are_timed_against_their_own_turn(monkeypatch):
    """Of jobs that are not run: tests of the parameters run them."""
    modes, seconds = [], iter([2.0, 4.0, 8.0, 3.0, 5.0, 4.5])

    def timed(_, own, checkpoint_s, commit_s):
        modes.append((checkpoint_s, commit_s))
        assert own == "memory"
        return next(seconds), 1.0

    monkeypatch.setattr(servers, "time_stream", timed)
    runs = servers.checkpoints(["memory"], 20_000, runs=2)
    assert runs["mode"].tolist() == 2 * list(MODES)
    assert runs["throughput"].tolist() == (20_000 / runs["seconds"]).tolist()
    without, local, both = MODES.values()
    assert modes == [without, local, both, local, both, without]
    assert runs["seconds"].tolist() == [2.0, 4.0, 8.0, 4.5, 3.0, 5.0]
    assert runs["lost"].tolist() == pytest.approx([0, 0.5, 0.75, 0, -0.5, 0.1])
    figure = figures.checkpoints(runs, "title")
    assert list(figure.data[0].y) == (runs["throughput"] / 1e6).tolist()


test_nothing_is_timed_on_nothing = refused(
    lambda experiment, *arguments: experiment(*arguments),
    (servers.merges, servers.EMBEDDED, [], 1, 1, "keys must hold at least one value"),
    (servers.merges, servers.EMBEDDED, [10], 0, 1, "rows must be at least 1, got 0"),
    (servers.checkpoints, [], 10, 1, "stores must be at least 1, got 0"),
    (servers.checkpoints, ["memory"], 1, 1, "tuples must be at least 2, got 1"),
    (servers.checkpoints, ["memory"], 10, 0, "runs must be at least 1, got 0"),
    (servers.checkpoints, ["no"], 10, 1, "own must be one of .*, got 'no'"),
)


def test_other_engines_are_the_stored_ones(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setenv("AFT_HOME", str(tmp_path))
    assert servers.other_engines().empty and servers.stored_memory().empty
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    rates = {"late local": {"0": [2.5, 2, 3]}}
    kinds = ("spark", "flink", "flink_one_task", "one_core")
    stored = {f"{kind}_million_tuples_a_second": rates for kind in kinds}
    stored |= {
        "tuples": 10,
        "runs": 3,
        "flink_million_tuples_a_second": "left out: no Java compiler",
        "memory_gb_at_most_by_tuples": {"1,000": 1.5, "10": 1},
    }
    (results / "merging.json").write_text(json.dumps(stored))
    assert servers.other_engines().to_numpy().tolist() == [
        [10, 3, "two tasks", "Spark, late local", 0.0, 2.5e6],
        [10, 3, "one task", "late local", 0.0, 2.5e6],
        [10, 3, "one core", "late local", 0.0, 2.5e6],
    ]
    more = stored | {"memory_gb_at_most_by_tuples": {"10": 2}}
    (results / "merging-9.json").write_text(json.dumps(more))
    assert servers.stored_memory().to_numpy().tolist() == [[10, 2], [1_000, 1.5]]
