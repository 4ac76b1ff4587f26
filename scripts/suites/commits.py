"""Transactions of SQLite's that are told once they are acknowledged, and a look at what is there.

    commits.py write DATABASE MODE      inserts until the database is gone; a line for each commit
    commits.py check DATABASE FILE      FILE has such lines
"""

import sqlite3
import sys

ROWS = 7


def write(path, mode):
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("pragma journal_mode=" + mode)
    # Less than this does not sync the directory after the journal's removal, which is the commit.
    base.execute("pragma synchronous=extra")
    base.execute("create table if not exists rows (batch int, row int, data blob)")
    base.execute("create index if not exists of_batch on rows (batch, row)")
    last = base.execute("select max(batch) from rows").fetchone()[0] or 0
    while True:
        last += 1
        base.execute("begin immediate")
        for row in range(ROWS):
            data = bytes([last % 251]) * (100 + 700 * row)
            base.execute("insert into rows values (?, ?, ?)", (last, row, data))
        base.execute("delete from rows where batch = ?", (last - 200,))
        base.execute("commit")
        print(last, flush=True)


def check(path, acknowledged):
    with open(acknowledged) as lines:
        told = max((int(line) for line in lines if line.endswith("\n")), default=0)
    base = sqlite3.connect(path)
    verdict = base.execute("pragma integrity_check").fetchall()
    assert verdict == [("ok",)], verdict
    count = "select batch, count(*), min(data), max(data) from rows group by batch"
    batches = base.execute(count).fetchall() if told else []
    last = max((batch for batch, _, _, _ in batches), default=0)
    # The next one may have been committed without its answer.
    assert told <= last <= told + 1, f"rows of batch {told} were acknowledged, {last} is there"
    for batch, rows, least, most in batches:
        assert rows == ROWS, f"{rows} rows of batch {batch}"
        assert {*least, *most} == {batch % 251}, f"rows of batch {batch} have other bytes"
    print(f"{told} commits acknowledged, {last} there")


try:
    {"write": write, "check": check}[sys.argv[1]](*sys.argv[2:])
except sqlite3.Error as error:
    sys.exit(f"Error: {error}")
