"""What a recovery will need of a plan, computed with it and kept on disk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aftlib.checkpoint_planning.plan import CheckpointPlan
from aftlib.core.paths import atomic_directory


class Preparation:
    """Replay sets and gain matrices on disk, made with the plan so that recovery only loads them.

    The directory has a folder a plan: sensors, gain and variance of each interval. It is named by
    what determines its contents, so no other plan's or model's is ever taken for it.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)

    def keep(self, fingerprint: str, plan: CheckpointPlan) -> str:
        """Compute and keep what a failure in each interval of a plan will need; its name."""
        digest = hashlib.sha256(fingerprint.encode())
        for numbers in (plan.times, *(replay.sensors for replay in plan.replay)):
            digest.update(np.array([len(numbers), *numbers], dtype=np.int64).data)
        name = digest.hexdigest()[:16]
        if not (self.directory / name).exists():
            with atomic_directory(self.directory / name) as scratch:
                for k, replay in enumerate(plan.replay):
                    np.save(scratch / f"{k}-sensors.npy", np.array(replay.sensors, dtype=np.int64))
                    np.save(scratch / f"{k}-gain.npy", replay.gain())
                    np.save(scratch / f"{k}-variance.npy", replay.variance)
        return name

    def load(self, name: str, interval: int) -> PreparedReplay:
        """What a failure in an interval of a plan needs; ValueError when it is gone or damaged."""
        parts = {}
        for part in ("sensors", "gain", "variance"):
            path = self.directory / name / f"{interval}-{part}.npy"
            try:
                parts[part] = np.load(path, allow_pickle=False)
            except (OSError, ValueError) as error:
                raise ValueError(
                    f"directory lacks an intact {path.name} of plan {name} ({error}); restore "
                    f"{str(self.directory)!r} from a copy, or start the stream anew"
                ) from error
        return PreparedReplay(**parts | {"sensors": parts["sensors"].tolist()})


@dataclass(frozen=True, eq=False)
class PreparedReplay:
    """What a recovery loads: the replay set O and how the others follow from it."""

    sensors: list[int]  # O
    gain: np.ndarray  # (n − |O|, |O|)
    variance: np.ndarray  # (n,) of each sensor's value at one step given those of O

    def complete(self, mean: np.ndarray, sums: np.ndarray, steps: int) -> np.ndarray:
        """Sums of all n sensors over some steps from those of O, whole (D2 eqs (5), (10))."""
        everyone, replayed = np.empty(mean.size), mean[self.sensors]
        others = np.setdiff1d(np.arange(mean.size), self.sensors)
        everyone[self.sensors] = sums
        everyone[others] = steps * mean[others] + self.gain @ (sums - steps * replayed)
        return everyone
