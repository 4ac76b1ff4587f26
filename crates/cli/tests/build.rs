//! `extant build`: the same bytes wherever and whenever it runs, and equal to its sources.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant_testkit::apart::LET_GO;
use extant_testkit::{Cmd, Image, Need, Result, TempDir, ensure, need};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Tool("e2fsck"),
    Need::Tool("setfattr"),
    Need::Tool("setfacl"),
    Need::Tool("setpriv"),
    Need::Tool("unshare"),
];

fn extant() -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_extant"))
}

/// Runs a script in `dir`; `$extant` is the command.
fn shell(dir: &Path, script: &str) -> Result<()> {
    let script = format!("set -e; {script}");
    let cmd = Cmd::new("bash").args(["-o", "pipefail", "-c", &script]);
    cmd.dir(dir)
        .env("extant", env!("CARGO_BIN_EXE_extant"))
        .env("let_go", LET_GO)
        .ok()?;
    Ok(())
}

/// A directory on a file system with attributes, below which any user can work.
fn host() -> Result<TempDir> {
    let host = TempDir::new_in(&std::env::temp_dir(), "build")?;
    shell(host.path(), "chmod 755 .; mkdir -m 777 out")?;
    Ok(host)
}

/// Something of everything that a user other than root can read, in names of several languages.
const PLANT: &str = "mkdir -p tree/sub/deep tree/many; cd tree
    head -c 3000000 /dev/urandom > large; echo text > plain; ln large sub/deep/again
    for name in A a B b Zz z ä Ä ö É é ß i I ı; do echo $name > \"many/$name\"; done
    for number in $(seq 2000); do echo $number > many/$number; done
    truncate -s 5M sparse; printf x | dd of=sparse bs=1 seek=3000000 conv=notrunc status=none
    ln -s plain link; mkfifo pipe; mknod node c 1 3; chown 5:6 plain; chown -h 7:8 link
    setfattr -n trusted.overlay.opaque -v y sub
    setfattr -n user.word -v text plain; setfacl -m u:10:rw large; setfacl -d -m g:11:rx sub
    printf '%s\\n' /sub/deep/again /plain > ../order
    echo 'plain xattr.user.more=b' > ../manifest; cd ..
    tar -C tree --format=pax --sparse --xattrs --xattrs-exclude='trusted.*' --acls \\
        --sort=name -cf tree.tar .
    chmod 644 tree.tar order manifest";

#[test]
fn two_builds_under_different_conditions_are_equal() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = host()?;
    shell(host.path(), PLANT)?;
    shell(
        host.path(),
        "umask 077; options='--threads 1 --order order --manifest manifest --free 1M'
         LC_ALL=C TZ=UTC TMPDIR=/tmp $extant build -q $options tree.tar one
         $extant build -q $options tree two",
    )?;
    // Later, elsewhere, as another user, by other threads, from a pipe, compressed.
    shell(
        host.path(),
        "mkdir -m 777 out/deep; cp -a tree out/deep/copy; sleep 1.1
         export LC_ALL=tr_TR.UTF-8 LANG=de_DE.UTF-8 TZ=Asia/Kathmandu HOME=/nowhere USER=x
         export TMPDIR=$PWD/out/deep HOSTNAME=elsewhere; umask 000
         options=\"--order $PWD/order --manifest $PWD/manifest --free 1M\"
         other='setpriv --reuid 65534 --regid 65534 --clear-groups'
         $other $extant build -q --threads 7 $options tree.tar out/three
         gzip -c tree.tar | $other $extant build -q --threads 2 $options - out/four
         cd out/deep; unshare --uts sh -c 'hostname elsewhere; exec \"$@\"' - \
         $extant build -q --threads 5 $options copy five",
    )?;
    let bytes = |name: &str| fs::read(host.join(name));
    let (one, two) = (bytes("one")?, bytes("two")?);
    for name in ["out/three", "out/four"] {
        ensure!(bytes(name)? == one, "{name} is another image");
    }
    ensure!(bytes("out/deep/five")? == two, "a copy gives another image");
    for name in ["one", "two"] {
        Image::fsck_clean_at(&host.join(name))?;
        let o = extant().args(["diff"]).dir(host.path());
        let o = o.args([name, "tree.tar"]).run()?;
        // What the manifest added.
        let right = format!("./plain: xattr user.more only in {name}\n");
        ensure!(o.code == Some(1) && o.out == right, "{}", o.describe());
    }
    Ok(())
}

#[test]
fn an_image_gets_its_name_without_proc() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = host()?;
    shell(
        host.path(),
        "mkdir tree; echo text > tree/file
         unshare --mount sh -c \"$let_go\" ' ' \
         sh -c 'mount -t tmpfs none /proc; exec \"$@\"' - \
         $extant build -q tree image
         $extant diff tree image; ls -A > names
         printf 'image\\nnames\\nout\\ntree\\n' | diff - names",
    )?;
    Image::fsck_clean_at(&host.join("image"))
}

#[test]
fn a_source_that_unpacks_to_more_than_there_is_room_for_is_refused() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("xz"), Need::Tool("zstd")]) {
        return Ok(());
    }
    let host = host()?;
    shell(
        host.path(),
        "mkdir small; for pack in gzip xz zstd; do
             head -c 50000000 /dev/zero | $pack > bomb
             unshare --mount sh -c \"$let_go\" ' ' bash -c 'mount -t tmpfs -o size=16m none small
             $extant build -q bomb small/image 2> said || echo $? > code; ls -A small > left'
             grep 'unpacks to more than 12' said; diff code <(echo 1); test ! -s left
             ! $extant build -q --limit 1M bomb image 2> said
             grep 'unpacks to more than 1048576 bytes' said; test ! -e image
         done",
    )
}

#[test]
fn a_limit_on_the_sizes_of_files_is_an_error() -> Result<()> {
    let host = host()?;
    shell(
        host.path(),
        "mkdir tree work; head -c 3000000 /dev/urandom > tree/large; $extant mkfs -q old 64M
         refused() {
             (ulimit -f 1000; cd work; code=0; \"$@\" 2> ../said || code=$?; test $code = 1)
             grep 'File too large' said; test -z \"$(ls -A work)\"
         }
         refused $extant build -q ../tree image
         refused $extant mkfs -q image 64M
         refused $extant cp ../tree/large ../old:/
         $extant build -q tree image; $extant diff tree image",
    )
}

#[test]
fn a_source_date_that_is_none_is_an_error() -> Result<()> {
    let host = host()?;
    shell(host.path(), "mkdir tree")?;
    for date in [&b""[..], b"x", b"1.5", b"\xff"] {
        let cmd = extant().args(["build", "-q", "tree", "image"]);
        let cmd = cmd.env("SOURCE_DATE_EPOCH", OsStr::from_bytes(date));
        let o = cmd.dir(host.path()).run()?;
        ensure!(
            o.code == Some(1) && o.err.contains("no number of seconds"),
            "{}",
            o.describe()
        );
        ensure!(!host.join("image").exists(), "it was made");
    }
    Ok(())
}

/// A tree that is shifted for a user namespace.
const MAP: &str = "--map-uid 0:100000:65536 --map-gid 0:100000:65536";
/// Options, what becomes of a program of user 1000 and of one of root, and whether the first has
/// its capability.
const GIVEN: [(&str, &str, &str, bool); 9] = [
    ("", "-rwsr-sr-x 1000/1000", "-rwsr-xr-x 0/0", true),
    (
        "--owner 1000:1000",
        "-rwsr-sr-x 1000/1000",
        "-rwxr-xr-x 1000/1000",
        true,
    ),
    ("--owner 0:0", "-rwxr-xr-x 0/0", "-rwsr-xr-x 0/0", false),
    ("--owner :0", "-rwxr-xr-x 1000/0", "-rwsr-xr-x 0/0", false),
    (
        MAP,
        "-rwsr-sr-x 101000/101000",
        "-rwsr-xr-x 100000/100000",
        false,
    ),
    (
        "--map-uid 1000:0",
        "-rwxr-sr-x 0/1000",
        "-rwsr-xr-x 0/0",
        false,
    ),
    (
        "--map-gid 1000:0",
        "-rwsr-xr-x 1000/0",
        "-rwsr-xr-x 0/0",
        false,
    ),
    (
        "--manifest given",
        "-rwxr-xr-x 0/1000",
        "-rwsr-xr-x 0/0",
        false,
    ),
    (
        "--manifest asked",
        "-rwsr-xr-x 0/1000",
        "-rwsr-xr-x 0/0",
        false,
    ),
];

/// Privileges of a file are not given to another owner; a map gives a tree other numbers, and
/// nothing to root.
#[test]
fn set_id_bits_and_capabilities_are_not_given_away() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = host()?;
    shell(
        host.path(),
        "mkdir tree; echo elf > tree/own; echo elf > tree/root; chown 1000:1000 tree/own
         chmod 6755 tree/own; chmod 4755 tree/root
         setfattr -n security.capability -v 0x0100000280000000000000000000000000000000 tree/own
         setfattr -n user.kept -v kept tree/own
         echo 'own uid=0' > given; echo 'own uid=0 mode=4755' > asked",
    )?;
    for (options, own, root, has_capability) in GIVEN {
        let script = "$extant build -q -F $options tree image
            $extant tar image:/ > back.tar; tar --numeric-owner -tvf back.tar > list
            grep -c SCHILY.xattr.user.kept back.tar
            grep -c SCHILY.xattr.security.capability back.tar > caps || true";
        shell(host.path(), &format!("options='{options}'; {script}"))?;
        let (list, caps) = (
            fs::read_to_string(host.join("list"))?,
            fs::read(host.join("caps"))?,
        );
        for (name, right) in [("./own", own), ("./root", root)] {
            let line = list.lines().find(|line| line.ends_with(name)).unwrap_or("");
            ensure!(
                line.starts_with(right),
                "{options}: {line} instead of {right}"
            );
        }
        ensure!(
            (caps != b"0\n") == has_capability,
            "{options}: its capability"
        );
    }
    Ok(())
}

#[test]
fn attributes_that_root_alone_sees_are_kept_on_request() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = host()?;
    shell(
        host.path(),
        "mkdir tree; setfattr -n trusted.overlay.opaque -v y tree
         $extant build -q tree one 2> said; grep 'trusted.overlay.opaque is left out' said
         $extant build -q --trusted tree two 2> said; test ! -s said
         $extant tar one:/ > one.tar; $extant tar two:/ > two.tar
         ! grep -q trusted.overlay one.tar; grep -q trusted.overlay two.tar",
    )
}

#[test]
fn options_between_sources_are_options() -> Result<()> {
    let host = host()?;
    shell(
        host.path(),
        "mkdir one two; echo 1 > one/f; echo 2 > two/g; head -c 20M /dev/zero | tr '\\0' x > one/h
         $extant build one -q --mtime 1 two --free 50% image --threads 1
         $extant build -q --mtime 1 --free 50% --threads 1 one two other; cmp image other
         $extant cat image:/f image:/g | diff - <(printf '1\\n2\\n')
         $extant info --json image > info
         ! $extant build -q image 2> said; grep 'a source and an image are needed' said",
    )?;
    let info: serde_json::Value = serde_json::from_slice(&fs::read(host.join("info"))?)?;
    let number = |key: &str| info[key].as_u64().unwrap_or(0);
    let (blocks, free) = (number("blocks"), number("free_blocks"));
    // 20 MiB of files, as much that is free, and the metadata.
    ensure!(
        free >= 5120 && blocks < 3 * 5120,
        "{free} of {blocks} blocks are free"
    );
    Ok(())
}

#[test]
fn what_cannot_be_read_is_named_by_its_path_on_the_host() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = host()?;
    shell(
        host.path(),
        "mkdir -p tree/sub; echo x > tree/sub/secret; chmod 0 tree/sub/secret
         other='setpriv --reuid 65534 --regid 65534 --clear-groups'
         ! $other $extant build -q tree out/image 2> said
         grep '^extant: build: tree/sub/secret: Permission denied' said
         $extant build -q tree out/image; ! $extant build -q tree out/image 2> said
         grep '^extant: build: out/image: holds an ext' said; grep -e --force said",
    )
}

#[test]
fn a_tree_of_an_image_is_a_source() -> Result<()> {
    let host = host()?;
    shell(
        host.path(),
        "mkdir -p tree/srv/site over; echo 1 > tree/srv/site/f; echo 2 > over/f; echo x > tree/no
         $extant build -q tree one; $extant build -q one:/srv over two
         $extant diff one:/srv/site two:/site; $extant cat two:/f | diff - over/f
         ! $extant cat two:/no 2> said
         for bad in one:/none one:/no one:/srv/site/f; do
             ! $extant build -q $bad three 2> said; grep \"$bad\\|not a directory\" said
         done; test ! -e three",
    )
}

#[test]
fn an_archive_without_its_top_is_equal_to_its_image() -> Result<()> {
    let host = host()?;
    shell(
        host.path(),
        "mkdir -p tree/sub; echo x > tree/sub/f; tar -C tree -cf tree.tar sub/f
         $extant build -q tree.tar image; $extant diff tree.tar image",
    )
}
