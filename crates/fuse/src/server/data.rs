//! Content: opening, reading, writing, seeking, and the totals.

use extant_engine::{Cred, FallocateMode, Node, SeekTarget};
use rustix::fs::OFlags;

use super::planted::Mistake;
use super::{Completion, Outcome, Server};
use crate::abi::{self, CopyFileRangeIn, InHeader, OpenOut, StatfsOut, WriteOut};
use crate::errno::Errno;
use crate::full_volume::admission::A_WRITE;
use crate::reply::ReplyBuf;

/// `O_ACCMODE`, `O_APPEND`: the same on every Linux that Rust knows.
const O_ACCMODE: u32 = 3;
const O_APPEND: u32 = 0o2000;
/// chattr flags (`FS_*_FL`).
pub(super) const IMMUTABLE: u32 = 0x10;
pub(super) const APPEND_ONLY: u32 = 0x20;
/// `lseek` origins.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// `FALLOC_FL_*`.
const FALLOC_KEEP_SIZE: u32 = 0x01;
const FALLOC_PUNCH_HOLE: u32 = 0x02;
const FALLOC_COLLAPSE_RANGE: u32 = 0x08;
const FALLOC_ZERO_RANGE: u32 = 0x10;
const FALLOC_INSERT_RANGE: u32 = 0x20;

/// What `O_DIRECT` has to be aligned to, in the file: the logical blocks of nearly every device.
const SECTOR: u64 = 512;

/// Whether direct I/O on these bytes is possible where the kernel's ext4 would do it.
fn is_aligned(offset: u64, len: u64) -> bool {
    (offset | len).is_multiple_of(SECTOR)
}

/// Bytes of a READ that are worth a look whether they are a hole, whose zeros need not be made.
const LONG_HOLE: u32 = 32 << 10;

/// The most that one COPY_FILE_RANGE copies, so that a caller can be interrupted.
const COPIED_AT_ONCE: u64 = 64 << 20;

/// The answer to an open. Handles are given to writers only, 0 to all others: for anything else a
/// node is all that is needed.
pub(super) fn open_reply(open_flags: u32, handle: u64) -> OpenOut {
    OpenOut {
        fh: handle,
        open_flags,
        ..OpenOut::default()
    }
}

/// The operation that `FALLOC_FL_*` bits stand for.
fn fallocate_mode(bits: u32) -> Option<FallocateMode> {
    let keep_size = bits & FALLOC_KEEP_SIZE != 0;
    Some(match bits & !FALLOC_KEEP_SIZE {
        0 => FallocateMode::Allocate { keep_size },
        FALLOC_PUNCH_HOLE if keep_size => FallocateMode::PunchHole,
        FALLOC_ZERO_RANGE => FallocateMode::ZeroRange { keep_size },
        FALLOC_COLLAPSE_RANGE if !keep_size => FallocateMode::CollapseRange,
        FALLOC_INSERT_RANGE if !keep_size => FallocateMode::InsertRange,
        _ => return None,
    })
}

impl Server<'_> {
    /// Whether opens are to reach us.
    pub(super) fn kernel_sends_open(&self) -> bool {
        self.settings.kernel_sends_open()
    }

    /// Opens a file: a handle for writers, none for others. Declined once, opens send no message
    /// any more. The kernel keeps cached pages across opens then, truncates by SETATTR, and tells
    /// us by FORGET when the last open file is gone.
    pub(super) fn open(&self, nodeid: u64, flags: u32, reply: &mut ReplyBuf) -> Outcome {
        if !self.kernel_sends_open() {
            return Err(Errno::NOSYS);
        }
        let mut handle = 0;
        let mut open_flags = abi::FOPEN_KEEP_CACHE;
        let node = self.nodes.get(nodeid)?;
        self.volume.check_key(&node)?;
        if flags & O_ACCMODE == 0 {
            if self.volume.counts_each_access() {
                // The kernel drops its pages, so that the first read comes here.
                open_flags = 0;
            } else {
                let is_news = self.note_read_open(nodeid, &node, flags);
                if is_news && self.device.is_guest() {
                    // The first read comes here, and has the guest ask for the time.
                    open_flags = 0;
                }
            }
        } else {
            let attributes = self.volume.flags(&node)?;
            let is_protected = attributes & IMMUTABLE != 0
                || attributes & APPEND_ONLY != 0 && flags & O_APPEND == 0;
            if is_protected && self.settings.strict_open {
                return Err(Errno::PERM);
            }
            handle = self.register_writer(nodeid, &node, &self.volume.getattr(&node)?)?;
        }
        reply.put(&open_reply(open_flags, handle))?;
        Ok(Completion::Open {
            node: nodeid,
            handle,
            named: false,
        })
    }

    /// Updates the time of access of a file that is opened for reading: the kernel does not tell of
    /// reads that its pages serve.
    /// Returns whether it did.
    fn note_read_open(&self, id: u64, node: &Node, flags: u32) -> bool {
        let is_news = flags & OFlags::NOATIME.bits() == 0 && self.volume.note_access(node);
        if is_news {
            self.notify_inval_attributes(id);
        }
        is_news
    }

    pub(super) fn opendir(&self, reply: &mut ReplyBuf) -> Outcome {
        let agreed = &self.settings.agreed;
        if agreed.no_opendir && agreed.kernel_checks {
            return Err(Errno::NOSYS);
        }
        reply.put(&open_reply(abi::FOPEN_KEEP_CACHE | abi::FOPEN_CACHE_DIR, 0))?;
        Ok(Completion::Reply)
    }

    pub(super) fn read(
        &self,
        node: &Node,
        offset: u64,
        size: u32,
        direct: bool,
        reply: &mut ReplyBuf,
    ) -> Outcome {
        let len = u64::from(size);
        if direct && !is_aligned(offset, len) && offset < self.volume.getattr(node)?.size {
            return Err(Errno::INVAL);
        }
        if !direct && size >= LONG_HOLE && reply.may_zeros_follow() {
            let zeros = self.volume.read_hole(node, offset, size as usize)?;
            if zeros > 0 {
                reply.end_with_zeros(zeros)?;
                return Ok(Completion::Reply);
            }
        }
        reply.fill(size as usize, |buf| {
            let read = if direct {
                self.volume.read_direct(node, offset, buf)
            } else {
                // The kernel keeps what it reads.
                self.volume.read_uncached(node, offset, buf)
            };
            read.map_err(Errno::from)
        })?;
        Ok(Completion::Reply)
    }

    /// A failed write-back is told to the file's writers by the kernel at fsync and close only: it
    /// is noted for their next writes.
    pub(super) fn write(
        &self,
        header: &InHeader,
        node: &Node,
        offset: u64,
        data: &[u8],
        (flags, direct): (u32, bool),
        reply: &mut ReplyBuf,
    ) -> Outcome {
        let outcome = self.put_data(header, node, offset, data, (flags, direct), reply);
        if let Err(errno) = outcome
            && flags & abi::WRITE_CACHE != 0
        {
            self.volume.note_lost_data(node);
            self.write_back_failed(header.nodeid, errno);
        }
        outcome
    }

    /// Bytes of the bound of dirty data that a WRITE need not leave free. What the kernel has
    /// accepted is what the space was left for. A direct write, or one that the kernel writes
    /// through, of a file with set-id bits, was let pass as well.
    fn spent_by_write(&self, id: u64, cached: bool) -> u64 {
        match cached {
            true => u64::MAX,
            false => A_WRITE + self.last_for(id),
        }
    }

    /// A page that the kernel wrote back counts as written by the file's owner: its writer is not
    /// known any more. A direct write has gone around the kernel's pages, and goes around ours.
    fn put_data(
        &self,
        header: &InHeader,
        node: &Node,
        offset: u64,
        data: &[u8],
        (flags, direct): (u32, bool),
        reply: &mut ReplyBuf,
    ) -> Outcome {
        self.check_write_without_open(node, offset, data)?;
        let kill = flags & abi::WRITE_KILL_SUIDGID != 0;
        let mut cred = super::cred(header, 0);
        let cached = flags & abi::WRITE_CACHE != 0;
        if cached {
            let attr = self.volume.getattr(node)?;
            cred = Cred {
                uid: attr.uid,
                gid: attr.gid,
                privileged: attr.uid == 0,
                ..cred
            };
        }
        cred.privileged &= !kill;
        let direct = direct && !cached;
        if direct && !is_aligned(offset, data.len() as u64) {
            return Err(Errno::INVAL);
        }
        let write = |at: usize| {
            // A position past the largest is refused by the write.
            let (pos, rest) = (offset.saturating_add(at as u64), &data[at..]);
            if cached && !kill {
                // The kernel noted the time when it took the write, and reports it by itself.
                self.volume.write_back(node, pos, rest, &cred)
            } else if direct {
                self.volume.write_direct(node, pos, rest, &cred)
            } else {
                self.volume.write(node, pos, rest, &cred)
            }
        };
        let spent = self.spent_by_write(header.nodeid, cached);
        let write = |at: usize| self.dirty.spending(spent, || write(at));
        let mut done = write(0)?;
        // A short answer to a page that is written back is one that the kernel does not look at:
        // its fsync has to hear of the rest.
        while cached && done < data.len() {
            match write(done)? {
                0 => return Err(Errno::IO),
                more => done += more,
            }
        }
        self.look_at_room();
        if kill {
            // The mode may have changed, which the kernel does not expect of a WRITE.
            self.device
                .invalidate(header.nodeid, -1)
                .map_err(|_| Errno::IO)?;
        }
        let size = u32::try_from(done).map_err(|_| Errno::IO)?;
        reply.put(&WriteOut { size, padding: 0 })?;
        Ok(Completion::Reply)
    }

    /// Refuses a write to an immutable file, or one to an append-only file that changes what is
    /// there, where no OPEN message was there to be refused. The kernel writes whole pages back, so
    /// existing data may be written again.
    fn check_write_without_open(&self, node: &Node, offset: u64, data: &[u8]) -> Result<(), Errno> {
        if self.settings.strict_open {
            return Ok(());
        }
        let attributes = self.volume.flags(node)?;
        if attributes & (IMMUTABLE | APPEND_ONLY) == 0 {
            return Ok(());
        }
        if attributes & IMMUTABLE != 0 {
            return Err(Errno::PERM);
        }
        let mut old = vec![0; data.len()];
        let len = self.volume.read(node, offset, &mut old)?;
        if old.get(..len) == data.get(..len) {
            Ok(())
        } else {
            Err(Errno::PERM)
        }
    }

    /// Allocates, frees or zeroes a range. The kernel keeps the size in mind, and drops its pages
    /// of the range; what it does not expect is a mode that changes.
    pub(super) fn fallocate(
        &self,
        header: &InHeader,
        node: &Node,
        mode: u32,
        offset: u64,
        len: u64,
    ) -> Outcome {
        let mode = fallocate_mode(mode).ok_or(Errno::OPNOTSUPP)?;
        let cred = super::cred(header, 0);
        let before = self.volume.getattr(node)?.perm;
        let spent = self.last_for(header.nodeid);
        (self.dirty).spending(spent, || {
            self.volume.fallocate(node, mode, offset, len, &cred)
        })?;
        if self.volume.getattr(node)?.perm != before {
            self.device
                .invalidate(header.nodeid, -1)
                .map_err(|_| Errno::IO)?;
        }
        Ok(Completion::Reply)
    }

    /// Copies a range of one file into another. The kernel has written back its dirty pages of both
    /// ranges, and drops those of the second afterwards. It may know the first file to be longer
    /// than we do, through dirty pages behind the range: then it has to copy by itself.
    pub(super) fn copy_file_range(
        &self,
        header: &InHeader,
        node: &Node,
        range: &CopyFileRangeIn,
        reply: &mut ReplyBuf,
    ) -> Outcome {
        let to = self.nodes.get(range.nodeid_out)?;
        if range.flags != 0 {
            return Err(Errno::INVAL);
        }
        if !self.settings.strict_open && self.volume.flags(&to)? & (IMMUTABLE | APPEND_ONLY) != 0 {
            return Err(Errno::PERM);
        }
        // A range past the largest position ends behind any file.
        if self.volume.getattr(node)?.size < range.off_in.saturating_add(range.len) {
            return Err(Errno::OPNOTSUPP);
        }
        let before = self.volume.getattr(&to)?.perm;
        let cred = super::cred(header, 0);
        let (from, into) = ((node, range.off_in), (&to, range.off_out));
        let len = range.len.min(COPIED_AT_ONCE);
        let done = self.volume.copy_range(from, into, len, &cred)?;
        if self.volume.getattr(&to)?.perm != before {
            self.device
                .invalidate(range.nodeid_out, -1)
                .map_err(|_| Errno::IO)?;
        }
        let size = u32::try_from(done).map_err(|_| Errno::IO)?;
        reply.put(&WriteOut { size, padding: 0 })?;
        Ok(Completion::Reply)
    }

    /// Makes a file durable. The kernel keeps the number of blocks that it was told last, though
    /// the pages which it wrote back have got some since: it is told to ask anew.
    pub(super) fn fsync(&self, id: u64, node: &Node, datasync: bool) -> Outcome {
        self.volume.fsync(node, datasync)?;
        if !self.planted.is(Mistake::BlocksNotShown) {
            self.show_blocks(id, node)?;
        }
        Ok(Completion::Reply)
    }

    /// Finds data or a hole. While the kernel may hold dirty pages, the file system does not know
    /// where a file's data is, and must not say that there is a hole. Declined, the kernel calls
    /// everything data.
    pub(super) fn lseek(
        &self,
        node: &Node,
        offset: u64,
        whence: u32,
        reply: &mut ReplyBuf,
    ) -> Outcome {
        if self.settings.agreed.writeback && !self.volume.read_only() {
            return Err(Errno::NOSYS);
        }
        let target = match whence {
            SEEK_DATA => SeekTarget::Data(offset),
            SEEK_HOLE => SeekTarget::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        reply.put(&abi::LseekOut {
            offset: self.volume.seek(node, target)?,
        })?;
        Ok(Completion::Reply)
    }

    pub(super) fn statfs(&self, node: Option<&Node>, reply: &mut ReplyBuf) -> Outcome {
        let stat = match node {
            Some(node) => self.volume.statfs_at(node)?,
            None => self.volume.statfs()?,
        };
        reply.put(&StatfsOut {
            blocks: stat.blocks,
            bfree: stat.blocks_free,
            bavail: stat.blocks_available,
            files: stat.inodes,
            ffree: stat.inodes_free,
            bsize: stat.block_size,
            namelen: stat.name_max,
            frsize: stat.block_size,
            ..StatfsOut::default()
        })?;
        Ok(Completion::Reply)
    }
}

#[cfg(test)]
mod tests;
