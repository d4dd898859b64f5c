"""The message log: messages survive a crash, and only a crash counts as one."""

import os
import resource
import signal
import threading
from multiprocessing import get_context

import numpy as np
import pytest

from aftlib.approximately_once.message_log import MessageLog

VALUES, SAMPLES = np.array([[0.1, np.nan], [2.0, -1e300]]), np.array([[3, 0], [3, 2]])


@pytest.fixture
def box(tmp_path):
    return MessageLog(tmp_path / "messages")


def sending(box, end):
    """Send two windows and come to an end in another process."""
    with box.writing(1, 40, 0, begin=30) as send:
        send(55, range(7, 9), VALUES, SAMPLES)
        end()


def sending_on_a_full_disk(box):
    """A message that finds room for its half only, a moment before there is room again."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    with box.writing(1, 40, 0, begin=30) as send:
        send(35, range(3, 5), VALUES, SAMPLES)
        size = next(box.folder.iterdir()).stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 60, hard))
        with pytest.raises(OSError, match="too large"):
            send(45, range(5, 7), VALUES, SAMPLES)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        send(55, range(7, 9), VALUES, SAMPLES)
        os.kill(os.getpid(), signal.SIGKILL)


def test_half_a_letter_is_not_taken_for_one_with_the_next(box):
    process = get_context("fork").Process(target=sending_on_a_full_disk, args=(box,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    messages = box.crash(1, 40, 0, keys=2)
    assert (messages.reached, sorted(messages.windows)) == (55, [3, 4, 7, 8])
    np.testing.assert_array_equal([messages.windows[i][0] for i in (7, 8)], VALUES)


def in_a_process(box, end):
    process = get_context("fork").Process(target=sending, args=(box, end))
    process.start()
    return process


def test_what_a_dead_worker_sent_arrives_to_the_bit(box):
    process = in_a_process(box, lambda: os.kill(os.getpid(), signal.SIGKILL))
    process.join()
    messages = box.crash(1, 40, 0, keys=2)
    assert (messages.pid, messages.reached, messages.stopped) == (process.pid, 55, False)
    assert sorted(messages.windows) == [7, 8]
    np.testing.assert_array_equal([messages.windows[i][0] for i in (7, 8)], VALUES)
    np.testing.assert_array_equal([messages.windows[i][1] for i in (7, 8)], SAMPLES)


def test_a_slow_worker_is_not_dead(box):
    ready = get_context("fork").Event()
    process = in_a_process(box, lambda: ready.set() or threading.Event().wait(500))
    try:
        assert ready.wait(500)
        assert box.crash(1, 40, 0, keys=2, patience_s=0.05) is None
        assert box.read(1, 40, 0, keys=2).reached == 55
    finally:
        process.kill()
        process.join()
    assert box.crash(1, 40, 0, keys=2) is not None


@pytest.mark.parametrize("end", [lambda: None, lambda: 1 / 0])
def test_an_attempt_that_came_to_an_end_is_not_dead(box, end, capfd):
    in_a_process(box, end).join()
    assert box.crash(1, 40, 0, keys=2) is None
    assert box.read(1, 40, 0, keys=2).stopped


def test_an_attempt_that_has_not_begun_is_not_dead(box):
    assert box.crash(1, 40, 0, keys=2) is None
    assert box.read(1, 40, 0, keys=2) is None


def test_a_torn_letter_is_left_out(box):
    in_a_process(box, lambda: os.kill(os.getpid(), signal.SIGKILL)).join()
    (path,) = box.folder.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert box.crash(1, 40, 0, keys=2).windows == {}
    assert box.crash(1, 40, 0, keys=2).reached == 30


def test_one_worker_a_micro_batch_is_estimated(box):
    assert box.claim(1, 40) and box.claim(1, 40)
    assert not box.claim(0, 40)
    assert box.claim(0, 80)
