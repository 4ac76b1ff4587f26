"""nbdkit's plugin behind `dmsetup`: a device that does what a table of the device mapper says.

The table is a file of lines as dmsetup(8) takes them, and is read again whenever another file has
its name. Targets: linear; error; flakey, which while it is down drops writes (drop_writes), refuses
them (error_writes) or refuses everything. Requests come one at a time, so the first request after
a change of the table meets the new one.
"""

import builtins
import errno
import os

import nbdkit

API_VERSION = 2
SECTOR = 512

path = None


def config(key, value):
    global path
    if key != "table":
        raise RuntimeError("the parameter is table=FILE")
    path = value


def config_complete():
    if path is None:
        raise RuntimeError("table=FILE is missing")


def thread_model():
    return nbdkit.THREAD_MODEL_SERIALIZE_ALL_REQUESTS


class Segment:
    """A line of a table."""

    def __init__(self, line, files):
        word = line.split()
        self.start = int(word[0]) * SECTOR
        self.end = self.start + int(word[1]) * SECTOR
        self.kind = word[2]
        self.offset = 0
        if self.kind == "error":
            return
        if self.kind not in ("linear", "flakey"):
            raise RuntimeError("no target " + self.kind)
        # A device below another one is in use.
        if word[3] not in files:
            files[word[3]] = os.open(word[3], os.O_RDWR | os.O_EXCL)
        self.file = files[word[3]]
        self.offset = int(word[4]) * SECTOR
        if self.kind == "flakey":
            # Seconds of being up, seconds of being down, features of the time when it is down.
            is_down = int(word[5]) == 0
            features = word[8:] or ["error"]
            self.kind = features[0] if is_down else "linear"


class Device:
    """The table as it is now."""

    def __init__(self):
        self.files = {}
        self.version = None
        self.segments = []
        self.refresh()

    def refresh(self):
        state = os.stat(path)
        version = (state.st_ino, state.st_mtime_ns)
        if version != self.version:
            with builtins.open(path) as table:
                lines = [line for line in table if line.strip()]
            self.segments = [Segment(line, self.files) for line in lines]
            self.version = version

    def size(self):
        return max(segment.end for segment in self.segments)

    def parts(self, offset, length, refused):
        """Yields the segments of a request, each with its part. Kinds in `refused` fail it."""
        self.refresh()
        parts = []
        for segment in self.segments:
            start, end = max(offset, segment.start), min(offset + length, segment.end)
            if start < end:
                parts.append((segment, start - offset, end - offset))
        if any(segment.kind in refused for segment, _, _ in parts):
            nbdkit.set_error(errno.EIO)
            raise RuntimeError("the table says so")
        for segment, first, last in parts:
            yield segment, first, last, offset + first - segment.start + segment.offset


device = None


def open(readonly):
    global device
    if device is None:
        device = Device()
    return device


def get_size(device):
    return device.size()


def pread(device, buffer, offset, flags):
    view = memoryview(buffer)
    for segment, first, last, place in device.parts(offset, len(buffer), ["error"]):
        os.preadv(segment.file, [view[first:last]], place)


def pwrite(device, buffer, offset, flags):
    view = memoryview(buffer)
    refused = ["error", "error_writes"]
    for segment, first, last, place in device.parts(offset, len(buffer), refused):
        if segment.kind != "drop_writes":
            os.pwrite(segment.file, view[first:last], place)


def flush(device, flags):
    refused = ["error", "error_writes"]
    for segment, _, _, _ in device.parts(0, device.size(), refused):
        if segment.kind == "linear":
            os.fsync(segment.file)
