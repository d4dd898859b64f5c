"""Options of the command line: their declarations, and texts that become values."""

from __future__ import annotations

import ast
import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from aftlib.notebook.texts import printable
from aftlib.sensor_plans.question import Question
from aftlib.sensor_plans.sensor_times import TIME_UNITS

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
