//! The request of a copy: its two ends, and what the copies are to have of their sources.

use std::fmt;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use extant_engine::FileKind;

use super::copy_error::CopyError;
use super::sides::Attributes;
use crate::filesystem::Filesystem;

/// One end of a copy.
#[derive(Clone, Copy, Debug)]
pub enum CopyEnd<'a> {
    /// A path of the host.
    Host(&'a Path),
    /// A path of a volume.
    Volume(&'a Filesystem, &'a Path),
    /// An open file of the host, such as standard input, which is read to its end.
    Stream(&'a File),
}

/// The use of holes in a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sparse {
    /// The holes of the source are holes of the copy.
    #[default]
    Auto,
    /// Zeros become holes too.
    Always,
    /// Holes are written as zeros.
    Never,
}

/// The treatment of files that are at the target already. Directories are filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// All but directories are replaced by new files, and no symbolic link is followed. Directories
    /// keep their attributes.
    #[default]
    Replace,
    /// Regular files are written anew, links inside of a volume lead to directories, and
    /// directories get the attributes of their sources: as cp(1) does.
    Rewrite,
    /// As [`Existing::Rewrite`], but files that exist are left as they are.
    Skip,
}

/// Identifies a file of the host. All nodes of one block device have the same identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileIdentity {
    /// A file.
    File {
        /// Device number of its file system.
        device: u64,
        /// Inode number.
        inode: u64,
    },
    /// A block device, by its number in Linux's 32-bit encoding.
    Device(u32),
}

impl FileIdentity {
    /// The identity of the file that has this metadata.
    pub fn of(metadata: &Metadata) -> FileIdentity {
        if metadata.file_type().is_block_device() {
            return FileIdentity::Device(device_of(metadata.rdev()));
        }
        FileIdentity::File {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }

    pub(super) fn of_attributes(attributes: &Attributes) -> FileIdentity {
        match attributes.kind {
            FileKind::BlockDevice => FileIdentity::Device(attributes.rdev),
            _ => FileIdentity::File {
                device: attributes.id.device,
                inode: attributes.id.inode,
            },
        }
    }
}

/// A device number of the host in Linux's 32-bit encoding.
pub(super) fn device_of(device: u64) -> u32 {
    device_number(rustix::fs::major(device), rustix::fs::minor(device))
}

/// The number of a device node, in Linux's 32-bit encoding: at most 12 bits, and 20.
pub fn device_number(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// The major and the minor number of a device, of its number in Linux's 32-bit encoding.
pub fn device_numbers(rdev: u32) -> (u32, u32) {
    (
        (rdev >> 8) & 0xfff,
        (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00),
    )
}

/// Options of a copy. The default copies content, with new files' attributes.
#[derive(Clone, Default)]
pub struct CopyOptions<'a> {
    /// Copy directories and what is in them; symbolic links as links. Without, links are followed
    /// and the content of devices and pipes of the host is copied.
    pub recursive: bool,
    /// Preserve permissions and times.
    pub preserve: bool,
    /// With `preserve`: owners too, as far as the caller may set them.
    pub owners: bool,
    /// Files with several names are one file in the copy.
    pub hard_links: bool,
    /// With `preserve`: extended attributes too.
    pub xattrs: bool,
    /// In a recursive copy: device nodes, pipes and sockets are refused.
    pub no_special: bool,
    /// The treatment of what is at the target.
    pub existing: Existing,
    /// The path of the target is the caller's own: a device or pipe there is written to, and with
    /// [`Existing::Rewrite`] a symbolic link there is followed.
    pub is_named: bool,
    /// Holes.
    pub sparse: Sparse,
    /// The owner of all copies. A file that gets another owner loses set-id bits and capabilities.
    pub uid: Option<u32>,
    /// The group of all copies.
    pub gid: Option<u32>,
    /// The permissions of all copies but symbolic links, of those that each would have and whether
    /// it is a directory.
    pub permit: Option<&'a dyn Fn(u16, bool) -> u16>,
    /// Permission bits that copies do not get, without `preserve`.
    pub umask: u16,
    /// Files of the host that are neither written nor removed, as images that are open.
    pub spared: &'a [FileIdentity],
}

impl CopyOptions<'_> {
    /// Options for whole trees with everything that belongs to their files.
    pub fn whole() -> Self {
        CopyOptions {
            recursive: true,
            preserve: true,
            owners: true,
            hard_links: true,
            xattrs: true,
            ..CopyOptions::default()
        }
    }
}

impl fmt::Debug for CopyOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyOptions").finish_non_exhaustive()
    }
}

/// Follows a copy. `()` ends it at the first failure.
pub trait CopyWatch {
    /// A file is begun, anything but a directory.
    fn begin(&mut self, _from: &Path) {}

    /// Bytes of the file `from` are done, holes among them. Returns whether the copy goes on.
    fn copied(&mut self, _from: &Path, _bytes: u64) -> bool {
        true
    }

    /// An extended attribute of the copy `to` is left out, for a reason in words.
    fn left_out(&self, to: &Path, xattr: &str, why: &str) {
        tracing::warn!("{}: {xattr} is left out: {why}", to.display());
    }

    /// A file could not be copied. The copy goes on with the next one unless this fails.
    ///
    /// # Errors
    /// The same error, to end the copy.
    fn failed(&mut self, error: CopyError) -> Result<(), CopyError> {
        Err(error)
    }
}

impl CopyWatch for () {}
