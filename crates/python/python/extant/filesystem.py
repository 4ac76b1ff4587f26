"""An open image."""

from __future__ import annotations

import errno
import os
import stat as kinds
from typing import IO, Any, Callable, Iterator, List, NamedTuple, Optional, Tuple, Union

from . import _extant
from .files import opened
from .path import Path

Progress = Callable[[str, int], object]


class Usage(NamedTuple):
    """Space, in bytes, and inodes."""

    total: int
    used: int
    free: int
    inodes: int
    inodes_free: int


class FileSystem:
    """An open image. At the end of a ``with`` it is closed, and everything in it is durable."""

    def __init__(
        self, volume: _extant.Volume, image: Union[str, "os.PathLike[str]"], mode: str
    ) -> None:
        self.volume = volume
        """Calls by paths, for what has no method here."""
        self.image = os.fspath(image)
        self.mode = mode

    def __enter__(self) -> FileSystem:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<extant.FileSystem {self.image!r} mode={self.mode!r}>"

    def __truediv__(self, part: str) -> Path:
        return Path(self, part)

    def path(self, *parts: str) -> Path:
        """A path of the image."""
        return Path(self, *parts)

    @property
    def root(self) -> Path:
        """The root directory."""
        return Path(self)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.volume.closed

    def close(self) -> None:
        """Writes everything home and closes the image. Files that are open fail from then on."""
        self.volume.unmount()

    def sync(self) -> None:
        """Makes everything durable."""
        self.volume.sync()

    def open(
        self,
        path: Union[str, Path],
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
        *,
        permissions: int = 0o666,
    ) -> IO[Any]:
        """Opens a file, as the built-in ``open``; a new one gets ``permissions`` less the umask."""
        return opened(
            self.volume, str(path), mode, buffering, encoding, errors, newline, permissions
        )

    def listdir(self, path: Union[str, Path] = "/") -> List[str]:
        """The names in a directory."""
        return [name for name, _, _ in self.volume.list(str(path))]

    def walk(self, top: Union[str, Path] = "/") -> Iterator[Tuple[str, List[str], List[str]]]:
        """Directories with their names, as ``os.walk``: from the top, links are not followed.

        Directories that are taken out of the second list are left out. A directory with two names
        is damage, and an ``OSError``.
        """
        waiting = [(str(top), self.volume.stat(str(top), True).st_ino)]
        seen = set()
        while waiting:
            folder, inode = waiting.pop()
            if inode in seen:
                raise OSError(errno.EUCLEAN, "a directory with two names", folder)
            seen.add(inode)
            inodes, folders, files = {}, [], []
            for name, mode, inode in self.volume.list(folder):
                inodes[name] = inode
                (folders if kinds.S_ISDIR(mode) else files).append(name)
            yield folder, folders, files
            known = [name for name in reversed(folders) if name in inodes]
            waiting.extend((os.path.join(folder, name), inodes[name]) for name in known)

    def copy_in(
        self,
        source: Union[str, "os.PathLike[str]"],
        path: Union[str, Path],
        *,
        owner: Optional[Tuple[int, int]] = None,
        progress: Optional[Progress] = None,
    ) -> None:
        """Copies a file or a tree of the host to ``path``, with modes, times and links.

        A directory that is there is filled, what else is in the way is replaced. Devices, pipes
        and sockets are refused with ``OSError``. ``owner`` is that of all that is made; without it,
        each file keeps its own. ``progress(path, bytes)`` is called for each part that was copied.
        """
        self.volume.copy_in(source, str(path), owner, progress)

    def copy_out(
        self,
        path: Union[str, Path],
        target: Union[str, "os.PathLike[str]"],
        *,
        progress: Optional[Progress] = None,
    ) -> None:
        """Copies a file or a tree to the host, with modes, times and links.

        Names and links of an image never lead out of ``target``: a link is made as it is, and
        nothing is written through one.
        """
        self.volume.copy_out(str(path), target, progress)

    def usage(self) -> Usage:
        """Space and inodes, as ``shutil.disk_usage``."""
        block, blocks, free, available, inodes, inodes_free = self.volume.usage()
        return Usage(
            blocks * block, (blocks - free) * block, available * block, inodes, inodes_free
        )
