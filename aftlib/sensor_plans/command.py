"""The command `aft plan`: a file of sensors in, a plan and its report out."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any

import click
import jinja2
from tqdm import tqdm

from aftlib.checkpoint_planning.recovery_time import DOCUMENT_RECOVERY_TIME
from aftlib.core.datasets import Reading
from aftlib.core.paths import require_writable
from aftlib.core.planfile import Source, write_plan
from aftlib.core.recovery_costs import MONTH_S, RecoveryCosts
from aftlib.sensor_plans.answer import answer_survey
from aftlib.sensor_plans.sensor_file import Inventory, read_sensors
from aftlib.sensor_plans.survey import QUERIES, Question, epsilon_of, survey_table
from aftlib.sensor_plans.worth import worth

BAD_INPUT = 2
PASSED_ON = ("time", "resample", "where", "tz", "decimal", "encoding", "comment", "na")
"""Options that are fields of `datasets.Reading`."""
LISTED = 12
"""Most sensors or machines that the text names."""


@click.command("plan")
@click.argument("data", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--epsilon", metavar="X|FILE", help="Largest error ε, or a file of ε per sensor.")
@click.option(
    "--epsilon-sd", type=float, metavar="X", help="ε in standard deviations of each sensor."
)
@click.option(
    "--delta", type=float, default=0.05, show_default=True, help="Share δ of errors above ε."
)
@click.option("--t-sla", default="2s", show_default=True, help="Longest recovery, such as 500ms.")
@click.option("--window", default="10", show_default=True, help="Samples, or a time such as 6h.")
@click.option("--slide", help="Distance of windows, samples or a time; default the window.")
@click.option("--query", type=click.Choice(QUERIES), default="mean", show_default=True)
@click.option("--workers", type=int, metavar="M", help="Machines; default one per sensor.")
@click.option("--horizons", type=int, default=5, show_default=True, help="Longest outage, windows.")
@click.option(
    "--fixed-ms",
    type=float,
    default=DOCUMENT_RECOVERY_TIME.fixed_ms,
    show_default=True,
    help="Fixed part of a recovery, ms.",
)
@click.option(
    "--per-tuple-ms",
    type=float,
    default=DOCUMENT_RECOVERY_TIME.per_tuple_ms,
    show_default=True,
    help="Time per sample read again, ms.",
)
@click.option("--read-rate", type=float, metavar="X", help="Samples per second that can be read.")
@click.option(
    "--failures-per-month",
    type=float,
    default=1.0,
    show_default=True,
    help="Failures of one machine per month.",
)
@click.option("--long", metavar="TIME,SENSOR,VALUE", help="Columns if each row is one sample.")
@click.option("--time", metavar="COL", help="Column of times; default found by its values.")
@click.option("--resample", metavar="RULE", help="Step of the grid, such as 10min.")
@click.option("--drop", multiple=True, metavar="COLS", help="Columns to leave out.")
@click.option(
    "--measured", multiple=True, metavar="COLS", help="Sensors to keep although they grow or count."
)
@click.option(
    "--missing", metavar="X,…", help="Values that mean missing, such as -999.25; or none."
)
@click.option("--where", multiple=True, metavar="COL=VALUE", help="Rows to read, as status=GOOD.")
@click.option("--tz", metavar="ZONE", help="Zone of local times, such as Europe/Berlin.")
@click.option("--decimal", type=click.Choice([",", "."]), help="Decimal sign; default found.")
@click.option("--encoding", help="Encoding of a CSV file, such as cp1252; default UTF-8.")
@click.option("--comment", metavar="C", help="Character that begins a comment, such as #.")
@click.option("--na", multiple=True, metavar="TEXT", help="A missing value, such as 'No Data'.")
@click.option("--output", type=click.Path(path_type=Path), default="plan.json", show_default=True)
@click.option("--report/--no-report", default=True, help="Whether to write the HTML page too.")
@click.pass_obj
def command(
    write_page: Callable[[Path], Path],
    data: Path,
    epsilon: str | None,
    long: str | None,
    drop: tuple[str, ...],
    measured: tuple[str, ...],
    missing: str | None,
    read_rate: float | None,
    failures_per_month: float,
    output: Path,
    report: bool,
    **options: Any,
) -> None:
    """Plan which sensors in FILE may be lost, and test whether the guarantee would have held.

    FILE is a CSV (.csv, .csv.gz) or Parquet file: one row per time and one column per sensor, or,
    with --long, one row per sample. It may be a directory of such files, or a pattern in quotes
    such as '2024*.csv'. Several wide files, or one of more than 256 MB, are read in pieces, in
    order. Give either --epsilon or --epsilon-sd. The plan is written
    as JSON, and the report as HTML next to it. The exit status is 2 when nothing can be planned
    from the input.
    """
    with clear_errors(BAD_INPUT, partial(as_options, data)):
        reading = {
            "long": next(csv.reader([long])) if long else None,
            "drop": names_of(drop),
            "measured": names_of(measured),
            "missing": numbers_of(missing),
            **{name: options.pop(name) for name in PASSED_ON},
        }
        limit = None if epsilon is None else epsilon_of(epsilon)
        question = Question.of(epsilon=limit, **options)
        if output.suffix != ".json":
            raise ValueError(f"output must end in .json, got {str(output)!r}")
        if output.is_dir():
            raise ValueError(f"output must be a file, got the directory {str(output)!r}")
        require_writable(output.parent)
        # the hash is taken first, so that data which change while they are read do not match it
        known = data.exists() or any(glob(str(data)))
        source = Source.of(data, Reading(**reading)) if known else None
        table = read_sensors(data, **reading)
        inventory = Inventory.of(table)
        show_inventory(inventory)
        survey = survey_table(table, inventory, question)
        with tqdm(desc="walking forward", unit=" windows", leave=False, disable=None) as bar:
            plan = answer_survey(survey, question, data.name, partial(move, bar), source)
        if read_rate is not None:
            fixed_ms, per_tuple_ms = options["fixed_ms"], options["per_tuple_ms"]
            costs = RecoveryCosts(fixed_ms / 1e3, per_tuple_ms / 1e3, 0.0, 0.0)
            plan["worth"] = worth(plan, read_rate, failures_per_month, costs)
        write_plan(plan, output)
        click.echo(report_text(plan))
        click.echo(f"Plan: {output}")
    if report:
        with clear_errors(1):
            click.echo(f"Report: {write_page(output)}")


def names_of(texts: tuple[str, ...]) -> list[str]:
    """Columns that a repeated option names; each of its values may name several, such as "a,b"."""
    return [name for text in texts for name in next(csv.reader([text]))]


def numbers_of(text: str | None) -> list[float] | None:
    """The numbers of an option such as "-127,85"; an empty list for "none", None for None."""
    if text is None:
        return None
    try:
        return [] if text.strip() == "none" else [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(
            f"missing must be numbers separated by commas, or the word none, got {text!r}"
        ) from error


def printable(text: str) -> str:
    """The text with control characters, which names in a file may hold, as escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def report_text(plan: dict) -> str:
    """The plan as text, without the documents' terms.

    Names of the file appear with their control characters as escapes.
    """

    def show(value: Any) -> Any:
        return printable(value) if isinstance(value, str) else value

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=False,
        finalize=show,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"f": format, "size": size_of}
    template = environment.get_template("plan.txt.j2")
    return template.render(
        plan=plan,
        question=plan["question"],
        test=plan["backtest"],
        most=LISTED,
        month_minutes=MONTH_S / 60,
    )


def size_of(gigabytes: float) -> str:
    """Return a size as text, in the unit that gives a number from 1 on."""
    for unit, factor in (("GB", 1), ("MB", 1e3), ("kB", 1e6)):
        if gigabytes * factor >= 1:
            return f"{gigabytes * factor:.3g} {unit}"
    return f"{gigabytes * 1e9:.0f} bytes"


def show_inventory(inventory: Inventory) -> None:
    """Print time, step and sensors as they were read."""
    click.echo("The input as it was read:")
    for line in inventory.summary_lines:
        click.echo(f"  {printable(line)}")


def move(bar: tqdm, done: int, total: int) -> None:
    """Update a progress bar."""
    bar.total = total
    bar.update(done - bar.n)


@contextmanager
def clear_errors(status: int, reword: Callable[[str], str] = str) -> Iterator[None]:
    """Turn errors about arguments and files into one line and an exit status."""
    try:
        yield
    except (ValueError, OSError) as error:
        failure = click.ClickException(reword(str(error)))
        vars(failure)["exit_code"] = status
        raise failure from error


def as_options(data: Path, message: str) -> str:
    """A message about the file `data`, with options in place of the library's arguments."""
    names = "|".join(str(one.name) for one in command.params if isinstance(one, click.Option))
    message = message.replace("t_sla_ms", "t_sla").replace("missing=[]", "--missing none")
    message = re.sub(
        r"\b(drop|measured|missing|na)=\[(.*?)\]",
        lambda m: f"--{m[1]} {m[2].replace(', ', ',')}",
        message,
    )
    message = re.sub(rf"\b(drop|measured|long|{'|'.join(PASSED_ON)})=(\S?)", as_option, message)
    start = rf"^({names})(?= must)|(?<=^epsilon or )epsilon_sd|^epsilon(?= or)"
    message = re.sub(start, as_option, message)
    return printable(message if str(data) in message else f"{data}: {message}")


def as_option(match: re.Match[str]) -> str:
    """Option for an argument: its name, and the first character of its value if there is one."""
    name, _, value = match[0].partition("=")
    return f"--{name.replace('_', '-')} {value}".rstrip()
