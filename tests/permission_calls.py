"""Makes calls on files and directories of many owners and modes, and prints what each answered.

usage: permission_calls.py make DIR
       permission_calls.py try DIR

"make" makes the tree, and needs root. "try" prints a line for each call of each entry: its name,
the call, and 0 or the number of the error. Calls that change an entry come last.
"""

import os
import struct
import subprocess
import sys

OWNERS = [(0, 0), (0, 5), (5, 0), (5, 77), (5, 5)]
MODES = [0] + [bits << shift for shift in (6, 3, 0) for bits in range(1, 8)]
MODES += [0o777, 0o707, 0o077, 0o2770, 0o2070, 0o1777, 0o640, 0o2771]
ACL = "system.posix_acl_access"


def acl(entries):
    """The value of an ACL: entries of tag, permissions and id."""
    packed = (struct.pack("<HHI", *entry) for entry in entries)
    return struct.pack("<I", 2) + b"".join(packed)


NONE = 0xFFFFFFFF
ACLS = [
    acl([(1, 0, NONE), (2, 7, 0), (4, 0, NONE), (16, 5, NONE), (32, 0, NONE)]),
    acl([(1, 0, NONE), (4, 0, NONE), (8, 6, 77), (8, 1, 0), (16, 7, NONE), (32, 7, NONE)]),
    acl([(1, 7, NONE), (2, 0, 0), (4, 7, NONE), (16, 7, NONE), (32, 7, NONE)]),
]
# For a file of set-group-id: members of its group leave the bit there.
PLAIN_ACL = acl([(1, 6, NONE), (2, 4, 9), (4, 6, NONE), (16, 6, NONE), (32, 0, NONE)])


def entries():
    for uid, gid in OWNERS:
        for mode in MODES:
            yield f"{uid}-{gid}-{mode:o}", uid, gid, mode, None
        for number, value in enumerate(ACLS):
            yield f"{uid}-{gid}-acl{number}", uid, gid, 0o600, value


def own(path, uid, gid, mode, value):
    os.chown(path, uid, gid)
    os.chmod(path, mode)
    if value:
        os.setxattr(path, ACL, value)


def make(top):
    for kind in ("files", "dirs", "other"):
        os.mkdir(f"{top}/{kind}")
    os.chmod(f"{top}/other", 0o777)
    for name, *owner in entries():
        path = f"{top}/files/{name}"
        with open(path, "w") as file:
            file.write("#!/bin/true\n")
        os.setxattr(path, "user.x", b"1")
        own(path, *owner)
        path = f"{top}/dirs/{name}"
        os.mkdir(path)
        for inner in ("file", "gone", "moved", "away", "listed"):
            open(f"{path}/{inner}", "w").close()
            os.chmod(f"{path}/{inner}", 0o666)
        for inner in ("empty", "walked"):
            os.mkdir(f"{path}/{inner}")
        own(path, *owner)


def answer(call):
    try:
        result = call()
    except OSError as error:
        return error.errno
    if isinstance(result, (str, bool)):
        return result
    if result:
        os.close(result)
    return 0


def run(path):
    return str(subprocess.run([path], stderr=subprocess.DEVNULL).returncode)


def bits(path):
    return oct(os.stat(path).st_mode)


def of_file(top, path, name):
    """The calls on a file, with their names."""
    for flags in ("O_RDONLY", "O_WRONLY", "O_RDWR", "O_PATH"):
        yield flags, lambda: os.open(path, getattr(os, flags))
    for mask in range(8):
        yield f"access {mask}", lambda: os.access(path, mask)
    yield "exec", lambda: run(path)
    yield "getxattr", lambda: os.getxattr(path, "user.x") and 0
    yield "get acl", lambda: 0 if os.getxattr(path, ACL) else 0
    yield "stat", lambda: bits(path)
    yield "link", lambda: os.link(path, f"{top}/other/{name}")
    yield "setxattr", lambda: os.setxattr(path, "user.y", b"2")
    yield "removexattr", lambda: os.removexattr(path, "user.x")
    yield "truncate", lambda: os.truncate(path, 5)
    yield "O_TRUNC", lambda: os.open(path, os.O_RDONLY | os.O_TRUNC)
    yield "touch", lambda: os.utime(path)
    yield "both times", lambda: os.utime(path, (5, 6))
    yield "set acl", lambda: os.setxattr(path, ACL, PLAIN_ACL)
    yield "with acl", lambda: bits(path)
    yield "chmod", lambda: os.chmod(path, 0o2666)
    yield "with mode", lambda: bits(path)
    for uid, gid in [(-1, 0), (-1, 77), (-1, 6), (0, -1), (5, -1), (6, -1)]:
        yield f"chown {uid} {gid}", lambda: os.chown(path, uid, gid)
    yield "at the end", lambda: bits(path)


def of_dir(top, path, name):
    """The calls on a directory. Listing it comes last: the kernel caches the names."""
    for mask in range(8):
        yield f"access {mask}", lambda: os.access(path, mask)
    yield "chdir", lambda: os.chdir(path)
    os.chdir("/")
    yield "lookup", lambda: 0 if os.stat(f"{path}/file") else 0
    yield "create", lambda: os.open(f"{path}/new", os.O_CREAT | os.O_WRONLY, 0o600)
    yield "create again", lambda: os.open(f"{path}/listed", os.O_CREAT | os.O_WRONLY, 0o600)
    yield "tmpfile", lambda: os.open(path, os.O_TMPFILE | os.O_RDWR, 0o600)
    yield "mkdir", lambda: os.mkdir(f"{path}/newdir")
    yield "mknod", lambda: os.mknod(f"{path}/fifo", 0o010600)
    yield "symlink", lambda: os.symlink("target", f"{path}/newlink")
    yield "unlink", lambda: os.unlink(f"{path}/gone")
    yield "rmdir", lambda: os.rmdir(f"{path}/empty")
    yield "rename", lambda: os.rename(f"{path}/moved", f"{path}/renamed")
    yield "rename away", lambda: os.rename(f"{path}/away", f"{top}/other/{name}-away")
    yield "rename dir away", lambda: os.rename(path, f"{top}/other/{name}-dir")
    moved = f"{top}/other/{name}-dir"
    path = moved if os.path.isdir(moved) else path
    yield "walk", lambda: os.chdir(f"{path}/walked")
    os.chdir("/")
    yield "list", lambda: 0 if os.listdir(path) else 0


def attempt(top):
    for kind, calls in (("files", of_file), ("dirs", of_dir)):
        for name, *_ in entries():
            for call, made in calls(top, f"{top}/{kind}/{name}", name):
                print(kind, name, call, answer(made))


if __name__ == "__main__":
    {"make": make, "try": attempt}[sys.argv[1]](sys.argv[2])
