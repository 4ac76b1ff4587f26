"""Walks, copies in and out, and building."""

import errno
import os
import threading
import time

import pytest

import extant


@pytest.fixture
def tree(tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub/deep").mkdir(parents=True)
    (tree / "one").write_bytes(b"1" * 3_000_000)
    (tree / "sub/two").write_text("two")
    (tree / "sub/link").symlink_to("../one")
    os.chmod(tree / "sub/two", 0o751)
    os.utime(tree / "sub", ns=(1_000_000_000, 1_600_000_000_000_000_001))
    return tree


def listing(walk):
    return [(os.path.basename(top), sorted(dirs), sorted(files)) for top, dirs, files in walk]


def test_copies_keep_what_they_copy(fs, tree, tmp_path):
    told = []
    fs.copy_in(tree, "/tree", progress=lambda path, done: told.append((path, done)))
    assert sum(done for _, done in told) == 3_000_003 and len(told) >= 3
    assert listing(fs.walk("/tree")) == [
        ("tree", ["sub"], ["one"]),
        ("sub", ["deep"], ["link", "two"]),
        ("deep", [], []),
    ]
    assert (fs / "tree/sub").stat().st_mtime_ns == 1_600_000_000_000_000_001
    assert (fs / "tree/sub/two").stat().st_mode & 0o777 == 0o751
    assert (fs / "tree/one").stat().st_uid == os.getuid()
    fs.copy_out("/tree", tmp_path / "back")
    back = tmp_path / "back"
    assert (back / "one").read_bytes() == (tree / "one").read_bytes()
    assert os.readlink(back / "sub/link") == "../one"
    assert os.stat(back / "sub").st_mtime_ns == 1_600_000_000_000_000_001
    assert os.stat(back / "sub/two").st_mode & 0o777 == 0o751
    fs.copy_in(tree, "/tree", owner=(0, 7))
    assert (fs / "tree/sub/link").lstat().st_gid == 7


def test_set_id_bits_are_not_given_to_another_owner(fs, tmp_path):
    tool = tmp_path / "tool"
    tool.write_text("elf")
    os.chmod(tool, 0o6755)
    own = tool.stat().st_uid, tool.stat().st_gid
    for owner, mode in [(None, 0o6755), (own, 0o6755), ((own[0] + 1, own[1]), 0o755)]:
        fs.copy_in(tool, "/tool", owner=owner)
        assert (fs / "tool").stat().st_mode & 0o7777 == mode


def test_walks_can_be_pruned(fs):
    for name in ["a/x", "b/y", "c"]:
        (fs / name).mkdir(parents=True)
    seen = []
    for top, dirs, _ in fs.walk("/"):
        seen.append(top)
        if "b" in dirs:
            dirs.remove("b")
    assert set(seen) == {"/", "/a", "/a/x", "/c", "/lost+found"}


def test_nothing_is_written_through_links(fs, tmp_path):
    """A link of an image, and one that waits where a copy goes, lead nowhere."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (fs / "out").mkdir()
    (fs / "out/file").write_text("from the image")
    (fs / "out/link").symlink_to(str(secret))
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").symlink_to(secret)
    fs.copy_out("/out", target)
    assert secret.read_text() == "secret"
    assert (target / "file").read_text() == "from the image"
    assert not (target / "file").is_symlink() and os.readlink(target / "link") == str(secret)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (fs / "out/sub").mkdir()
    (fs / "out/sub/inner").touch()
    (target / "sub").symlink_to(elsewhere)
    with pytest.raises(FileExistsError):
        fs.copy_out("/out", target)
    assert os.listdir(elsewhere) == []


def test_a_directory_below_itself_ends_a_walk(tmp_path):
    """The kind of damage that a hostile image would use."""
    image = tmp_path / "bad.img"
    extant.mkfs(image, 16 << 20, features="^metadata_csum")
    with extant.open(image, "r+") as fs:
        (fs / "one/two").mkdir(parents=True)
        one, two = (fs / "one").stat().st_ino, (fs / "one/two").stat().st_ino
    raw = bytearray(image.read_bytes())
    at = raw.find(b"two") - 8
    assert raw[at : at + 4] == two.to_bytes(4, "little")
    entry = raw[at + 4 : at + 11]
    # The journal has a copy.
    was, is_now = two.to_bytes(4, "little") + entry, one.to_bytes(4, "little") + entry
    image.write_bytes(raw.replace(was, is_now))
    with extant.open(image) as fs:
        with pytest.raises(OSError, match="two names"):
            list(fs.walk("/"))
        with pytest.raises(OSError, match="contains itself") as raised:
            fs.copy_out("/", tmp_path / "never")
        assert raised.value.errno == errno.EUCLEAN


def test_devices_are_refused(fs, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError):
        fs.copy_in(tmp_path / "pipe", "/pipe")


def test_images_are_built_with_progress(tree, tmp_path):
    image, told = tmp_path / "built.img", []

    def tell(*args):
        if not told:
            time.sleep(0.2)
        told.append(args)

    built = extant.build(tree, image, owner=(0, 0), mtime=1_700_000_000, progress=tell)
    assert built.size == image.stat().st_size and built.warnings == []
    assert told and told[-1][0] == told[-1][1] > 3_000_000 and told == sorted(told)
    assert extant.check(image).is_clean
    with extant.open(image) as fs:
        assert (fs / "sub/two").read_text() == "two"
        assert (fs / "one").stat().st_mtime == 1_700_000_000.0


def test_a_callback_can_end_a_copy_and_close_the_image(fs, tree):
    def stop(path, done):
        raise KeyError(path)

    with pytest.raises(KeyError, match="one"):
        fs.copy_in(tree, "/first", progress=stop)
    with pytest.raises(OSError) as raised:
        fs.copy_in(tree, "/second", progress=lambda path, done: fs.close())
    assert raised.value.errno == errno.EIO and fs.closed


def test_what_a_callback_raises_is_raised(tree, tmp_path):
    def stop(done, all_):
        raise KeyError("stop")

    image = tmp_path / "built.img"
    with pytest.raises(KeyError):
        extant.build(tree, image, progress=stop)
    assert not image.exists()
    extant.mkfs(image, 1 << 24)
    before = image.read_bytes()
    with pytest.raises(KeyError):
        extant.build(tree, image, force=True, progress=stop)
    assert image.read_bytes() == before and len(os.listdir(tmp_path)) == 2


def test_holes_stay_holes(fs, tmp_path):
    """A file of a TiB fills neither the host nor the image."""
    told, size = [], 1 << 40
    with open(tmp_path / "sparse", "wb") as sparse:
        sparse.truncate(size)
        sparse.seek(size // 2)
        sparse.write(b"data")
    fs.copy_in(tmp_path / "sparse", "/sparse", progress=lambda _, done: told.append(done))
    assert (fs / "sparse").stat().st_size == size == sum(told)
    fs.copy_out("/sparse", tmp_path / "back")
    back = os.stat(tmp_path / "back")
    assert back.st_size == size and back.st_blocks * 512 < 1 << 20
    with open(tmp_path / "back", "rb") as file:
        file.seek(size // 2)
        assert file.read(5) == b"data\0"
    # A shorter file in its place, and what has content without a length.
    (tmp_path / "short").write_bytes(b"short")
    fs.copy_in(tmp_path / "short", "/sparse")
    assert (fs / "sparse").read_bytes() == b"short"
    fs.copy_in("/proc/self/status", "/status")
    assert (fs / "status").read_text().startswith("Name:")


def test_a_build_gives_set_id_bits_to_no_other_owner(tree, tmp_path):
    os.chmod(tree / "sub/two", 0o6755)
    own = os.getuid(), os.getgid()
    for owner, mode in [(own, 0o6755), ((own[0] + 1, own[1]), 0o755)]:
        image = tmp_path / f"{mode}.img"
        extant.build(tree, image, owner=owner)
        with extant.open(image) as fs:
            assert (fs / "sub/two").stat().st_mode & 0o7777 == mode


def test_refusals_have_an_errno_and_no_words_of_the_command(tree, tmp_path):
    image, letter = tmp_path / "image", tmp_path / "letter"
    extant.mkfs(image, 1 << 24)
    letter.write_text("a letter")
    for call, number in [
        (lambda: extant.mkfs(image), errno.EEXIST),
        (lambda: extant.mkfs(tmp_path / "none"), errno.ENOENT),
        (lambda: extant.build(tree, image), errno.EEXIST),
        (lambda: extant.build(tree, letter), errno.EEXIST),
        (lambda: extant.build(tree, tmp_path / "small", size=3 << 20), errno.ENOSPC),
        (lambda: extant.build(letter, tmp_path / "new"), errno.EINVAL),
    ]:
        with pytest.raises(OSError) as raised:
            call()
        assert raised.value.errno == number and "--" not in str(raised.value)


def test_what_is_in_use_is_not_replaced(fs, tmp_path):
    (fs / "file").write_text("from the image")
    image = tmp_path / "other.img"
    extant.mkfs(image, 1 << 24)
    before = image.read_bytes()
    with open(image, "r+b"):
        with pytest.raises(OSError) as raised:
            fs.copy_out("/file", image)
        assert raised.value.errno == errno.EBUSY
        with pytest.raises(OSError) as raised:
            extant.build(tmp_path, image, force=True)
        assert raised.value.errno == errno.EBUSY
    assert image.read_bytes() == before


def test_copies_go_to_devices_and_pipes(fs, tmp_path):
    with fs.open("/holes", "wb", 0) as file:
        file.seek(3_000_000)
        file.write(b"end")
        file.truncate(3_100_000)
    before = os.stat("/dev/null")
    fs.copy_out("/holes", "/dev/null")
    assert os.stat("/dev/null").st_mode == before.st_mode
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    fs.copy_out("/holes", pipe)
    reader.join(60)
    assert got == [bytes(3_000_000) + b"end" + bytes(99_997)]
