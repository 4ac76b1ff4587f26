"""nbdkit's plugin of a disk whose cache is lost with it.

Writes go to the image at once. Those that no flush covers are in the log too, with the bytes before
and after: from that the test chooses what the disk had taken when its power was cut.
"""

import os
import struct
import time

import nbdkit

API_VERSION = 2
paths = {}
image = log = None


def config(key, value):
    paths[key] = value


def thread_model():
    return nbdkit.THREAD_MODEL_SERIALIZE_ALL_REQUESTS


def after_fork():
    global image, log
    image = os.open(paths["image"], os.O_RDWR)
    log = os.open(paths["log"], os.O_WRONLY | os.O_APPEND)


def open(readonly):
    return 1


def get_size(handle):
    return os.fstat(image).st_size


def pread(handle, buffer, offset, flags):
    os.preadv(image, [buffer], offset)


def pwrite(handle, buffer, offset, flags):
    before = os.pread(image, len(buffer), offset)
    # The log first: a disk that dies between the two has the write in its cache.
    os.writev(log, [struct.pack("<QQ", offset, len(buffer)), before, buffer])
    os.pwrite(image, buffer, offset)


def flush(handle, flags):
    # It takes so long that most cuts meet a disk with something in its cache.
    time.sleep(0.03)
    os.ftruncate(log, 0)
