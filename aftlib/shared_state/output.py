"""The output task: emits each window once, when the watermark has reached its end."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np

from aftlib.core.paths import flush, write_whole
from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.job import TICK_S, UNREACHABLE, Job, Journal
from aftlib.shared_state.liveness import patiently
from aftlib.shared_state.stores.tables import END, NEVER, Progress, StateTable

LEASE = "output"
"""Counter in the global store: number of output processes that have started on it."""


class Output:
    """Emits the windows of the global store, one file per window.

    A file is there whole or not at all, and is never replaced. The transaction that drops the
    slices of a window also records the window and its file's checksum. So no window is built from
    only a part of its slices, and a missing or changed file is an error.

    Only the process that started last may emit (`LEASE`). It checks this after it has read a
    window's slices: if it is still the last, no other process had dropped any of them.
    """

    def __init__(self, job: Job, table: StateTable) -> None:
        self.job, self.table, self.at = job, table, job.points("output")
        self.emitted = table.outputs()
        job.output.mkdir(exist_ok=True)
        self.require_files()
        self.lease = table.committed().get(LEASE, 0) + 1
        nothing = Partials.empty(len(job.function.components))
        while not table.merge(nothing, {}, token=(LEASE, self.lease)):
            self.lease += 1

    def emit(self) -> bool:
        """Emit the complete windows; return True once every partition has ended."""
        windows = self.job.windows
        mark = watermark(self.table.progress(), list(range(self.job.log.partitions)))
        until = float("inf") if mark == END else mark  # a window may end beyond 64 bits
        slices = self.table.windows()
        last = slices // windows.slide * windows.slide  # each slice's last window

        backs = np.arange(0, windows.width, windows.slide)
        for start in np.unique(last[:, None] - backs).tolist():
            if start + windows.width > until:
                break
            output = None
            parts = slices[(slices >= start) & (slices < start + windows.width)].tolist()
            if parts and start >= 0 and start not in self.emitted:
                output = start, self._write(start, parts)
            expired = slices[last == start].tolist()
            if output or expired:
                self.table.forget(*expired, output=output)
                self.emitted.update([output] if output else [])
                self.at("forgotten")
        return mark == END

    def require_files(self) -> None:
        """Raise a ValueError unless the output folder holds every window that was emitted."""
        wrong = [self._path(start) for start in self.emitted if not self._is_whole(start)]
        if wrong:
            kind = "another file of that name" if wrong[0].exists() else "none"
            raise ValueError(
                f"output must hold {wrong[0].name!r} as it was emitted, got {kind} in "
                f"{str(self.job.output)!r} ({len(wrong)} of {len(self.emitted)} windows are "
                "wrong): bring the files back, and copy windows instead of moving them; or start "
                "again in another directory and schema"
            )

    def require_no_others(self) -> None:
        """Raise a ValueError if the output folder holds a window that was never emitted."""
        emitted = {self._path(start) for start in self.emitted}
        others = sorted({*self.job.output.glob("window-*.csv")} - emitted)
        if others:
            raise ValueError(
                f"output must hold only windows that this job emitted, got also {others[0].name!r} "
                f"in {str(self.job.output)!r} ({len(others)} such): remove these files"
            )

    def _is_whole(self, start: int) -> bool:
        path = self._path(start)
        return path.is_file() and crc32(path.read_bytes()) == self.emitted[start]

    def _path(self, start: int) -> Path:
        return self.job.output / f"window-{start:020d}.csv"

    def _write(self, start: int, slices: list[int]) -> int:
        """Write the file of the window at `start` from the slices `slices`; return its checksum."""
        rows = Partials.concat(*map(self.table.read, slices))  # D3 eqs. (1) and (2)
        self._require_lease()
        rows = Partials(np.full(len(rows), start), rows.keys, rows.values)
        rows = self.job.function.group(rows)
        values = self.job.function.result(rows.values).tolist()
        lines = zip(rows.keys.tolist(), values, strict=True)
        text = "".join(f"{start},{key},{value}\n" for key, value in lines).encode()

        path, draft = self._path(start), self.job.directory / f"draft-{os.getpid()}.csv"
        write_whole(draft, text)
        try:
            os.link(draft, path)  # unlike a rename, a link replaces nothing
            flush(path.parent)  # before its slices are forgotten
        except FileExistsError:  # written by a process that ended before it could record it
            if not path.is_file() or path.read_bytes() != text:
                raise ValueError(
                    f"output must be new or this job's, got another {path.name!r} in "
                    f"{str(path.parent)!r}: remove that file, and run the job again"
                ) from None
        except FileNotFoundError as error:
            raise ValueError(
                f"output must stay while the job runs, got no folder {str(path.parent)!r}: bring "
                "it back with all its files, or start again in another directory and schema"
            ) from error
        finally:
            draft.unlink()
        self.at("written")
        return crc32(text)

    def _require_lease(self) -> None:
        newest = self.table.committed().get(LEASE, 0)
        if newest != self.lease:
            raise ValueError(
                "the global store must belong to this job alone, got another output task (number "
                f"{newest}; this one is {self.lease}). A job with a copy of "
                f"{str(self.job.directory)!r} uses the same store: end that job, and run this one "
                "again"
            )


def watermark(progress: dict[int, Progress], partitions: list[int]) -> int:
    """Event time before which all these partitions are complete; `NEVER` while one is unread."""
    return min((progress[p].watermark if p in progress else NEVER for p in partitions), default=END)


def emit_windows(job: Job, _: Journal) -> None:
    """Run the output process until every window is emitted."""
    output = job.open_claimed(partial(Output, job))
    with output.table:
        servers = [Path(f"server-{number}.done") for number in range(job.servers)]
        done = False
        while not done:
            over = all(server.exists() for server in servers)
            done = patiently(output.emit, job.patience_s, UNREACHABLE, TICK_S)
            if over and not done:
                raise ValueError(
                    "the global store must have all commits of the servers, got a store "
                    "that lacks some: it was replaced or is an older copy; start again in another "
                    "directory and schema"
                )
            time.sleep(TICK_S)
        output.require_files()
        output.require_no_others()
