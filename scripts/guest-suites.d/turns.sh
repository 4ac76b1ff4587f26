# Volumes on which Extant and the guest's Linux take turns. Sourced by scripts/guest-suites.
#
# A step is a script for sh. It is run on three sides: in a folder, which shows what is to come out,
# in a mount by Extant, and in a mount by Linux in the guest, whose sh is busybox's. Where names are
# folded, the two mounts are asked by other spellings than the folder.
#
#     folder   --step-->  a tree      --show-->  expected
#     extant   --step-->  the image   --show-->  equal to it, sound for both checkers
#     linux    --step-->  the image   --show-->  the same

# Begins a suite: an empty folder, no key, mount options, and the programs that steps run in the
# guest.
begin_turns() {
    title=$1 options=rw${2:+,$2}
    rm -rf "$work/folder" "$work/files" "$work/image"
    mkdir -p "$work/folder" "$work/files/tools"
    : >"$work/files/folded"
    local program
    for program in chattr getfattr setfattr setpriv fsverity xfs_io; do
        bring_into "$work/files/tools" "$program"
    done
    {
        # shellcheck disable=SC2016
        echo 'set -e; side=$1 round=${2:-}'
        echo "loader=/files/tools/$loader"
        cat <<'END'
umask 022
export LC_ALL=C

# A program of the host's, on every side.
case $side in
linux) with="$loader --library-path /files/tools /files/tools/" ;;
*) with= ;;
esac
tool() {
    local program=$1
    shift
    $with$program "$@"
}

# Flags, seals and projects of a mount; a folder has none.
fold() { [ "$side" = folder ] || tool chattr +F "$1"; }
seal() { [ "$side" = folder ] || tool fsverity enable "$1"; }
project() { [ "$side" = folder ] || tool chattr +P -p "$1" "$2"; }
as() {
    local user=$1
    shift
    tool setpriv --reuid "$user" --regid "$user" --clear-groups "$@"
}

# Names in another spelling, where they are folded; and the second of two spellings there.
respell() { case $side in folder) cat ;; *) tr A-Za-z a-zA-Z ;; esac; }
spell() { echo "$1" | respell; }
either() { case $side in folder) echo "$1" ;; *) echo "$2" ;; esac; }

# So many lines of 32 bytes, no two of them equal.
lines() { awk -v n="$2" -v of="$1" 'BEGIN { while (i < n) printf "%-15.15s %015d\n", of, i++ }'; }

# Gives all files one time.
set_times() { find . -path ./lost+found -prune -o -exec touch -h -d "@$1" {} +; }
END
    } >"$work/files/common"
    step show <<'END'
list() { find . -path ./lost+found -prune -o "$@" -print0 | sort -z; }
list -type d | xargs -0 stat -c '%n %f %u %g %Y'
list ! -type d | xargs -0 stat -c '%n %f %u %g %h %s %Y'
list -type l | xargs -0 -n 1 readlink
list -type f | xargs -0 md5sum
list ! -type l | xargs -0 ${with}getfattr -h -d -m - -e hex |
    awk '/^# file/ { file = $0 } /=/ { print file, $0 }' | sort
# The same files by other spellings.
while read -r dir; do
    [ ! -d "$dir" ] || (
        cd "$dir"
        find . -type f -print0 | sort -z | respell | xargs -0 md5sum | cut -c-32
    )
done <"${0%/*}/folded"
END
}

# Makes a step of standard input.
step() {
    # shellcheck disable=SC2016
    { echo '. "${0%/*}/common"'; cat; } >"$work/files/$1"
}

# Runs steps on a side, each a name and arguments, in one mount. What they print is compared with
# what is in the file "expected", if there is one: in the guest, whose terminal is slow.
on() {
    local side=$1 each dir=$work/folder status=0
    shift
    if [ "$side" = linux ]; then
        on_linux "$@"
        return
    fi
    if [ "$side" = extant ]; then
        dir=$work/mnt
        "$extant" mount -o "allow_other,$options" "$work/image" "$dir" || return
        if [ -e "$work/files/key" ]; then
            "$extant" key add "$dir" "$work/files/key" >/dev/null || status=1
        fi
    fi
    for each; do
        set -- $each
        (cd "$dir" && sh "$work/files/$1" "$side" "${@:2}") || { status=1; break; }
    done >"$work/printed"
    [ "$side" = folder ] || "$extant" umount "$dir" || return
    if [ $status = 0 ] && [ -e "$work/files/expected" ]; then
        diff "$work/files/expected" "$work/printed"
        return
    fi
    cat "$work/printed"
    return $status
}

on_linux() {
    local each
    {
        echo "set -e"
        echo "mount -t ext4 -o $options /dev/vda /mnt"
        echo "cd /mnt"
        if [ -e "$work/files/key" ]; then
            echo "/files/tools/$loader --library-path /files/tools /files/tools/xfs_io" \
                "-r -c add_enckey /mnt </files/key >/dev/null"
        fi
        for each; do
            set -- $each
            echo "sh /files/$1 linux ${*:2} >>/tmp/printed"
        done
        echo "cd /"
        echo "umount /mnt"
        echo "if [ ! -e /files/expected ]; then cat /tmp/printed"
        echo "else diff /files/expected /tmp/printed; fi"
    } >"$work/script"
    scripts/guest "$work/image" "$work/script" "$work/files"
}

# What both checkers and a comparison with the folder say of the image.
is_as_the_folder() {
    local key=()
    is_sound "$title: $1"
    [ ! -e "$work/files/key" ] || key=(--key "$work/files/key")
    holds "$title: $1: the image is as the folder" \
        "$extant" "${key[@]}" diff "$work/folder" "$work/image"
}

# Has a side run steps and show the volume; what they print is to be what they print in the folder.
turn() {
    local side=$1
    shift
    holds "$title: a folder: $*" on folder "$@" show
    cp "$work/said" "$work/files/expected"
    holds "$title: $side: $*" on "$side" "$@" show
    rm "$work/files/expected"
    is_as_the_folder "$side: $*"
}
