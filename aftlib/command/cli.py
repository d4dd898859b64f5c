"""The command `aft`."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import nbformat

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
from aftlib.command.pages import write_report
from aftlib.core.paths import project_root
from aftlib.notebook.parameters import PROFILES, ParameterModel
from aftlib.notebook.scorecard import count_text, tally, unexpected
from aftlib.sensor_plans.command import command as plan_command
from aftlib.sensor_plans.command import page_parameters
from aftlib.streaming.metrics import metrics_table, sensor_table

#: Characters of a file's name, without hash and suffix, that stay legible in a list of files.
LONGEST_NAME = 70
VALUES = click.option(
    *("-p", "--parameter", "values"), multiple=True, metavar="NAME=VALUE", help="A parameter."
)


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn errors about arguments and files into one line and exit status 1."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error


def read_values(texts: tuple[str, ...]) -> dict[str, str]:
    """Return the values of ``-p NAME=VALUE`` by name."""
    pairs = [text.partition("=") for text in texts]
    if bad := next((name for name, equals, _ in pairs if not (name and equals)), None):
        raise ValueError(f"parameter must be NAME=VALUE, got {bad!r}")
    return {name: value for name, _, value in pairs}


@click.group()
@click.version_option(aftlib.__version__, package_name="aftlib")
@click.pass_context
def main(context: click.Context) -> None:
    """Approximate fault tolerance: reproduce experiments, or plan for your own sensors."""
    context.obj = write_plan_page  # for `aft plan`: its package may not import this one


@main.command()
@click.option("--profile", type=click.Choice(PROFILES), default="quick", show_default=True)
@click.option("--only", multiple=True, metavar="D1", help="Document or notebook; may be repeated.")
@VALUES
@click.option("--jobs", type=click.IntRange(1), default=1, help="Notebooks at a time.")
@click.option("--fresh", is_flag=True, help="Run notebooks again whose result is there already.")
@click.option("--strict", is_flag=True, help="Verdicts on times count, too.")
def reproduce(
    profile: str,
    only: tuple[str, ...],
    values: tuple[str, ...],
    jobs: int,
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
    for executed in run_jobs(chosen, jobs, fresh, click.echo):
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


def write_plan_page(plan: Path) -> Path:
    """Write the page of a plan by notebook 06, as HTML next to the plan; return its path.

    ValueError, with the notebook's error, when the notebook fails.
    """
    path, _ = find_notebook("06_your_sensors")
    content = nbformat.read(path, as_version=4)
    content.cells = [c for c in content.cells if "reproduction" not in c.metadata.get("tags", [])]
    with TemporaryDirectory() as folder:
        own = Path(folder, path.name)
        nbformat.write(content, own)
        executed = run_job(Job(own, page_parameters(plan), plan.with_suffix(".ipynb")))
    page = write_report(executed, plan.with_suffix(".html"))
    if executed.error:
        raise ValueError(f"the page of {str(plan)!r} is not complete: {executed.error}")
    return page


main.add_command(plan_command)
