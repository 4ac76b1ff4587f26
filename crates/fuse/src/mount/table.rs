//! The kernel's tables of mounts, `/proc/PID/mountinfo`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mounted file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountEntry {
    /// Its number, and that of the mount that it is mounted on. A later mount may get it.
    pub(super) id: u32,
    pub(super) parent: u32,
    /// Where it is mounted.
    pub dir: PathBuf,
    /// Device number, major and minor. Mounts of the same file system share it; once the last of
    /// them is gone, the kernel gives it to another one.
    pub device: (u32, u32),
    /// Its flags as words, such as `rw,nosuid`.
    pub flags: String,
    /// Its type, such as `fuse.extant`.
    pub kind: String,
    /// What is mounted: for us the image, unless `fsname=` says otherwise.
    pub source: PathBuf,
    /// The user that mounted it, for FUSE.
    pub user: Option<u32>,
    /// The options of its file system as words, such as `rw,user_id=0`.
    pub options: String,
}

impl MountEntry {
    /// The topmost mount at exactly `dir`, which must be canonical.
    ///
    /// # Errors
    /// Those of reading the table.
    pub fn find(dir: &Path) -> io::Result<Option<MountEntry>> {
        Ok(read("self")?.into_iter().rfind(|entry| entry.dir == dir))
    }

    /// The mounts with this device number.
    ///
    /// # Errors
    /// Those of reading the table.
    pub fn of_device(device: (u32, u32)) -> io::Result<Vec<MountEntry>> {
        Ok(having(device, read("self")?))
    }

    /// The mounts with this device number in the mount namespace of process `pid`.
    ///
    /// # Errors
    /// Those of reading its table.
    pub fn of_process(pid: u32, device: (u32, u32)) -> io::Result<Vec<MountEntry>> {
        Ok(having(device, read(&pid.to_string())?))
    }
}

fn having(device: (u32, u32), mut entries: Vec<MountEntry>) -> Vec<MountEntry> {
    entries.retain(|entry| entry.device == device);
    entries
}

/// The table of a process, by its name in `/proc`.
pub(super) fn read(process: &str) -> io::Result<Vec<MountEntry>> {
    let table = fs::read(format!("/proc/{process}/mountinfo"))?;
    let lines = table.split(|&b| b == b'\n');
    Ok(lines.filter_map(parse).collect())
}

/// Fields: id, parent, device, root, mount point, options, optional ones, `-`, type, source, super
/// options.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&b| b == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let (id, parent) = (text()?.parse().ok()?, text()?.parse().ok()?);
    let (major, minor) = text()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let dir = fields.nth(1)?;
    let flags = String::from_utf8_lossy(fields.next()?).into_owned();
    let mut rest = fields.skip_while(|field| field != b"-").skip(1);
    let kind = String::from_utf8_lossy(rest.next()?).into_owned();
    let source = rest.next()?;
    let options = String::from_utf8_lossy(rest.next()?).into_owned();
    let user = options
        .split(',')
        .find_map(|word| word.strip_prefix("user_id=")?.parse().ok());
    Some(MountEntry {
        id,
        parent,
        dir: path(dir),
        device,
        flags,
        kind,
        source: path(source),
        user,
        options,
    })
}

/// Undoes the octal escapes of blanks and backslashes.
fn path(escaped: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((&first, tail)) = rest.split_first() {
        let code = tail
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = tail.get(3..).unwrap_or(&[]);
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table() {
        let line = b"40 29 0:37 / /mnt/my\\040disk rw,nosuid shared:5 - fuse.extant /a\\134b \
            rw,user_id=7,group_id=0";
        let entry = parse(line).unwrap();
        assert_eq!((entry.id, entry.parent), (40, 29));
        assert_eq!(entry.dir, Path::new("/mnt/my disk"));
        assert_eq!(entry.device, (0, 37));
        assert_eq!(entry.flags, "rw,nosuid");
        assert_eq!(entry.kind, "fuse.extant");
        assert_eq!(entry.source, Path::new("/a\\b"));
        assert_eq!(entry.user, Some(7));
        assert_eq!(entry.options, "rw,user_id=7,group_id=0");
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"1 2 3"), None);
    }
}
