"""Runs side by side: their inputs, their results, and where these differ by more than chance."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import click

from aftlib.core.paths import reports_dir, write_whole
from aftlib.reports.cli import clear_errors
from aftlib.reports.data_out import PLOTLY, shown_in
from aftlib.reports.documents import all_claims
from aftlib.reports.figure_data import at_label, states
from aftlib.reports.html import plotly_box, share_plotly
from aftlib.reports.runs import Run, file_stem, find_run, runs_dir
from aftlib.workbench.pages import SYMBOLS, render, shown, shown_interval, start_time

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 20  # rows of a table whose differences are shown
_OVERLAID = ("scatter", "scattergl", "bar")
_DASHES, _PATTERNS = ("solid", "dash", "dot", "longdash"), ("", "/", "x", ".")
_B = "\0B"  # suffix of the second table's columns; no column's own name ends with it


@dataclass(frozen=True)
class Line:
    """One thing that was compared, with a text and one state for each run."""

    name: str
    texts: tuple[str, ...]
    state: str  # "changed", "same", or for claims and columns also "apart": beyond the intervals
    rows: list[dict[Any, Any]] = field(default_factory=list)  # of a table: those that differ most


def inputs(runs: Sequence[Run], part: str) -> list[Line]:
    """Compare the records' `part`, such as ``parameters``: the changed values first.

    ``run`` stands for the commit, the changes on top of it, the machine and the time taken.
    A missing value is "–".
    """
    if part == "run":
        names = ("name", "commit", "dirty", "machine", "started", "seconds")
        values = [{name: run.record[name] for name in names if name in run.record} for run in runs]
    else:
        values = [run.record.get(part, {}) for run in runs]
    lines = []
    for name in dict.fromkeys(name for each in values for name in each):
        texts = tuple(_text(each[name]) if name in each else "–" for each in values)
        lines.append(Line(name, texts, "changed" if len(set(texts)) > 1 else "same"))
    return sorted(lines, key=lambda line: line.state != "changed")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(map(_text, value.values()))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def claims(runs: Sequence[Run]) -> list[Line]:
    """Compare the claims: first where a verdict changed, then where intervals do not overlap.

    "changed" is another verdict, "apart" the same one with intervals that do not overlap.
    """
    by_run = [{claim["id"]: claim for claim in run.record["claims"]} for run in runs]
    lines = []
    for id in (id for id in all_claims() if any(id in claims for claims in by_run)):
        mine = [claims.get(id) for claims in by_run]
        verdicts = {claim["verdict"] if claim else None for claim in mine}
        intervals = [claim["interval"] for claim in mine if claim and claim["interval"]]
        apart = max((low for low, _ in intervals), default=0) > min(
            (high for _, high in intervals), default=0
        )
        state = "changed" if len(verdicts) > 1 else "apart" if apart else "same"
        texts = tuple(
            f"{SYMBOLS[claim['verdict']]} {shown(claim['measured'])}"
            + (f" {shown_interval(claim['interval'])}" if claim["interval"] else "")
            if claim
            else "–"
            for claim in mine
        )
        lines.append(Line(id, texts, state))
    return sorted(lines, key=lambda line: ("changed", "apart", "same").index(line.state))


def tables(runs: Sequence[Run]) -> list[Line]:
    """Compare the tables of each later run with the first's, column by column.

    Rows are joined on their key columns. Where a column has an interval, rows differ ("apart") when
    the intervals do not overlap. Other rows differ ("changed") when their values do, or when one
    table lacks the row or column.
    """
    first, *others = [run.tables() for run in runs]
    lines = []
    for run, other in zip(runs[1:], others, strict=True):
        for name in sorted(first.keys() | other.keys()):
            title = name + f" of {run.name}" * (len(runs) > 2)
            if name not in first or name not in other:
                here = runs[0].name if name in first else run.name
                lines.append(Line(title, (f"only in {here}",), "changed"))
            else:
                lines += compare_frames(title, first[name], other[name])
    order = ("apart", "changed", "same")
    return sorted(lines, key=lambda line: order.index(line.state))


def compare_frames(name: str, a: pd.DataFrame, b: pd.DataFrame) -> list[Line]:
    """Return a line for each column that `a` or `b` has besides its keys, see `tables`."""
    processes = dict.fromkeys(c for c in [*a, *b] if re.fullmatch(r"(.*_)?pid", str(c)))
    if processes:  # another number in each run
        lines = [Line(f"{name}.{c}", ("process ids are not compared",), "same") for c in processes]
        rest = (frame.drop(columns=[*processes], errors="ignore") for frame in (a, b))
        return compare_frames(name, *rest) + lines
    keys = max(keys_of(a), keys_of(b), key=len)
    known = all(key in a and key in b for key in keys)
    if not keys or not known or a.duplicated(keys).any() or b.duplicated(keys).any():
        return [Line(name, ("no columns identify the rows of both",), "changed")]
    try:
        joined = a.merge(b, on=keys, suffixes=("", _B))
    except ValueError:  # a key that is a number in one and a text in the other
        joined = a.head(0)
    if joined.empty:
        return [Line(name, (f"no rows in common by {', '.join(keys)}",), "changed")]
    alone = len(a) + len(b) - 2 * len(joined)
    common = f"{len(joined)} rows by {', '.join(keys)}" + (f", {alone} in one only" * bool(alone))

    bounds = intervals_of(a)
    skipped = {*keys, *(bound for pair in bounds.values() for bound in pair)}
    numbers, theirs = ({*frame.select_dtypes("number")} for frame in (a, b))
    odd = {c: "A" if c in a else "B" for c in [*a, *b] if (c in a) != (c in b)}
    lines = [Line(f"{name}.{c}", (f"only in {one}",), "changed") for c, one in odd.items()]
    for column in (c for c in a if c in b and c not in skipped):
        if (column in numbers) != (column in theirs):
            lines.append(Line(f"{name}.{column}", ("numbers in one only",), "changed"))
            continue
        x, y = joined[column], joined[f"{column}{_B}"]
        differ = ~((x == y) | (x.isna() & y.isna()))
        state = "changed" if differ.any() or alone else "same"
        text = f"{common}: {int(differ.sum())} differ"
        if column not in numbers:  # texts and booleans
            lines.append(Line(f"{name}.{column}", (text,), state))
            continue
        if column in bounds and all(f"{bound}{_B}" in joined for bound in bounds[column]):
            low, high = (joined[bound] for bound in bounds[column])
            other_low, other_high = (joined[f"{bound}{_B}"] for bound in bounds[column])
            apart = (low > other_high) | (other_low > high)
            unsure = differ & (low + high + other_low + other_high).isna()
            state = "apart" if apart.any() else "changed" if unsure.any() or alone else "same"
            text += f", {int(apart.sum())} beyond their intervals"
            differ = apart if apart.any() else differ
        relative = ((y - x) / x.abs().where(x != 0)).where(differ)
        largest = relative.abs().sort_values(ascending=False).head(MOST_ROWS).dropna().index
        if len(largest):
            text += f", by {relative[largest[0]]:+.3g} of A at most"
        rows = joined.loc[largest, keys].assign(A=x, B=y, change=relative).to_dict("records")
        lines.append(Line(f"{name}.{column}", (text,), state, rows))
    return lines


def keys_of(frame: pd.DataFrame) -> list[str]:
    """Return the fewest first columns of `frame` that identify its rows; none if rows are equal.

    Tidy frames begin with the chosen values and end with the measured ones.
    """
    columns = [str(column) for column in frame.columns]
    for count in range(1, len(columns) + 1):
        if not frame.duplicated(columns[:count]).any():
            return columns[:count]
    return []


def intervals_of(frame: pd.DataFrame) -> dict[str, tuple[str, str]]:
    """Return the columns of `frame` that have an interval, with its two columns.

    ``x_low`` and ``x_high`` are the interval of ``x``. If there is no column ``x``, as for bare
    ``low`` and ``high``, they are the interval of the one column of numbers that lies between them
    in all rows.
    """
    intervals = {}
    numbers = [str(column) for column in frame.select_dtypes("number")]
    for low in (name for name in numbers if name == "low" or name.endswith("_low")):
        base, high = low.removesuffix("low").removesuffix("_"), f"{low.removesuffix('low')}high"
        if high not in numbers:
            continue
        inside = [
            name
            for name in numbers
            if name not in (low, high) and frame[name].between(frame[low], frame[high]).all()
        ]
        own = base if base in numbers else inside[0] if len(inside) == 1 else None
        if own is not None:
            intervals[own] = (low, high)
    return intervals


def comparison_lines(runs: Sequence[Run]) -> list[str]:
    """Return the comparison of `runs` as lines of text; equal values are only counted."""
    lines = []
    for label, run in zip(ascii_uppercase, runs, strict=False):
        lines.append(f"{label}  {run.name}  {start_time(run.record)}")
    for title, part in _parts(runs).items():
        same = sum(line.state == "same" for line in part)
        lines.append(f"\n{title}: {len(part) - same} differ, {same} the same")
        width = max((len(line.name) for line in part), default=0)
        for line in part:
            if line.state != "same":
                mark = "!" if line.state == "apart" or title == "Claims" else " "
                lines.append(f"{mark} {line.name:<{width}}  {'  →  '.join(line.texts)}")
    return lines


def _parts(runs: Sequence[Run]) -> dict[str, list[Line]]:
    return {
        "Parameters": inputs(runs, "parameters"),
        "Versions": inputs(runs, "versions"),
        "Run": inputs(runs, "run"),
        "Claims": claims(runs),
        "Tables": tables(runs),
    }


def overlay(figures: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> dict[str, Any] | None:
    """Return one Plotly figure with the traces of all `figures`, each trace with its label.

    The layout is that of the first figure. A slider has the positions that all figures share; if
    they share none, each figure is shown at its first position. None when a trace is neither a line
    nor a bar.
    """
    if any(trace.get("type", "scatter") not in _OVERLAID for f in figures for trace in f["data"]):
        return None
    starts = [at_label(figure) for figure in figures]
    name, _, begin = starts[0][1].rpartition(" = ")
    every = [{"".join(at.values()): traces for at, traces in states(f)} for f in figures]
    shared = [at for at in every[0] if all(at in by_position for by_position in every)]
    if begin not in shared:
        every, shared = [{begin: figure["data"]} for figure, _ in starts], [begin]
    traces = [
        _labelled(trace, number, labels[number])
        for number, by_position in enumerate(every)
        for trace in by_position[begin]
    ]
    layout = {**figures[0].get("layout", {}), "sliders": []}
    menus = layout.get("updatemenus") or []
    scales = [m for m in menus if all(b.get("method") == "relayout" for b in m["buttons"])]
    layout["updatemenus"] = scales
    if len(shared) > 1:
        steps = []
        for at in shared:
            data = [trace for by_position in every for trace in by_position[at]]
            keys = [k for k in ("x", "y", "error_y", "text") if any(k in trace for trace in data)]
            changes = {key: [trace.get(key) for trace in data] for key in keys}
            steps.append({"label": at, "method": "restyle", "args": [changes]})
        prefix = {"prefix": f"{name} = "}
        active = shared.index(begin)
        layout["sliders"] = [{"active": active, "currentvalue": prefix, "steps": steps}]
    return {"data": traces, "layout": layout}


def _labelled(trace: Mapping[str, Any], number: int, label: str) -> dict[str, Any]:
    """Return a trace of figure `number`: its label is in the name, the number in the look."""
    name = f"{trace['name']} ({label})" if trace.get("name") else label
    if trace.get("type") == "bar":
        pattern = {"shape": _PATTERNS[number % len(_PATTERNS)]}
        look = {"marker": {**(trace.get("marker") or {}), "pattern": pattern}}
    else:
        dash = {"dash": _DASHES[number % len(_DASHES)]} if number else {}
        look = {"line": {**(trace.get("line") or {}), **dash}}
    return {**trace, **look, "name": name}


def write_comparison(runs: Sequence[Run], overlaid: bool = False) -> Path:
    """Write the page that shows `runs` side by side, and return its path.

    The page has the text of `comparison_lines`, the rows that differ most, and the figures. If
    `overlaid`, the runs' figures of lines or bars are drawn as one figure. ValueError if `overlaid`
    and the runs are not of one notebook and section.
    """
    parts = {(run.notebook, run.record.get("section", "")) for run in runs}
    if overlaid and len(parts) > 1:
        names = " and ".join(" ".join(part).strip() for part in sorted(parts))
        raise ValueError(
            f"overlaid runs must be of one notebook and section, got {names}: leave out --overlay"
        )
    target = runs_dir() / "compare" / f"{file_stem([run.folder.name for run in runs])}.html"
    parts_shown = [shown_in(run.executed().content) for run in runs]
    drawn = [[one.data[PLOTLY] for one in each if PLOTLY in one.data] for each in parts_shown]
    labels = ascii_uppercase[: len(runs)]
    figures = []
    for row in zip_longest(*drawn):
        both = overlay(row, labels) if overlaid and None not in row else None
        figures.append([plotly_box(f) if f else "" for f in ([both] if both else row)])
    page = render(
        "compare.html.j2",
        runs=runs,
        labels=labels,
        home="../../",
        parts=_parts(runs),
        statements={id: claim.statement for id, claim in all_claims().items()},
        figures=figures,
    )
    share_plotly(reports_dir())
    return write_whole(target, page)


@click.command("compare")
@click.argument("wanted", metavar="RUN RUN [RUN]...", nargs=-1)
@click.option("--overlay", is_flag=True, help="Draw each figure once, with the lines of all runs.")
def command(wanted: tuple[str, ...], overlay: bool) -> None:
    """Put stored runs side by side: parameters, versions, claims, the tables and figures.

    A RUN is a key, NOTEBOOK/KEY or a notebook's name for its newest run. Tables are joined on the
    columns that identify their rows; `!` marks intervals that do not overlap, and other verdicts.
    """
    with clear_errors():
        runs = [find_run(name) for name in wanted]
        if (count := len({run.name for run in runs})) < 2:
            raise ValueError(f"give at least two different runs, got {count}: see `aft runs`")
        if len(runs) > 26:
            raise ValueError(f"give at most 26 runs, labelled A to Z, got {len(runs)}")
        click.echo("\n".join(comparison_lines(runs)))
        page = write_comparison(runs, overlay)
    click.echo(f"\nPage: {page}")
