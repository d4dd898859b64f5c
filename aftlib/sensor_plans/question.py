"""What is asked of a file of sensors: how wrong, how often, how soon, over which windows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from aftlib.checkpoint_planning.recovery_time import DOCUMENT_RECOVERY_TIME, RecoveryTime
from aftlib.core.checks import require_number

QUERIES = ("mean", "sum")


@dataclass(frozen=True)
class Question:
    """What a plan is asked to keep.

    Parameters
    ----------
    epsilon : float or mapping of str to float, optional
        Largest error ε of a window's result, one for all sensors or one a sensor, in their units.
    epsilon_sd : float, optional
        ε in standard deviations of each sensor's window results in the first half of the file.
        Exactly one of the two is given.
    delta : float
        Share δ of the promises that may be wrong.
    t_sla_ms : float
        T_SLA, the longest recovery permitted, in milliseconds.
    window, slide : int or str
        In samples, or a duration such as "6h" where the file has times; slide is by default the
        window's width.
    query : {"mean", "sum"}
        What is computed of a window.
    workers : int, optional
        m machines that share the sensors; by default one a sensor.
    horizons : int
        Most windows that an outage may last for a promise to be made.
    recovery_time : RecoveryTime
        Milliseconds by the number of tuples read again; by default document D2's measurement.

    Raises
    ------
    ValueError
        With the argument, its value and what is wanted.
    """

    epsilon: float | Mapping[str, float] | None = None
    epsilon_sd: float | None = None
    delta: float = 0.05
    t_sla_ms: float = 2000.0
    window: int | str = 10
    slide: int | str | None = None
    query: str = "mean"
    workers: int | None = None
    horizons: int = 5
    recovery_time: RecoveryTime = field(default=DOCUMENT_RECOVERY_TIME)

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.epsilon_sd is None):
            raise ValueError(
                f"epsilon or epsilon_sd must be given, and not both, got {self.epsilon!r} and "
                f"{self.epsilon_sd!r}; epsilon is in the sensors' units, epsilon_sd in standard "
                "deviations of each sensor's window results"
            )
        if self.epsilon_sd is not None:
            require_number("epsilon_sd", self.epsilon_sd, above=0)
        if isinstance(self.epsilon, Mapping):
            for name, value in self.epsilon.items():
                require_number(f"epsilon of {name!r}", value, above=0)
        elif self.epsilon is not None:
            require_number("epsilon", self.epsilon, above=0)
        require_number("delta", self.delta, above=0, below=1)
        require_number("t_sla", self.t_sla_ms, above=0)
        require_number("horizons", self.horizons, least=1, most=50, whole=True)
        if self.workers is not None:
            require_number("workers", self.workers, least=1, whole=True)
        if self.query not in QUERIES:
            raise ValueError(f"query must be 'mean' or 'sum', got {self.query!r}")
        for name, width in (("window", self.window), ("slide", self.slide)):
            if width is not None and not isinstance(width, str):
                require_number(name, width, least=1, whole=True)

    @classmethod
    def of(cls, *, t_sla: str, fixed_ms: float, per_tuple_ms: float, **others: Any) -> Self:
        """The question in the words of the command line and of the notebook; errors likewise."""
        recovery_time = RecoveryTime(fixed_ms, per_tuple_ms)
        return cls(t_sla_ms=milliseconds(t_sla), recovery_time=recovery_time, **others)

    def steps(self, step: pd.Timedelta | None) -> tuple[int, int]:
        """Window and slide in steps of the file.

        ValueError when a duration meets a file without times or is no multiple of its step, or the
        slide is longer than the window.
        """
        window = _in_steps("window", self.window, step)
        slide = window if self.slide is None else _in_steps("slide", self.slide, step)
        if slide > window:
            raise ValueError(
                f"slide must be at most window = {window} steps, got {slide}; a larger one would "
                "leave samples out of every window"
            )
        return window, slide

    def limits(self, names: tuple[str, ...], deviations: np.ndarray) -> np.ndarray:
        """ε of each sensor, shape (n,); `deviations` of their window results in the first half.

        ValueError when a sensor has no ε, or one is given for a sensor that there is not.
        """
        if self.epsilon_sd is not None:
            return self.epsilon_sd * deviations
        if not isinstance(self.epsilon, Mapping):
            return np.full(len(names), float(self.epsilon))  # type: ignore[arg-type]
        without = [name for name in names if name not in self.epsilon]
        unknown = [name for name in self.epsilon if name not in names]
        if without or unknown:
            raise ValueError(
                f"epsilon must have one value a sensor, got none for {without[:8]} and one for "
                f"{unknown[:8]}, which is no sensor of the file"
            )
        return np.array([self.epsilon[name] for name in names], float)


def _in_steps(name: str, width: int | str, step: pd.Timedelta | None) -> int:
    if not isinstance(width, str):
        return int(width)
    if re.fullmatch(r"\s*\d+\s*", width):
        require_number(name, int(width), least=1, whole=True)
        return int(width)
    if step is None:
        raise ValueError(
            f"{name} must be a number of samples where the file has no times, got {width!r}"
        )
    try:
        steps = pd.Timedelta(width) / step
    except ValueError as error:
        raise ValueError(
            f"{name} must be a number of samples or a duration such as '6h', got {width!r}"
        ) from error
    if not (steps >= 1 and float(steps).is_integer()):
        raise ValueError(f"{name} must be a multiple of the file's step {step}, got {width!r}")
    return int(steps)


def milliseconds(text: str) -> float:
    """Milliseconds of a duration such as "2s", "500ms" or "1.5min"; ValueError for any other."""
    units = {"us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "min": 6e4, "h": 3.6e6}
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-zµ]+)\s*", text)
    if not found or found[2] not in units or not float(found[1]) > 0:
        raise ValueError(f"t_sla must be a duration such as '2s' or '500ms', got {text!r}")
    return float(found[1]) * units[found[2]]


def _of_pairs(rows: list[tuple[str, str | float]]) -> dict[str, float]:
    """ε by sensor, where none is named twice."""
    found: dict[str, float] = {}
    for name, value in rows:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = float(value)
    return found


def epsilon_of(text: str) -> float | dict[str, float]:
    """ε as a number, or one a sensor from a file: JSON {sensor: ε}, or CSV lines `sensor,ε`.

    ValueError when it is neither a number nor such a file.
    """
    try:
        return float(text)
    except ValueError:
        path = Path(text)
    if not path.is_file():
        raise ValueError(f"epsilon must be a number or a file of one a sensor, got {text!r}")
    try:
        if path.suffix == ".json":
            rows = json.loads(path.read_text(), object_pairs_hook=list)
            return _of_pairs([(name, value) for name, value in rows])
        names = ["sensor", "epsilon"]
        frame = pd.read_csv(path, header=None, dtype=str, names=names, keep_default_na=False)
        rows = list(zip(frame["sensor"], frame["epsilon"], strict=True))
        heading = rows and rows[0] == ("sensor", "epsilon")
        return _of_pairs(rows[bool(heading) :])
    except (ValueError, TypeError, AttributeError, OSError) as error:
        raise ValueError(
            f"epsilon must be a JSON file {{sensor: ε}} or a CSV file of lines 'sensor,ε', got "
            f"{text!r} ({str(error).splitlines()[0]})"
        ) from error
