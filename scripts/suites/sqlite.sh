# SQLite's tests that are about files, for scripts/suites/run, and kills of the daemon while
# transactions commit.
[ -x "$folder/testfixture" ] || {
    echo "$folder is no folder of SQLite's sources with testfixture" >&2
    exit 2
}
usual='backup crash io jrnlmode jrnlmode2 jrnlmode3 journal1 journal2 journal3 lock lock2 mmap1
    rollback savepoint sync sync2 wal wal2 wal3 walmode walro'
crashes='kill-delete kill-truncate kill-persist kill-wal'

# The usual ones, or where some are asked for all that there are.
list() {
    if [ "$asked" = 0 ]; then
        printf '%s.test\n' $usual
    else
        (cd "$folder/test" && printf '%s\n' *.test)
    fi
    [ "$on" = ext4 ] || printf '%s\n' $crashes
}
one() {
    case "$1" in kill-*) kills "${1#kill-}"; return ;; esac
    local status=0 dir=$mount/$1
    mkdir "$dir"
    cd "$dir"
    timeout -k 10 "$limit" "$folder/testfixture" "$folder/test/$1" || status=$?
    cd /
    rm -rf "$dir"
    return "$status"
}
# Kills the daemon while transactions commit: what was acknowledged is there, and the database is
# sound.
kills() { kill_rounds "$here/commits.py" "$1"; }
why() { grep -E '^! |Error|errors out of|rows' "$out" | tail -1 | tr '\t' ' ' | cut -c1-150; }
