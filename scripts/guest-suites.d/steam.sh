# A card of a Steam Deck: games and the Windows prefixes of Proton, in directories that fold the
# case of names. Sourced by scripts/guest-suites.

# Each side makes the library once, and then they change it in turn.
steam() {
    local first second
    for first in extant linux; do
        begin_turns "steam, made by $first"
        steam_steps
        # As SteamOS formats a card.
        truncate -s 512M "$work/image"
        mke2fs -q -F -t ext4 -b 4096 -m 0 -O casefold -E nodiscard "$work/image"
        second=linux
        [ $first = extant ] || second=extant
        turn $first make
        turn $second
        turn $second "change 1"
        turn $first "change 2"
        turn $second "change 3" clear
        turn $first
    done
}

steam_steps() {
    printf '%s\n' steamapps/common steamapps/compatdata >"$work/files/folded"
    step make <<'END'
mkdir -p steamapps/common steamapps/compatdata steamapps/shadercache/220/fozpipelinesv6
fold steamapps/common
fold steamapps/compatdata
echo '"AppState" { "appid" "220" }' >steamapps/appmanifest_220.acf
lines shaders 5000 >steamapps/shadercache/220/fozpipelinesv6/steam_pipeline_cache.foz
mkfifo steamapps/.pipe

cd steamapps/common
game="Half-Life 2/HL2"
mkdir -p "$game/Materials/Textures" "$game/Cfg" "Äventyr och Öar/Données"
for number in $(seq 600); do
    echo "texture $number" >"$game/Materials/Textures/Wall_$number.DDS"
done
echo "name = player" >"$game/Cfg/Settings.INI"
lines pak01 1500000 >"$game/Pak01_Dir.VPK"
truncate -s 300M "$game/Sparse.PAK"
lines middle 10000 | dd of="$game/Sparse.PAK" bs=320000 seek=700 conv=notrunc 2>/dev/null
lines end 10 >>"$game/Sparse.PAK"
chmod 755 "$game/Pak01_Dir.VPK"
for number in $(seq 200); do
    echo "level $number" >"Äventyr och Öar/Données/Été à la Plage $number.lvl"
done
echo "hidden" >"Äventyr och Öar/Straße.TXT"
ln -s "Half-Life 2/HL2" Current

cd ../compatdata
for app in 220 400; do
    drive=$app/pfx/drive_c
    mkdir -p "$drive/windows/System32" "$drive/Program Files (x86)/Common Files" \
        "$drive/users/steamuser/My Documents" $app/pfx/dosdevices
    ln -s ../drive_c "$app/pfx/dosdevices/c:"
    ln -s / "$app/pfx/dosdevices/z:"
    ln -s "My Documents" "$drive/users/steamuser/Eigene Dateien"
    proton=/usr/share/steam/compatibilitytools.d/proton/files/lib64/wine/x86_64-windows
    for dll in kernel32 User32 d3d9 D3D11 dxgi ntdll; do
        ln -s $proton/$dll.dll "$drive/windows/System32/$dll.dll"
    done
    for number in $(seq 150); do
        echo "dll $number" >"$drive/windows/System32/Api-MS-Win-$number.DLL"
        ln "$drive/windows/System32/Api-MS-Win-$number.DLL" \
            "$drive/Program Files (x86)/Common Files/Copy of $number.dll"
    done
    for number in $(seq 20); do
        tool setfattr -n user.DOSATTRIB -v 0x20 \
            "$drive/windows/System32/Api-MS-Win-$number.DLL"
    done
    tool setfattr -n user.long -v "$(lines attribute 60)" "$drive"
    lines registry 3000 >$app/pfx/system.reg
    echo "proton 9.0" >$app/Version
done
cd ../..
chown -hR 1000:1000 steamapps
set_times 1700000000
END
    # Of round N the files whose numbers follow from it.
    step change <<'END'
cd steamapps/common
game="Half-Life 2/HL2"
textures="$game/Materials/Textures"
base=$((100 * round))
for number in $(seq $((base - 99)) $((base - 50))); do
    rm "$(spell "$textures/Wall_$number.DDS")"
done
# By a name in between: a rename to another spelling of the same name changes nothing.
for number in $(seq $((base - 49)) $((base - 30))); do
    mv "$(spell "$textures/Wall_$number.DDS")" swap
    mv swap "$(spell "$textures")/WALL_$number.dds"
done
if [ "$side" != folder ]; then
    case $side in
    linux) mv "$textures/Wall_$base.DDS" "$textures/WALL_$base.dds" ;;
    *) perl -e 'rename(shift, shift) or die $!' \
        "$textures/Wall_$base.DDS" "$textures/WALL_$base.dds" ;;
    esac
    ls "$textures" | grep -qx "Wall_$base.DDS"
fi
# As programs save a file: the name stays as it was.
echo "round = $round" >new
mv new "$(spell "$game/Cfg/Settings.INI")"
mkdir "$(spell "$game/Cfg")/Backup $round"
for number in $(seq 120); do
    echo "round $round, $number" >"$(spell "$game/Cfg/Backup $round")/Slot_$number.Sav"
done
# Large files: more at the end, other bytes in the middle, a hole filled, an end cut off.
pak=$(spell "$game/Pak01_Dir.VPK")
lines "more $round" 500000 >>"$pak"
lines "other $round" 200000 | dd of="$pak" bs=320000 seek=$((20 + 25 * round)) conv=notrunc \
    2>/dev/null
lines "patch $round" 100000 | dd of="$(spell "$game/Sparse.PAK")" bs=320000 \
    seek=$((100 * round)) conv=notrunc 2>/dev/null
truncate -s $(($(stat -c %s "$pak") - 1000001)) "$pak"

deeds=$(either "Äventyr och Öar/Données" "ÄVENTYR OCH öar/DONNÉES")
for number in $(seq $((10 * round)) $((10 * round + 5))); do
    rm "$deeds/$(either "Été à la Plage" "éTÉ À LA plage") $number.lvl"
    ln "$(either "Äventyr och Öar/Straße.TXT" "äventyr OCH öar/STRASSE.txt")" "$deeds/Länk $number"
done
mv "$(spell "Half-Life 2")" moved
mv moved "$(either "Half-Life 2" "half-life 2")"
[ "$side" = folder ] || { mv "half-life 2" moved; mv moved "Half-Life 2"; }

cd ../compatdata
system="$(spell "220/pfx/drive_c/windows/System32")"
tool setfattr -n user.DOSATTRIB -v 0x2$round "$system/$(spell "Api-MS-Win-$((20 + round)).DLL")"
tool setfattr -x user.DOSATTRIB "$system/$(spell "Api-MS-Win-$round.DLL")"
rm "$system/$(spell "Api-MS-Win-$((100 + round)).DLL")"
mkdir -p "$((500 + round))/pfx"
mv "$system/$(spell "Api-MS-Win-$((110 + round)).DLL")" "$((500 + round))/PFX $round.dll"
ln -s "../drive_c" "$((500 + round))/pfx/C:"
cd ../..
chown -hR 1000:1000 steamapps
set_times $((1700000000 + 1000 * round))
END
    step clear <<'END'
rm -r "steamapps/common/$(spell "Half-Life 2/HL2/Materials")" \
    "steamapps/compatdata/$(spell 400)" \
    "steamapps/compatdata/$(spell "220/pfx/drive_c/Program Files (x86)")"
set_times 1700009000
END
}
