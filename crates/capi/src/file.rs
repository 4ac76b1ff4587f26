//! Open files: `extant_file`, and the calls that name a position or none.

use std::ffi::{c_char, c_int, c_void};

use extant::{FallocateMode, File, Volume};
use parking_lot::Mutex;

use crate::arguments::{self, Out, slot};
use crate::filesystem::MountedFs;
use crate::outcome::{Failure, Handle, Result, bytes, of_call, on};

/// Flags of open(2) that are accepted; the last two change nothing.
const OPEN_FLAGS: c_int = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_DIRECT
    | libc::O_DSYNC
    | libc::O_SYNC
    | libc::O_CLOEXEC
    | libc::O_LARGEFILE;

/// An open file: `extant_file` of the header.
pub struct OpenFile {
    pub(crate) file: File,
    /// The position of calls that name none.
    pub(crate) pos: Mutex<u64>,
    volume: Volume,
    pub(crate) appends: bool,
}

impl Handle for OpenFile {
    fn volume(&self) -> &Volume {
        &self.volume
    }
}

/// A position that C gives.
pub(crate) fn position(pos: i64) -> Result<u64> {
    u64::try_from(pos).map_err(|_| Failure::invalid(format!("position {pos}: negative")))
}

/// Opens the regular file at `path`, as open(2).
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_open(
    fs: Option<&MountedFs>,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    file: Out<'_, *mut OpenFile>,
) -> c_int {
    on(fs, |fs| {
        let slot = slot(file)?;
        // SAFETY: null or a string, by the contract of this crate.
        let path = unsafe { arguments::path(path) }?;
        let access = flags & libc::O_ACCMODE;
        let has = |flag: c_int| flags & flag == flag;
        let (reads, writes) = match access {
            libc::O_RDONLY => (true, false),
            libc::O_WRONLY => (false, true),
            libc::O_RDWR => (true, true),
            _ => return Err(Failure::invalid("open: no access mode")),
        };
        if flags & !OPEN_FLAGS != 0 {
            return Err(Failure::invalid(format!(
                "open: flags {flags:#x}: not known"
            )));
        }
        if has(libc::O_EXCL) && !has(libc::O_CREAT) {
            return Err(Failure::invalid("open: O_EXCL without O_CREAT"));
        }
        if !writes && flags & (libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND) != 0 {
            return Err(Failure::invalid(
                "open: a file that is only read is not changed",
            ));
        }
        let appends = has(libc::O_APPEND);
        let mut options = fs.fs.open_options();
        options
            .read(reads)
            .write(writes && !appends)
            .append(appends);
        options
            .create(has(libc::O_CREAT))
            .create_new(has(libc::O_EXCL))
            .sync(has(libc::O_SYNC))
            .data_sync(has(libc::O_DSYNC));
        let opened = options.direct(has(libc::O_DIRECT)).mode(mode).open(path)?;
        if has(libc::O_TRUNC) && opened.metadata()?.len() > 0 {
            opened.set_len(0)?;
        }
        slot.write(Box::into_raw(Box::new(OpenFile {
            file: opened,
            pos: Mutex::new(0),
            volume: fs.fs.volume().clone(),
            appends,
        })));
        Ok(0)
    })
}

/// Creates a file for reading and writing, or empties it.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_create(
    fs: Option<&MountedFs>,
    path: *const c_char,
    mode: u32,
    file: Out<'_, *mut OpenFile>,
) -> c_int {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
    // SAFETY: the same contract.
    unsafe { extant_open(fs, path, flags, mode, file) }
}

/// Closes a file. Nothing is made durable by it.
///
/// # Safety
/// As of this crate; no other call uses `file` now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_close(file: Option<Box<OpenFile>>) -> c_int {
    of_call(|| {
        drop(file.ok_or_else(|| Failure::null("the handle"))?);
        Ok(0)
    })
}

/// Reads from byte `pos`; less than asked for only at the end of the file.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_pread(
    file: Option<&OpenFile>,
    buf: *mut c_void,
    len: usize,
    pos: i64,
) -> isize {
    on(file, |file| {
        // SAFETY: null or `len` bytes, by the contract of this crate.
        let buf = unsafe { arguments::buffer(buf, len) }?;
        bytes(file.file.read_at(buf, position(pos)?)?)
    })
}

/// Writes at byte `pos`, or at the end of a file that was opened with `O_APPEND`.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_pwrite(
    file: Option<&OpenFile>,
    buf: *const c_void,
    len: usize,
    pos: i64,
) -> isize {
    on(file, |file| {
        // SAFETY: null or `len` bytes, by the contract of this crate.
        let data = unsafe { arguments::data(buf, len) }?;
        bytes(file.file.write_at(data, position(pos)?)?)
    })
}

/// Makes content and attributes durable.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_fsync(file: Option<&OpenFile>) -> c_int {
    on(file, |file| {
        file.file.sync_all()?;
        Ok(0)
    })
}

/// Makes content durable, and the attributes that are needed to read it back.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_fdatasync(file: Option<&OpenFile>) -> c_int {
    on(file, |file| {
        file.file.sync_data()?;
        Ok(0)
    })
}

/// Cuts the file, or grows it by a hole.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_ftruncate(file: Option<&OpenFile>, size: i64) -> c_int {
    on(file, |file| {
        file.file.set_len(position(size)?)?;
        Ok(0)
    })
}

/// Allocates, frees, zeroes or shifts a range, by the modes of fallocate(2).
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_fallocate(
    file: Option<&OpenFile>,
    mode: c_int,
    pos: i64,
    len: i64,
) -> c_int {
    on(file, |file| {
        let (pos, len) = (position(pos)?, position(len)?);
        let end = pos.checked_add(len);
        let end = end.ok_or_else(|| Failure::new(libc::EFBIG, "the end of the range"))?;
        file.file.fallocate(fallocate_mode(mode)?, pos..end)?;
        Ok(0)
    })
}

/// The mode of fallocate(2) with this number.
fn fallocate_mode(mode: c_int) -> Result<FallocateMode> {
    const PUNCH: c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const ZERO_KEEP: c_int = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    Ok(match mode {
        0 => FallocateMode::Allocate { keep_size: false },
        libc::FALLOC_FL_KEEP_SIZE => FallocateMode::Allocate { keep_size: true },
        PUNCH => FallocateMode::PunchHole,
        libc::FALLOC_FL_ZERO_RANGE => FallocateMode::ZeroRange { keep_size: false },
        ZERO_KEEP => FallocateMode::ZeroRange { keep_size: true },
        libc::FALLOC_FL_COLLAPSE_RANGE => FallocateMode::CollapseRange,
        libc::FALLOC_FL_INSERT_RANGE => FallocateMode::InsertRange,
        _ => {
            let why = format!("fallocate: mode {mode:#x}: not known");
            return Err(Failure::new(libc::EOPNOTSUPP, why));
        }
    })
}
