"""SQLite files: a busy file is not damaged, transactions are atomic."""

import sqlite3
from contextlib import closing, suppress

import pytest

from aftlib.core.sqlite import open_database, transaction

APPLICATION = 0x54455354


def create(connection):
    connection.execute("CREATE TABLE facts (fact TEXT NOT NULL)")
    connection.execute("INSERT INTO facts VALUES ('made')")


def opened(path, **other):
    return open_database(path, "a store of facts", APPLICATION, create=create, **other)


def facts(connection):
    return [row[0] for row in connection.execute("SELECT fact FROM facts")]


def test_a_file_that_is_held_is_not_called_damaged(tmp_path):
    with closing(sqlite3.connect(tmp_path / "s", check_same_thread=False)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(TimeoutError, match="is a store of facts that other processes hold"):
            opened(tmp_path / "s", timeout_s=0.05)
        holder.rollback()
        with closing(opened(tmp_path / "s")) as connection:
            assert facts(connection) == ["made"]


def test_what_is_no_such_file_is_refused_and_not_touched(tmp_path):
    (tmp_path / "text").write_text("no database " * 100)
    with closing(sqlite3.connect(tmp_path / "other")) as other:
        other.execute("CREATE TABLE facts (fact)")
    for name, why in (("text", "or a new file"), ("other", "it has other data")):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(ValueError, match=rf"path must be a store of facts.*{why}"):
            opened(tmp_path / name)
        assert (tmp_path / name).read_bytes() == before
    with pytest.raises(ValueError, match=r"path must be a store of facts or a new file.*unable to"):
        opened(tmp_path / "missing" / "s")


def test_what_the_check_refuses_is_closed(tmp_path):
    def check(connection):
        raise ValueError(f"path holds {facts(connection)}")

    with pytest.raises(ValueError, match=r"path holds \['made'\]"):
        opened(tmp_path / "s", check=check)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s"]  # the last to close drops the log


def test_a_transaction_is_all_or_nothing(tmp_path):
    with closing(opened(tmp_path / "s")) as connection:
        with pytest.raises(sqlite3.IntegrityError), transaction(connection, "write to"):
            connection.execute("INSERT INTO facts VALUES ('half')")
            connection.execute("INSERT INTO facts VALUES (NULL)")
        assert facts(connection) == ["made"]
        with closing(opened(tmp_path / "s", timeout_s=0.05)) as other:
            with transaction(connection, "write to"):
                connection.execute("INSERT INTO facts VALUES ('whole')")
                wanted = pytest.raises(TimeoutError, match=r"could not change .*/s'.*end the p")
                with wanted, transaction(other, "change"):
                    pass
            assert facts(other) == ["made", "whole"]


@pytest.mark.parametrize("fails", [False, True])
def test_what_follows_a_marker_that_is_not_synced_is_synced(tmp_path, fails):
    def synced():
        return connection.execute("PRAGMA synchronous").fetchone()[0] == 2

    with closing(opened(tmp_path / "s")) as connection, closing(opened(tmp_path / "s")) as other:
        with suppress(KeyError), transaction(connection, "mark", synced=False):
            assert not synced()
            connection.execute("INSERT INTO facts VALUES ('marked')")
            if fails:
                raise KeyError
        assert synced()
        assert facts(other) == ["made", *([] if fails else ["marked"])]


def test_a_full_disk_is_named_and_leaves_what_was(tmp_path):
    with closing(opened(tmp_path / "s")) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        wanted = pytest.raises(OSError, match=r"could not add facts to .*full.*earlier commits")
        with wanted, transaction(connection, "add facts to"):
            connection.execute("INSERT INTO facts VALUES (?)", ["x" * 100_000])
        assert facts(connection) == ["made"]
