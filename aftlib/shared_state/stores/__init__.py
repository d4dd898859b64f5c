"""State stores, which an address opens; all fulfil the contract of `tables`.

`sql` has the statements that the SQL stores share, and the store in SQLite. PostgreSQL and RocksDB
have a module each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module

from aftlib.core.checks import require_choice
from aftlib.shared_state.aggregates import Aggregate, Partials
from aftlib.shared_state.stores.tables import FLUSHES, BufferedTable, MemoryTable, StateTable


@dataclass(frozen=True)
class Kind:
    """A kind of store; its name is the first word of an address."""

    table: str  # module:class, imported when a table is opened
    file: bool = True  # its address is a path, which holds no password
    shared: bool = False  # several processes can open it; each waits up to `timeout_s` for it


KINDS = {
    "rocksdb": Kind("aftlib.shared_state.stores.rocksdb:RocksTable"),
    "sqlite": Kind("aftlib.shared_state.stores.sql:SqliteTable", shared=True),
    "postgresql": Kind("aftlib.shared_state.stores.postgres:PostgresTable", False, shared=True),
    "postgres": Kind("aftlib.shared_state.stores.postgres:PostgresTable", False, shared=True),
}
FILES = ("memory", *(name for name, kind in KINDS.items() if kind.file))
"""Kinds whose addresses hold no password; a server's own store is of one of them."""
SHARED = tuple(name for name, kind in KINDS.items() if kind.shared)
"""Kinds of a job's global store."""
_OWNER = "owner "


def open_table(
    address: str, aggregate: Aggregate, flush: str = "merge", **options: object
) -> StateTable:
    """Open the state table at an address; `flush` sets when it is durable (`FLUSHES`).

    The address is ``memory:``, ``rocksdb:FOLDER``, ``sqlite:FILE`` or ``postgresql://…``. `options`
    are those of the store, such as PostgreSQL's `schema`. With "barrier", merges wait in memory
    (`BufferedTable`). ValueError for another `flush` or another kind of address; other errors are
    those of the store.
    """
    require_choice("flush", flush, FLUSHES)
    shown = redact(address)
    kind, _, place = address.partition(":")
    if kind == "memory":
        return MemoryTable(aggregate)
    if kind not in KINDS:
        kinds = ", ".join(f"{name}:" for name in ("memory", *KINDS))
        raise ValueError(f"address must begin with one of {kinds}, got {shown!r}")
    module, name = KINDS[kind].table.split(":")
    opened = getattr(import_module(module), name)
    table = opened(place if KINDS[kind].file else address, aggregate, **options)
    return BufferedTable(table) if flush == "barrier" else table


def claim(table: StateTable, owner: str, renewal: bool = False) -> None:
    """Record an owner in a table, as an empty epoch commit; refuse a table of another owner.

    All processes that may merge into a table name the same owner: the job to which its offsets and
    rows belong. If two owners claim a new table at once, at least one is refused. Both are refused
    at their next claim. `renewal` means that this owner has claimed the table before, so the
    table cannot be new. ValueError for a table of another owner, or one that holds state without an
    owner.
    """

    def owners() -> set[str]:
        return {name for name in table.committed() if name.startswith(_OWNER)}

    ours = {_OWNER + owner}
    free = owners() <= ours and (owners() or not (renewal or table.progress()))
    if free:
        table.merge(Partials.empty(len(table.aggregate.components)), {}, token=(_OWNER + owner, 0))
    if not free or owners() != ours:
        raise ValueError(
            "table must be new, or the one with which this log or job was begun: the given table "
            "has been emptied, or holds the state of another log, job or setting; choose another "
            "table (file or schema), or go on with the first one"
        )


UNREADABLE = (
    "url must be readable as postgresql://USER:PASSWORD@HOST:PORT/DATABASE, got one that is not; "
    "write other characters than letters and digits of user, password and database as "
    "urllib.parse.quote(text, safe='') does; begin a file's path with ./ or / if : @ or = is in it "
    "and give no file a name with ://, password= or : before @"
)
# "sqlite:" may stand before the address of a server
_NO_PATH = re.compile(r"(?![./]).*[:@=]|.*(://|password\s*=|:[^/]*@)", re.IGNORECASE | re.DOTALL)
_IPV6 = re.compile(r"(?=.*:.*:)[0-9A-Fa-f:.]+(%[\w.-]+)?")


def redact(address: str) -> str:
    """Return a store's address for a message, without its password.

    An address of a file is unchanged. Of a PostgreSQL address it shows user, host, port and
    database, but … for one of odd characters. Of any other address it shows only the word before
    the colon. ValueError if a PostgreSQL address cannot be read, or if a delimiter has moved a part
    of its password into another field; and if a path looks like the address of a server.
    """
    if not isinstance(address, str):  # its value may hold a password
        raise ValueError(
            f"address must be a text such as 'sqlite:FILE', got a {type(address).__name__}"
        )
    kind = re.match(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)", address)
    if kind and kind.group() in FILES:
        if _NO_PATH.match(address, kind.end() + 1):
            raise ValueError(UNREADABLE)
        return address
    if not re.match(r"postgres(ql)?://|[^:/]*=", address):
        return f"{kind.group()}:…" if kind else "…"
    import psycopg.conninfo

    try:
        parts = psycopg.conninfo.conninfo_to_dict(address)
    except (psycopg.Error, UnicodeError):
        raise ValueError(UNREADABLE) from None  # the driver's message shows the password
    if "://" in address and "@" in address.partition("?")[2]:
        raise ValueError(UNREADABLE)
    fields = {name: str(parts.get(name) or "") for name in ("user", "host", "port", "dbname")}
    shown = [f"{name}={_shown(name, text, address)}" for name, text in fields.items() if text]
    return " ".join(shown)


def _shown(name: str, text: str, address: str) -> str:
    """A field for a message; ValueError if a delimiter in it stands in the address itself."""
    rest = text
    if name == "host":
        hosts = [host for host in text.split(",") if not _IPV6.fullmatch(host)]
        rest = "".join(hosts)
        try:
            b"".join(host.encode("idna") for host in hosts if not host.startswith("/"))
        except UnicodeError:
            raise ValueError(UNREADABLE) from None  # psycopg looks up no such host
    odd = re.sub(r"[0-9,]" if name == "port" else r"[\w./-]", "", rest)
    if name == "port" and odd or set(odd) & set(address):
        raise ValueError(UNREADABLE)
    return text if rest.isascii() and not odd else "…"
