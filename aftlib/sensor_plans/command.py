"""The command `aft plan`: a file of sensors in, a plan and its report out."""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import jinja2
from tqdm import tqdm

from aftlib.core.paths import project_root
from aftlib.core.planfile import read_plan, write_plan
from aftlib.core.storage import require_writable
from aftlib.sensor_plans.plan import plan as make_plan
from aftlib.sensor_plans.question import Question, read_by_sensor
from aftlib.sensor_plans.recovery import LEAST_SAVING
from aftlib.sensor_plans.sensor_file import read_sensors
from aftlib.sensor_plans.sensor_times import TIME_UNITS

BAD_INPUT = 2
LISTED = 12
"""Most sensors that a line of the text names; sensors certified below half are always named."""


def question_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field of the question."""
    for name, field in reversed(Question.model_fields.items()):
        about = (field.description or "").replace("null", "not given")
        default = "" if field.default is None else f"  [default: {field.default}]"
        flag = f"--{name.replace('_', '-')}"
        function = click.option(flag, metavar="X", help=about + default)(function)
    return function


@click.command("plan")
@click.argument("data", type=click.Path(path_type=Path), metavar="FILE")
@question_options
@click.option("--assignment", metavar="FILE", help="Your grouping: JSON or CSV, sensor and worker.")
@click.option("--time", metavar="COL", help="Column of times, or several: date,hour.")
@click.option("--time-format", metavar="FORMAT", help="Such as '%d.%m.%Y %H:%M'; else ISO 8601.")
@click.option("--time-unit", type=click.Choice([*TIME_UNITS]), help="Of numbers.")
@click.option("--tz", metavar="ZONE", help="Zone of local times, such as Europe/Berlin.")
@click.option("--long", metavar="TIME,SENSOR,VALUE", help="Columns if each row is one sample.")
@click.option("--resample", metavar="RULE", help="Step of the grid, such as 10min.")
@click.option("--drop", multiple=True, metavar="COLS", help="Columns or sensors to leave out.")
@click.option("--missing", metavar="X,…", help="Numbers that mean missing, or none.")
@click.option("--csv", multiple=True, metavar="KEY=VALUE", help="Option of pandas.read_csv.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The plan; its page lies beside it.  [default: reports/plans/NAME.json in a checkout, "
    "plans/NAME.json elsewhere]",
)
@click.option("--report/--no-report", default=True, help="Whether to write the HTML page too.")
@click.pass_obj
def command(
    write_page: Callable[[Path], Path],
    data: Path,
    assignment: str | None,
    output: Path | None,
    report: bool,
    **options: Any,
) -> None:
    """Plan which sensors in FILE may be lost, and test whether the guarantee would have held.

    FILE is CSV or Parquet, a directory of such files, or a pattern in quotes such as '2024*.csv':
    one row per time and one column per sensor, or, with --long, one row per sample. The plan is
    written as JSON, and the report as HTML next to it. The exit status is 2 when nothing can be
    planned from the input.
    """
    with clear_errors(BAD_INPUT, data):
        texts = {name: options.pop(name) for name in Question.model_fields}
        question = Question.parse({name: text for name, text in texts.items() if text is not None})
        if isinstance(epsilon := question.get("epsilon"), str):
            question["epsilon"] = read_by_sensor("epsilon", epsilon, float)
        Question(**question)
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

            result = make_plan(
                table, assignment=grouping, name=data.name, on_segment=move, **question
            )
        write_plan(result, output)
        click.echo(report_text(result))
        click.echo(f"Plan: {output}")
    if report:
        with clear_errors(1, f"{output} is written, but its page is not"):
            click.echo(f"Report: {write_page(output)}")


def default_output(data: Path) -> Path:
    """Return where the plan of a file, directory or pattern is written if no path is given.

    In a checkout it is in ``reports/plans``, which git ignores; elsewhere in ``plans`` of the
    working directory.
    """
    try:
        inside = Path.cwd().is_relative_to(root := project_root())
    except FileNotFoundError:
        inside = False
    folder = root / "reports" / "plans" if inside else Path.cwd() / "plans"
    if folder.is_relative_to(Path.cwd()):  # shorter to read and to type
        folder = folder.relative_to(Path.cwd())
    name = re.sub(r"[^\w-]+", "_", data.stem).strip("_") or "plan"
    return folder / f"{name}.json"


@contextmanager
def clear_errors(status: int, where: Path | str) -> Iterator[None]:
    """Turn an error about arguments or files into a line that begins with `where`, and a status."""
    try:
        yield
    except (ValueError, OSError) as error:
        click.echo(f"Error: {printable(f'{where}: {error}')}", err=True)
        raise click.exceptions.Exit(status) from error


def parse_reading(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `read_sensors` for the texts of options."""
    long, missing, numbers = options["long"], options["missing"], None
    try:
        if missing is not None:
            numbers = [] if missing == "none" else [float(part) for part in missing.split(",")]
    except ValueError as error:
        raise ValueError(f"--missing must be numbers, or none, got {missing!r}") from error
    return options | {
        "long": next(csv.reader([long])) if long else None,
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
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ValueError(f"--csv must be KEY=VALUE, such as sep=';', got {text!r}")
        try:
            parsed = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            parsed = "\t" if value == r"\t" else value
        options[key] = [*options.get(key, []), parsed] if key == "na_values" else parsed
    return options


def printable(text: str) -> str:
    """The text with control characters, which names in a file may hold, as escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def spaced(value: Any, form: str) -> str:
    """The value in a format of Python, with a blank before the sign of a percentage.

    >>> spaced(0.978, ".1%"), spaced(12, "4.0f")
    ('97.8 %', '  12')
    """
    return format(value, form).replace("%", " %")


def show_rate(rate: float) -> str:
    """A read rate with three digits.

    >>> show_rate(5.0834), show_rate(19234.0)
    ('5.08', '19,200')
    """
    return f"{float(f'{rate:.3g}'):,.0f}" if rate >= 1000 else f"{rate:.3g}"


def report_text(plan: dict[str, Any]) -> str:
    """The plan as text; control characters of names in the file appear as escapes."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=False,
        finalize=lambda value: printable(value) if isinstance(value, str) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"f": spaced, "rate": show_rate}
    problems = [sensor for sensor in plan["sensors"] if sensor["declared"][0] < 0.5]
    others = [sensor for sensor in plan["sensors"] if sensor["declared"][0] >= 0.5]
    return environment.get_template("plan.txt.j2").render(
        plan=plan,
        question=plan["question"],
        test=plan["backtest"],
        sensors=problems + others[:LISTED],
        most=LISTED,
        least_saving=LEAST_SAVING,
    )


def page_parameters(path: Path) -> dict[str, Any]:
    """Return the parameters with which notebook 06 shows a plan: the plan's file and question."""
    question = read_plan(path)["question"]
    values = {name: question[name] for name in Question.model_fields}
    if values["epsilon_sd"] is not None:
        values["epsilon"] = None
    return values | {"plan": str(path.resolve())}
