# A system image of Android: files that have blocks in common, sealed packages with signatures,
# attributes of SELinux and capabilities. Sourced by scripts/guest-suites.

android() {
    begin_turns "android"
    options=ro
    android_steps
    signing_key "$work/files"
    holds "android: the tree" on folder make
    # As Android makes its images.
    truncate -s 192M "$work/image"
    holds "android: mke2fs" mke2fs -q -F -t ext4 -b 4096 -I 256 -m 0 -L / -M / -d "$work/folder" \
        -O ^has_journal,^64bit,^metadata_csum,^resize_inode,^flex_bg,uninit_bg,verity \
        "$work/image"
    # A time that it does not take from the folder.
    holds "android: the root" debugfs -w -R "sif / mtime @1230768000" "$work/image"
    seal_packages
    local shared
    mapfile -t shared < <(cd "$work/folder" && find . -type f ! -name '*.apk' ! -links +1 |
        sed 's/^\.//' | sort)
    holds "android: blocks in common" python3 tests/share_blocks.py "$work/image" "${shared[@]}"
    holds "android: the feature" sh -c "dumpe2fs -h $work/image | grep -q shared_blocks"
    cp "$work/image" "$work/before"

    turn extant measure
    holds "android: Extant refuses to write it" refuses_to_write_shared
    turn linux trust measure
    holds "android: Linux refuses to write it" linux_refuses_to_write_shared
    holds "android: read-only mounts wrote nothing" cmp "$work/image" "$work/before"

    holds "android: a dry run" sh -c "! $extant fix -n --unshare $work/image"
    holds "android: a dry run wrote nothing" cmp "$work/image" "$work/before"
    holds "android: unshared" sh -c "$extant fix --unshare $work/image || [ \$? = 1 ]"
    holds "android: no feature" sh -c "! dumpe2fs -h $work/image | grep -q shared_blocks"
    options=rw
    turn linux trust measure "update 1"
    turn extant "update 2" measure
    turn linux trust "update 3" measure
    turn extant measure
}

# A key, its certificate for the kernel's keyring, and that for fsverity(1).
signing_key() {
    openssl req -newkey rsa:2048 -nodes -x509 -days 20000 -subj "/CN=a builder of images" \
        -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
    openssl x509 -in "$work/cert.pem" -out "$1/cert" -outform der
    bring_into "$1/tools" perl
}

# Seals all packages of the image, each third with a signature, each fifth with salt and SHA-512.
seal_packages() {
    local name args number=0
    for name in $(cat "$work/files/sealed"); do
        args=()
        number=$((number + 1))
        [ $((number % 5)) != 0 ] || args+=(--salt 00ff11 --hash-alg sha512)
        if [ $((number % 3)) = 0 ]; then
            holds "android: $name is signed" fsverity sign "$work/folder/$name" \
                "$work/signature" --key "$work/key.pem" --cert "$work/cert.pem" "${args[@]}"
            args+=(--signature "$work/signature")
        fi
        holds "android: $name is sealed" \
            "$extant" verity enable "${args[@]/--hash-alg/--hash}" "$work/image:/$name"
    done
}

refuses_to_write_shared() {
    ! "$extant" mount -o rw "$work/image" "$work/mnt" 2>"$work/why" &&
        grep "shared_blocks: .* only mounted read-only.*--unshare" "$work/why"
}

linux_refuses_to_write_shared() {
    cat >"$work/script" <<'END'
if mount -t ext4 -o rw /dev/vda /mnt; then exit 1; fi
dmesg | grep "couldn't mount RDWR because of unsupported optional features (4000)"
END
    scripts/guest "$work/image" "$work/script"
}

android_steps() {
    local app
    for app in app/Phone app/Camera app/Maps priv-app/Settings priv-app/SystemUI app/Clock; do
        echo "system/$app/${app##*/}.apk"
    done >"$work/files/sealed"
    step make <<'END'
mkdir -p system/bin system/etc/selinux system/lib64 system/framework vendor/lib64 product
ln -s /system/etc etc
ln -s /system/bin bin
lines libc 40000 >system/lib64/libc.so
cp system/lib64/libc.so vendor/lib64/libc.so
# Equal blocks at the begin, none at the end; and all the other way.
{ lines libc 20000; lines m 3001; } >system/lib64/libm.so
{ lines x 128; lines libc 40000 | tail -c +4097; } >vendor/lib64/libx.so
head -c 300000 /dev/zero >system/etc/zeros
for number in $(seq 200); do
    lines class $((number % 7 * 100)) >"system/framework/Class$number.odex"
done
for package in $(cat "${0%/*}/sealed"); do
    mkdir -p "${package%/*}"
    lines "${package##*/}" 30000 >"$package"
done
for program in toybox sh ping run-as; do
    lines program 3000 >system/bin/$program
    chmod 755 system/bin/$program
done
for tool in ls cat chmod mv; do ln -s toybox system/bin/$tool; done
ln system/etc/zeros vendor/zeros
find ./* -type d -exec chown 0:2000 {} +
chown 0:2000 system/bin/*
chmod 750 system/bin/run-as
set_times 1230768000
find . ! -type l | while read -r name; do
    case $name in
    */bin*) label=system_file ;;
    */app*) label=apk_data_file ;;
    ./vendor*) label=vendor_file ;;
    *) label=rootfs ;;
    esac
    tool setfattr -n security.selinux -v "u:object_r:$label:s0" "$name"
done
# CAP_NET_RAW; CAP_SETUID and CAP_SETGID.
tool setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 system/bin/ping
tool setfattr -n security.capability -v 0x01000002c0000000000000000000000000000000 system/bin/run-as
END
    # Digests of what is sealed, which the folder's files have by computing.
    step measure <<'END'
number=0
while read -r name; do
    number=$((number + 1))
    [ -e "$name" ] || continue
    if [ "$side" != folder ]; then
        tool fsverity measure "$name"
        if (: >>"$name") 2>/dev/null; then echo "$name is written"; fi
    elif [ $((number % 5)) = 0 ]; then
        fsverity digest --salt 00ff11 --hash-alg sha512 "$name"
    else
        fsverity digest "$name"
    fi
done <"${0%/*}/sealed"
END
    # The certificate comes into the kernel's keyring: until then a signed file is not opened.
    step trust <<'END'
[ "$side" = linux ] || exit 0
signed=$(tail -n 1 "${0%/*}/sealed")
keyring=$(sed -n 's/^\([0-9a-f]*\) .* keyring  *\.fs-verity:.*/\1/p' /proc/keys)
[ -n "$keyring" ]
if cat "$signed" >/dev/null 2>&1; then echo "opened without the certificate"; fi
# add_key(2)
tool perl -e 'local $/; my ($type, $name, $certificate) = ("asymmetric", "", <STDIN>);
    syscall(248, $type, $name, $certificate, length $certificate, hex shift) >= 0 or die $!' \
    "$keyring" <"${0%/*}/cert"
cat "$signed" >/dev/null
END
    step update <<'END'
lines "update $round" 20000 | dd of=system/lib64/libm.so bs=32000 seek=$((5 * round)) conv=notrunc \
    2>/dev/null
echo "more" >>vendor/lib64/libx.so
truncate -s $((100000 / round)) "system/framework/Class$((10 * round)).odex"
for number in $(seq $((30 * round)) $((30 * round + 9))); do
    lines "new $round" 200 >"system/framework/Class$number.odex"
    rm "system/framework/Class$((number + 10)).odex"
done
mkdir -p "system/app/Added$round"
lines "added $round" 10000 >"system/app/Added$round/Added.apk"
seal "system/app/Added$round/Added.apk"
tool setfattr -n security.selinux -v u:object_r:shell_exec:s0 system/bin/sh
case $round in
1)
    tool setfattr -x security.capability system/bin/run-as
    rm -r system/app/Maps
    ;;
2) mv system/app/Phone system/app/Dialer ;;
3) rm system/app/Added1/Added.apk ;;
esac
set_times $((1230768000 + 1000 * round))
END
}
