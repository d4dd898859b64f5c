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
    """Memory of this process, which others can map as well."""

    def __init__(self, file: int) -> None:
        self.file = file
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
        """Map the memory of another process; None if that has ended."""
        try:
            own = os.open(f"/proc/{owner}/fd/{file}", os.O_RDWR)
        except OSError:
            return None
        if os.fstat(own).st_ino == inode:
            return cls(own)
        os.close(own)  # a later process has the owner's number
        return None

    def close(self) -> None:
        """Let go of the memory; it is free once every process has."""
        del self.block  # unmapped when no array lies in it
        os.close(self.file)


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
        Most memory of all buckets, in all processes together; without what predictors hold.
    folder : Path, optional
        Where processes find each other's memory; by default Spark's own folder of the executor,
        which tasks have.
    """

    def __init__(self, most_bytes: int = CACHE_BYTES, folder: Path | None = None) -> None:
        self._most = most_bytes
        self._given = folder
        self._random = Random(0)
        self._own: dict[bytes, KeyedGuards] = {}  # with predictors
        # published by this process, also if another one has claimed it since
        self._held: dict[str, Memory] = {}
        self._claimed: tuple[Memory, np.ndarray] | None = None

    @cached_property
    def _folder(self) -> Path:
        """The folder, which exists."""
        folder = self._given or Path(SparkFiles.getRootDirectory()) / "aft-guards"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def nbytes(self) -> int:
        """Bytes of all buckets that no process is changing."""
        return sum(self._size(name) for name in os.listdir(self._folder))

    def take(self, token: bytes, promise: Promise) -> KeyedGuards | None:
        """Claim the guards with a token, if a process has them."""
        self._forget_claim()
        if promise.predictor is not None:
            return self._own.pop(token, None)
        memory = self._claim(token.hex()) if token else None  # a damaged log has no token
        if memory is None:
            return None
        keyed = KeyedGuards(promise)
        states = np.frombuffer(memory.block, keyed.states.dtype)
        keyed.hold(states)
        keyed.token = token
        self._claimed = memory, states
        return keyed

    def keep(self, keyed: KeyedGuards) -> None:
        """Store guards if they fit.

        From then on their memory may be another process's, so the caller must not use them. A read
        may end the process by SIGBUS, because the other one may have freed the memory.
        """
        if keyed.promise.predictor is not None:
            self._keep_own(keyed)
            return
        for name in [name for name in self._held if not (self._folder / name).exists()]:
            self._held.pop(name).close()  # another process has claimed it
        if self._claimed is not None and self._claimed[1] is keyed.states:
            memory = self._claimed[0]
            self._claimed = None
        else:
            self._forget_claim()
            if not self._make_room(keyed.states.nbytes):
                return
            memory = Memory.allocate(keyed.states.nbytes)
            np.frombuffer(memory.block, keyed.states.dtype)[:] = keyed.states
        self._publish(keyed.token.hex(), memory)

    def _keep_own(self, keyed: KeyedGuards) -> None:
        """Store guards for this process alone, which is one of as many as the machine has cores."""
        self._own[keyed.token] = keyed
        most = self._most // (os.cpu_count() or 1)
        while self._own and sum(each.nbytes for each in self._own.values()) > most:
            self._own.pop(self._random.choice(list(self._own)))

    def _publish(self, name: str, memory: Memory) -> None:
        """Let all processes find the memory; buckets with the same windows have the same token."""
        if name in self._held:
            self._held.pop(name).close()
        self._held[name] = memory
        place = os.fstat(memory.file)
        entry = self._folder / f"{name}.{os.getpid()}"
        entry.write_text(f"{os.getpid()} {memory.file} {place.st_ino} {place.st_size}")
        entry.rename(self._folder / name)

    def _claim(self, name: str) -> Memory | None:
        """Take a bucket's memory out of the reach of the other processes."""
        claim = self._folder / f"{name}.{os.getpid()}"
        try:
            (self._folder / name).rename(claim)
        except FileNotFoundError:
            return None
        owner, file, inode, _ = map(int, claim.read_text().split())
        claim.unlink()
        held = self._held.pop(name, None)
        if held is not None:
            if os.fstat(held.file).st_ino == inode:
                return held
            held.close()  # another process had claimed it, and one has published the token again
        return Memory.of_process(owner, file, inode)

    def _forget_claim(self) -> None:
        """Let go of guards that were claimed and not stored again."""
        if self._claimed is not None:
            self._claimed[0].close()
            self._claimed = None

    def _make_room(self, size: int) -> bool:
        """Drop buckets until `size` bytes are free, in all processes; False if they do not fit."""
        if size > self._most:
            return False
        # names with a process's number are those of a claim or a publication that is under way
        waiting = [name for name in os.listdir(self._folder) if "." not in name]
        while waiting and self.nbytes > self._most - size:
            memory = self._claim(waiting.pop(self._random.randrange(len(waiting))))
            if memory is not None:
                os.ftruncate(memory.file, 0)  # the process that holds it does not use it any more
                memory.close()
        return True

    def _size(self, name: str) -> int:
        """Bytes to which a file of the folder leads; 0 if it is claimed, or has gone meanwhile."""
        try:
            return 0 if "." in name else int((self._folder / name).read_text().split()[3])
        except FileNotFoundError:
            return 0
