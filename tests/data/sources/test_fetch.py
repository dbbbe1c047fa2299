"""Downloads from a local server that behaves, cuts the connection, ignores ranges, lies, or is not there."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from polyfed.core.errors import PolyfedError
from polyfed.data.sources import catalogue, fetch
from polyfed.data.sources.catalogue import DATASETS, Dataset, Download
from tests.data.sources.test_archives import files_in, tarred

BYTES = np.random.default_rng(0).bytes(300_000)
NAME = "set/file.bin"


class Server:
    """Serves `content`; `cuts` lists after how many bytes the next answers break off."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {"file.bin": BYTES}
        self.cuts: list[int] = []
        self.status: list[int] = []
        self.ranges = True
        self.lengths = True
        self.asked: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.http.server_port}/data/"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        asked = request.headers.get("Range")
        self.asked.append(asked)
        data = self.content.get(urlsplit(request.path).path.rpartition("/")[2])
        status = self.status.pop(0) if self.status else (200 if data is not None else 404)
        if status != 200 or data is None:
            request.send_error(status)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.ranges else 0
        if start >= len(data):
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if self.lengths:
            request.send_header("Content-Length", str(len(data) - start))
        request.end_headers()
        request.wfile.write(data[start : start + self.cuts.pop(0)] if self.cuts else data[start:])
        request.wfile.flush()
        request.close_connection = True


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def digest(data: bytes, kind: str = "sha256") -> str:
    return f"{kind}:{hashlib.new(kind, data).hexdigest()}"


@pytest.fixture
def known(monkeypatch):
    """Make datasets of the local server known by the name "sample"."""

    def set_known(base: str, *more: str, checksum: str | None = digest(BYTES), path: str = NAME, **facts) -> Download:
        item = Download(path, (base, *more), facts.pop("size", len(BYTES)), checksum, **facts)
        monkeypatch.setitem(DATASETS, "sample", Dataset("sample", "sample", "none", (item,)))
        return item

    return set_known


def get(folder: Path, **options):
    return fetch.fetch("sample", folder, pause=0.0, **options)


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_a_file_arrives_whole_and_is_not_fetched_again(server, known, tmp_path, kind):
    known(server.base, checksum=digest(BYTES, kind))
    seen: list[tuple[str, int, int]] = []
    (first,) = get(tmp_path, report=lambda *progress: seen.append(progress))
    assert (tmp_path / NAME).read_bytes() == BYTES
    assert files_in(tmp_path) == [NAME]
    assert seen[-1] == ("file.bin", len(BYTES), len(BYTES))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    (again,) = get(tmp_path)
    assert (first.already, again.already, len(server.asked)) == (False, True, 1)


def test_a_cut_connection_is_resumed_where_it_broke(server, known, tmp_path):
    known(server.base)
    server.cuts = [100_000, 50_000]
    get(tmp_path)
    assert (tmp_path / NAME).read_bytes() == BYTES
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]


def test_without_lengths_a_cut_is_noticed_by_the_known_size(server, known, tmp_path):
    known(server.base)
    server.lengths, server.cuts = False, [100_000]
    get(tmp_path)
    assert (tmp_path / NAME).read_bytes() == BYTES
    assert server.asked == [None, "bytes=100000-"]


def test_a_server_that_ignores_ranges_starts_anew(server, known, tmp_path):
    known(server.base)
    server.ranges, server.cuts = False, [100_000]
    get(tmp_path)
    assert (tmp_path / NAME).read_bytes() == BYTES
    assert server.asked == [None, "bytes=100000-"]


def test_what_came_is_kept_for_the_next_call(server, known, tmp_path):
    known(server.base)
    server.cuts = [60_000] * fetch.TRIES
    with pytest.raises(PolyfedError) as error:
        get(tmp_path)
    message = str(error.value)
    assert "file.bin could not be downloaded" in message
    assert "0.2 of 0.3 MB are kept, and the same command goes on from there; --from URL names a mirror" in message
    assert files_in(tmp_path) == [f"{NAME}.part"]
    get(tmp_path)
    assert server.asked[-1] == "bytes=240000-"
    assert (tmp_path / NAME).read_bytes() == BYTES
    assert files_in(tmp_path) == [NAME]


def test_ctrl_c_leaves_a_file_that_is_resumed(server, known, tmp_path):
    known(server.base)

    def stop(name: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(tmp_path, report=stop)
    kept = (tmp_path / f"{NAME}.part").stat().st_size
    assert kept > 0
    get(tmp_path)
    assert server.asked == [None, f"bytes={kept}-"]
    assert (tmp_path / NAME).read_bytes() == BYTES


def test_wrong_bytes_are_refused_and_nothing_is_left(server, known, tmp_path):
    known(server.base)
    server.content["file.bin"] = BYTES[:-1] + bytes([BYTES[-1] ^ 1])
    found, expected = digest(server.content["file.bin"]), digest(BYTES)
    with pytest.raises(PolyfedError, match=f"not the published one, {found} instead of {expected}"):
        get(tmp_path)
    assert files_in(tmp_path) == []
    assert len(server.asked) == 1  # asking again would bring the same


@pytest.mark.parametrize(("size", "message"), [(200, "a file of 200 bytes"), (400_000, "a file of 400,000 bytes")])
def test_a_page_instead_of_the_file_is_refused_before_it_is_written(server, known, tmp_path, size, message):
    known(server.base)
    server.content["file.bin"] = b"x" * size
    with pytest.raises(PolyfedError, match=f"{message}, where the published one has 300,000"):
        get(tmp_path)
    assert files_in(tmp_path) == []


def test_a_server_that_never_ends_is_stopped(server, known, tmp_path):
    known(server.base)
    server.lengths, server.content["file.bin"] = False, BYTES * 4
    with pytest.raises(PolyfedError, match="more than 300,000 bytes"):
        get(tmp_path)


def test_an_old_piece_of_another_file_is_thrown_away(server, known, tmp_path):
    known(server.base)
    part = tmp_path / f"{NAME}.part"
    part.parent.mkdir()
    part.write_bytes(b"another version" * 1000)
    get(tmp_path)
    assert (tmp_path / NAME).read_bytes() == BYTES
    assert server.asked == ["bytes=15000-", None]
    (tmp_path / NAME).unlink()
    part.write_bytes(b"longer than the file" * 100_000)
    get(tmp_path)
    assert (tmp_path / NAME).read_bytes() == BYTES
    (tmp_path / NAME).unlink()
    part.write_bytes(BYTES)  # whole, but for its name
    asked = len(server.asked)
    get(tmp_path)
    assert len(server.asked) == asked


@pytest.mark.parametrize(("status", "asked"), [(404, 1), (403, 1), (503, fetch.TRIES), (429, fetch.TRIES)])
def test_a_refusal_is_told_and_only_a_passing_one_is_tried_again(server, known, tmp_path, status, asked):
    known(server.base)
    server.status = [status] * 10
    with pytest.raises(PolyfedError, match=rf"{server.base}file\.bin: the server says {status} "):
        get(tmp_path)
    assert len(server.asked) == asked
    assert files_in(tmp_path) == []
    server.status = [503]
    get(tmp_path)
    assert (tmp_path / NAME).read_bytes() == BYTES


def absent() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/"


def test_an_absent_server_is_told_and_the_next_one_is_asked(server, known, tmp_path, monkeypatch):
    nowhere = absent()
    known(nowhere)
    with pytest.raises(PolyfedError, match=rf"{nowhere}file\.bin: no connection \(Connection refused\)"):
        get(tmp_path)
    known(nowhere, server.base)
    get(tmp_path)
    assert (tmp_path / NAME).read_bytes() == BYTES


def test_pauses_double(server, known, tmp_path, monkeypatch):
    known(absent())
    slept: list[float] = []
    monkeypatch.setattr(fetch.time, "sleep", slept.append)
    with pytest.raises(PolyfedError):
        fetch.fetch("sample", tmp_path, pause=1.0)
    assert slept == [1.0, 2.0, 4.0]


def test_a_mirror_has_the_files_under_their_names(server, known, tmp_path):
    known("https://example.invalid/")
    get(tmp_path, base=server.base.rstrip("/"))
    assert (tmp_path / NAME).read_bytes() == BYTES
    with pytest.raises(PolyfedError, match="--from ftp://x: expected an address that begins with https://"):
        get(tmp_path / "other", base="ftp://x")


def test_an_unknown_checksum_is_described_and_such_a_file_is_never_resumed_later(server, known, tmp_path):
    known(server.base, checksum=None, size=200_000)
    part = tmp_path / f"{NAME}.part"
    part.parent.mkdir()
    part.write_bytes(b"old")
    (found,) = get(tmp_path)
    assert (tmp_path / NAME).read_bytes() == BYTES
    assert (found.sha256, server.asked) == (digest(BYTES), [None])


def test_a_file_without_checksum_must_have_the_right_form(server, known, tmp_path):
    known(server.base, checksum=None, path="shakespeare/hamlet.xml")
    server.content["hamlet.xml"] = b"<html>Please log in</html>"
    with pytest.raises(
        PolyfedError, match=r"hamlet\.xml: the file that came has the wrong form: <html> without speech"
    ):
        get(tmp_path)
    assert files_in(tmp_path) == []
    known(server.base, checksum=None, path="libsvm/a6a")
    server.content["a6a"] = b"<html>Please log in</html>"
    with pytest.raises(PolyfedError, match=r"a6a: the file that came has the wrong form: .*line 1"):
        get(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(server, known, tmp_path):
    known(server.base)
    (tmp_path / "set").write_text("a file where a folder should be")
    with pytest.raises(PolyfedError, match="set: cannot be written"):
        get(tmp_path)


def test_an_archive_is_unpacked_and_only_what_is_known_is_taken_out(server, known, tmp_path):
    archive = tarred({"in/a.bin": b"A", "in/b.bin": b"B", "../../evil": b"C", "/tmp/evil": b"D", "in/readme": b"E"})
    server.content["file.tar.gz"] = archive
    facts = {"checksum": digest(archive), "size": len(archive), "path": "file.tar.gz"}
    known(server.base, members=("out/a.bin", "out/b.bin"), **facts)
    get(tmp_path / "data")
    assert files_in(tmp_path) == ["data/out/a.bin", "data/out/b.bin"]
    assert (tmp_path / "data/out/b.bin").read_bytes() == b"B"
    assert get(tmp_path / "data")[0].already
    assert DATASETS["sample"].missing(tmp_path / "data") == []


def test_unknown_names_come_with_the_nearest_and_by_hand_ones_with_the_way(tmp_path):
    with pytest.raises(PolyfedError, match="no dataset 'fashon_mnist' to fetch; did you mean 'fashion_mnist'"):
        fetch.find("fashon_mnist")
    assert fetch.find("fashion-mnist").name == "fashion_mnist"
    assert fetch.find("a6a.t").source == "libsvm"
    with pytest.raises(PolyfedError, match=r"LEAF's data/femnist/preprocess.sh .* copy its .* to .*/femnist"):
        fetch.fetch("femnist", tmp_path)


def test_the_catalogue_names_sources_that_exist_and_secure_addresses():
    import polyfed.data as data

    sources = data.sources()
    for dataset in DATASETS.values():
        assert dataset.source in sources
        assert dataset.licence
        assert bool(dataset.downloads) != bool(dataset.by_hand)
        for item in dataset.downloads:
            assert all(url.startswith("https://") for url in item.urls)
            kind, _, value = (item.checksum or "sha256:" + "0" * 64).partition(":")
            assert len(value) == 2 * hashlib.new(kind).digest_size
            assert set(value) <= set("0123456789abcdef")
    assert len(catalogue.PLAYS) == 37
    assert set(catalogue.EMBEDDED) < set(sources)


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["mnist", "mnist_by_writer", "mushrooms", "a9a", "w8a"])
def test_the_catalogues_checksums_are_those_of_the_real_files(published, name):
    for item in DATASETS[name].downloads:
        content = (published(item.path.partition("/")[0]) / item.path).read_bytes()
        assert (len(content), digest(content)) == (item.size, item.checksum)


def test_what_is_missing_is_said_in_words(tmp_path):
    mnist = DATASETS["mnist"]
    assert mnist.state(tmp_path) == "absent; 12 MB to fetch"
    for name in mnist.missing(tmp_path)[:3]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert mnist.state(tmp_path) == "3 files there; 1 MB to fetch"
    (tmp_path / mnist.missing(tmp_path)[0]).touch()
    assert mnist.state(tmp_path) == "there"
    assert DATASETS["femnist"].state(tmp_path) == "absent; LEAF's script makes it"
