"""The power fails at any moment: what a store had confirmed is there, complete and consistent."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from aftlib.approximately_once.sink import WindowSink
from aftlib.checkpoint_planning.state import CheckpointStore
from tests.crash import power, power_workload
from tests.crash.power_workload import BATCHES, output_of, table_of

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(power.STRACE is None, reason="strace is not installed"),
]
ORDERED = "rocksdb"
"""Opening RocksDB renames CURRENT, to name a new MANIFEST, before it syncs the folder. So it relies
on names that reach the disk in their order."""
MOMENTS = 200 if os.environ.get("AFT_TRIALS") == "full" else 12
"""Power failures per store; beside them, one after each confirmed batch."""


def of_table(kind, folder):
    with table_of(kind, folder) as table:
        rows, progress = table.read(), table.progress()
        stands = progress[0].offset if progress else 0
        assert rows.values[:, 0].tolist() == list(range(1, stands + 1))
        return stands


def of_sink(folder):
    sink = WindowSink(folder / "sink.sqlite", "query")
    stands = int(sink.coordinator() or 0)
    assert sink.windows()["value"].tolist() == list(range(1, stands + 1))
    assert [o.worker for o in sink.outages()] == list(range(1, stands + 1))
    return stands


def of_state(folder):
    store = CheckpointStore(folder / "state.sqlite", "stream")
    checkpoint = store.restore()
    stands = checkpoint.position if checkpoint else 0
    assert [r.value for r in store.results()] == list(range(1, stands + 1))
    assert [r.batch for r in store.records()] == list(range(1, stands + 1))
    store._connection.close()
    return stands


def of_file(folder):
    path = folder / "state.json"
    if not path.exists():
        return 0
    text = path.read_text()
    assert text.startswith("x" * 10_000)
    return int(text[10_000:])


def of_folder(folder):
    logs = sorted(folder.glob("log-*"))
    for log in logs:
        assert [p.read_text() for p in sorted(log.iterdir())] == [log.name[4:]] * 3
    assert [log.name for log in logs] == [f"log-{k}" for k in range(1, len(logs) + 1)]
    return len(logs)


def of_output(folder):
    """Every confirmed window is emitted or still in the table."""
    output, table = output_of(folder)
    out = {int(p.stem[7:]) // 10: p.read_text() for p in output.job.output.glob("*.csv")}
    assert all(text == f"{10 * k},0,{k}\n" for k, text in out.items())
    held = [window // 10 for window in table.windows().tolist()]
    stands = table.progress()[0].offset if table.progress() else 0
    assert set(out) | set(held) >= set(range(1, stands + 1))
    table.close()
    return stands


CHECKS = {
    "sqlite": lambda folder: of_table("sqlite", folder),
    "rocksdb": lambda folder: of_table("rocksdb", folder),
    "sink": of_sink,
    "state": of_state,
    "file": of_file,
    "folder": of_folder,
    "output": of_output,
}


def failures(kind, root, seed=0):
    """Confirmed batches, and a folder with what survives, at moments all over the run."""
    root.mkdir(parents=True)
    chance, moments = Random(seed), []
    calls = power.trace(power_workload.__name__, kind, str(root), root=root)
    chosen = {chance.randrange(len(calls)) for _ in range(MOMENTS)}
    confirmed = 0
    for number, (disk, committed) in enumerate(power.replay_calls(calls, root, kind == ORDERED)):
        if committed > confirmed or number in chosen:
            place = Path(f"{root}-{number}")
            disk.fail(place, chance if number in chosen else None)
            moments.append((committed, place))
        confirmed = committed
    assert confirmed == BATCHES
    return moments


@pytest.mark.parametrize("kind", CHECKS)
def test_what_was_confirmed_is_there_after_a_power_failure(kind, tmp_path):
    for confirmed, place in failures(kind, tmp_path / "disk"):
        assert confirmed <= CHECKS[kind](place) <= confirmed + 1, place


@pytest.mark.parametrize("kind", ["sqlite", "file", "output"])
def test_the_disk_forgets_what_was_not_synced(kind, tmp_path, monkeypatch):
    """The control: the same run on a system whose `fsync` does nothing."""
    monkeypatch.setattr(power.Disk, "_fsync", lambda *_: None)
    moments = failures(kind, tmp_path / "disk")
    assert any(not list(place.iterdir()) for confirmed, place in moments if confirmed)
