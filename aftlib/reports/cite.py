"""How the project is cited, for `aft cite`; CITATION.cff says the same."""

from __future__ import annotations

import click

import aftlib

TITLE = "aftlib: approximate fault tolerance for data streams"
AUTHORS = ("The aftlib authors",)


def bibtex() -> str:
    """Return the BibTeX entry of this version."""
    return (
        "@software{aftlib,\n"
        f"  title = {{{{{TITLE}}}}},\n"
        f"  author = {{{{{' and '.join(AUTHORS)}}}}},\n"
        f"  version = {{{aftlib.__version__}}},\n"
        "  license = {Apache-2.0},\n"
        "}"
    )


@click.command("cite")
def command() -> None:
    """Print how to cite this version, as BibTeX."""
    click.echo(bibtex())
    click.echo("Cite the documents whose experiments you use as well (docs/citation.md).", err=True)
