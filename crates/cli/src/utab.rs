//! mount(8)'s table of user-space mount options, `/run/mount/utab`, in which a mount names its
//! unmount helper.
//!
//! A plain `umount` goes by what statfs(2) says of a mount point, which is "fuse" for all FUSE
//! mounts, and would not find `umount.fuse.extant`. An entry here with `uhelper=` sends it there.
//! Best effort: without it, `umount` works, but does not wait until the image is closed.
//!
//! Concurrency: the table is replaced as a whole, under the lock that mount(8) takes too.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::geteuid;

const TABLE: &str = "/run/mount/utab";
const NEW: &str = "/run/mount/utab.extant";
const LOCK: &str = "/run/mount/utab.lock";

/// Enters the mount of `image` on `dir`; both canonical. Nothing without root, whose table it is.
pub(crate) fn enter(image: &Path, dir: &Path) {
    let line = format!(
        "SRC={} TARGET={} ROOT=/ OPTS=uhelper=fuse.extant\n",
        escape(image),
        escape(dir)
    );
    change(|table| without(table, dir) + &line);
}

/// Takes the mount on `dir` out again.
pub(crate) fn remove(dir: &Path) {
    if Path::new(TABLE).exists() {
        change(|table| without(table, dir));
    }
}

fn change(f: impl FnOnce(&str) -> String) {
    if !geteuid().is_root() {
        return;
    }
    if let Err(error) = replace(f) {
        tracing::debug!("{TABLE}: {error}");
    }
}

fn replace(f: impl FnOnce(&str) -> String) -> io::Result<()> {
    fs::create_dir_all("/run/mount")?;
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(LOCK)?;
    lock.lock()?;
    let old = match fs::read_to_string(TABLE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let new = f(&old);
    if new == old {
        return Ok(());
    }
    fs::write(NEW, new)?;
    fs::set_permissions(NEW, Permissions::from_mode(0o644))?;
    fs::rename(NEW, TABLE)
}

/// The table but for entries of ours for `dir`.
fn without(table: &str, dir: &Path) -> String {
    let target = format!("TARGET={}", escape(dir));
    let ours = |line: &&str| {
        line.contains("uhelper=fuse.extant") && line.split(' ').any(|field| field == target)
    };
    let kept = table.lines().filter(|line| !ours(line));
    kept.flat_map(|line| [line, "\n"]).collect()
}

/// Blanks and backslashes in octal, as in fstab.
fn escape(path: &Path) -> String {
    let mut out = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => out.extend(format!("\\{byte:03o}").into_bytes()),
            _ => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_entry_of_the_directory_goes() {
        let other = "SRC=/dev/a TARGET=/x ROOT=/ OPTS=uhelper=udisks2\n";
        let ours = "SRC=/a\\040b.img TARGET=/x ROOT=/ OPTS=uhelper=fuse.extant\n";
        let table = format!("{other}{ours}");
        assert_eq!(without(&table, Path::new("/x")), other);
        assert_eq!(without(&table, Path::new("/y")), table);
        assert_eq!(escape(Path::new("/a b.img")), "/a\\040b.img");
    }
}
