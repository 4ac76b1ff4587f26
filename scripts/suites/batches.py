"""Transactions of LMDB's that are told once they are acknowledged, and a look at what is there.

    batches.py write FOLDER map|write   puts batches until the database is gone, through its shared
                                        mapping or by writes; a line for each commit
    batches.py check FOLDER FILE        FILE has such lines
"""

import sys

import lmdb

ENTRIES = 50
KEPT = 100


def entries(batch):
    for number in range(ENTRIES):
        key = b"%08d-%03d" % (batch, number)
        yield key, bytes([batch % 251]) * (1 + 37 * number)


def write(path, way):
    base = lmdb.open(path, map_size=64 << 20, writemap=way == "map")
    with base.begin() as reading:
        cursor = reading.cursor()
        last = int(cursor.key()[:8]) if cursor.last() else 0
    while True:
        last += 1
        with base.begin(write=True) as change:
            for key, value in entries(last):
                change.put(key, value)
            for key, _ in entries(last - KEPT) if last > KEPT else ():
                change.delete(key)
        print(last, flush=True)


def check(path, acknowledged):
    with open(acknowledged) as lines:
        told = max((int(line) for line in lines if line.endswith("\n")), default=0)
    if told == 0:
        return
    base = lmdb.open(path, map_size=64 << 20, create=False)
    with base.begin() as reading:
        there = list(reading.cursor())
    last = int(there[-1][0][:8])
    # The next one may have been committed without its answer.
    assert told <= last <= told + 1, f"batch {told} was acknowledged, {last} is there"
    expected = [entry for batch in range(max(1, last - KEPT + 1), last + 1)
                for entry in entries(batch)]
    assert there == expected, f"{len(there)} entries, {len(expected)} expected"
    print(f"{told} commits acknowledged, {last} there")


try:
    {"write": write, "check": check}[sys.argv[1]](*sys.argv[2:])
except lmdb.Error as error:
    sys.exit(f"Error: {error}")
