"""Memory of guards that processes share: claimed by one, found by the next, never half changed."""

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aftlib.streaming.cache import GuardCache, Memory
from aftlib.streaming.keyed import KeyedGuards
from tests.streaming.test_keyed import PROMISE, long, processed, windows_of

ROOMY = 2**40
CORES = os.cpu_count() or 1
"""Each process has its part of the memory, as if as many run at once."""


def guards_of(rounds, promise=PROMISE):
    """The guards of one group after some windows."""
    keyed = KeyedGuards(promise)
    processed(keyed, long(windows_of(100)[:rounds]))
    return keyed


def later(keyed):
    """The same guards ten windows later."""
    processed(keyed, long(windows_of(100)[10:20], 10))
    return keyed


SIZE = guards_of(1).states.nbytes


class Process:
    """Another process with the same folder, which does what it reads, line by line."""

    CODE = textwrap.dedent("""
        import sys
        from pathlib import Path
        from shutil import copy
        from tests.streaming.test_cache import *
        cache = GuardCache(int(sys.argv[2]), Path(sys.argv[1]))
        for line in sys.stdin:
            exec(line)
            print("done", flush=True)
    """)

    def __init__(self, folder, most=ROOMY):
        command = [sys.executable, "-c", self.CODE, str(folder), str(most)]
        self.child = subprocess.Popen(command, stdin=-1, stdout=-1, text=True)

    def do(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        return self.child.stdout.readline().strip() == "done"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()


def take(cache, keyed):
    return cache.take(keyed.token, PROMISE)


def test_the_next_process_goes_on_where_the_last_one_was_and_there_is_one_copy(tmp_path):
    cache = GuardCache(ROOMY, tmp_path)
    first = guards_of(10)
    cache.keep(first)
    with Process(tmp_path) as other:
        assert other.do("keyed = take(cache, guards_of(10))")
        assert take(cache, guards_of(10)) is None  # claimed
        assert other.do("cache.keep(later(keyed))")
        assert take(cache, guards_of(10)) is None  # an earlier state
        expected = later(guards_of(10))
        keyed = take(cache, expected)
        assert keyed.states.tobytes() == expected.states.tobytes()
        assert keyed.token == expected.token
        assert keyed.memory.inode == first.memory.inode
        cache.keep(keyed)
        assert other.do("assert take(cache, later(guards_of(10))) is not None")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("broken", [False, True])
def test_rows_that_a_crash_left_half_changed_are_not_found(tmp_path, broken):
    """As a control, they are where a process changes rows that all others find."""
    cache = GuardCache(ROOMY, tmp_path)
    cache.keep(guards_of(10))
    with Process(tmp_path) as other:
        if broken:
            assert other.do("Path.rename = copy")
        assert other.do("keyed = take(cache, guards_of(10)); keyed.states['next'] = -7")
        os.kill(other.child.pid, signal.SIGKILL)
        other.child.wait()
        left = take(cache, guards_of(10))
    assert (left is None) != broken
    assert not broken or left.states["next"].tolist() == [-7]


def test_guards_that_a_process_could_not_publish_whole_are_not_found(monkeypatch, tmp_path):
    """As on a full disk, or when it is killed: the file has a part of what leads to the memory."""
    write_text = Path.write_text

    def write_part(file, text):
        write_text(file, text[:3])
        raise OSError("no space left")

    with monkeypatch.context() as full_disk:
        full_disk.setattr(Path, "write_text", write_part)
        with pytest.raises(OSError, match="no space left"):
            GuardCache(ROOMY, tmp_path).keep(guards_of(10))
    assert take(GuardCache(ROOMY, tmp_path), guards_of(10)) is None


def test_guards_of_a_process_that_has_ended_are_not_found(tmp_path):
    cache = GuardCache(ROOMY, tmp_path)
    with Process(tmp_path) as other:
        assert other.do("cache.keep(guards_of(10))")
    assert take(cache, guards_of(10)) is None
    assert os.listdir(tmp_path) == []


def test_a_number_that_a_later_process_has_leads_to_nothing():
    memory = Memory.allocate(SIZE)
    inode = os.fstat(memory.file).st_ino
    assert Memory.of_process(os.getpid(), memory.file, inode + 1) is None
    assert Memory.of_process(os.getpid(), memory.file, inode) is not None


def test_buckets_with_the_same_windows_leave_no_memory_behind(tmp_path):
    """They have the same token and state, so one is found, and the other one is free again."""
    cache = GuardCache(ROOMY, tmp_path)
    cache.keep(guards_of(10))
    files = len(os.listdir("/proc/self/fd"))
    cache.keep(guards_of(10))
    assert len(os.listdir("/proc/self/fd")) == files
    assert take(cache, guards_of(10)).states.tobytes() == guards_of(10).states.tobytes()


def test_a_token_that_is_published_again_leads_to_the_newer_memory(tmp_path):
    """As when a query runs anew: another process has changed what this one had published."""
    first, second, third = (GuardCache(ROOMY, tmp_path) for _ in range(3))
    first.keep(guards_of(10))
    second.keep(later(take(second, guards_of(10))))
    third.keep(guards_of(10))
    assert take(first, guards_of(10)).states.tobytes() == guards_of(10).states.tobytes()


def test_a_full_cache_leaves_alone_what_another_process_is_publishing(tmp_path):
    """Or what one was when it was killed; then the file is empty."""
    cache = GuardCache(SIZE * CORES, tmp_path)
    files = [tmp_path / f"{place:032x}.1234567" for place in range(50)]
    for file in files:
        file.touch()
    cache.keep(guards_of(10))
    cache.keep(guards_of(11))
    assert all(file.exists() for file in files)
    assert take(cache, guards_of(11)) is not None


def test_a_full_cache_drops_any_bucket_of_its_process(tmp_path):
    """Nine buckets, and room for three; another process has one more."""
    most = 3 * SIZE * CORES
    cache = GuardCache(most, tmp_path)
    with Process(tmp_path, most) as other:
        assert other.do("cache.keep(guards_of(10))")
        for rounds in range(1, 10):
            cache.keep(guards_of(rounds))
            assert cache.nbytes == min(rounds, 3) * SIZE
            assert len(os.listdir(tmp_path)) == 1 + min(rounds, 3)  # and files are removed
        there = [take(cache, guards_of(rounds)) is not None for rounds in range(1, 11)]
    assert sum(there[:9]) == 3 and there[8:] == [True, True]
    assert there[6:9] != [True, True, True]  # if it dropped the oldest ones
    assert os.listdir(tmp_path) == []


def test_a_bucket_that_does_not_fit_drops_no_other(tmp_path):
    cache = GuardCache(SIZE * CORES, tmp_path)
    cache.keep(guards_of(10))
    other = KeyedGuards(replace(PROMISE, horizons=9))
    processed(other, long(windows_of(100)[:10]))
    cache.keep(other)
    assert cache.take(other.token, other.promise) is None
    assert take(cache, guards_of(10)) is not None


def test_a_bucket_that_another_process_claimed_takes_no_part_of_the_memory(tmp_path):
    cache = GuardCache(2 * SIZE * CORES, tmp_path)
    cache.keep(guards_of(1))
    with Process(tmp_path) as other:
        assert other.do("taken = take(cache, guards_of(1))")
        cache.keep(guards_of(2))
    assert cache.nbytes == SIZE


def test_buckets_in_turn_stay_in_memory_if_they_fit(tmp_path):
    """Files do not become more with every micro-batch."""
    cache = GuardCache(2 * SIZE * CORES, tmp_path)
    guards = [guards_of(rounds) for rounds in (1, 2)]
    for keyed in guards:
        cache.keep(keyed)
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        for keyed in guards:
            taken = take(cache, keyed)
            np.testing.assert_array_equal(taken.states["next"], keyed.states["next"])
            cache.keep(taken)
    assert len(os.listdir("/proc/self/fd")) <= files


def test_guards_that_were_not_stored_again_are_gone(tmp_path):
    cache = GuardCache(ROOMY, tmp_path)
    cache.keep(guards_of(1))
    assert take(cache, guards_of(1)) is not None
    assert take(cache, guards_of(1)) is None


def test_a_users_predictor_stays_in_its_process_within_its_part_of_the_memory(tmp_path):
    promise = replace(PROMISE, predictor="tests.guard.test_predictor:Others")
    keyed = guards_of(10, promise)
    cache = GuardCache((keyed.nbytes + 1) * CORES, tmp_path)
    cache.keep(keyed)
    assert os.listdir(tmp_path) == []
    assert cache.take(keyed.token, promise) is keyed
    assert cache.take(keyed.token, promise) is None
    for rounds in (10, 11):
        cache.keep(guards_of(rounds, promise))
    found = [cache.take(guards_of(rounds, promise).token, promise) for rounds in (10, 11)]
    assert sum(each is not None for each in found) == 1
