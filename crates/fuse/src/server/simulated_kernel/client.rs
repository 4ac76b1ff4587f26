//! A process on the simulated mount: it runs operations that a seed chooses on files of its own,
//! and knows what is in them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use extant_testkit::Rng;
use zerocopy::{FromBytes, IntoBytes};

use super::kernel::{Kernel, Reply};
use super::pages::{Inode, PAGE};
use super::surroundings::Surroundings;
use crate::abi::{
    AttrOut, CreateIn, EntryOut, FallocateIn, FsyncIn, GETATTR_FH, GetattrIn, MkdirIn, OpenOut,
    ROOT_ID, ReadIn, SetattrIn, SetattrValid, SetxattrIn, WriteIn, op,
};
use crate::full_volume::admission::{A_WRITE, GRACE};

const EINTR: i32 = rustix::io::Errno::INTR.raw_os_error();
const ENOSPC: i32 = rustix::io::Errno::NOSPC.raw_os_error();
const EFBIG: i32 = rustix::io::Errno::FBIG.raw_os_error();
const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();
pub(super) const O_RDWR: u32 = 2;
/// With less room than this a write may be let pass without a promise: that of a write, and of
/// what maps its blocks.
const PROMISED: u64 = A_WRITE + (512 << 10);
/// Pages of a file at most.
const PAGES: u64 = 256;
/// A page beyond the largest file.
const FAR: u64 = 1 << 32;
/// A reply that is taken so much later than it was asked for may be from before a shortage.
const LATE: Duration = Duration::from_millis(200);

/// A while, after which all files ask: a server that knows of a shortage takes so long at most.
const WHILE: Duration = Duration::from_millis(350);

/// Bytes of a read: a message of the socket has no more.
const READ_AT_ONCE: usize = 64 << 10;

/// A file that the process has open.
pub(super) struct File {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) handle: u64,
    /// The byte of each page; others are zeros.
    pub(super) content: BTreeMap<u64, u8>,
    /// In pages.
    pub(super) size: u64,
    /// Failures of its write-back that the handle was told of, or that are older.
    pub(super) told: u64,
    /// Failures that the server knew of when the kernel knew of none.
    pub(super) base: u64,
    /// A page too far was written.
    pub(super) is_too_large: bool,
}

/// See the module's header.
pub(super) struct Client<'a> {
    pub(super) world: Surroundings<'a>,
    pub(super) kernel: &'a Kernel,
    pub(super) number: usize,
    pub(super) rng: Rng,
    names: u64,
    byte: u8,
    /// The file whose attributes came late, and which is left alone for a while.
    late: Option<u64>,
    pub(super) files: Vec<File>,
    /// Names and nodes of its directories.
    pub(super) directories: Vec<(String, u64)>,
}

impl<'a> Client<'a> {
    pub(super) fn new(world: Surroundings<'a>, number: usize, rng: Rng) -> Self {
        Self {
            kernel: world.kernel,
            world,
            number,
            rng,
            names: 0,
            byte: 0,
            late: None,
            files: Vec::new(),
            directories: Vec::new(),
        }
    }

    pub(super) fn task(&self) -> u32 {
        100 + u32::try_from(self.number).unwrap()
    }

    /// A request, during which a signal may come.
    pub(super) fn call(&mut self, opcode: u32, id: u64, body: &[u8]) -> Reply {
        let signal = self.rng.chance(15);
        let after = Duration::from_micros(self.rng.below(400));
        let patience = signal.then_some(after);
        self.kernel.call(opcode, (id, self.task()), body, patience)
    }

    /// A failure that a process has to expect: no space, or its own signal.
    pub(super) fn expected<T>(reply: Result<T, i32>) -> Option<T> {
        match reply {
            Ok(reply) => Some(reply),
            Err(EINTR | ENOSPC) => None,
            Err(error) => panic!("error {error}"),
        }
    }

    pub(super) fn run(mut self, operations: usize) {
        for _ in 0..operations {
            self.write_after_a_while();
            if self.files.is_empty() {
                self.create();
                continue;
            }
            let at = self.rng.index(self.files.len());
            match self.rng.below(100) {
                0..=37 => self.write(at),
                38..=46 => self.truncate(at),
                47..=54 => self.allocate(at),
                55..=62 => self.write_directly(at),
                63..=70 => self.fsync(at),
                71..=75 => self.make_directory(),
                76..=80 => self.set_attribute(at),
                81..=85 if self.files.len() < 3 => self.create(),
                86..=89 => self.reopen(at),
                90..=92 => self.evict(at),
                93 => self.write_too_far(at),
                94 => self.crowd(at),
                95 => self.storm(at),
                _ => self.compare(at),
            }
        }
        self.leave();
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
        let asked = Instant::now();
        let Some(reply) = Self::expected(self.call(op::CREATE, ROOT_ID, &body)) else {
            return;
        };
        let (entry, rest) = EntryOut::read_from_prefix(&reply).unwrap();
        let (open, _) = OpenOut::read_from_prefix(rest).unwrap();
        self.dawdle(entry.nodeid);
        self.kernel.inode(entry.nodeid, |inode| {
            inode.handle = open.fh;
            inode.size = entry.attr.size;
            inode.learn(entry.attr_valid > 0, &entry.attr);
            inode.is_late = asked.elapsed() > LATE;
            inode.lookups += 1;
        });
        self.files.push(File {
            id: entry.nodeid,
            name,
            handle: open.fh,
            content: BTreeMap::new(),
            size: 0,
            told: 0,
            base: self.world.failures(entry.nodeid),
            is_too_large: false,
        });
    }

    /// Takes a reply on a file late, as a task that waits for a processor.
    fn dawdle(&mut self, id: u64) {
        if self.world.has_plenty && self.rng.chance(20) {
            std::thread::sleep(Duration::from_millis(self.rng.below(60)));
            self.late = self.rng.chance(50).then_some(id);
        }
    }

    /// Writes to a file whose attributes came late, after the time in which a server that has
    /// space becoming short has all files ask.
    fn write_after_a_while(&mut self) {
        let Some(id) = self.late.take() else {
            return;
        };
        std::thread::sleep(WHILE);
        if let Some(at) = self.files.iter().position(|file| file.id == id) {
            self.write(at);
        }
    }

    /// The question before a write: the attributes are asked for, unless they are there. A handle
    /// is told here what was lost. Returns the end of the time that the write has.
    fn ask(&mut self, at: usize) -> Result<Instant, i32> {
        let (id, fh) = (self.files[at].id, self.files[at].handle);
        let (begun, shortage) = (Instant::now(), self.world.asked_since());
        let facts = |inode: &mut Inode| (inode.is_valid, inode.told, inode.failures, inode.is_late);
        let (is_valid, told, failures, is_late) = self.kernel.inode(id, facts);
        let is_due = failures > self.files[at].told;
        if is_valid {
            assert!(!is_due, "node {id} writes on and is not told of a loss");
            let is_asked = shortage.is_some() && shortage == self.world.asked_since();
            assert!(
                !is_asked || is_late,
                "node {id} is written to, and not asked about"
            );
            return Ok(begun + GRACE);
        }
        let getattr = GetattrIn {
            getattr_flags: GETATTR_FH,
            dummy: 0,
            fh,
        };
        let reply = self.call(op::GETATTR, id, getattr.as_bytes());
        if reply.is_ok() {
            assert!(!is_due, "node {id} is not told of a loss");
            let file = &mut self.files[at];
            file.told = file.told.max(failures);
        }
        self.note_told(at, &reply);
        if self.is_of_size(at, &reply) {
            return Err(ENOSPC);
        }
        let reply = reply?;
        let (attr, _) = AttrOut::read_from_prefix(&reply).unwrap();
        self.kernel.inode(id, |inode| {
            if inode.told == told {
                inode.learn(attr.attr_valid > 0, &attr.attr);
            }
        });
        Ok(self
            .world
            .granted_until(self.task())
            .unwrap_or(begun + GRACE))
    }

    /// Notes that the handle was told of a loss, if the answer to its question is an error. The
    /// kernel may hear of the loss later.
    pub(super) fn note_told(&mut self, at: usize, reply: &Reply) {
        if matches!(reply, Ok(_) | Err(EINTR)) {
            return;
        }
        let file = &mut self.files[at];
        let known = self.kernel.inode(file.id, |inode| inode.failures);
        let told = self.world.failures(file.id).saturating_sub(file.base);
        file.told = known.max(told);
    }

    /// Returns whether an answer is that a page of the file was too far.
    pub(super) fn is_of_size(&self, at: usize, reply: &Reply) -> bool {
        self.files[at].is_too_large && *reply == Err(EFBIG)
    }

    fn write(&mut self, at: usize) {
        if self.rng.chance(self.world.whole_files) {
            self.create();
            let last = self.files.len() - 1;
            return self.write_pages(last, (0, PAGES));
        }
        let first = self.rng.below(PAGES - 1);
        let most = if self.rng.chance(25) { PAGES } else { 64 };
        let count = 1 + self.rng.below((PAGES - first).min(most));
        self.write_pages(at, (first, count));
    }

    fn write_pages(&mut self, at: usize, (first, count): (u64, u64)) {
        let volume = self.world.volume;
        let before = volume.room(true);
        let Some(end) = Self::expected(self.ask(at)) else {
            return;
        };
        // What it was granted counts for a while.
        if self.rng.chance(5) {
            return;
        }
        let has_room = before.min(volume.room(true)) >= PROMISED;
        self.byte = self.byte.wrapping_add(1).max(1);
        let byte = self.byte;
        let file = &mut self.files[at];
        for page in first..first + count {
            let promise = || has_room && Instant::now() < end;
            self.kernel.store(file.id, page, byte, promise);
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
        let asked = Instant::now();
        let reply = self.call(op::SETATTR, id, setattr.as_bytes());
        let Some(reply) = Self::expected(reply) else {
            return;
        };
        let (attr, _) = AttrOut::read_from_prefix(&reply).unwrap();
        self.dawdle(id);
        self.kernel.inode(id, |inode| {
            inode.truncate(pages * PAGE);
            // Linux takes these whatever it was told meanwhile.
            inode.learn(attr.attr_valid > 0, &attr.attr);
            inode.is_late = asked.elapsed() > LATE;
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
        self.kernel.inode(id, |inode| {
            inode.size = inode.size.max(size);
            inode.blocks = None;
        });
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
            .inode(id, |inode| inode.learn(attr.attr_valid > 0, &attr.attr));
    }

    /// Writes a page that the server has to refuse: the kernel knows no largest file. The next
    /// write is told.
    fn write_too_far(&mut self, at: usize) {
        self.files[at].is_too_large = true;
        if Self::expected(self.ask(at)).is_none() {
            return;
        }
        let id = self.files[at].id;
        let failures = self.kernel.inode(id, |inode| inode.failures);
        self.kernel.store(id, FAR, self.byte, || false);
        self.kernel.write_back(id);
        let after = self.kernel.inode(id, |inode| {
            inode.lost.remove(&FAR);
            inode.failures
        });
        assert!(after > failures, "a page beyond the largest file is stored");
        let asked = self.ask(at);
        assert!(matches!(asked, Err(EINTR | ENOSPC)), "a loss is not told");
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
            inode.blocks = None;
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
        let is_too_large = error == Some(EFBIG) && self.files[at].is_too_large;
        let error = error.filter(|_| !is_too_large);
        if Self::expected(error.map_or(reply, Err)).is_some() {
            self.compare_blocks(id);
        }
    }

    /// After an fsync the kernel knows how many blocks a file has, or is told before long that it
    /// does not.
    fn compare_blocks(&self, id: u64) {
        let blocks = self.world.blocks_of(id);
        let known = || self.kernel.inode(id, |inode| inode.blocks);
        let is_right = || known().is_none_or(|known| known == blocks);
        self.world
            .wait(is_right, || format!("the blocks of node {id} are old"));
    }

    fn make_directory(&mut self) {
        self.names += 1;
        let mkdir = MkdirIn {
            mode: 0o755,
            umask: 0,
        };
        let name = format!("dir-{}-{}\0", self.number, self.names);
        let body = [mkdir.as_bytes(), name.as_bytes()].concat();
        let Some(reply) = Self::expected(self.call(op::MKDIR, ROOT_ID, &body)) else {
            return;
        };
        let (entry, _) = EntryOut::read_from_prefix(&reply).unwrap();
        self.kernel.inode(entry.nodeid, |inode| inode.lookups += 1);
        match self.rng.chance(70) {
            true => self.remove_directory(&name, entry.nodeid),
            false => self.directories.push((name, entry.nodeid)),
        }
    }

    pub(super) fn remove_directory(&self, name: &str, id: u64) {
        let of = (ROOT_ID, self.task());
        let reply = self.kernel.call(op::RMDIR, of, name.as_bytes(), None);
        reply.unwrap();
        self.kernel.drop_inode(id);
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
    pub(super) fn compare(&mut self, at: usize) {
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
