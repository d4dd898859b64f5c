"""The folders and data files of the project, and fresh folders for a notebook."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from itertools import count
from pathlib import Path

from aftlib.core.checks import require_choice

MARKERS = ("notebooks", "pyproject.toml")
DATA_SETS = {
    "beijing_pm25": "µg/m³",
    "chicago_ridership": "thousand riders per day",
    "irish_wind": "knots",
    "simbench_load": "share of peak load",
}
"""Real sensors that come with the project, and the units of their samples."""
TITLES = {
    "beijing_pm25": "Beijing's stations",
    "chicago_ridership": "Chicago's riders",
    "irish_wind": "Irish wind",
    "simbench_load": "SimBench's load profiles",
}
"""Names of the `DATA_SETS` for readers."""


def project_root() -> Path:
    """Return the nearest folder that has the `MARKERS`, at or above ``AFT_HOME``.

    Without ``AFT_HOME`` the search begins at the working directory, then at the installed package.
    FileNotFoundError when no folder has them.
    """
    named = os.environ.get("AFT_HOME")
    starts = [Path(named).resolve()] if named else [Path.cwd(), Path(__file__).resolve()]
    for folder in (folder for start in starts for folder in (start, *start.parents)):
        if all((folder / marker).exists() for marker in MARKERS):
            return folder
    raise FileNotFoundError(
        f"no project folder (one with {' and '.join(MARKERS)}) at or above "
        f"{' or '.join(map(str, starts))}: change to a checkout of the project or set AFT_HOME to "
        "it"
    )


def data_dir() -> Path:
    """Return the folder of generated and cached inputs (it may not exist yet)."""
    return project_root() / "data"


def data_set(name: str) -> Path:
    """Return the file of one of the `DATA_SETS`; ``data/README.md`` has sources and licences.

    Rows are times and columns are sensors, in 32-bit floats.

    >>> data_set("irish_wind").name
    'irish_wind.parquet'
    """
    require_choice("name", name, DATA_SETS)
    return data_dir() / f"{name}.parquet"


def data_title(name: str) -> str:
    """Return the name for readers of one of the `DATA_SETS`, or of another file.

    >>> data_title("irish_wind"), data_title("my_sensors")
    ('Irish wind', 'my sensors')
    """
    return TITLES.get(name, name.replace("_", " "))


def beijing_pm25() -> Path:
    """Return the file of the real sensors that most notebooks use: PM2.5 at twelve stations."""
    return data_set("beijing_pm25")


class FreshFolders:
    """A temporary folder in which every ``folders / name`` is a new path that does not exist yet.

    A notebook's cell that uses such a path can run again, also after an interrupt. The folder is
    removed when the process that made it ends, unless it is killed.
    """

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="aft-"))
        self._numbers = count(1)
        atexit.register(_remove_own, self._root, os.getpid())

    def __truediv__(self, name: str) -> Path:
        return self._root / f"{name}-{next(self._numbers)}"


def _remove_own(folder: Path, owner: int) -> None:
    """Remove `folder` if this process is its owner, and not a fork that ends earlier."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
