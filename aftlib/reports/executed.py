"""An executed notebook: the record of a run, from which reports and all claims are read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat

from aftlib.core.paths import atomic_file, write_whole
from aftlib.reports.claims import MIME, ClaimRecord, Settled
from aftlib.reports.documents import CLAIMS, DOCUMENTS
from aftlib.reports.notebook import Notebook, read_notebook, summary_of, title_of


@dataclass(frozen=True)
class Executed:
    """A notebook with its outputs and the record that `execute` put into its metadata."""

    path: Path
    content: nbformat.NotebookNode

    @classmethod
    def read(cls, path: Path) -> Executed:
        """Return the notebook at `path`; ValueError when this project has not executed it."""
        content = read_notebook(path)
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
    def changed(self) -> dict[str, Any]:
        """The parameters, with their values, that are not the profile's own."""
        return self.record.get("changed", {})

    @property
    def error(self) -> str | None:
        """The error that ended the run, None when there was none."""
        return self.record["error"] or self._scorecards[1]

    @property
    def settled(self) -> list[Settled]:
        """The claims that its scorecards settle, the last word on each; none when it failed."""
        return [] if self.error else self._scorecards[0]

    @cached_property
    def _scorecards(self) -> tuple[list[Settled], str | None]:
        """The claims settled, and why they cannot be read, such as one renamed since."""
        outputs = [output for cell in self.content.cells for output in cell.get("outputs", [])]
        lines = [line for output in outputs for line in output.get("data", {}).get(MIME, [])]
        try:
            return list({line["id"]: Settled(**line) for line in lines}.values()), None
        except (TypeError, ValueError, KeyError) as error:
            return [], f"scorecard not readable: {error}"

    def copied(self, target: Path) -> Executed:
        """Return the same run as the file `target`, which it becomes."""
        if target != self.path:
            with atomic_file(target) as scratch:
                shutil.copyfile(self.path, scratch)
        return Executed(target, self.content)

    def relabelled(self, profile: str, changed: dict[str, Any]) -> Executed:
        """Return the same run as one of `profile`, which has the same values, also in its file."""
        if (profile, changed) != (self.profile, self.record.get("changed")):
            self.record.update(profile=profile, changed=changed)
            with atomic_file(self.path) as scratch:
                nbformat.write(self.content, scratch)
        return self

    def is_current(self, notebook: Notebook) -> bool:
        """Whether `notebook` and the library are still what they were when this was run."""
        return self.record["key"] == notebook.key(self.record["given"])


def read_reports(folder: Path, notebooks: Sequence[Notebook]) -> dict[str, Executed]:
    """Return the executed form of each of `notebooks` that `folder` holds, by name."""
    names = [notebook.name for notebook in notebooks]
    return {name: ran for name in names if (ran := Executed.find(folder / f"{name}.ipynb"))}


def gather(notebooks: Sequence[Notebook], reports: Mapping[str, Executed]) -> list[ClaimRecord]:
    """Return every known claim, in order, with what its document's notebook found.

    "not run", with the reason as its note, where the notebook was not run, failed, settled nothing
    about the claim, or is older than the code: then with what it had found, as `earlier`.
    """
    known = {notebook.name: notebook for notebook in notebooks}
    current = {name: run.is_current(known[name]) for name, run in reports.items() if name in known}
    gathered = []
    for id, claim in CLAIMS.items():
        name = DOCUMENTS[claim.document].notebook
        executed = reports.get(name) if name in known else None
        settled = next((s for s in executed.settled if s.id == id), None) if executed else None
        if executed and settled:
            found = ClaimRecord.of(settled, name, executed.profile, executed.changed)
            gathered.append(found if current[name] else found.outdated())
            continue

        if executed is None:
            why = "Its notebook has not been run."
        elif executed.error:
            why = "Its notebook failed."
        elif not current[name]:
            why = "Its last run is older than the code."
        else:
            why = "Its notebook does not settle it."
        nothing = Settled(id, None, None, None, "not run", "measured", why)
        gathered.append(ClaimRecord.of(nothing, name, executed.profile if executed else ""))
    return gathered


def write_claims(claims: Sequence[ClaimRecord], target: Path) -> Path:
    """Write `claims` as the JSON list that other tools read, and return its path."""
    lines = [asdict(claim) for claim in claims]
    text = json.dumps(lines, ensure_ascii=False, indent=1, allow_nan=False)
    return write_whole(target, text + "\n")
