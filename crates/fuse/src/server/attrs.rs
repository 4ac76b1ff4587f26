//! Attributes and extended attributes.

use std::sync::atomic::Ordering;

use extant_engine::{Attr, FileKind, Node, SetAttr, SetTime, Timestamp, XattrMode};

use super::{Completion, Outcome, Server, attr_wire, perm};
use crate::abi::{self, AttrOut, GetxattrOut, InHeader, SetattrValid, StatxOut, StatxTime};
use crate::errno::Errno;
use crate::live;
use crate::reply::ReplyBuf;

/// `setxattr` flags.
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

/// `STATX_BASIC_STATS`, `STATX_BTIME`.
const STATX_BASIC: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

/// The prefix of attributes for privileged callers alone.
const TRUSTED: &[u8] = b"trusted.";

/// The attribute with a file's access ACL.
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// What the kernel sends when it reports the time of writes that it cached: no system call sets
/// just these through a file.
const WRITTEN: SetattrValid = SetattrValid::MTIME
    .union(SetattrValid::CTIME)
    .union(SetattrValid::FH);

/// What every chown(2) of a regular file sends where the kernel keeps the change time, beside the
/// owner.
const CHOWN: SetattrValid = SetattrValid::KILL_SUIDGID.union(SetattrValid::CTIME);

/// Whether a SETATTR of a regular file leaves privileges alone. `writeback`: the kernel keeps the
/// change time.
///
/// * A new size: before truncate(2) the kernel removes capabilities by itself, and says when set-id
///   bits go.
/// * A new owner: overlayfs gives one to the copy of a file that it has just made. The kernel says
///   of every owner that privileges go, but ext4 takes them only in chown(2) itself. That sets the
///   change time as well, which is sent where the kernel keeps it.
fn keeps_privileges(valid: SetattrValid, writeback: bool) -> bool {
    let owner = SetattrValid::UID.union(SetattrValid::GID);
    if valid.intersects(owner) {
        writeback && valid & (owner | CHOWN) == owner | SetattrValid::KILL_SUIDGID
    } else {
        !valid.contains(SetattrValid::KILL_SUIDGID)
    }
}

/// Returns whether both times become "now". Where the kernel keeps the times it sends its own one
/// as the time of modification, and the same as that of the change: one that a user chose differs.
pub(super) fn is_touch(valid: SetattrValid, wire: &abi::SetattrIn) -> bool {
    const TOUCH: SetattrValid = SetattrValid::ATIME
        .union(SetattrValid::ATIME_NOW)
        .union(SetattrValid::MTIME)
        .union(SetattrValid::CTIME);
    valid.contains(TOUCH) && (wire.mtime, wire.mtimensec) == (wire.ctime, wire.ctimensec)
}

/// Returns whether the kernel reports the times of a change that it has made: of writes, with a
/// handle if one is open, or of a name that came or went.
pub(super) fn is_report_of_times(valid: SetattrValid) -> bool {
    valid.union(SetattrValid::FH) == WRITTEN
}

impl Server<'_> {
    pub(super) fn getattr(&self, id: u64, reply: &mut ReplyBuf) -> Outcome {
        self.note_look(id);
        let attr = self.volume.getattr(&self.nodes.get(id)?)?;
        reply.put(&self.attr_out(&attr))?;
        Ok(Completion::Reply)
    }

    /// As GETATTR, plus the time of creation.
    pub(super) fn statx(&self, id: u64, reply: &mut ReplyBuf) -> Outcome {
        self.note_look(id);
        let attr = self.volume.getattr(&self.nodes.get(id)?)?;
        let time = |t: Timestamp| StatxTime {
            secs: t.secs,
            nanos: t.nanos,
            reserved: 0,
        };
        // The kernel's 32-bit device numbers: 12 bits of major at 8, minor around them.
        let (major, minor) = (
            (attr.rdev >> 8) & 0xfff,
            (attr.rdev & 0xff) | (attr.rdev >> 12 & 0xf_ff00),
        );
        reply.put(&StatxOut {
            attr_valid: self.attr_valid(&attr),
            mask: STATX_BASIC | attr.crtime.map_or(0, |_| STATX_BTIME),
            blksize: attr.blksize,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: attr.mode(),
            ino: u64::from(attr.ino.get()),
            size: attr.size,
            blocks: attr.blocks,
            atime: time(attr.atime),
            // A small inode has no time of creation: zero.
            btime: attr.crtime.map(time).unwrap_or_default(),
            ctime: time(attr.ctime),
            mtime: time(attr.mtime),
            rdev_major: major,
            rdev_minor: minor,
            ..StatxOut::default()
        })?;
        Ok(Completion::Reply)
    }

    pub(super) fn setattr(
        &self,
        header: &InHeader,
        wire: &abi::SetattrIn,
        reply: &mut ReplyBuf,
    ) -> Outcome {
        let node = &self.nodes.get(header.nodeid)?;
        let valid = SetattrValid::from_bits_retain(wire.valid);
        let when = |field, now, secs, nanos| {
            valid.contains(field).then_some(if valid.contains(now) {
                SetTime::Now
            } else {
                SetTime::At(Timestamp { secs, nanos })
            })
        };
        let (atime, atime_now) = (SetattrValid::ATIME, SetattrValid::ATIME_NOW);
        let (mtime, mtime_now) = (SetattrValid::MTIME, SetattrValid::MTIME_NOW);
        let writeback = self.settings.agreed.writeback;
        let keep_priv = node.kind() == FileKind::Regular && keeps_privileges(valid, writeback);
        let changes = SetAttr {
            perm: valid
                .contains(SetattrValid::MODE)
                .then_some(perm(wire.mode)),
            uid: valid.contains(SetattrValid::UID).then_some(wire.uid),
            gid: valid.contains(SetattrValid::GID).then_some(wire.gid),
            size: valid.contains(SetattrValid::SIZE).then_some(wire.size),
            atime: when(atime, atime_now, wire.atime, wire.atimensec),
            mtime: when(mtime, mtime_now, wire.mtime, wire.mtimensec),
            ctime: valid.contains(SetattrValid::CTIME).then_some(Timestamp {
                secs: wire.ctime,
                nanos: wire.ctimensec,
            }),
            kill_priv: valid.contains(SetattrValid::KILL_SUIDGID) && !keep_priv,
            keep_priv,
            noted: valid == WRITTEN || is_touch(valid, wire),
        };
        // Whether the caller may set the set-group-id bit the kernel has found out, if it checks
        // permissions: it knows all their groups.
        let mut cred = super::cred(header, 0);
        if let Some(perm) = changes.perm {
            cred.privileged = self.keeps_set_gid(header, node, perm)?;
        }
        let attr = match self.ignores_times(header, node, valid) {
            true => self.volume.getattr(node)?,
            false => self.volume.setattr(node, &changes, &cred)?,
        };
        // Of files with a cache for writes the kernel keeps the time that it has sent.
        let kept = writeback && node.kind() == FileKind::Regular;
        if kept && matches!(changes.mtime, Some(SetTime::At(t)) if t.secs != attr.mtime.secs) {
            self.note_wrong(header.nodeid);
        }
        reply.put(&self.attr_out(&attr))?;
        Ok(Completion::Reply)
    }

    pub(super) fn getxattr(
        &self,
        header: &InHeader,
        name: &[u8],
        size: u32,
        reply: &mut ReplyBuf,
    ) -> Outcome {
        if name == crate::CONTROL_ATTRIBUTE.as_bytes() && !self.device.is_guest() {
            return reply_xattr(&self.settings.control, size, reply);
        }
        if name == live::STATS_ATTRIBUTE.as_bytes() {
            // User N of a guest is not user N of this host.
            let may_ask = match self.device.is_guest() {
                true => header.uid == 0,
                false => live::allowed(header.uid),
            };
            if !may_ask {
                return Err(Errno::ACCESS);
            }
            let requests = (self.counters, self.device.traffic());
            let full = &self.full;
            let drains = [&full.drains, &full.failed_drains];
            let drains = drains.map(|count| count.load(Ordering::Relaxed));
            let list = live::list(self.volume, &self.settings.facts, requests, drains);
            return reply_xattr(list.as_bytes(), size, reply);
        }
        let value = self
            .volume
            .getxattr(&self.nodes.get(header.nodeid)?, name)?;
        reply_xattr(&value, size, reply)
    }

    pub(super) fn listxattr(
        &self,
        header: &InHeader,
        node: &Node,
        size: u32,
        reply: &mut ReplyBuf,
    ) -> Outcome {
        let mut list = Vec::new();
        for name in self.volume.listxattr(node)? {
            // The kernel keeps the values from others, not the names.
            if header.uid != 0 && name.starts_with(TRUSTED) {
                continue;
            }
            list.extend_from_slice(&name);
            list.push(0);
        }
        reply_xattr(&list, size, reply)
    }

    pub(super) fn setxattr(
        &self,
        header: &InHeader,
        node: &Node,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_sgid: bool,
    ) -> Outcome {
        let mode = match flags & (XATTR_CREATE | XATTR_REPLACE) {
            0 => XattrMode::Either,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno::INVAL),
        };
        // Whether the caller may keep the set-group-id bit the kernel has found out: it knows all
        // their groups.
        let mut cred = super::cred(header, 0);
        let perm = self.volume.getattr(node)?.perm;
        cred.privileged = !kill_sgid && self.keeps_set_gid(header, node, perm)?;
        self.volume.setxattr(node, name, value, mode, &cred)?;
        if !self.settings.agreed.kernel_checks && name == ACCESS_ACL {
            // The mode may have changed, which a kernel without ACLs does not expect.
            self.notify_inval_attributes(header.nodeid);
        }
        Ok(Completion::Reply)
    }

    /// Attributes, for as long as the kernel may keep them.
    pub(super) fn attr_out(&self, attr: &Attr) -> AttrOut {
        AttrOut {
            attr_valid: self.attr_valid(attr),
            attr: attr_wire(attr),
            ..AttrOut::default()
        }
    }
}

/// Replies with a value, or only with its size if the caller has no room at all.
fn reply_xattr(value: &[u8], size: u32, reply: &mut ReplyBuf) -> Outcome {
    if size == 0 {
        let size = u32::try_from(value.len()).map_err(|_| Errno::IO)?;
        reply.put(&GetxattrOut { size, padding: 0 })?;
    } else if value.len() > size as usize {
        return Err(Errno::RANGE);
    } else {
        reply.put_bytes(value)?;
    }
    Ok(Completion::Reply)
}
