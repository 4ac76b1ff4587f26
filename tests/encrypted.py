"""Makes an encrypted directory below PATH, on a mount of Linux's ext4.

usage: encrypted.py PATH

Adds a key to the file system, sets a policy of version 2 on PATH/secret, and puts files,
directories and links with names of many lengths there. The key goes with the mount.
"""

import ctypes
import fcntl
import os
import struct
import sys

FS_IOC_ADD_ENCRYPTION_KEY = 0xC0506617
FS_IOC_SET_ENCRYPTION_POLICY = 0x800C6613
IDENTIFIER = 2
AES_256_XTS = 1
AES_256_CTS = 4


def main(top):
    secret = os.path.join(top, "secret")
    os.mkdir(secret)
    mount = os.open(top, os.O_RDONLY)
    # struct fscrypt_add_key_arg: the specifier (type, reserved, 32 bytes), the key's length, a key
    # of a keyring, reserved, the key.
    key = bytes(range(64))
    arg = bytearray(struct.pack("<II32sII8I", IDENTIFIER, 0, b"", len(key), 0, *[0] * 8) + key)
    fcntl.ioctl(mount, FS_IOC_ADD_ENCRYPTION_KEY, arg)
    identifier = bytes(arg[8:24])
    policy = struct.pack("<BBBB4x16s", 2, AES_256_XTS, AES_256_CTS, 0, identifier)
    directory = os.open(secret, os.O_RDONLY)
    fcntl.ioctl(directory, FS_IOC_SET_ENCRYPTION_POLICY, bytearray(policy))
    for length in list(range(1, 240, 7)) + [140, 150, 160, 240, 255]:
        name = os.path.join(secret, "n" * length)
        with open(name, "wb") as file:
            file.write(b"x" * length)
    deep = os.path.join(secret, "directory")
    os.mkdir(deep)
    for number in range(400):
        open(os.path.join(deep, f"file-{number}"), "wb").close()
    for length in (1, 20, 40, 60, 100, 200):
        os.symlink("t" * length, os.path.join(secret, f"link{length}"))
    os.close(directory)
    os.close(mount)


if __name__ == "__main__":
    main(sys.argv[1])
