"""Has the process PID make a system call, by ptrace: what happens to a process whose code is taken.

usage: inject.py PID NUMBER [ARGUMENT...]   (numbers; a word that is none becomes a string)

Prints what the call returned ("-13"), or the signal that ended the process ("SIG 31").
x86-64 only.
"""

import ctypes
import os
import struct
import sys

PEEK, POKE, CONT, STEP, GETREGS, SETREGS, ATTACH, DETACH = 2, 5, 7, 9, 12, 13, 16, 17
NAMES = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
    "fs_base gs_base ds es fs gs"
).split()
WALL = 0x40000000

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request, pid, address=None, data=None):
    ctypes.set_errno(0)
    result = libc.ptrace(request, pid, address, data)
    error = ctypes.get_errno()
    if result == -1 and error:
        raise OSError(error, os.strerror(error))
    return result


def get(pid):
    raw = ctypes.create_string_buffer(8 * len(NAMES))
    ptrace(GETREGS, pid, None, ctypes.addressof(raw))
    return dict(zip(NAMES, struct.unpack("27Q", raw.raw)))


def put(pid, registers):
    raw = struct.pack("27Q", *(registers[name] & (2**64 - 1) for name in NAMES))
    raw = ctypes.create_string_buffer(raw, len(raw))
    ptrace(SETREGS, pid, None, ctypes.addressof(raw))


def main():
    pid, number, arguments = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    ptrace(ATTACH, pid)
    os.waitpid(pid, WALL)
    before = get(pid)
    # The thread waits in a call: the two bytes before its next instruction are `syscall`.
    code = ptrace(PEEK, pid, before["rip"] - 2) & 0xFFFF
    assert code == 0x050F, hex(code)
    after = dict(before)
    if before["orig_rax"] < 2**63:
        # It makes the call again that it was interrupted in.
        after.update(rax=before["orig_rax"], rip=before["rip"] - 2, orig_rax=2**64 - 1)
    call = dict(before, rax=number, rip=before["rip"] - 2, orig_rax=2**64 - 1)
    # Below what the thread's functions may use of the stack.
    room = (before["rsp"] - 4096) & ~15
    for register, argument in zip(["rdi", "rsi", "rdx", "r10", "r8", "r9"], arguments):
        try:
            call[register] = int(argument, 0)
        except ValueError:
            text = argument.encode() + b"\0" * (8 - len(argument) % 8)
            for at in range(0, len(text), 8):
                (word,) = struct.unpack("q", text[at : at + 8])
                ptrace(POKE, pid, room + at, word)
            call[register] = room
            room -= 1024
    put(pid, call)
    ptrace(STEP, pid)
    _, status = os.waitpid(pid, WALL)
    if os.WIFSIGNALED(status):
        print("SIG", os.WTERMSIG(status))
        return
    (result,) = struct.unpack("q", struct.pack("Q", get(pid)["rax"]))
    put(pid, after)
    ptrace(DETACH, pid)
    print(result)


main()
