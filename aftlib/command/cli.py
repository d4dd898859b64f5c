"""The command `aft`: its options, texts that become values, and its subcommands."""

from __future__ import annotations

import ast
import csv
import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import nbformat
from tqdm import tqdm

import aftlib
from aftlib.command.batch import (
    Executed,
    Job,
    collect_claims,
    find_notebook,
    plan_jobs,
    read_reports,
    run_job,
    run_jobs,
)
from aftlib.command.documents import DOCUMENTS
from aftlib.command.front import keep_full_run, write_index
from aftlib.command.origin import find_checkout
from aftlib.command.pages import write_report
from aftlib.core.paths import project_root
from aftlib.core.storage import require_writable
from aftlib.notebook.parameters import PROFILES, ParameterModel
from aftlib.notebook.scorecard import count_text, tally, unexpected
from aftlib.notebook.texts import printable
from aftlib.sensor_plans.plan import plan as make_plan
from aftlib.sensor_plans.question import Question, read_by_sensor
from aftlib.sensor_plans.sensor_file import read_sensors
from aftlib.sensor_plans.sensor_plan import SensorPlan, report_text
from aftlib.sensor_plans.sensor_times import TIME_UNITS
from aftlib.streaming.metrics import metrics_table, sensor_table

#: Characters of a file's name, without hash and suffix, that stay legible in a list of files.
LONGEST_NAME = 70
BAD_INPUT = 2
#: Notebook 06, which also a wheel holds.
PLAN_NOTEBOOK = Path(__file__).with_name("06_your_sensors.ipynb")
Command = Callable[..., None]
VALUES = click.option(
    "-p", "--parameter", "values", multiple=True, metavar="NAME=VALUE", help="A parameter."
)
#: How a file of sensors is read; each is an argument of `read_sensors`.
READING = (
    click.option("--time", metavar="COL", help="Column of times, or several: date,hour."),
    click.option("--time-format", metavar="FORMAT", help="Such as '%d.%m.%Y %H:%M'."),
    click.option("--time-unit", type=click.Choice([*TIME_UNITS]), help="Of numbers."),
    click.option("--tz", metavar="ZONE", help="Zone of local times, such as Europe/Berlin."),
    click.option("--long", metavar="TIME,SENSOR,VALUE", help="Columns if each row is one sample."),
    click.option("--resample", metavar="RULE", help="Step of the grid, such as 10min."),
    click.option("--drop", multiple=True, metavar="COLS", help="Columns or sensors to leave out."),
    click.option("--missing", metavar="X,…", help="Numbers that mean missing, or none."),
    click.option("--csv", multiple=True, metavar="KEY=VALUE", help="Option of pandas.read_csv."),
)


def reading_options(function: Command) -> Command:
    """Add the options with which a file of sensors is read."""
    for option in reversed(READING):
        function = option(function)
    return function


def question_options(function: Command) -> Command:
    """Add an option for each field of the question of `aft plan`."""
    for name, field in reversed(Question.model_fields.items()):
        about = (field.description or "").replace("null", "not given")
        default = "" if field.default is None else f"  [default: {field.default}]"
        flag = f"--{name.replace('_', '-')}"
        function = click.option(flag, metavar="X", help=about + default)(function)
    return function


@contextmanager
def clear_errors(where: object = "", status: int = 1) -> Iterator[None]:
    """Turn an error about arguments or files into a line that begins with `where`, and a status."""
    try:
        yield
    except (ValueError, OSError) as error:
        text = f"{where}: {error}" if where else str(error)
        click.echo(f"Error: {printable(text)}", err=True)
        raise click.exceptions.Exit(status) from error


def read_values(texts: Sequence[str]) -> dict[str, str]:
    """Return the values of ``-p NAME=VALUE`` by name."""
    return dict(_split("parameter", text, "NAME=VALUE") for text in texts)


def _split(option: str, text: str, form: str) -> tuple[str, str]:
    """Return what stands before and after the first equals sign of an option."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"{option} must be {form}, got {text!r}")
    return name, value


def parse_reading(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `read_sensors` for the texts of its options."""
    missing = options["missing"]
    numbers = None
    try:
        if missing is not None:
            numbers = [] if missing == "none" else [float(part) for part in missing.split(",")]
    except ValueError as error:
        raise ValueError(f"--missing must be numbers, or none, got {missing!r}") from error
    return options | {
        "long": next(csv.reader([options["long"]])) if options["long"] else None,
        "drop": [name for text in options["drop"] for name in next(csv.reader([text]))],
        "missing": numbers,
        "csv": parse_csv_options(options["csv"]),
    }


def parse_csv_options(texts: Sequence[str]) -> dict[str, Any]:
    r"""Return arguments of `pandas.read_csv` for texts KEY=VALUE; na_values is a list.

    >>> parse_csv_options(["sep=;", "skiprows=[0, 2]", "na_values=ERR", "na_values=-", "sep=\\t"])
    {'sep': '\t', 'skiprows': [0, 2], 'na_values': ['ERR', '-']}
    """
    options: dict[str, Any] = {}
    for text in texts:
        key, value = _split("--csv", text, "KEY=VALUE, such as sep=';'")
        try:
            parsed = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            parsed = "\t" if value == r"\t" else value
        options[key] = [*options.get(key, []), parsed] if key == "na_values" else parsed
    return options


@click.group()
@click.version_option(aftlib.__version__, package_name="aftlib")
def main() -> None:
    """Approximate fault tolerance: reproduce experiments, or plan for your own sensors."""


@main.command()
@click.option("--profile", type=click.Choice(PROFILES), default="quick", show_default=True)
@click.option("--only", multiple=True, metavar="D1", help="Document or notebook; may be repeated.")
@VALUES
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Notebooks at a time.  [default: 1, below a full run 2 of those that measure no times]",
)
@click.option("--fresh", is_flag=True, help="Run notebooks again whose result is there already.")
@click.option("--strict", is_flag=True, help="Verdicts on times count, too.")
def reproduce(
    profile: str,
    only: tuple[str, ...],
    values: tuple[str, ...],
    jobs: int | None,
    fresh: bool,
    strict: bool,
) -> None:
    """Run the notebooks and write reports/index.html.

    A full run of all notebooks without failures also writes reports/README.md and full.json.
    The exit status is 1 if a notebook failed or a verdict contradicts its record.
    """
    folder = project_root() / "reports"
    with clear_errors():
        chosen = plan_jobs(folder, profile, only, read_values(values))
        folder.mkdir(parents=True, exist_ok=True)
    failed = False
    processes = 1 if profile == "full" else None
    for executed in run_jobs(chosen, jobs or processes, fresh, click.echo):
        document = next(d for d in DOCUMENTS if d.notebook == executed.record["name"])
        page = write_report(executed, executed.path.with_suffix(".html"), document)
        reports = read_reports(folder)
        records = collect_claims(reports)
        index = write_index(folder, reports, records)  # after each: a run can take long
        click.echo(describe(executed, page))
        failed |= bool(executed.error)
    names = {job.name for job in chosen}
    surprises = unexpected(record for record in records if record.notebook in names)
    for record in surprises:
        kind = "differs from" if record.contradicts else "is not sure of"
        click.echo(f"{record.id} {kind} its record: {record.word}, recorded {record.recorded}")
    click.echo(f"Index: {index}")
    whole = profile == "full" and not only and not values and not failed
    if whole and (card := keep_full_run(folder, reports, records)):
        click.echo(f"Scorecard: {card}")
    if failed or any(strict or record.contradicts for record in surprises):
        sys.exit(1)


@main.command()
@click.argument("notebook")
@VALUES
def run(notebook: str, values: tuple[str, ...]) -> None:
    """Run one NOTEBOOK (01, D1, or a file) with parameters of your own, into reports/own."""
    with clear_errors():
        path, document = find_notebook(notebook)
        given = read_values(values)
        model = document.parameters if document else ParameterModel
        parameters = model.parse(given)
        if document:
            model(**parameters)
        target = project_root() / "reports" / "own" / f"{name_run(path, parameters)}.ipynb"
        executed = run_job(Job(path, parameters, target), progress=True)
        page = write_report(executed, target.with_suffix(".html"), document)
    click.echo(describe(executed, page))
    if executed.error:
        sys.exit(1)


def name_run(notebook: Path, parameters: Mapping[str, Any]) -> str:
    """Return a file's name for a run: readable, and another one for other parameters.

    It begins with the parameters that fit and ends with a hash of the notebook's place and of all
    parameters: ``01_approximately_once-dimensions=60-3f9a2c1d``.
    """
    everything = json.dumps([str(notebook), parameters], sort_keys=True)
    digest = hashlib.sha256(everything.encode()).hexdigest()[:8]
    name = notebook.stem
    for parameter, value in parameters.items():
        text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
        words = re.sub(r"[^\w.+-]+", "_", text).strip("_")
        part = f"-{parameter}={words}"
        if len(name + part) > LONGEST_NAME:
            break
        name += part
    return f"{name}-{digest}"


@main.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--every", type=float, default=2.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Print the tables once.")
def watch(directory: Path, every: float, once: bool) -> None:
    """Show the metrics that a guarded stream writes into DIRECTORY, until Ctrl-C."""
    with clear_errors():
        while True:
            tables = metrics_table(directory), sensor_table(directory)
            if not once:
                click.clear()
            click.echo("\n\n".join(table.to_string() for table in tables))
            if once:
                return
            time.sleep(every)


def describe(executed: Executed, page: Path) -> str:
    """Return one line about a run: name, duration, verdicts or error, page."""
    record = executed.record
    counts = tally(claim.verdict for claim in executed.claims)
    verdicts = ", ".join(count_text(verdict, n) for verdict, n in counts.items() if n)
    result = f"✘ failed: {executed.error}" if executed.error else verdicts
    return f"{record['name']} in {record['seconds']:.0f} s: {result}; {page}"


@main.command()
@click.argument("data", type=click.Path(path_type=Path), metavar="FILE")
@question_options
@click.option("--assignment", metavar="FILE", help="Your grouping: JSON or CSV, sensor and worker.")
@reading_options
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The plan; its page lies beside it.  [default: reports/plans/NAME.json in a checkout, "
    "plans/NAME.json elsewhere]",
)
@click.option("--report/--no-report", default=True, help="Whether to write the HTML page too.")
def plan(
    data: Path, assignment: str | None, output: Path | None, report: bool, **options: Any
) -> None:
    """Plan which sensors in FILE may be lost, and test whether the guarantee would have held.

    FILE is CSV or Parquet, a directory of such files, or a pattern in quotes such as '2024*.csv':
    one row per time and one column per sensor, or, with --long, one row per sample. The plan is
    written as JSON, and the report as HTML next to it. The exit status is 2 when nothing can be
    planned from the input.
    """
    with clear_errors(data, BAD_INPUT):
        question = Question.of_texts({name: options.pop(name) for name in Question.model_fields})
        grouping = None if assignment is None else read_by_sensor("assignment", assignment, str)
        output = output or default_output(data)
        if output.suffix != ".json" or output.is_dir():
            raise ValueError(f"output must be a file that ends in .json, got {str(output)!r}")
        require_writable(output.parent)
        table = read_sensors(data, **parse_reading(options))
        click.echo("The input as it was read:")
        for line in table.summary_lines:
            click.echo(f"  {printable(line)}")
        with tqdm(desc="walking forward", unit=" windows", leave=False, disable=None) as bar:

            def move(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            made = make_plan(table, question, assignment=grouping, name=data.name, on_segment=move)
        made.write(output)
        click.echo(report_text(made))
        click.echo(f"Plan: {output}")
    if report:
        with clear_errors(f"{output} is written, but its page is not"):
            click.echo(f"Report: {write_plan_page(output)}")


def default_output(data: Path) -> Path:
    """Return where the plan of a file, directory or pattern is written if no path is given.

    In a checkout it is in ``reports/plans``, which git ignores; elsewhere in ``plans`` of the
    working directory.
    """
    root = find_checkout()
    inside = root is not None and Path.cwd().is_relative_to(root)
    folder = root / "reports" / "plans" if root and inside else Path.cwd() / "plans"
    if folder.is_relative_to(Path.cwd()):  # shorter to read and to type
        folder = folder.relative_to(Path.cwd())
    name = re.sub(r"[^\w-]+", "_", data.stem).strip("_") or "plan"
    return folder / f"{name}.json"


def page_parameters(path: Path) -> dict[str, Any]:
    """Return the parameters with which notebook 06 shows a plan: the plan's file and question."""
    question = SensorPlan.read(path).question
    values = {name: getattr(question, name) for name in Question.model_fields}
    if question.epsilon_sd is not None:
        values["epsilon"] = None
    return values | {"plan": str(path.resolve())}


def write_plan_page(plan: Path) -> Path:
    """Write the page of a plan by notebook 06, as HTML next to the plan; return its path.

    ValueError, with the notebook's error, when the notebook fails.
    """
    content = nbformat.read(PLAN_NOTEBOOK, as_version=4)
    content.cells = [c for c in content.cells if "reproduction" not in c.metadata.get("tags", [])]
    with TemporaryDirectory() as folder:
        own = Path(folder, PLAN_NOTEBOOK.name)
        nbformat.write(content, own)
        executed = run_job(Job(own, page_parameters(plan), plan.with_suffix(".ipynb")))
    page = write_report(executed, plan.with_suffix(".html"))
    if executed.error:
        raise ValueError(f"the page of {str(plan)!r} is not complete: {executed.error}")
    return page
