//! `extant untar` and `extant tar` beside tar(1): what goes in comes out, in every format, with all
//! that a file system knows of a file.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use extant_testkit::{Cmd, Image, LoopDevice, Need, Result, TempDir, ensure, need};

const NEEDS: &[Need] = &[Need::Root, Need::Tool("mke2fs"), Need::Tool("debugfs")];

fn extant(args: &[&str]) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args)
}

/// A directory on a file system that has all that archives have: attributes, ACLs, devices.
fn host() -> Result<TempDir> {
    TempDir::new_in(&std::env::temp_dir(), "host")
}

fn at(disk: &Image, path: &str) -> String {
    format!("{}:{path}", disk.path().display())
}

fn shell(script: &str, args: &[&Path]) -> Result<String> {
    let script = format!("set -e; {script}");
    let cmd = Cmd::new("bash").args(["-o", "pipefail", "-c", &script]);
    Ok(cmd.arg(env!("CARGO_BIN_EXE_extant")).args(args).ok()?.out)
}

/// A tree with something of everything that the format `tar` calls so can say.
fn plant(top: &Path, format: &str) -> Result<()> {
    fs::create_dir_all(top.join("sub/empty"))?;
    fs::write(top.join("file"), vec![7; 100_000])?;
    fs::write(top.join("none"), "")?;
    fs::write(top.join("sub/exact"), vec![1; 1024])?;
    fs::hard_link(top.join("file"), top.join("sub/zagain"))?;
    symlink("../nowhere", top.join("sub/link"))?;
    fs::File::create(top.join("sparse"))?.set_len(5 << 20)?;
    let long = format!("sub/{}", "d".repeat(90));
    fs::create_dir(top.join(&long))?;
    // Names of 100 bytes and more need what each format has for them.
    let len = if format == "v7" { 3 } else { 60 };
    fs::write(top.join(&long).join("f".repeat(len)), "deep")?;
    shell(
        "cd $1; chown -h 77:88 sub/link file; chown 2000000:2000000 none
         chmod 6751 file; chmod 1500 sub/empty
         touch -d @5 file none",
        &[top],
    )?;
    if format != "v7" {
        shell(
            "cd $1; mkfifo pipe; mknod node b 259 70000; mknod char c 5 1; touch -d @1234567890 .",
            &[top],
        )?;
    }
    // Whole seconds: only pax has more.
    shell(
        "cd $1; find . ! -name file ! -name none -exec touch -h -d @1234567890 {} +",
        &[top],
    )?;
    if format == "pax" {
        shell(
            "cd $1; setfattr -n user.word -v text file
             setfattr -n trusted.bytes -v 0x0a000a3d00 file
             setfacl -m u:10:rw none; touch -d '1969-12-31 23:59:58.25 UTC' sub/exact
             chown 3000000000:7 sub/exact
             ln -s $(printf 'x%.0s' {1..150}) sub/far
             touch -h -d @7.5 sub/far; touch -d @1234567890.5 sub .",
            &[top],
        )?;
    }
    Ok(())
}

/// Everything that is known of the files of a tree.
fn listing(top: &Path, xattrs: bool) -> Result<String> {
    let mut text = shell(
        "cd $1; find . -printf '%P %y %m %U %G %n %T@ %l\\n' | sort
         find . -type f -exec md5sum {} + | sort",
        &[top],
    )?;
    text += &shell(
        "cd $1; find . -type b -exec stat -c '%n %t %T' {} + \
         -o -type c -exec stat -c '%n %t %T' {} + | sort",
        &[top],
    )?;
    if xattrs {
        text += &shell(
            "cd $1; find . ! -type l | sort | while read -r f
             do getfattr -hd -m - -e hex $f; getfacl -n $f; done 2>/dev/null",
            &[top],
        )?;
    }
    Ok(text)
}

#[test]
fn every_format_goes_in_and_comes_out() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("setfattr"), Need::Tool("setfacl")]) {
        return Ok(());
    }
    for format in ["v7", "ustar", "gnu", "pax"] {
        let host = host()?;
        let (tree, back) = (host.join("tree"), host.join("back"));
        plant(&tree, format)?;
        let disk = Image::of_mib(32).make()?;
        let place = at(&disk, "/a/b");
        extant(&["mkdir", "-p", &place]).ok()?;
        let (archive, ours) = (host.join("theirs.tar"), host.join("ours.tar"));
        let xattrs = if format == "pax" {
            "--xattrs --xattrs-include='*'"
        } else {
            ""
        };
        shell(
            &format!("tar -C $1 --format={format} --numeric-owner {xattrs} -cf $2 ."),
            &[&tree, &archive],
        )?;
        extant(&["untar", &place]).stdin(fs::read(&archive)?).ok()?;
        disk.fsck_clean()?;
        // Once more over itself, from a file: everything is replaced.
        extant(&["untar", "-f", &archive.display().to_string(), &place]).ok()?;
        disk.fsck_clean()?;
        let sparse = extant(&["stat", "--json", &at(&disk, "/a/b/sparse")])
            .ok()?
            .out;
        ensure!(sparse.contains("\"blocks\":0"), "{format}: {sparse}");

        extant(&["tar", "-f", &ours.display().to_string(), &place]).ok()?;
        fs::create_dir(&back)?;
        shell(
            "tar -C $1 --numeric-owner --xattrs --xattrs-include='*' -xpf $2",
            &[&back, &ours],
        )?;
        let (a, b) = (
            listing(&tree, format == "pax")?,
            listing(&back, format == "pax")?,
        );
        ensure!(a == b, "{format}: {a}\n{b}");
        ensure!(
            fs::metadata(back.join("file"))?.ino() == fs::metadata(back.join("sub/zagain"))?.ino(),
            "{format}: the hard link became two files"
        );
        // The same tree gives the same bytes, to a pipe too, and from what it was unpacked to.
        shell("$0 tar $1 | cmp - $2", &[Path::new(&place), &ours])?;
        let other = Image::of_mib(32).make()?;
        let place = at(&other, "/");
        // Before, as it changes the time of the directory.
        extant(&["rm", "-r", &at(&other, "/lost+found")]).ok()?;
        shell("$0 untar $1 < $2", &[Path::new(&place), &ours])?;
        shell("$0 tar $1 | cmp - $2", &[Path::new(&place), &ours])?;
        other.fsck_clean()?;
    }
    Ok(())
}

#[test]
fn what_is_refused_says_why_and_leaves_the_rest() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = host()?;
    let disk = Image::of_mib(32).make()?;
    fs::create_dir(host.join("in"))?;
    fs::write(host.join("in/f"), vec![7; 50_000])?;
    shell(
        "cd $1; tar -cf good.tar in/f; gzip -k good.tar
         head -c 20000 good.tar > short.tar; : > empty.tar
         head -c 4096 /dev/urandom > noise.tar; printf f > in/after
         tar -P --transform 's,in/f,../out,' -cf up.tar in/f in/after",
        &[host.path()],
    )?;
    let place = at(&disk, "/");
    for (name, message, goes_on) in [
        (
            "good.tar.gz",
            "compressed: zcat it into extant untar",
            false,
        ),
        ("short.tar", "the archive ends in the middle of it", false),
        ("empty.tar", "nothing in it: not an archive", false),
        (
            "noise.tar",
            "not an archive that can be read: no header of an archive",
            false,
        ),
        ("up.tar", "a name with \"..\" in it", true),
        ("missing.tar", "No such file or directory", false),
    ] {
        let archive = host.join(name).display().to_string();
        let o = extant(&["untar", "-f", &archive, &place]).run()?;
        ensure!(
            o.code == Some(1) && o.err.contains(message),
            "{name}: {}",
            o.describe()
        );
        let after = extant(&["rm", &at(&disk, "/in/after")]).run()?;
        ensure!(
            (after.code == Some(0)) == goes_on,
            "{name}: {}",
            after.describe()
        );
    }
    let o = extant(&["untar", &at(&disk, "/in/f")]).stdin("x").run()?;
    ensure!(
        o.err.trim_end().ends_with("Not a directory"),
        "{}",
        o.describe()
    );
    disk.fsck_clean()
}

/// An archive of one empty member, whose header is changed before its checksum is made.
const FORGE: &str = r#"forge() { python3 - "$@" <<'END'
import sys
out, name, kind, link, major = sys.argv[1:6]
h = bytearray(512)
def put(at, text):
    h[at:at + len(text)] = text.encode()
put(0, name); put(100, "0000644\0"); put(108, "0000000\0"); put(116, "0000000\0")
put(124, "00000000000\0")
put(136, "00000000000\0"); put(148, " " * 8); put(156, kind)
put(157, link); put(257, "ustar\x0000"); put(329, major); put(337, "0000000\0")
put(148, "%06o\0 " % sum(h))
open(out, "wb").write(bytes(h) + bytes(1024))
END
}"#;

#[test]
fn nothing_is_removed_for_what_cannot_be_made() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("python3")]) {
        return Ok(());
    }
    let host = host()?;
    let disk = Image::of_mib(32).make()?;
    let place = at(&disk, "/");
    shell(
        &format!(
            "{FORGE}; cd $1; forge label.tar keep V '' 0; forge other.tar keep M '' 0
             forge node.tar keep 3 '' 0010000
             forge link.tar keep 1 nowhere 0; forge alias.tar e/f 1 d/f 0
             mkdir d; echo here > keep; echo here > d/f; ln -s d e; tar -cf first.tar keep d e
             $0 untar -f first.tar $2"
        ),
        &[host.path(), Path::new(&place)],
    )?;
    for (name, code) in [
        ("label.tar", 0),
        ("other.tar", 1),
        ("node.tar", 1),
        ("link.tar", 1),
        ("alias.tar", 0),
    ] {
        let archive = host.join(name).display().to_string();
        let o = extant(&["untar", "-f", &archive, &place]).run()?;
        ensure!(o.code == Some(code), "{name}: {}", o.describe());
        for file in ["/keep", "/d/f"] {
            let o = extant(&["cat", &at(&disk, file)]).run()?;
            ensure!(o.out == "here\n", "{name}: {}", o.describe());
        }
    }
    disk.fsck_clean()
}

#[test]
fn no_access_is_inherited_and_a_link_to_a_directory_stays_one() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("setfacl"), Need::Tool("setfattr")]) {
        return Ok(());
    }
    let host = host()?;
    let disk = Image::of_mib(32).make()?;
    let place = at(&disk, "/");
    shell(
        "cd $1; mkdir -p one/usr/lib two/lib three/ad/sub; ln -s usr/lib one/lib
         setfattr -n user.word -v text two/lib; chmod 2711 two/lib; touch -d @5 two/lib
         echo > three/ad/f; chmod 660 three/ad/f; setfacl -d -m u:10:rwx three/ad
         x='--xattrs --xattrs-include=*'
         for d in one two three; do tar -C $d $x --format=pax -cf - . | $0 untar $2; done
         $0 tar $2 > all.tar; mkdir back; tar -C back $x -xpf all.tar
         test -L back/lib; [[ $(stat -c '%a %Y' back/usr/lib) = '2711 5' ]]
         getfattr -n user.word back/usr/lib
         getfattr -n system.posix_acl_default back/ad
         if getfattr -n system.posix_acl_access back/ad/f; then exit 1; fi
         if getfattr -n system.posix_acl_default back/ad/sub; then exit 1; fi",
        &[host.path(), Path::new(&place)],
    )?;
    disk.fsck_clean()
}

#[test]
fn what_is_cut_short_does_not_pass() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = host()?;
    let disk = Image::of_mib(32).make()?;
    let place = at(&disk, "/");
    fs::write(host.join("f"), vec![7; 4 << 20])?;
    let said = shell(
        "cd $1; tar -b 1 -cf f.tar f; head -c -1024 f.tar > cut.tar
         $0 untar -f f.tar $2 2>&1; echo; $0 untar -f cut.tar $2 2>&1",
        &[host.path(), Path::new(&place)],
    )?;
    ensure!(
        said.matches("no mark at its end").count() == 1,
        "an end without a mark: {said}"
    );
    // Much more than a pipe holds.
    let said = shell(
        "cd $1; { $0 tar $2 2> said || echo ended with $? >> said; } | head -c 10 > /dev/null
         cat said",
        &[host.path(), Path::new(&place)],
    )?;
    ensure!(
        said.contains("standard output: Broken pipe") && said.contains("ended with 1"),
        "a reader that goes away: {said}"
    );
    Ok(())
}

#[test]
fn names_too_long_are_not_echoed() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("python3")]) {
        return Ok(());
    }
    let host = host()?;
    let disk = Image::of_mib(32).make()?;
    let place = at(&disk, "/");
    let said = shell(
        "cd $1; echo > next; python3 -c 'import tarfile
a = tarfile.open(\"long.tar\", \"w\", format=tarfile.PAX_FORMAT)
a.addfile(tarfile.TarInfo(\"x/\" * 50000)); a.add(\"next\"); a.close()'
         $0 untar -f long.tar $2 2>&1 || $0 cat $2next",
        &[host.path(), Path::new(&place)],
    )?;
    ensure!(
        said.contains("more than 4095 bytes") && said.len() < 1000,
        "{} bytes said",
        said.len()
    );
    Ok(())
}

#[test]
fn the_image_is_no_place_for_its_archive() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Image::of_mib(32).make()?;
    let image = disk.path().display().to_string();
    let o = extant(&["tar", "-f", &image, &at(&disk, "/")]).run()?;
    ensure!(
        o.code == Some(1) && o.err.contains("the image itself"),
        "{}",
        o.describe()
    );
    disk.fsck_clean()
}

#[test]
fn an_archive_gets_its_name_when_it_is_complete() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Loop]) {
        return Ok(());
    }
    let host = host()?;
    let disk = Image::of_mib(16).make()?;
    extant(&["cp", "-", &at(&disk, "/file")])
        .stdin(vec![7; 1 << 20])
        .ok()?;
    let (image, out) = (disk.path().to_owned(), host.join("out.tar"));
    fs::write(&out, "old")?;
    fs::set_permissions(&out, fs::Permissions::from_mode(0o640))?;
    // The output ends early: what was there stays, and nothing else does.
    let limited = shell(
        "trap '' XFSZ; ulimit -f 100; $0 export $1 $2 2>&1 || echo $?",
        &[&image, &out],
    )?;
    ensure!(limited.ends_with("1\n"), "{limited}");
    let names = || -> Result<usize> { Ok(fs::read_dir(host.path())?.count()) };
    ensure!(fs::read(&out)? == b"old" && names()? == 1, "{limited}");
    shell("$0 export $1 $2", &[&image, &out])?;
    let found = fs::metadata(&out)?;
    ensure!(
        found.len() > 1 << 20 && found.mode() & 0o7777 == 0o640,
        "{found:?}"
    );
    // A block device keeps what it has; a device that is none takes the archive.
    let backing = host.join("backing");
    fs::write(&backing, vec![3; 4 << 20])?;
    let device = LoopDevice::over(&backing, 512)?;
    let said = shell("$0 export $1 $2 2>&1 || echo $?", &[&image, device.path()])?;
    ensure!(said.contains("a block device"), "{said}");
    drop(device);
    ensure!(fs::read(&backing)? == vec![3; 4 << 20], "it was written");
    shell("$0 export $1 /dev/null", &[&image])?;
    Ok(())
}

#[test]
fn export_is_tar_with_the_archive_as_an_operand() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = host()?;
    let disk = Image::of_mib(16).make()?;
    extant(&["mkdir", &at(&disk, "/d")]).ok()?;
    extant(&["cp", "-", &at(&disk, "/d/file")])
        .stdin(b"bytes")
        .ok()?;
    let image = disk.path().display().to_string();
    let file = host.join("out.tar");
    for (place, whole) in [(at(&disk, "/d"), false), (image, true)] {
        let directory = if whole { at(&disk, "/") } else { place.clone() };
        let right = extant(&["tar", &directory]).ok()?.out;
        extant(&["export", &place, &file.display().to_string()]).ok()?;
        ensure!(fs::read(&file)? == right.as_bytes(), "{place} to a file");
        let piped = extant(&["export", &place, "-"]).ok()?.out;
        ensure!(piped == right && !right.is_empty(), "{place} to a pipe");
    }
    let o = extant(&["export", &at(&disk, "/d/none"), "-"]).run()?;
    let named = o.err.starts_with("extant: export: ");
    ensure!(o.code == Some(1) && named, "{}", o.describe());
    Ok(())
}
