"""The output task: windows that the watermark says are complete go to the next log, once."""

from __future__ import annotations

import os
from contextlib import suppress

import numpy as np

from aftlib.core.paths import flush, write_whole
from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.servers.stage import Stage
from aftlib.shared_state.stores.tables import END, NEVER, Progress, StateTable


class Output:
    """Puts windows out of the global store.

    A window is a file that is there whole or not at all, and its name says which one it is. One
    that is there is never replaced, so doing it again after a death changes nothing. A slice is
    forgotten when all its windows are out.
    """

    def __init__(self, stage: Stage, table: StateTable) -> None:
        self.stage, self.table, self.at = stage, table, stage.points("output")
        stage.output.mkdir(exist_ok=True)

    def put_out(self) -> bool:
        """Put out what is complete; True when nothing will come any more."""
        windows = self.stage.windows
        mark = watermark(self.table.progress(), list(range(self.stage.log.partitions)))
        until = float("inf") if mark == END else mark  # a window may end beyond 64 bits
        slices = self.table.windows()
        last = slices // windows.slide * windows.slide  # window that begins last, of each slice's

        backs = np.arange(0, windows.width, windows.slide)
        for start in np.unique(last[:, None] - backs).tolist():
            held = slices[(slices >= start) & (slices < start + windows.width)]
            complete = start >= 0 and start + windows.width <= until
            path = self.stage.output / f"window-{start:020d}.csv"
            if complete and len(held) and not path.exists():
                parts = [self.table.read(moment) for moment in held.tolist()]
                rows = Partials.concat(*parts)  # D3 eqs. (1) and (2)
                rows = Partials(np.full(len(rows), start), rows.keys, rows.values)
                rows = self.stage.function.group(rows)
                values = self.stage.function.result(rows.values).tolist()
                lines = zip(rows.keys.tolist(), values, strict=True)
                draft = self.stage.directory / f"draft-{os.getpid()}.csv"
                write_whole(draft, "".join(f"{start},{k},{v}\n" for k, v in lines))
                with suppress(FileExistsError):  # unlike a rename, a link replaces nothing
                    os.link(draft, path)
                draft.unlink()
                flush(path.parent)  # before its slices are forgotten
                self.at("written")

        for moment, begin in zip(slices.tolist(), last.tolist(), strict=True):
            if begin + windows.width <= until:
                self.table.forget(moment)
                self.at("forgotten")
        return mark == END


def watermark(progress: dict[int, Progress], partitions: list[int]) -> int:
    """Event time before which all these partitions are complete; `NEVER` while one is unread."""
    return min((progress[p].watermark if p in progress else NEVER for p in partitions), default=END)
