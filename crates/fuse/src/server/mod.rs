//! Requests into calls of the file system, and their results into replies.
//!
//! One file per kind: `names` (directories and what changes them), `data` (reading, writing,
//! durability), `attrs` (attributes, extended attributes), `ioctls`, and `gate`, which answers
//! before writes where space is short. A handler parses nothing and sends nothing: it takes checked
//! arguments, calls the [`Volume`] and appends to the reply.
//!
//! The daemon has the image for itself, so the kernel may keep names, missing names, attributes and
//! pages without a limit ([`FOREVER`]); an operation that changes one of them without the
//! kernel's knowledge notifies it. Of a volume whose directories may fold the case of names it
//! keeps no names.
//!
//! Permissions are checked by the kernel (`default_permissions`): what arrives here is allowed,
//! except for what ext4 itself refuses. On a mount with `nodefault_permissions` each request is
//! checked first (`permissions`).

mod attrs;
mod data;
mod gate;
mod ioctls;
mod key_calls;
mod names;
mod permissions;
mod planted;
mod service_times;
#[cfg(test)]
mod simulated_kernel;
mod takers;
mod verity_calls;

use std::io;
use std::time::Instant;

use extant_engine::{Attr, Cred, DirtyBound, Node, Volume};
use planted::{Mistake, Planted};
use service_times::ServiceTimes;
use tracing::error;

use crate::abi::{self, InHeader, ROOT_ID};
use crate::counters::Counters;
use crate::device::Device;
use crate::errno::Errno;
use crate::full_volume::shared::FullVolume;
use crate::in_flight::InFlight;
use crate::init::Agreed;
use crate::mount::MountPoint;
use crate::node_table::NodeTable;
use crate::open_writers::OpenWriters;
use crate::reply::ReplyBuf;
use crate::request::{Op, Request};
use crate::sealing;
use crate::serve::{Completion, Serve};

/// Seconds that the kernel may keep attributes and names: a year.
const FOREVER: u64 = 365 * 24 * 3600;
/// READ and WRITE of more bytes than this let another worker listen meanwhile.
const MUCH_DATA: usize = 32 << 10;

/// What the mount fixed.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) agreed: Agreed,
    /// Immutable and append-only files are to refuse at open(2), at the price of an OPEN message
    /// per open.
    pub(crate) strict_open: bool,
    /// Answer to the request for [`crate::CONTROL_ATTRIBUTE`].
    pub(crate) control: Vec<u8>,
    /// Where the mount is.
    pub(crate) point: MountPoint,
    /// Dirty pages that the kernel may hold, in bytes.
    pub(crate) dirty_limit: u64,
    /// Numbers for the counters that were fixed before the mount began.
    pub(crate) facts: Vec<(&'static str, u64)>,
    /// The volume's size in bytes.
    pub(crate) volume_len: u64,
}

/// Serves one mount.
pub(crate) struct Server<'a> {
    volume: &'a Volume,
    device: &'a Device,
    nodes: &'a NodeTable,
    counters: &'a Counters,
    in_flight: &'a InFlight,
    settings: Settings,
    /// Data that the kernel may hold dirty, as the engine knows it.
    dirty: DirtyBound,
    full: FullVolume,
    writers: OpenWriters,
    times: ServiceTimes,
    planted: Planted,
}

impl Settings {
    /// Returns whether opens are to reach the server.
    fn kernel_sends_open(&self) -> bool {
        self.strict_open || !self.agreed.no_open || !self.agreed.kernel_checks
    }
}

type Outcome = Result<Completion, Errno>;

/// The smallest page of a kernel in bytes.
const PAGE: u32 = 4096;

impl<'a> Server<'a> {
    pub(crate) fn new(
        volume: &'a Volume,
        device: &'a Device,
        nodes: &'a NodeTable,
        counters: &'a Counters,
        in_flight: &'a InFlight,
        settings: Settings,
    ) -> Self {
        let dirty = volume.dirty_bound();
        // Where no drain ever ends what may be dirty grows without end: operations that take space
        // do not leave it there. Nothing is dirty without the kernel's cache.
        let can_drain = settings.point.can_write_back();
        let bound = match can_drain && settings.agreed.writeback {
            true => dirty.clone(),
            false => DirtyBound::default(),
        };
        let space = (settings.volume_len, volume.room(false));
        // A dirty page may take a whole cluster, as those beside it are not written.
        let cluster = volume.statfs().map_or(0, |totals| totals.cluster_size);
        let pages_of_a_cluster = u64::from(cluster / PAGE).max(1);
        let dirty_limit = settings.dirty_limit.saturating_mul(pages_of_a_cluster);
        let full = FullVolume::new(dirty_limit, space, can_drain, bound);
        let server = Self {
            volume,
            device,
            nodes,
            counters,
            in_flight,
            full,
            dirty,
            settings,
            writers: OpenWriters::default(),
            times: ServiceTimes::default(),
            planted: Planted::default(),
        };
        // What may be dirty counts from the beginning.
        server.look_at_room();
        server
    }

    fn handle(&self, request: &Request<'_>, reply: &mut ReplyBuf) -> Outcome {
        let header = request.header;
        let op = request.op(self.settings.agreed.setxattr_ext)?;
        if !self.settings.agreed.kernel_checks {
            self.check_permission(header, &op)?;
        }
        match op {
            Op::Forget { count } => {
                self.forget(header.nodeid, count);
                Ok(Completion::Silent)
            }
            Op::BatchForget { nodes } => {
                for one in nodes {
                    self.forget(one.nodeid, one.nlookup);
                }
                Ok(Completion::Silent)
            }
            Op::Open { flags } => self.open(header.nodeid, flags, reply),
            Op::Opendir => self.opendir(reply),
            Op::Release { handle } => {
                self.closed_for_writing(header.nodeid, handle);
                Ok(Completion::Reply)
            }
            Op::Releasedir => Ok(Completion::Reply),
            Op::Interrupt { unique } => {
                self.interrupt(unique);
                Ok(Completion::Silent)
            }
            Op::Access { .. } => self.access(),
            Op::Destroy => Ok(Completion::Reply),
            Op::Lookup { .. }
            | Op::Readdir { .. }
            | Op::Mknod { .. }
            | Op::Mkdir { .. }
            | Op::Symlink { .. }
            | Op::Create { .. }
            | Op::Tmpfile { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }
            | Op::Readlink => self.handle_name(header, op, reply),
            Op::Read { .. }
            | Op::Write { .. }
            | Op::Fsync { .. }
            | Op::Syncfs
            | Op::Fallocate { .. }
            | Op::CopyFileRange(_)
            | Op::Lseek { .. }
            | Op::Statfs => self.handle_data(header, op, reply),
            Op::Getattr { .. }
            | Op::Statx
            | Op::Setattr(_)
            | Op::Getxattr { .. }
            | Op::Listxattr { .. }
            | Op::Setxattr { .. }
            | Op::Removexattr { .. }
            | Op::Ioctl { .. } => self.handle_attribute(header, op, reply),
            // Each of these answers switches the kind of message off for the life of the mount;
            // FLUSH has nothing to do, since closing a file makes nothing durable.
            Op::Flush | Op::Unknown => Err(Errno::NOSYS),
        }
    }

    /// Operations on names.
    fn handle_name(&self, header: &InHeader, op: Op<'_>, reply: &mut ReplyBuf) -> Outcome {
        let node = || self.nodes.get(header.nodeid);
        match op {
            Op::Lookup { name } => self.lookup(header.nodeid, name, reply),
            Op::Readdir { offset, size, plus } => self.readdir(&node()?, offset, size, plus, reply),
            Op::Mknod {
                name,
                mode,
                rdev,
                umask,
            } => self.mknod(&node()?, name, mode, rdev, &cred(header, umask), reply),
            Op::Mkdir { name, mode, umask } => {
                self.mkdir(&node()?, name, mode, &cred(header, umask), reply)
            }
            Op::Symlink { name, target } => {
                self.symlink(&node()?, name, target, &cred(header, 0), reply)
            }
            Op::Create { name, mode, umask } => {
                self.create(&node()?, name, mode, &cred(header, umask), reply)
            }
            Op::Tmpfile { mode, umask } => {
                self.tmpfile(&node()?, mode, &cred(header, umask), reply)
            }
            Op::Link { node: old, name } => self.link(old, &node()?, name, &cred(header, 0), reply),
            Op::Unlink { name } => {
                self.volume.unlink(&node()?, name)?;
                Ok(Completion::Reply)
            }
            Op::Rmdir { name } => {
                self.volume.rmdir(&node()?, name)?;
                Ok(Completion::Reply)
            }
            Op::Rename {
                name,
                new_dir,
                new_name,
                flags,
            } => self.rename(&node()?, name, new_dir, new_name, flags, &cred(header, 0)),
            Op::Readlink => {
                reply.put_bytes(&self.volume.readlink(&node()?)?)?;
                Ok(Completion::Reply)
            }
            // Answered so, the kernel sends no more messages of the kind.
            _ => Err(Errno::NOSYS),
        }
    }

    /// Operations on the data of a file, and on the volume.
    fn handle_data(&self, header: &InHeader, op: Op<'_>, reply: &mut ReplyBuf) -> Outcome {
        let node = || self.nodes.get(header.nodeid);
        match op {
            Op::Read {
                offset,
                size,
                direct,
            } => self.read(&node()?, offset, size, direct, reply),
            Op::Write {
                offset,
                data,
                flags,
                direct,
            } => self.write(header, &node()?, offset, data, (flags, direct), reply),
            Op::Fsync { datasync } => self.fsync(header.nodeid, &node()?, datasync),
            Op::Syncfs => {
                self.volume.sync()?;
                Ok(Completion::Reply)
            }
            Op::Fallocate { mode, offset, len } => {
                self.fallocate(header, &node()?, mode, offset, len)
            }
            Op::CopyFileRange(range) => self.copy_file_range(header, &node()?, range, reply),
            Op::Lseek { offset, whence } => self.lseek(&node()?, offset, whence, reply),
            Op::Statfs => self.statfs(node().ok().as_ref(), reply),
            // Answered so, the kernel sends no more messages of the kind.
            _ => Err(Errno::NOSYS),
        }
    }

    /// Operations on attributes, and ioctls.
    fn handle_attribute(&self, header: &InHeader, op: Op<'_>, reply: &mut ReplyBuf) -> Outcome {
        let node = || self.nodes.get(header.nodeid);
        match op {
            Op::Getattr {
                handle: Some(handle),
            } if self.may_write(handle) => self.gate(header, handle, reply),
            Op::Getattr { .. } => self.getattr(header.nodeid, reply),
            Op::Statx => self.statx(header.nodeid, reply),
            Op::Setattr(changes) => self.setattr(header, changes, reply),
            Op::Getxattr { name, size } => self.getxattr(header, name, size, reply),
            Op::Listxattr { size } => self.listxattr(header, &node()?, size, reply),
            Op::Setxattr {
                name,
                value,
                flags,
                kill_sgid,
            } => self.setxattr(header, &node()?, name, value, flags, kill_sgid),
            Op::Removexattr { name } => {
                self.volume.removexattr(&node()?, name, &cred(header, 0))?;
                Ok(Completion::Reply)
            }
            Op::Ioctl {
                command,
                restricted: true,
                data,
                out_size,
            } => self.ioctl(header, &node()?, command, data, out_size, reply),
            // Answered so, the kernel sends no more messages of the kind.
            _ => Err(Errno::NOSYS),
        }
    }

    /// Completes the reply to a request that was handled.
    fn finish(&self, header: &InHeader, outcome: Outcome, reply: &mut ReplyBuf) -> Completion {
        let result = match outcome {
            Ok(done @ (Completion::Silent | Completion::Deferred)) => return done,
            Ok(done) => {
                reply.finish(header.unique, Ok(()));
                return done;
            }
            Err(errno) => Err(errno),
        };
        if let abi::op::FORGET | abi::op::BATCH_FORGET = header.opcode {
            return Completion::Silent;
        }
        reply.finish(header.unique, result);
        Completion::Reply
    }

    /// The kernel has dropped `count` of the times that `id` was named.
    fn forget(&self, id: u64, count: u64) {
        let is_cut = self.planted.is(Mistake::ForgetCountsOne);
        let count = if is_cut { 1 } else { count };
        self.nodes.forget(id, count);
        if self.nodes.get(id).is_err() {
            self.step(|admission| admission.forget(id));
        }
    }

    /// Seconds for which the kernel may rely on a name, there or missing: for good, as it makes
    /// every change itself. Not where directories fold the case of names, as it does not know which
    /// names are the same: it takes a name along when it renames a file into such a directory, and
    /// would not know that the file went by another spelling. And not where names are encrypted,
    /// which are others with a key and without.
    fn name_valid(&self) -> u64 {
        match self.volume.may_fold_case() || self.volume.may_encrypt() {
            true => 0,
            false => FOREVER,
        }
    }

    /// The entry of `node` for a reply, which the kernel counts as a lookup: it is to be sent, or
    /// forgotten.
    fn entry_counted(&self, node: &Node, attr: &Attr) -> abi::EntryOut {
        let nodeid = self.nodes.remember(node);
        abi::EntryOut {
            nodeid,
            generation: u64::from(node.generation()),
            entry_valid: self.name_valid(),
            attr_valid: self.attr_valid(attr),
            attr: attr_wire(attr),
            ..abi::EntryOut::default()
        }
    }
}

impl Serve for Server<'_> {
    fn may_block(&self, request: &[u8]) -> bool {
        use abi::op;
        let Some(request) = Request::new(request) else {
            return false;
        };
        match request.header.opcode {
            op::FSYNCDIR
            | op::SYNCFS
            | op::STATFS
            | op::FALLOCATE
            | op::COPY_FILE_RANGE
            | op::DESTROY => true,
            op::FSYNC => self.times.is_long(op::FSYNC),
            op::WRITE => has_much_data(request.header) && self.times.is_long(op::WRITE),
            // Before a write, where space is short, it looks whether what is dirty fits.
            op::GETATTR => match request.op(false) {
                Ok(Op::Getattr {
                    handle: Some(handle),
                }) => self.may_write(handle) && self.is_short(),
                _ => false,
            },
            op::READ => match request.op(false) {
                Ok(Op::Read { size, .. }) => size as usize > MUCH_DATA,
                _ => false,
            },
            op::IOCTL => sealing::is_asked(&request),
            _ => false,
        }
    }

    fn serve(&self, bytes: &[u8], reply: &mut ReplyBuf<'_>) -> io::Result<Completion> {
        reply.clear();
        let Some(request) = Request::new(bytes) else {
            return Err(io::Error::other("the kernel sent a request that is none"));
        };
        let begun = Instant::now();
        let (mut outcome, wants_space) = self.handle_within_bound(&request, reply);
        let (opcode, took) = (request.header.opcode, begun.elapsed());
        self.counters.count(opcode, took);
        if opcode != abi::op::WRITE || has_much_data(request.header) {
            self.times.note(opcode, took);
        }
        if wants_space {
            if self.try_park_for_space(&request, bytes, reply.queue()) {
                return Ok(Completion::Deferred);
            }
            reply.clear();
            // Nothing was written back for it.
            outcome = self.handle_again(&request, false, reply);
        }
        Ok(self.finish(request.header, outcome, reply))
    }

    fn fail_after_panic(&self, bytes: &[u8], reply: &mut ReplyBuf<'_>) -> Completion {
        error!("a request ended in a bug; the file system is shut down");
        if let Err(error) = self.volume.shutdown(false) {
            error!("shutting down: {error}");
        }
        let Some(request) = Request::new(bytes) else {
            return Completion::Silent;
        };
        reply.finish(request.header.unique, Err(Errno::IO));
        Completion::Reply
    }

    fn undo_undelivered(&self, done: Completion) {
        match done {
            Completion::Reply | Completion::Deferred | Completion::Silent => {}
            Completion::Entries(ids) => {
                for id in ids {
                    self.nodes.forget(id, 1);
                }
            }
            Completion::Open {
                node,
                handle,
                named,
            } => {
                self.closed_for_writing(node, handle);
                if named {
                    self.forget(node, 1);
                }
            }
        }
    }
}

/// Returns whether a WRITE has so much data that it may take long.
fn has_much_data(header: &InHeader) -> bool {
    header.len as usize > MUCH_DATA
}

/// The caller's credentials, as the kernel gives them.
fn cred(header: &InHeader, umask: u32) -> Cred {
    Cred {
        uid: header.uid,
        gid: header.gid,
        groups: Vec::new(),
        privileged: header.uid == 0,
        umask: low_bits(umask) & 0o777,
    }
}

/// The permission bits, set-ids and sticky bit of a mode.
fn perm(mode: u32) -> u16 {
    low_bits(mode) & 0o7777
}

/// The low sixteen bits: all that a mode has.
fn low_bits(mode: u32) -> u16 {
    u16::try_from(mode & 0xffff).unwrap_or(0)
}

fn attr_wire(attr: &Attr) -> abi::AttrWire {
    abi::AttrWire {
        ino: u64::from(attr.ino.get()),
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.secs,
        mtime: attr.mtime.secs,
        ctime: attr.ctime.secs,
        atimensec: attr.atime.nanos,
        mtimensec: attr.mtime.nanos,
        ctimensec: attr.ctime.nanos,
        mode: u32::from(attr.mode()),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.blksize,
        flags: 0,
    }
}

/// The inode number behind a node number.
fn ino_of(nodeid: u64) -> Option<extant_engine::Ino> {
    match nodeid {
        ROOT_ID => extant_engine::Ino::new(2),
        _ => u32::try_from(nodeid).ok().and_then(extant_engine::Ino::new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FuzzServer, with_server_beside};
    use extant_engine::VolumeOptions;
    use extant_testkit::{Image, Need, need};
    use zerocopy::{FromBytes, IntoBytes};

    /// Requests that are not spoken here: that after the last, one for devices, and the largest.
    const UNKNOWN: [u32; 5] = [0, abi::op::STATX + 1, 63, 4096, u32::MAX];

    /// A kernel sends a request that it has learned since once, and no more after this answer.
    #[test]
    fn requests_of_newer_kernels_are_declined_at_once() {
        if !need(&[Need::Tool("mke2fs")]) {
            return;
        }
        let image = Image::of_mib(16).make().unwrap();
        let volume = VolumeOptions::new().write(true).open(image.path()).unwrap();
        for (kernel_checks, body_len) in [(true, 0), (false, 4096)] {
            let work = |server: &mut FuzzServer<'_>| {
                for opcode in UNKNOWN {
                    let header = InHeader {
                        len: u32::try_from(size_of::<InHeader>() + body_len).unwrap(),
                        opcode,
                        unique: 7,
                        // Not one that is known, nor looked at.
                        nodeid: u64::MAX,
                        ..InHeader::default()
                    };
                    let request = [header.as_bytes(), &vec![0xff; body_len]].concat();
                    assert!(
                        !server.may_block(&request),
                        "{opcode}: another worker wakes up"
                    );
                    let reply = server.by_device(&request).unwrap();
                    let out = abi::OutHeader::read_from_bytes(&reply).unwrap();
                    assert_eq!(
                        (out.unique, out.error),
                        (7, Errno::NOSYS.negative()),
                        "{opcode}"
                    );
                }
            };
            with_server_beside(&volume, kernel_checks, work).unwrap();
        }
    }
}
