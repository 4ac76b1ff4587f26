"""File objects are those of io."""

import io
import os
import sys
import threading
import time

import pytest

import extant


def test_modes_are_those_of_the_built_in_open(fs, tmp_path):
    """Each mode does in an image what it does on the host."""

    def steps(open_, path):
        seen = []
        for mode in ["r", "xb", "x", "w+b", "r+b", "ab", "rb", "a+", "w", "rw", "z", "rbt"]:
            try:
                with open_(path, mode) as file:
                    data = b"12345" if "b" in mode else "12345"
                    wrote = file.write(data) if file.writable() else None
                    if file.seekable():
                        file.seek(2)
                    read = file.read() if file.readable() else None
                    seen.append((mode, wrote, read, file.readable(), file.writable()))
            except (OSError, ValueError) as error:
                seen.append((mode, type(error)))
        return seen

    host = steps(open, tmp_path / "file")
    assert steps(fs.open, "/file") == host
    assert (fs / "file").read_bytes() == (tmp_path / "file").read_bytes()


def test_raw_files_are_raw_io(fs):
    with fs.open("/raw", "w+b", 0) as raw:
        assert isinstance(raw, extant.RawFile) and isinstance(raw, io.RawIOBase)
        assert raw.write(bytearray(b"hello")) == 5
        assert raw.pwrite(b"J", 0) == 1 and raw.tell() == 5
        buffer = bytearray(10)
        assert raw.seek(-4, os.SEEK_END) == 1 and raw.readinto(buffer) == 4
        assert buffer == b"ello\0\0\0\0\0\0"
        assert raw.pread(100, 0) == b"Jello" and raw.pread(1, 1 << 40) == b""
        assert raw.truncate(2) == 2 and raw.stat().st_size == 2
        with pytest.raises(ValueError):
            raw.seek(-1)
        with pytest.raises(ValueError):
            raw.seek(0, 9)
        with pytest.raises(io.UnsupportedOperation):
            raw.fileno()
    assert raw.closed
    for call in [raw.tell, raw.readable, raw.readall, lambda: raw.write(b"x")]:
        with pytest.raises(ValueError):
            call()


def test_directions_are_kept(fs):
    (fs / "file").write_text("text")
    with fs.open("/file", "rb", 0) as reader, pytest.raises(io.UnsupportedOperation):
        reader.write(b"x")
    with fs.open("/file", "ab", 0) as writer, pytest.raises(io.UnsupportedOperation):
        writer.read(1)


def test_text_has_encodings_and_newlines(fs):
    with fs.open("/t", "w", encoding="utf-16", newline="\r\n") as file:
        file.write("ä\nb\n")
    assert (fs / "t").read_bytes().decode("utf-16") == "ä\r\nb\r\n"
    with (fs / "t").open(encoding="utf-16") as file:
        assert list(file) == ["ä\n", "b\n"]


def test_sync_flushes_buffers(image):
    fs = extant.open(image, "r+")
    file = fs.open("/log", "w")
    file.write("line\n")
    assert (fs / "log").read_text() == ""
    extant.sync(file)
    assert (fs / "log").read_text() == "line\n"
    file.close()
    fs.close()


def test_files_outlive_their_names_but_not_their_file_system(image):
    fs = extant.open(image, "r+")
    file = fs.open("/gone", "w+b", 0)
    (fs / "gone").unlink()
    file.write(b"still here")
    assert file.pread(5, 0) == b"still"
    fs.close()
    with pytest.raises(OSError):
        file.pread(5, 0)
    file.close()
    with pytest.raises(ValueError):
        fs.listdir("/")
    fs.close()


def test_threads_share_a_file_without_the_gil(fs):
    """Writers of parts that do not overlap, all of one file."""
    file = fs.open("/shared", "w+b", 0)
    part = 256 * 1024

    def work(number):
        for i in range(8):
            pos = (i * 4 + number) * part
            file.pwrite(bytes([number]) * part, pos)
            assert file.pread(part, pos) == bytes([number]) * part

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = b"".join(bytes([n]) * part for n in range(4)) * 8
    file.seek(0)
    assert file.read() == whole
    file.close()


def test_calls_release_the_gil(fs):
    """While one thread is in a call, another one runs Python code."""
    file = fs.open("/big", "w+b", 0)
    file.truncate(8 << 20)
    counts, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counts[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    # The interpreter interrupts no thread for so long: the other thread goes on during a call only
    # if the call lets it.
    sys.setswitchinterval(60)
    thread.start()
    try:
        during = 0
        for _ in range(500):
            before = counts[0]
            file.pread(8 << 20, 0)
            during += counts[0] - before
            if during:
                break
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
        file.close()
    assert during > 0
