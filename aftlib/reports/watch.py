"""A guarded stream at a glance: its metrics as a table in the terminal, a page or a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pandas as pd
from markupsafe import Markup

from aftlib.core.paths import write_whole
from aftlib.reports.cli import clear_errors
from aftlib.spark.metrics_log import Record, read_metrics
from aftlib.workbench.pages import duration, render

RECENT = timedelta(hours=1)
COLUMNS = ["total or latest", "last hour"]
_COUNTS = {  # label: the total, and the one of which it is a share
    "micro-batches": ("batches", ""),
    "  without a record": ("unrecorded", ""),
    "windows": ("windows", ""),
    "  certified recoverable": ("certified", "windows"),
    "  exact": ("exact", "windows"),
    "  gaps": ("gaps", "windows"),
    "    without any sample": ("empty", "gaps"),
    "    estimated": ("estimated", "gaps"),
    "    lost": ("lost", "gaps"),
    "audited estimates": ("audited", ""),
    "  wrong": ("wrong", "audited"),
    "  wrong at most": ("allowed", "audited"),
    "rows read": ("rows", ""),
    "  late": ("late", "rows"),
}
_SHOWN = 80
"""Most characters of an error that are shown."""


def metrics_table(directory: Path | str) -> pd.DataFrame:
    """Return the metrics of the guarded streams in a directory, for a notebook's cell to show.

    Parameters
    ----------
    directory : Path or str
        Directory given to `aftlib.spark.metrics_log.record_metrics`.

    Returns
    -------
    DataFrame
        Texts, one row per metric. Each query has two columns: totals or latest values, and those of
        the hour before its last record. For durations and sizes, the latter is the hour's largest.

    Raises
    ------
    ValueError
        When the directory has no metrics, or a line of them is damaged.
    """
    queries, now = read_metrics(directory), datetime.now(UTC)
    tables = {query: _table(records, now) for query, records in queries.items()}
    return pd.concat(tables, axis=1).fillna("")


def _table(records: Sequence[Record], now: datetime) -> pd.DataFrame:
    """Return the metrics of one query."""
    last = records[-1]
    first = next(i for i, record in enumerate(records) if record.at > last.at - RECENT)
    recent = records[first:]
    before = records[max(first - 1, 0)].totals
    if first == 0 and before["batches"] == 1:  # nothing came before
        before = dict.fromkeys(before, 0)
    grown = {name: total - before.get(name, 0) for name, total in last.totals.items()}
    total, hour = _counts(last.totals), _counts(grown)
    hour["  wrong at most"] = ""  # the guarantee counts from the beginning
    if last.delta is not None:
        total["  wrong at most"] += f", δ = {last.delta:.3g}"
    age = duration((now - last.at).total_seconds())
    cells = {
        "status": [(last.ended or "no end recorded")[:_SHOWN], ""],
        "last record": [f"{last.at:%Y-%m-%d %H:%M:%S} UTC", f"{age} ago"],
        **{label: [total[label], hour[label]] for label in total},
        "latency": _gauges([record.latency for record in recent], "{:,.1f} s"),
        "duration of a micro-batch": _gauges([record.seconds for record in recent], "{:,.1f} s"),
        "keyed state": _gauges([record.state_bytes / 1e6 for record in recent], "{:,.2f} MB"),
        "  entries": _gauges([record.state_rows for record in recent], "{:,.0f}"),
    }
    return pd.DataFrame.from_dict(cells, orient="index", columns=COLUMNS)


def _counts(totals: Mapping[str, float]) -> dict[str, str]:
    """Return the texts of counts, with their shares, by label."""
    gaps = totals["estimated"] + totals["lost"]
    counts = {**totals, "gaps": gaps, "windows": totals["exact"] + gaps}
    rejected = [name for name in totals if name.startswith("rejected ")]
    texts = {}
    for label, (name, of) in {
        **_COUNTS,
        **{f"  {name}": (name, "rows") for name in rejected},
    }.items():
        texts[label] = f"{counts[name]:,.0f}"
        if of and counts[of]:
            texts[label] += f" ({counts[name] / counts[of]:.2%})"
    return texts


def _gauges(values: Sequence[float | None], form: str) -> list[str]:
    """Return the texts of the last value and of the largest."""
    known = [value for value in values if value is not None]
    return [form.format(known[-1]), form.format(max(known))] if known else ["", ""]


def metrics_text(table: pd.DataFrame) -> str:
    """Return a table of metrics as aligned text."""
    parts = []
    for query in table.columns.unique(0):
        rows = [[query, *COLUMNS], *table[query].reset_index().to_numpy().tolist()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        parts += [
            f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}".rstrip() for a, b, c in rows
        ]
        parts.append("")
    return "\n".join(parts)


def metrics_page(table: pd.DataFrame, every: float) -> str:
    """Return a table of metrics as a page that loads itself again after `every` seconds."""
    tables = {query: Markup(table[query].to_html(border=0)) for query in table.columns.unique(0)}
    return render("watch.html.j2", tables=tables, every=max(1, round(every)))


@click.command("watch")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Show the metrics once.")
@click.option("--html", metavar="FILE", type=click.Path(path_type=Path), help="Write a page, too.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=2,
    show_default=True,
    help="Seconds between two updates.",
)
def command(directory: Path, once: bool, html: Path | None, every: float) -> None:
    """Show the metrics of the guarded streams in DIRECTORY, again and again until Ctrl-C.

    DIRECTORY is the one given to `record_metrics`. Without a terminal they are shown once, unless
    --html is given. Its page reloads itself and needs no network.
    """
    live = sys.stdout.isatty()
    with clear_errors(), suppress(KeyboardInterrupt):
        while True:
            table = metrics_table(directory)
            if html is not None:
                write_whole(html, metrics_page(table, every))
            if live or once or html is None:
                if live and not once:
                    click.clear()
                click.echo(metrics_text(table))
            if once or not (live or html):
                return
            time.sleep(every)
