//! Runs C calls that bytes choose, with arguments that keep the contract of the interface and no
//! more: any position, flag and mode, null pointers, lengths from nothing to more than an object
//! can have, names that exist and names that do not.
//!
//! # Invariants
//! - Each result is a count, or an errno that Linux knows, never the `-EIO` of a panic.
//! - After the last call the file system unmounts, and the check finds nothing.

use std::ffi::{CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::AddAssign;
use std::path::PathBuf;
use std::ptr::{null, null_mut};

use extant_capi::attributes::*;
use extant_capi::directory::*;
use extant_capi::file::*;
use extant_capi::filesystem::*;
use extant_capi::maker::extant_mkfs;
use extant_capi::names::*;
use extant_capi::position::*;
use extant_capi::queue::*;
use extant_capi::vectored::*;
use extant_capi::xattr::*;
use libc::{iovec, timespec};

/// Bytes of the memory that calls read from and write to.
const MEMORY: usize = 1 << 16;
/// The most handles of a kind.
const MOST: usize = 4;

/// How many calls worked, and how many were refused.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) worked: u64,
    pub(crate) refused: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Tally) {
        self.worked += more.worked;
        self.refused += more.refused;
    }
}

/// A fresh image, and the file that copies of it are run on.
pub(crate) struct Image {
    fresh: Vec<u8>,
    path: PathBuf,
}

impl Image {
    /// Makes one in the directory for temporary files.
    pub(crate) fn new() -> Image {
        let path = std::env::temp_dir().join(format!("extant-calls-{}.img", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a string, and null for the options.
        assert_eq!(unsafe { extant_mkfs(name.as_ptr(), 4 << 20, None) }, 0);
        let fresh = std::fs::read(&path).unwrap();
        Image { fresh, path }
    }

    /// Runs the calls of `bytes` on a copy.
    ///
    /// # Panics
    /// A result is none that the interface promises, or the image is damaged afterwards.
    pub(crate) fn run(&self, bytes: &[u8]) -> Tally {
        std::fs::write(&self.path, &self.fresh).unwrap();
        let name = CString::new(self.path.to_str().unwrap()).unwrap();
        let mut fs = MaybeUninit::new(null_mut());
        // SAFETY: strings; the result is written on success.
        let fs = unsafe {
            let told = extant_mount(name.as_ptr(), EXTANT_WRITE, null(), Some(&mut fs));
            assert_eq!(told, 0);
            Box::from_raw(fs.assume_init())
        };
        let mut driver = Driver::new(bytes, &fs);
        while !driver.input.is_empty() {
            driver.step();
        }
        let tally = driver.finish();
        // SAFETY: the handle's last call.
        assert_eq!(unsafe { extant_unmount(Some(fs)) }, 0);
        let found = extant::check_image(&self.path, &extant::CheckOptions::default()).unwrap();
        assert!(found.findings.is_empty(), "{:?}", found.findings);
        tally
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[allow(clippy::vec_box, reason = "the boxes are the pointers that C holds")]
struct Driver<'a> {
    input: &'a [u8],
    fs: &'a MountedFs,
    files: Vec<Box<OpenFile>>,
    dirs: Vec<Box<OpenDir>>,
    queues: Vec<Box<RequestQueue>>,
    memory: Vec<u8>,
    /// Memory of reads in flight: until the queues are closed.
    lent: Vec<Box<[u8]>>,
    tally: Tally,
}

impl<'a> Driver<'a> {
    fn new(input: &'a [u8], fs: &'a MountedFs) -> Driver<'a> {
        Driver {
            input,
            fs,
            files: Vec::new(),
            dirs: Vec::new(),
            queues: Vec::new(),
            memory: (0..MEMORY).map(|i| i.to_le_bytes()[0]).collect(),
            lent: Vec::new(),
            tally: Tally::default(),
        }
    }

    fn byte(&mut self) -> u8 {
        let (&first, rest) = self.input.split_first().unwrap_or((&0, &[]));
        self.input = rest;
        first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn int(&mut self) -> c_int {
        c_int::from_le_bytes(self.word().to_le_bytes())
    }

    /// A position: mostly in the first half MiB, else anything.
    fn pos(&mut self) -> i64 {
        let word = self.word();
        match self.byte() % 8 {
            0 => i64::from(word) << 31,
            1 => -i64::from(word),
            2 => i64::MAX - i64::from(word % 5000),
            _ => i64::from(word % (1 << 19)),
        }
    }

    /// A length of `memory`, or one that no object has.
    fn len(&mut self) -> usize {
        let word = usize::try_from(self.word()).unwrap();
        match word % 16 {
            0 => usize::MAX - word,
            1 => isize::MAX.unsigned_abs() + 1,
            2 => 0,
            _ => word % (MEMORY + 1),
        }
    }

    /// A path, or none: of eight names, at the root or in one of two directories.
    fn path(&mut self) -> Option<CString> {
        let name = self.byte();
        let dir = ["", "/d0", "/d1/", "../d0"][usize::from(name >> 3) % 4];
        let path = match name {
            250 => return None,
            251 => "x".repeat(5000),
            252 => String::new(),
            253 => "/".to_owned(),
            254 => "/d0/../d1/./n3/".to_owned(),
            255 => "n".repeat(255),
            _ if name & 0x40 != 0 => format!("/d{}", name & 1),
            _ => format!("{dir}/n{}", name & 7),
        };
        Some(CString::new(path).unwrap())
    }

    fn memory(&mut self) -> *mut c_void {
        match self.byte() {
            0 => null_mut(),
            _ => self.memory.as_mut_ptr().cast(),
        }
    }

    /// One of the handles, mostly.
    fn pick(&mut self, count: usize) -> Option<usize> {
        let byte = usize::from(self.byte());
        (count > 0 && byte != 0).then(|| byte % count)
    }

    fn told(&mut self, result: impl Into<i64>) {
        let result = result.into();
        if result < 0 {
            assert!((-4095..0).contains(&result), "{result}");
            assert_ne!(result, -i64::from(libc::EIO), "a panic, or a fault");
            assert_ne!(result, -i64::from(libc::EUCLEAN), "damage");
            self.tally.refused += 1;
        } else {
            self.tally.worked += 1;
        }
    }

    fn told_size(&mut self, result: isize) {
        self.told(i64::try_from(result).unwrap());
    }

    fn step(&mut self) {
        match self.byte() % 40 {
            0..6 => self.open(),
            6..14 => self.data(),
            14..17 => self.vectors(),
            17..21 => self.file_call(),
            21..29 => self.name_call(),
            29..33 => self.attribute(),
            33..35 => self.attr_value(),
            35..37 => self.listing(),
            _ => self.queued(),
        }
    }

    fn open(&mut self) {
        let (path, mode) = (self.path(), self.word());
        let flags = match self.byte() % 8 {
            0 => self.int(),
            1 => libc::O_RDONLY,
            2 => libc::O_RDWR | libc::O_APPEND | libc::O_CREAT,
            3 => libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL,
            4 => libc::O_RDWR | libc::O_CREAT | libc::O_DIRECT,
            5 => libc::O_RDWR | libc::O_TRUNC | libc::O_SYNC,
            _ => libc::O_RDWR | libc::O_CREAT,
        };
        let mut file = MaybeUninit::new(null_mut());
        let path = path.as_ref().map_or(null(), |path| path.as_ptr());
        // SAFETY: null or a string.
        let told = unsafe { extant_open(Some(self.fs), path, flags, mode, Some(&mut file)) };
        self.told(told);
        if told == 0 {
            // SAFETY: written on success.
            self.files
                .push(unsafe { Box::from_raw(file.assume_init()) });
        }
        if self.files.len() > MOST {
            let oldest = self.files.remove(0);
            // SAFETY: the handle's last call.
            let told = unsafe { extant_close(Some(oldest)) };
            self.told(told);
        }
    }

    fn data(&mut self) {
        let (buf, len, pos, which) = (self.memory(), self.len(), self.pos(), self.byte());
        let file = self.pick(self.files.len()).map(|i| &*self.files[i]);
        // SAFETY: null, or memory of MEMORY bytes, where `len` is at most that or no length at all.
        let told = unsafe {
            match which % 5 {
                0 => extant_pread(file, buf, len, pos),
                1 => extant_read(file, buf, len),
                2 => extant_write(file, buf, len),
                _ => extant_pwrite(file, buf, len, pos),
            }
        };
        self.told_size(told);
    }

    fn vectors(&mut self) {
        let (pos, which, count) = (self.pos(), self.byte(), self.byte());
        let mut all = Vec::new();
        // Parts of the memory that do not overlap.
        for part in 0..usize::from(count % 5) {
            let iov_base = match self.byte() {
                0 => null_mut(),
                _ => self.memory[part * 10_000..].as_mut_ptr().cast(),
            };
            let word = usize::try_from(self.word()).unwrap();
            let iov_len = if word % 16 == 0 {
                usize::MAX
            } else {
                word % 10_000
            };
            all.push(iovec { iov_base, iov_len });
        }
        let count = match count {
            255 => -1,
            254 => 2000,
            _ => c_int::try_from(all.len()).unwrap(),
        };
        let file = self.pick(self.files.len()).map(|i| &*self.files[i]);
        // SAFETY: `count` vectors of memory, or a count that is refused.
        let told = unsafe {
            match which % 4 {
                0 => extant_preadv(file, all.as_ptr(), count, pos),
                1 => extant_readv(file, all.as_ptr(), count),
                2 => extant_writev(file, all.as_ptr(), count),
                _ => extant_pwritev(file, all.as_ptr(), count, pos),
            }
        };
        self.told_size(told);
    }

    fn file_call(&mut self) {
        let (pos, len, mode, which) = (self.pos(), self.pos(), self.int(), self.byte());
        let (uid, gid) = (self.word(), self.word());
        let small = mode & 0x33;
        let file = self.pick(self.files.len()).map(|i| &*self.files[i]);
        let mut stat = MaybeUninit::uninit();
        // SAFETY: a handle or null, and a place for the result.
        let told = unsafe {
            match which % 8 {
                0 => i64::from(extant_fsync(file)),
                1 => i64::from(extant_fdatasync(file)),
                2 => i64::from(extant_ftruncate(file, pos)),
                3 => i64::from(extant_fchmod(file, mode.unsigned_abs())),
                4 => i64::from(extant_fchown(file, uid, gid)),
                5 => i64::from(extant_fstat(file, Some(&mut stat))),
                6 => extant_lseek(file, pos, mode % 6),
                _ => i64::from(extant_fallocate(file, small, pos, len)),
            }
        };
        self.told(told);
    }

    fn name_call(&mut self) {
        let (first, second, which, mode) = (self.path(), self.path(), self.byte(), self.word());
        let a = first.as_ref().map_or(null(), |path| path.as_ptr());
        let b = second.as_ref().map_or(null(), |path| path.as_ptr());
        let fs = Some(self.fs);
        // SAFETY: null or strings.
        let told = unsafe {
            match which % 8 {
                0 | 1 => extant_mkdir(fs, a, mode),
                2 => extant_rmdir(fs, a),
                3 => extant_unlink(fs, a),
                4 => extant_rename(fs, a, b, if mode % 4 == 0 { mode } else { mode % 4 }),
                5 => extant_link(fs, a, b),
                6 => extant_symlink(fs, a, b),
                _ => extant_mknod(fs, a, mode & 0o177_777, mode),
            }
        };
        self.told(told);
    }

    fn attribute(&mut self) {
        let (path, which, mode, pos) = (self.path(), self.byte(), self.word(), self.pos());
        let (buf, size) = (self.memory(), self.len());
        let path = path.as_ref().map_or(null(), |path| path.as_ptr());
        let (tv_sec, tv_nsec) = (pos, i64::from(mode >> 2));
        let times = [
            timespec { tv_sec, tv_nsec },
            timespec {
                tv_sec: 5,
                tv_nsec: 6,
            },
        ];
        let times = Some(&times).filter(|_| mode % 4 > 0);
        let mut stat = MaybeUninit::uninit();
        let fs = Some(self.fs);
        // SAFETY: null or strings; the memory as in `data`.
        let told = unsafe {
            match which % 7 {
                0 => extant_stat(fs, path, Some(&mut stat)),
                1 => extant_lstat(fs, path, Some(&mut stat)),
                2 => extant_chmod(fs, path, mode),
                3 => extant_chown(fs, path, mode, mode >> 3, mode % 3),
                4 => extant_utimens(fs, path, times, mode % 3),
                5 => extant_truncate(fs, path, pos),
                _ => {
                    let told = extant_readlink(fs, path, buf.cast(), size);
                    return self.told_size(told);
                }
            }
        };
        self.told(told);
    }

    fn attr_value(&mut self) {
        let (path, which, kind, flags) = (self.path(), self.byte(), self.byte(), self.int());
        let (buf, size) = (self.memory(), self.len());
        let path = path.as_ref().map_or(null(), |path| path.as_ptr());
        let name = ["user.a", "user.b", "trusted.c", "system.none", ""][usize::from(kind % 5)];
        let name = CString::new(name).unwrap();
        let (fs, name) = (Some(self.fs), name.as_ptr());
        let size = if which & 8 == 0 { size } else { size % 5000 };
        // SAFETY: null or strings; the memory as in `data`.
        let told = unsafe {
            match which % 4 {
                0 => extant_getxattr(fs, path, name, buf, size),
                1 => extant_listxattr(fs, path, buf.cast(), size),
                2 => {
                    let told = extant_removexattr(fs, path, name);
                    return self.told(told);
                }
                _ => {
                    let told = extant_setxattr(fs, path, name, buf, size, flags % 4);
                    return self.told(told);
                }
            }
        };
        self.told_size(told);
    }

    fn listing(&mut self) {
        let (path, which) = (self.path(), self.byte());
        let path = path.as_ref().map_or(null(), |path| path.as_ptr());
        if which % 2 == 0 {
            let mut entry = MaybeUninit::uninit();
            let dir = self.pick(self.dirs.len()).map(|i| &*self.dirs[i]);
            // SAFETY: a handle or null, and a place for the entry.
            let told = unsafe { extant_readdir(dir, Some(&mut entry)) };
            return self.told(told);
        }
        let mut dir = MaybeUninit::new(null_mut());
        // SAFETY: null or a string.
        let told = unsafe { extant_opendir(Some(self.fs), path, Some(&mut dir)) };
        self.told(told);
        if told == 0 {
            // SAFETY: written on success.
            self.dirs.push(unsafe { Box::from_raw(dir.assume_init()) });
        }
        if self.dirs.len() > MOST {
            // SAFETY: the handle's last call.
            let told = unsafe { extant_closedir(Some(self.dirs.remove(0))) };
            self.told(told);
        }
    }

    fn queued(&mut self) {
        if self.queues.is_empty() {
            let (depth, mut queue) = (u32::from(self.byte()), MaybeUninit::new(null_mut()));
            // SAFETY: a place for the result.
            let told = unsafe { extant_queue_open(Some(self.fs), depth, Some(&mut queue)) };
            self.told(told);
            if told == 0 {
                // SAFETY: written on success.
                self.queues
                    .push(unsafe { Box::from_raw(queue.assume_init()) });
            }
            return;
        }
        let (which, op, pos, len) = (self.byte(), self.byte(), self.pos(), self.len());
        if which % 4 == 0 {
            let (min, max) = (u32::from(op % 3), u32::from(op % 7));
            let mut results = [MaybeUninit::<Completion>::uninit(); 8];
            let queue = self.queues.first().map(|queue| &**queue);
            // SAFETY: places for at least `max` results.
            let told = unsafe { extant_queue_wait(queue, min, results.as_mut_ptr().cast(), max) };
            return self.told(told);
        }
        let file = self.pick(self.files.len());
        let mut memory = vec![which; len.min(MEMORY)].into_boxed_slice();
        let request = Request {
            file: file.map(|i| &*self.files[i]),
            buf: memory.as_mut_ptr(),
            len,
            pos,
            tag: 0,
            op: u32::from(op % 3),
        };
        let queue = self.queues.first().map(|queue| &**queue);
        // SAFETY: the memory has `len` bytes, or the length is refused; it lives until the end.
        let told = unsafe { extant_queue_submit(queue, Some(&request)) };
        self.lent.push(memory);
        self.told(told);
    }

    /// Closes what is open.
    fn finish(mut self) -> Tally {
        for queue in std::mem::take(&mut self.queues) {
            // SAFETY: the handle's last call.
            let told = unsafe { extant_queue_close(Some(queue)) };
            self.told(told);
        }
        for file in std::mem::take(&mut self.files) {
            // SAFETY: the handle's last call.
            let told = unsafe { extant_close(Some(file)) };
            self.told(told);
        }
        for dir in std::mem::take(&mut self.dirs) {
            // SAFETY: the handle's last call.
            let told = unsafe { extant_closedir(Some(dir)) };
            self.told(told);
        }
        self.tally
    }
}
