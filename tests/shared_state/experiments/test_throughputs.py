"""Which table the tasks of the experiments share."""

from types import SimpleNamespace

import numpy as np
import psycopg
import pytest

from aftlib.shared_state.aggregates import Partials
from aftlib.shared_state.experiments.throughputs import shared_table
from aftlib.shared_state.stores.postgres import PostgresTable
from aftlib.shared_state.stores.sql import SqliteTable


@pytest.mark.parametrize(
    ("master", "named", "kind"),
    [
        ("local[2]", True, SqliteTable),
        ("spark://head:7077", False, SqliteTable),
        ("spark://head:7077", True, PostgresTable),
    ],
)
def test_tasks_of_a_cluster_share_the_postgres_that_is_named(
    master, named, kind, postgres_url, tmp_path, monkeypatch
):
    monkeypatch.setenv("AFT_POSTGRES_URL", postgres_url if named else "")
    cluster = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    with shared_table(cluster, tmp_path) as table:
        with table() as one:
            one.merge(Partials(*np.ones((2, 1), int), np.ones((1, 2), int)), {})
        with table() as other:
            assert isinstance(other, kind) and len(other.read()) == 1
    if kind is PostgresTable:  # nothing is left there
        with psycopg.connect(postgres_url) as connection:
            query = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
            assert connection.execute(query, [other.schema]).fetchone() == (0,)
