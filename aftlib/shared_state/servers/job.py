"""What a run of late global merge consists of, known to all its processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aftlib.core.windows import Windows
from aftlib.shared_state.aggregates import AGGREGATES, Aggregate
from aftlib.shared_state.servers.source import Source
from aftlib.shared_state.stores.opening import open_table
from aftlib.shared_state.stores.tables import StateTable

OWN = ("memory", "rocksdb", "sqlite")


@dataclass(frozen=True)
class Job:
    """A stage: source → windows → aggregate by key → next log (D3 fig. 3).

    Parameters
    ----------
    source : Source
        Its slices must be those of `windows` (`windows.pane` ticks).
    directory : Path
        Folder of the servers' own stores, of what is put out, and of the journal.
    windows : Windows
        Width and slide; the query is not used.
    aggregate : str
        A name of `aftlib.shared_state.aggregates.AGGREGATES`.
    servers, tasks : int
        Servers, and tasks of each. Partition p belongs to server p mod servers.
    own : {"memory", "rocksdb", "sqlite"}
        Kind of a server's own store.
    shared : str
        Address of the global store, SQLite or PostgreSQL.
    schema : str
        PostgreSQL's schema.
    batch : int
        Tuples that a task aggregates before it merges.
    checkpoint_s : float
        Seconds between barriers.
    handover_s : float
        Seconds between hand-overs to the global store at least; 0: whenever a table is complete.
    keys_apart : bool
        Whether no key comes to two servers: then each puts out its own windows, and the global
        store is only a backup. It is not checked: a key that comes to two servers after all is put
        out by each with its own part of the tuples.

    Raises
    ------
    ValueError
        When a size is below 1, or a name is unknown.
    """

    source: Source
    directory: Path
    windows: Windows
    aggregate: str = "sum"
    servers: int = 2
    tasks: int = 2
    own: str = "rocksdb"
    shared: str = "sqlite:"
    schema: str = "aft"
    batch: int = 10_000
    checkpoint_s: float = 1.0
    handover_s: float = 0.0
    keys_apart: bool = False

    def __post_init__(self) -> None:
        # its processes work in that folder
        object.__setattr__(self, "directory", Path(self.directory).resolve())
        for name in ("servers", "tasks", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        if not self.checkpoint_s > 0:
            raise ValueError(f"checkpoint_s must be above 0 seconds, got {self.checkpoint_s!r}")
        if self.aggregate not in AGGREGATES:
            raise ValueError(f"aggregate must be one of {[*AGGREGATES]}, got {self.aggregate!r}")
        if self.own not in OWN:
            raise ValueError(f"own must be one of {OWN}, got {self.own!r}")
        if self.shared.partition(":")[0] not in ("sqlite", "postgresql"):
            raise ValueError(
                f"shared must be sqlite: or postgresql://…, which several processes can open, "
                f"got {self.shared!r}"
            )

    @property
    def function(self) -> Aggregate:
        """The merge function."""
        return AGGREGATES[self.aggregate]

    @property
    def output(self) -> Path:
        """Folder of the next log: one file a window."""
        return self.directory / "output"

    def partitions_of(self, server: int, task: int | None = None) -> list[int]:
        """Partitions of a server, or of one of its tasks."""
        all_of_it = range(server, self.source.partitions, self.servers)
        return list(all_of_it if task is None else all_of_it[task :: self.tasks])

    def open_own(self, server: int) -> StateTable:
        """A server's own store, flushed at barriers only."""
        place = self.directory / f"server-{server}.{self.own}"
        return open_table(f"{self.own}:{place}", self.function, "barrier")

    def open_shared(self) -> StateTable:
        """The global store."""
        if self.shared.startswith("sqlite:"):
            place = self.shared.removeprefix("sqlite:") or self.directory / "shared.sqlite"
            return open_table(f"sqlite:{place}", self.function)
        return open_table(self.shared, self.function, schema=self.schema)
