"""The global table holds exactly the tuples up to its offsets, and emits each window once."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aftlib.core.windows import Windows
from aftlib.documents.shared_state.parsing import END, NEVER, Progress
from aftlib.documents.shared_state.table import PostgresTable, SqliteTable, StaleBatch
from tests.documents.shared_state.slow import MERGE, listed, partials

WINDOWS = Windows(20, 10)


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request, tmp_path):
    """A function that opens the test's table, with the aggregate that it is given."""
    if request.param == "sqlite":
        return lambda aggregate="sum": SqliteTable(tmp_path / "table", aggregate)
    schema = request.getfixturevalue("schema")
    return lambda aggregate="sum": PostgresTable(schema.url, schema.name, aggregate)


@pytest.mark.parametrize("aggregate", ["sum", "min", "max", "mean", "count"])
def test_commits_merge_rows_and_offsets_together(opened, aggregate):
    with opened(aggregate).prepare(2) as table:
        assert table.commit("a", 1, partials([(0, 1, 5, 2), (10, 1, 7, 1)]), {0: (0, Progress(9))})
        assert table.commit("b", 1, partials([(0, 1, 3, 1)]), {1: (0, Progress(4, 8, 3, 1))})
    with opened(aggregate) as again:
        assert listed(again.read()) == [(0, 1, MERGE[aggregate](5, 3), 3), (10, 1, 7, 1)]
        assert again.progress() == {0: Progress(9), 1: Progress(4, 8, 3, 1)}
        assert (again.last_epoch("a"), again.last_epoch("c")) == (1, 0)


def test_an_epoch_merges_once_and_a_stale_one_not_at_all(opened):
    with opened().prepare(1) as table:
        rows = partials([(0, 1, 5, 1)])
        assert table.commit("a", 1, rows, {0: (0, Progress(9))})
        assert not table.commit("a", 1, rows, {0: (0, Progress(9))})
        with pytest.raises(StaleBatch, match="partition 0 must stand at byte 0, .*offset=9"):
            table.commit("b", 1, rows, {0: (0, Progress(12))})
        assert listed(table.read()) == [(0, 1, 5, 1)]
        assert (table.last_epoch("b"), table.progress()) == (0, {0: Progress(9)})


def test_a_sum_beyond_64_bits_merges_nothing(opened):
    with opened().prepare(1) as table:
        table.commit("a", 1, partials([(0, 1, 2**63 - 1, 1)]), {})
        with pytest.raises(OverflowError, match="a sum leaves the 64 bits; nothing was merged"):
            table.commit("a", 2, partials([(0, 0, 1, 1), (0, 1, 1, 1)]), {0: (0, Progress(9))})
        assert listed(table.read()) == [(0, 1, 2**63 - 1, 1)]
        assert table.progress() == {0: Progress()}


def test_windows_are_emitted_once_when_every_watermark_has_passed(opened):
    with opened().prepare(2) as table:
        rows = partials([(0, 1, 5, 1), (10, 1, 7, 1), (20, 2, 9, 1)])
        table.commit("a", 1, rows, {0: (0, Progress(9, 25))})
        assert table.emit(WINDOWS) == 0  # nothing is known of partition 1
        table.commit("b", 1, partials([(10, 1, 1, 1)]), {1: (0, Progress(4, 20))})
        assert (table.emit(WINDOWS), table.emit(WINDOWS)) == (1, 0)
        assert [row[0] for row in listed(table.read())] == [10, 20]
        table.commit("a", 2, partials([]), {0: (9, Progress(9, END))})
        table.commit("b", 2, partials([]), {1: (4, Progress(4, END))})
        assert table.emit(WINDOWS) == 2 and len(table.read()) == 0
        results = table.results().itertuples(index=False, name=None)
        assert list(results) == [(0, 1, 13), (10, 1, 8), (10, 2, 9), (20, 2, 9)]


def test_a_window_whose_first_sums_come_late_is_not_passed_over(opened):
    """Once, the first server's later slices moved the emission on, past the second's windows."""
    with opened().prepare(2) as table:
        table.commit("a", 1, partials([(50, 1, 1, 1)]), {0: (0, Progress(9, END))})
        assert table.emit(WINDOWS) == 0
        table.commit("b", 1, partials([(0, 1, 2, 1)]), {1: (0, Progress(9, END))})
        assert table.emit(WINDOWS) == 3
        assert table.results()["window"].tolist() == [0, 40, 50]


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),  # partition, and its server
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(-9, 9)), max_size=5),
        st.booleans(),  # whether the epoch is committed again
    ),
    max_size=12,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_a_random_history_is_that_of_a_dictionary(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("table") / "table.sqlite"
    due, epochs = {}, [0, 0, 0]
    SqliteTable(path).prepare(3).close()
    for server, rows, twice in steps:
        merged = {}
        for part, key, value in rows:
            merged[part, key] = merged.get((part, key), 0) + value
        for at, value in merged.items():
            due[at] = due.get(at, 0) + value
        epochs[server] += 1
        offset = epochs[server]
        segment = {server: (offset - 1, Progress(offset, NEVER))}
        batch = partials([(*at, value, 1) for at, value in sorted(merged.items())])
        with SqliteTable(path) as table:  # opened anew each time
            assert table.commit(f"s{server}", offset, batch, segment)
            assert not (twice and table.commit(f"s{server}", offset, batch, segment))
            assert {row[:2]: row[2] for row in listed(table.read())} == due
            assert [now.offset for now in table.progress().values()] == epochs
