//! Holes, ACLs and full images: what `extant tar` and `extant untar` owe to tar(1) beyond plain
//! files.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use extant_testkit::{Cmd, Image, Need, Result, TempDir, ensure, need};

const NEEDS: &[Need] = &[Need::Root, Need::Tool("mke2fs"), Need::Tool("debugfs")];
const MIB: u64 = 1 << 20;

fn extant(args: &[&str]) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args)
}

/// A directory on a file system that has holes and ACLs.
fn host() -> Result<TempDir> {
    TempDir::new_in(&std::env::temp_dir(), "host")
}

fn at(disk: &Image, path: &str) -> String {
    format!("{}:{path}", disk.path().display())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn shell(script: &str, args: &[&Path]) -> Result<String> {
    let script = format!("set -e; {script}");
    let cmd = Cmd::new("bash").args(["-o", "pipefail", "-c", &script]);
    Ok(cmd.arg(env!("CARGO_BIN_EXE_extant")).args(args).ok()?.out)
}

/// Files with holes at their beginning, between, and at their end; one with more pieces than a
/// header has room for.
fn plant(top: &Path) -> Result<()> {
    fs::create_dir(top)?;
    let make = |name: &str, size: u64, pieces: &[(u64, usize)]| -> Result<()> {
        let file = fs::File::create(top.join(name))?;
        file.set_len(size)?;
        for &(start, len) in pieces {
            file.write_all_at(&vec![b'x'; len], start)?;
        }
        Ok(())
    };
    make("none", 8 * MIB, &[])?;
    make("end", 8 * MIB, &[(MIB, 4096), (5 * MIB, 10_000)])?;
    make("data", 8 * MIB + 5, &[(0, 4096), (8 * MIB, 5)])?;
    let many: Vec<(u64, usize)> = (0..100).map(|i| (i * 65_536, 4096)).collect();
    make("many", 100 * 65_536, &many)?;
    make("whole", 5000, &[(0, 5000)])
}

/// Sums of the files, and which of them take less space than they are long.
fn holes(top: &Path) -> Result<String> {
    let mut text = shell("cd $1; md5sum *", &[top])?;
    for name in ["none", "end", "data", "many"] {
        let metadata = fs::metadata(top.join(name))?;
        text += &format!("{name} {}\n", metadata.blocks() * 512 < MIB);
    }
    Ok(text)
}

#[test]
fn holes_go_in_and_come_out() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = host()?;
    let (tree, theirs, ours) = (host.join("tree"), host.join("theirs"), host.join("ours"));
    plant(&tree)?;
    let right = holes(&tree)?;
    ensure!(right.matches("true").count() == 4, "{right}");
    for format in [
        "gnu",
        "pax --sparse-version=0.0",
        "pax --sparse-version=0.1",
        "pax --sparse-version=1.0",
        "oldgnu",
    ] {
        let disk = Image::of_mib(32).make()?;
        let place = at(&disk, "/");
        extant(&["rm", "-r", &at(&disk, "/lost+found")]).ok()?;
        shell(
            &format!("tar -C $1 -S --format={format} -cf $2 .; $0 untar -f $2 $3"),
            &[&tree, &theirs, Path::new(&place)],
        )?;
        disk.fsck_clean()?;
        // From the image with GNU tar, and with our own: the holes are there each time.
        let (back, again) = (host.join("back"), host.join("again"));
        shell(
            "rm -rf $3 $4; mkdir $3 $4; $0 tar -f $2 $1; test $(stat -c %s $2) -lt 1000000
             tar -C $3 -xf $2; $0 cp -r $1 $4",
            &[Path::new(&place), &ours, &back, &again],
        )?;
        for tree in [&back, &again] {
            let got = holes(tree)?;
            ensure!(got == right, "{format}: {right}\n{got}");
        }
        let other = Image::of_mib(32).make()?;
        let place = at(&other, "/");
        extant(&["rm", "-r", &at(&other, "/lost+found")]).ok()?;
        shell(
            "$0 untar $1 < $2; $0 tar $1 | cmp - $2",
            &[Path::new(&place), &ours],
        )?;
        other.fsck_clean()?;
    }
    Ok(())
}

#[test]
fn cat_leaves_holes_where_they_can_be() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = host()?;
    let tree = host.join("tree");
    plant(&tree)?;
    let disk = Image::of_mib(32).make()?;
    let place = at(&disk, "/");
    shell("$0 cp -r $1/. $2", &[&tree, Path::new(&place)])?;
    for name in ["none", "end", "data", "many", "whole"] {
        shell(
            &format!(
                "cd $1; $0 cat $2{name} | cmp - tree/{name}; $0 cat -S $2{name} | cmp - tree/{name}
                 $0 cat --sparse $2{name} > out; cmp out tree/{name}
                 test $(stat -c %b out) -lt 2048 -o {name} = whole
                 # Behind what is there; what is there already is written over; both of two files.
                 $0 cat -S $2{name} >> out; cat tree/{name} tree/{name} | cmp - out
                 head -c 9000000 /dev/urandom > full; $0 cat -S $2{name} 1<> full
                 cmp -n $(stat -c %s tree/{name}) full tree/{name}
                 $0 cat -S $2end $2{name} > two; cat tree/end tree/{name} | cmp - two"
            ),
            &[host.path(), Path::new(&place)],
        )?;
    }
    Ok(())
}

#[test]
fn acls_in_words_go_in_and_come_out() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("setfacl")]) {
        return Ok(());
    }
    let host = host()?;
    for names in ["", "--numeric-owner"] {
        let disk = Image::of_mib(32).make()?;
        let place = at(&disk, "/a");
        extant(&["mkdir", &place]).ok()?;
        shell(
            &format!(
                "cd $1; rm -rf tree back; mkdir -p tree/dir back
                 echo > tree/f; echo > tree/plain; chmod 640 tree/f
                 setfacl -m u:daemon:rw,u:12345:r,g:daemon:x,m::rw tree/f
                 setfacl -d -m u:daemon:rwx,g:777:r tree/dir
                 tar -C tree --acls {names} --format=pax -cf theirs.tar .; $0 untar -f theirs.tar $2
                 (cd tree; getfacl -Rnp .) > right
                 $0 tar $2 > ours.tar; tar -C back --acls -xpf ours.tar
                 (cd back; getfacl -Rnp .) | diff right -
                 rm -rf back; mkdir back
                 tar -C back --xattrs --xattrs-include='*' -xpf ours.tar
                 (cd back; getfacl -Rnp .) | diff right -
                 rm -rf back; mkdir back
                 tar -C back --acls --xattrs --xattrs-include='*' -xpf ours.tar
                 (cd back; getfacl -Rnp .) | diff right -"
            ),
            &[host.path(), Path::new(&place)],
        )?;
        disk.fsck_clean()?;
    }
    Ok(())
}

#[test]
fn an_acl_that_cannot_be_read_grants_nothing() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("python3")]) {
        return Ok(());
    }
    let host = host()?;
    let disk = Image::of_mib(32).make()?;
    let place = at(&disk, "/");
    let said = shell(
        "cd $1; python3 -c 'import tarfile
a = tarfile.open(\"a.tar\", \"w\", format=tarfile.PAX_FORMAT)
t = tarfile.TarInfo(\"f\"); t.mode = 0o674; t.mtime = 5
acl = \"user::rw-,user:no-such-user:rwx,group::---,mask::rwx,other::r--\"
t.pax_headers = {\"SCHILY.acl.access\": acl}; a.addfile(t); a.close()'
         ! $0 untar -f a.tar $2 2>&1; $0 stat --json $2/f",
        &[host.path(), Path::new(&place)],
    )?;
    ensure!(
        said.contains("/f: an ACL for user \"no-such-user\", not known here")
            && said.contains("\"mode\":\"0604\"")
            && said.contains("\"mtime\":{\"nanos\":0,\"secs\":5}"),
        "{said}"
    );
    disk.fsck_clean()
}

#[test]
fn what_tar_says_of_all_files_is_heard() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = host()?;
    let disk = Image::of_mib(32).make()?;
    let place = at(&disk, "/");
    let said = shell(
        "cd $1; echo > f; tar --format=pax --pax-option=uid=77,gid=78,comment=all -cf a.tar f
         $0 untar -f a.tar $2; $0 stat --json $2f",
        &[host.path(), Path::new(&place)],
    )?;
    ensure!(
        said.contains("\"uid\":77") && said.contains("\"gid\":78"),
        "{said}"
    );
    Ok(())
}

#[test]
fn a_full_image_ends_it_with_one_error() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = host()?;
    fs::create_dir(host.join("d"))?;
    for i in 0..3000 {
        fs::write(host.join(format!("d/{i:04}")), vec![7; 3000])?;
    }
    let archive = host.join("a.tar");
    shell(
        "cd $1; tar --sort=name --mtime=@5 -cf $2 d",
        &[host.path(), &archive],
    )?;
    // Without space, and without inodes.
    for args in ["-N 4096", "-N 256"] {
        let disk = Image::of_mib(8).args(args).make()?;
        let o = extant(&[
            "untar",
            "-f",
            &archive.display().to_string(),
            &at(&disk, "/"),
        ])
        .run()?;
        ensure!(
            o.code == Some(1)
                && o.err.lines().count() == 1
                && o.err
                    .ends_with(": No space left on device: unpacking ends here\n"),
            "{}",
            o.describe()
        );
        disk.fsck_clean()?;
        let names = extant(&["ls", &at(&disk, "/d")]).ok()?.out;
        let names: Vec<&str> = names.lines().collect();
        ensure!(names.len() > 100, "{args}: {} files", names.len());
        let last = names.last().copied().unwrap_or_default();
        ensure!(last == format!("{:04}", names.len() - 1), "{args}: {last}");
        let size = extant(&["stat", "--json", &at(&disk, &format!("/d/{last}"))]).ok()?;
        ensure!(size.out.contains("\"size\":3000"), "{}", size.describe());
        let dir = extant(&["stat", "--json", &at(&disk, "/d")]).ok()?;
        ensure!(
            dir.out.contains("\"mtime\":{\"nanos\":0,\"secs\":5}"),
            "{}",
            dir.describe()
        );
    }
    Ok(())
}

#[test]
fn directories_of_a_cut_archive_have_their_times() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = host()?;
    let disk = Image::of_mib(32).make()?;
    let place = at(&disk, "/");
    let said = shell(
        "cd $1; mkdir d; echo > d/f; touch -d @5 d; tar -b 1 -cf a.tar d
         head -c 700 a.tar > cut.tar
         ! $0 untar -f cut.tar $2 2>&1; $0 stat --json $2/d",
        &[host.path(), Path::new(&place)],
    )?;
    ensure!(
        said.contains("it ends in the middle of a header")
            && said.contains("\"mtime\":{\"nanos\":0,\"secs\":5}"),
        "{said}"
    );
    Ok(())
}

/// Gives a new file of an image without checksums so many extents of the same 1,900 blocks.
fn share(disk: &Image, name: &str, extents: u32) -> Result<()> {
    disk.debugfs_write(&format!("write /dev/null {name}"))?;
    let of = |i: u32| i * 1900;
    let mut fields = vec![(0, extents << 16 | 0xf30a), (1, 4), (2, 0)];
    for i in 0..extents {
        let field = 3 + 3 * i;
        fields.extend([(field, of(i)), (field + 1, 1900), (field + 2, 2100)]);
    }
    for (field, value) in fields {
        disk.debugfs_write(&format!("sif /{name} block[{field}] {value}"))?;
    }
    disk.debugfs_write(&format!("sif /{name} flags 0x80000"))?;
    disk.debugfs_write(&format!("sif /{name} size {}", extents * 1900 * 4096))?;
    Ok(())
}

#[test]
fn blocks_that_a_file_has_again_and_again_are_not_streamed() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let disk = Image::of_mib(16).args("-b 4096 -O ^metadata_csum").make()?;
    share(&disk, "f", 3)?;
    for (args, most) in [
        (&["cat", &at(&disk, "/f")][..], 16 * MIB),
        (&["tar", &at(&disk, "/")], 100_000),
    ] {
        let o = extant(args).run()?;
        ensure!(
            o.code == Some(1)
                && o.err
                    .contains("/f: its extents have more data than the volume has blocks")
                && (o.out.len() as u64) < most,
            "{} bytes, {}",
            o.out.len(),
            o.err
        );
    }
    // A copy and an archive get no more than the volume has, by however many files.
    for name in ["g", "h", "i"] {
        share(&disk, name, 1)?;
    }
    let host = host()?;
    let (tree, archive) = (host.join("tree"), host.join("archive"));
    for args in [
        &["cp", "-r", &at(&disk, "/"), &text(&tree)],
        &["tar", "-f", &text(&archive), &at(&disk, "/")],
    ] {
        let o = extant(args).run()?;
        let said = o
            .err
            .matches("more data than the volume has blocks")
            .count();
        ensure!(o.code == Some(1) && said >= 2, "{}", o.describe());
    }
    let copied = shell("du -s --block-size=1M $1 | cut -f 1", &[&tree])?;
    ensure!(
        copied.trim().parse::<u64>()? <= 16,
        "{copied} MiB were copied"
    );
    ensure!(
        archive.metadata().map_or(0, |found| found.len()) <= 16 * MIB,
        "an archive"
    );
    Ok(())
}

#[test]
fn a_terminal_sees_how_far_it_is() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("script")]) {
        return Ok(());
    }
    let host = host()?;
    let disk = Image::of_mib(32).make()?;
    let place = at(&disk, "/");
    fs::write(host.join("f"), vec![7; 8 << 20])?;
    // The archive is opened after the clock was started, and then takes longer than a bar waits.
    let feed = |quiet: &str| {
        shell(
            &format!(
                "cd $1; tar -cf a.tar f; rm -f pipe; mkfifo pipe
                 timeout 60 sh -c 'exec 3> pipe; head -c 1M a.tar >&3; sleep 0.5
                     tail -c +1048577 a.tar >&3' &
                 script -qec \"$0 untar {quiet} -f pipe $2\" /dev/null"
            ),
            &[host.path(), Path::new(&place)],
        )
    };
    let (seen, silent) = (feed("")?, feed("-q")?);
    ensure!(seen.contains("MiB/s") || seen.contains("KiB/s"), "{seen:?}");
    ensure!(!silent.contains("iB/s"), "{silent:?}");
    Ok(())
}

#[test]
fn a_pipe_is_read_to_its_end() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let host = host()?;
    let disk = Image::of_mib(32).make()?;
    // Tools pad archives to records, and some write more: none of them is to see a broken pipe.
    shell(
        "cd $1; echo f > f; (tar -cf - f; head -c 3000000 /dev/zero) | $0 untar $2
         test \"$($0 cat ${2}f)\" = f",
        &[host.path(), Path::new(&at(&disk, "/"))],
    )?;
    let mut zeros = vec![0; 100_000];
    zeros[99_999] = 1;
    for (bytes, what) in [
        (vec![], "nothing in it"),
        (zeros, "it begins with zeros, and is none"),
        (fs::read(disk.path())?, "it begins with zeros, and is none"),
    ] {
        fs::write(host.join("bad"), bytes)?;
        let o = extant(&["untar", "-f", &text(&host.join("bad")), &at(&disk, "/")]).run()?;
        ensure!(
            o.code == Some(1) && o.err.contains(what),
            "{}",
            o.describe()
        );
    }
    Ok(())
}

/// Feeds an archive of small files, as many as its first argument says, to a command. Prints the
/// most memory that the command had, in KiB.
const FEED: &str = r#"
import resource, subprocess, sys
count, command = int(sys.argv[1]), sys.argv[2:]
def header(name, kind, size):
    h = bytearray(512)
    def put(at, text):
        h[at:at + len(text)] = text.encode()
    put(0, name); put(100, "0000644\0"); put(108, "0000000\0"); put(116, "0000000\0")
    put(124, "%011o\0" % size)
    put(136, "00000000000\0"); put(148, " " * 8); put(156, kind)
    put(257, "ustar\x0000"); put(148, "%06o\0 " % sum(h))
    return bytes(h)
child = subprocess.Popen(command, stdin=subprocess.PIPE)
child.stdin.write(header("d/", "5", 0))
data = b"x" * 100 + bytes(412)
for i in range(count):
    child.stdin.write(header("d/file%07d" % i, "0", 100) + data)
child.stdin.write(bytes(1024)); child.stdin.close()
assert child.wait() == 0
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"#;

#[test]
fn many_small_files_take_little_memory() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("python3")]) {
        return Ok(());
    }
    let disk = Image::of_mib(512).args("-N 60000").make()?;
    let place = at(&disk, "/");
    let untar = [env!("CARGO_BIN_EXE_extant"), "untar", &place];
    let feed = Cmd::new("python3").args(["-c", FEED, "50000"]);
    let peak: u64 = feed
        .args(untar)
        .ok()?
        .out
        .trim()
        .parse()
        .unwrap_or(u64::MAX);
    ensure!(peak < 200 << 10, "{peak} KiB");
    disk.fsck_clean()?;
    let o = extant(&["ls", &at(&disk, "/d")]).ok()?;
    ensure!(o.out.lines().count() == 50_000, "{}", o.out.lines().count());
    Ok(())
}
