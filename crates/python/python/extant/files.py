"""Open files: what ``io`` builds its buffers and texts on."""

from __future__ import annotations

import io
import os
from typing import IO, Any, Optional, Tuple

from . import _extant


class RawFile(io.RawIOBase):
    """An open file of an image, without a buffer.

    Threads that share one should use ``pread`` and ``pwrite``, which have no position.
    """

    def __init__(self, file: _extant.File, name: str, mode: str) -> None:
        self._file = file
        self._pos = 0
        self._reads = "r" in mode or "+" in mode
        self._writes = mode != "rb"
        self._appends = "a" in mode
        self.name = name
        self.mode = mode
        if self._appends:
            self._pos = file.size()

    def __repr__(self) -> str:
        return f"<extant.RawFile name={self.name!r} mode={self.mode!r}>"

    def readable(self) -> bool:
        self._checkClosed()
        return self._reads

    def writable(self) -> bool:
        self._checkClosed()
        return self._writes

    def seekable(self) -> bool:
        self._checkClosed()
        return True

    def _checkClosed(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _need(self, allowed: bool, what: str) -> None:
        self._checkClosed()
        if not allowed:
            raise io.UnsupportedOperation(what)

    def pread(self, size: int, pos: int) -> bytes:
        """Up to ``size`` bytes from ``pos``; the position does not move."""
        self._need(self._reads, "not readable")
        return self._file.pread(size, pos)

    def pwrite(self, data: Any, pos: int) -> int:
        """Writes at ``pos``; the position does not move."""
        self._need(self._writes, "not writable")
        return self._file.pwrite(bytes(data), pos)

    def next_data(self, pos: int) -> Optional[Tuple[int, int]]:
        """The beginning and the end of the next data from ``pos`` on, ``None`` before the end."""
        self._need(self._reads, "not readable")
        return self._file.next_data(pos)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.pread(len(view), self._pos)
        view[: len(data)] = data
        self._pos += len(data)
        return len(data)

    def readall(self) -> bytes:
        parts = []
        while True:
            # The size when the call began; a file that grows is read on.
            part = self.pread(max(self._file.size() - self._pos, 1), self._pos)
            if not part:
                return b"".join(parts)
            self._pos += len(part)
            parts.append(part)

    def write(self, data: Any) -> int:
        self._need(self._writes, "not writable")
        data = data if isinstance(data, bytes) else bytes(data)
        if self._appends:
            self._pos, done = self._file.append(data)
        else:
            done = self._file.pwrite(data, self._pos)
            self._pos += done
        return done

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._checkClosed()
        if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
            raise ValueError(f"whence is {whence}: it can be 0, 1 or 2")
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._pos}.get(whence)
        pos = (self._file.size() if start is None else start) + offset
        if pos < 0:
            raise ValueError(f"position is {pos}: it cannot be negative")
        self._pos = pos
        return pos

    def tell(self) -> int:
        self._checkClosed()
        return self._pos

    def truncate(self, size: Optional[int] = None) -> int:
        self._need(self._writes, "not writable")
        size = self._pos if size is None else size
        self._file.truncate(size)
        return size

    def stat(self) -> _extant.Stat:
        """The attributes of the file, also after its name was removed."""
        self._checkClosed()
        return self._file.stat()

    def sync(self, data_only: bool = False) -> None:
        """Makes what was written durable, as ``os.fsync`` or ``os.fdatasync``."""
        self._checkClosed()
        self._file.sync(data_only)

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()
            finally:
                self._file.close()


def sync(file: IO[Any]) -> None:
    """Makes what was written to any open file of an image durable, buffers included."""
    file.flush()
    raw: Any = file
    while not isinstance(raw, RawFile):
        raw = raw.raw if hasattr(raw, "raw") else raw.buffer
    raw.sync()


def opened(
    volume: _extant.Volume,
    path: str,
    mode: str,
    buffering: int,
    encoding: Optional[str],
    errors: Optional[str],
    newline: Optional[str],
    permissions: int,
) -> IO[Any]:
    """What the built-in ``open`` would return, for a file of an image."""
    kinds = [letter for letter in mode if letter in "rwax"]
    letters = sorted(set(mode))
    if len(kinds) != 1 or len(letters) != len(mode) or set(letters) - set("rwaxbt+"):
        raise ValueError(f"mode is {mode!r}: it is one of 'r', 'w', 'a' and 'x', with 'b' and '+'")
    if "b" in mode and "t" in mode:
        raise ValueError("a file is binary or text, not both")
    is_binary = "b" in mode
    if is_binary and (encoding or errors or newline):
        raise ValueError("a binary file has no encoding, errors or newline")
    if buffering == 0 and not is_binary:
        raise ValueError("text needs a buffer")
    kind, updates = kinds[0], "+" in mode
    reads = kind == "r" or updates
    writes = kind != "r" or updates
    access = (reads, writes, kind == "a", kind in "wa", kind == "x", kind == "w")
    raw_mode = kind + "b" + ("+" if updates else "")
    raw = RawFile(volume.open_file(path, access, permissions), path, raw_mode)
    if buffering == 0:
        return raw  # type: ignore[return-value]
    size = buffering if buffering > 1 else 128 * 1024
    buffer: Any
    if updates:
        buffer = io.BufferedRandom(raw, size)
    elif writes:
        buffer = io.BufferedWriter(raw, size)
    else:
        buffer = io.BufferedReader(raw, size)
    if is_binary:
        return buffer
    return io.TextIOWrapper(buffer, encoding, errors, newline, line_buffering=buffering == 1)
