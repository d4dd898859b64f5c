"""The global store records which windows were emitted: none is lost, built again, or replaced."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from aftlib.core.windows import Windows
from aftlib.shared_state import supervisor
from aftlib.shared_state.aggregates import SUM, Partials
from aftlib.shared_state.job import Job
from aftlib.shared_state.output import Output
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.stores.tables import END, MemoryTable, Progress
from aftlib.shared_state.supervisor import run_job
from aftlib.shared_state.tuplelog import TupleLog


@pytest.fixture
def job(tmp_path):
    log = TupleLog.write(tmp_path / "log", [b"0,1,1\n5,1,2\n10,1,4\n15,1,8\n20,1,16\n"])
    job = Job(log, Rules(Windows(10, 5)), tmp_path / "job", own="memory", servers=1, tasks=1)
    job.claim_folder()
    return job


@pytest.fixture
def table():
    """Slices 0 to 15, complete up to 15: windows 0 and 5 are to be emitted."""
    table, slices = MemoryTable(SUM), np.array([0, 5, 10, 15])
    rows = Partials(slices, np.ones(4, int), np.array([1, 2, 4, 8]))
    table.merge(rows, {0: Progress(4, 15)})
    return table


def window(job, start):
    return job.output / f"window-{start:020d}.csv"


def missing(job, start, got="none"):
    return pytest.raises(
        ValueError, match=rf"output must hold '{window(job, start).name}' as it was emitted, got "
        rf"{got} .*\(1 of \d windows are wrong\): bring the files back"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("lose", "got"),
    [
        (lambda path: path.unlink(), "none"),
        (lambda path: path.write_text("5,1,5\n"), "another file of that name"),
        (lambda path: (path.unlink(), path.mkdir()), "another file of that name"),
    ],
)
def test_an_emitted_window_that_is_lost_is_an_error_at_the_next_start(job, table, lose, got):
    """Once, the job ended with status 0, and the window's rows were missing or wrong."""
    Output(job, table).emit()
    Output(job, table)
    lose(window(job, 0))
    with missing(job, 0, got):
        Output(job, table)


def test_a_broken_link_in_place_of_a_window_is_an_error(job, table):
    Output(job, table).emit()
    window(job, 10).symlink_to("nowhere")
    table.merge(Partials.empty(1), {0: Progress(4, END)})
    with pytest.raises(ValueError, match="got another 'window-0*10.csv' .*: remove that file"):
        Output(job, table).emit()


def test_a_copied_folder_is_refused_before_anything_starts(job, tmp_path):
    shutil.copytree(job.directory, tmp_path / "copy")
    shared = f"sqlite:{job.directory / 'shared.sqlite'}"  # one store for both, as a database is
    copy = replace(job, directory=tmp_path / "copy", shared=shared)
    before = sorted(copy.directory.rglob("*"))
    with pytest.raises(ValueError, match=r"folder was '.*/job', is '.*/copy'"):
        run_job(copy)
    assert sorted(copy.directory.rglob("*")) == before


def test_a_window_of_another_job_is_an_error_at_the_end(job):
    job.output.mkdir()
    window(job, 95).write_text("95,1,1\n")
    with pytest.raises(RuntimeError, match=r"emitted, got also 'window-0*95.csv' .*: remove these"):
        run_job(job)


def test_no_window_is_built_from_the_slices_that_are_left_of_it(job, table):
    """Once, windows that a consumer had moved away appeared again as partial sums."""
    output = Output(job, table)
    output.emit()
    window(job, 5).unlink()  # slice 5 is forgotten, 10 is not
    table.merge(Partials.empty(1), {0: Progress(4, END)})
    assert output.emit()
    assert not window(job, 5).exists()
    assert window(job, 10).read_text() == "10,1,12\n"
    with missing(job, 5):
        output.require_files()


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


def test_a_window_that_was_moved_away_while_the_job_ran_is_named_at_its_end(
    job, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)  # which it leaves
    emit = Output.emit

    def emit_and_lose(output):
        done = emit(output)
        window(job, 0).unlink(missing_ok=True)
        return done

    monkeypatch.setattr(Output, "emit", emit_and_lose)
    with pytest.raises(RuntimeError, match=f"output must hold '{window(job, 0).name}'"):
        supervisor.Supervisor(job).run()
