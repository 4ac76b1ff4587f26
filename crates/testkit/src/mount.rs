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

    /// Its name in messages and tables.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Extant => "extant",
            Subject::Ext4 => "ext4",
            Subject::Fuse2fs => "fuse2fs",
        }
    }

    /// Whether it runs as a process that can be killed.
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
/// What the command says.
pub fn in_background(image: &Path, options: &str) -> Result<Mount> {
    Mount::by_extant_in_background(&tools::extant()?, image, options)
}
