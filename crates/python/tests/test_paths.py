"""Paths have the methods of pathlib, and errors are those of the host."""

import errno
import stat

import pytest

import extant


def test_a_tree_is_made_and_read(fs):
    etc = fs / "etc"
    etc.mkdir()
    hosts = etc / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    assert hosts.read_text() == "127.0.0.1 localhost\n"
    assert (hosts.name, hosts.stem, hosts.suffix) == ("hosts", "hosts", "")
    assert hosts.parent == etc and str(hosts) == "/etc/hosts"
    assert hosts.with_suffix(".bak").name == "hosts.bak"
    assert hosts.is_file() and etc.is_dir() and not (fs / "no").exists()
    assert not (hosts / "below").exists()
    assert sorted(path.name for path in fs.root.iterdir()) == ["etc", "lost+found"]
    (fs / "a/b/c").mkdir(parents=True)
    (fs / "a/b/c").mkdir(exist_ok=True)
    (fs / "a/b/c/one.txt").touch()
    (fs / "a/two.txt").touch()
    assert [str(path) for path in (fs / "a").rglob("*.txt")] == ["/a/two.txt", "/a/b/c/one.txt"]
    (fs / "a").rmtree()
    assert not (fs / "a").exists()


def test_globs_are_those_of_pathlib(fs, tmp_path):
    # The image itself lies beside it.
    host = tmp_path / "host"
    (host / "lost+found").mkdir(parents=True)
    for root in (fs.root, host):
        for folder in ("a/b/c", "a/.hidden", "d"):
            (root / folder).mkdir(parents=True)
        for file in ("a/one.txt", "a/b/two.txt", "a/b/c/three.c", "d/one.txt", "a/.hidden/x"):
            (root / file).touch()
        (root / "link").symlink_to("a")
    for pattern in (
        "*",
        "*.txt",
        "a/*",
        "*/one.txt",
        "link/*.txt",
        "**",
        "**/*.txt",
        "a/**/c",
        "**/b/**/*",
        "a/b/none",
        "a/one.txt/*",
        "[ad]/*.tx?",
    ):
        found = [str(path)[1:] for path in fs.root.glob(pattern)]
        expected = {str(path.relative_to(host)) for path in host.glob(pattern)}
        expected = {"" if path == "." else path for path in expected}
        assert len(found) == len(set(found)) and set(found) == expected, pattern
    with pytest.raises(ValueError):
        list(fs.root.glob("/etc"))


def test_links_and_names(fs):
    (fs / "file").write_bytes(b"1")
    (fs / "soft").symlink_to("file")
    (fs / "hard").hardlink_to("/file")
    assert (fs / "soft").is_symlink() and (fs / "soft").readlink() == "file"
    assert (fs / "hard").stat().st_nlink == 2 and (fs / "soft").lstat().st_size == 4
    moved = (fs / "hard").rename("/moved")
    assert moved.read_bytes() == b"1" and not (fs / "hard").exists()
    (fs / "no").unlink(missing_ok=True)
    odd = b"odd\xff".decode("utf-8", "surrogateescape")
    (fs / odd).write_bytes(b"2")
    assert odd in fs.listdir("/") and (fs / odd).read_bytes() == b"2"


def test_attributes(fs):
    path = fs / "file"
    path.touch()
    path.chmod(0o640)
    path.chown(1000, None)
    path.utime((1_500_000_000_123_456_789, -1_000_000_000))
    found = path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o640 and found.st_uid == 1000
    assert found.st_atime_ns == 1_500_000_000_123_456_789 and found.st_mtime == -1.0
    path.setxattr("user.note", b"\0value")
    assert path.listxattr() == ["user.note"] and path.getxattr("user.note") == b"\0value"
    path.removexattr("user.note")
    with pytest.raises(OSError):
        path.getxattr("user.note")


def test_errors_have_classes_errnos_and_names(fs):
    (fs / "dir/sub").mkdir(parents=True)
    (fs / "file").touch()
    cases = [
        (FileNotFoundError, lambda: (fs / "no").read_bytes(), "/no"),
        (FileExistsError, lambda: (fs / "dir").mkdir(), "/dir"),
        (IsADirectoryError, lambda: (fs / "dir").write_bytes(b""), "/dir"),
        (NotADirectoryError, lambda: fs.listdir("/file"), "/file"),
        (OSError, lambda: (fs / "dir").rmdir(), "/dir"),
    ]
    for kind, call, name in cases:
        with pytest.raises(kind) as raised:
            call()
        assert raised.value.filename == name and raised.value.errno > 0
    with pytest.raises(FileNotFoundError):
        extant.open("/no/such/image")
    with pytest.raises(ValueError):
        extant.open("/no/such/image", "w")


def test_an_image_is_read_only_unless_asked(image):
    with extant.open(image) as fs:
        with pytest.raises(OSError) as raised:
            (fs / "file").write_text("x")
        assert raised.value.strerror and fs.usage().total > 16 << 20
    with extant.open(image, "r+"):
        with pytest.raises(OSError) as raised:
            extant.open(image, "r+")
        assert "this process" in str(raised.value)


def test_making_refuses_what_holds_something(image, tmp_path):
    refusals = [
        (FileExistsError, errno.EEXIST, lambda: extant.mkfs(image), image),
        (FileNotFoundError, errno.ENOENT, lambda: extant.mkfs(tmp_path / "no"), tmp_path / "no"),
        (IsADirectoryError, errno.EISDIR, lambda: extant.mkfs(tmp_path), tmp_path),
        (FileExistsError, errno.EEXIST, lambda: extant.build(tmp_path, image), image),
    ]
    for kind, number, call, name in refusals:
        with pytest.raises(kind) as raised:
            call()
        assert raised.value.errno == number and raised.value.filename == str(name)
    with pytest.raises(OSError) as raised:
        with extant.open(image):
            extant.mkfs(image, force=True)
    assert raised.value.errno == errno.EBUSY
    with pytest.raises(ValueError):
        extant.mkfs(tmp_path / "odd", 1 << 20, features="no-such-feature")
    extant.mkfs(image, label="again", force=True)


def test_damage_is_found(tmp_path):
    path = tmp_path / "bad.img"
    extant.mkfs(path, 16 << 20)
    with open(path, "r+b") as file:
        # The count of free blocks in the descriptor of the first group.
        file.seek(2048 + 12)
        file.write(b"\xff\xff")
    report = extant.check(path)
    assert not report.is_clean and report.findings
    assert "GroupDesc.BadChecksum" in [finding.kind for finding in report.findings]
