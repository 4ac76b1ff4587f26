//! Making file systems: `extant_mkfs`.

use std::ffi::{c_char, c_int};

use extant::mkfs::{self, Options};

use crate::arguments::{self, array, text};
use crate::outcome::{Failure, Result, of_call};

/// `extant_mkfs`: what is there may be overwritten.
pub const EXTANT_MKFS_FORCE: u32 = 1;

/// Options of a new file system: `struct extant_mkfs_options` of the header. Zero or null leaves a
/// choice to the library.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents the fields")]
pub struct MkfsOptions {
    pub struct_size: usize,
    pub flags: u32,
    pub block_size: u32,
    pub inode_size: u32,
    pub journal_mib: u32,
    pub bytes_per_inode: u64,
    pub inodes: u64,
    pub label: *const c_char,
    pub features: *const c_char,
    pub uuid: *const u8,
    pub root_uid: u32,
    pub root_gid: u32,
}

impl From<mkfs::Error> for Failure {
    fn from(error: mkfs::Error) -> Failure {
        Failure::new(error.errno(), error.to_string())
    }
}

/// Makes a file system on `image`: a block device, or a file, which is made if it is missing.
/// `size` 0 takes all of what is there.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mkfs(
    image: *const c_char,
    size: u64,
    options: Option<&MkfsOptions>,
) -> c_int {
    of_call(|| {
        // SAFETY: null or a string, by the contract of this crate.
        let image = unsafe { arguments::path(image) }?;
        let options = match options {
            // SAFETY: the strings of the options, by the contract of this crate.
            Some(options) => unsafe { read(options) }?,
            None => Options::default(),
        };
        mkfs::make(image, Some(size).filter(|&size| size > 0), &options)?;
        Ok(0)
    })
}

/// The options as the library takes them.
///
/// # Safety
/// The pointers of `from` are null, or lead to a string, and to 16 bytes of a UUID.
unsafe fn read(from: &MkfsOptions) -> Result<Options> {
    if from.struct_size != size_of::<MkfsOptions>() {
        let (found, known) = (from.struct_size, size_of::<MkfsOptions>());
        let why = format!("struct_size: {found}, and this library knows {known}");
        return Err(Failure::invalid(why));
    }
    if from.flags & !EXTANT_MKFS_FORCE != 0 {
        return Err(Failure::invalid(format!(
            "flags {:#x}: not known",
            from.flags
        )));
    }
    let mut options = Options {
        block_size: Some(from.block_size).filter(|&size| size > 0),
        inode_size: Some(from.inode_size).filter(|&size| size > 0),
        journal_mib: Some(from.journal_mib).filter(|&size| size > 0),
        bytes_per_inode: Some(from.bytes_per_inode).filter(|&bytes| bytes > 0),
        inodes: Some(from.inodes).filter(|&inodes| inodes > 0),
        root_owner: (from.root_uid, from.root_gid),
        force: from.flags & EXTANT_MKFS_FORCE != 0,
        ..Options::default()
    };
    if !from.label.is_null() {
        // SAFETY: a string, by the caller's promise.
        options.label = unsafe { text(from.label, "the label") }?.to_vec();
    }
    // SAFETY: null or a string, by the caller's promise.
    let features = unsafe { arguments::optional(from.features, "the features") }?;
    options.features = mkfs::parse_features(features)?;
    if !from.uuid.is_null() {
        // SAFETY: 16 bytes, by the caller's promise.
        let uuid = unsafe { array(from.uuid, 16, "the UUID") }?;
        options.uuid = uuid.try_into().ok();
    }
    Ok(options)
}
