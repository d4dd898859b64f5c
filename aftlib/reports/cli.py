"""The command line, `aft`: the only part of the library that prints."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any

import click
from tqdm import tqdm

from aftlib.core.paths import reports_dir, require_writable
from aftlib.reports.doctor import diagnose
from aftlib.reports.execute import OnCell, stoppable
from aftlib.reports.html import duration
from aftlib.reports.notebook import find_notebook
from aftlib.reports.profiles import PROFILES
from aftlib.reports.record import Executed
from aftlib.reports.reproduce import Job, Outcome, conclude, perform, plan, run_alone

# No time left: cells are too unequal for a guess.
_BAR = "{desc} |{bar:20}| cell {n_fmt}/{total_fmt} {elapsed}{postfix}"

_parameters = click.option(
    "-p",
    "parameters",
    metavar="NAME=VALUE",
    multiple=True,
    help="A notebook's parameter; a list is [1, 2], nothing is null. May be given many times.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="aftlib")
def main() -> None:
    """Approximate fault tolerance in stream processing: run the experiments, read the verdicts."""


@main.command()
@click.option("--profile", type=click.Choice(PROFILES), default="quick", show_default=True)
@click.option("--only", multiple=True, metavar="NAME", help="A document (D1), number or notebook.")
@_parameters
@click.option("--jobs", type=click.IntRange(min=1), default=1, help="Notebooks at the same time.")
@click.option("--fresh", is_flag=True, help="Run also what has not changed since its last run.")
@click.option("--readme", is_flag=True, help="Write reports/README.md, as a full run does.")
@click.argument("more", nargs=-1, metavar="")
def reproduce(
    profile: str,
    only: tuple[str, ...],
    parameters: tuple[str, ...],
    jobs: int,
    fresh: bool,
    readme: bool,
    more: tuple[str, ...],
) -> None:
    """Run the notebooks and say, claim by claim, what held.

    The exit status is 0 only if every notebook ran and every claim came out as recorded.
    """
    with _clear_errors():
        if more and not only:
            raise ValueError(f"unexpected {' '.join(more)!r}: name notebooks after --only")
        require_writable(reports_dir())
        planned = plan(profile, [*only, *more], _overrides(parameters), fresh)
        _perform_all(planned, jobs)
        outcome = conclude(planned, readme or (profile == "full" and not only))
    _report(outcome)
    sys.exit(0 if outcome.success else 1)


@main.command()
@click.argument("notebook")
@_parameters
@click.option("--output", metavar="NAME", help="Name of the report (default: NOTEBOOK_run).")
def run(notebook: str, parameters: tuple[str, ...], output: str | None) -> None:
    """Run one NOTEBOOK: a name, a number, a document (D1) or a path.

    The report is in reports/; its claims do not enter claims.json.
    """
    with _clear_errors(), stoppable():
        found = find_notebook(notebook)
        with _bar(found.name, 0) as on_cell:
            executed = run_alone(found, _overrides(parameters), output, on_cell)
    if executed.error:
        click.echo(f"✘ {executed.name} failed: {executed.error}", err=True)
    click.echo(f"Report: {executed.path.with_suffix('.html')}")
    sys.exit(1 if executed.error else 0)


@main.command()
def doctor() -> None:
    """Say what is installed, what is missing, and the way out."""
    checks = diagnose()
    width = max(len(check.name) for check in checks)
    for check in checks:
        click.echo(f"{'✔' if check.ok else '✘'} {check.name:<{width}}  {check.value}")
        if not check.ok:
            click.echo(f"  {' ' * width}  → {check.way_out}")
    sys.exit(0 if all(check.ok for check in checks) else 1)


def _overrides(parameters: Iterable[str]) -> dict[str, Any]:
    split = [text.partition("=") for text in parameters]
    for name, equals, _ in split:
        if not equals or not name.strip():
            raise ValueError(f"-p wants NAME=VALUE, got {name!r}")
    return {name.strip(): value for name, _, value in split}


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Turn what a user can mend into a message without a traceback."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        raise click.ClickException("interrupted; earlier reports are as they were") from None


def _perform_all(planned: list[Job], jobs: int) -> None:
    # On an interrupt: no new jobs, then the kernels are killed, then their threads are awaited.
    with ThreadPoolExecutor(jobs) as pool, stoppable():
        futures = {pool.submit(_perform, job, i): job for i, job in enumerate(planned)}
        try:
            for future in as_completed(futures):
                _say_done(futures[future], future)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _perform(job: Job, position: int) -> Executed:
    if job.reusable:
        return perform(job)
    with _bar(job.notebook.name, position) as on_cell:
        return perform(job, on_cell)


def _say_done(job: Job, future: Future[Executed]) -> None:
    executed = future.result()
    took = duration(executed.record["seconds"])
    if executed.error:
        tqdm.write(f"✘ {executed.name} failed: {executed.error}")
    elif job.reusable:
        tqdm.write(f"✔ {executed.name} unchanged since its last run ({took}); --fresh runs it anew")
    else:
        tqdm.write(f"✔ {executed.name} in {took}")


@contextmanager
def _bar(name: str, position: int) -> Iterator[OnCell]:
    """Show a progress bar, on terminals only, that names the section under way."""
    with tqdm(
        desc=name, total=1, position=position, leave=False, disable=None, bar_format=_BAR
    ) as bar:

        def on_cell(done: int, total: int, heading: str) -> None:
            bar.total, bar.n = total, done
            bar.set_postfix_str(heading[:40])

        yield on_cell


def _report(outcome: Outcome) -> None:
    for claim in outcome.surprises:
        click.echo(f"! {claim.id} {claim.verdict}, recorded: {claim.recorded}. {claim.note}")
    for problem in outcome.problems:
        click.echo(f"! {problem}")
    expected = len(outcome.chosen) - len(outcome.surprises)
    click.echo(f"{expected} of {len(outcome.chosen)} claims came out as recorded.")
    click.echo(f"Reports: {outcome.index}")


if __name__ == "__main__":
    main()
