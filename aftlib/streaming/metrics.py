"""Metrics of guarded streams on disk: one line of JSON per micro-batch, and a table of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from aftlib.streaming.rows import SENSOR_TALLY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQueryListener


def record_metrics(spark: SparkSession, directory: Path | str) -> StreamingQueryListener:
    """Write the metrics of all guarded streams of a session, for `metrics_table`.

    Call it before the queries start. Each query has a file in `directory`, which is made if it is
    not there; a restart continues the file. ``spark.streams.removeListener`` ends the writing.

    This process writes the files, also with Spark Connect, whose server sends each progress here.
    So `directory` is a path of this machine.

    Examples
    --------
    >>> listener = record_metrics(spark, "metrics")  # doctest: +SKIP
    """
    from pyspark.sql.streaming import StreamingQueryListener

    place = Path(directory).resolve()  # the program may go to another directory
    place.mkdir(parents=True, exist_ok=True)

    class MetricsListener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            """Nothing is known yet."""

        def onQueryProgress(self, event: Any) -> None:
            progress = json.loads(event.progress.json)
            if {"windows", "rejected"} <= progress.get("observedMetrics", {}).keys():
                line = json.dumps(record_of(progress), ensure_ascii=False)
                append_line(place / f"guard-{progress['id']}.jsonl", line)

        def onQueryTerminated(self, event: Any) -> None:
            """The next start continues the file."""

    listener = MetricsListener()
    # Spark Connect reads the events in a thread, which is a daemon if this one is. A program ends
    # when only daemons are left.
    adding = Thread(target=spark.streams.addListener, args=[listener], daemon=True)
    adding.start()
    adding.join()
    return listener


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, also behind one that a crash cut."""
    with path.open("ab+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - 1, 0))
        if file.read() not in (b"", b"\n"):
            file.write(b"\n")
        file.write(line.encode() + b"\n")


def record_of(progress: dict[str, Any]) -> dict[str, Any]:
    """Return the line of a micro-batch from Spark's progress."""
    operators = progress["stateOperators"]
    observed = progress["observedMetrics"]
    seconds = progress["durationMs"]["triggerExecution"] / 1e3
    committed = pd.Timestamp(progress["timestamp"]) + pd.Timedelta(seconds=seconds)
    end = observed["windows"].get("end")
    counts = observed["windows"].get("counts", {})
    sensors = counts.pop("sensors", {}).items()
    return {
        "query": progress.get("name") or progress["id"][:8],
        "batch": progress["batchId"],
        "time": committed.isoformat(),
        "seconds": seconds,
        "latency_s": None if end is None else round(committed.timestamp() - end / 1e6, 3),
        "state_entries": sum(each["numRowsTotal"] for each in operators),
        "rows": progress["numInputRows"],
        "late": sum(each["numRowsDroppedByWatermark"] for each in operators),
        "rejected": observed["rejected"],
        "windows": counts,
        "sensors": {name: dict(zip(SENSOR_TALLY, each, strict=True)) for name, each in sensors},
    }


def read_records(directory: Path | str) -> list[dict[str, Any]]:
    """Return the lines of all queries in a directory, each micro-batch once, in order of time.

    A last line that a crash cut is left out. ValueError when there is none.
    """
    records: dict[tuple[str, int], dict[str, Any]] = {}
    for path in sorted(Path(directory).glob("guard-*.jsonl")):
        for line in path.read_text(encoding="utf-8").split("\n"):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            records[path.name, record["batch"]] = record  # one that ran again replaces the first
    if not records:
        raise ValueError(
            f"directory must hold the metrics of a guarded stream, got {str(directory)!r} without "
            "any: call record_metrics(spark, directory) before the stream starts, and wait for its "
            "first micro-batch"
        )
    return sorted(records.values(), key=lambda record: record["time"])


def metrics_table(directory: Path | str) -> pd.DataFrame:
    """Return the totals of each query, one column per query.

    `estimated` counts windows that were estimated. `certified` counts windows after which a loss of
    the sensor could have been estimated, those with `recoverable` above 0. `audited` counts
    guaranteed shadow predictions of windows that came, as if they had been lost, one per horizon
    (one in all with a known model), and `wrong` those with an error above ε.

    `waiting` counts the micro-batches with rows since the last window. It grows for ever when the
    windows wait for a watermark that never comes, such as that of a second `withWatermark`.

    The guarantee is over all sensors and windows. One sensor may have all the wrong estimates:
    `sensor_table` shows them by sensor.
    """
    columns = {}
    for query, records in pd.DataFrame(read_records(directory)).groupby("query", sort=False):
        rejected = pd.json_normalize(records["rejected"]).add_prefix("rejected.")
        windows = pd.json_normalize(records["windows"])
        totals = pd.concat([records[["rows", "late"]], rejected, windows]).sum()
        newest = records.iloc[-1][["time", "seconds", "latency_s", "state_entries"]]
        counts = {"micro_batches": len(records), "waiting": micro_batches_waiting(records)}
        columns[query] = pd.concat([pd.Series(counts), newest, totals])
    return pd.DataFrame(columns)


def micro_batches_waiting(records: pd.DataFrame) -> int:
    """Return how many micro-batches read rows since the last one that wrote a window."""
    windows = pd.json_normalize(records["windows"])
    states = windows.reindex(columns=["exact", "estimated", "lost"], fill_value=0)
    writes = states.sum(axis=1).to_numpy() > 0
    since = len(records) - np.flatnonzero(writes).max(initial=-1) - 1
    return int((records["rows"].tail(since) > 0).sum())


def sensor_table(directory: Path | str) -> pd.DataFrame:
    """Return windows, estimated ones, audited predictions and wrong ones, by query and sensor."""
    records = read_records(directory)
    parts = [pd.DataFrame(record["sensors"]).T.rename_axis("sensor") for record in records]
    table = pd.concat(parts, keys=[record["query"] for record in records], names=["query"])
    return table.fillna(0).groupby(level=["query", "sensor"], sort=False).sum().astype(int)
