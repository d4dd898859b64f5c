"""Recoveries of D2's process, which is killed after it read an interval, by read rate.

Its replacement is forked from a process that has loaded all imports, as the workers on Spark are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning.driver import killed_driver, write_task
from aftlib.checkpoint_planning.operator import bare_read, prepare
from aftlib.checkpoint_planning.recoveries import phase_timings, score_results
from aftlib.checkpoint_planning.state import CheckpointStore
from aftlib.does_it_pay.cases import Case, slow_archive
from aftlib.spark.faults import Fault

EXACT_PROCESS, PROPOSED, ADAPTIVE = "exact, one process", "D2 proposed", "D2 adaptive"
IN_PROCESS = {EXACT_PROCESS: "exactly-once", PROPOSED: "proposed", ADAPTIVE: "adaptive"}
"""Schemes, and D2's method in each."""


def process_recoveries(
    case: Case, scheme: str, directory: Path, rates: Sequence[float]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Kill D2's process by SIGKILL once per rate, each time in the next window of a case.

    It is killed in the interval with most samples to read again, when the interval is read but not
    committed. The next process is forked at once and reads again at that rate.

    Return two frames, as `spark_recoveries` does. The recoveries have the columns batch, rate,
    seconds, start_s, work_s, commit_s, again, read_s, restore_s, and estimate_s.
    """
    query, width = case.replay_query(IN_PROCESS[scheme]), case.windows.width
    log, place, plan = case.write_log(directory / "log"), directory / "state", query.first_plan
    worst = plan.times[int(np.argmax(plan.tuples))]
    write_task(place, query, log)
    starts, faults = list[float](), [worst + window * width for window in range(len(rates))]
    for rate, step in zip([np.inf, *rates[:-1]], faults, strict=True):
        log.meter.set_limit(slow_archive(rate))
        starts.append(killed_driver(place, Fault("kill", "driver", step)))
    log.meter.set_limit(slow_archive(rates[-1]))
    starts.append(killed_driver(place, Fault("kill", "driver", 0, "planned")))

    rows = phase_timings(place, query, starts[1:])
    store = CheckpointStore(place / "state.sqlite", query.fingerprint)
    records = pd.DataFrame([vars(r) for r in store.records() if r.recovered])
    begins = [window * width for window in range(len(rates))]
    recoveries = pd.DataFrame(
        {
            "batch": np.arange(len(rates)),
            "rate": rates,
            "seconds": rows[["start_ms", "total_ms", "commit_ms"]].sum(axis=1) / 1e3,
            "start_s": rows["start_ms"] / 1e3,
            "work_s": (rows["total_ms"] + rows["commit_ms"]) / 1e3,
            "commit_s": rows["commit_ms"] / 1e3,
            "restore_s": records["res_ms"] / 1e3,
            "read_s": records["rep_ms"] / 1e3,
            "estimate_s": records["est_ms"] / 1e3,
            "again": [log.meter.samples_again(begin, begin + width) for begin in begins],
        }
    )
    results = store.results()
    if not results:
        return recoveries, pd.DataFrame(columns=["batch", "sensor", "off"])
    scores = score_results(results, case.values, query)
    scores = scores[scores["estimated"]].rename(columns={"window": "batch"})
    return recoveries, scores[["batch", "sensor", "off"]]


def calm_windows(case: Case, scheme: str, directory: Path, windows: int) -> pd.DataFrame:
    """Times of D2's operator in this process while nothing fails; one more window warms up.

    One row per window: batch, seconds, latency_s from the last sample read until the results are
    committed.
    """
    query, passed = case.replay_query(IN_PROCESS[scheme]), dict[tuple[str, int], float]()
    log = case.write_log(directory / "log")

    def passes(point: str, batch: int) -> None:
        passed[point, batch] = time.perf_counter()

    operator, each = prepare(query, log, directory / "state", passes), query.first_plan.replay
    read = bare_read(log)
    for batch in range((windows + 1) * len(each)):
        operator.process(batch, read)
    rows = []
    for window in range(1, windows + 1):
        first, last = window * len(each), (window + 1) * len(each) - 1
        committed = passed["committed", last]
        rows.append(
            {
                "batch": window,
                "seconds": passed["planned", last] - passed["begun", first],
                "latency_s": committed - passed["replayed", last],
            }
        )
    return pd.DataFrame(rows)
