"""What a program meets on a full volume. Usage: mapping|database FILE [JOURNAL]"""
import errno, mmap, os, sqlite3, sys

def fsync(fd):
    try:
        os.fsync(fd)
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]

def mapping(path):
    """Dirties more than fits through a mapping. Each handle hears of it once."""
    length = 48 << 20
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    os.ftruncate(first, length)
    with mmap.mmap(first, length) as memory:
        memory[:] = b"m" * length
        try:
            memory.flush()
            print("msync ok")
        except OSError as error:
            print("msync", errno.errorcode[error.errno])
    print("first", fsync(first))
    print("second", fsync(second), fsync(second))

def database(path, journal):
    """Fills the volume by transactions; counts those that were acknowledged."""
    rows = "insert into t values (?, ?)"
    open_database = lambda: sqlite3.connect(path, isolation_level=None)
    db = open_database()
    db.execute("pragma journal_mode = " + journal)
    db.execute("create table t (id integer primary key, data blob)")
    acknowledged = 0
    try:
        while acknowledged < 1000000:
            db.execute("begin")
            for number in range(200):
                db.execute(rows, (acknowledged + number, bytes([number]) * 3000))
            db.execute("commit")
            acknowledged += 200
    except sqlite3.OperationalError as error:
        print("error:", error)
    db.close()
    db = open_database()
    count = db.execute("select count(*) from t").fetchone()[0]
    print("integrity:", db.execute("pragma integrity_check").fetchone()[0])
    print("acknowledged" if count == acknowledged > 1000 else "lost", count, acknowledged)

{"mapping": mapping, "database": database}[sys.argv[1]](*sys.argv[2:])
