"""Directories of streaming queries: worked in by one driver, in step with Spark."""

from __future__ import annotations

import multiprocessing

import pytest

from aftlib.core.storage import locked
from aftlib.spark.streams import committed_offset


def come_in(path, queue):
    try:
        with locked(path):
            queue.put("in")
    except TimeoutError as error:
        queue.put(str(error))


def test_one_driver_works_in_a_directory(tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    with locked(tmp_path):
        other = context.Process(target=come_in, args=(tmp_path, queue))
        other.start()
        refusal = queue.get()
        other.join()
    assert "is held by another driver" in refusal
    come_in(tmp_path, queue)
    assert queue.get() == "in"


def write_checkpoint(checkpoint, started, committed):
    """Spark's files of micro-batches that ended at the steps 10, 20, …."""
    (checkpoint / "metadata").write_text("{}")
    for name, last in (("offsets", started), ("commits", committed)):
        (checkpoint / name).mkdir(exist_ok=True)
        for number in range(last + 1):
            offset = f'\n{{"step": {10 * (number + 1)}}}' if name == "offsets" else ""
            (checkpoint / name / str(number)).write_text("v1\n{}" + offset)


def test_sparks_checkpoint_reports_its_progress(tmp_path):
    assert committed_offset(tmp_path, "") is None
    write_checkpoint(tmp_path, started=0, committed=-1)
    assert committed_offset(tmp_path, "") is None
    write_checkpoint(tmp_path, started=2, committed=1)
    assert committed_offset(tmp_path, "") == {"step": 20}


@pytest.mark.parametrize("text", [None, "", "v1\n{}", 'v1\n{}\n{"st'])
def test_a_checkpoint_without_its_last_offset_is_refused_with_the_fix(tmp_path, text):
    write_checkpoint(tmp_path, started=2, committed=1)
    file = tmp_path / "offsets" / "1"
    file.unlink() if text is None else file.write_text(text)
    with pytest.raises(ValueError, match="must be whole, .*1' cut or missing, .*: remove the fold"):
        committed_offset(tmp_path, "remove the folder")
