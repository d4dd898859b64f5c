"""Metrics of guarded streams on disk: one line of JSON per micro-batch, which `aft watch` reads.

A listener in the driver writes them from Spark's progress. Each line has the totals so far, so the
last line is enough, and a file that has become long may lose its older half. The last line of a
file may be cut, by a crash or a full disk: readers leave it out, and the next write replaces it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from aftlib.core.checks import listed
from aftlib.core.paths import require_writable, write_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQueryListener

MOST_BYTES = 2 * 2**20
"""Size at which a query's file becomes its older half; the previous older half is deleted."""
_PREFIX, _SUFFIX, _OLDER = "guard-", ".jsonl", ".jsonl.1"
_GAUGES = ("end", "delta")
"""Observed metrics that are no counts."""
_TAIL = 2**16
"""Bytes at a file's end that hold its last line."""


@dataclass(frozen=True)
class Record:
    """A micro-batch of a guarded query, and the totals of all recorded micro-batches.

    Attributes
    ----------
    query, run : str
        Name of the query, if it has one; Spark's id of the run, new at each start.
    batch : int
        Number of the micro-batch.
    time : str
        When it was committed, ISO 8601 in UTC; or when the query ended.
    seconds : float
        Duration of the micro-batch.
    delta : float, optional
        Share δ of the guarantees that may be wrong. None before the first window.
    latency : float, optional
        Seconds from the end of the newest window to its commit. None without a window.
    state_bytes, state_rows : int
        Size of the keyed state: of Spark's files and memory, and its entries.
    totals : dict of str to float
        Micro-batches recorded (`batches`) and not recorded (`unrecorded`), `rows` read, those that
        came too `late`, those that were ``rejected …``, and the metrics of windows that
        `guard.pipeline` observes.
    ended : str, optional
        "stopped", or the error that ended the query. None while it runs.
    """

    query: str
    run: str
    batch: int
    time: str
    seconds: float
    delta: float | None
    latency: float | None
    state_bytes: int
    state_rows: int
    totals: dict[str, float]
    ended: str | None = None

    @property
    def at(self) -> datetime:
        """`time` as a point in time."""
        return datetime.fromisoformat(self.time)

    @classmethod
    def of(cls, progress: Mapping[str, Any], last: Self | None) -> Self:
        """Return the record that follows `last`, from the mapping in Spark's progress as JSON."""
        observed = progress["observedMetrics"]
        windows, operators = observed["windows"], progress["stateOperators"]
        seconds = progress["durationMs"]["triggerExecution"] / 1e3
        time = datetime.fromisoformat(progress["timestamp"]) + timedelta(seconds=seconds)
        end = windows["end"]
        counts = {
            "batches": 1,
            "unrecorded": max(0, progress["batchId"] - (last.batch if last else -1) - 1),
            "rows": progress["numInputRows"],
            "late": sum(each["numRowsDroppedByWatermark"] for each in operators),
            **{f"rejected {reason}": count for reason, count in observed["rejected"].items()},
            **{name: count for name, count in windows.items() if name not in _GAUGES},
        }
        before = last.totals if last else {}
        return cls(
            query=progress.get("name") or "",
            run=progress["runId"],
            batch=progress["batchId"],
            time=time.isoformat(timespec="milliseconds"),
            seconds=seconds,
            delta=windows["delta"] or (last.delta if last else None),
            latency=None if end is None else round(time.timestamp() - end / 1e6, 3),
            state_bytes=sum(map(_state_bytes, operators)),
            state_rows=sum(each["numRowsTotal"] for each in operators),
            totals={name: before.get(name, 0) + (count or 0) for name, count in counts.items()},
        )


def _state_bytes(operator: Mapping[str, Any]) -> int:
    """Return the bytes that a stateful operator holds in memory and in RocksDB's files."""
    files = operator.get("customMetrics", {}).get("rocksdbSstFileSize", 0)
    return int(operator["memoryUsedBytes"] + files)


def record_metrics(spark: SparkSession, directory: Path | str) -> StreamingQueryListener:
    """Write the metrics of all guarded streams that start in a session, for `aft watch`.

    Call it before the queries start. Each query has a file of its own, which a restart continues.

    Parameters
    ----------
    spark : SparkSession
    directory : Path or str
        A local directory, which is made if it is not there. A query's files keep at most 4 MB.

    Returns
    -------
    StreamingQueryListener
        ``spark.streams.removeListener`` ends the writing.

    Raises
    ------
    PermissionError
        When the directory cannot be written.

    Examples
    --------
    >>> listener = record_metrics(spark, "metrics")  # doctest: +SKIP
    """
    from pyspark.sql.streaming import StreamingQueryListener

    log = MetricsLog(require_writable(directory))

    class MetricsListener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            """Nothing is known yet."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            log.add(json.loads(event.progress.json))

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            log.end(str(event.id), event.exception)

    listener = MetricsListener()
    spark.streams.addListener(listener)
    return listener


class MetricsLog:
    """The files of metrics in a directory, one per query."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)

    def add(self, progress: Mapping[str, Any]) -> None:
        """Append a micro-batch of a guarded query, unless it was appended before."""
        run, batch = progress["runId"], progress["batchId"]

        def next_record(last: Record | None) -> Record | None:
            again = last is not None and last.run == run and last.batch >= batch
            return None if again else Record.of(progress, last)

        if {"windows", "rejected"} <= progress.get("observedMetrics", {}).keys():
            self._append(progress["id"], next_record)

    def end(self, query: str, error: str | None) -> None:
        """Append the end of the query with this id, if it is a guarded query."""
        reason = (error or "stopped").strip().partition("\n")[0][:500]
        now = datetime.now(UTC).isoformat(timespec="milliseconds")

        def next_record(last: Record | None) -> Record | None:
            if last is None or last.ended is not None:
                return None
            return replace(last, time=now, ended=reason)

        if self._file(query).exists():
            self._append(query, next_record)

    def _file(self, query: str) -> Path:
        return self.directory / f"{_PREFIX}{query}{_SUFFIX}"

    def _append(self, query: str, next_record: Callable[[Record | None], Record | None]) -> None:
        """Append the record that follows a query's last one; a line that is cut is replaced."""
        path = self._file(query)
        with path.open("a+b") as file:
            start = max(0, file.seek(0, 2) - _TAIL)
            file.seek(start)
            tail = file.read()
            whole = tail.rfind(b"\n") + 1
            lines = tail[:whole].splitlines()
            record = next_record(Record(**json.loads(lines[-1])) if lines else None)
            if record is None:
                return
            line = json.dumps(asdict(record), ensure_ascii=False).encode() + b"\n"
            if start + whole <= MOST_BYTES:
                file.truncate(start + whole)
                file.write(line)
                return
        write_whole(path.with_suffix(_OLDER), path.read_bytes()[: start + whole])
        write_whole(path, line)


def read_metrics(directory: Path | str) -> dict[str, list[Record]]:
    """Return the records of each query in a directory, by its name and the start of its id.

    ValueError when it is not a directory that `record_metrics` wrote, or a line is damaged.
    """
    directory = Path(directory)
    queries = {}
    for path in sorted(directory.glob(f"{_PREFIX}*{_SUFFIX}")):
        older = path.with_suffix(_OLDER)
        records = [*_records_of(older), *_records_of(path)]
        if records:
            id = path.name.removeprefix(_PREFIX)[:8]
            queries[f"{records[-1].query} {id}".strip()] = records
    if not queries:
        names = (path.name for path in directory.glob("*"))
        raise ValueError(
            "directory must hold the metrics of a guarded stream (guard-*.jsonl), got "
            f"{str(directory)!r} with {listed(sorted(names)) or 'nothing'}: call "
            "aftlib.spark.metrics_log.record_metrics(spark, directory) before the stream starts, "
            "and wait for its first micro-batch"
        )
    return queries


def _records_of(path: Path) -> list[Record]:
    """Return the records of a file, without a last line that is cut; none if it is not there."""
    content = path.read_bytes() if path.exists() else b""
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(Record(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"line {number} of {str(path)!r} must be a record of metrics, got {line[:60]!r}: "
                "remove the line, or the file"
            ) from error
    return records
