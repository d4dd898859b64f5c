"""Each store refuses what is not its own, and reports what failed."""

import json
import multiprocessing
import re
import sqlite3
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from urllib.parse import quote

import numpy as np
import psycopg
import pytest
from rocksdict import Options, Rdict

from aftlib.core.windows import Windows
from aftlib.shared_state import liveness as waiting
from aftlib.shared_state.aggregates import AGGREGATES, SUM
from aftlib.shared_state.job import Job
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.stores import open_table
from aftlib.shared_state.stores import sql as sqlite_table
from aftlib.shared_state.stores.postgres import PostgresTable
from aftlib.shared_state.stores.rocksdb import RocksTable
from aftlib.shared_state.stores.sql import SqliteTable
from aftlib.shared_state.stores.tables import MemoryTable, Progress, StaleBatch
from aftlib.shared_state.tuplelog import TupleLog
from tests.postgres import own_server, stopped
from tests.refusals import refused
from tests.shared_state.tuples import partials

ROWS = partials(SUM, np.array([0]), np.array([1]), np.array([5]))


def filled(table):
    with table:
        table.merge(ROWS, {0: Progress(10)})


def test_addresses(tmp_path, schema):
    assert isinstance(open_table("memory:", SUM), MemoryTable)
    for kind in ("rocksdb", "sqlite"):
        filled(open_table(f"{kind}:{tmp_path / kind}", SUM))
    filled(open_table(schema.url, SUM, schema=schema.name))
    with pytest.raises(ValueError, match="address must begin with one of memory:, rocksdb:, .*'my"):
        open_table("mysql://here", SUM)
    with pytest.raises(ValueError, match=r"flush must be one of merge, barrier, got 'no'"):
        open_table(f"sqlite:{tmp_path / 's'}", SUM, "no")


def test_another_version_or_aggregate(opened):
    table = opened()
    if not table.durable:
        pytest.skip("a table in memory")
    table.merge(ROWS, {0: Progress(10)})
    table.barrier()
    table.close()
    with pytest.raises(ValueError, match=r"another aggregate \(sum\), not of this one \(max\)"):
        opened(AGGREGATES["max"])
    table = opened()
    store = getattr(table, "store", table)
    if isinstance(store, RocksTable):
        store._db.put(b"i", json.dumps([9, "sum"]).encode())
    else:
        store._rows("UPDATE identity SET version = 9 RETURNING version")
    table.close()
    with pytest.raises(ValueError, match="state table of version 5, got version 9"):
        opened()


def others_database(place):
    other = Rdict(str(place), Options(raw_mode=True))
    other[b"x"] = b"y"
    other.close()


def damaged_database(place):
    filled(RocksTable(place, SUM))
    (place / "CURRENT").write_text("nonsense")


def others_tables(place):
    with sqlite3.connect(place) as connection:
        connection.execute("CREATE TABLE state (a)")


def damaged_file(place):
    filled(SqliteTable(place, SUM))
    with place.open("r+b") as file:
        file.seek(100)
        file.write(b"x" * 3000)


def folder_with_files(*names):
    def make(place):
        place.mkdir()
        for name in names:
            (place / name).touch()

    return make


FIRST_FILES = "LOCK", "LOG", "IDENTITY", "MANIFEST-000001", "000001.dbtmp"
"""Files of a RocksDB folder that a power failure may leave while it is created."""


@pytest.mark.parametrize(
    ("table", "prepare", "message"),
    [
        (
            RocksTable,
            folder_with_files("photo"),
            "a state table or a new folder, .* something else",
        ),
        (RocksTable, folder_with_files(*FIRST_FILES, "000004.sst"), "which holds something else"),
        (RocksTable, lambda place: place.write_text("hello"), "a state table or a new folder"),
        (RocksTable, others_database, "a state table, got a database with other data"),
        (RocksTable, damaged_database, "an intact state table"),
        (SqliteTable, lambda place: place.write_text("no " * 900), "a state table or a new file"),
        (SqliteTable, others_tables, "a state table, got a file with other"),
        (SqliteTable, damaged_file, "a state table or a new file"),
    ],
)
def test_places_that_hold_something_else_are_refused(table, prepare, message, tmp_path):
    prepare(tmp_path / "t")
    with pytest.raises(ValueError, match=f"path must be {message}|{message}"):
        table(tmp_path / "t", SUM)
    if prepare is others_tables:
        with sqlite3.connect(tmp_path / "t") as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_rocksdb_folder_whose_creation_was_cut_off_is_created_again(tmp_path):
    folder_with_files(*FIRST_FILES)(tmp_path / "table")
    with RocksTable(tmp_path / "table", SUM) as table:
        assert table.progress() == {}


class TestRocks:
    def test_in_use(self, tmp_path):
        with (
            RocksTable(tmp_path / "r", SUM),
            pytest.raises(OSError, match="is in use by another process"),
        ):
            RocksTable(tmp_path / "r", SUM)

    def test_full_disk(self, tmp_path):
        def full(*_):
            raise Exception("IO error: No space left on device")  # noqa: TRY002 rocksdict's own

        with RocksTable(tmp_path / "r", SUM) as table:
            database = table._db
            table._db = SimpleNamespace(
                write=full, get=database.get, iter=database.iter, close=database.close
            )
            for act, call in (
                ("merge", lambda: table.merge(ROWS, {})),
                ("drop", lambda: table.drop(3)),
                ("forget", lambda: table.forget(0)),
            ):
                with pytest.raises(OSError, match=f"could not {act} in .*No space left.*is lost"):
                    call()


class TestSqlite:
    @pytest.mark.parametrize("opened_before", [True, False])
    def test_who_holds_it_is_reported_and_waited_for_no_longer_than_wanted(
        self, tmp_path, caplog, monkeypatch, opened_before
    ):
        monkeypatch.setattr(waiting, "REPORT_S", 0.05)
        monkeypatch.setattr(sqlite_table, "TURN_S", 0.02)
        with SqliteTable(tmp_path / "s", SUM, timeout_s=0.3) as table:
            with sqlite3.connect(tmp_path / "s", isolation_level=None) as holder:
                holder.execute("BEGIN EXCLUSIVE" if opened_before else "BEGIN IMMEDIATE")
                with pytest.raises(TimeoutError, match=r"could not .*locked.*end the process"):
                    if opened_before:
                        table.merge(ROWS, {})
                    else:
                        table.forget(0)
                (line,) = caplog.messages
                assert line.startswith("waiting: could not ")
                holder.execute("COMMIT")
            table.merge(ROWS, {})
            assert table.read().values.tolist() == [[5]]

    def test_a_main_file_older_than_its_log_is_damage_and_named(self, tmp_path):
        """Once, a bare sqlite3.DatabaseError."""
        wide = partials(SUM, np.zeros(9000, int), np.arange(9000), np.ones(9000, int))
        with SqliteTable(tmp_path / "s", SUM) as table:
            table.merge(ROWS, {0: Progress(10)})
            table._rows("PRAGMA wal_checkpoint(TRUNCATE)")
            older = (tmp_path / "s").read_bytes()
            table.merge(wide, {0: Progress(20)})
            table._rows("PRAGMA wal_checkpoint(TRUNCATE)")
            # more rows at the end: the tree's root is in the log, its older leaves are not
            more = partials(SUM, np.zeros(9000, int), np.arange(9000, 18000), np.ones(9000, int))
            table.merge(more, {0: Progress(30)})
            (tmp_path / "old").write_bytes(older)
            (tmp_path / "old-wal").write_bytes((tmp_path / "s-wal").read_bytes())
        with SqliteTable(tmp_path / "old", SUM) as table:
            for call in (table.read, lambda: table.merge(wide, {0: Progress(40)})):
                with pytest.raises(ValueError, match="intact state table.* of one moment"):
                    call()

    def test_many_open_a_new_file_at_once(self, tmp_path):
        fork = multiprocessing.get_context("fork")
        ready = fork.Barrier(6)

        def merge():
            ready.wait()
            with SqliteTable(tmp_path / "s", SUM) as table:
                table.merge(ROWS, {})

        processes = [fork.Process(target=merge) for _ in range(6)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0] * 6
        with SqliteTable(tmp_path / "s", SUM) as table:
            assert table.read().values.tolist() == [[30]]


SPELLINGS = [
    "postgres://me:hush-hush@{at}/stock",
    "POSTGRESQL://me:hush-hush@{at}/stock",
    "postgresql+psycopg://me:hush-hush@{at}/stock",
    "postgresql://me:hush%-hush@{at}/stock",
    "postgresql://me:hush/hush@{at}/stock",
    "postgresql://me:[hush-hush@{at}/stock",
    "postgresql://me:a/[hush-hush@{at}/stock",
    "postgresql://me:no@hush-hush@{at}/stock",
    "postgresql://me:hush?hush@{at}/stock",
    "postgresql://me:h%75sh-hush@{at}/stock",
    "postgresql://{at}/stock?user=me&password=hush-hush",
    "postgresql://{at}/stock?user=me&sslpassword=hush-hush",
    "postgresql://{at}/stock?user=me&pasword=hush-hush",
    "postgresql://me:hush-hush/stock",
    "postgresql://me%3Ahush-hush@{at}/stock",
    "sqlite:postgresql://me:hush-hush@{at}/stock",
    "host=127.0.0.1 port=1 user=me password=hush-hush",
    "host=127.0.0.1 port=1 user=me password='hush hush",
    "host:127.0.0.1 password=hush-hush",
    "sqlite:host=127.0.0.1 password=hush-hush",
    "sqlite:host=127.0.0.1 pass=hush-hush",
    "sqlite:postgresql:me:hush-hush@{at}",
    "sqlite://me:hush-hush@{at}/stock",
    "postgresql://me,hush-hush@{at}/stock",
    "dbname=stock;password:hush-hush",
    "postgresql://me:hush-hush\udcff@{at}/stock",
    "postgresql://me:hush-hush@{at}/%ff",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_password_is_in_a_message(spelling, tmp_path):
    """However the address is spelled, and whatever the driver reports."""
    address = spelling.format(at="127.0.0.1:1")
    log = TupleLog.write(tmp_path / "log", [b"0,0,0\n"])

    def run_job(shared):
        job = Job(log, Rules(Windows(10, 5)), tmp_path / "job", shared=shared, patience_s=1)
        assert "hush" not in job.place
        with job.open_shared():
            pass

    texts = []
    for call in (partial(PostgresTable, timeout_s=1), open_table):
        with pytest.raises((ValueError, OSError)) as error:
            call(address, SUM)
        texts += traceback.format_exception(error.value)
    with pytest.raises((ValueError, OSError)) as error:
        run_job(address)
    texts += traceback.format_exception(error.value)
    code = [line for line in texts if line.lstrip().startswith("File ")]
    assert not any("hush" in text for text in texts if text not in code)


HOSTS = [
    f"postgresql://me@{host}/stock" for host in (".", "a" * 300, "hä.invalid..", "127.0.0.1,.")
]
test_places_that_cannot_be_read_are_refused = refused(
    lambda place, timeout_s=1.0: PostgresTable(place, SUM, timeout_s=timeout_s),
    *((place, "url must be readable as postgresql") for place in HOSTS),
    *((place, "address must be a text such as") for place in (None, 5, b"sqlite:x", Path("x"))),
    *(("postgresql:", s, r"timeout_s must be above 0 and at most 1e\+06") for s in (0, 3e6)),
)


def test_paths_with_delimiters_are_files_if_they_begin_like_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("./a@b:c=d", tmp_path / "me@work", "plain"):
        filled(open_table(f"sqlite:{place}", SUM))
    assert {path.name for path in tmp_path.iterdir()} >= {"a@b:c=d", "me@work", "plain"}


def without_an_answer(call):
    """The error of a call, which must come though its server never answers."""
    with ThreadPoolExecutor(1) as pool, pytest.raises(ConnectionError) as error:
        pool.submit(call).result(timeout=500)
    return " ".join(str(error.value).split())


class TestPostgres:
    def test_a_wait_for_a_lock_is_reported_and_broken_off(self, schema, caplog, monkeypatch):
        """Once, it was waited for without bound or message."""
        monkeypatch.setattr(waiting, "REPORT_S", 0.05)
        with (
            PostgresTable(schema.url, SUM, schema.name, timeout_s=1) as table,
            psycopg.connect(schema.url) as other,
        ):
            other.execute(f"LOCK TABLE {schema.name}.state")
            for act, call in (
                ("merge", lambda: table.merge(ROWS, {0: Progress(10)})),
                ("read", table.read),
                ("read", table.windows),
            ):
                caplog.clear()
                assert "timeout" in without_an_answer(call)
                (line,) = caplog.messages
                assert re.match(f"waiting: {act} in schema .* has no answer for 0.05 s", line)
            other.rollback()
            table.merge(ROWS, {0: Progress(10)})
            assert table.read().values.tolist() == [[5]]

    @pytest.mark.crash
    def test_a_call_to_a_stopped_server_is_reported_and_broken_off(self, caplog, monkeypatch):
        """SIGSTOP: it still accepts connections, but enforces no timeouts."""
        monkeypatch.setattr(waiting, "REPORT_S", 0.05)
        with own_server() as server, PostgresTable(server.url, SUM, timeout_s=1) as table:
            table.merge(ROWS, {0: Progress(10)})
            with stopped(server.processes):
                for call in (table.progress, table.progress, lambda: table.merge(ROWS, {})):
                    caplog.clear()
                    assert "timeout" in without_an_answer(call)
                    assert [line.split()[0] for line in caplog.messages] == ["waiting:"]
            assert table.progress() == {0: Progress(10)}

    def test_wrong_credentials(self, schema):
        with pytest.raises(PermissionError, match="PostgreSQL refuses user=nobody") as caught:
            PostgresTable(schema.url.replace("postgres:", "nobody:secret"), SUM)
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("name", ["folder", "password"])
    def test_no_server(self, tmp_path, name):
        """Once, words of the address itself, which sound like a refusal, ended the job."""
        (folder := tmp_path / name).mkdir()
        with pytest.raises(ConnectionError, match=f"no PostgreSQL answers at .*{name}.*start it"):
            PostgresTable(f"postgresql:///postgres?host={folder}", SUM)

    @pytest.mark.parametrize(
        "setting", ["default_transaction_read_only=on", "transaction_timeout=1000"]
    )
    def test_a_server_that_changes_nothing_for_now_is_away(self, schema, setting):
        """Such as a standby that takes over. Once, the driver's own error ended the job."""
        filled(PostgresTable(schema.url, SUM, schema.name))
        there = f"{schema.url}{'&' if '?' in schema.url else '?'}options=" + quote(f"-c {setting}")

        class Slow(dict):
            def items(self):
                sleep(1.5)
                return super().items()

        with PostgresTable(there, SUM, schema.name) as table:
            with pytest.raises(ConnectionError, match="could not merge .*(read-only|timeout)"):
                table.merge(ROWS, Slow({0: Progress(10)}))
            assert table.read().values.tolist() == [[5]]

    def test_a_server_that_shuts_down_once_it_has_answered(self, schema, monkeypatch):
        connect = psycopg.connect

        def broken_off(*where, **how):
            connection = connect(*where, **how)
            with connect(schema.url, autocommit=True) as other:
                pid = connection.info.backend_pid
                other.execute("SELECT pg_terminate_backend(%s, 9999)", [pid])
            return connection

        monkeypatch.setattr(psycopg, "connect", broken_off)
        with pytest.raises(ConnectionError, match="no PostgreSQL answers at .*administrator comm"):
            PostgresTable(schema.url, SUM, schema=schema.name)

    def test_others_schema(self, schema):
        with psycopg.connect(schema.url) as connection:
            connection.execute(f"CREATE SCHEMA {schema.name}")
            connection.execute(f"CREATE TABLE {schema.name}.customers (a int)")
        with pytest.raises(ValueError, match=r"holds something else \(customers\); choose another"):
            PostgresTable(schema.url, SUM, schema=schema.name)

    def test_a_schema_dropped_under_a_table(self, schema):
        with PostgresTable(schema.url, SUM, schema=schema.name) as table:
            table.merge(ROWS, {0: Progress(10)})
            with psycopg.connect(schema.url, autocommit=True) as other:
                other.execute(f"DROP SCHEMA {schema.name} CASCADE")
            for call in (table.progress, table.read, lambda: table.merge(ROWS, {0: Progress(20)})):
                with pytest.raises(ValueError, match="the tables that it had.* was replaced or a"):
                    call()

    def test_a_broken_connection_is_opened_again(self, schema):
        with PostgresTable(schema.url, SUM, schema.name) as table:
            table.merge(ROWS, {0: Progress(10)})
            table.merge(ROWS, {0: Progress(20)})
            with psycopg.connect(schema.url, autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(%s)", [table._connection.info.backend_pid]
                )
            with pytest.raises(ConnectionError, match="could not merge in schema .* it is unknown"):
                table.merge(ROWS, {0: Progress(30)})
            assert table.progress() == {0: Progress(20)}
            table.merge(ROWS, {0: Progress(30)})
            assert table.read().values.tolist() == [[15]]

    def test_two_that_begin_at_the_same_place_are_not_both_merged(self, schema):
        with (
            PostgresTable(schema.url, SUM, schema.name) as one,
            PostgresTable(schema.url, SUM, schema.name) as other,
        ):

            def merge(table):
                try:
                    return table.merge(ROWS, {0: Progress(10, since=0)})
                except StaleBatch:
                    return False

            with ThreadPoolExecutor() as pool:
                for i in range(20):
                    one._execute("TRUNCATE progress")
                    assert sorted(pool.map(merge, (one, other))) == [False, True], i
