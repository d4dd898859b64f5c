"""The commands that list stored runs, open one, and make many."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from aftlib.reports.cli import attend, clear_errors, overrides, parameters_option
from aftlib.reports.documents import PROFILES

if TYPE_CHECKING:
    from aftlib.reports.execute import OnCell
    from aftlib.reports.runs import Executed


@click.command()
@click.argument("notebook", required=False)
@parameters_option
@click.option("--claim", "claims", multiple=True, metavar="ID=VERDICT", help="Such as D2-5=holds.")
@click.option("--failed", is_flag=True, help="Only runs that failed.")
def runs(
    notebook: str | None, parameters: tuple[str, ...], claims: tuple[str, ...], failed: bool
) -> None:
    """List the stored runs, the newest first: all, or those of one NOTEBOOK, value or verdict."""
    from aftlib.reports.claims import counted, tally
    from aftlib.reports.html import duration, started
    from aftlib.reports.notebook import find_notebook
    from aftlib.reports.parameter_cell import literal
    from aftlib.reports.runs import all_runs, run_folders

    with clear_errors():
        name = find_notebook(notebook).name if notebook else None
        wanted = overrides(parameters)
        verdicts = overrides(claims, "--claim", "ID=VERDICT")
        stored = all_runs()
    meant = {key: (text, literal(text)) for key, text in wanted.items()}  # either will do
    found = [
        run
        for run in stored
        if (name is None or run.notebook == name)
        and (not failed or run.record["error"])
        and meant.keys() <= run.record["parameters"].keys()
        and all(run.record["parameters"][key] in values for key, values in meant.items())
        and all(run.verdicts.get(id) == verdict for id, verdict in verdicts.items())
    ]
    width = max((len(run.name) for run in found), default=0)
    for run in found:
        record = run.record
        own = [f"profile {record['profile']}"] * bool(record["profile"])
        own += [f"{name}={value}" for name, value in record["changed"].items()]
        result = ", ".join(counted(v, n) for v, n in tally(run.verdicts.values()).items() if n)
        if record["error"]:
            result = f"✘ failed: {record['error'].splitlines()[0]}"
        took = duration(record["seconds"])
        click.echo(
            f"{run.name:<{width}}  {started(record)}  {took:>12}  {result or '–'}  {' '.join(own)}"
        )
    counts = f"{len(found)} of {len(stored)} runs; `aft open KEY` opens one."
    click.echo(counts if stored else "No run is stored yet: `aft run 02`, say, stores one.")
    for folder in sorted({*run_folders()} - {run.folder for run in stored}):
        click.echo(f"! {folder} has no run.json that can be read: remove the folder.")


@click.command("open")
@click.argument("run", default="last", metavar="[RUN]")
def open_run(run: str) -> None:
    """Open the report of a stored RUN (its key, NOTEBOOK/KEY or a notebook; default the last).

    Its path is printed too, and only that where there is no screen.
    """
    from aftlib.reports.runs import find_run

    with clear_errors():
        page = find_run(run).page
    click.echo(page)
    if sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))):
        click.launch(str(page))


@click.command()
@click.argument("notebook")
@parameters_option
@click.option("--zip", "together", is_flag=True, help="First values together, then the second.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, help="Runs at the same time.")
@click.option("--profile", type=click.Choice(PROFILES), help="Of all values that are not given.")
def sweep(
    notebook: str, parameters: tuple[str, ...], together: bool, jobs: int, profile: str | None
) -> None:
    """Run one NOTEBOOK over values, such as -p epsilon=0.1,0.12 -p t_sla=50,100.

    Every combination is run once and stored: the same command goes on after an interrupt. A failed
    run is a row of the page. Notebooks that start Spark run one at a time, whatever --jobs says.
    """
    from aftlib.reports.execute import run_once
    from aftlib.reports.html import duration
    from aftlib.reports.notebook import find_notebook
    from aftlib.reports.reproduce import conclude
    from aftlib.reports.runs import stored_run
    from aftlib.reports.sweeps import plan_sweep, time_of_one, write_sweep

    def run(point: dict[str, Any], on_cell: OnCell) -> Executed:
        executed = run_once(found, point, on_cell)
        write_sweep(planned)
        return executed

    with clear_errors():
        found = find_notebook(notebook)
        planned = plan_sweep(found, overrides(parameters), together, profile or "")
        jobs = 1 if found.starts_spark else jobs
        todo = [point for point in planned.points if stored_run(found, point) is None]
        one, alike = time_of_one(planned)
        time = f"about {duration(one * -(-len(todo) // jobs))}" if one else "nobody knows how long"
        time += ", going by runs of other values" if one and not alike else ""
        stored = len(planned.points) - len(todo)
        click.echo(
            f"{len(planned.points)} run{'s' * (len(planned.points) > 1)}: "
            f"{stored} stored already, {len(todo)} to do, {time}."
        )
        works = {planned.label(point): partial(run, point) for point in todo}
        executed = attend(works, jobs) if works else []
        page = write_sweep(planned)
        conclude([])
    click.echo(f"Sweep: {page}")
    sys.exit(1 if any(ran.error for ran in executed) else 0)
