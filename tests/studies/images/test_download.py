import hashlib
import io
import logging
import tarfile
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pooch
import pytest

from pscd.errors import UserError
from studies.images.download import DOWNLOADS, download
from studies.images.sets import IMAGE_SETS, Download


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        self.server.seen.append(self.path)


@pytest.fixture
def server(tmp_path):
    """A web server of the folder `served`; its `seen` are the requests."""
    (tmp_path / "served").mkdir()
    found = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "served"))
    found.seen, found.folder = [], tmp_path / "served"
    found.url = f"http://127.0.0.1:{found.server_port}"
    thread = threading.Thread(target=found.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


def offer(server, monkeypatch, name, content, folder="", mirrors=("",)):
    """Make `name` the file of the set `mnist`."""
    (server.folder / name).write_bytes(content)
    urls = tuple(f"{server.url}/{mirror}{name}" for mirror in mirrors)
    have(monkeypatch, Download(urls, hashlib.md5(content).hexdigest(), folder))


def have(monkeypatch, *files):
    monkeypatch.setitem(IMAGE_SETS, "mnist", replace(IMAGE_SETS["mnist"], files=files))


def test_a_file_is_fetched_once_and_checked(server, monkeypatch, tmp_path):
    offer(server, monkeypatch, "x.gz", b"content", folder="MNIST/raw")
    for _ in range(2):
        assert download("mnist", root=tmp_path / "root", progress=False) == [tmp_path / "root/MNIST/raw/x.gz"]
    assert (tmp_path / "root/MNIST/raw/x.gz").read_bytes() == b"content"
    assert server.seen == ["/x.gz"]
    (tmp_path / "root/MNIST/raw/x.gz").write_bytes(b"damaged")
    download("mnist", root=tmp_path / "root", progress=False)
    assert (tmp_path / "root/MNIST/raw/x.gz").read_bytes() == b"content"


def test_a_wrong_file_is_refused_and_not_kept(server, monkeypatch, tmp_path):
    offer(server, monkeypatch, "x.gz", b"content")
    (server.folder / "x.gz").write_bytes(b"other")
    with pytest.raises(UserError, match=r"wrong checksum.*by hand"):
        download("mnist", root=tmp_path / "root", progress=False)
    assert list((tmp_path / "root").iterdir()) == []


def test_the_next_mirror_is_tried(server, monkeypatch, tmp_path):
    offer(server, monkeypatch, "x.gz", b"content", mirrors=("gone/", ""))
    assert download("mnist", root=tmp_path / "root", progress=False)[0].read_bytes() == b"content"
    (server.folder / "x.gz").unlink()
    with pytest.raises(UserError, match=r"gone/x.gz: HTTP 404; .*/x.gz: HTTP 404; try again later"):
        download("mnist", root=tmp_path / "other", progress=False)


def test_no_connection_is_one_line(monkeypatch, tmp_path):
    have(monkeypatch, Download(("http://127.0.0.1:1/x.gz",), "0" * 32, ""))
    with pytest.raises(UserError, match=r"x.gz: no connection") as caught:
        download("mnist", root=tmp_path, progress=False)
    assert "\n" not in str(caught.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to"):
        download("mnist", root=tmp_path / "file", progress=False)


def test_of_an_archive_the_content_is_kept(server, monkeypatch, tmp_path):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        entry = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
        entry.size = 3
        tar.addfile(entry, io.BytesIO(b"abc"))
    offer(server, monkeypatch, "c.tar.gz", content.getvalue())
    root = tmp_path / "root"
    for _ in range(2):
        assert download("mnist", root=root, progress=False) == [root]
    assert (root / "cifar-10-batches-bin/test_batch.bin").read_bytes() == b"abc"
    assert not (root / "c.tar.gz").exists()
    assert server.seen == ["/c.tar.gz"]


def test_an_archive_cannot_write_elsewhere(server, monkeypatch, tmp_path):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../../escaped"))
    offer(server, monkeypatch, "c.tar.gz", content.getvalue())
    with pytest.raises(UserError, match="escaped"):
        download("mnist", root=tmp_path / "a" / "root", progress=False)
    assert not list(tmp_path.rglob("escaped"))


def test_what_no_command_gets_is_said():
    with pytest.raises(UserError, match=r"celeba has to be fetched by hand, from https://"):
        download("celeba")
    with pytest.raises(UserError, match="digits needs no download"):
        download("digits")
    with pytest.raises(UserError, match="unknown images 'cats'"):
        download("cats")


def test_every_set_without_a_place_to_get_it_by_hand_has_a_download():
    assert {name for name, found in IMAGE_SETS.items() if found.by_hand is None} == {*DOWNLOADS, "digits"}
    for name in DOWNLOADS:
        for file in IMAGE_SETS[name].files:
            assert len(bytes.fromhex(file.md5)) == 16
            assert all(url.endswith(f"/{file.name}") for url in file.urls)


@pytest.mark.parametrize("progress", [True, False])
def test_a_server_has_a_minute_and_the_bar_is_shown_as_asked_for(monkeypatch, tmp_path, progress):
    asked = []

    def retrieve(url, known_hash, fname, path, downloader):
        asked.append((url, known_hash, fname, path, downloader.progressbar, downloader.kwargs["timeout"]))
        return str(path / fname)

    monkeypatch.setattr("pooch.retrieve", retrieve)
    have(monkeypatch, Download(("http://a/x.gz", "http://b/x.gz"), "0" * 32, "raw"))
    assert download("mnist", root=tmp_path, progress=progress) == [tmp_path / "raw" / "x.gz"]
    assert asked == [("http://a/x.gz", f"md5:{'0' * 32}", "x.gz", tmp_path / "raw", progress, 60)]
    assert pooch.get_logger().level == logging.WARNING


def test_the_bar_is_shown_unless_one_says_otherwise(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr("studies.images.download._fetch", lambda file, folder, progress: seen.append(progress))
    have(monkeypatch, Download(("http://a/x.gz",), "0" * 32, ""))
    download("mnist", root=tmp_path)
    assert seen == [True]


def test_an_archive_that_is_none_is_told_and_tried_again(server, monkeypatch, tmp_path):
    offer(server, monkeypatch, "c.tar.gz", b"no archive")
    for _ in range(2):
        with pytest.raises(UserError, match="the archive of mnist is not what it should be"):
            download("mnist", root=tmp_path / "root", progress=False)
    assert not (tmp_path / "root" / ".c.tar.gz.unpacked").exists()
