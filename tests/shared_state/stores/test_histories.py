"""Random histories of every store and aggregate against a model, with reopening in between."""

import numpy as np
import pytest

from aftlib.shared_state.aggregates import AGGREGATES
from aftlib.shared_state.stores.tables import NEVER, Progress, StaleBatch
from tests.shared_state.tuples import lift

EPOCHS, PARTITIONS, SERVERS = 3, 3, ("a", "b")
MERGE = {"add": lambda a, b: a + b, "min": min, "max": max}


class Model:
    """The slow twin: dictionaries."""

    def __init__(self, aggregate):
        self.how = [MERGE[kind] for kind in aggregate.components]
        self.rows, self.of_epoch, self.latest, self.tokens = {}, {}, {}, {}

    def merge(self, batch, progress, epoch, token):
        if token and self.tokens.get(token[0], -1) >= token[1]:
            return False
        table = self.rows.setdefault(epoch, {})
        for at, values in listed(batch):
            both = zip(self.how, table.get(at, values), values, strict=True)
            table[at] = tuple(how(a, b) for how, a, b in both) if at in table else values
        for positions in (self.latest, self.of_epoch.setdefault(epoch, {})):
            for partition, now in progress.items():
                before = positions.get(partition, (NEVER,) * 5)
                positions[partition] = tuple(map(max, before, now))
        if token:
            self.tokens[token[0]] = token[1]
        return True

    def drop(self, epoch):
        self.rows.pop(epoch, None)
        self.of_epoch.pop(epoch, None)

    def forget(self, window):
        table = self.rows.get(0, {})
        for at in [at for at in table if at[0] == window]:
            del table[at]


def same(table, model):
    assert table.epochs() == tuple(sorted(model.rows))
    assert table.committed() == model.tokens
    assert as_tuples(table.progress()) == model.latest
    for epoch in range(EPOCHS):
        expected = sorted(model.rows.get(epoch, {}).items())
        assert listed(table.read(epoch=epoch)) == expected
        window = epoch - 1
        assert listed(table.read(window, epoch)) == [row for row in expected if row[0][0] == window]
        assert as_tuples(table.progress(epoch)) == model.of_epoch.get(epoch, {})
    windows = {window for window, _ in model.rows.get(0, {})}
    assert table.windows().tolist() == sorted(windows)


def listed(rows):
    places = zip(rows.windows.tolist(), rows.keys.tolist(), strict=True)
    return list(zip(places, map(tuple, rows.values.tolist()), strict=True))


def as_tuples(progress):
    return {p: now.stored for p, now in progress.items()}


@pytest.mark.parametrize("name", AGGREGATES)
def test_a_random_history(opened, name):
    aggregate, rng = AGGREGATES[name], np.random.default_rng(len(name))
    model, table = Model(aggregate), opened(aggregate)
    for _ in range(60):
        epoch = int(rng.integers(EPOCHS))
        act = rng.choice(["merge", "merge", "merge", "drop", "forget", "barrier", "reopen"])
        if act == "merge":
            tuples = rng.integers([-2, -20, -9], [3, 20, 10], (rng.integers(0, 40), 3))
            tuples[:, 1] *= 10  # few keys, which meet again, in several blocks of a store
            partition = int(rng.integers(PARTITIONS))
            now = tuple(rng.integers(100, size=5).tolist())
            stands = model.latest.get(partition, (0,))[0]
            token = (str(rng.choice(SERVERS)), int(rng.integers(8))) if rng.random() < 0.4 else None
            since = stands if rng.random() < 0.5 else None
            batch, progress = lift(aggregate, *tuples.T), {partition: Progress(*now, since=since)}
            merged = table.merge(batch, progress, epoch, token)
            assert merged == model.merge(batch, {partition: now}, epoch, token)
            if merged:
                partition = int(rng.integers(PARTITIONS + 1))  # one of them never begins
                stands = model.latest.get(partition, (0,))[0]
                elsewhere = {9: Progress(1), partition: Progress(200, since=stands + 1)}
                with pytest.raises(StaleBatch, match=f"partition {partition} stands at {stands}, "):
                    table.merge(batch, elsewhere, epoch)
        elif act == "drop":
            table.drop(epoch)
            model.drop(epoch)
        elif act == "forget":
            window = int(rng.integers(-2, 3))
            table.forget(window)
            model.forget(window)
        elif act == "barrier":
            table.barrier()
        elif table.durable:
            if table.flush == "barrier":
                table.barrier()
            table.close()
            table = opened(aggregate)
        same(table, model)
