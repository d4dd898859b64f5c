"""A task: reads its input split from the stored offset on, sums it, and merges into its server.

`Intake` reads and sums, also for Spark's tasks. A marker file records the segment of a partition
that was read between two commits, with its malformed lines. Its name has the segment's first
offset. The replacement of a crashed task continues at the last commit, so it first removes the
marker files from that offset on. `Link` is the task's end of the socket to its server. A message
has lengths, JSON and rows.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from multiprocessing import AuthenticationError, current_process
from multiprocessing.connection import Client, Connection
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aftlib.core.paths import write_whole
from aftlib.shared_state import parsing
from aftlib.shared_state.aggregates import Aggregate, Partials
from aftlib.shared_state.job import Job, Journal
from aftlib.shared_state.parsing import BLOCK, PartitionReader, Rejected, Rules
from aftlib.shared_state.stores.tables import END, Progress, StaleBatch
from aftlib.shared_state.sums import SUMS, SliceSums
from aftlib.shared_state.tuplelog import TupleLog

if TYPE_CHECKING:
    import pandas as pd

COUNTS = ("tuples", "late", "rejected")
RETRY_S = 0.02
ERRORS = {error.__name__: error for error in (OverflowError, StaleBatch)}
"""Errors of a server that its task raises again."""


@dataclass
class Intake:
    """Reads and sums the tuples of one task; `take` returns the sums since the last `take`.

    `begin` has the progress from which each partition continues. `markers` is a folder of marker
    files; with `mark_all`, segments without malformed lines have a file, too.
    """

    rules: Rules
    begin: Mapping[int, Progress] = field(default_factory=dict)
    aggregate: Aggregate = SUMS
    markers: Path | None = None
    mark_all: bool = True

    def __post_init__(self) -> None:
        self._sums, self._sum_s = SliceSums(self.rules.windows.pane, self.aggregate), 0.0
        self._readers: dict[int, PartitionReader] = {}
        self._committed = dict(self.begin)

    @property
    def progress(self) -> dict[int, Progress]:
        """Progress of each partition."""
        return {**self.begin, **{p: reader.progress for p, reader in self._readers.items()}}

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds spent on "read", "parse" and "sum"."""
        readers = self._readers.values()
        read_s, parse_s = sum(r.read_s for r in readers), sum(r.parse_s for r in readers)
        return {"read": read_s, "parse": parse_s, "sum": self._sum_s}

    @property
    def tuples(self) -> int:
        """Tuples read so far."""
        return _tuples(self.progress) - _tuples(self.begin)

    @property
    def waiting(self) -> int:
        """Tuples read since the last `take`."""
        return _tuples(self.progress) - _tuples(self._committed)

    def blocks(self, partition: int, path: Path, rows: int = BLOCK) -> Iterator[np.ndarray]:
        """Yield tuples of a partition from its offset on, as `PartitionReader.blocks`."""
        begin = self.begin.get(partition, Progress())
        reader = self._readers[partition] = PartitionReader(path, self.rules, begin)
        if self.markers is not None:
            remove_markers(self.markers, partition, begin.offset)
        try:
            yield from reader.blocks(rows)
        except (ValueError, OverflowError):  # the line that stops the run is recorded as well
            self._mark()
            raise

    def read(self, partition: int, path: Path, rows: int = BLOCK) -> Iterator[int]:
        """Sum a partition block by block; yields the tuples read since the last `take`."""
        for block in self.blocks(partition, path, rows):
            before = time.perf_counter()
            self._sums.add(block)
            self._sum_s += time.perf_counter() - before
            yield self.waiting

    def end(self, partition: int) -> None:
        """Record that a partition has no further tuples."""
        reader = self._readers[partition]
        reader.progress = replace(reader.progress, watermark=END)

    def take(self) -> tuple[Partials, dict[int, Progress]]:
        """Return the sums since the last call, with the offsets where they begin and end."""
        self._mark()
        before, self._committed = self._committed, self.progress
        changed = {
            p: replace(now, since=before.get(p, Progress()).offset)
            for p, now in self._committed.items()
            if now != before.get(p)
        }
        return self._sums.take(), changed

    def _mark(self) -> None:
        """Write the marker files of the segments read since the last `take`."""
        for partition, reader in self._readers.items():
            before, rejects = self._committed.get(partition), reader.take_rejects()
            if self.markers and (rejects or (self.mark_all and reader.progress != before)):
                before = before or Progress()
                write_marker(self.markers, partition, before, reader.progress, rejects)


def sum_partitions(paths: Mapping[int, Path], rules: Rules) -> tuple[Partials, dict[int, Progress]]:
    """Return sums of some partitions by slice and key, and the progress of the partitions."""
    intake = Intake(rules)
    for partition, path in paths.items():
        for _ in intake.read(partition, path):
            pass
    return intake.take()


def load_kernels() -> None:
    """Load the compiled functions now, so that the first tuples do not wait for up to a second."""
    lines = np.frombuffer(bytearray(b"0,0,0\n"), np.uint8)
    at, columns = np.zeros(parsing.REGISTERS, np.int64), np.empty((3, 1), np.int64)
    bad = np.empty((1, 2), np.int64)
    parsing.parse_lines(lines, lines.size, 1, parsing.NO_DELAY, at, columns, bad)
    sums, keys = SliceSums(1), np.arange(10_000)
    for spacing in (2**40, 1):  # enough keys that the table grows, and a range that gets cells
        sums.add(np.stack([0 * keys, spacing * keys, keys]))


def write_marker(
    directory: Path, partition: int, before: Progress, after: Progress, rejects: Iterable[Rejected]
) -> None:
    """Write the marker file of a partition's segment, whole or not at all."""
    segment = {"partition": partition, "since": before.offset, "offset": after.offset}
    segment |= {name: getattr(after, name) - getattr(before, name) for name in COUNTS}
    lines = [asdict(line) for line in rejects]
    target = directory / f"part-{partition:05d}-from-{before.offset}.json"
    write_whole(target, json.dumps(segment | {"rejects": lines}))


def remove_markers(directory: Path, partition: int, since: int) -> None:
    """Remove a partition's markers from an offset on, because reading begins again there."""
    for path in directory.glob(f"part-{partition:05d}-from-*.json"):
        if int(path.stem.rpartition("-")[2]) >= since:
            path.unlink(missing_ok=True)


def read_markers(directory: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read partitions, and malformed lines in their order, from a folder's markers.

    Columns partition, offset, tuples, late, rejected; and partition, offset, reason, line.
    """
    import pandas as pd  # which the processes of a job need not load

    segments = [json.loads(path.read_text()) for path in directory.glob("part-*-from-*.json")]
    frame = pd.DataFrame(segments, columns=["partition", "offset", *COUNTS])
    lines = [
        {"partition": each["partition"], **row} for each in segments for row in each["rejects"]
    ]
    rejects = pd.DataFrame(lines, columns=["partition", "offset", "reason", "line"])
    return (
        frame.groupby("partition", as_index=False).agg(
            {"offset": "max"} | dict.fromkeys(COUNTS, "sum")
        ),
        rejects.sort_values(["partition", "offset"], ignore_index=True),
    )


def _tuples(progress: Mapping[int, Progress]) -> int:
    return sum(now.tuples for now in progress.values())


HEAD = struct.Struct("=IQI")
"""Head of a message: bytes of JSON (padded to a multiple of 8), rows, values per row."""


def pack_message(word: str, content: object = None, rows: Partials | None = None) -> bytes:
    """Pack a word, JSON and rows into a message."""
    text = json.dumps([word, content], default=index).encode()  # numpy's integers, too
    text += b" " * (-len(text) % 8)
    head = HEAD.pack(len(text), *(rows.values.shape if rows is not None else (0, 0)))
    columns = () if rows is None else (rows.windows, rows.keys, rows.values)
    return b"".join([head, text, *(np.ascontiguousarray(c).data for c in columns)])


def unpack_message(message: bytes) -> tuple[str, Any, Partials]:
    """Return word, JSON and rows of a message; ValueError for bytes that are no message."""
    try:
        length, rows, components = HEAD.unpack_from(message)
        word, content = json.loads(message[HEAD.size : HEAD.size + length])
        numbers = np.frombuffer(message, np.int64, offset=HEAD.size + length)
        windows, keys, values = np.split(numbers, [rows, 2 * rows])
        return word, content, Partials(windows, keys, values.reshape(rows, components))
    except (struct.error, ValueError, TypeError) as error:
        raise ValueError(
            f"message must be lengths, JSON and rows, got {len(message)} bytes ({error}): "
            "do all processes run the same aftlib?"
        ) from error


def progress_to_json(progress: Mapping[int, Progress]) -> dict[int, tuple]:
    """Return the progress of partitions as JSON values for a message."""
    return {partition: astuple(now) for partition, now in progress.items()}


def progress_from_json(content: Mapping[str, list]) -> dict[int, Progress]:
    """Read the progress that `progress_to_json` wrote, from parsed JSON."""
    return {int(partition): Progress(*now) for partition, now in content.items()}


def receive(link: Connection) -> tuple[str, Any, Partials]:
    """Receive the next message; a peer that crashes inside a message counts as ended."""
    try:
        return unpack_message(link.recv_bytes())
    except OSError as error:  # multiprocessing raises no subclass in mid-message
        raise EOFError(f"the peer crashed inside a message ({error}): connect again") from error


def address_of(server: int) -> str:
    """Socket of a server, relative to the job's folder: a socket's path must be short."""
    return f"server-{server}.sock"


class Link:
    """A task's connection to its server.

    Every method raises ConnectionError or EOFError if the server is not there or crashes.
    """

    def __init__(self, server: int) -> None:
        try:
            self._link = Client(address_of(server), "AF_UNIX", current_process().authkey)
        except (FileNotFoundError, AuthenticationError) as error:  # not there, or about to end
            raise ConnectionError(f"server {server} does not answer ({error})") from error

    def join(self, partitions: list[int]) -> dict[int, Progress]:
        """Join the server; return the offsets of the partitions."""
        return progress_from_json(self._call(pack_message("join", partitions)))

    def merge(self, partials: Partials, progress: Mapping[int, Progress]) -> None:
        """Merge a batch, as `StateTable.merge` does."""
        self._call(pack_message("merge", progress_to_json(progress), partials))

    def stay(self) -> None:
        """Report the end of the input, and wait until the server ends, which raises EOFError."""
        self._call(pack_message("leave"))
        receive(self._link)

    def _call(self, request: bytes) -> Any:
        self._link.send_bytes(request)
        word, content, _ = receive(self._link)
        if word in ERRORS:
            raise ERRORS[word](content)
        return content

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *error: object) -> None:
        self._link.close()


def work(job: Job, server: int, task: int, journal: Journal) -> None:
    """Read all partitions of a task to their ends.

    When the task connects, the server sends the offsets to continue at. It connects again when the
    server or the task's process has crashed; it stores nothing itself. At its end it waits until
    its server has committed everything: if the server crashes before, the task must read some
    tuples again. Errors are those of `PartitionReader.blocks` and `StateTable.merge`, and
    ValueError when a partition's file is missing or has another length than at first.
    """
    at = job.points(journal.who)
    while not (job.directory / f"server-{server}.done").exists():
        try:
            with Link(server) as link:
                read_on(job, link, job.partitions_of(server, task), journal, at)
                journal.record("ended")
                link.stay()
        except (ConnectionError, EOFError, StaleBatch):
            time.sleep(RETRY_S)


def read_on(
    job: Job, link: Link, partitions: list[int], journal: Journal, at: Callable[[str], None]
) -> None:
    """Read partitions to their ends, a batch of each in turn."""
    TupleLog.open(job.log.path)  # refuses an incomplete log
    stands = link.join(partitions)
    journal.record("joined", offsets={p: now.offset for p, now in stands.items()})
    intake = Intake(job.rules, stands, job.function, job.rejects, mark_all=False)
    readers = {
        p: intake.read(p, job.log.part(p), min(BLOCK, job.batch))
        for p in partitions
        if p not in stands or stands[p].watermark != END
    }
    while readers:
        for partition in list(readers):
            since = intake.progress.get(partition, Progress()).tuples
            if not any(waiting >= job.batch for waiting in readers[partition]):
                TupleLog.open(job.log.path)  # refuses a file that was cut short
                intake.end(partition)
                del readers[partition]
            partials, progress = intake.take()
            upto = intake.progress[partition].tuples
            journal.record("read", partition=partition, since=since, upto=upto)
            at("read")
            link.merge(partials, progress)
            at("merged")
