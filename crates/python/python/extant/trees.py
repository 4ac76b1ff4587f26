"""Copies of files and trees, between the host and an image."""

from __future__ import annotations

import errno
import io
import os
import stat as kinds
import sys
from typing import IO, TYPE_CHECKING, Any, Callable, Iterable, Iterator, Optional, Set, Tuple

from . import _extant

if TYPE_CHECKING:
    from .filesystem import FileSystem

Progress = Callable[[str, int], object]

STEP = 1 << 20
"""Bytes that are copied at once."""


def enter(path: str, inode: int, seen: Set[int]) -> None:
    """Notes a directory of an image.

    A damaged or hostile image may have a directory below itself, which would never end.
    """
    if inode in seen:
        raise OSError(errno.EUCLEAN, "a directory with two names", path)
    seen.add(inode)


class Host:
    """The files of this machine."""

    def stat(self, path: str) -> Any:
        return os.lstat(path)

    def names(self, path: str, _: Any) -> Iterable[str]:
        return os.listdir(path)

    def readlink(self, path: str) -> str:
        return os.readlink(path)

    def reader(self, path: str) -> IO[bytes]:
        return open(path, "rb", 0)

    def pieces(self, reader: IO[bytes], like: Any) -> Iterator[Tuple[int, int]]:
        if like.st_size == 0:
            # There may be content without a length, as in /proc.
            return iter([(0, sys.maxsize)])
        return pieces(lambda pos: host_data(reader, pos), like.st_size)

    def writer(self, path: str) -> IO[bytes]:
        # Never through a link: what is replaced is the name.
        if os.path.islink(path):
            os.unlink(path)
        _extant.refuse_in_use(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        return os.fdopen(os.open(path, flags, 0o600), "wb", 0)

    def mkdir(self, path: str) -> None:
        if not kinds.S_ISDIR(mode_of(self, path)):
            os.mkdir(path, 0o700)

    def symlink(self, target: str, path: str) -> None:
        if kinds.S_ISLNK(mode_of(self, path)):
            os.unlink(path)
        os.symlink(target, path)

    def finish(self, path: str, like: Any) -> None:
        if kinds.S_IFMT(mode_of(self, path)) != kinds.S_IFMT(like.st_mode):
            # A device or a pipe that was written to stays what it is.
            return
        is_link = kinds.S_ISLNK(like.st_mode)
        if not is_link:
            # Set-id bits stay behind: the owner is another one here.
            os.chmod(path, like.st_mode & 0o777)
        os.utime(path, ns=(like.st_atime_ns, like.st_mtime_ns), follow_symlinks=not is_link)


class Image:
    """The files of an image."""

    def __init__(self, fs: FileSystem, owner: Optional[Tuple[int, int]]) -> None:
        self.fs = fs
        self.volume = fs.volume
        self.owner = owner
        self.seen: Set[int] = set()
        self.budget = fs.volume.budget()

    def stat(self, path: str) -> Any:
        return self.volume.stat(path, False)

    def names(self, path: str, like: Any) -> Iterable[str]:
        enter(path, like.st_ino, self.seen)
        return self.fs.listdir(path)

    def readlink(self, path: str) -> str:
        return self.volume.readlink(path)

    def reader(self, path: str) -> IO[bytes]:
        return self.fs.open(path, "rb", 0)

    def pieces(self, reader: Any, like: Any) -> Iterator[Tuple[int, int]]:
        found = list(pieces(reader.next_data, like.st_size))
        data = sum(end - start for start, end in found)
        if not self.budget.take(like.st_ino, like.st_nlink, data):
            raise OSError(errno.EUCLEAN, "its extents have more data than the volume", reader.name)
        return iter(found)

    def writer(self, path: str) -> IO[bytes]:
        if kinds.S_ISLNK(mode_of(self, path)):
            self.volume.unlink(path)
        return self.fs.open(path, "wb", 0, permissions=0o600)

    def mkdir(self, path: str) -> None:
        if not kinds.S_ISDIR(mode_of(self, path)):
            self.volume.mkdir(path, 0o700)

    def symlink(self, target: str, path: str) -> None:
        if kinds.S_ISLNK(mode_of(self, path)):
            self.volume.unlink(path)
        self.volume.symlink(target, path)

    def finish(self, path: str, like: Any) -> None:
        uid, gid = self.owner or (like.st_uid, like.st_gid)
        self.volume.chown(path, uid, gid, False)
        if not kinds.S_ISLNK(like.st_mode):
            # As chown(2): set-id bits of a file are not given to another owner.
            keeps = (uid, gid) == (like.st_uid, like.st_gid) or kinds.S_ISDIR(like.st_mode)
            self.volume.chmod(path, like.st_mode & (0o7777 if keeps else 0o1777))
        self.volume.utime(path, like.st_atime_ns, like.st_mtime_ns, False)


def host_data(reader: IO[bytes], pos: int) -> Optional[Tuple[int, int]]:
    """The beginning and the end of the next data from a position on."""
    try:
        start = os.lseek(reader.fileno(), pos, os.SEEK_DATA)
        return start, os.lseek(reader.fileno(), start, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            # A file system that knows no holes.
            return pos, sys.maxsize
        raise


def pieces(
    next_data: Callable[[int], Optional[Tuple[int, int]]], size: int
) -> Iterator[Tuple[int, int]]:
    """What a file has between its holes."""
    pos = 0
    while pos < size:
        data = next_data(pos)
        if data is None or data[0] >= size:
            return
        start, pos = data[0], min(data[1], size)
        yield start, pos


def mode_of(side: Any, path: str) -> int:
    """The mode of what is at a path, 0 if nothing is."""
    try:
        return side.stat(path).st_mode
    except FileNotFoundError:
        return 0


def copy(source: Any, path: str, target: Any, to: str, progress: Optional[Progress]) -> None:
    """Copies a file or a tree. Devices, pipes and sockets are refused with ``OSError``."""
    # Steps that wait; a directory gets its attributes when all in it is done.
    waiting = [(path, to, False)]
    while waiting:
        path, to, is_done = waiting.pop()
        like = source.stat(path)
        kind = kinds.S_IFMT(like.st_mode)
        if is_done:
            target.finish(to, like)
        elif kind == kinds.S_IFDIR:
            target.mkdir(to)
            waiting.append((path, to, True))
            for name in source.names(path, like):
                if "/" in name or name in (".", ".."):
                    raise OSError(errno.EUCLEAN, "a name that no file can have", path)
                waiting.append((os.path.join(path, name), os.path.join(to, name), False))
        elif kind == kinds.S_IFLNK:
            target.symlink(source.readlink(path), to)
            target.finish(to, like)
        elif kind == kinds.S_IFREG:
            with source.reader(path) as reader, target.writer(to) as writer:
                copy_content(source, path, reader, writer, like, progress)
            target.finish(to, like)
        else:
            raise OSError(f"{path}: neither a file, nor a directory, nor a symbolic link")


def is_file(writer: Any) -> bool:
    """Whether a writer is of a regular file, and not of a device or a pipe of the host."""
    try:
        return kinds.S_ISREG(os.fstat(writer.fileno()).st_mode)
    except io.UnsupportedOperation:
        # A file of an image.
        return True


def write_all(writer: Any, data: bytes) -> None:
    """Writes all of it: a writer may take less at once."""
    rest = memoryview(data)
    while rest:
        rest = rest[writer.write(rest) :]


def write_zeros(writer: Any, count: int) -> None:
    """Writes what a hole reads as."""
    zeros = bytes(min(STEP, count))
    while count > 0:
        write_all(writer, zeros[:count])
        count -= len(zeros[:count])


def copy_content(
    source: Any, path: str, reader: Any, writer: Any, like: Any, progress: Optional[Progress]
) -> None:
    """Copies the bytes of a regular file; its holes stay holes, where it goes to a file."""
    told = progress or (lambda path, done: None)
    to_file = is_file(writer)
    pos = 0
    for start, end in source.pieces(reader, like):
        if start > pos:
            if not to_file:
                write_zeros(writer, start - pos)
            told(path, start - pos)
        pos = reader.seek(start)
        if to_file:
            writer.seek(start)
        while pos < end:
            part = reader.read(min(STEP, end - pos))
            if not part:
                break
            write_all(writer, part)
            pos += len(part)
            told(path, len(part))
    # What follows is a hole, or is gone from a file that shrank.
    size = max(pos, min(like.st_size, reader.seek(0, os.SEEK_END))) if like.st_size else pos
    if to_file:
        writer.truncate(size)
    else:
        write_zeros(writer, size - pos)
    if size > pos:
        told(path, size - pos)
