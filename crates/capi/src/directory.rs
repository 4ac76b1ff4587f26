//! Listings of directories: `extant_dir`.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use extant::{ReadDir, Volume};
use parking_lot::Mutex;

use crate::arguments::{self, Out, slot};
use crate::filesystem::MountedFs;
use crate::outcome::{Failure, Handle, of_call, on};

/// A listing: `extant_dir` of the header.
pub struct OpenDir {
    entries: Mutex<ReadDir>,
    volume: Volume,
}

impl Handle for OpenDir {
    fn volume(&self) -> &Volume {
        &self.volume
    }
}

/// One entry: `struct extant_dirent` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the header documents the fields")]
pub struct DirEntry {
    pub ino: u64,
    pub kind: u32,
    pub name_len: u32,
    pub name: [u8; 256],
}

/// Begins to list the directory at `path`.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_opendir(
    fs: Option<&MountedFs>,
    path: *const c_char,
    dir: Out<'_, *mut OpenDir>,
) -> c_int {
    on(fs, |fs| {
        let slot = slot(dir)?;
        // SAFETY: null or a string, by the contract of this crate.
        let path = unsafe { arguments::path(path) }?;
        let entries = Mutex::new(fs.fs.read_dir(path)?);
        let volume = fs.fs.volume().clone();
        slot.write(Box::into_raw(Box::new(OpenDir { entries, volume })));
        Ok(0)
    })
}

/// Takes the next entry: 1 if there is one, 0 at the end. `.` and `..` are left out.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_readdir(dir: Option<&OpenDir>, entry: Out<'_, DirEntry>) -> c_int {
    on(dir, |dir| {
        let slot = slot(entry)?;
        let Some(found) = dir.entries.lock().next() else {
            return Ok(0);
        };
        let found = found?;
        let name = found.file_name();
        let name = name.as_bytes();
        let mut entry = DirEntry {
            ino: found.ino().get().into(),
            // The numbers of readdir(3) are the kind's bits of a mode.
            kind: u32::from(found.file_type()?.mode_bits()) >> 12,
            name_len: 0,
            name: [0; 256],
        };
        let fitting = entry
            .name
            .get_mut(..name.len())
            .filter(|_| name.len() < 256);
        let fitting = fitting.ok_or_else(|| Failure::new(libc::EUCLEAN, "a name too long"))?;
        fitting.copy_from_slice(name);
        entry.name_len = u32::try_from(name.len()).expect("below 256, as it fitted");
        slot.write(entry);
        Ok(1)
    })
}

/// Ends a listing.
///
/// # Safety
/// As of this crate; no other call uses `dir` now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_closedir(dir: Option<Box<OpenDir>>) -> c_int {
    of_call(|| {
        drop(dir.ok_or_else(|| Failure::null("the handle"))?);
        Ok(0)
    })
}
