//! Attributes of files and names: stat, chmod, chown, utimens, truncate.

use std::ffi::{c_char, c_int};

use extant::{Attr, Permissions, SetAttr, SetTime, Timestamp};
use libc::timespec;

use crate::arguments::{self, Out, slot};
use crate::file::{OpenFile, position};
use crate::filesystem::MountedFs;
use crate::outcome::{Failure, Result, on};

/// `extant_chown` and `extant_utimens`: a symbolic link itself is changed.
pub const EXTANT_NOFOLLOW: u32 = 1;

/// Attributes: `struct extant_stat` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "the header documents the fields")]
pub struct Stat {
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub block_size: u32,
    pub generation: u32,
    pub has_btime: u32,
    pub atime: timespec,
    pub mtime: timespec,
    pub ctime: timespec,
    pub btime: timespec,
}

impl From<&Attr> for Stat {
    fn from(attr: &Attr) -> Stat {
        Stat {
            ino: attr.ino.get().into(),
            size: attr.size,
            blocks: attr.blocks,
            mode: attr.mode().into(),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            block_size: attr.blksize,
            generation: attr.generation,
            has_btime: attr.crtime.is_some().into(),
            atime: time(attr.atime),
            mtime: time(attr.mtime),
            ctime: time(attr.ctime),
            btime: time(attr.crtime.unwrap_or_default()),
        }
    }
}

fn time(t: Timestamp) -> timespec {
    timespec {
        tv_sec: t.secs,
        tv_nsec: t.nanos.into(),
    }
}

/// A time to set, as utimensat(2) takes it.
fn set_time(t: &timespec) -> Result<Option<SetTime>> {
    match t.tv_nsec {
        libc::UTIME_OMIT => Ok(None),
        libc::UTIME_NOW => Ok(Some(SetTime::Now)),
        nanos => {
            let nanos = u32::try_from(nanos).ok().filter(|&n| n < 1_000_000_000);
            let nanos = nanos.ok_or_else(|| Failure::invalid("a time's nanoseconds"))?;
            let secs = t.tv_sec;
            Ok(Some(SetTime::At(Timestamp { secs, nanos })))
        }
    }
}

/// Access and modification time: without `times`, now.
fn changed_times(times: Option<&[timespec; 2]>) -> Result<SetAttr> {
    let (atime, mtime) = match times {
        None => (Some(SetTime::Now), Some(SetTime::Now)),
        Some([atime, mtime]) => (set_time(atime)?, set_time(mtime)?),
    };
    Ok(SetAttr {
        atime,
        mtime,
        ..SetAttr::default()
    })
}

/// Owner and group; one that is all ones stays.
fn changed_owner(uid: u32, gid: u32) -> SetAttr {
    let given = |id: u32| Some(id).filter(|&id| id != u32::MAX);
    SetAttr {
        uid: given(uid),
        gid: given(gid),
        ..SetAttr::default()
    }
}

/// Returns whether a symbolic link is followed.
fn follows(flags: u32) -> Result<bool> {
    match flags {
        0 => Ok(true),
        EXTANT_NOFOLLOW => Ok(false),
        _ => Err(Failure::invalid(format!("flags {flags:#x}: not known"))),
    }
}

/// Attributes of `path`; a symbolic link is followed.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_stat(
    fs: Option<&MountedFs>,
    path: *const c_char,
    stat: Out<'_, Stat>,
) -> c_int {
    on(fs, |fs| {
        let slot = slot(stat)?;
        // SAFETY: null or a string, by the contract of this crate.
        let path = unsafe { arguments::path(path) }?;
        slot.write(fs.fs.metadata(path)?.attr().into());
        Ok(0)
    })
}

/// Attributes of `path` itself.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_lstat(
    fs: Option<&MountedFs>,
    path: *const c_char,
    stat: Out<'_, Stat>,
) -> c_int {
    on(fs, |fs| {
        let slot = slot(stat)?;
        // SAFETY: null or a string, by the contract of this crate.
        let path = unsafe { arguments::path(path) }?;
        slot.write(fs.fs.symlink_metadata(path)?.attr().into());
        Ok(0)
    })
}

/// Attributes of an open file.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_fstat(file: Option<&OpenFile>, stat: Out<'_, Stat>) -> c_int {
    on(file, |file| {
        slot(stat)?.write(file.file.metadata()?.attr().into());
        Ok(0)
    })
}

/// Sets the permission bits of `path`; a symbolic link is followed.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_chmod(
    fs: Option<&MountedFs>,
    path: *const c_char,
    mode: u32,
) -> c_int {
    on(fs, |fs| {
        // SAFETY: null or a string, by the contract of this crate.
        let path = unsafe { arguments::path(path) }?;
        fs.fs.set_permissions(path, Permissions::from_mode(mode))?;
        Ok(0)
    })
}

/// Sets the permission bits of an open file.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_fchmod(file: Option<&OpenFile>, mode: u32) -> c_int {
    on(file, |file| {
        file.file.set_permissions(Permissions::from_mode(mode))?;
        Ok(0)
    })
}

/// Sets owner and group of `path`; an id that is all ones stays as it is.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_chown(
    fs: Option<&MountedFs>,
    path: *const c_char,
    uid: u32,
    gid: u32,
    flags: u32,
) -> c_int {
    on(fs, |fs| {
        // SAFETY: null or a string, by the contract of this crate.
        let path = unsafe { arguments::path(path) }?;
        let changes = changed_owner(uid, gid);
        fs.fs.set_attributes(path, follows(flags)?, &changes)?;
        Ok(0)
    })
}

/// As `extant_chown`, of an open file.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_fchown(file: Option<&OpenFile>, uid: u32, gid: u32) -> c_int {
    on(file, |file| {
        file.file.set_attributes(&changed_owner(uid, gid))?;
        Ok(0)
    })
}

/// Sets access and modification time of `path`, as utimensat(2).
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_utimens(
    fs: Option<&MountedFs>,
    path: *const c_char,
    times: Option<&[timespec; 2]>,
    flags: u32,
) -> c_int {
    on(fs, |fs| {
        // SAFETY: null or a string, by the contract of this crate.
        let path = unsafe { arguments::path(path) }?;
        let changes = changed_times(times)?;
        fs.fs.set_attributes(path, follows(flags)?, &changes)?;
        Ok(0)
    })
}

/// Sets access and modification time of an open file, as futimens(3).
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_futimens(
    file: Option<&OpenFile>,
    times: Option<&[timespec; 2]>,
) -> c_int {
    on(file, |file| {
        file.file.set_attributes(&changed_times(times)?)?;
        Ok(0)
    })
}

/// Cuts the file at `path`, or grows it by a hole.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_truncate(
    fs: Option<&MountedFs>,
    path: *const c_char,
    size: i64,
) -> c_int {
    on(fs, |fs| {
        // SAFETY: null or a string, by the contract of this crate.
        let path = unsafe { arguments::path(path) }?;
        let changes = SetAttr {
            size: Some(position(size)?),
            ..SetAttr::default()
        };
        fs.fs.set_attributes(path, true, &changes)?;
        Ok(0)
    })
}
