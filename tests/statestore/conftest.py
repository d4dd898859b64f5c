"""The stores under test: to add one, add one line to `STORES`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from aftlib.aggregates import SUM
from aftlib.statestore.buffered import BufferedTable
from aftlib.statestore.memory import MemoryTable
from aftlib.statestore.postgres import PostgresTable
from aftlib.statestore.rocksdb import RocksTable
from aftlib.statestore.sqlite_table import SqliteTable
from aftlib.statestore.tables import StateTable

# name: (fixture that gives it a place, how it is opened there with an aggregate and a flush)
STORES: dict[str, tuple[str, Callable[..., StateTable]]] = {
    "memory": ("tmp_path", lambda place, aggregate, flush: MemoryTable(aggregate)),
    "rocksdb": ("tmp_path", lambda place, *how: RocksTable(place / "store", *how)),
    "sqlite": ("tmp_path", lambda place, *how: SqliteTable(place / "store", *how)),
    "buffered": ("tmp_path", lambda place, *how: buffered(RocksTable(place / "store", *how))),
    "postgres": ("schema", lambda place, *how: PostgresTable(place.url, *how, place.name)),
}


def buffered(table: StateTable) -> StateTable:
    """The table, behind a buffer where it may have one."""
    return BufferedTable(table) if table.flush == "barrier" else table


@pytest.fixture(params=STORES)
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[..., StateTable]]:
    """Open the same store, as often as called; all are closed at the end."""
    fixture, open_at = STORES[request.param]
    place: Any = request.getfixturevalue(fixture)
    with ExitStack() as tables:
        yield lambda aggregate=SUM, flush="merge": tables.enter_context(
            open_at(place, aggregate, flush)
        )
