"""The data of a report's figures and tables as DataFrames."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bs4 import BeautifulSoup, Tag

from aftlib.command.batch import Executed, find_notebook
from aftlib.command.pages import PLOTLY
from aftlib.core.paths import project_root
from aftlib.notebook.scorecard import MIME


def report_data(report: str | Path) -> dict[str, pd.DataFrame]:
    """Return the data behind a report, as it was drawn.

    Parameters
    ----------
    report
        A notebook that ``aft reproduce`` has run (``"01"``, ``"D1"``), or the executed notebook
        beside any report, such as ``"reports/own/01_approximately_once-m=4-3f9a2c1d.ipynb"``.

    Returns
    -------
    dict
        Frames by name, in the report's order. ``"figure 1"`` has the columns ``series``, ``x`` and
        ``y``; ``low`` and ``high`` where there are error bars; ``panel`` where there are several;
        and one named after the slider, with the data of all its positions. Numbers are those that
        were drawn, not rounded. ``"table 1"`` has the table's columns as they are printed; where
        all cells are numbers they are numbers again. ``"claims"`` has one row per claim.
        ``frame.attrs["title"]`` is the title, and ``attrs["x"]`` and ``attrs["y"]`` are the titles
        of a figure's axes.

    Raises
    ------
    ValueError
        When there is no such notebook, or it has not run yet.

    Examples
    --------
    .. code-block:: python

        figures = report_data("01")
        figures["figure 3"].to_csv("estimable.csv")
        print(figures["table 1"].to_latex(index=False))
    """
    frames: dict[str, pd.DataFrame] = {}
    counts = {"figure": 0, "table": 0}
    claims: dict[str, dict[str, Any]] = {}
    for data in _find_executed(report).outputs:
        if MIME in data:
            claims |= {line["id"]: line for line in data[MIME]}
            continue
        kind = "figure" if PLOTLY in data else "table"
        made = [read_figure(data[PLOTLY])] if kind == "figure" else []
        for frame in made or read_tables(data.get("text/html", "")):
            counts[kind] += 1
            frames[f"{kind} {counts[kind]}"] = frame
    if claims:
        frames["claims"] = pd.DataFrame(list(claims.values()))
    return frames


def read_figure(figure: Mapping[str, Any]) -> pd.DataFrame:
    """Return the points of a Plotly figure, one row each."""
    layout = figure.get("layout", {})
    rows = []
    panels = {trace.get("xaxis", "x") for trace in figure.get("data", [])}
    for stop, traces in _positions(figure):
        for number, trace in enumerate(traces, 1):
            points = _read_points(trace)
            points.insert(0, "series", trace.get("name") or f"series {number}")
            if len(panels) > 1:
                points.insert(0, "panel", int(trace.get("xaxis", "x")[1:] or 1))
            if stop:
                points.insert(0, *stop)
            rows.append(points)
    frame = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()
    frame.attrs = {"title": layout.get("title", {}).get("text", "")}
    for axis in ("x", "y"):
        frame.attrs[axis] = layout.get(f"{axis}axis", {}).get("title", {}).get("text", "")
    return frame


def read_tables(html: str) -> list[pd.DataFrame]:
    """Return the tables in a page's HTML."""
    tables = BeautifulSoup(html, "html.parser").find_all("table")
    return [_as_frame(table) for table in tables if table.find(["td", "th"])]


def _find_executed(report: str | Path) -> Executed:
    """Return the executed notebook that `report` names."""
    if (executed := Executed.read(Path(report))) is not None:
        return executed
    notebook, document = find_notebook(str(report))
    executed = Executed.read(project_root() / "reports" / notebook.name) if document else None
    if executed is None:
        command = f"aft reproduce --only {document.id}" if document else f"aft run {report}"
        raise ValueError(
            f"report must have run, got {str(report)!r}, which has not: call `{command}` first, or "
            "name the executed notebook beside its page"
        )
    return executed


def _positions(
    figure: Mapping[str, Any],
) -> Iterator[tuple[tuple[str, Any] | None, Sequence[Mapping[str, Any]]]]:
    """Yield, for each position of a figure's slider, its name with its value, and the traces."""
    traces = figure.get("data", [])
    sliders = figure.get("layout", {}).get("sliders", [])
    if not sliders:
        yield None, traces
        return
    name = sliders[0].get("currentvalue", {}).get("prefix", "").rstrip(" =:") or "position"
    for step in sliders[0].get("steps", []):
        changed = [
            trace | {key: values[number] for key, values in step["args"][0].items()}
            for number, trace in enumerate(traces)
        ]
        yield (name, _as_number(step["label"])), changed


def _read_points(trace: Mapping[str, Any]) -> pd.DataFrame:
    """Return x and y of a trace, with the ends of its error bars."""
    points = {axis: _decode(trace.get(axis)) for axis in ("x", "y")}
    bars = trace.get("error_y") or {}
    up = _decode(bars.get("array"))
    if len(up) and len(up) == len(points["y"]):
        down = _decode(bars.get("arrayminus")) if bars.get("arrayminus") is not None else up
        middle = np.asarray(points["y"], float)
        points["low"] = middle - np.asarray(down, float)
        points["high"] = middle + np.asarray(up, float)
    return pd.DataFrame({name: pd.Series(values) for name, values in points.items()})


def _decode(values: Any) -> Any:
    """Return the array that Plotly stores as a list, or as bytes in base 64."""
    if isinstance(values, Mapping):
        array = np.frombuffer(base64.b64decode(values["bdata"]), dtype=values["dtype"])
        return array.reshape([int(n) for n in str(values.get("shape", -1)).split(",")])
    return [] if values is None else list(values)


def _as_frame(table: Tag) -> pd.DataFrame:
    """Return a table's rows as a frame; headings above each other become one name."""
    rows = [row.find_all(["td", "th"]) for row in table.find_all("tr")]
    grid: dict[tuple[int, int], str] = {}
    for down, cells in enumerate(rows):
        across = 0
        for cell in cells:
            while (down, across) in grid:
                across += 1
            height = int(str(cell.get("rowspan", "1")))
            width = int(str(cell.get("colspan", "1")))
            for below, beside in np.ndindex(height, width):
                grid[down + below, across + beside] = " ".join(cell.get_text().split())
            across += width
    headings = 0
    while headings < len(rows) and all(cell.name == "th" for cell in rows[headings]):
        headings += 1
    columns: list[pd.Series[Any]] = []
    for column in range(1 + max(across for _, across in grid)):
        texts = [grid.get((line, column), "") for line in range(len(rows))]
        name = " ".join(dict.fromkeys(text for text in texts[:headings] if text))
        numbers = [_as_number(text) for text in texts[headings:]]
        numeric = not any(isinstance(number, str) for number in numbers)
        columns.append(pd.Series(numbers if numeric else texts[headings:], name=name or "name"))
    frame = pd.concat(columns, axis=1)
    caption = table.find("caption")
    frame.attrs = {"title": " ".join(caption.get_text().split()) if caption else ""}
    return frame


def _as_number(text: str) -> int | float | str:
    """Return the number that a cell or label shows; a dash is nan, and other texts stay."""
    plain = text.replace(",", "").replace("−", "-").strip()
    if plain in ("–", ""):
        return float("nan")
    for kind in (int, float):
        try:
            return kind(plain)
        except ValueError:
            continue
    return text
