"""The stores under test: to add one, add one line to `STORES`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from aftlib.shared_state.aggregates import SUM, Aggregate
from aftlib.shared_state.stores.postgres import PostgresTable
from aftlib.shared_state.stores.rocksdb import RocksTable
from aftlib.shared_state.stores.sql import SqliteTable
from aftlib.shared_state.stores.tables import BufferedTable, MemoryTable, StateTable

# name: (fixture that gives it a place, how it is opened there with an aggregate)
STORES: dict[str, tuple[str, Callable[..., StateTable]]] = {
    "memory": ("tmp_path", lambda place, how: MemoryTable(how)),
    "rocksdb": ("tmp_path", lambda place, how: RocksTable(place / "store", how)),
    "sqlite": ("tmp_path", lambda place, how: SqliteTable(place / "store", how)),
    "buffered rocksdb": ("tmp_path", lambda place, how: buffered(RocksTable, place, how)),
    "buffered sqlite": ("tmp_path", lambda place, how: buffered(SqliteTable, place, how)),
    "postgres": ("schema", lambda place, how: PostgresTable(place.url, how, place.name)),
}


def buffered(kind: type, place: Path, aggregate: Aggregate) -> StateTable:
    """A store behind a buffer, which flushes at barriers."""
    return BufferedTable(kind(place / "store", aggregate))


@pytest.fixture(params=STORES)
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[..., StateTable]]:
    """Open the same store, as often as called; all are closed at the end."""
    fixture, open_at = STORES[request.param]
    place: Any = request.getfixturevalue(fixture)
    with ExitStack() as tables:
        yield lambda aggregate=SUM: tables.enter_context(open_at(place, aggregate))
