"""The threats of docs/security.md that no package's own tests cover."""

from __future__ import annotations

import ast
import gzip
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aftlib
from aftlib.approximately_once.sink import WindowSink
from aftlib.core import textfile
from aftlib.core.sensorlog import SensorLog
from aftlib.core.tablefile import read_frame
from aftlib.core.textfile import LONGEST_LINE
from aftlib.core.windows import Windows
from aftlib.reports.notebook import find_notebook
from aftlib.shared_state.job import Job
from aftlib.shared_state.parsing import Rules
from aftlib.shared_state.stores import redact
from aftlib.shared_state.tuplelog import TupleLog

LIBRARY, ROOT = Path(aftlib.__file__).parent, Path(__file__).parents[1]
HOSTILE = ("'); DROP TABLE windows; --", "../../evil", "/etc/evil", "a\x00b", "%s", '"; x')
FILES = [path.relative_to(LIBRARY).as_posix() for path in sorted(LIBRARY.rglob("*.py"))]

# The sockets of the project: nothing else opens any.
LISTENERS = {
    "shared_state/server.py": "AF_UNIX",
    "spark/workers.py": "AF_UNIX",
    "upstream_backup/node_process.py": "start_unix_server",
}


OWN_CHILDREN = {"shared_state/paced.py"}
"""Files whose messages pass anonymous pipes between a process and its own children only."""


def calls(file):
    """Name and arguments of what a file calls."""
    for node in ast.walk(ast.parse((LIBRARY / file).read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_only_these_files_take_connections_and_only_there():
    openers = {"Listener", "asyncio.start_server", "asyncio.start_unix_server", "socket.socket"}
    openers |= {"socketserver.TCPServer", "HTTPServer", "ThreadingHTTPServer", "create_server"}
    sockets = {
        file: ast.unparse(node)
        for file in FILES
        for name, node in calls(file)
        if name in openers or name.endswith((".bind", ".listen", ".create_server"))
    }
    assert set(sockets) == set(LISTENERS)
    assert all(LISTENERS[file] in text for file, text in sockets.items())


def test_nothing_is_unpickled_from_disk_or_wire():
    """Ruff's rules S301, S302 and S307 refuse pickle, marshal and eval themselves."""
    for file in set(FILES) - OWN_CHILDREN:
        text = (LIBRARY / file).read_text()
        assert not re.search(r"^(import|from) (dill|joblib|shelve|cloudpickle)\b", text, re.M)
        connected = "multiprocessing.connection" in text
        for name, node in calls(file):
            # send_bytes and recv_bytes do not pickle
            assert not (connected and name.endswith((".send", ".recv"))), file
            assert name != "np.load" or "allow_pickle=False" in ast.unparse(node), file
    names = {name for file in OWN_CHILDREN for name, _ in calls(file)}
    assert "fork.Pipe" in names and not names & {"Client", "Listener", "pickle.loads"}


def test_no_statement_is_put_together_from_names_of_users():
    """Only constants of the class and numbers are inserted into the text of a statement."""
    known = {"_REPLACE", "self.suffix", "table", "marks", "VERSION", "application"}
    known |= {"int(1000 * timeout_s)"}
    verbs = {"execute", "executemany", "_execute", "read_sql"}
    for file in FILES:
        for name, node in calls(file):
            if name.split(".")[-1] in verbs and node.args:
                pieces = [p for p in ast.walk(node.args[0]) if isinstance(p, ast.FormattedValue)]
                parts = {ast.unparse(piece.value) for piece in pieces}
                assert parts <= known, f"{file}: {ast.unparse(node)}"


def test_names_go_into_tables_as_they_are(tmp_path):
    sink = WindowSink(tmp_path / "sink.sqlite", "q")
    rows = [(0, 10, name, 1.0, None, 0, 10) for name in HOSTILE]
    sink.write(rows)
    assert sorted(sink.windows()["key"]) == sorted(HOSTILE)
    with closing(sqlite3.connect(tmp_path / "sink.sqlite")) as connection:
        assert connection.execute("SELECT count(*) FROM windows").fetchone() == (len(HOSTILE),)


def test_names_of_sensors_are_no_paths(tmp_path):
    log = SensorLog.write(tmp_path / "in" / "log", np.zeros((5, len(HOSTILE))), HOSTILE)
    assert SensorLog.open(log.path).names == HOSTILE
    files = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")}
    assert files == {"in"}
    assert {path.parent for path in (tmp_path / "in").rglob("*.*")} == {tmp_path / "in" / "log"}


@pytest.mark.parametrize("name", ["../README", "../../etc/no-such", "01_x/../../x", "%2e%2e/01"])
def test_a_notebook_s_name_leads_nowhere_else(name):
    with pytest.raises(ValueError, match="no notebook .*: give a path, or a name"):
        find_notebook(name)


def test_a_password_is_in_no_text_of_a_job(tmp_path):
    log = TupleLog.write(tmp_path / "log", [b"0,0,0\n"])
    url = "postgresql://me:hush-hush@127.0.0.1/stock"
    job = Job(log, Rules(Windows(10, 5)), tmp_path / "job", shared=url)
    job.claim_folder()
    texts = [repr(job), job.place, str(job.identity)]
    texts += [path.read_text() for path in job.directory.iterdir()]
    assert "stock" in job.place
    assert not any("hush-hush" in text for text in texts)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me@127.0.0.1/stock&password=hush",
        "postgresql://me@127.0.0.1/stock%3Fpassword=hush",
        "dbname='user=me password=hush'",
        "postgresql://me:5/hush?application_name=b@127.0.0.1/stock",
        "postgresql://me;hush@127.0.0.1/stock",
        "host=me:hush",
        "sqlite:me:hush@127.0.0.1",
    ],
)
def test_an_address_whose_password_moved_into_another_field_is_refused(address):
    with pytest.raises(ValueError, match="must be readable as postgresql") as caught:
        redact(address)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:w@h1:1,[fe80::1%25eth0]:2/d", "user=me host=h1,fe80::1%eth0 port=1,2 "),
        ("postgresql://me:w@[::1]/a_b-c.d", "user=me host=::1 dbname=a_b-c.d"),
        (f"postgresql:///d?host=/a..b/{'c' * 80}", f"host=/a..b/{'c' * 80} dbname=d"),
        ("postgresql://m%C3%BC:w@h/d%2Be", "user=… host=h dbname=…"),
        ("postgresql://mü:w@hä.example/d", "user=… host=… dbname=d"),
    ],
)
def test_an_address_is_shown_without_password_and_odd_names(address, shown):
    assert redact(address).startswith(shown)


def test_the_notebook_server_keeps_its_token_and_its_loopback():
    makefile = (ROOT / "Makefile").read_text()
    assert "jupyter lab" in makefile
    assert not re.search(r"--ip|no-browser|token|password|allow[-_]root|allow[-_]origin", makefile)


def test_a_packed_file_that_swells_is_refused(tmp_path, monkeypatch):
    bomb = tmp_path / "bomb.csv.gz"
    bomb.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 10_000_000, 1))
    assert bomb.stat().st_size < 1_000_000
    monkeypatch.setattr(textfile, "memory_bytes", lambda: 2**24)
    with pytest.raises(ValueError, match="it unpacks to more than 0.0 GB, half of the memory"):
        read_frame(bomb)
    named = bomb.rename(tmp_path / "bomb.csv")  # nor is it unpacked by a wrong name
    with pytest.raises(ValueError, match="path must hold a table, .* it is packed|is packed"):
        read_frame(named)


def test_a_parquet_file_that_swells_is_refused(tmp_path):
    path, group = tmp_path / "bomb.parquet", pa.table({"a": np.zeros(2**22)})
    wide = pa.table({f"s{i}": group["a"] for i in range(8)})
    with pq.ParquetWriter(path, wide.schema) as writer:
        writer.write_table(wide, row_group_size=2**22)
    metadata = pq.read_metadata(path)
    assert path.stat().st_size < 8 * metadata.num_rows * metadata.num_columns / 1000
    pages = os.sysconf("SC_PHYS_PAGES")
    small = 8 * metadata.num_rows * metadata.num_columns // os.sysconf("SC_PAGE_SIZE")
    with pytest.MonkeyPatch.context() as patch:
        known = os.sysconf
        patch.setattr(os, "sysconf", lambda n: small if n == "SC_PHYS_PAGES" else known(n))
        with pytest.raises(ValueError, match="33,554,432|4,194,304 rows of 8 columns take .* GB"):
            read_frame(path)
    assert pages > 0


@pytest.mark.parametrize(
    ("head", "unit"), [(b"", b"1,"), (b"a,b\n" + b"1,2\n" * 100, b"1,"), (b"a,b\n1,", b"x")]
)
def test_a_line_of_100_megabytes_is_refused(tmp_path, head, unit):
    path = tmp_path / "line.csv"
    path.write_bytes(head + unit * (10**8 // len(unit)) + b"\n")
    with pytest.raises(ValueError, match=rf"a line is longer than {LONGEST_LINE:,} bytes") as error:
        read_frame(path)
    assert len(str(error.value)) < 1000


def test_an_error_shows_little_of_a_long_cell(tmp_path):
    from aftlib.core.datasets import read_table

    path = tmp_path / "cell.csv"
    rows = "".join(f"{i},2\n" for i in range(9))
    path.write_text(f"a,b\n{rows}9,{'x' * 500_000}\n")
    with pytest.raises(ValueError, match="column 'b' must be numeric") as error:
        read_table(path, time="a")
    assert len(str(error.value)) < 1000
