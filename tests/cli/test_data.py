"""`polyfed data list`, `info` and `fetch`."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli import command

DATA = '[data]\nsource = "digits"\nclients = 3\n'


def polyfed(*arguments: str, cwd: Path, check: int = 0) -> subprocess.CompletedProcess[str]:
    done = command.polyfed(*arguments, cwd=cwd, check=check, **variables(cwd))
    assert "Traceback" not in done.stderr
    return done


def variables(folder: Path) -> dict[str, str]:
    return {"POLYFED_DATA": str(folder / "data"), "no_proxy": "127.0.0.1", "COLUMNS": "200"}


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    """A server of the folder `mirror`."""
    (tmp_path / "mirror").mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path / "mirror")))
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()


def test_the_list_says_what_is_there_what_it_takes_and_the_licence(tmp_path: Path) -> None:
    (tmp_path / "data" / "femnist" / "train").mkdir(parents=True)
    (tmp_path / "data" / "femnist" / "train" / "a.json").touch()
    lines = polyfed("data", "list", cwd=tmp_path).stdout.splitlines()
    rows = {line.split()[0]: line for line in lines if line.strip()}
    assert "absent; 170 MB to fetch" in rows["cifar10"]
    assert "MIT" in rows["fashion_mnist"]
    assert "embedded" in rows["digits"]
    assert "there" in rows["femnist"]
    listing = json.loads(polyfed("data", "list", "--json", cwd=tmp_path).stdout)
    assert listing["mnist"]["there"] is False
    assert listing["mnist"]["megabytes"] == 11.6
    assert listing["femnist"] | {"there": True, "missing": []} == listing["femnist"]
    assert set(listing["csv"]) >= {"what", "state", "licence"}


def test_fetch_brings_a_file_from_a_mirror_and_says_its_checksum(tmp_path: Path, mirror: str) -> None:
    content = b"+1 3:1 7:1\n-1 2:1\n"
    (tmp_path / "mirror" / "a6a").write_bytes(content)
    done = polyfed("data", "fetch", "a6a", "--from", mirror, cwd=tmp_path)
    assert "a6a: 1 file fetched" in done.stdout
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" in done.stdout
    assert (tmp_path / "data" / "libsvm" / "a6a").read_bytes() == content
    again = json.loads(polyfed("data", "fetch", "a6a", "--json", "--from", mirror, cwd=tmp_path).stdout)
    assert again["a6a"][0]["already"] is True
    config = '[data]\nsource = "libsvm"\nname = "a6a"\nclients = 2\n'
    (tmp_path / "a6a.toml").write_text(config)
    assert "2 clients" in polyfed("data", "info", "a6a.toml", cwd=tmp_path).stdout


def test_fetch_refuses_without_a_traceback(tmp_path: Path, mirror: str) -> None:
    assert "did you mean 'mnist'" in polyfed("data", "fetch", "mnst", cwd=tmp_path, check=2).stderr
    assert "preprocess.sh" in polyfed("data", "fetch", "femnist", cwd=tmp_path, check=2).stderr
    missing = polyfed("data", "fetch", "a9a", "--from", mirror, cwd=tmp_path, check=2)
    assert "the server says 404" in missing.stderr
    (tmp_path / "mirror" / "a9a").write_text("wrong")
    wrong = polyfed("data", "fetch", "a9a", "--from", mirror, cwd=tmp_path, check=2)
    assert "a file of 5 bytes, where the published one has 2,329,875" in wrong.stderr
    assert not (tmp_path / "data" / "libsvm" / "a9a").exists()


def test_ctrl_c_keeps_what_came(tmp_path: Path) -> None:
    held = threading.Event()

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2329875")
            self.end_headers()
            self.wfile.write(b"1" * 600_000)
            self.wfile.flush()
            held.wait(60)

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    base = f"http://127.0.0.1:{http.server_port}"
    arguments = ("data", "fetch", "a9a", "--from", base)
    process = command.start_polyfed(*arguments, cwd=tmp_path, **variables(tmp_path))
    part = tmp_path / "data" / "libsvm" / "a9a.part"
    try:
        for _ in range(600):
            if part.exists():
                break
            time.sleep(0.1)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    finally:
        held.set()
        process.kill()
        process.wait()
        http.shutdown()
        http.server_close()
    assert process.returncode == 130
    assert "stopped; what came is kept, and the same command goes on from there" in told
    assert "Traceback" not in told
    assert part.stat().st_size > 0


def test_info_needs_no_algorithm(tmp_path: Path) -> None:
    (tmp_path / "data.toml").write_text(DATA)
    assert "3 clients" in polyfed("data", "info", "data.toml", cwd=tmp_path).stdout


def test_info_draws_a_picture_and_refuses_what_is_none(tmp_path: Path) -> None:
    (tmp_path / "data.toml").write_text(DATA)
    done = polyfed("data", "info", "data.toml", "--picture", "labels.svg", cwd=tmp_path)
    assert "picture: labels.svg" in done.stdout
    assert (tmp_path / "labels.svg").read_text().rstrip().endswith("</svg>")
    assert (
        "a picture ends in .svg"
        in polyfed("data", "info", "data.toml", "--picture", "labels.gif", cwd=tmp_path, check=2).stderr
    )


def test_a_damaged_file_ends_with_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text('[data]\nsource = "mnist"\n')
    absent = polyfed("data", "info", "m.toml", cwd=tmp_path, check=2).stderr
    assert "no such file; `polyfed data fetch mnist` gets it" in absent
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (folder / f"{name}-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x08\x03" + b"\0" * 100)[:-9])
    damaged = polyfed("data", "info", "m.toml", cwd=tmp_path, check=2).stderr
    assert "train-images-idx3-ubyte.gz: a damaged or incomplete gzip file" in " ".join(damaged.split())


def test_info_of_a_table_says_what_every_column_holds(tmp_path: Path) -> None:
    rows = [
        f"{['north', 'south', 'west'][i % 3]};{i % 7},5;{'AB'[i % 2]};text number {i} here;{i % 2}" for i in range(90)
    ]
    rows = [row.replace(f"{i % 7},5", "") if row.startswith("west") else row for i, row in enumerate(rows)]
    (tmp_path / "visits.csv").write_text("\n".join(["site;dose;ward;note;died", *rows]) + "\n")
    table = ("data", "info", "visits.csv", "--client", "site", "--target", "died")
    done = polyfed(*table, "--sites", cwd=tmp_path).stdout
    assert "note: columns left out: note (free text)" in done
    assert "file: separator semicolon, encoding utf-8, decimal comma" in done
    dose = next(line for line in done.splitlines() if line.startswith("dose"))
    assert dose.split()[:6] == ["dose", "number", "2", "33%", "west", "100%"]
    assert ["west", "100%", "-"] in [line.split() for line in done.splitlines()]
    clients = json.loads(polyfed(*table, "--json", cwd=tmp_path).stdout)
    west = next(client for client in clients if client["client"] == "west")
    assert west["columns"]["dose"] == {"kind": "number", "missing": 1.0, "shift": None}
    assert "ward (as asked)" in polyfed(*table, "--set", "data.columns.ward=skip", cwd=tmp_path).stdout


def test_info_of_a_table_needs_its_columns_by_name(tmp_path: Path) -> None:
    assert "t.csv: there is no such file" in polyfed("data", "info", "t.csv", cwd=tmp_path, check=2).stderr
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    assert (
        "say which column is the target, with --target"
        in polyfed("data", "info", "t.csv", "--client", "a", cwd=tmp_path, check=2).stderr
    )
    table = ("data", "info", "t.csv", "--target", "b", "--client")
    assert polyfed(*table, "x", cwd=tmp_path, check=2).stderr.count("t.csv") == 1
    (tmp_path / "t.csv").rename(tmp_path / "t.xlsx")
    workbook = ("data", "info", "t.xlsx", "--target", "b", "--client", "a")
    assert "save its sheet as CSV" in polyfed(*workbook, cwd=tmp_path, check=2).stderr.replace("\n", " ")
    (tmp_path / "t.xlsx").rename(tmp_path / "t.zip")
    archive = ("data", "info", "t.zip", "--target", "b", "--client", "a")
    assert "unpack it" in polyfed(*archive, cwd=tmp_path, check=2).stderr.replace("\n", " ")
    (tmp_path / "t.tsv").write_text("site\tx\ty\n" + "a\t1\t0\nb\t2\t1\n" * 20)
    tabs = ("data", "info", "t.tsv", "--client", "site", "--target", "y")
    assert "2 clients, 40 rows" in polyfed(*tabs, cwd=tmp_path).stdout
    (tmp_path / "c.toml").write_text(DATA)
    assert (
        "--client names a column of a table"
        in polyfed("data", "info", "c.toml", "--client", "a", cwd=tmp_path, check=2).stderr
    )
