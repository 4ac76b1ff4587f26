//! Advice about an image without a superblock that can be used: another one lies behind it, or it
//! holds something else.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use extant::device::{BlockDevice, FileDevice, OpenMode};
use extant::{Error, Location, find_superblock_copy, mkfs};

use crate::failure::Failure;
use crate::source;

/// The result of opening `image`, with advice if it fails for want of a superblock.
pub(crate) fn advised<T>(image: &Path, result: Result<T, Error>) -> Result<T, Failure> {
    result.map_err(|error| failure(image.display(), error, || open(image)))
}

/// The failure of opening what lies on a device at `location`, with advice.
pub(crate) fn failure(
    location: impl fmt::Display,
    error: Error,
    device: impl FnOnce() -> Option<Arc<dyn BlockDevice>>,
) -> Failure {
    let what = match advice(&error, device) {
        Some(advice) => format!("{error}; {advice}"),
        None => error.to_string(),
    };
    Failure::at(location, Failure::caused_by(error, what))
}

fn advice(error: &Error, device: impl FnOnce() -> Option<Arc<dyn BlockDevice>>) -> Option<String> {
    let other = match error {
        Error::NotExt4(_) => true,
        Error::Corrupt {
            location: Location::Superblock,
            ..
        } => false,
        _ => return None,
    };
    // By a copy it was tried already.
    if source::superblock().is_some() {
        return None;
    }
    let device = device()?;
    let copy = find_superblock_copy(&*device).map(|at| at / 1024);
    if let Some(format) = mkfs::find_other_format(&*device).ok()? {
        let what = format.what;
        let mut advice = format!("it holds {what}: {}", way(what));
        if let Some(kib) = copy {
            advice += &format!("; --superblock {kib} reads the ext4 that was there before");
        }
        return Some(advice);
    }
    if let Some(kib) = copy {
        return Some(format!(
            "--superblock {kib} reads it by a good copy, extant fix --superblock {kib} restores it"
        ));
    }
    let found = mkfs::find_signatures(&*device).ok()?;
    let first = found.first().filter(|_| other)?;
    Some(format!("it holds {}: {}", first.what, way(first.what)))
}

fn open(image: &Path) -> Option<Arc<dyn BlockDevice>> {
    match source::connect(image, OpenMode::ReadOnly).ok()? {
        Some(device) => Some(device),
        None => Some(Arc::new(FileDevice::open(image, OpenMode::ReadOnly).ok()?)),
    }
}

/// Ways to an ext4 file system inside of something else, by words that name that.
const WAYS: &[(&str, &str)] = &[
    (
        "partition table",
        "its file systems lie in partitions, so attach it (losetup --find --show -P FILE) and give \
         the device of one, as /dev/loop0p1",
    ),
    (
        "LUKS",
        "unlock it (cryptsetup open) and give the device in /dev/mapper",
    ),
    (
        "BitLocker",
        "unlock it (cryptsetup open) and give the device in /dev/mapper",
    ),
    (
        " image",
        "convert it (qemu-img convert -O raw), or serve it (qemu-nbd) and give the address",
    ),
    (
        "LVM",
        "activate its volume group (vgchange -ay) and give the device of a logical volume",
    ),
    (
        "md RAID",
        "assemble the array (mdadm --assemble) and give its device",
    ),
    (
        "dm-",
        "open it (integritysetup, veritysetup) and give the device in /dev/mapper",
    ),
    ("file system", "only ext2, ext3 and ext4 are read here"),
];

fn way(what: &str) -> &'static str {
    let found = WAYS.iter().find(|(word, _)| what.contains(word));
    found.map_or("no file system that is read here", |(_, way)| way)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_lead_to_what_they_hold() {
        for (what, word) in [
            ("a GUID partition table", "losetup"),
            ("a partition table or a boot sector", "losetup"),
            ("a LUKS volume", "cryptsetup"),
            ("a qcow2 image", "qemu-nbd"),
            ("a physical volume of LVM", "vgchange"),
            ("a member of an md RAID", "mdadm"),
            ("an xfs file system", "ext4 are read"),
            ("swap space", "no file system"),
        ] {
            assert!(way(what).contains(word), "{what}");
        }
    }
}
