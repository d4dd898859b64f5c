"""Whose state a shared table holds, noted in the table itself."""

from __future__ import annotations

from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.stores.tables import StateTable

_OWNER = "owner "


def claim(table: StateTable, owner: str) -> None:
    """Note in a table, as a hand-over of nothing, whose state it holds; refuse another's.

    Parameters
    ----------
    table : StateTable
        One that several processes share.
    owner : str
        What the offsets and rows in it stand for; the same for all that may merge into it.

    Raises
    ------
    ValueError
        When it is another's, or holds something of nobody known. Of two that claim a new table at
        once, at least one is refused, and then the table is nobody's.
    """
    ours = {_OWNER + owner}
    if _owners(table) - ours or (not _owners(table) and table.progress()):
        raise _refused()
    table.merge(Partials.empty(len(table.aggregate.components)), {}, token=(_OWNER + owner, 0))
    if _owners(table) != ours:
        raise _refused()


def _owners(table: StateTable) -> set[str]:
    return {name for name in table.handed() if name.startswith(_OWNER)}


def _refused() -> ValueError:
    return ValueError(
        "table must be new, or the one that this was begun with: the one given holds the state of "
        "another log, job or setting; choose another table (file or schema), or go on with that one"
    )
