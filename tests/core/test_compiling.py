"""Stored kernels are those of the sources, also of the kernels that they call."""

import shutil
import subprocess
import sys
from pathlib import Path

from aftlib.core import compiling

CALLED = (
    "from aftlib.core.compiling import jit\nMORE = {}\n"
    "@jit()\ndef called(x):\n    return x + MORE\n"
)
CALLING = (
    "from aftlib.core.compiling import jit\nfrom aftlib.called import called\n"
    "@jit()\ndef calling(x):\n    return called(x)\n"
    "@jit('int64(int64)')\ndef typed(x):\n    return called(x)\n"
    "for kernel in (calling, typed):\n"
    "    print(kernel(1), sum(kernel.stats.cache_hits.values()))\n"
)


def test_a_kernel_is_compiled_again_when_one_that_it_calls_changes(tmp_path):
    """A change in one module once left the stored kernels of another as they were."""
    source = Path(compiling.__file__)
    package = tmp_path / "aftlib"
    (package / "core").mkdir(parents=True)
    for folder in (package, package / "core"):
        (folder / "__init__.py").touch()
    for name in ("compiling.py", "intrinsics.py"):
        shutil.copy(source.with_name(name), package / "core")
    (package / "calling.py").write_text(CALLING)

    def run(more):
        (package / "called.py").write_text(CALLED.format(more))
        command = [sys.executable, "-m", "aftlib.calling"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert run(5) == ["6 0", "6 0"]
    assert run(5) == ["6 1", "6 1"]
    # of another length: Python does not recompile a source with the same second and length
    assert run(70) == ["71 0", "71 0"]


def test_a_kernel_compiles_where_it_cannot_be_stored(monkeypatch):
    def refuse(self):
        raise RuntimeError("cannot cache function: no locator available")

    kernel = type(compiling.jit()(lambda x: x))
    monkeypatch.setattr(kernel, "enable_caching", refuse)
    assert compiling.jit()(lambda x: x + 1)(1) == 2


WITHOUT = """
import sys
sys.modules["numba"] = None if {without} else __import__("numba")
from pathlib import Path
from aftlib.core import compiling
from aftlib.documents.shared_state.parsing import PartitionReader
from aftlib.documents.shared_state.sums import sum_tuples
assert compiling.COMPILED != {without}
reader = PartitionReader(Path({path!r}), 10)
print(sum_tuples([reader]).rows.tolist(), reader.progress)
"""


def test_tuples_are_parsed_and_summed_alike_without_numba(tmp_path):
    lines = [f"{i // 9},{100 + i % 7},{i - 50}" for i in range(100)]
    lines += ["12,-9223372036854775808,9223372036854775807", "13,1,-9", "14,123456789,0"]
    path = tmp_path / "part"
    path.write_text("\n".join([*lines, *lines[:100]]) + "\n")
    printed = []
    for without in (False, True):
        code = WITHOUT.format(without=without, path=str(path))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[0] == printed[1]
