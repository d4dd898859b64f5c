"""The tables that a run keeps: each frame that a variable of the notebook holds when it ends.

A notebook says which by naming them: ``counts = …`` is kept as ``counts.csv``, in full precision;
what begins with an underscore is not kept. Frames that are only shown are kept as
``output_12.csv`` when they are the output of the twelfth cell that ran.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat

if TYPE_CHECKING:
    import pandas as pd

SHOWN = "output_"  # and its cell's number
KEEPING = "aft-keeping"  # tag of the cell that is run last and taken out again
MOST_CELLS = 1_000_000  # a larger frame is an input rather than a result


def keeping_cell(folder: Path) -> nbformat.NotebookNode:
    """Return the cell that keeps the frames of the notebook which it ends."""
    source = f"__import__({__name__!r}, fromlist=['_']).keep_frames(globals(), {str(folder)!r})"
    return nbformat.v4.new_code_cell(source, metadata={"tags": [KEEPING]})


def keep_frames(variables: Mapping[str, Any], folder: str | Path) -> None:
    """Write each frame among `variables` as CSV into `folder`, named after its variable.

    ``Out``, in which IPython keeps what cells end with, has the frames that are only shown; a
    styled one is kept without its style. Left out are names with an underscore first, frames of
    over `MOST_CELLS` cells, and a second name of the same frame. One that cannot be written is left
    out with a warning: it makes no run fail.
    """
    if "pandas" not in sys.modules:
        return  # then there are no frames
    import pandas as pd

    folder, seen = Path(folder), set()
    shown = variables.get("Out", {}).items()
    named = [(name, value) for name, value in variables.items() if not name.startswith("_")]
    for name, value in [*named, *((f"{SHOWN}{count}", value) for count, value in shown)]:
        value = getattr(value, "data", None) if type(value).__name__ == "Styler" else value
        if id(value) in seen or not isinstance(value, pd.DataFrame):
            continue
        if value.size <= MOST_CELLS:
            seen.add(id(value))
            target = folder / f"{name}.csv"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                plain(value).to_csv(target, index=False)
            except Exception as error:  # the run went well: its claims count without this table
                if target.exists():
                    target.unlink()  # a part of it
                warnings.warn(f"{name} is not kept: {error}", stacklevel=2)


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Return `frame` with its index as columns, unless it only counts, and one name a column."""
    import pandas as pd

    names = [str(name) for name in frame.index.names if name is not None]
    columns = [
        " / ".join(str(part) for part in label if str(part)) if isinstance(label, tuple) else label
        for label in frame.columns
    ]
    made = frame.set_axis(pd.Index(columns, dtype=object), axis=1)
    counts = isinstance(frame.index, pd.RangeIndex) and not names
    taken = any(name in columns for name in names)  # such as a column that is the index as well
    return made.reset_index(drop=counts or taken)


def read_kept(folder: Path) -> dict[str, pd.DataFrame]:
    """Return the tables that were kept in `folder`, by name; none when there is no such folder."""
    import pandas as pd

    found = {}
    for path in sorted(folder.glob("*.csv")):
        try:
            found[path.stem] = pd.read_csv(path)
        except pd.errors.EmptyDataError:  # a frame without columns
            found[path.stem] = pd.DataFrame()
    return found


def keys_of(frame: pd.DataFrame) -> list[str]:
    """Return the columns that tell the rows of `frame` apart: the first ones that do together.

    Tidy frames begin with what was chosen and end with what was found. Empty when even all columns
    do not tell the rows apart.
    """
    columns = [str(column) for column in frame.columns]
    for count in range(1, len(columns) + 1):
        if not frame.duplicated(columns[:count]).any():
            return columns[:count]
    return []
