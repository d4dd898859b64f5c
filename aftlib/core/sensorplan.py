"""A plan as a pipeline runs it: its file checked, and the samples that it was made for."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from aftlib.core.checks import listed, require_number
from aftlib.core.datasets import SensorTable, read_long, read_table
from aftlib.core.gaussian import GaussianModel
from aftlib.core.planfile import read_plan
from aftlib.core.sensorlog import SensorLog
from aftlib.core.windows import Windows

SHRINKAGE = 1e-4
"""Of the model of window results: sensors that repeat each other are borne by it."""
_ANEW = "make it anew by aft plan"


def fitted(rows: np.ndarray, names: Sequence[str]) -> GaussianModel:
    """Model of rows with gaps, also where they are fewer than the sensors."""
    shrinkage: float | str = "auto" if len(rows) <= 2 * rows.shape[1] else SHRINKAGE
    frame = pd.DataFrame(rows, columns=list(names))
    return GaussianModel.fit(frame, missing="pairwise", shrinkage=shrinkage)


@dataclass(frozen=True, eq=False)
class SensorPlan:
    """What the pipelines take from plan.json, everything in units of ε.

    A sample is divided by its sensor's ε, so that one tolerance, 1, does for all. Sensors are key
    indices.
    """

    table: SensorTable  # all samples of the plan's data
    digest: str  # of the data's contents
    epsilon: np.ndarray  # (n,), in the sensors' own units
    delta: float
    windows: Windows
    workers: tuple[tuple[int, ...], ...]  # the sensors of each
    times: tuple[int, ...]  # steps of a window: it begins, takes checkpoints, and ends
    replay: tuple[tuple[int, ...], ...]  # what a failure between two of these times reads again
    seasons: tuple[float, ...]  # periods of known rhythms, in windows
    t_sla_ms: float
    fixed_ms: float  # of the recovery time that the plan counts on
    per_tuple_ms: float

    @cached_property
    def model(self) -> GaussianModel:
        """Model of the first half's window results, to which the plan was made."""
        first, windows = self.table.split()[0].values, self.windows
        rows, samples = windows.aggregate(first, 0, windows.ending_in(0, len(first)))
        least = windows.width if windows.query == "sum" else windows.width / 2
        return fitted(np.where(samples >= least, rows, np.nan), self.table.names)

    def write_log(self, directory: Path) -> SensorLog:
        """The second half as a log below a directory, kept and reused when it is there."""
        about = (self.table.names, self.epsilon.tolist(), self.table.values.shape)
        content = hashlib.sha256(repr(about).encode())
        content.update(np.ascontiguousarray(self.table.values).data)  # as they were read
        path = directory / f"plan-{self.digest[:12]}-{content.hexdigest()[:12]}-second-half"
        if path.exists():
            return SensorLog.open(path)
        return self.table.split()[1].write_log(path)


def open_plan(path: Path | str) -> SensorPlan:
    """Read a plan, and the data that it was made for.

    The data are looked for where they were, then beside the plan; they must be the same to the
    byte. ValueError when they are not, or the file is no plan of this version that fits them.
    """
    plan = read_plan(path)
    source = plan["data"].get("source") if isinstance(plan["data"], dict) else None
    if not source:
        raise ValueError(f"plan {str(path)!r} names no file of data: {_ANEW}")
    try:
        table = _read(source, Path(path))
        return _fitted(plan, table, source["sha256"])
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"plan {str(path)!r} is damaged ({error!r}): {_ANEW}") from error
    except ValueError as error:
        raise ValueError(f"plan {str(path)!r}: {error}") from error


def source_of(
    data: Path | str,
    *,
    long: Sequence[str] | None = None,
    time: str | None = None,
    resample: str | None = None,
    drop: Sequence[str] = (),
    missing: Sequence[float] | None = None,
    decimal: str | None = None,
) -> dict[str, Any]:
    """Which data a plan was made for, and how they were read, for its file."""
    listed = None if long is None else list(long)
    how: dict[str, Any] = {"long": listed, "time": time, "resample": resample, "drop": list(drop)}
    how |= {"missing": list(missing or ()), "decimal": decimal}
    return {"path": str(Path(data).resolve()), "sha256": digest_of(Path(data))} | how


def digest_of(data: Path) -> str:
    """SHA-256 of a file, or of the names and contents of the files in a directory."""
    if not data.is_dir():
        with data.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    parts = [(p.name, digest_of(p)) for p in sorted(data.iterdir()) if p.is_file()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _read(source: dict[str, Any], plan: Path) -> SensorTable:
    """The table that the plan was made for."""
    if Path(source["path"]).is_dir():
        raise ValueError(
            f"its data must be one file that fits into memory, got the directory "
            f"{source['path']!r}; plan for a part of them"
        )
    places = [Path(source["path"]), plan.parent / Path(source["path"]).name]
    data = next((place for place in places if place.is_file()), None)
    if data is None:
        raise ValueError(
            f"its data must be at {source['path']!r} or beside it, got no such file; put it back, "
            f"or {_ANEW}"
        )
    if digest_of(data) != source["sha256"]:
        raise ValueError(f"its data have changed, in {str(data)!r}: {_ANEW}")
    reading = {name: source[name] for name in ("resample", "drop", "missing", "decimal")}
    if source["long"] is not None:
        return read_long(data, source["long"], **reading)
    return read_table(data, source["time"], **reading)


def _fitted(plan: dict, table: SensorTable, digest: str) -> SensorPlan:
    """The plan in key indices of the table, each part checked."""
    asked, names = plan["question"], table.names
    key = {name: i for i, name in enumerate(names)}
    dealt = [name for worker in plan["assignment"] for name in worker]
    if [] in plan["assignment"]:
        raise ValueError(f"assignment must give each worker a sensor, got one of none; {_ANEW}")
    if sorted(dealt) != sorted(names) or set(asked["epsilon"]) != set(names):
        others = set(dealt) ^ set(names) or set(asked["epsilon"]) ^ set(names)
        raise ValueError(
            f"assignment and epsilon must have each of the data's {len(names)} sensors once, not "
            f"so {listed(sorted(others) or names)}; {_ANEW}"
        )
    for name, value in asked["epsilon"].items():
        require_number(f"epsilon of {name!r}", value, above=0)
    if asked["query"] not in ("mean", "sum"):
        raise ValueError(f"query must be 'mean' or 'sum', got {asked['query']!r}; {_ANEW}")
    require_number("delta", asked["delta"], above=0, below=1)
    for name in ("t_sla_ms", "fixed_ms", "per_tuple_ms"):
        require_number(name, asked[name], least=0)
    require_number("window", asked["window"], least=1, most=len(table.values) // 4, whole=True)
    require_number("slide", asked["slide"], least=1, whole=True)

    times, replay = replay_of(plan, names)
    seasons = plan["data"].get("seasons_in_windows", [])
    for period in seasons if isinstance(seasons, list) else [seasons]:
        require_number("seasons_in_windows", period, above=0)
    epsilon = np.array([asked["epsilon"][name] for name in names], float)
    scaled = SensorTable(table.values / epsilon, names, table.time, table.quality)
    return SensorPlan(
        table=scaled,
        digest=digest,
        epsilon=epsilon,
        delta=float(asked["delta"]),
        windows=Windows(asked["window"], asked["slide"], asked["query"]),
        workers=tuple(tuple(sorted(key[n] for n in worker)) for worker in plan["assignment"]),
        times=times,
        replay=tuple(tuple(key[name] for name in part) for part in replay),
        seasons=tuple(map(float, seasons)),
        t_sla_ms=float(asked["t_sla_ms"]),
        fixed_ms=float(asked["fixed_ms"]),
        per_tuple_ms=float(asked["per_tuple_ms"]),
    )


def replay_of(
    plan: dict, names: Sequence[str]
) -> tuple[tuple[int, ...], tuple[tuple[str, ...], ...]]:
    """The times of a window that a plan names, and what a failure between two of them reads again.

    ValueError when they do not cut the window, or name other sensors than `names`, or one twice.
    """
    times = (0, *plan["checkpoints"], plan["question"]["window"])
    spans = [(part["from"], part["until"]) for part in plan["replay"]]
    whole = all(type(time) is int for time in times)
    ordered = whole and list(times) == sorted(set(times))
    if not ordered or spans != list(zip(times, times[1:], strict=False)):
        raise ValueError(
            f"checkpoints must cut the window of {times[-1]} steps into the intervals of replay, "
            f"got {plan['checkpoints']!r} and {spans}; {_ANEW}"
        )
    for sensors in (part["sensors"] for part in plan["replay"]):
        if not isinstance(sensors, list) or len(set(sensors)) < len(sensors):
            raise ValueError(f"replay must list sensors, each once, got {sensors!r}; {_ANEW}")
    unknown = sorted({name for part in plan["replay"] for name in part["sensors"]} - set(names))
    if unknown:
        raise ValueError(f"replay must name sensors of the data, got {listed(unknown)}; {_ANEW}")
    return times, tuple(tuple(part["sensors"]) for part in plan["replay"])
