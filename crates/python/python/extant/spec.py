"""Images for fsspec: ``fsspec.open("extant://etc/hosts", image="disk.img")``."""

from __future__ import annotations

import datetime
import os
import stat as kinds
from typing import Any, Dict, List, Optional, Union

from fsspec.spec import AbstractFileSystem

import extant

from . import _extant


class ExtantFileSystem(AbstractFileSystem):
    """An image as a file system of fsspec.

    ``image`` is the file or the block device, ``mode`` ``"r"`` or ``"r+"``. ``fs`` takes an image
    that is open already. ``close`` closes the image and makes everything in it durable.
    """

    protocol = "extant"
    # Each object has an image of its own open.
    cachable = False
    root_marker = "/"

    def __init__(
        self,
        image: Union[str, "os.PathLike[str]", None] = None,
        mode: str = "r",
        fs: Optional[extant.FileSystem] = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if (image is None) == (fs is None):
            raise ValueError("needs an image, or an open one as fs")
        self.fs = extant.open(image, mode) if fs is None else fs  # type: ignore[arg-type]

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        if path.startswith("extant://"):
            path = path[len("extant://") :]
        return "/" + path.strip("/")

    @classmethod
    def _parent(cls, path: str) -> str:
        return os.path.dirname(cls._strip_protocol(path))

    def close(self) -> None:
        """Closes the image."""
        self.fs.close()

    def info(self, path: str, **_: Any) -> Dict[str, Any]:
        try:
            return self._info(path, True)
        except FileNotFoundError:
            # A link that leads nowhere.
            return self._info(path, False)

    def _info(self, path: str, follow: bool) -> Dict[str, Any]:
        path = self._strip_protocol(path)
        stat = self.fs.volume.stat(path, follow)
        names = {kinds.S_IFDIR: "directory", kinds.S_IFREG: "file", kinds.S_IFLNK: "link"}
        return {
            "name": path,
            "size": stat.st_size,
            "type": names.get(kinds.S_IFMT(stat.st_mode), "other"),
            "mode": stat.st_mode,
            "uid": stat.st_uid,
            "gid": stat.st_gid,
            "ino": stat.st_ino,
            "nlink": stat.st_nlink,
            "mtime": stat.st_mtime,
        }

    def ls(self, path: str, detail: bool = True, **_: Any) -> List[Any]:
        path = self._strip_protocol(path)
        found = self.info(path)
        if found["type"] != "directory":
            return [found] if detail else [path]
        names = [os.path.join(path, name) for name in self.fs.listdir(path)]
        # Links in a listing stay links: what walks the tree does not go in circles.
        return [self._info(name, False) for name in names] if detail else names

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        self.fs.path(self._strip_protocol(path)).mkdir(parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.fs.path(self._strip_protocol(path)).mkdir(parents=True, exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self.fs.path(self._strip_protocol(path)).rmdir()

    def _rm(self, path: str) -> None:
        self.fs.path(self._strip_protocol(path)).unlink()

    def rm_file(self, path: str) -> None:
        self._rm(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        paths = path if isinstance(path, list) else [path]
        for one in paths:
            one = self.fs.path(self._strip_protocol(one))
            if recursive and one.is_dir():
                one.rmtree()
            else:
                one.unlink()

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        source = self.fs.path(self._strip_protocol(path1))
        source.rename(self._strip_protocol(path2))

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        self.fs.volume.copy_file(path1, path2)

    def get_file(self, rpath: str, lpath: Any, *args: Any, **options: Any) -> None:
        if isinstance(lpath, (str, os.PathLike)) and os.path.exists(lpath):
            _extant.refuse_in_use(os.path.realpath(lpath))
        super().get_file(rpath, lpath, *args, **options)

    def created(self, path: str) -> datetime.datetime:
        born = self.fs.volume.stat(self._strip_protocol(path), True).st_birthtime_ns
        if born is None:
            raise NotImplementedError("the inode has no room for its time of creation")
        return datetime.datetime.fromtimestamp(born / 1e9, tz=datetime.timezone.utc)

    def modified(self, path: str) -> datetime.datetime:
        changed = self.fs.volume.stat(self._strip_protocol(path), True).st_mtime
        return datetime.datetime.fromtimestamp(changed, tz=datetime.timezone.utc)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        with self.fs.open(self._strip_protocol(path), "wb" if truncate else "ab"):
            pass

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Optional[int] = None,
        autocommit: bool = True,
        cache_options: Optional[Dict[str, Any]] = None,
        **_: Any,
    ) -> Any:
        return self.fs.open(self._strip_protocol(path), mode)
