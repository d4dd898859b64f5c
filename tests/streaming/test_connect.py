"""Spark Connect: nothing that a classic session alone has, a program that ends, a clear refusal."""

import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import aftlib.streaming
from aftlib.streaming.metrics import metrics_table

ROOT = Path(__file__).parents[2]
OLDEST = (4, 1)
"""The oldest Spark Connect with keyed state in Python."""
VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))
PROGRAM = """
import sys
from pathlib import Path
from tests.streaming.test_stream import *
from tests.connect import connected

place = Path(sys.argv[1])
spark = connected("local[2]")
rows = long(minutes(rounds=60))
put(place / "in", [rows[:400], rows[400:800], rows[800:]])
recoverable(reader(spark, place / "in"), Promise(**TERMS))  # refused without keyed state
site = known_sites()["north"]
put(place / "site", [site[:400], site[400:800], site[800:]])
known = Promise(**TERMS | {"epsilon": 0.55, "share": 1}, model=MODEL)
output, _ = run(recoverable(reader(spark, place / "site"), known, now=now()), place / "known")
require_equal(in_order(output), in_order(rows_one_by_one(complete_windows(site, known), known)))
record_metrics(spark, place / "metrics")
output, _ = run(recoverable(reader(spark, place / "in"), Promise(**TERMS), now=now()), place)
require_equal(in_order(output), in_order(expected_rows(rows, Promise(**TERMS))))
table_of(place / "metrics", len(output))
"""


def test_streaming_names_nothing_of_a_classic_session():
    """Those parts are private to pyspark, and Spark Connect does not have them."""
    private = re.compile(
        r"\b_(?:jvm|jdf|jgd|jsparkSession|jsc|sc|gateway)\b|sparkContext|\.classic"
    )
    for path in Path(aftlib.streaming.__file__).parent.glob("*.py"):
        assert private.findall(path.read_text()) == [], path.name


def run_program(place):
    """Run the program in a process of its own, because a process has one kind of session."""
    pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio; `make versions` has it")
    command = [sys.executable, "-c", PROGRAM, str(place)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)


@pytest.mark.slow
@pytest.mark.skipif(VERSION < OLDEST, reason="this Spark Connect has no keyed state in Python")
def test_a_program_on_spark_connect_ends_with_its_query_and_has_its_metrics(tmp_path):
    """A listener's thread that waits for the server would keep it."""
    done = run_program(tmp_path)
    assert done.returncode == 0, done.stderr
    (query,) = metrics_table(tmp_path / "metrics").columns
    assert metrics_table(tmp_path / "metrics").loc["exact", query] == 4 * 59


@pytest.mark.versions
@pytest.mark.slow
@pytest.mark.skipif(VERSION >= OLDEST, reason="this Spark Connect has keyed state in Python")
def test_spark_connect_without_keyed_state_is_refused(tmp_path):
    done = run_program(tmp_path)
    assert done.returncode == 1
    assert "ValueError: the session must have keyed state in Python, got Spark Con" in done.stderr
