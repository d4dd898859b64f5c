"""State tables by address, so that any process of a run can open the same one."""

from __future__ import annotations

from importlib import import_module

from aftlib.shared_state.aggregates import Aggregate
from aftlib.shared_state.stores.buffered import BufferedTable
from aftlib.shared_state.stores.memory import MemoryTable
from aftlib.shared_state.stores.tables import StateTable

KINDS = {
    "rocksdb": "aftlib.shared_state.stores.rocksdb:RocksTable",
    "sqlite": "aftlib.shared_state.stores.sqlite_table:SqliteTable",
    "postgresql": "aftlib.shared_state.stores.postgres:PostgresTable",
}


def open_table(
    address: str, aggregate: Aggregate, flush: str = "merge", **options: object
) -> StateTable:
    """Open a state table.

    Parameters
    ----------
    address : str
        ``memory:``, ``rocksdb:FOLDER``, ``sqlite:FILE`` or ``postgresql://…``.
    aggregate : Aggregate
        How values merge.
    flush : {"merge", "barrier"}
        What survives the process; with "barrier", merges wait in memory (`BufferedTable`).
    **options
        Of the store, such as PostgreSQL's `schema`.

    Raises
    ------
    ValueError
        When the address names no kind of store; and whatever the store raises.
    """
    kind, _, place = address.partition(":")
    if kind == "memory":
        return MemoryTable(aggregate)
    if kind not in KINDS:
        known = ", ".join(f"{name}:" for name in ("memory", *KINDS))
        raise ValueError(f"address must begin with one of {known}, got {address!r}")
    module, name = KINDS[kind].split(":")
    opened = getattr(import_module(module), name)
    table = opened(address if kind == "postgresql" else place, aggregate, flush, **options)
    return BufferedTable(table) if flush == "barrier" else table
