"""Images by way of fsspec."""

import errno

import fsspec
import pytest

import extant
from extant.spec import ExtantFileSystem

fsspec.register_implementation("extant", ExtantFileSystem, clobber=True)


@pytest.fixture
def spec(image):
    fs = fsspec.filesystem("extant", image=image, mode="r+")
    yield fs
    fs.close()


def test_files_come_and_go(spec):
    spec.makedirs("/data/2026", exist_ok=True)
    with spec.open("extant://data/2026/one.csv", "wb") as file:
        file.write(b"a,b\n1,2\n")
    assert spec.cat_file("/data/2026/one.csv") == b"a,b\n1,2\n"
    assert spec.cat_file("/data/2026/one.csv", start=4, end=5) == b"1"
    spec.pipe_file("/data/2026/two.csv", b"")
    assert sorted(spec.ls("/data/2026", detail=False)) == [
        "/data/2026/one.csv",
        "/data/2026/two.csv",
    ]
    assert spec.glob("/data/*/one.*") == ["/data/2026/one.csv"]
    assert spec.find("/data") == ["/data/2026/one.csv", "/data/2026/two.csv"]
    assert spec.isfile("/data/2026/one.csv") and spec.isdir("/data") and spec.exists("/data")
    info = spec.info("/data/2026/one.csv")
    assert (info["type"], info["size"]) == ("file", 8)
    spec.cp_file("/data/2026/one.csv", "/data/copy")
    spec.mv("/data/copy", "/data/moved")
    assert spec.cat_file("/data/moved") == b"a,b\n1,2\n"
    spec.rm("/data", recursive=True)
    assert not spec.exists("/data")
    with pytest.raises(FileNotFoundError):
        spec.info("/data")


def test_links_do_not_lead_in_circles(spec):
    spec.mkdir("/a")
    spec.fs.path("/a/self").symlink_to(".")
    spec.fs.path("/a/other").symlink_to("../a")
    spec.touch("/a/file")
    assert sorted(spec.find("/a")) == ["/a/file", "/a/other", "/a/self"]
    assert spec.isdir("/a/self") and spec.info("/a/self")["type"] == "directory"


def test_trees_are_copied_by_fsspec(spec, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/file").write_text("content")
    spec.put(str(tmp_path / "in"), "/in", recursive=True)
    assert spec.cat_file("/in/file") == b"content"
    spec.get("/in", str(tmp_path / "out"), recursive=True)
    assert (tmp_path / "out/file").read_text() == "content"


def test_files_in_use_are_not_replaced(spec, tmp_path):
    spec.pipe_file("/file", b"content")
    used, link = tmp_path / "used", tmp_path / "link"
    used.write_bytes(b"before")
    link.symlink_to(used)
    for get in (spec.get_file, spec.get):
        for path in (used, link):
            with open(used, "r+b"), pytest.raises(OSError) as raised:
                get("/file", str(path))
            assert raised.value.errno == errno.EBUSY and used.read_bytes() == b"before"
    spec.get_file("/file", str(link))
    assert used.read_bytes() == b"content"
    spec.get_file("/", str(tmp_path / "new"))
    with open(tmp_path / "own", "wb") as own:
        spec.get_file("/file", own)
    assert (tmp_path / "own").read_bytes() == b"content"


def test_urls_open_files(image):
    with extant.open(image, "r+") as fs:
        (fs / "hello").write_text("hi")
    with fsspec.open("extant://hello", "rt", image=image) as file:
        assert file.read() == "hi"
    with pytest.raises(OSError), fsspec.open("extant://hello", "wb", image=image):
        pass
    with pytest.raises(ValueError):
        fsspec.filesystem("extant")


def test_copies_keep_holes(image):
    with extant.open(image, "r+") as fs:
        with fs.open("/sparse", "wb") as file:
            file.truncate(1 << 40)
            file.seek(1 << 39)
            file.write(b"data")
        before = fs.usage().free
        fsspec.filesystem("extant", fs=fs).cp_file("/sparse", "/copy")
        assert (fs / "copy").stat().st_size == 1 << 40
        assert before - fs.usage().free < 1 << 20
