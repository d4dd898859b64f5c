"""The data of figures and tables: captured while a notebook runs, numbered as in its report.

In a batch run, IPython loads this module into the kernel. Each frame that a cell shows then carries
its data next to its HTML. When the notebook ends, each frame that a variable holds is stored under
the variable's name: ``counts = …`` becomes ``counts.csv``.
"""

from __future__ import annotations

import copy
import io
import re
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from IPython.core.formatters import BaseFormatter

from aftlib.core.paths import write_whole
from aftlib.workbench.scorecard import MIME

if TYPE_CHECKING:
    import pandas as pd

TABLE = "application/vnd.aft.table+json"  # of a shown frame: its CSV, and the texts of its cells
PLOTLY = "application/vnd.plotly.v1+json"
PICTURES = ("image/svg+xml", "image/png", "image/jpeg")
CAPTURE = "aft-capture"  # tag of the cell that is run last and taken out again
MOST_CELLS = 1_000_000  # a larger frame is an input rather than a result
MOST_SHOWN = 50_000  # cells of a shown frame whose data a report carries
CAPTION = "caption"  # tag of the cell that explains a figure
WIDGET = "application/vnd.jupyter.widget-view+json"
_NAMES = (
    "alpha beta gamma delta varepsilon theta lambda mu nu pi rho sigma tau varphi chi psi omega "
    "Delta Sigma Phi Omega le ge approx - times infty"
)
_SYMBOLS = dict(zip("αβγδεθλμνπρστφχψωΔΣΦΩ≤≥≈−×∞", _NAMES.split(), strict=True))


@dataclass(frozen=True)
class Shown:
    """A figure or table of an executed notebook, with its number among its kind."""

    kind: str  # "figure" or "table"
    number: int  # from 1
    cell: int  # its position in the notebook
    output: int  # and in the cell's outputs
    data: Mapping[str, Any]  # by MIME type
    caption: str = ""  # of a figure, Markdown


def shown_in(content: nbformat.NotebookNode) -> list[Shown]:
    """Return the figures and tables of a notebook in the order in which a report shows them.

    A figure's caption is the Markdown cell tagged ``caption`` that follows the figure's cell.
    Scorecards are left out, because they are stored in ``claims.json``.
    """
    items: list[Shown] = []
    for cell, source in enumerate(content.cells):
        behind = content.cells[cell + 1] if cell + 1 < len(content.cells) else None
        caption = behind.source if behind and is_caption(behind) else ""
        for output, node in enumerate(source.get("outputs", [])):
            if kind := kind_of(node.get("data", {})):
                number = 1 + sum(shown.kind == kind for shown in items)
                about = caption if kind == "figure" else ""
                items.append(Shown(kind, number, cell, output, node.data, about))
    return items


def is_caption(cell: nbformat.NotebookNode) -> bool:
    """Return whether a cell explains the figure of the cell before it."""
    return cell.cell_type == "markdown" and CAPTION in cell.metadata.get("tags", [])


def kind_of(data: Mapping[str, Any]) -> str:
    """Return "figure", "table" or nothing for an output's data."""
    if WIDGET in data or MIME in data:
        return ""
    if PLOTLY in data:
        return "figure"
    if "text/html" in data:
        return "table" if "<table" in data["text/html"] else ""
    return "figure" if any(kind in data for kind in PICTURES) else ""


def table_csv(data: Mapping[str, Any]) -> str:
    """Return a captured table as CSV in full precision, its index as columns."""
    return data[TABLE]["csv"]


def table_latex(data: Mapping[str, Any]) -> str:
    """Return a captured table, as shown, as LaTeX for the package booktabs."""
    table = data[TABLE]
    heads, rows = table["rows"][: table["heads"]], table["rows"][table["heads"] :]
    number = re.compile(r"[-+−]?[\d,.]*\d(e[-+]?\d+)?\s*%?|nan|inf|[-–]?")
    columns = zip(*rows, strict=True) if rows else []
    kinds = ["r" if all(number.fullmatch(text) for text in column) else "l" for column in columns]
    lines = [" & ".join(map(latex_text, row)) + r" \\" for row in table["rows"]]
    lines[len(heads) : len(heads)] = [r"\midrule"] if heads else []
    body = [rf"\begin{{tabular}}{{{''.join(kinds)}}}", r"\toprule", *lines, r"\bottomrule"]
    comment = [f"% {table['caption']}"] if table["caption"] else []
    return "\n".join([*comment, *body, r"\end{tabular}", ""])


def latex_text(text: str) -> str:
    r"""Return `text` for LaTeX.

    >>> print(latex_text("ε ≤ 5 %, a_b"))
    $\varepsilon$ $\le$ 5 \%, a\_b
    """
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {character: f"\\{character}" for character in "&%$#_{}"} | {
        "–": "--",
        "✔": "+",
        "✘": "--",
    }
    special |= {s: f"${name}$" if name == "-" else f"$\\{name}$" for s, name in _SYMBOLS.items()}
    return "".join(special.get(character, character) for character in text)


class _TableFormatter(BaseFormatter):
    """Captures the data of each frame that a cell shows."""

    format_type = TABLE
    print_method = "_no_method_"
    _return_type = dict


def load_ipython_extension(shell: Any) -> None:
    """Capture each frame that a cell of this kernel shows, and show the headings as words.

    The words are the shared ones and `HEADINGS` of the module that the notebook calls `figures`, or
    else `experiments`.
    """
    from aftlib.workbench.style import SHARED_HEADINGS

    def words() -> Mapping[str, str]:
        modules = [shell.user_ns.get(name) for name in ("figures", "experiments")]
        headings = (each.HEADINGS for each in modules if hasattr(each, "HEADINGS"))
        own: dict[str, str] = next(headings, {})
        return SHARED_HEADINGS | own if own else {}

    def frame_html(frame: pd.DataFrame) -> str:
        word = partial(_word, words())
        named = frame.rename(columns=word).rename_axis(index=word, columns=word)
        return str(named._repr_html_())  # type: ignore[operator]

    formatters = shell.display_formatter.formatters
    table, html = _TableFormatter(parent=shell.display_formatter), formatters["text/html"]
    formatters[TABLE] = table
    for module in ("pandas", "pandas.core.frame"):
        frame_of = (module, "DataFrame")
        table.for_type_by_name(*frame_of, lambda frame: capture(in_words(frame.style, words())))
        html.for_type_by_name(*frame_of, frame_html)
    styler = ("pandas.io.formats.style", "Styler")
    table.for_type_by_name(*styler, lambda shown: capture(in_words(shown, words())))
    html.for_type_by_name(*styler, lambda shown: in_words(shown, words())._repr_html_())


def in_words(styler: Any, headings: Mapping[str, str]) -> Any:
    """Return a styled frame that shows the words of `headings` in place of the columns' names.

    The frame itself, and so its CSV, keeps the names.
    """
    word, worded = partial(_word, headings), copy.deepcopy(styler)
    for level in range(worded.columns.nlevels):
        if headings.keys() & set(worded.columns.get_level_values(level)):
            worded.format_index(word, axis=1, level=level)
    return worded.format_index_names(word, axis=0).format_index_names(word, axis=1)


def _word(headings: Mapping[str, str], label: Any) -> Any:
    return headings.get(label, label) if isinstance(label, str) else label


def capture(styler: Any) -> dict[str, Any] | None:
    """Return the data of a styled frame: its CSV, its cells as shown, head rows and caption."""
    frame = styler.data
    if frame.size > MOST_SHOWN:
        return None
    if all(styler.hide_index_):
        frame = frame.reset_index(drop=True)
    text = styler.to_string(delimiter="\x1f", sparse_index=False, sparse_columns=False)
    rows = [line.split("\x1f") for line in text.replace("&nbsp;", "").rstrip("\n").split("\n")]
    heads = len(rows) - len(frame) + len(styler.hidden_rows)
    caption = styler.caption if isinstance(styler.caption, str) else ""
    return {"csv": frame_csv(frame), "rows": rows, "heads": heads, "caption": caption}


def capture_cell(folder: Path) -> nbformat.NotebookNode:
    """Return a cell for the end of a notebook, which stores the notebook's frames in `folder`."""
    source = f"__import__({__name__!r}, fromlist=['_']).store_frames(globals(), {str(folder)!r})"
    return nbformat.v4.new_code_cell(source, metadata={"tags": [CAPTURE]})


def store_frames(variables: Mapping[str, Any], folder: str | Path) -> None:
    """Write each frame among `variables` as CSV into `folder`, named after its variable.

    Names with an underscore first, frames of over `MOST_CELLS` cells, and a second name of the same
    frame are left out. A frame that cannot be written is left out with a warning, because the
    verdicts of the run do not depend on it.
    """
    if "pandas" not in sys.modules:
        return  # then there are no frames
    import pandas as pd

    folder, seen = Path(folder), set()
    for name, value in [*variables.items()]:  # a copy, because the first warning adds a variable
        value = getattr(value, "data", None) if type(value).__name__ == "Styler" else value
        if name.startswith("_") or id(value) in seen or not isinstance(value, pd.DataFrame):
            continue
        if value.size <= MOST_CELLS:
            seen.add(id(value))
            try:
                write_whole(folder / f"{name}.csv", frame_csv(value))
            except (OSError, ValueError, TypeError) as error:
                warnings.warn(f"{name} is not stored: {error}", stacklevel=2)


def frame_csv(frame: pd.DataFrame) -> str:
    """Return `frame` as CSV: one name per column, and its index as columns unless it only counts.

    Texts that a spreadsheet would take for a formula begin with an apostrophe.
    """
    import pandas as pd

    names = [str(name) for name in frame.index.names if name is not None]
    columns = [
        " / ".join(str(part) for part in label if str(part)) if isinstance(label, tuple) else label
        for label in frame.columns
    ]
    plain = frame.set_axis(pd.Index(columns, dtype=object), axis=1)
    counts = isinstance(frame.index, pd.RangeIndex) and not names
    taken = any(name in columns for name in names)  # such as a column that is the index as well
    whole = plain.reset_index(drop=counts or taken)
    for i, kind in enumerate(whole.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            cells = [_no_formula(cell) for cell in whole.iloc[:, i]]
            whole.isetitem(i, pd.array(cells, dtype=object))  # also where cells are arrays
    whole.columns = whole.columns.map(_no_formula)
    return whole.to_csv(index=False, lineterminator="\n")


def _no_formula(cell: Any) -> Any:
    """Return a text with an apostrophe first if a spreadsheet would take it as a formula."""
    if not isinstance(cell, str) or not re.match(r"[=+@\t\r-]", cell):
        return cell
    number = re.fullmatch(r"[-+][\d.,]*\d(e[-+]?\d+)? *%?|-+|[-+](inf|nan)", cell)
    return cell if number else f"'{cell}"


def read_csv(text: str) -> pd.DataFrame:
    """Return the frame that `frame_csv` wrote."""
    import pandas as pd

    return pd.read_csv(io.StringIO(text)) if text.strip() else pd.DataFrame()
