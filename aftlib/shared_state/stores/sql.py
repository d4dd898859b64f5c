"""State tables in SQL databases: their tables, and the statements that all of them share."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from aftlib.shared_state.aggregates import Aggregate, Partials
from aftlib.shared_state.stores.tables import VERSION, Output, Progress, StateTable, Token

LATEST = -1
"""In the table `progress`, the epoch that stands for all."""

# from one window to the next, not from row to row
_WINDOWS = """
WITH RECURSIVE found (win) AS (
  SELECT min(win) FROM state WHERE epoch = 0
  UNION ALL
  SELECT (SELECT min(s.win) FROM state AS s WHERE s.epoch = 0 AND s.win > found.win)
  FROM found WHERE found.win IS NOT NULL)
SELECT win FROM found WHERE win IS NOT NULL
"""
_STORED = ("at", "watermark", "late", "tuples", "rejected")
"""Columns of a partition's progress."""
_REPLACE = "ON CONFLICT (server) DO UPDATE SET epoch = excluded.epoch"


FILES = "memory", "rocksdb", "sqlite"
"""Kinds of addresses that hold no password."""
UNREADABLE = (
    "url must be readable as postgresql://USER:PASSWORD@HOST:PORT/DATABASE, got one that is not; "
    "write % / [ ] @ : ? and # of the password as urllib.parse.quote(password, safe='') does"
)


def redact(address: str) -> str:
    """Return what a message may show of a store's address: never its password.

    Of a PostgreSQL address these are user, host, port and database. Of another one without a file
    only the word before the colon is shown. A PostgreSQL address is a ValueError when it cannot be
    read or when a delimiter has moved its password, or part of it, into another field.
    """
    kind = re.match(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)", address)
    if kind and kind.group() in FILES:
        if "://" in address[kind.end() + 1 :]:  # "sqlite:" before the address of a server
            raise ValueError(UNREADABLE)
        return address
    if not re.match(r"postgres(ql)?://|[^:/]*=", address):
        return f"{kind.group()}:…" if kind else "…"
    import psycopg.conninfo

    try:
        parts = psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.Error:
        raise ValueError(UNREADABLE) from None  # the driver's message shows the password
    shown = {name: str(parts.get(name) or "") for name in ("user", "host", "port", "dbname")}
    moved = any("@" in text for text in shown.values()) or ":" in shown["user"]
    if moved or not re.fullmatch(r"[\d,]*", shown["port"]):
        raise ValueError(UNREADABLE)
    return " ".join(f"{name}={text}" for name, text in shown.items() if text)


class SqlTable(StateTable):
    """Tables state (epoch, win, key, values), progress, epochs, handed and outputs.

    Each component of the aggregate is a column. Statements have ``?`` for their values.
    """

    least, greatest = "min", "max"
    """What the database calls the lesser and the greater of two numbers."""
    value = "{} bigint NOT NULL"
    """Declaration of a column of values."""
    suffix = ""
    """What follows the declaration of a table that has a primary key."""
    tables: tuple[str, ...] = "state", "progress", "epochs"
    """Those that hold something of an epoch."""

    def __init__(self, aggregate: Aggregate) -> None:
        super().__init__(aggregate)
        self._columns = [f"value{i}" for i in range(len(aggregate.components))]

    def _merge(
        self, rows: Partials, progress: dict[int, Progress], epoch: int, token: Token | None
    ) -> None:
        if token:
            self._execute(f"INSERT INTO handed VALUES (?, ?) {_REPLACE}", token)
        self._execute("INSERT INTO epochs VALUES (?) ON CONFLICT DO NOTHING", [epoch])
        further = ", ".join(f"{n} = {self.greatest}(p.{n}, excluded.{n})" for n in _STORED)
        note = (
            "INSERT INTO progress AS p VALUES (?, ?, ?, ?, ?, ?, ?) "
            f"ON CONFLICT (epoch, partition) DO UPDATE SET {further}"
        )
        for partition, now in progress.items():
            for table in (LATEST, epoch):
                self._execute(note, [table, partition, *now.stored])
        if len(rows):
            self._add(rows, epoch)

    def windows(self) -> np.ndarray:
        """Windows that hold something, ascending."""
        return np.array([window for (window,) in self._rows(_WINDOWS)], dtype=np.int64)

    def progress(self, epoch: int | None = None) -> dict[int, Progress]:
        """How far each partition is, at all or as far as the epoch's table brings it."""
        found = self._rows(
            f"SELECT partition, {', '.join(_STORED)} FROM progress WHERE epoch = ?",
            [LATEST if epoch is None else epoch],
        )
        return {partition: Progress(*rest) for partition, *rest in found}

    def epochs(self) -> tuple[int, ...]:
        """Tables that hold something, ascending."""
        found = self._rows("SELECT epoch FROM epochs ORDER BY epoch")
        return tuple(epoch for (epoch,) in found)

    def handed(self) -> dict[str, int]:
        """Last epoch that each server handed over to this store."""
        return dict(self._rows("SELECT server, epoch FROM handed"))

    def drop(self, epoch: int) -> None:
        """Empty a table."""
        with self._transaction("drop"):
            for table in self.tables:
                self._execute(f"DELETE FROM {table} WHERE epoch = ?", [epoch])

    def forget(self, *windows: int, output: Output | None = None) -> None:
        """Drop windows, and record what was emitted of them."""
        with self._transaction("forget"):
            for window in windows:
                self._execute("DELETE FROM state WHERE epoch = 0 AND win = ?", [window])
            if output:
                self._execute("INSERT INTO outputs VALUES (?, ?)", output)

    def outputs(self) -> dict[int, int]:
        """Windows that were emitted, each with the checksum of its output."""
        return dict(self._rows("SELECT win, checksum FROM outputs"))

    def _upsert(self, source: str) -> str:
        """Statement that merges the rows of a source into the table `state`."""
        changes = {
            "add": "{0} = state.{0} + excluded.{0}",
            "min": f"{{0}} = {self.least}(state.{{0}}, excluded.{{0}})",
            "max": f"{{0}} = {self.greatest}(state.{{0}}, excluded.{{0}})",
        }
        kinds = zip(self._columns, self.aggregate.components, strict=True)
        merged = ", ".join(changes[kind].format(column) for column, kind in kinds)
        return f"INSERT INTO state {source} ON CONFLICT (epoch, win, key) DO UPDATE SET {merged}"

    def _create(self) -> None:
        """Make the tables, and note whose they are."""
        values = ", ".join(self.value.format(column) for column in self._columns)
        stored = ", ".join(f"{name} bigint" for name in _STORED)
        for table in (
            "epochs (epoch bigint PRIMARY KEY)",
            "handed (server text PRIMARY KEY, epoch bigint)",
            "outputs (win bigint PRIMARY KEY, checksum bigint)",
            f"progress (epoch bigint, partition bigint, {stored}, PRIMARY KEY (epoch, partition))",
            f"state (epoch bigint, win bigint, key bigint, {values}, "
            "PRIMARY KEY (epoch, win, key))",
        ):
            self._execute(f"CREATE TABLE {table}{self.suffix}")
        self._execute("CREATE TABLE identity (version integer, aggregate text)")
        self._execute("INSERT INTO identity VALUES (?, ?)", [VERSION, self.aggregate.name])

    @abstractmethod
    def _add(self, rows: Partials, epoch: int) -> None:
        """Merge rows into the table `state`, within a transaction."""

    @abstractmethod
    def _execute(self, query: str, values: Sequence[object] = ()) -> Any:
        """Cursor of a statement, within a transaction."""

    @abstractmethod
    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple]:
        """What a query finds."""
