"""The three strategies on Spark give the same sums, with everything that was left out counted."""

from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pytest

from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import AGGREGATES
from aftlib.shared_state.experiments.strategies import require_same, stage_seconds
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.pipelined import sum_pipelined
from aftlib.shared_state.stores import open_table
from aftlib.shared_state.stores.sql import SqliteTable
from aftlib.shared_state.stores.tables import MemoryTable, Progress
from aftlib.shared_state.strategies import STRATEGIES, LogMerge, merge_into, merge_log, sum_received
from aftlib.shared_state.sums import SUMS, window_sums
from aftlib.shared_state.task import read_markers, sum_partitions, write_marker
from aftlib.shared_state.tuplelog import TupleLog, TupleStream, write_tuples
from tests.refusals import refused
from tests.shared_state.tuples import lift

STREAM = TupleStream(300_000, keys=2_000, skew=1.4, disorder=30)
RULES = Rules(Windows(100, 40), delay=10)


@pytest.fixture(scope="module")
def log(spark, tmp_path_factory):
    return write_tuples(spark, STREAM, 3, tmp_path_factory.mktemp("logs") / "log")


@pytest.fixture(scope="module")
def expected(log):
    slices, progress = sum_partitions({p: log.part(p) for p in range(3)}, RULES)
    return window_sums(slices, RULES.windows), sum(now.late for now in progress.values())


def shared(tmp_path):
    return SqliteTable(tmp_path / "shared.sqlite", SUMS)


def test_a_log_is_the_stream_whatever_the_tasks(log):
    for partition in range(3):
        texts = [STREAM.text(i) for i in range(partition, STREAM.ranges, 3)]
        assert log.part(partition).read_bytes() == b"".join(texts)
    assert (log.tuples, log.about) == (300_000, asdict(STREAM))


def test_another_stream_at_the_same_place_is_refused(spark, log):
    assert write_tuples(spark, STREAM, 3, log.path) == log
    with pytest.raises(ValueError, match="path holds a log of .* in 3 partitions, got a request"):
        write_tuples(spark, STREAM, 4, log.path)
    with pytest.raises(ValueError, match="partitions must be a whole number at least 1"):
        write_tuples(spark, STREAM, 0, log.path)


@pytest.mark.parametrize(
    ("strategy", "tasks"), [*((each, 5) for each in STRATEGIES), ("upfront", 1)]
)
def test_sums_do_not_depend_on_strategy_or_tasks(spark, log, expected, tmp_path, strategy, tasks):
    run = merge_log(
        spark, log, RULES, strategy, tasks, table=partial(shared, tmp_path), every=40_000
    )
    require_same(run.sums, expected[0], strategy)
    assert run.partitions["late"].sum() == expected[1] > 0
    assert run.tuples == 300_000
    assert run.partitions["offset"].tolist() == [log.size(p) for p in range(3)]
    assert len(run.tasks) == tasks
    assert run.rejects.empty


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_malformed_lines_are_recorded_with_their_offsets(spark, tmp_path, strategy):
    log = TupleLog.write(tmp_path / "log", [b"1,2,3\nba\xff\n5,2,4\n6,7", b"", b"5,x,1\n"])
    run = merge_log(spark, log, Rules(Windows(9, 9)), strategy, 2, table=partial(shared, tmp_path))
    assert run.sums.values.tolist() == [[7, 2]]
    assert run.rejects.to_numpy().tolist() == [
        [0, 6, "1 fields instead of 3", "ba\\xff"],
        [0, 16, "the file ends before the line does", "6,7"],
        [2, 0, "key is no whole number", "5,x,1"],
    ]
    assert run.partitions["rejected"].tolist() == [2, 0, 1]


def test_too_many_malformed_lines_stop_the_run(spark, tmp_path):
    log = TupleLog.write(tmp_path / "log", [b"1,2,3\nbad\nworse\n"])
    rules, place = Rules(Windows(9, 9), most_rejected=1), tmp_path / "markers"
    with pytest.raises(Exception, match="part-00000.csv has more .* the last at byte 10"):
        merge_log(spark, log, rules, "upfront", 1, place)
    assert read_markers(place)[1]["line"].tolist() == ["bad", "worse"]


def test_tries_share_the_limit_of_malformed_lines(tmp_path):
    log = TupleLog.write(tmp_path / "log", [b"1,2,3\nbad\n"])
    job = LogMerge(log, Rules(Windows(9, 9), most_rejected=2), 1, tmp_path)
    with shared(tmp_path) as table:
        merge_into(table, job, 0, None)
        beyond = Progress(log.size(0)), Progress(log.size(0) + 4, rejected=5)
        write_marker(tmp_path, 0, *beyond, [])  # by a try that crashed before it merged
        for line, refused in ((b"worse\n", False), (b"worst\n", True)):
            with log.part(0).open("ab") as file:
                file.write(line)
            with pytest.raises(ValueError, match="most_rejected = 2") if refused else nullcontext():
                merge_into(table, job, 0, None)


def test_an_overflow_of_sparks_own_sum_stops_the_run(spark, tmp_path):
    log = TupleLog.write(tmp_path / "log", [b"1,2,%d\n" % (10**18 - 1) * 10])
    with pytest.raises(Exception, match="overflow"):
        merge_log(spark, log, Rules(Windows(9, 9)), "upfront", 1)


def run_refused(changes, opened, spark, tmp_path):
    log = TupleLog.write(tmp_path / "log", [b"1,2,3\n"])
    table = partial(opened, tmp_path) if opened else None
    merge_log(spark, log, RULES, **{"strategy": "late global", "tasks": 1} | changes, table=table)


DURABLY = "table must store each merge durably, .* got a .*Table"
test_impossible_runs_are_refused = refused(
    run_refused,
    ({"strategy": "late"}, shared, "strategy must be one of upfront, .*, got 'late'"),
    ({"tasks": 0}, shared, "tasks must be a whole number at least 1, got 0"),
    ({"tasks": 1.5}, shared, "tasks must be a whole number at least 1, got 1.5"),
    ({"every": 0}, shared, "every must be a whole number at least 1, got 0"),
    ({}, None, "table must be given for 'late global', got None"),
    ({}, lambda place: MemoryTable(AGGREGATES["sum"]), "must keep sums and counts .*, got 'sum'"),
    ({}, lambda place: MemoryTable(SUMS), DURABLY),
    ({}, lambda place: open_table(f"sqlite:{place}/s", SUMS, "barrier"), DURABLY),
)


def test_another_runs_folder_is_refused(spark, log, tmp_path):
    job = LogMerge(log, RULES, 1, tmp_path)
    starts = (
        lambda: merge_log(spark, log, RULES, "late local", 1, tmp_path),
        lambda: sum_received(spark, job),
        lambda: sum_pipelined(spark, job, every=1, checkpoint=1),
    )
    for name in ("task-00000.json", "checkpoint-2-0"):
        (tmp_path / name).touch()
        for start in starts:
            with pytest.raises(ValueError, match=f"without another run's files, .* {name}"):
                start()
        (tmp_path / name).unlink()


def test_a_table_of_another_log_is_refused(spark, log, tmp_path):
    table = partial(shared, tmp_path)
    first = merge_log(spark, log, RULES, "late global", 1, table=table)
    again = merge_log(spark, log, RULES, "late global", 1, table=table)
    assert np.array_equal(first.sums.values, again.sums.values)
    assert (first.tuples, again.tuples) == (300_000, 0)
    other = TupleLog.write(tmp_path / "other", [log.part(0).read_bytes()])
    for wrong in ((other, RULES), (log, replace(RULES, delay=9)), (log, Rules(Windows(7, 7)))):
        with pytest.raises(ValueError, match="table must be new, or the one with which"):
            merge_log(spark, *wrong, "late global", 1, table=table)
    with SqliteTable(tmp_path / "filled.sqlite", SUMS) as filled:
        filled.merge(lift(SUMS, *np.ones((3, 1), int)), {0: Progress(8)})
    with pytest.raises(ValueError, match="table must be new, or the one with"):
        merge_log(spark, log, RULES, "late global", 1,
            table=partial(SqliteTable, tmp_path / "filled.sqlite", SUMS))  # fmt: skip


def test_a_table_that_is_lost_meanwhile_is_an_error(spark, log, tmp_path):
    """Once, the sums were those of what was left."""

    def opened():
        if list((tmp_path / "markers").glob("task-*.json")):
            for path in tmp_path.glob("shared.sqlite*"):
                path.unlink()
        return shared(tmp_path)

    with pytest.raises(RuntimeError, match=r"got partitions \[0, 1, 2\] short of their ends"):
        merge_log(spark, log, RULES, "late global", 1, tmp_path / "markers", opened)


def test_stage_times_are_those_of_the_block(spark, log, tmp_path):
    with stage_seconds(spark) as stages:
        merge_log(spark, log, RULES, "upfront", 2)
    assert len(stages) == 2
    assert all(seconds > 0 for seconds in stages)
