//! Loop devices: whether Linux uses an image as a block device.
//!
//! A loop device holds no lock on its backing file, so only the list of loop devices shows the use.
//! The kernel names the file in two ways. By device and inode (`LOOP_GET_STATUS64`): that needs the
//! right to open the loop device. By its path (`/sys/block/loopN/loop/backing_file`): any process
//! may read it, but it leads nowhere if the file was renamed, deleted, or lies in another mount
//! namespace.

#![allow(unsafe_code, reason = "the status of a loop device is an ioctl")]

use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A loop device over an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopUse {
    /// The device, such as `/dev/loop0`.
    pub device: PathBuf,
    /// Linux cannot write through the device.
    pub read_only: bool,
}

/// The file or device that a loop device is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backing {
    File { device: u64, inode: u64 },
    Device(u64),
}

impl Backing {
    fn of(metadata: &Metadata) -> Backing {
        if metadata.file_type().is_block_device() {
            Backing::Device(metadata.rdev())
        } else {
            Backing::File {
                device: metadata.dev(),
                inode: metadata.ino(),
            }
        }
    }
}

/// The loop devices over the file or block device of `metadata`. If that is a loop device itself,
/// also the others over its backing file.
pub(crate) fn over(metadata: &Metadata) -> Vec<LoopUse> {
    let own = metadata
        .file_type()
        .is_block_device()
        .then(|| metadata.rdev());
    let all = attached();
    let below = all.iter().find(|one| own == Some(one.number));
    let below = below.and_then(|one| one.backing);
    let wanted = [Some(Backing::of(metadata)), below];
    all.into_iter()
        .filter(|one| own != Some(one.number))
        .filter(|one| one.backing.is_some() && wanted.contains(&one.backing))
        .map(|one| LoopUse {
            device: one.device,
            read_only: one.read_only,
        })
        .collect()
}

struct Attached {
    device: PathBuf,
    number: u64,
    read_only: bool,
    backing: Option<Backing>,
}

/// All loop devices that have a backing file. None if there is no sysfs.
fn attached() -> Vec<Attached> {
    let Ok(entries) = std::fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter(|name| name.starts_with("loop"))
        .filter_map(|name| one(&name))
        .collect()
}

fn one(name: &str) -> Option<Attached> {
    let sys = Path::new("/sys/block").join(name);
    let path = std::fs::read(sys.join("loop/backing_file")).ok()?;
    // An attribute that cannot be read counts as empty: the device is gone by now.
    let word = |name: &str| std::fs::read_to_string(sys.join(name)).unwrap_or_default();
    let numbers = word("dev");
    let (major, minor) = numbers.trim().split_once(':')?;
    let number = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    let device = Path::new("/dev").join(name);
    Some(Attached {
        backing: status(&device, number).or_else(|| named(&path)),
        device,
        number,
        read_only: word("ro").trim() == "1",
    })
}

/// The backing file that the loop device reports; `None` if it cannot be opened or asked.
fn status(device: &Path, number: u64) -> Option<Backing> {
    /// `LOOP_GET_STATUS64`.
    const STATUS: libc::c_ulong = 0x4C05;
    /// 64-bit words of `struct loop_info64`. It begins with device, inode and device number of the
    /// file.
    const WORDS: usize = 29;
    let file = File::open(device).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.file_type().is_block_device() || metadata.rdev() != number {
        return None;
    }
    let mut words = [0_u64; WORDS];
    // SAFETY: the device is a loop device, by its number; for this request it writes a `struct
    // loop_info64`, of 232 bytes, to memory that is as long.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), STATUS as _, words.as_mut_ptr()) };
    match (done, words) {
        (0, [_, _, rdev, ..]) if rdev != 0 => Some(Backing::Device(rdev)),
        (0, [device, inode, ..]) => Some(Backing::File { device, inode }),
        _ => None,
    }
}

/// The file at the path that sysfs shows, which ends with a line feed.
fn named(path: &[u8]) -> Option<Backing> {
    use std::os::unix::ffi::OsStrExt;
    let path = path.strip_suffix(b"\n").unwrap_or(path);
    let metadata = std::fs::metadata(Path::new(std::ffi::OsStr::from_bytes(path))).ok()?;
    Some(Backing::of(&metadata))
}
