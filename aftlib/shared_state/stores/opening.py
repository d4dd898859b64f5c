"""State tables by address, so that all processes of a run open the same one, and whose it is."""

from __future__ import annotations

from importlib import import_module

from aftlib.shared_state.aggregates import Aggregate, Partials
from aftlib.shared_state.stores.memory import BufferedTable, MemoryTable
from aftlib.shared_state.stores.sql import redact
from aftlib.shared_state.stores.tables import FLUSHES, StateTable

KINDS = {
    "rocksdb": "aftlib.shared_state.stores.rocksdb:RocksTable",
    "sqlite": "aftlib.shared_state.stores.sql:SqliteTable",
    "postgresql": "aftlib.shared_state.stores.postgres:PostgresTable",
    "postgres": "aftlib.shared_state.stores.postgres:PostgresTable",
}
_OWNER = "owner "


def open_table(
    address: str, aggregate: Aggregate, flush: str = "merge", **options: object
) -> StateTable:
    """Open a state table, given when it is durable (`FLUSHES`) and options of the store.

    The address is ``memory:``, ``rocksdb:FOLDER``, ``sqlite:FILE`` or ``postgresql://…``, for which
    there is the option `schema`. With "barrier", merges wait in memory (`BufferedTable`). Another
    word, or an address of no known kind, is a ValueError; others are those of the store.
    """
    if flush not in FLUSHES:
        raise ValueError(f"flush must be one of {FLUSHES}, got {flush!r}")
    shown = redact(address)
    kind, _, place = address.partition(":")
    if kind == "memory":
        return MemoryTable(aggregate)
    if kind not in KINDS:
        known = ", ".join(f"{name}:" for name in ("memory", *KINDS))
        raise ValueError(f"address must begin with one of {known}, got {shown!r}")
    module, name = KINDS[kind].split(":")
    opened = getattr(import_module(module), name)
    table = opened(address if kind.startswith("postgres") else place, aggregate, **options)
    return BufferedTable(table) if flush == "barrier" else table


def claim(table: StateTable, owner: str, begun: bool = False) -> None:
    """Note in a table, as an epoch commit of nothing, whose state it holds; refuse another's.

    All processes that may merge into it name the same owner, which says what the offsets and rows
    in it stand for. Of two owners that claim a new table at once, at least one is refused, and then
    the table is nobody's. `begun` says that the owner has claimed it before: it cannot be new. A
    table that is another's, or holds something of nobody known, is a ValueError.
    """

    def owners() -> set[str]:
        return {name for name in table.committed() if name.startswith(_OWNER)}

    ours = {_OWNER + owner}
    free = owners() <= ours and (owners() or not (begun or table.progress()))
    if free:
        table.merge(Partials.empty(len(table.aggregate.components)), {}, token=(_OWNER + owner, 0))
    if not free or owners() != ours:
        raise ValueError(
            "table must be new, or the one that this was begun with: the one given has been "
            "emptied, or holds the state of another log, job or setting; choose another table "
            "(file or schema), or go on with that one"
        )
