"""Profiles: how large the experiments of a run are, read from ``notebooks/profiles.toml``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from aftlib.core.paths import notebooks_dir
from aftlib.reports.notebook import Notebook, all_notebooks

PROFILES = ("smoke", "quick", "full")


def profile_parameters(profile: str, notebook: Notebook) -> dict[str, Any]:
    """Return the checked parameters that `profile` gives `notebook` (none when it names none).

    Raises
    ------
    ValueError
        When the file is missing or broken, or names a notebook or parameter that there is not.
    """
    path = notebooks_dir() / "profiles.toml"
    profiles = _read(path)
    if profile not in profiles:
        raise ValueError(f"profile {profile!r} is not in {path.name}: {', '.join(profiles)} are")
    names = [known.name for known in all_notebooks()]
    for name in profiles[profile]:
        if name not in names:
            raise ValueError(f"{path.name}: [{profile}.{name}] names none of {', '.join(names)}")
    try:
        return notebook.check(profiles[profile].get(notebook.name, {}))
    except ValueError as error:
        raise ValueError(f"profile {profile} of {path.name}: {error}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"{path} is missing: it says how large each profile is") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from error
