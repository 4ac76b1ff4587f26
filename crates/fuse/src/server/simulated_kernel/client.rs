//! A process on the simulated mount: it runs operations that a seed chooses on files of its own,
//! and knows what is in them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use extant_engine::Volume;
use extant_testkit::Rng;
use zerocopy::{FromBytes, IntoBytes};

use super::kernel::{Kernel, Reply};
use super::pages::{Inode, PAGE, Page};
use crate::abi::{
    AttrOut, CreateIn, EntryOut, FallocateIn, FsyncIn, GETATTR_FH, GetattrIn, MkdirIn, OpenIn,
    OpenOut, ROOT_ID, ReadIn, ReleaseIn, SetattrIn, SetattrValid, SetxattrIn, WriteIn, op,
};

const EINTR: i32 = rustix::io::Errno::INTR.raw_os_error();
const ENOSPC: i32 = rustix::io::Errno::NOSPC.raw_os_error();
const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();
const O_RDWR: u32 = 2;
/// With less room than this a write may be let pass without a promise.
const PROMISED: u64 = 2 << 20;
/// The time after the answer to its question within which a write is promised space. The server
/// gives it 200 ms (`GRACE`) from the answer on, and this thread may have got that late.
const PROMPT: Duration = Duration::from_millis(50);
/// Pages of a file at most.
const PAGES: u64 = 192;

/// Bytes of a read: a message of the socket has no more.
const READ_AT_ONCE: usize = 64 << 10;

/// A file that the process has open.
struct File {
    id: u64,
    handle: u64,
    /// The byte of each page; others are zeros.
    content: BTreeMap<u64, u8>,
    /// In pages.
    size: u64,
    /// Failures of its write-back that the handle was told of, or that are older.
    told: u64,
}

/// See the module's header.
pub(super) struct Client<'a> {
    kernel: &'a Kernel,
    volume: &'a Volume,
    number: usize,
    rng: Rng,
    names: u64,
    byte: u8,
    files: Vec<File>,
}

impl<'a> Client<'a> {
    pub(super) fn new((kernel, volume): (&'a Kernel, &'a Volume), number: usize, rng: Rng) -> Self {
        Self {
            kernel,
            volume,
            number,
            rng,
            names: 0,
            byte: 0,
            files: Vec::new(),
        }
    }

    fn task(&self) -> u32 {
        100 + u32::try_from(self.number).unwrap()
    }

    /// A request, during which a signal may come.
    fn call(&mut self, opcode: u32, id: u64, body: &[u8]) -> Reply {
        let signal = self.rng.chance(15);
        let after = Duration::from_micros(self.rng.below(400));
        let patience = signal.then_some(after);
        self.kernel.call(opcode, (id, self.task()), body, patience)
    }

    /// A failure that a process has to expect: no space, or its own signal.
    fn expected<T>(reply: Result<T, i32>) -> Option<T> {
        match reply {
            Ok(reply) => Some(reply),
            Err(EINTR | ENOSPC) => None,
            Err(error) => panic!("error {error}"),
        }
    }

    pub(super) fn run(mut self, operations: usize) {
        for _ in 0..operations {
            if self.files.is_empty() {
                self.create();
                continue;
            }
            let at = self.rng.index(self.files.len());
            match self.rng.below(100) {
                0..=39 => self.write(at),
                40..=49 => self.truncate(at),
                50..=57 => self.allocate(at),
                58..=65 => self.write_directly(at),
                66..=73 => self.fsync(at),
                74..=79 => self.make_directory(),
                80..=85 => self.set_attribute(at),
                86..=90 if self.files.len() < 3 => self.create(),
                91..=94 => self.reopen(at),
                _ => self.compare(at),
            }
        }
        while let Some(file) = self.files.pop() {
            self.kernel.write_back(file.id);
            self.files.push(file);
            let at = self.files.len() - 1;
            self.compare(at);
            let file = self.files.pop().unwrap();
            self.release(&file);
            self.kernel.drop_inode(file.id);
        }
    }

    fn create(&mut self) {
        self.names += 1;
        let name = format!("file-{}-{}\0", self.number, self.names);
        let create = CreateIn {
            flags: O_RDWR,
            mode: 0o100_600,
            ..CreateIn::default()
        };
        let body = [create.as_bytes(), name.as_bytes()].concat();
        let Some(reply) = Self::expected(self.call(op::CREATE, ROOT_ID, &body)) else {
            return;
        };
        let (entry, rest) = EntryOut::read_from_prefix(&reply).unwrap();
        let (open, _) = OpenOut::read_from_prefix(rest).unwrap();
        self.kernel.inode(entry.nodeid, |inode| {
            inode.handle = open.fh;
            inode.size = entry.attr.size;
            inode.is_valid = entry.attr_valid > 0;
            inode.lookups += 1;
        });
        self.files.push(File {
            id: entry.nodeid,
            handle: open.fh,
            content: BTreeMap::new(),
            size: 0,
            told: 0,
        });
    }

    fn release(&mut self, file: &File) {
        let release = ReleaseIn {
            fh: file.handle,
            ..ReleaseIn::default()
        };
        let reply = self
            .kernel
            .call(op::RELEASE, (file.id, 0), release.as_bytes(), None);
        reply.unwrap();
    }

    fn reopen(&mut self, at: usize) {
        let id = self.files[at].id;
        self.kernel.write_back(id);
        let open = OpenIn {
            flags: O_RDWR,
            open_flags: 0,
        };
        let Some(reply) = Self::expected(self.call(op::OPEN, id, open.as_bytes())) else {
            return;
        };
        let (open, _) = OpenOut::read_from_prefix(&reply).unwrap();
        let file = self.files.swap_remove(at);
        self.release(&file);
        let told = self.kernel.inode(id, |inode| {
            inode.handle = open.fh;
            inode.failures
        });
        self.files.push(File {
            handle: open.fh,
            told,
            ..file
        });
    }

    /// The question before a write: the attributes are asked for, unless they are there. A handle
    /// is told here what was lost.
    fn ask(&mut self, at: usize) -> Result<(), i32> {
        let (id, fh) = (self.files[at].id, self.files[at].handle);
        let facts = |inode: &mut Inode| (inode.is_valid, inode.told, inode.failures);
        let (is_valid, told, failures) = self.kernel.inode(id, facts);
        let is_due = failures > self.files[at].told;
        if is_valid {
            assert!(!is_due, "node {id} writes on and is not told of a loss");
            return Ok(());
        }
        let getattr = GetattrIn {
            getattr_flags: GETATTR_FH,
            dummy: 0,
            fh,
        };
        let reply = self.call(op::GETATTR, id, getattr.as_bytes());
        if reply != Err(EINTR) {
            assert!(!is_due || reply.is_err(), "node {id} is not told of a loss");
            self.files[at].told = self.kernel.inode(id, |inode| inode.failures);
        }
        let reply = reply?;
        let (attr, _) = AttrOut::read_from_prefix(&reply).unwrap();
        self.kernel.inode(id, |inode| {
            inode.is_valid |= attr.attr_valid > 0 && inode.told == told;
        });
        Ok(())
    }

    fn write(&mut self, at: usize) {
        let first = self.rng.below(PAGES - 1);
        let count = 1 + self.rng.below((PAGES - first).min(64));
        let volume = self.volume;
        let before = volume.room(true);
        if Self::expected(self.ask(at)).is_none() {
            return;
        }
        let answered = Instant::now();
        let has_room = before.min(volume.room(true)) >= PROMISED;
        self.byte = self.byte.wrapping_add(1).max(1);
        let byte = self.byte;
        let file = &mut self.files[at];
        for page in first..first + count {
            let is_promised = has_room && answered.elapsed() < PROMPT;
            self.kernel.store(file.id, page, Page { byte, is_promised });
            file.content.insert(page, byte);
        }
        file.size = file.size.max(first + count);
    }

    fn truncate(&mut self, at: usize) {
        let pages = self.rng.below(PAGES);
        let id = self.files[at].id;
        // Pages that are cut off are not written back meanwhile.
        self.kernel.write_back(id);
        let setattr = SetattrIn {
            valid: (SetattrValid::SIZE | SetattrValid::FH).bits(),
            fh: self.files[at].handle,
            size: pages * PAGE,
            ..SetattrIn::default()
        };
        let reply = self.call(op::SETATTR, id, setattr.as_bytes());
        let Some(reply) = Self::expected(reply) else {
            return;
        };
        let (attr, _) = AttrOut::read_from_prefix(&reply).unwrap();
        self.kernel.inode(id, |inode| {
            inode.truncate(pages * PAGE);
            // Linux takes these whatever it was told meanwhile.
            inode.is_valid = attr.attr_valid > 0;
            inode.lost.split_off(&pages);
        });
        let file = &mut self.files[at];
        file.content.split_off(&pages);
        file.size = pages;
    }

    fn allocate(&mut self, at: usize) {
        let (first, count) = (self.rng.below(PAGES / 2), 1 + self.rng.below(PAGES / 2));
        let fallocate = FallocateIn {
            fh: self.files[at].handle,
            offset: first * PAGE,
            length: count * PAGE,
            ..FallocateIn::default()
        };
        let id = self.files[at].id;
        let reply = self.call(op::FALLOCATE, id, fallocate.as_bytes());
        if Self::expected(reply).is_none() {
            // What was allocated before it failed may have made the file longer.
            self.cut_to_known_size(at);
            return;
        }
        let file = &mut self.files[at];
        file.size = file.size.max(first + count);
        let size = file.size * PAGE;
        self.kernel
            .inode(id, |inode| inode.size = inode.size.max(size));
    }

    /// Cuts the file to what the process knows of it.
    fn cut_to_known_size(&mut self, at: usize) {
        let (id, size) = (self.files[at].id, self.files[at].size * PAGE);
        self.kernel.write_back(id);
        let setattr = SetattrIn {
            valid: SetattrValid::SIZE.bits(),
            size,
            ..SetattrIn::default()
        };
        let task = self.task();
        let reply = self
            .kernel
            .call(op::SETATTR, (id, task), setattr.as_bytes(), None);
        let (attr, _) = AttrOut::read_from_prefix(&reply.unwrap()).unwrap();
        self.kernel
            .inode(id, |inode| inode.is_valid = attr.attr_valid > 0);
    }

    fn write_directly(&mut self, at: usize) {
        let first = self.rng.below(PAGES - 8);
        let count = 1 + self.rng.below(8);
        self.byte = self.byte.wrapping_add(1).max(1);
        let (byte, id) = (self.byte, self.files[at].id);
        self.kernel.write_back(id);
        let len = count * PAGE;
        let write = WriteIn {
            fh: self.files[at].handle,
            offset: first * PAGE,
            size: u32::try_from(len).unwrap(),
            flags: O_DIRECT,
            ..WriteIn::default()
        };
        let data = vec![byte; usize::try_from(len).unwrap()];
        let body = [write.as_bytes(), &data].concat();
        let Some(reply) = Self::expected(self.call(op::WRITE, id, &body)) else {
            return;
        };
        let (done, _) = crate::abi::WriteOut::read_from_prefix(&reply).unwrap();
        let pages = u64::from(done.size) / PAGE;
        let file = &mut self.files[at];
        for page in first..first + pages {
            file.content.insert(page, byte);
        }
        file.size = file.size.max(first + pages);
        let size = file.size * PAGE;
        self.kernel.inode(id, |inode| {
            inode.size = inode.size.max(size);
            inode
                .lost
                .retain(|page| !(first..first + pages).contains(page));
        });
    }

    fn fsync(&mut self, at: usize) {
        let (id, fh) = (self.files[at].id, self.files[at].handle);
        self.kernel.write_back(id);
        let error = self.kernel.inode(id, |inode| inode.error.take());
        let fsync = FsyncIn {
            fh,
            ..FsyncIn::default()
        };
        let reply = self.call(op::FSYNC, id, fsync.as_bytes());
        Self::expected(error.map_or(reply, Err));
    }

    fn make_directory(&mut self) {
        self.names += 1;
        let mkdir = MkdirIn {
            mode: 0o755,
            umask: 0,
        };
        let name = format!("dir-{}-{}\0", self.number, self.names);
        let body = [mkdir.as_bytes(), name.as_bytes()].concat();
        if Self::expected(self.call(op::MKDIR, ROOT_ID, &body)).is_some() && self.rng.chance(70) {
            let task = self.task();
            let reply = self
                .kernel
                .call(op::RMDIR, (ROOT_ID, task), name.as_bytes(), None);
            reply.unwrap();
        }
    }

    fn set_attribute(&mut self, at: usize) {
        let value = vec![self.byte; 16 + self.rng.index(3000)];
        let setxattr = SetxattrIn {
            size: u32::try_from(value.len()).unwrap(),
            ..SetxattrIn::default()
        };
        let body = [setxattr.as_bytes(), b"user.a\0", &value].concat();
        let id = self.files[at].id;
        Self::expected(self.call(op::SETXATTR, id, &body));
    }

    /// Reads the file, past the cache, once all is written back.
    fn compare(&mut self, at: usize) {
        let (id, fh) = (self.files[at].id, self.files[at].handle);
        self.kernel.write_back(id);
        let lost = self.kernel.inode(id, |inode| inode.lost.clone());
        let size = self.files[at].size * PAGE;
        let mut bytes = Vec::new();
        for offset in (0..size).step_by(READ_AT_ONCE) {
            let read = ReadIn {
                fh,
                offset,
                size: u32::try_from(READ_AT_ONCE).unwrap(),
                ..ReadIn::default()
            };
            let task = self.task();
            let reply = self
                .kernel
                .call(op::READ, (id, task), read.as_bytes(), None);
            bytes.extend(reply.unwrap());
        }
        if !lost.is_empty() {
            bytes.resize(usize::try_from(size).unwrap(), 0);
        }
        assert_eq!(bytes.len() as u64, size, "the length of a file");
        let file = &self.files[at];
        for (page, there) in (0..).zip(bytes.chunks(usize::try_from(PAGE).unwrap())) {
            let byte = file.content.get(&page).copied().unwrap_or(0);
            let is_whole = there.iter().all(|&one| one == byte);
            assert!(
                is_whole || lost.contains(&page),
                "page {page} of node {id}: {} and not {byte}",
                there[0]
            );
        }
    }
}
