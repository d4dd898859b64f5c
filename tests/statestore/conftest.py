"""The stores under test: to add one, add one line to `STORES`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aftlib.aggregates import SUM
from aftlib.statestore.memory import MemoryTable
from aftlib.statestore.rocksdb import RocksTable
from aftlib.statestore.tables import StateTable

STORES: dict[str, Callable[..., StateTable]] = {
    "memory": lambda place, aggregate, flush: MemoryTable(aggregate),
    "rocksdb": lambda place, aggregate, flush: RocksTable(place, aggregate, flush),
}


@pytest.fixture(params=STORES)
def opened(request, tmp_path):
    """Open the same store, as often as called; all are closed at the end."""
    tables = []

    def again(aggregate=SUM, flush="merge"):
        tables.append(STORES[request.param](tmp_path / "store", aggregate, flush))
        return tables[-1]

    yield again
    for table in tables:
        table.close()
