"""ext4 images and disks, without mounting them and without root.

    import extant

    with extant.open("disk.img", "r+") as fs:
        (fs / "hello").write_text("hi")

``FileSystem`` is an open image, ``Path`` a path in it with the methods of ``pathlib.Path``,
``RawFile`` the ``io.RawIOBase`` below each open file. Errors are ``OSError`` with Linux's errno.
"""

from __future__ import annotations

import os
from typing import Callable, NamedTuple, Optional, Sequence, Tuple, Union

from . import _extant
from ._extant import Stat, __version__
from .files import RawFile, sync
from .filesystem import FileSystem, Usage
from .path import Path

__all__ = [
    "Build",
    "FileSystem",
    "Finding",
    "Path",
    "RawFile",
    "Report",
    "Stat",
    "Usage",
    "__version__",
    "build",
    "check",
    "mkfs",
    "open",
    "sync",
]

HostPath = Union[str, "os.PathLike[str]"]
Progress = Callable[[int, int], object]


class Finding(str):
    """One thing that is wrong, in words."""

    kind: str
    """Its kind, such as ``"ExtentNode.BadMagic"``: the variant of the Rust library."""

    def __new__(cls, words: str, kind: str) -> "Finding":
        finding = super().__new__(cls, words)
        finding.kind = kind
        return finding


class Report(NamedTuple):
    """What a check found."""

    found: int
    """How many findings there are in all."""
    findings: Sequence[Finding]
    """The first of them."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return self.found == 0


class Build(NamedTuple):
    """What was built."""

    size: int
    """The bytes of the image."""
    warnings: Sequence[str]
    """What was left out, or changed."""


def open(image: HostPath, mode: str = "r", *, options: str = "") -> FileSystem:
    """Opens an image file or a block device: for reading (``"r"``), or also for writing (``"r+"``).

    ``options`` are mount options of ext4 by Linux's names, separated by commas.
    """
    if mode not in ("r", "r+"):
        raise ValueError(f"mode is {mode!r}: it can be 'r' or 'r+'")
    return FileSystem(_extant.Volume(image, mode == "r+", options), image, mode)


def mkfs(
    image: HostPath,
    size: Optional[int] = None,
    *,
    label: Union[str, bytes] = b"",
    features: str = "",
    force: bool = False,
) -> None:
    """Makes an empty ext4 file system.

    ``image`` is a block device, or a file, which is made if it is missing. Without ``size`` the
    file system takes all of what is there. What holds something already is refused unless
    ``force``. ``features`` are those of mke2fs: ``"^has_journal,orphan_file"``.
    """
    if isinstance(label, str):
        label = label.encode()
    _extant.mkfs(image, size, label, features, force)


def build(
    sources: Union[HostPath, Sequence[HostPath]],
    image: HostPath,
    *,
    size: Optional[int] = None,
    free: int = 0,
    owner: Optional[Tuple[int, int]] = None,
    mtime: Optional[int] = None,
    force: bool = False,
    progress: Optional[Progress] = None,
) -> Build:
    """Builds an image of folders, archives and container images; later ones lie over earlier ones.

    The image is as small as can be, with ``free`` bytes of room, or has ``size`` bytes. ``owner``
    and ``mtime`` are those of all files. ``progress(done, all)`` is called with bytes.
    """
    if isinstance(sources, (str, os.PathLike)):
        sources = [sources]
    made = _extant.build(list(sources), image, size, free, owner, mtime, force, progress)
    return Build(*made)


def check(image: HostPath, *, progress: Optional[Progress] = None) -> Report:
    """Verifies an image without writing to it. ``progress(done, all)`` is called in no unit."""
    found, findings = _extant.check(image, progress)
    return Report(found, [Finding(words, kind) for words, kind in findings])
