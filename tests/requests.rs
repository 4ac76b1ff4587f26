//! How many requests calls cost that a caller waits for: the table of `docs/MOUNT.md`, on counters.
//! A request more is one round trip more for every file of a tree.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use extant_testkit::{Image, Mount, Need, Result, Subject, ensure, need, report};
use rustix::fs::{Access, XattrFlags, getxattr, lstat, setxattr, stat};

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Tool("mke2fs")];
/// Times that each call is made. What the kernel sends by itself at times is far less.
const TIMES: u64 = 40;
/// Requests that no caller waits for.
const UNAWAITED: &[&str] = &["forget", "batch_forget", "release", "interrupt"];

type Counters = BTreeMap<String, u64>;

/// The counters of a mount. Reading them is one request, GETXATTR.
fn counters(mount: &Mount) -> Result<Counters> {
    let mut value = vec![0; 64 << 10];
    let len = getxattr(mount.dir(), "extant.stats", &mut value)?;
    let text = String::from_utf8_lossy(&value[..len]).into_owned();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let numbers = lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
    Ok(numbers.collect())
}

/// Requests by kind that `work` costs, each divided by [`TIMES`].
fn cost(mount: &Mount, work: impl FnOnce() -> Result<()>) -> Result<Counters> {
    let before = counters(mount)?;
    work()?;
    let after = counters(mount)?;
    let requests = after.iter().filter_map(|(name, count)| {
        let kind = name.strip_prefix("requests_")?;
        let mut more = count - before.get(name).copied().unwrap_or(0);
        more -= u64::from(kind == "getxattr");
        let each = (more + TIMES / 2) / TIMES;
        let counts = each > 0 && !UNAWAITED.contains(&kind);
        counts.then(|| (kind.to_owned(), each))
    });
    Ok(requests.collect())
}

/// Returns whether requests by kind are those of `expected`; `?` is for one or none.
fn agrees(cost: &Counters, expected: &str) -> bool {
    let mut left = cost.clone();
    let mut words = expected.split_whitespace();
    while let (Some(kind), Some(number)) = (words.next(), words.next()) {
        let found = left.remove(kind).unwrap_or(0);
        if !(number == "?" && found <= 1 || found.to_string() == number) {
            return false;
        }
    }
    left.is_empty()
}

/// Makes a call on [`TIMES`] names of `dir` and compares what it costs with `expected`, such as
/// `lookup 1 create 1`.
fn check(
    mount: &Mount,
    what: &str,
    expected: &str,
    mut call: impl FnMut(&Path, u64) -> Result<()>,
) -> Result<()> {
    let dir = mount.join("d");
    let cost = cost(mount, || {
        (0..TIMES).try_for_each(|number| call(&dir.join(format!("f{number}")), number))
    })?;
    let agrees = agrees(&cost, expected);
    let cost: Vec<String> = cost.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
    let cost = cost.join(" ");
    ensure!(agrees, "{what}: {cost}, not {expected}");
    report(&format!("{what}: {cost}"));
    Ok(())
}

/// Reads a small file with one read(2).
fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = vec![0; 100];
    let len = File::open(path)?.read(&mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// A volume with so much space that no writer is asked for any.
fn roomy() -> Result<Image> {
    Image::of_mib(24 << 10).args("-b 4096 -N 4096").make()
}

#[test]
fn a_call_costs_no_more_than_the_kernel_makes_it_cost() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = roomy()?;
    let mount = Subject::Extant.mount(image.path(), "")?;
    fs::create_dir(mount.join("d"))?;
    check(
        &mount,
        "create",
        "create 1 getattr 1 lookup 1",
        |path, _| {
            File::create_new(path)?;
            Ok(())
        },
    )?;
    // As a file is closed the kernel forgets how many blocks it has.
    for (what, expected) in [("first", "getattr 1"), ("again", "")] {
        check(&mount, &format!("stat, {what}"), expected, |path, _| {
            stat(path)?;
            Ok(())
        })?;
    }
    // statx(2) for the time of creation, which no other request brings.
    for (what, expected) in [("first", "statx 1"), ("again", "")] {
        check(
            &mount,
            &format!("time of creation, {what}"),
            expected,
            |path, _| {
                ensure!(fs::metadata(path)?.created().is_ok(), "none");
                Ok(())
            },
        )?;
    }
    // Nothing is stored if the write has the time of the creation, by the kernel's clock.
    let written = "create 1 getattr 1 getxattr 1 lookup 1 setattr ? write 1";
    check(&mount, "create, write, close", written, |path, _| {
        let mut file = File::create_new(path.with_extension("w"))?;
        Ok(file.write_all(&[7; 100])?)
    })?;
    check(&mount, "chmod", "setattr 1", |path, _| {
        Ok(fs::set_permissions(path, Permissions::from_mode(0o640))?)
    })?;
    check(&mount, "setxattr", "setattr 1 setxattr 1", |path, _| {
        Ok(setxattr(path, "user.x", b"y", XattrFlags::empty())?)
    })?;
    let renamed = "getattr 1 lookup 1 rename 1 setattr 1";
    check(&mount, "rename", renamed, |path, _| {
        Ok(fs::rename(path, path.with_extension("r"))?)
    })?;
    check(
        &mount,
        "unlink",
        "getattr 1 setattr 1 unlink 1",
        |path, _| Ok(fs::remove_file(path.with_extension("w"))?),
    )?;
    check(&mount, "mkdir", "getattr 1 lookup 1 mkdir 1", |path, _| {
        Ok(fs::create_dir(path)?)
    })?;
    check(&mount, "rmdir", "getattr 1 rmdir 1", |path, _| {
        Ok(fs::remove_dir(path)?)
    })?;
    let linked = "getattr 1 lookup 1 symlink 1";
    check(&mount, "symlink", linked, |path, _| {
        Ok(symlink("target", path.with_extension("s"))?)
    })?;
    mount.unmount()?;
    image.fsck_clean()
}

/// A kernel that leaves permissions to the daemon asks for no attributes of a directory that it has
/// changed.
#[test]
fn a_change_is_a_request_less_where_the_daemon_checks() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = roomy()?;
    let mount = Subject::Extant.mount(image.path(), "nodefault_permissions")?;
    fs::create_dir(mount.join("d"))?;
    check(&mount, "create", "create 1 lookup 1", |path, _| {
        File::create_new(path)?;
        Ok(())
    })?;
    check(&mount, "access", "access 1", |path, _| {
        Ok(rustix::fs::access(path, Access::READ_OK)?)
    })?;
    check(
        &mount,
        "rename",
        "lookup 1 rename 1 setattr 1",
        |path, _| Ok(fs::rename(path, path.with_extension("r"))?),
    )?;
    check(&mount, "unlink", "setattr 1 unlink 1", |path, _| {
        Ok(fs::remove_file(path.with_extension("r"))?)
    })?;
    check(&mount, "mkdir", "lookup 1 mkdir 1", |path, _| {
        Ok(fs::create_dir(path)?)
    })?;
    check(
        &mount,
        "list",
        "opendir 1 readdir 1 readdirplus 1 releasedir 1",
        |path, _| {
            ensure!(fs::read_dir(path)?.next().is_none(), "entries");
            Ok(())
        },
    )?;
    check(&mount, "rmdir", "rmdir 1", |path, _| {
        Ok(fs::remove_dir(path)?)
    })?;
    check(&mount, "symlink", "lookup 1 symlink 1", |path, _| {
        Ok(symlink("target", path.with_extension("s"))?)
    })?;
    mount.unmount()?;
    image.fsck_clean()
}

#[test]
fn what_was_listed_or_read_once_is_not_asked_for_again() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = roomy()?;
    let mount = Subject::Extant.mount(image.path(), "")?;
    fs::create_dir(mount.join("d"))?;
    for number in 0..TIMES {
        fs::write(mount.join(format!("d/f{number}")), b"text")?;
        symlink("target", mount.join(format!("d/f{number}.s")))?;
    }
    mount.unmount()?;
    let mount = Subject::Extant.mount(image.path(), "")?;
    let listed = cost(&mount, || {
        for entry in fs::read_dir(mount.join("d"))? {
            lstat(entry?.path())?;
        }
        Ok(())
    })?;
    ensure!(
        listed.is_empty(),
        "a listing with attributes: {listed:?} each"
    );
    check(&mount, "readlink, first", "readlink 1", |path, _| {
        fs::read_link(path.with_extension("s"))?;
        Ok(())
    })?;
    check(&mount, "readlink, again", "", |path, _| {
        fs::read_link(path.with_extension("s"))?;
        Ok(())
    })?;
    // The file was written after it was last read, so reading it changes its time of access.
    for (what, expected) in [("first", "open 1 read 1"), ("again", "getattr 1 open 1")] {
        check(&mount, &format!("read, {what}"), expected, |path, _| {
            ensure!(read(path)? == b"text", "{}", path.display());
            Ok(())
        })?;
    }
    check(&mount, "read, later", "open 1", |path, _| {
        ensure!(read(path)? == b"text", "{}", path.display());
        Ok(())
    })?;
    check(&mount, "a missing name", "lookup 1", |path, _| {
        ensure!(!path.with_extension("x").exists(), "it is there");
        Ok(())
    })?;
    check(&mount, "a missing name, again", "", |path, _| {
        ensure!(!path.with_extension("x").exists(), "it is there");
        Ok(())
    })?;
    mount.unmount()?;
    image.fsck_clean()
}

/// The time between two notes to the kernel that a file has got blocks.
const PACE: Duration = Duration::from_millis(10);

/// A file that gets blocks with each write, as a log: the kernel asks for its attributes and its
/// privileges once after each note.
#[test]
fn a_write_and_an_fsync_are_two_requests_each() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = roomy()?;
    let mount = Subject::Extant.mount(image.path(), "")?;
    let mut file = File::create(mount.join("log"))?;
    let (before, begun) = (counters(&mount)?, Instant::now());
    for _ in 0..TIMES {
        file.write_all(&[7; 8192])?;
        file.sync_all()?;
    }
    let notes = 2 + u64::try_from(begun.elapsed().as_millis() / PACE.as_millis())?;
    let after = counters(&mount)?;
    let count = |kind: &str| {
        let name = format!("requests_{kind}");
        let of = |all: &Counters| all.get(&name).copied().unwrap_or(0);
        of(&after) - of(&before)
    };
    let [write, fsync] = ["write", "fsync"].map(count);
    ensure!(write == TIMES && fsync == TIMES, "{write} {fsync}");
    let [getattr, getxattr] = ["getattr", "getxattr"].map(count);
    // Reading the counters is a GETXATTR, and the first write asks for privileges.
    ensure!(getattr <= notes, "{getattr} GETATTR, {notes} notes at most");
    ensure!(
        getxattr <= notes + 2,
        "{getxattr} GETXATTR, {notes} notes at most"
    );
    report(&format!("{TIMES} writes with an fsync: {getattr} GETATTR"));
    drop(file);
    mount.unmount()?;
    image.fsck_clean()
}
