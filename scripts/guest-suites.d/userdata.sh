# The data partition of an Android device: encrypted directories of apps, media that fold the case
# of names as well, sealed packages, and projects whose usage is counted. Sourced by
# scripts/guest-suites.

# Each side makes the tree once, and then they change it in turn.
userdata() {
    local first second
    for first in extant linux; do
        begin_turns "userdata, made by $first" usrquota,grpquota,prjquota
        userdata_steps
        truncate -s 512M "$work/image"
        mke2fs -q -F -t ext4 -b 4096 -I 256 -E quotatype=usrquota:grpquota:prjquota \
            -O encrypt,stable_inodes,casefold,verity,project,quota "$work/image"
        "$extant" quota edit -P 20001 --space-hard 24M "$work/image"
        "$extant" quota edit -u 10002 --space-hard 24M --inodes-hard 400 "$work/image"
        export extant
        head -c 64 /dev/urandom >"$work/files/key"
        "$extant" mount "$work/image" "$work/mnt"
        "$extant" key add "$work/mnt" "$work/files/key" >"$work/files/key-id"
        "$extant" umount "$work/mnt"
        second=linux
        [ $first = extant ] || second=extant
        counted_turn $first make
        holds "$title: policies" policies_are_of_inodes
        counted_turn $second limits "change 1"
        counted_turn $first limits "change 2" uninstall
        counted_turn $second "change 3"
        counted_turn $first
    done
}

# A turn after which three agree on the usage of users and projects: stat in a mount by either side,
# and the entries on disk.
counted_turn() {
    local side
    turn "$@"
    "$extant" quota report --json "$work/image" | python3 -c '
import json, sys
for kind, of in json.load(sys.stdin).items():
    for entry in of["entries"]:
        if kind != "group" and entry["id"] and entry["inodes"]:
            print(kind, entry["id"], entry["space"] // 1024, entry["inodes"])
' | sort >"$work/counted"
    holds "$title: something is counted" test -s "$work/counted"
    for side in extant linux; do
        holds "$title: $side: usage" on $side usage
        cp "$work/said" "$work/usage"
        holds "$title: $side: usage is what is counted" diff "$work/counted" "$work/usage"
    done
}

policies_are_of_inodes() {
    local name
    for name in data/data data/media/0; do
        "$extant" key policy "$work/image:/$name" | grep inode-64 || return
    done
}

userdata_steps() {
    echo data/media/0 >"$work/files/folded"
    step make <<'END'
# AES-256-XTS and AES-256-CBC-CTS, a key for the volume (IV_INO_LBLK_64), padding to 32 bytes.
encrypt() {
    local id
    read -r id <"${0%/*}/key-id"
    case $side in
    extant) "$extant" key encrypt --keys inode-64 --key-id "$id" "$1" ;;
    linux) tool xfs_io -r -c "set_encpolicy -c 1 -n 4 -f 0xb -v 2 $id" "$1" ;;
    esac
}
mkdir -p data/data data/media/0 data/app data/system/users data/local/tmp data/user
encrypt data/data
encrypt data/media/0
fold data/media/0
ln -s /data/data data/user/0
echo "<packages/>" >data/system/packages.xml
lines state 3000 >data/system/users/0.xml
mkdir -p data/media/0/DCIM/Camera data/media/0/Android/data
lines photo 60000 >"data/media/0/DCIM/Camera/IMG_0001.JPG"
echo Größe >"data/media/0/DCIM/Straße.TXT"
for number in 1 2 3; do
    uid=$((10000 + number)) name=com.example.app$number
    mkdir -p data/app/$name-1/lib data/data/$name data/media/0/Android/data/$name
    lines "package $number" $((20000 * number)) >data/app/$name-1/base.apk
    seal data/app/$name-1/base.apk
    lines lib 100 >data/app/$name-1/lib/libmain.so
    for dir in data/data/$name data/media/0/Android/data/$name; do
        project $((20000 + number)) $dir
        mkdir $dir/cache $dir/files
        ln -s ../$name/files $dir/link
        for file in $(seq 60); do
            echo "$number $file" >"$dir/cache/Entry_$file.tmp"
        done
        lines "database $number" 50000 >"$dir/files/Main.DB"
        lines "log $number" 1000 >"$dir/files/Main.DB-wal"
        tool setfattr -n user.origin -v "app $number" "$dir/files/Main.DB"
        chown -hR $uid:$uid $dir
    done
    ln -s /data/app/$name-1/lib data/data/$name/lib
    chmod 700 data/data/$name
    lines "sealed $number" 9000 >"data/media/0/Android/data/$name/Sealed.OBB"
    seal "data/media/0/Android/data/$name/Sealed.OBB"
done
set_times 1650000000
END
    # Limits are kept, as far as the volume counts.
    step limits <<'END'
[ "$side" != folder ] || exit 0
for of in 1 2; do
    dir=data/data/com.example.app$of/files
    if as $((10000 + of)) dd if=/dev/zero of=$dir/Much bs=64K count=500 2>/dev/null; then
        echo "more than the limit of app $of"
    fi
    [ "$(stat -c %s $dir/Much)" -gt 1000000 ] || echo "less than the limit of app $of"
    rm $dir/Much
done
dir=data/data/com.example.app2/cache
as 10002 sh -c "for file in \$(seq 400); do : >$dir/\$file || exit; done" 2>/dev/null &&
    echo "more inodes than the limit"
rm $dir/[0-9]*
END
    step change <<'END'
for number in 1 3; do
    name=com.example.app$number uid=$((10000 + number))
    media=data/media/0/$(spell "Android/data/$name")
    # What apps do, in names as they were given.
    dir=data/data/$name
    as $uid sh -c "for file in \$(seq $((10 * round)) $((10 * round + 9))); do
        rm $dir/cache/Entry_\$file.tmp; echo new >$dir/cache/Round_${round}_\$file; done"
    lines "more $round" 20000 >>$dir/files/Main.DB
    lines "page $round" 2000 | dd of=$dir/files/Main.DB bs=64000 seek=$((3 * round)) conv=notrunc \
        2>/dev/null
    : >$dir/files/Main.DB-wal
    mv $dir/files/Main.DB-wal "$dir/files/Old log $round"
    echo wal >$dir/files/Main.DB-wal
    chown -R $uid:$uid $dir/files
    # By other spellings.
    for file in $(seq $((20 + 10 * round)) $((25 + 10 * round))); do
        mv "$media/$(spell "cache/Entry_$file.tmp")" swap
        mv swap "$media/$(spell cache)/ENTRY_$file.TMP"
    done
    lines "video $round" 100000 >"$media/$(spell files)/Video $round.MP4"
    chown $uid:$uid "$media/$(spell "files/Video $round.MP4")"
    tool setfattr -n user.origin -v "round $round" "$media/$(spell files/Main.DB)"
done
camera=data/media/0/$(spell DCIM/Camera)
lines "photo $round" 50000 >"$camera/IMG_100$round.jpg"
lines "cut $round" 1000 | dd of="$camera/$(spell IMG_0001.JPG)" bs=32000 seek=$((10 * round)) \
    conv=notrunc 2>/dev/null
echo "$round" >>"data/media/0/$(spell DCIM)/$(either Straße.TXT STRASSE.txt)"
# To another project: it is copied.
mv "$camera/$(spell "IMG_100$round.jpg")" \
    "data/media/0/$(spell Android/data/com.example.app3)/$(spell files)/Shared $round.jpg"
lines "package $round" 15000 >data/local/tmp/$round.apk
seal data/local/tmp/$round.apk
tool setfattr -n user.round -v "$round" data/system
set_times $((1650000000 + 1000 * round))
END
    step uninstall <<'END'
rm -r data/app/com.example.app2-1 data/data/com.example.app2 \
    "data/media/0/$(spell Android/data/com.example.app2)"
set_times 1650009000
END
    # Usage as it shows: of users, and of the projects' directories.
    step usage <<'END'
[ "$side" != extant ] || sync
total() {
    xargs -0 -r stat -c '%i %b' | sort -u |
        awk -v of="$1" '{ n++; b += $2 } END { if (n) print of, b / 2, n }'
}
for number in 1 2 3; do
    { find . -user $((10000 + number)) -print0; } | total "user $((10000 + number))"
    find . -path "*/com.example.app$number/*" ! -path './data/app/*' -print0 \
        -o -name "com.example.app$number" ! -path './data/app/*' -print0 |
        total "project $((20000 + number))"
done | sort
END
}
