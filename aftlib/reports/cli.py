"""The command line, `aft`: the only part of the library that prints.

A command imports its modules when it runs, so that `aft --help` is fast.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import click

from aftlib.reports.documents import DOCUMENTS, bibtex
from aftlib.workbench.parameters import PROFILES

if TYPE_CHECKING:
    from aftlib.reports.execute import OnCell
    from aftlib.reports.runs import Executed

# The bar shows no remaining time, because the times of cells differ too much to estimate it.
_BAR = "{desc} |{bar:20}| cell {n_fmt}/{total_fmt} {elapsed}{postfix}"

OF_PACKAGES = {
    "compare": (
        "aftlib.reports.compare:command",
        "Put stored runs side by side: parameters, versions, claims, tables and figures.",
    ),
    "export": (
        "aftlib.reports.export:command",
        "Write a figure or table of a RUN, or of a notebook's report, as a file.",
    ),
    "plan": (
        "aftlib.sensor_plans.command:command",
        "Plan which sensors in FILE may be lost, and test the plan on the file's second half.",
    ),
    "sweep": (
        "aftlib.reports.sweeps:command",
        "Run one NOTEBOOK over values, such as -p epsilon=0.1,0.12 -p t_sla=50,100.",
    ),
    "watch": (
        "aftlib.reports.watch:command",
        "Show the metrics of the guarded streams in DIRECTORY, again and again until Ctrl-C.",
    ),
}
"""Commands of other modules, by name: where each is, imported when it runs, and its first line."""

parameters_option = click.option(
    "-p",
    "parameters",
    metavar="NAME=VALUE",
    multiple=True,
    help="A notebook's parameter. Write lists as [1, 2] and None as null. May be repeated.",
)

section_option = click.option(
    "--section",
    default="",
    metavar="TEXT",
    help="Only the cells below this heading, or those for this table, and the cells they need.",
)


class _Commands(click.Group):
    """Commands of this module, and of other modules, which are imported when their command runs.

    So a package can add a command, and neither `aft --help` nor `aft doctor` imports the package.
    """

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(context, args)
        if name in OF_PACKAGES:
            command = resolve_name(OF_PACKAGES[name][0])
        return name, command, rest


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="aftlib")
def main() -> None:
    """Approximate fault tolerance in stream processing: run the experiments, read the verdicts."""


for _name, (_, _help) in OF_PACKAGES.items():
    main.add_command(click.Command(_name, short_help=_help))


@main.command()
@click.option("--profile", type=click.Choice(PROFILES), default="quick", show_default=True)
@click.option("--only", multiple=True, metavar="NAME", help="A document (D1), number or notebook.")
@parameters_option
@click.option("--jobs", type=click.IntRange(min=1), default=1, help="Notebooks run in parallel.")
@click.option(
    "--fresh", is_flag=True, help="Also run notebooks that have not changed since their last run."
)
@click.option(
    "--strict", is_flag=True, help="Also fail if timed or undecided claims differ from the record."
)
@click.option("--readme", is_flag=True, help="Write reports/README.md, as a full run does.")
@click.argument("more", nargs=-1, metavar="")
def reproduce(
    profile: str,
    only: tuple[str, ...],
    parameters: tuple[str, ...],
    jobs: int,
    fresh: bool,
    strict: bool,
    readme: bool,
    more: tuple[str, ...],
) -> None:
    """Run the notebooks and print the verdict on each claim.

    The exit status is 0 if every notebook ran and no verdict contradicts its record. If the verdict
    on an undecided or timed claim differs, that is a warning; `--strict` makes it an error. The
    index is written after each notebook.
    """
    from aftlib.core.paths import reports_dir, require_writable
    from aftlib.reports.reproduce import conclude, perform, plan
    from aftlib.workbench.pages import not_default

    with clear_errors():
        if more and not only:
            raise ValueError(f"unexpected {' '.join(more)!r}: name notebooks after --only")
        require_writable(reports_dir())
        planned = plan(profile, [*only, *more], overrides(parameters), fresh)
        try:
            attend({job.notebook.name: partial(perform, job) for job in planned}, jobs)
            outcome = conclude(planned, readme or (profile == "full" and not only))
        except KeyboardInterrupt:
            click.echo(f"Reports so far: {conclude(planned).index}")
            raise

    for claim in outcome.surprises:
        values = "".join(f" ({text})" for text in not_default(claim.changed))
        line = f"{claim.id} {claim.verdict}{values}, recorded: {claim.recorded}."
        if strict or claim.contradicts:
            click.echo(f"! {line} {claim.note}")
        else:
            undecided = "undecided" in (claim.verdict, claim.recorded)
            why = "More samples may decide it" if undecided else "It depends on a measured time"
            click.secho(f"⚠ {line} {why}: a warning, no error.", fg="yellow")
    for problem in outcome.problems:
        click.echo(f"! {problem}")
    expected = len(outcome.chosen) - len(outcome.surprises)
    others = sorted({text for claim in outcome.chosen for text in not_default(claim.changed)})
    but = f", with other values: {'; '.join(others)}" if others else ""
    click.echo(f"{expected} of {len(outcome.chosen)} claims came out as recorded{but}.")
    click.echo(f"Reports: {outcome.index}")
    sys.exit(0 if outcome.success(strict) else 1)


@main.command()
@click.argument("notebook")
@parameters_option
@section_option
@click.option("--profile", type=click.Choice(PROFILES), help="Sets the values that are not given.")
@click.option("--help-parameters", is_flag=True, help="Only list NOTEBOOK's parameters.")
def run(
    notebook: str,
    parameters: tuple[str, ...],
    section: str,
    profile: str | None,
    help_parameters: bool,
) -> None:
    """Run one NOTEBOOK: a name, a number, a document (D1) or a path.

    The run is stored in reports/runs, under a hash of its inputs; its claims do not enter
    claims.json.
    """
    from aftlib.reports.notebook import find_notebook
    from aftlib.reports.reproduce import run_alone

    with clear_errors():
        nb = find_notebook(notebook, section)
        if help_parameters:
            click.echo(nb.help)
            return
        job = partial(run_alone, nb, overrides(parameters), profile=profile or "")
        (executed,) = attend({nb.name: job}, 1, "remove its folder to run it again")
    click.echo(f"Report: {executed.path.with_suffix('.html')}")
    sys.exit(1 if executed.error else 0)


@main.command()
@click.argument("notebook", required=False)
@parameters_option
@click.option(
    "--claim", "claims", multiple=True, metavar="ID=VERDICT", help="A verdict, such as D2-5=holds."
)
@click.option("--failed", is_flag=True, help="Only runs that failed.")
def runs(
    notebook: str | None, parameters: tuple[str, ...], claims: tuple[str, ...], failed: bool
) -> None:
    """List the stored runs, the newest first: all, or those of one NOTEBOOK, value or verdict."""
    from aftlib.reports.notebook import find_notebook
    from aftlib.reports.parameter_cell import literal
    from aftlib.reports.runs import all_runs, run_folders
    from aftlib.workbench.pages import count_text, duration, start_time, tally, values_of

    with clear_errors():
        name = find_notebook(notebook).name if notebook else None
        wanted = overrides(parameters)
        verdicts = overrides(claims, "--claim", "ID=VERDICT")
        stored = all_runs()
    meant = {key: (text, literal(text)) for key, text in wanted.items()}  # either will do
    matches = [
        run
        for run in stored
        if (name is None or run.notebook == name)
        and (not failed or run.record["error"])
        and meant.keys() <= run.record["parameters"].keys()
        and all(run.record["parameters"][key] in values for key, values in meant.items())
        and all(run.verdicts.get(id) == verdict for id, verdict in verdicts.items())
    ]
    width = max((len(run.name) for run in matches), default=0)
    for run in matches:
        record = run.record
        result = ", ".join(count_text(v, n) for v, n in tally(run.verdicts.values()).items() if n)
        if record["error"]:
            result = f"✘ failed: {record['error'].splitlines()[0]}"
        took = duration(record["seconds"])
        about = f"{start_time(record)}  {took:>12}  {result or '–'}  {values_of(record)}"
        click.echo(f"{run.name:<{width}}  {about}")
    counts = f"{len(matches)} of {len(stored)} runs; `aft open KEY` opens one."
    click.echo(counts if stored else "No run is stored yet: `aft run 02`, say, stores one.")
    for folder in sorted({*run_folders()} - {run.folder for run in stored}):
        click.echo(f"! {folder} has no run.json that can be read: remove the folder.")


@main.command("open")
@click.argument("run", default="last", metavar="[RUN]")
def open_run(run: str) -> None:
    """Open the report of a stored RUN (its key, NOTEBOOK/KEY or a notebook; default the last).

    The path is printed, too; without a screen nothing is opened.
    """
    from aftlib.reports.runs import find_run

    with clear_errors():
        page = find_run(run).page
    click.echo(page)
    if sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))):
        click.launch(str(page))


@main.command()
def doctor() -> None:
    """List installed and missing parts, with the fix."""
    from aftlib.reports.doctor import diagnose

    checks = diagnose()
    width = max(len(check.name) for check in checks)
    for check in checks:
        click.echo(f"{'✔' if check.ok else '✘'} {check.name:<{width}}  {check.value}")
        if not check.ok:
            click.echo(f"  {' ' * width}  → {check.fix}")
    sys.exit(0 if all(check.ok for check in checks) else 1)


@main.command()
def cite() -> None:
    """Print how to cite this version and the documents, as BibTeX."""
    click.echo(bibtex())
    unknown = [id for id, one in DOCUMENTS.items() if id.startswith("D") and not one.authors]
    click.echo(f"Authors of {' and '.join(unknown)} are not known.", err=True)


def overrides(
    given: Iterable[str], option: str = "-p", shape: str = "NAME=VALUE"
) -> dict[str, str]:
    """Return the values of a repeated option by name, still as texts."""
    split = [text.partition("=") for text in given]
    for name, equals, _ in split:
        if not equals or not name.strip():
            raise ValueError(f"{option} wants {shape}, got {name!r}")
    return {name.strip(): value for name, _, value in split}


@contextmanager
def clear_errors(
    status: int = 1, reword: Callable[[str], str] = lambda message: message
) -> Iterator[None]:
    """Turn errors of a user, and an interrupt (SIGTERM too), into one line.

    The exit status is then `status`, 1 for an interrupt; `reword` may change the line.
    """
    interrupted = False

    def interrupt(number: int, frame: Any) -> None:
        nonlocal interrupted
        if not interrupted:  # once is enough: the kernels are being stopped
            interrupted = True
            raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in before:
            signal.signal(number, interrupt)
        yield
    except (ValueError, OSError) as error:
        refusal = type("Refusal", (click.ClickException,), {"exit_code": status})
        raise refusal(reword(str(error))) from error
    except KeyboardInterrupt:
        raise click.ClickException(
            "interrupted; earlier reports are as they were, and the same command runs the rest"
        ) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def attend(
    works: Mapping[str, Callable[[OnCell], Executed]],
    jobs: int,
    hint: str = "--fresh runs it again",
) -> list[Executed]:
    """Run the `works`, `jobs` at a time, with a line on the progress of each; stop all on an error.

    `hint` is printed for work that was done before and is skipped.
    """
    from aftlib.reports.execute import stop_all

    with ThreadPoolExecutor(jobs) as pool:
        try:
            futures = [
                pool.submit(_say_progress, name, work, position, hint)
                for position, (name, work) in enumerate(works.items())
            ]
            pending = set(futures)
            while pending:  # short waits, because a signal to another thread does not end a wait
                done, pending = wait(futures, timeout=0.2)
                results = [future.result() for future in done]
            return results
        except BaseException:
            # Start no further work and stop all kernels; then the pool waits for its threads.
            try:
                pool.shutdown(wait=False, cancel_futures=True)
            finally:
                stop_all()
            raise


def _say_progress(
    name: str, work: Callable[[OnCell], Executed], position: int, hint: str
) -> Executed:
    """Do one work and print a bar on terminals, elsewhere a line at its start; then its result."""
    from tqdm import tqdm

    from aftlib.workbench.pages import count_text, duration, tally

    ran = False
    with tqdm(
        desc=name, total=1, position=position, leave=False, disable=None, bar_format=_BAR
    ) as bar:

        def on_cell(done: int, total: int, heading: str) -> None:
            nonlocal ran
            if not ran and not (sys.stdout.isatty() and sys.stderr.isatty()):
                say(f"▶ {name} runs, {total} cells")
            ran, bar.total, bar.n = True, total, done
            bar.set_postfix_str(heading[:40])

        executed = work(on_cell)

    took = duration(executed.record["seconds"])
    verdicts = tally(settled.verdict for settled in executed.settled)
    counts = ", ".join(count_text(verdict, count) for verdict, count in verdicts.items() if count)
    if executed.error:
        say(f"✘ {name} failed: {executed.error}")
    elif not ran:
        say(f"✔ {name} unchanged since its last run ({took}); {hint}")
    else:
        page = executed.path.with_suffix(".html")
        say(f"✔ {name} in {took}{': ' if counts else ''}{counts}; {page}")
    return executed


def say(line: str) -> None:
    """Print a line at once, also into a file or pipe, and between bars rather than over them."""
    from tqdm import tqdm

    with tqdm.external_write_mode(file=sys.stdout):
        click.echo(line)


if __name__ == "__main__":
    main()
