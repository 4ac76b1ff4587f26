# LMDB's test programs and tools, for scripts/suites/run, and kills of the daemon while transactions
# commit (with Python's module, Debian's package python3-lmdb).
[ -x "$folder/mtest" ] && [ -x "$folder/mdb_load" ] || {
    echo "$folder is no folder of LMDB's library with its programs built" >&2
    exit 2
}

list() {
    local program
    for program in mtest mtest2 mtest3 mtest4 mtest5; do
        [ ! -x "$folder/$program" ] || echo "$program"
    done
    echo copies
    [ "$on" = ext4 ] || printf '%s\n' kill-write kill-map
}
one() {
    case "$1" in
        kill-*)
            python -c "import lmdb" 2>/dev/null || { echo "no module lmdb"; return 32; }
            kills "${1#kill-}"
            return
            ;;
    esac
    local status=0 dir=$mount/$1
    mkdir -p "$dir/testdb"
    cd "$dir"
    case "$1" in
        copies) copies ;;
        *)
            timeout -k 10 "$limit" "$folder/$1" >"$work/said" || return
            # Its lines are a walk of the database; the tools must find one as well.
            wc -l <"$work/said"
            "$folder/mdb_stat" -a -e -f testdb
            ;;
    esac || status=$?
    cd /
    rm -rf "$dir"
    return "$status"
}
# Entries of batch $1, as mdb_load takes them.
batch() { seq -f "%05.0f" 1 50 | awk -v n="$1" '{ printf "%06d-%s\n%0200d\n", n, $1, n }'; }
# Every entry comes back by mdb_dump, from the database and from copies of it.
copies() {
    local n
    for n in $(seq 40); do
        batch "$n" | "$folder/mdb_load" -T testdb || return 1
    done
    mkdir copy compact
    "$folder/mdb_copy" testdb copy && "$folder/mdb_copy" -c testdb compact || return 1
    for n in testdb copy compact; do
        "$folder/mdb_dump" -p "$n" | grep -c "^ 0" | grep -qx 4000 || return 1
    done
}
# Kills the daemon while transactions commit, by writes or through the mapping: what was
# acknowledged is there, and nothing else.
kills() { kill_rounds "$here/batches.py" "$1"; }
why() { tail -1 "$out" | tr '\t' ' ' | cut -c1-150; }
