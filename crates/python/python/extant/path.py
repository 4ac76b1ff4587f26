"""Paths inside of an image, with the methods of ``pathlib.Path``."""

from __future__ import annotations

import stat as kinds
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Iterator, Optional, Tuple, Union

from ._extant import Stat

if TYPE_CHECKING:
    from .filesystem import FileSystem


class Path:
    """A path of an open image. Every path begins at the root of the image."""

    __slots__ = ("_fs", "_pure")

    def __init__(self, fs: FileSystem, *parts: Union[str, PurePosixPath, Path]) -> None:
        plain = [part._pure if isinstance(part, Path) else part for part in parts]
        self._fs = fs
        self._pure = PurePosixPath("/", *plain)

    def _at(self, pure: PurePosixPath) -> Path:
        return Path(self._fs, pure)

    # What follows from the name alone.

    def __str__(self) -> str:
        return str(self._pure)

    def __repr__(self) -> str:
        return f"extant.Path({self._fs.image!r}, {str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Path):
            return NotImplemented
        return self._fs is other._fs and self._pure == other._pure

    def __lt__(self, other: Path) -> bool:
        return self._pure < other._pure

    def __hash__(self) -> int:
        return hash((id(self._fs), self._pure))

    def __truediv__(self, part: Union[str, PurePosixPath]) -> Path:
        return self._at(self._pure / part)

    def joinpath(self, *parts: Union[str, PurePosixPath]) -> Path:
        """This path with more parts."""
        return self._at(self._pure.joinpath(*parts))

    @property
    def fs(self) -> FileSystem:
        """The open image."""
        return self._fs

    @property
    def parts(self) -> Tuple[str, ...]:
        """The root and the names."""
        return self._pure.parts

    @property
    def name(self) -> str:
        """The last name."""
        return self._pure.name

    @property
    def stem(self) -> str:
        """The last name without its suffix."""
        return self._pure.stem

    @property
    def suffix(self) -> str:
        """The suffix of the last name, with its dot."""
        return self._pure.suffix

    @property
    def parent(self) -> Path:
        """The path without its last name."""
        return self._at(self._pure.parent)

    def with_name(self, name: str) -> Path:
        """The path with another last name."""
        return self._at(self._pure.with_name(name))

    def with_suffix(self, suffix: str) -> Path:
        """The path with another suffix."""
        return self._at(self._pure.with_suffix(suffix))

    def relative_to(self, other: Union[str, Path]) -> PurePosixPath:
        """The names below another path."""
        return self._pure.relative_to(str(other))

    def match(self, pattern: str) -> bool:
        """Whether the path is like a pattern."""
        return self._pure.match(pattern)

    # What is there.

    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        """The attributes."""
        return self._fs.volume.stat(str(self), follow_symlinks)

    def lstat(self) -> Stat:
        """The attributes, of a symbolic link itself."""
        return self.stat(follow_symlinks=False)

    def _mode(self, follow: bool = True) -> int:
        try:
            return self.stat(follow_symlinks=follow).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def exists(self) -> bool:
        """Whether the path leads to anything."""
        return self._mode() != 0

    def is_file(self) -> bool:
        """Whether it leads to a regular file."""
        return kinds.S_ISREG(self._mode())

    def is_dir(self) -> bool:
        """Whether it leads to a directory."""
        return kinds.S_ISDIR(self._mode())

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return kinds.S_ISLNK(self._mode(follow=False))

    def iterdir(self) -> Iterator[Path]:
        """The entries of a directory, in the directory's order."""
        for name in self._fs.listdir(self):
            yield self / name

    def rglob(self, pattern: str) -> Iterator[Path]:
        """Everything below that is like a pattern."""
        for top, folders, files in self._fs.walk(str(self)):
            for name in sorted(folders + files):
                path = Path(self._fs, top, name)
                if path.match(pattern):
                    yield path

    def glob(self, pattern: str) -> Iterator[Path]:
        """What is below and like a pattern: ``*.conf``, ``*/hosts``; ``**`` is any directories.

        In the order of names, each path once. ``**`` follows no links.
        """
        parts = PurePosixPath(pattern).parts
        if not parts or parts[0] == "/":
            raise ValueError(f"pattern is {pattern!r}: it names something below")
        seen = set()
        for path in self._like(parts):
            if path not in seen:
                seen.add(path)
                yield path

    def _like(self, parts: Tuple[str, ...]) -> Iterator[Path]:
        if not parts:
            yield self
            return
        part, rest = parts[0], parts[1:]
        if part == "**":
            for top, _, _ in self._fs.walk(str(self)) if self.is_dir() else ():
                yield from Path(self._fs, top)._like(rest)
        elif not set(part) & set("*?["):
            if (self / part)._mode(follow=bool(rest)):
                yield from (self / part)._like(rest)
        elif self.is_dir():
            for name in sorted(self._fs.listdir(self)):
                if fnmatchcase(name, part):
                    yield from (self / name)._like(rest)

    def readlink(self) -> str:
        """The target of a symbolic link."""
        return self._fs.volume.readlink(str(self))

    # Contents.

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> IO[Any]:
        """Opens the file, as the built-in ``open``."""
        return self._fs.open(str(self), mode, buffering, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        """The whole content."""
        with self.open("rb", 0) as file:
            return file.read()

    def read_text(self, encoding: Optional[str] = None, errors: Optional[str] = None) -> str:
        """The whole content, as text."""
        with self.open("r", -1, encoding, errors) as file:
            return file.read()

    def write_bytes(self, data: Any) -> int:
        """Replaces the content."""
        with self.open("wb") as file:
            return file.write(data)

    def write_text(
        self, text: str, encoding: Optional[str] = None, errors: Optional[str] = None
    ) -> int:
        """Replaces the content by a text."""
        with self.open("w", -1, encoding, errors) as file:
            return file.write(text)

    # Changes.

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:
        """Makes an empty file, unless there is one."""
        access = (False, True, True, True, not exist_ok, False)
        self._fs.volume.open_file(str(self), access, mode).close()

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Makes a directory, with those above it if ``parents``."""
        try:
            self._fs.volume.mkdir(str(self), mode)
        except FileNotFoundError:
            if not parents or self.parent == self:
                raise
            self.parent.mkdir(parents=True, exist_ok=True)
            self.mkdir(mode, exist_ok=exist_ok)
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise

    def rmdir(self) -> None:
        """Removes an empty directory."""
        self._fs.volume.rmdir(str(self))

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes a name of anything but a directory."""
        try:
            self._fs.volume.unlink(str(self))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmtree(self) -> None:
        """Removes a directory and everything in it; of a symbolic link, only the link."""
        self._fs.volume.remove_tree(str(self))

    def rename(self, to: Union[str, Path]) -> Path:
        """Moves it, and replaces what is there, in one step. Returns the new path."""
        new = Path(self._fs, to)
        self._fs.volume.rename(str(self), str(new))
        return new

    replace = rename

    def symlink_to(self, target: Union[str, PurePosixPath]) -> None:
        """Makes this path a symbolic link to ``target``."""
        self._fs.volume.symlink(str(target), str(self))

    def hardlink_to(self, target: Union[str, Path]) -> None:
        """Makes this path another name of ``target``."""
        self._fs.volume.link(str(target), str(self))

    def chmod(self, mode: int) -> None:
        """Sets the permission bits."""
        self._fs.volume.chmod(str(self), mode)

    def chown(
        self, uid: Optional[int], gid: Optional[int], *, follow_symlinks: bool = True
    ) -> None:
        """Sets owner and group; ``None`` leaves one as it is."""
        self._fs.volume.chown(str(self), uid, gid, follow_symlinks)

    def utime(self, ns: Tuple[int, int], *, follow_symlinks: bool = True) -> None:
        """Sets the times of access and modification, in nanoseconds since 1970."""
        self._fs.volume.utime(str(self), ns[0], ns[1], follow_symlinks)

    # Extended attributes, of a symbolic link itself.

    def getxattr(self, name: str) -> bytes:
        """The value of an extended attribute, such as ``user.note``."""
        return self._fs.volume.getxattr(str(self), name.encode())

    def listxattr(self) -> list[str]:
        """The names of the extended attributes."""
        return [name.decode() for name in self._fs.volume.listxattr(str(self))]

    def setxattr(self, name: str, value: bytes) -> None:
        """Sets an extended attribute."""
        self._fs.volume.setxattr(str(self), name.encode(), value)

    def removexattr(self, name: str) -> None:
        """Removes an extended attribute."""
        self._fs.volume.removexattr(str(self), name.encode())
