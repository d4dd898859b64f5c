"""One notebook over a grid of values: planned and checked before the first run, then one page.

The store of runs makes it resumable: a stored run is not repeated.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, product
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import yaml

from aftlib.core.paths import reports_dir, write_whole
from aftlib.reports.cli import attend, clear_errors, overrides, parameters_option, section_option
from aftlib.reports.data_out import frame_csv
from aftlib.reports.documents import all_claims
from aftlib.reports.execute import OnCell, run_once
from aftlib.reports.html import plotly_box, share_plotly
from aftlib.reports.index import SEED, stability
from aftlib.reports.notebook import Notebook, find_notebook, profile_parameters
from aftlib.reports.reproduce import conclude
from aftlib.reports.runs import Executed, Run, all_runs, file_stem, runs_dir, stored_run
from aftlib.workbench.pages import duration, render
from aftlib.workbench.parameters import PROFILES
from aftlib.workbench.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, styled

_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, GREY)
_HEIGHT = 250  # pixels of a small multiple


@dataclass(frozen=True)
class Sweep:
    """The runs of one notebook that a command requests, each with checked parameters."""

    notebook: Notebook
    varied: tuple[str, ...]  # parameters that were given several values
    points: tuple[dict[str, Any], ...]  # parameters of each run

    @property
    def page(self) -> Path:
        """The path of the sweep's page, next to the runs; the same sweep has the same path."""
        section = [self.notebook.section] if self.notebook.section else []
        text = json.dumps([self.varied, self.points, *section], sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:6]
        name = file_stem(["sweep", *self.varied, digest])
        return runs_dir() / self.notebook.name / f"{name}.html"

    def label(self, point: Mapping[str, Any]) -> str:
        """Return the varied values of `point` as text."""
        return " ".join(f"{name}={point[name]}" for name in self.varied) or self.notebook.name


def plan_sweep(
    notebook: Notebook, given: Mapping[str, str], together: bool = False, profile: str = ""
) -> Sweep:
    """Return the sweep over texts like ``"0.1,0.12"`` by name; every value is checked.

    All combinations are run, or, with `together`, the first values, the second ones, and so on.
    Other parameters have the values of `profile`. ValueError where a value does not fit, a run is
    given twice, or `together` gets parameters with different numbers of values.
    """
    values = {
        name: [notebook.check({name: text})[name] for text in split_values(texts)]
        for name, texts in given.items()
    }
    several = {name: len(items) for name, items in values.items() if len(items) > 1}
    if together and len(set(several.values())) > 1:
        counts = ", ".join(f"{name} has {count}" for name, count in several.items())
        raise ValueError(f"--zip needs the same number of values of each parameter, but {counts}")
    rows: Iterable[tuple[Any, ...]] = product(*values.values())
    if together:
        length = max(several.values(), default=1)
        rows = zip(*(v * length if len(v) == 1 else v for v in values.values()), strict=True)
    common = profile_parameters(profile, notebook) if profile else {}
    points = tuple(common | dict(zip(values, row, strict=True)) for row in rows)
    sweep = Sweep(notebook, tuple(several), points)
    seen: set[str] = set()
    for point in points:
        if (text := json.dumps(point)) in seen:
            raise ValueError(f"{sweep.label(point)} is given twice; give each once")
        seen.add(text)
        try:
            notebook.check_values(point)
        except ValueError as error:
            raise ValueError(f"{sweep.label(point)}: {error}") from error
    return sweep


def split_values(text: str) -> list[str]:
    """Return the values that commas separate, as in YAML: not those in brackets or quotes.

    Quotes around a value are no part of it. ValueError where YAML cannot read it.

    >>> split_values("[1, 2],'a,b',it's")
    ['[1, 2]', 'a,b', "it's"]
    """
    try:
        items: Any = yaml.compose(f"[{text}]").value  # type: ignore[union-attr]
    except yaml.YAMLError as error:
        raise ValueError(
            f"values must be separated by commas, got {text!r} "
            f"({getattr(error, 'problem', error)}): put a text with commas or brackets in quotes"
        ) from error
    within = [text[item.start_mark.index - 1 : item.end_mark.index - 1] for item in items]
    return [
        item.value if getattr(item, "style", None) else own
        for item, own in zip(items, within, strict=True)
    ] or [text]


def time_of_one(sweep: Sweep) -> tuple[float | None, bool]:
    """Return the seconds of an earlier run, None if there is none, and whether it was similar.

    Similar runs differ from the sweep's only in the varied parameters. If there is none, other runs
    of the notebook count.
    """
    notebook, (point, *_) = sweep.notebook, sweep.points
    records = [run.record for run in all_runs() if run.notebook == notebook.name]
    records = [record for record in records if record.get("section", "") == notebook.section]
    report = Executed.find(reports_dir() / f"{notebook.name}.ipynb")
    if report and not notebook.section:
        records.append(report.record)
    took = [(r["parameters"], r["seconds"]) for r in records if not r["error"]]
    fixed = [item for item in notebook.values(point).items() if item[0] not in sweep.varied]
    alike = [t for values, t in took if all(values.get(name) == value for name, value in fixed)]
    times = alike or [seconds for _, seconds in took]
    return statistics.median(times) if times else None, bool(alike)


def write_sweep(sweep: Sweep) -> Path:
    """Write the page of `sweep` with its runs so far: small multiples, a table and a CSV file."""
    runs = [(point, stored_run(sweep.notebook, point, failed=True)) for point in sweep.points]
    done = [(point, run) for point, run in runs if run and not run.record["error"]]
    measured = _measurements(sweep, done)
    ids = [id for id in all_claims() if id in set(measured["claim"])]
    rows = []
    for point, run in runs:
        claims = {claim["id"]: claim for claim in run.record["claims"]} if run else {}
        failed = run is not None and run.record["error"]
        rows.append(
            {
                "values": [point[name] for name in sweep.varied],
                "run": run,
                "took": duration(run.record["seconds"]) if run else "",
                "claims": [claims.get(id) for id in ids] if run and not failed else [],
            }
        )
    figures = [_multiple(measured[measured["claim"] == id], sweep.varied) for id in ids]
    data = write_whole(sweep.page.with_suffix(".csv"), measured.to_csv(index=False))
    page = render(
        "sweep.html.j2",
        notebook=sweep.notebook.name,
        varied=sweep.varied,
        rows=rows,
        ids=ids,
        statements={id: all_claims()[id].statement for id in ids},
        stable={id: stability(run.verdicts.get(id, "") for _, run in done) for id in ids},
        over="over seeds" if sweep.varied == (SEED,) else "over all runs",
        figures=[plotly_box(figure) for figure in figures if figure],
        data=data.name,
        home="../../",
    )
    share_plotly(reports_dir())
    return write_whole(sweep.page, page)


def write_table(sweep: Sweep, name: str) -> Path:
    """Write the table `name` of all runs so far as one CSV file next to the page; return its path.

    The varied values come first, as columns, then the key of the run and the table's own columns. A
    varied value that has the name of one of them is called ``NAME (parameter)``. ValueError when a
    run has no such table.
    """
    parts = [pd.DataFrame()]
    for point in sweep.points:
        run = stored_run(sweep.notebook, point)
        if run is None:
            continue
        tables = run.tables()
        if name not in tables:
            raise ValueError(
                f"run {run.name} has no table {name!r}: give one of {', '.join(tables) or 'none'}"
            )
        table = tables[name]
        labels = {n: f"{n} (parameter)" if n in table else n for n in sweep.varied}
        values = {
            labels[n]: str(v) if isinstance(v, list) else v for n, v in point.items() if n in labels
        }
        table = table.assign(**values, run=run.folder.name)
        parts.append(table[[*values, "run", *tables[name].columns]])
    target = sweep.page.with_name(f"{sweep.page.stem}-{file_stem([name])}.csv")
    return write_whole(target, frame_csv(pd.concat(parts, ignore_index=True)))


def _measurements(sweep: Sweep, done: Sequence[tuple[Mapping[str, Any], Run]]) -> pd.DataFrame:
    """Return one row per run and claim: the varied values, the measured value and its verdict."""
    rows = []
    for point, run in done:
        for claim in run.record["claims"]:
            low, high = claim["interval"] or (None, None)
            values = [point[name] for name in sweep.varied]
            about = [run.folder.name, claim["id"], claim["measured"], low, high, claim["verdict"]]
            rows.append([*values, *about])
    names = [*sweep.varied, "run", "claim", "measured", "low", "high", "verdict"]
    return pd.DataFrame(rows, columns=names, dtype=object)


def _multiple(claim: pd.DataFrame, varied: Sequence[str]) -> dict[str, Any] | None:
    """Return the values of one claim over the first varied parameter, a line for the others.

    None where nothing was varied, or no measured value is a number.
    """
    axes = sorted(varied, key=lambda name: name == SEED)  # the seed last
    numbers = claim[[isinstance(value, int | float) for value in claim["measured"]]]
    if not axes or numbers.empty:
        return None
    x, *others = axes
    if not all(isinstance(value, int | float) for value in numbers[x]):
        numbers = numbers.assign(**{x: numbers[x].map(str)})
    names = [n for n in others if n != SEED]
    lines = [", ".join(f"{n} = {row[n]}" for n in names) for row in numbers.to_dict("records")]
    figure = go.Figure()
    groups = numbers.groupby(np.array(lines), sort=False)
    for (name, line), colour in zip(groups, cycle(_COLOURS), strict=False):
        line = line if isinstance(line[x].iloc[0], str) else line.sort_values(x)
        low, high = (line[bound].fillna(line["measured"]) for bound in ("low", "high"))
        bars = {"array": high - line["measured"], "arrayminus": line["measured"] - low}
        symbols = ["circle" if verdict == "holds" else "x" for verdict in line["verdict"]]
        figure.add_scatter(
            x=line[x].tolist(), y=line["measured"].tolist(), name=name, line={"color": colour},
            error_y={side: bar.tolist() for side, bar in bars.items()}, marker={"symbol": symbols},
            mode="markers" if SEED in others else "lines+markers", showlegend=len(groups) > 1,
        )  # fmt: skip
    about = all_claims()[claim["claim"].iloc[0]]
    unit = f" <span style='font-size: 12px'>{about.unit}</span>" if about.unit else ""
    styled(figure, f"{about.id}{unit}", x, "", _HEIGHT)
    figure.update_layout(margin={"l": 55, "r": 10, "t": 40, "b": 45}, hovermode="closest")
    return figure.to_plotly_json() | {"config": {"displayModeBar": False}}


@click.command("sweep")
@click.argument("notebook")
@parameters_option
@section_option
@click.option(
    "--table",
    "tables",
    metavar="NAME",
    multiple=True,
    help="Write this table of all runs as one CSV file.",
)
@click.option(
    "--zip", "together", is_flag=True, help="Combine the first values of all, the second, …"
)
@click.option("--jobs", type=click.IntRange(min=1), default=1, help="Runs made at the same time.")
@click.option("--profile", type=click.Choice(PROFILES), help="Sets the values that are not given.")
def command(
    notebook: str,
    parameters: tuple[str, ...],
    section: str,
    tables: tuple[str, ...],
    together: bool,
    jobs: int,
    profile: str | None,
) -> None:
    """Run one NOTEBOOK over values, such as -p epsilon=0.1,0.12 -p t_sla=50,100.

    Every combination is run once and stored: the same command goes on after an interrupt. A failed
    run is a row of the page. `--table counts` writes the tables `counts` of all runs as one CSV
    file. Notebooks that start Spark run one at a time, whatever the value of --jobs.
    """

    def run(point: dict[str, Any], on_cell: OnCell) -> Executed:
        executed = run_once(nb, point, on_cell)
        write_sweep(planned)
        return executed

    with clear_errors():
        nb = find_notebook(notebook, section)
        for table in tables:
            nb.require_table(table)
        planned = plan_sweep(nb, overrides(parameters), together, profile or "")
        jobs = 1 if nb.starts_spark else jobs
        todo = [point for point in planned.points if stored_run(nb, point) is None]
        one, alike = time_of_one(planned)
        time = f"about {duration(one * -(-len(todo) // jobs))}" if one else "of unknown duration"
        time += ", estimated from runs with other values" if one and not alike else ""
        stored = len(planned.points) - len(todo)
        click.echo(
            f"{len(planned.points)} run{'s' * (len(planned.points) > 1)}: "
            f"{stored} stored already, {len(todo)} to do, {time}."
        )
        works = {planned.label(point): partial(run, point) for point in todo}
        executed = attend(works, jobs) if works else []
        page = write_sweep(planned)
        written = [write_table(planned, name) for name in tables]
        conclude([])
    for path in written:
        click.echo(f"Table: {path}")
    click.echo(f"Sweep: {page}")
    sys.exit(1 if any(ran.error for ran in executed) else 0)
