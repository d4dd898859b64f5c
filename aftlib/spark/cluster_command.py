"""`aft cluster`: Spark's own cluster on this machine, for trying."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

import click

from aftlib.spark.cluster import LocalCluster


@click.command("cluster")
@click.argument("workers", type=click.IntRange(min=1), default=2)
@click.argument("cores", type=click.IntRange(min=1), default=1)
def command(workers: int, cores: int) -> None:
    """Start Spark's own cluster on this machine, until Ctrl-C.

    WORKERS (2) with so many CORES (1) each. What is printed tells how to use it.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with LocalCluster(workers, cores) as cluster:
            variables = cluster.folder / "environment"  # like all of the folder, for nobody else
            lines = (f"export {name}={value}\n" for name, value in cluster.environment.items())
            variables.write_text("".join(lines))
            click.echo(f"{workers} workers of {cluster.url}. In another shell, to work on them:")
            click.echo(f"  . {variables}")
            click.echo("Ctrl-C ends them.")
            with suppress(KeyboardInterrupt):
                while True:
                    signal.pause()
    except (OSError, RuntimeError) as error:  # no Java, or one that does not start
        raise click.ClickException(str(error)) from error
