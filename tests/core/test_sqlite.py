"""SQLite files: what is none is not touched, transactions are atomic."""

import sqlite3
from contextlib import closing

import pytest

from aftlib.core.paths import open_database, transaction


def opened(path, **how):
    connection = open_database(path, **how)
    connection.execute("CREATE TABLE IF NOT EXISTS facts (fact TEXT NOT NULL)")
    return connection


def facts(connection):
    return [row[0] for row in connection.execute("SELECT fact FROM facts")]


def test_a_file_that_is_held_is_not_called_damaged(tmp_path):
    with closing(sqlite3.connect(tmp_path / "s", check_same_thread=False)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(ValueError, match=r"that no other process holds.*database is locked"):
            open_database(tmp_path / "s", timeout_s=0.05)
        holder.rollback()
        with closing(opened(tmp_path / "s")) as connection:
            assert facts(connection) == []


def test_what_is_no_such_file_is_refused_and_not_touched(tmp_path):
    (tmp_path / "text").write_text("no database " * 100)
    before = (tmp_path / "text").read_bytes()
    with pytest.raises(ValueError, match=r"path must name a SQLite file.*is not a database"):
        open_database(tmp_path / "text")
    assert (tmp_path / "text").read_bytes() == before
    with pytest.raises(ValueError, match=r"path must name a SQLite file.*unable to"):
        open_database(tmp_path / "missing" / "s")


def test_a_transaction_is_all_or_nothing(tmp_path):
    with closing(opened(tmp_path / "s")) as connection:
        with pytest.raises(sqlite3.IntegrityError), transaction(connection, "write to"):
            connection.execute("INSERT INTO facts VALUES ('half')")
            connection.execute("INSERT INTO facts VALUES (NULL)")
        assert facts(connection) == []
        with closing(opened(tmp_path / "s", timeout_s=0.05)) as other:
            with transaction(connection, "write to"):
                connection.execute("INSERT INTO facts VALUES ('whole')")
                wanted = pytest.raises(TimeoutError, match=r"could not change .*/s'.*end the p")
                with wanted, transaction(other, "change"):
                    pass
            assert facts(other) == ["whole"]


@pytest.mark.parametrize("synced", [False, True])
def test_a_marker_need_not_be_synced(tmp_path, synced):
    with closing(opened(tmp_path / "s", synced=synced)) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == 1 + synced


def test_a_full_disk_is_named_and_leaves_what_was(tmp_path):
    with closing(opened(tmp_path / "s")) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        wanted = pytest.raises(OSError, match=r"could not add facts to .*full.*earlier commits")
        with wanted, transaction(connection, "add facts to"):
            connection.execute("INSERT INTO facts VALUES (?)", ["x" * 100_000])
        assert facts(connection) == []
