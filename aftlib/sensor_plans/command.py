"""The command `aft plan`: a file of sensors in, a plan and its report out."""

from __future__ import annotations

import csv
import os
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
from tqdm import tqdm

from aftlib.checkpoint_planning.recovery_time import DOCUMENT_RECOVERY_TIME
from aftlib.core.paths import require_writable
from aftlib.core.planfile import write_plan
from aftlib.core.sensorplan import source_of
from aftlib.reports.cli import attend, clear_errors
from aftlib.reports.execute import OnCell, execute
from aftlib.reports.html import write_report
from aftlib.reports.notebook import find_notebook
from aftlib.reports.runs import Executed
from aftlib.sensor_plans.answer import answer_survey
from aftlib.sensor_plans.large_file import survey_large
from aftlib.sensor_plans.question import QUERIES, Question, epsilon_of
from aftlib.sensor_plans.report_text import report_lines
from aftlib.sensor_plans.sensor_file import read_sensors
from aftlib.sensor_plans.survey import Inventory, Survey

BAD_INPUT = 2


@click.command("plan")
@click.argument("data", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--epsilon", metavar="X|FILE", help="Largest error ε, or a file of one a sensor.")
@click.option("--epsilon-sd", type=float, metavar="X", help="ε in standard deviations.")
@click.option("--delta", type=float, default=0.05, show_default=True, help="Share δ that may fail.")
@click.option("--t-sla", default="2s", show_default=True, help="Longest recovery, 2s or 500ms.")
@click.option("--window", default="10", show_default=True, help="Samples, or a time such as 6h.")
@click.option("--slide", help="Likewise; default the window.")
@click.option("--query", type=click.Choice(QUERIES), default="mean", show_default=True)
@click.option("--workers", type=int, metavar="M", help="Machines; default one a sensor.")
@click.option("--horizons", type=int, default=5, show_default=True, help="Longest outage, windows.")
@click.option("--fixed-ms", type=float, default=DOCUMENT_RECOVERY_TIME.fixed_ms, show_default=True)
@click.option(
    "--per-tuple-ms", type=float, default=DOCUMENT_RECOVERY_TIME.per_tuple_ms, show_default=True
)
@click.option("--long", metavar="TIME,SENSOR,VALUE", help="Columns of a file of one sample a row.")
@click.option("--time", metavar="COL", help="Column of times; default found by its values.")
@click.option("--resample", metavar="RULE", help="Step of the grid, such as 10min.")
@click.option("--drop", multiple=True, metavar="COLS", help="Columns to leave out.")
@click.option(
    "--missing", metavar="X,…", help="Values that mean missing, such as -999.25; or none."
)
@click.option("--decimal", type=click.Choice([",", "."]), help="Decimal sign; default found.")
@click.option(
    *("--pieces/--no-pieces", "--spark/--no-spark"),
    default=None,
    help="Read in pieces; default what is large.",
)
@click.option("--output", type=click.Path(path_type=Path), default="plan.json", show_default=True)
@click.option("--report/--no-report", default=True, help="Whether to write the HTML page too.")
def command(
    data: Path,
    epsilon: str | None,
    long: str | None,
    time: str | None,
    resample: str | None,
    drop: tuple[str, ...],
    missing: str | None,
    decimal: str | None,
    pieces: bool | None,
    output: Path,
    report: bool,
    **asked: Any,
) -> None:
    """Say what of the sensors in FILE may be lost, and whether that would have held.

    FILE is a CSV or Parquet file: rows are moments and columns are sensors, or, with --long, one
    row a sample. What would fill more than a quarter of the memory, or is a directory of such
    files, is read in pieces, in order. Give either --epsilon or --epsilon-sd. The plan
    is written as JSON, and the report as HTML beside it. The exit status is 2 when nothing can be
    planned from what was given.
    """
    with clear_errors(BAD_INPUT, partial(as_options, data)):
        limit = None if epsilon is None else epsilon_of(epsilon)
        question = Question.of(epsilon=limit, **asked)
        if output.suffix != ".json":
            raise ValueError(f"output must end in .json, got {str(output)!r}")
        if output.is_dir():
            raise ValueError(f"output must be a file, got the directory {str(output)!r}")
        require_writable(output.parent)
        columns = next(csv.reader([long])) if long else None
        left_out = [name for text in drop for name in next(csv.reader([text]))]
        reading: Any = {"long": columns, "time": time, "resample": resample, "drop": left_out}
        reading |= {"missing": numbers_of(missing), "decimal": decimal}
        # told before they are read: data that change meanwhile are not those of the plan
        source = source_of(data, **reading) if data.is_file() or data.is_dir() else None
        if is_large(data) if pieces is None else pieces:
            survey = survey_pieces(data, question, **reading)
            show_taken(survey.inventory)
        else:
            table = read_sensors(data, **reading)
            inventory = Inventory.of(table)
            show_taken(inventory)
            survey = Survey.of(table, inventory, question)
        with tqdm(desc="walking forward", unit=" windows", leave=False, disable=None) as bar:
            plan = answer_survey(survey, question, data.name, partial(move, bar), source)
        write_plan(plan, output)
        for line in report_lines(plan):
            click.echo(printable(line))
        click.echo(f"\nPlan: {output}")
    if report:
        with clear_errors(1):
            (executed,) = attend({"report": partial(write_page, output)}, 1)
        click.echo(f"Report: {output.with_suffix('.html')}")
        if executed.error:
            raise click.exceptions.Exit(1)


def numbers_of(text: str | None) -> list[float] | None:
    """The numbers of an option such as "-127,85"; none of them for "none"."""
    if text is None:
        return None
    try:
        return [] if text.strip() == "none" else [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(
            f"missing must be numbers such as -127,85, or none, got {text!r}"
        ) from error


def printable(text: str) -> str:
    """The text with control characters, which names in a file may hold, as escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def show_taken(inventory: Inventory) -> None:
    """Say what was taken for what."""
    click.echo("What was read:")
    for line in inventory.summary_lines:
        click.echo(f"  {printable(line)}")


def is_large(data: Path) -> bool:
    """Whether the samples, as numbers, would fill more than a quarter of the memory."""
    if data.is_dir() or not data.is_file():
        return data.is_dir()
    size = data.stat().st_size
    if data.suffix == ".parquet":
        with suppress(ValueError, OSError), pq.ParquetFile(data) as file:
            size = 8 * file.metadata.num_rows * file.metadata.num_columns
    return size > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4


def survey_pieces(
    data: Path,
    question: Question,
    *,
    long: list[str] | None,
    resample: str | None,
    **reading: Any,
) -> Survey:
    """The survey of data that are read in pieces."""
    for name, value in (("long", long), ("resample", resample)):
        if value is not None:
            raise ValueError(
                f"{name} must not go with a file that is read in pieces, got {value!r}; make "
                "it wide and even first, or read it into memory by --no-pieces"
            )
    click.echo("Reads in pieces, in the order of the rows.")
    return survey_large(data, question, **reading)


def move(bar: tqdm, done: int, total: int) -> None:
    """Bring a bar up to date."""
    bar.total = total
    bar.update(done - bar.n)


def write_page(plan: Path, on_cell: OnCell | None = None) -> Executed:
    """Show a plan by notebook 06, as HTML beside it."""
    notebook = find_notebook("06")
    given = notebook.check({"plan": str(plan.resolve())})
    executed = execute(notebook, given, plan.with_suffix(".ipynb"), on_cell=on_cell)
    write_report(executed, plan.with_suffix(".html"))
    return executed


def as_options(data: Path, message: str) -> str:
    """A library's message about the file `data` in the words of the command line."""
    message = re.sub(r"\bdrop=\[(.*?)\]", lambda m: f"--drop {m[1].replace(', ', ',')}", message)
    message = message.replace("missing=[]", "--missing none")
    message = re.sub(
        r"\bmissing=\[(.*?)\]", lambda m: f"--missing {m[1].replace(', ', ',')}", message
    )
    message = re.sub(r"\b(time|resample|drop|long|decimal)=(?=\S)", r"--\1 ", message)
    message = re.sub(r"\b(time|resample|drop)=(?!\S)", r"--\1", message)
    message = message.replace("t_sla_ms", "t_sla")
    if message.startswith("epsilon or epsilon_sd must"):
        message = re.sub(r"\b(epsilon(?:_sd)?)\b", r"--\1", message).replace("_sd", "-sd")
    names = "t_sla|epsilon_sd|fixed_ms|per_tuple_ms|epsilon|delta|window|slide|query|workers"
    said = re.match(rf"({names}|horizons|long|time|resample|drop|missing|output) must", message)
    if said:
        message = "--" + said[1].replace("_", "-") + message[len(said[1]) :]
    return printable(message if str(data) in message else f"{data}: {message}")
