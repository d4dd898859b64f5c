"""Output tasks: windows that the watermark says are complete go to the next log, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from aftlib.core.paths import atomic_file
from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.servers.job import Job
from aftlib.shared_state.servers.server import nothing_happens
from aftlib.shared_state.servers.source import END, watermark
from aftlib.shared_state.stores.tables import StateTable


class Output:
    """Puts windows out of one table.

    A window is a file that is there whole or not at all, and its name says which one it is; so
    doing it again after a death changes nothing. A slice is forgotten when all its windows are out.

    Parameters
    ----------
    job : Job
    table : StateTable
    partitions : list of int
        Those that bring tuples of the table's keys.
    epoch : int
        Which of its tables.
    part : str
        What tells apart the files of several of these.
    at : callable
        Called with the name of each point that is passed.
    """

    def __init__(
        self,
        job: Job,
        table: StateTable,
        partitions: list[int],
        epoch: int = 0,
        part: str = "all",
        at: Callable[[str], None] = nothing_happens,
    ) -> None:
        self.job, self.table, self.partitions = job, table, partitions
        self.epoch, self.part, self.at = epoch, part, at
        job.output.mkdir(exist_ok=True)

    def put_out(self) -> bool:
        """Put out what is complete; True when nothing will come any more."""
        mark = watermark(self.table.progress(self.epoch), self.partitions)
        slices = self.table.windows(self.epoch)
        for start in self._complete(slices, mark):
            if not self._file(start).exists():
                self._write(start, slices)
                self.at("written")
        for start in slices.tolist():
            if self._last_window(start) + self.job.windows.width <= mark:
                self.table.forget(start, self.epoch)
                self.at("forgotten")
        return mark == END

    def _complete(self, slices: np.ndarray, mark: int) -> Iterator[int]:
        """Starts of windows that hold a slice and end by the watermark."""
        windows = self.job.windows
        starts = {
            last - back
            for last in map(self._last_window, slices.tolist())
            for back in range(0, windows.width, windows.slide)
        }
        for start in sorted(starts):
            held = (slices >= start) & (slices < start + windows.width)
            if start >= 0 and start + windows.width <= mark and held.any():
                yield start

    def _last_window(self, moment: int) -> int:
        """Start of the last window that holds a moment of event time."""
        return moment // self.job.windows.slide * self.job.windows.slide

    def _write(self, start: int, slices: np.ndarray) -> None:
        rows = self._window(start, slices)
        values = self.job.function.result(rows.values).tolist()
        lines = (f"{start},{k},{v}\n" for k, v in zip(rows.keys.tolist(), values, strict=True))
        with atomic_file(self._file(start)) as path:
            path.write_text("".join(lines))

    def _window(self, start: int, slices: np.ndarray) -> Partials:
        """A window's rows, merged from its slices (D3 eqs. (1) and (2))."""
        held = slices[(slices >= start) & (slices < start + self.job.windows.width)]
        parts = [self.table.read(int(moment), self.epoch) for moment in held]
        rows = Partials.concat(*parts)
        return self.job.function.group(Partials(np.full(len(rows), start), rows.keys, rows.values))

    def _file(self, start: int) -> Path:
        return self.job.output / f"window-{start:020d}-{self.part}.csv"
