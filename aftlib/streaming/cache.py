"""Guards between two micro-batches, in memory that the Python processes of an executor share.

Spark gives a bucket's task to any of its Python processes. So the states of a bucket's guards lie
in memory that all of them can map, and a small file, named by the token of the states in that
memory, leads there. A process claims the memory by renaming the file, which only one can do. While
it changes the states no token leads to them, so nobody finds states that a crash left half changed;
the bucket is restored from Spark's state instead. The memory has no name on a disk, so it is free
once all processes have ended.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from functools import cached_property
from pathlib import Path
from random import Random

import numpy as np
from pyspark import SparkFiles

from aftlib.streaming.keyed import KeyedGuards
from aftlib.streaming.promise import Promise

CACHE_BYTES = max(2**29, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4)
"""Most memory of the guards that an executor keeps from one micro-batch to the next: a quarter of
the machine's, but at least 512 MiB."""


class Memory:
    """Memory of this process, which others can map as well.

    It is free once no process has such an object, or an array that lies in the memory.
    """

    def __init__(self, file: int) -> None:
        weakref.finalize(self, os.close, file)
        self.file = file
        self.inode = os.fstat(file).st_ino
        self.block = mmap.mmap(file, 0)

    @classmethod
    def allocate(cls, size: int) -> Memory:
        """Return new memory of `size` bytes; other systems than Linux have an unnamed file."""
        if hasattr(os, "memfd_create"):
            file = os.memfd_create("aft-guards")
        else:
            with tempfile.TemporaryFile() as unnamed:
                file = os.dup(unnamed.fileno())
        os.ftruncate(file, size)
        return cls(file)

    @classmethod
    def of_process(cls, owner: int, file: int, inode: int) -> Memory | None:
        """Map the memory of a process; None if that has ended."""
        try:
            memory = cls(os.open(f"/proc/{owner}/fd/{file}", os.O_RDWR))
        except (OSError, ValueError):
            return None
        # else a later process has the owner's number
        return memory if memory.inode == inode else None


class GuardCache:
    """Guards of the buckets that no process of the executor is changing, by token.

    When the store restores an earlier state, as after a failed task, its token differs from that of
    the guards that had continued. So the cache only returns the guards of the stored state. Buckets
    come in turn, so a full cache that dropped the least recently used one would never have the
    next: it drops any. The objects of a user's predictor cannot be shared, so a bucket with them
    stays in its process.

    Parameters
    ----------
    most_bytes : int
        Most memory of all buckets. A process holds the buckets that it was the last to change, in
        its part of this memory; as many processes as the machine has cores run at once.
    folder : Path, optional
        Where processes find each other's memory; by default Spark's own folder of the executor,
        which tasks have.
    """

    def __init__(self, most_bytes: int = CACHE_BYTES, folder: Path | None = None) -> None:
        self._most = most_bytes // (os.cpu_count() or 1)
        self._given = folder
        self._random = Random(0)
        self._held: dict[str, KeyedGuards] = {}  # by the name of the token

    @cached_property
    def _folder(self) -> Path:
        """The folder, which exists."""
        folder = self._given or Path(SparkFiles.getRootDirectory()) / "aft-guards"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def take(self, token: bytes, promise: Promise) -> KeyedGuards | None:
        """Claim the guards with a token, if a process has them."""
        name = token.hex()
        if promise.predictor is not None:
            return self._held.pop(name, None)
        if not name:  # the token of a damaged log
            return None
        claim = self._folder / f"{name}.{os.getpid()}"
        try:
            (self._folder / name).rename(claim)
        except FileNotFoundError:
            return None
        owner, file, inode = map(int, claim.read_text().split())
        claim.unlink()
        held = self._held.pop(name, None)
        # else another process had claimed it, and one has published the token again
        if held is not None and held.memory.inode == inode:
            return held
        memory = Memory.of_process(owner, file, inode)
        if memory is None:
            return None
        keyed = KeyedGuards(promise)
        keyed.hold(np.frombuffer(memory.block, keyed.states.dtype), memory=memory)
        keyed.token = token
        return keyed

    def keep(self, keyed: KeyedGuards) -> None:
        """Store guards if they fit; then they may be another process's, so do not use them.

        Buckets with the same windows have the same token. The newer memory takes the place of the
        other, which is free then.
        """
        for name, held in list(self._held.items()):
            if held.memory is not None and not (self._folder / name).exists():
                del self._held[name]  # another process has claimed it
        if keyed.nbytes > self._most:
            return
        while self.nbytes > self._most - keyed.nbytes:
            name = self._random.choice(list(self._held))
            (self._folder / name).unlink(missing_ok=True)
            del self._held[name]
        name = keyed.token.hex()
        self._held[name] = keyed
        if keyed.promise.predictor is None:
            self._publish(name, keyed)

    @property
    def nbytes(self) -> int:
        """Bytes of the buckets that this process holds."""
        return sum(held.nbytes for held in self._held.values())

    def _publish(self, name: str, keyed: KeyedGuards) -> None:
        """Let all processes find the guards, whose states then lie in shared memory."""
        if keyed.memory is None:
            memory = Memory.allocate(keyed.states.nbytes)
            states = np.frombuffer(memory.block, keyed.states.dtype)
            states[:] = keyed.states
            keyed.hold(states, memory=memory)
        entry = self._folder / f"{name}.{os.getpid()}"
        entry.write_text(f"{os.getpid()} {keyed.memory.file} {keyed.memory.inode}")
        entry.rename(self._folder / name)
