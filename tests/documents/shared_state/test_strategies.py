"""The strategies on Spark give the sums of the obvious loop; a job's windows are emitted once."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from aftlib.core.windows import Windows
from aftlib.documents.shared_state.parsing import TupleSource
from aftlib.documents.shared_state.server import Job
from aftlib.documents.shared_state.strategies import (
    deal_out,
    late_global,
    late_local,
    run_job,
    upfront,
)
from aftlib.documents.shared_state.sums import window_sums
from aftlib.documents.shared_state.table import PostgresTable, SqliteTable
from aftlib.documents.shared_state.tuples import TupleLog
from tests.documents.shared_state.slow import listed, slow_windows, text_of

WINDOWS = Windows(20, 10)
ROWS = [[(i // 9, 10 + i % 7, i % 50 - 9) for i in range(p, 900, 3)] for p in range(3)]
DUE = slow_windows([row for part in ROWS for row in part], WINDOWS)


@pytest.fixture
def source(tmp_path):
    return TupleSource(TupleLog.write(tmp_path / "log", map(text_of, ROWS)), WINDOWS)


@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_strategies_are_the_slow_twin(spark, source, tmp_path, tasks):
    table = partial(SqliteTable, tmp_path / "shared.sqlite")
    for sums in (
        upfront(spark, source, tasks),
        late_local(spark, source, tasks),
        late_global(spark, source, tasks, table),
    ):
        assert listed(window_sums(sums, WINDOWS)) == DUE


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_job_emits_every_window_once(spark, source, tmp_path, kind, request):
    table = partial(SqliteTable, tmp_path / "shared.sqlite")
    if kind == "postgres":
        schema = request.getfixturevalue("schema")
        table = partial(PostgresTable, schema.url, schema.name)
    job = Job(source, tmp_path / "job", table, servers=2, batch=50, checkpoint_s=0.01)
    assert run_job(spark, job)["server"].tolist() == [0, 1]
    with table() as shared:
        results = shared.results().itertuples(index=False, name=None)
        assert list(results) == [row[:3] for row in DUE]
        assert listed(shared.read()) == []


def test_tuples_go_to_the_task_of_their_key():
    flat, ends = deal_out(*np.array([[0, 0, 1, 0], [3, 4, 5, 6], [30, 40, 50, 60]]), 3)
    parts = [flat[3 * a : 3 * b].reshape(3, -1).T.tolist() for a, b in pairwise(ends)]
    assert parts == [[[0, 3, 30], [0, 6, 60]], [[0, 4, 40]], [[1, 5, 50]]]


def test_a_bad_line_fails_the_job_and_is_shown(spark, source, tmp_path):
    with source.log.part(1).open("ab") as file:
        file.write(b"1,x,3\n")
    with pytest.raises(Exception, match=r"line at byte \d+ of part-00001.csv must be"):
        late_local(spark, source, 2)
