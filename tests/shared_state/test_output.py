"""The global store records which windows were emitted: none is lost, built again, or replaced."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import SUM, Partials
from aftlib.shared_state.job import Job, Journal
from aftlib.shared_state.output import Output, emit_windows
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.stores.tables import END, MemoryTable, Progress
from aftlib.shared_state.supervisor import run_job
from aftlib.shared_state.tuplelog import TupleLog
from tests.shared_state.tuples import lift


@pytest.fixture
def job(tmp_path):
    log = TupleLog.write(tmp_path / "log", [b"0,1,1\n5,1,2\n10,1,4\n15,1,8\n20,1,16\n"])
    job = Job(log, Rules(Windows(10, 5)), tmp_path / "job", own="memory", servers=1, tasks=1)
    job.claim_folder()
    return job


@pytest.fixture
def table(job, monkeypatch):
    """The global store: slices 0 to 15, complete up to 15, so windows 0 and 5 are to be emitted."""
    table, slices = MemoryTable(SUM), np.array([0, 5, 10, 15])
    job.claim_table(table)
    monkeypatch.setattr(Job, "open_shared", lambda job: table)
    rows = Partials(slices, np.ones(4, int), np.array([1, 2, 4, 8]))
    table.merge(rows, {0: Progress(4, 15)})
    return table


def window(job, start):
    return job.output / f"window-{start:020d}.csv"


def contents(job):
    return {int(p.stem.split("-")[1]): p.read_text() for p in sorted(job.output.iterdir())}


def missing(job, start, got="none"):
    return pytest.raises(
        ValueError, match=rf"output must hold '{window(job, start).name}' as it was emitted, got "
        rf"{got} .*\(1 of \d windows are wrong\): bring the files back"
    )  # fmt: skip


def test_windows_are_emitted_when_the_watermark_has_passed_them(job, table):
    output = Output(job, table)
    assert not output.emit()
    assert contents(job) == {0: "0,1,3\n", 5: "5,1,6\n"}
    assert table.windows().tolist() == [10, 15]
    table.merge(lift(SUM, [20], [9], [1]), {0: Progress(4, END)})
    assert output.emit()
    assert contents(job) == {
        0: "0,1,3\n", 5: "5,1,6\n", 10: "10,1,12\n", 15: "15,1,8\n15,9,1\n", 20: "20,9,1\n",
    }  # fmt: skip
    assert table.windows().tolist() == []


def test_the_last_window_is_emitted_though_it_ends_beyond_64_bits(job):
    table, moment = MemoryTable(SUM), (2**63 - 1) // 5 * 5
    table.merge(lift(SUM, [moment], [1], [7]), {0: Progress(2, END)})
    assert Output(job, table).emit()
    assert contents(job) == {start: f"{start},1,7\n" for start in (moment - 5, moment)}
    assert table.windows().tolist() == []


def run_to_the_end(job, table, monkeypatch, change=lambda: None):
    """Run the output process; the folder is changed when the last window has been emitted."""
    monkeypatch.chdir(job.directory)
    Path("server-0.done").touch()
    table.merge(Partials.empty(1), {0: Progress(4, END)})
    held = [TimeoutError("database is locked")]

    def emit(output, emit=Output.emit):
        if held:  # once, an epoch commit that took longer than SQLite waits ended the job
            raise held.pop()
        done = emit(output)
        change()
        return done

    monkeypatch.setattr(Output, "emit", emit)
    emit_windows(job, Journal("output"))
    assert not held


def test_the_output_waits_for_who_holds_the_global_store(job, table, monkeypatch):
    run_to_the_end(job, table, monkeypatch)
    assert [*contents(job)] == [0, 5, 10, 15]


def test_a_window_of_another_job_is_an_error_at_the_end(job, table, monkeypatch):
    job.output.mkdir()
    window(job, 95).write_text("95,1,1\n")
    with pytest.raises(ValueError, match=r"emitted, got also 'window-0*95.csv' .*: remove these"):
        run_to_the_end(job, table, monkeypatch)


@pytest.mark.parametrize(
    ("lose", "got"),
    [
        (lambda path: path.unlink(), "none"),
        (lambda path: path.write_text("5,1,5\n"), "another file of that name"),
        (lambda path: (path.unlink(), path.mkdir()), "another file of that name"),
    ],
)
def test_an_emitted_window_that_is_lost_is_an_error(job, table, monkeypatch, lose, got):
    """Once, the job ended with status 0, and the window's rows were missing or wrong."""
    with missing(job, 0, got):  # while the job runs
        run_to_the_end(job, table, monkeypatch, lambda: lose(window(job, 0)))
    with missing(job, 0, got):  # at the next start
        Output(job, table)


def test_a_broken_link_in_place_of_a_window_is_an_error(job, table):
    job.output.mkdir()
    window(job, 0).symlink_to("nowhere")
    with pytest.raises(ValueError, match="got another 'window-0*0.csv' .*: remove that file"):
        Output(job, table).emit()


def test_no_window_is_built_from_the_slices_that_are_left_of_it(job, table):
    """Once, windows that a consumer had moved away appeared again as partial sums."""
    output = Output(job, table)
    output.emit()
    window(job, 5).unlink()  # slice 5 is forgotten, 10 is not
    table.merge(Partials.empty(1), {0: Progress(4, END)})
    assert output.emit()
    assert contents(job) == {0: "0,1,3\n", 10: "10,1,12\n", 15: "15,1,8\n"}


def test_a_copied_folder_is_refused_before_anything_starts(job, tmp_path):
    shutil.copytree(job.directory, tmp_path / "copy")
    shared = f"sqlite:{job.directory / 'shared.sqlite'}"  # one store for both, as a database is
    copy = replace(job, directory=tmp_path / "copy", shared=shared)
    before = sorted(copy.directory.rglob("*"))
    with pytest.raises(ValueError, match=r"folder was '.*/job', is '.*/copy'"):
        run_job(copy)
    assert sorted(copy.directory.rglob("*")) == before


def test_a_window_written_but_not_recorded_is_recorded_by_the_next_process(job, table):
    class Crashing(MemoryTable):
        def forget(self, *windows, output=None):
            raise SystemExit

    table.__class__ = Crashing
    with pytest.raises(SystemExit):
        Output(job, table).emit()
    assert window(job, 0).read_text() == "0,1,3\n"
    table.__class__ = MemoryTable
    Output(job, table).emit()
    assert set(table.outputs()) == {0, 5}
    assert window(job, 0).read_text() == "0,1,3\n"


def test_only_the_process_that_began_last_emits(job, table, tmp_path):
    """Of two folders on one store, one would build windows of which the other forgot slices."""
    copy = replace(job, directory=tmp_path / "copy")
    copy.directory.mkdir()
    first, last = Output(job, table), Output(copy, table)
    with pytest.raises(ValueError, match="alone, got another output task .*number 2; this one is"):
        first.emit()
    assert not list(job.output.iterdir())
    last.emit()
    assert len(list(copy.output.iterdir())) == 2


def test_the_output_folder_removed_while_the_job_runs_is_named(job, table):
    output = Output(job, table)
    shutil.rmtree(job.output)
    with pytest.raises(ValueError, match="output must stay while the job runs, got no folder"):
        output.emit()
