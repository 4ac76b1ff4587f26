//! Mounts of an image by what a suite tests, and by what it compares that with.

use std::path::Path;

use extant_host::Mount;

use crate::{Result, tools};

/// Which file system mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The `extant` command of this checkout.
    Extant,
    /// Linux's ext4 through a loop device.
    Ext4,
    /// e2fsprogs' FUSE driver.
    Fuse2fs,
}

impl Subject {
    /// The file system under test: Extant, unless `EXTANT_SUBJECT` names another (`ext4`,
    /// `fuse2fs`). That is how a suite is tried against a known good, and a known bad, one.
    pub fn under_test() -> Subject {
        match std::env::var("EXTANT_SUBJECT").as_deref() {
            Ok("ext4") => Subject::Ext4,
            Ok("fuse2fs") => Subject::Fuse2fs,
            _ => Subject::Extant,
        }
    }

    /// The other reader and writer of a volume with blocks of `block` bytes. Linux mounts those
    /// larger than a page from 6.19 on only; e2fsprogs' driver does so anywhere.
    pub fn other(block: u64) -> Subject {
        match block {
            ..=4096 => Subject::Ext4,
            _ => Subject::Fuse2fs,
        }
    }

    /// Its name in messages and tables.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Extant => "extant",
            Subject::Ext4 => "ext4",
            Subject::Fuse2fs => "fuse2fs",
        }
    }

    /// Returns whether it runs as a process that can be killed.
    pub fn has_daemon(self) -> bool {
        self != Subject::Ext4
    }

    /// Mounts `image` with comma-separated `options` (may be empty).
    pub fn mount(self, image: &Path, options: &str) -> Result<Mount> {
        match self {
            Subject::Ext4 => Mount::by_linux("ext4", image, options),
            Subject::Fuse2fs => Mount::by_fuse2fs(image, options),
            Subject::Extant => Mount::by_extant(&tools::extant()?, image, options),
        }
    }
}

/// Mounts `image` with `extant mount` without `-f`: the daemon goes to the background.
///
/// # Errors
/// Those of the command.
pub fn in_background(image: &Path, options: &str) -> Result<Mount> {
    Mount::by_extant_in_background(&tools::extant()?, image, options)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, read_dir, read_to_string};
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::{Image, Need, need};

    /// The loop device over the image, with its name below `/dev`.
    fn device_over(image: &Path) -> Option<PathBuf> {
        let image = image.canonicalize().unwrap();
        let of = |device: &PathBuf| read_to_string(device.join("loop/backing_file"));
        let mut devices = read_dir("/sys/block").unwrap().map(|d| d.unwrap().path());
        let found = devices.find(|device| of(device).is_ok_and(|of| image.ends_with(of.trim())))?;
        Some(Path::new("/dev").join(found.file_name()?))
    }

    #[test]
    fn an_unmount_waits_until_no_program_has_the_device_open() {
        if !need(&[Need::Root, Need::Loop, Need::Tool("mke2fs")]) {
            return;
        }
        let image = Image::of_mib(8).make().unwrap();
        let mount = Subject::Ext4.mount(image.path(), "").unwrap();
        let device = File::open(device_over(image.path()).unwrap()).unwrap();
        let unmount = std::thread::spawn(|| mount.unmount().unwrap());
        // One that does not wait is over by then.
        for _ in 0..200 {
            if !unmount.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert!(!unmount.is_finished() && device_over(image.path()).is_some());
        drop(device);
        unmount.join().unwrap();
        assert_eq!(device_over(image.path()), None);
    }
}
