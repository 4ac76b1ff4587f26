"""Direct writes by libaio's system calls. Usage: stale|full FILE"""
import ctypes, mmap, os, struct, sys, threading

libc = ctypes.CDLL(None, use_errno=True)
SETUP, GETEVENTS, SUBMIT = {"x86_64": (206, 208, 209), "aarch64": (0, 4, 2)}[os.uname().machine]

def call(number, *args):
    done = libc.syscall(number, *args)
    if done < 0:
        raise OSError(ctypes.get_errno(), "system call %d" % number)
    return done

context = ctypes.c_ulong(0)
call(SETUP, 64, ctypes.byref(context))

def write(fd, memory, length, offset):
    """Submits one write and waits for it; returns its result."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    block = ctypes.create_string_buffer(
        struct.pack("<QIIHhIQQqQII", 0, 0, 0, 1, 0, fd, address, length, offset, 0, 0, 0), 64)
    blocks = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    call(SUBMIT, context, 1, blocks)
    event = ctypes.create_string_buffer(32)
    while call(GETEVENTS, context, 1, 1, event, None) == 0:
        pass
    return struct.unpack("<QQqq", event.raw)[2]

def stale(path):
    length, rounds = 64 << 10, 400
    with open(path, "wb") as new:
        new.write(b"\0" * length)
        os.fsync(new.fileno())
    direct = os.open(path, os.O_RDWR | os.O_DIRECT)
    memory, stop = mmap.mmap(-1, length), threading.Event()

    def read():
        fd = os.open(path, os.O_RDONLY)
        while not stop.is_set():
            os.pread(fd, length, 0)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    cached, old = os.open(path, os.O_RDONLY), 0
    for number in range(rounds):
        new = bytes([number % 255 + 1]) * length
        memory[:] = new
        assert write(direct, memory, length, 0) == length
        if os.pread(cached, length, 0) != new:
            old += 1
    stop.set()
    for reader in readers:
        reader.join()
    print("stale %d of %d" % (old, rounds))

def full(path):
    length, total = 2 << 20, 0
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    memory = mmap.mmap(-1, length)
    while True:
        done = write(fd, memory, length, total)
        if done <= 0:
            break
        total += done
    print("ended %d size %d total %d" % (done, os.fstat(fd).st_size, total))
    os.close(fd)

{"stale": stale, "full": full}[sys.argv[1]](sys.argv[2])
