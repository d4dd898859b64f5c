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


def missing(job, start):
    return pytest.raises(
        ValueError, match=rf"output must hold '{window(job, start).name}' as it was emitted, got "
        r"none .*\(1 of \d windows are wrong\): bring the files back"
    )  # fmt: skip


def test_an_emitted_window_that_is_missing_is_an_error_at_the_next_start(job, table):
    Output(job, table).emit()
    Output(job, table)
    window(job, 0).unlink()
    with missing(job, 0):
        Output(job, table)


def test_an_emitted_window_that_is_another_one_is_an_error(job, table):
    Output(job, table).emit()
    window(job, 5).write_text("5,1,5\n")
    with pytest.raises(ValueError, match="got another file of that name"):
        Output(job, table)


def test_a_folder_or_a_broken_link_in_place_of_a_window_is_an_error(job, table):
    Output(job, table).emit()
    window(job, 0).unlink()
    window(job, 0).mkdir()
    with pytest.raises(ValueError, match="got another file of that name"):
        Output(job, table)
    window(job, 10).symlink_to("nowhere")
    window(job, 0).rmdir()
    window(job, 0).write_text("0,1,3\n")
    table.merge(Partials.empty(1), {0: Progress(4, END)})
    with pytest.raises(ValueError, match="got another 'window-0*10.csv' .*: remove that file"):
        Output(job, table).emit()


def test_a_window_of_another_job_is_an_error_at_the_end(job):
    job.output.mkdir()
    window(job, 95).write_text("95,1,1\n")
    with pytest.raises(RuntimeError, match=r"emitted, got also 'window-0*95.csv' .*: remove these"):
        run_job(job)
    window(job, 95).unlink()
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
    with pytest.raises(ValueError, match="alone, got another output task .*number 2, this one is"):
        first.emit()
    assert not list(job.output.iterdir())
    last.emit()
    assert len(list(copy.output.iterdir())) == 2


def test_the_output_folder_removed_while_the_job_runs_is_named(job, table):
    output = Output(job, table)
    shutil.rmtree(job.output)
    with pytest.raises(ValueError, match="output must stay while the job runs, got no folder"):
        output.emit()


def test_a_copied_folder_is_refused_before_anything_starts(job, tmp_path):
    run_job(job)
    shutil.copytree(job.directory, tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock"))
    shared = f"sqlite:{job.directory / 'shared.sqlite'}"  # one store for both, as a database is
    copy = replace(job, directory=tmp_path / "copy", shared=shared)
    files = sorted(path.stat().st_mtime_ns for path in copy.directory.rglob("*"))
    with pytest.raises(ValueError, match=r"folder was '.*/job', is '.*/copy'"):
        run_job(copy)
    assert sorted(path.stat().st_mtime_ns for path in copy.directory.rglob("*")) == files


@pytest.mark.parametrize("lost", [[0], [5, 10, 15]])
def test_a_job_run_again_names_the_window_that_is_missing(job, lost):
    """Once, it ended with status 0, and the window's rows were missing or wrong."""
    run_job(job)
    whole = {path.name: path.read_text() for path in job.output.iterdir()}
    assert len(whole) == 5
    for start in lost:
        window(job, start).unlink()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"output must hold '{window(job, lost[0]).name}'"):
            run_job(job)
    for name, text in whole.items():
        (job.output / name).write_text(text)
    run_job(job)
    assert {path.name: path.read_text() for path in job.output.iterdir()} == whole


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
