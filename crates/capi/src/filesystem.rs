//! Mounted file systems: `extant_fs`.

use std::ffi::{c_char, c_int};

use extant::{Filesystem, Volume};

use crate::arguments::{self, Out, slot};
use crate::outcome::{Failure, Handle, of_call, on};

/// `extant_mount`: the file system may be changed.
pub const EXTANT_WRITE: u32 = 1;

/// A mounted file system: `extant_fs` of the header.
pub struct MountedFs {
    pub(crate) fs: Filesystem,
}

impl Handle for MountedFs {
    fn volume(&self) -> &Volume {
        self.fs.volume()
    }
}

/// Totals of a file system: `struct extant_statfs` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents the fields")]
pub struct StatFs {
    pub block_size: u32,
    pub name_max: u32,
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub uuid: [u8; 16],
}

/// Mounts the image file or block device at `image`.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mount(
    image: *const c_char,
    flags: u32,
    options: *const c_char,
    fs: Out<'_, *mut MountedFs>,
) -> c_int {
    of_call(|| {
        let slot = slot(fs)?;
        if flags & !EXTANT_WRITE != 0 {
            return Err(Failure::invalid(format!("flags {flags:#x}: not known")));
        }
        // SAFETY: null or strings, by the contract of this crate.
        let (image, options) = unsafe {
            let options = arguments::optional(options, "the mount options")?;
            (arguments::path(image)?, options)
        };
        let mut how = Filesystem::options();
        how.write(flags & EXTANT_WRITE != 0).mount_options(options);
        let fs = how.open(image)?;
        slot.write(Box::into_raw(Box::new(MountedFs { fs })));
        Ok(0)
    })
}

/// Writes and flushes everything, marks the image clean and closes it. The handle is gone, whatever
/// the result.
///
/// # Safety
/// As of this crate; no other call uses `fs` now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_unmount(fs: Option<Box<MountedFs>>) -> c_int {
    of_call(|| {
        let fs = fs.ok_or_else(|| Failure::null("the handle"))?;
        fs.fs.unmount()?;
        Ok(0)
    })
}

/// Makes everything durable that was done before the call.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_sync(fs: Option<&MountedFs>) -> c_int {
    on(fs, |fs| {
        fs.fs.sync()?;
        Ok(0)
    })
}

/// Totals and limits.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_statfs(fs: Option<&MountedFs>, totals: Out<'_, StatFs>) -> c_int {
    on(fs, |fs| {
        let slot = slot(totals)?;
        let found = fs.fs.statfs()?;
        slot.write(StatFs {
            block_size: found.block_size,
            name_max: found.name_max,
            blocks: found.blocks,
            blocks_free: found.blocks_free,
            blocks_available: found.blocks_available,
            inodes: found.inodes,
            inodes_free: found.inodes_free,
            uuid: found.uuid,
        });
        Ok(0)
    })
}

#[cfg(test)]
mod tests;
