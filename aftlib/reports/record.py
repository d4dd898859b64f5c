"""An executed notebook: the record of a run, from which every report and verdict is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat

from aftlib.reports.claims import MIME, Settled
from aftlib.reports.notebook import Notebook, summary_of, title_of


@dataclass(frozen=True)
class Executed:
    """A notebook with its outputs and the record that `execute` put into its metadata."""

    path: Path
    content: nbformat.NotebookNode

    @classmethod
    def read(cls, path: Path) -> Executed:
        """Return the executed notebook at `path`.

        Raises
        ------
        ValueError
            When the file is not a notebook that this project has executed.
        """
        try:
            content = nbformat.read(path, as_version=4)
        except (OSError, nbformat.reader.NotJSONError, nbformat.ValidationError) as error:
            raise ValueError(f"{str(path)!r} is not a readable notebook: {error}") from error
        if "aft" not in content.metadata:
            raise ValueError(f"{str(path)!r} has no record of a run: run it by `aft run`")
        return cls(path, content)

    @classmethod
    def find(cls, path: Path) -> Executed | None:
        """Return the executed notebook at `path`, None where there is none of this project's."""
        try:
            return cls.read(path)
        except ValueError:
            return None

    @property
    def name(self) -> str:
        """The report's name, which is that of its file."""
        return self.path.stem

    @property
    def record(self) -> dict[str, Any]:
        """What `execute` wrote down: name, profile, parameters, key, times, versions, error."""
        return self.content.metadata["aft"]

    @property
    def title(self) -> str:
        """The notebook's first heading."""
        return title_of(self.content, self.name)

    @property
    def summary(self) -> str:
        """The notebook's first paragraph, Markdown."""
        return summary_of(self.content)

    @property
    def profile(self) -> str:
        """The profile that it ran under, empty for `aft run`."""
        return self.record["profile"]

    @property
    def error(self) -> str | None:
        """The error that ended the run, None when there was none."""
        return self.record["error"] or self._claims_error

    @cached_property
    def settled(self) -> list[Settled]:
        """The claims that its scorecards settle, the last word on each; none when it failed."""
        return [] if self.error else self._settled

    @cached_property
    def _settled(self) -> list[Settled]:
        lines = [line for scorecard in self._scorecards() for line in scorecard]
        return list({line["id"]: Settled(**line) for line in lines}.values())

    @cached_property
    def _claims_error(self) -> str | None:
        """Why the scorecards cannot be read, e.g. a claim that has since been renamed."""
        try:
            list(self._settled)
        except (TypeError, ValueError, KeyError) as error:
            return f"scorecard not readable: {error}"
        return None

    def _scorecards(self) -> Iterator[list[dict[str, Any]]]:
        for cell in self.content.cells:
            for output in cell.get("outputs", []):
                if MIME in output.get("data", {}):
                    yield output.data[MIME]

    def is_current(self, notebook: Notebook) -> bool:
        """Whether `notebook` and the library are still what they were when this was run."""
        return self.record["key"] == notebook.key(self.record["given"])
