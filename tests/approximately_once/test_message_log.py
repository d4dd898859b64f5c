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
def message_log(tmp_path):
    return MessageLog(tmp_path / "messages")


def sending(message_log, end):
    """Send two windows from another process, which then stops or crashes by `end`."""
    with message_log.writing(1, 40, 0, begin=30) as send:
        send(55, range(7, 9), VALUES, SAMPLES)
        end()


def sending_on_a_full_disk(message_log):
    """Send a message of which only half fits on the disk, then another after space is freed."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    with message_log.writing(1, 40, 0, begin=30) as send:
        send(35, range(3, 5), VALUES, SAMPLES)
        size = next(message_log.folder.iterdir()).stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 60, hard))
        with pytest.raises(OSError, match="too large"):
            send(45, range(5, 7), VALUES, SAMPLES)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        send(55, range(7, 9), VALUES, SAMPLES)
        os.kill(os.getpid(), signal.SIGKILL)


def test_half_a_message_is_not_read_as_one_with_the_next(message_log):
    process = get_context("fork").Process(target=sending_on_a_full_disk, args=(message_log,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    messages = message_log.crash(1, 40, 0, keys=2)
    assert (messages.reached, sorted(messages.windows)) == (55, [3, 4, 7, 8])
    np.testing.assert_array_equal([messages.windows[i][0] for i in (7, 8)], VALUES)


def in_a_process(message_log, end):
    process = get_context("fork").Process(target=sending, args=(message_log, end))
    process.start()
    return process


def test_messages_of_a_crashed_worker_arrive_bit_for_bit(message_log):
    process = in_a_process(message_log, lambda: os.kill(os.getpid(), signal.SIGKILL))
    process.join()
    messages = message_log.crash(1, 40, 0, keys=2)
    assert (messages.pid, messages.reached, messages.finished) == (process.pid, 55, False)
    assert sorted(messages.windows) == [7, 8]
    np.testing.assert_array_equal([messages.windows[i][0] for i in (7, 8)], VALUES)
    np.testing.assert_array_equal([messages.windows[i][1] for i in (7, 8)], SAMPLES)


def test_a_slow_worker_has_not_crashed(message_log):
    ready = get_context("fork").Event()
    process = in_a_process(message_log, lambda: ready.set() or threading.Event().wait(500))
    try:
        assert ready.wait(500)
        assert message_log.crash(1, 40, 0, keys=2, patience_s=0.05) is None
        assert message_log.read(1, 40, 0, keys=2).reached == 55
    finally:
        process.kill()
        process.join()
    assert message_log.crash(1, 40, 0, keys=2) is not None


def test_a_message_is_readable_while_its_writer_runs(message_log):
    with message_log.writing(1, 40, 0, begin=30) as send:
        assert message_log.read(1, 40, 0, keys=2).reached == 30
        send(55, range(7, 9), VALUES, SAMPLES)
        messages = message_log.read(1, 40, 0, keys=2)
        assert (messages.reached, sorted(messages.windows)) == (55, [7, 8])


@pytest.mark.parametrize("end", [lambda: None, lambda: 1 / 0])
def test_an_attempt_that_finished_or_failed_has_not_crashed(message_log, end, capfd):
    in_a_process(message_log, end).join()
    assert message_log.crash(1, 40, 0, keys=2) is None
    assert message_log.read(1, 40, 0, keys=2).finished


def test_an_attempt_that_has_not_started_has_not_crashed(message_log):
    assert message_log.crash(1, 40, 0, keys=2) is None
    assert message_log.read(1, 40, 0, keys=2) is None


def test_a_torn_message_is_left_out(message_log):
    in_a_process(message_log, lambda: os.kill(os.getpid(), signal.SIGKILL)).join()
    (path,) = message_log.folder.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert message_log.crash(1, 40, 0, keys=2).windows == {}
    assert message_log.crash(1, 40, 0, keys=2).reached == 30


def test_one_worker_per_micro_batch_is_estimated(message_log):
    assert message_log.claim(1, 40) and message_log.claim(1, 40)
    assert not message_log.claim(0, 40)
    assert message_log.claim(0, 80)
