"""Gives files of an image their equal blocks in common, as the builder of Android's images does.

usage: share_blocks.py IMAGE PATH...

It is libext2fs that finds equal blocks: it remembers the digest of each block that is written
through a volume opened with EXT2_FLAG_SHARE_DUP, and sets the feature shared_blocks. Each file is
read, emptied and written again.
"""

import ctypes
import sys

RW, SHARE_DUP, CAN_64BIT = 0x1, 0x400000, 0x20000
ROOT = 2
FILE_WRITE = 1
CHUNK = 1 << 20

lib = ctypes.CDLL("libext2fs.so.2")
errors = ctypes.CDLL("libcom_err.so.2")
errors.error_message.restype = ctypes.c_char_p
lib.initialize_ext2_error_table()


def call(name, *args):
    function = getattr(lib, name)
    function.restype = ctypes.c_long
    status = function(*args)
    if status:
        text = errors.error_message(ctypes.c_long(status)).decode()
        sys.exit(f"share_blocks: {name}: {text}")


def rewrite(volume, path):
    number, file = ctypes.c_uint32(), ctypes.c_void_p()
    root = ctypes.c_uint32(ROOT)
    call("ext2fs_namei", volume, root, root, path.encode(), ctypes.byref(number))
    call("ext2fs_file_open", volume, number, FILE_WRITE, ctypes.byref(file))
    chunk, count = ctypes.create_string_buffer(CHUNK), ctypes.c_uint()
    data = b""
    while True:
        call("ext2fs_file_read", file, chunk, CHUNK, ctypes.byref(count))
        if not count.value:
            break
        data += chunk.raw[: count.value]
    call("ext2fs_file_close", file)
    call("ext2fs_file_open", volume, number, FILE_WRITE, ctypes.byref(file))
    call("ext2fs_file_set_size2", file, ctypes.c_uint64(0))
    for at in range(0, len(data), CHUNK):
        part = data[at : at + CHUNK]
        call("ext2fs_file_write", file, part, len(part), ctypes.byref(count))
        if count.value != len(part):
            sys.exit(f"share_blocks: {path}: {count.value} bytes of {len(part)} were written")
    call("ext2fs_file_close", file)


def main():
    image, *paths = sys.argv[1:]
    volume = ctypes.c_void_p()
    manager = ctypes.c_void_p.in_dll(lib, "unix_io_manager")
    flags = RW | SHARE_DUP | CAN_64BIT
    call("ext2fs_open", image.encode(), flags, 0, 0, manager, ctypes.byref(volume))
    call("ext2fs_read_bitmaps", volume)
    for path in paths:
        rewrite(volume, path)
    call("ext2fs_close", volume)


main()
