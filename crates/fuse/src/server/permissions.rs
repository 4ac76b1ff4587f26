//! Checks of permissions, on a mount whose kernel leaves them to the server
//! (`nodefault_permissions`).
//!
//! # Responsibility
//! [`Server::check_permission`] refuses a request as Linux's virtual file system would, had it the
//! mode, the owner and the ACL of each file. The kernel goes on to check the sticky bit, the rules
//! for `trusted.*` and `security.*` attributes, and that of a program some class has the bit for
//! execution.
//!
//! # Invariants
//! - The mount has one user: the kernel lets no process in whose real, effective and saved ids are
//!   not all those of the mount's. (A server in the kernel, of NFS, passes as root and acts for
//!   others: what `/proc` says of its thread does not count.)
//! - Groups and capabilities are looked up where mode and ACL do not decide without them. What
//!   cannot be looked up grants nothing.
//! - Times that the kernel reports of a file that it has changed are never refused: the error would
//!   be that of a later fsync.

use extant_engine::{FileKind, Node, RenameFlags};
use rustix::thread::CapabilitySet;
use tracing::debug;

use super::attrs::{is_report_of_times, is_touch};
use super::{Completion, Outcome, Server};
use crate::abi::{InHeader, SetattrIn, SetattrValid};
use crate::capabilities::Caller;
use crate::errno::Errno;
use crate::request::Op;

const READ: u16 = 4;
pub(super) const WRITE: u16 = 2;
const EXECUTE: u16 = 1;
/// To add names to a directory, and to take some off.
const CHANGE_NAMES: u16 = WRITE | EXECUTE;

/// `O_ACCMODE`, and the flag of an open file that is to be executed (`__FMODE_EXEC`).
const O_ACCMODE: u32 = 3;
const FMODE_EXEC: u32 = 0x20;
/// Execution by any class.
const ANY_EXECUTE: u16 = 0o111;
const SET_GID: u16 = 0o2000;

/// The prefix of ACLs, which the owner sets. (Linux checks it by itself from 6.2 on.)
const ACLS: &[u8] = b"system.posix_acl_";

/// The prefix of attributes that the permissions for a file's content are for.
const USER: &[u8] = b"user.";

/// Permissions that an open with these flags needs.
fn wanted_by_open(flags: u32) -> u16 {
    match flags & O_ACCMODE {
        0 if flags & FMODE_EXEC != 0 => EXECUTE,
        0 => READ,
        1 => WRITE,
        // The fourth value is for ioctls alone, and needs both.
        _ => READ | WRITE,
    }
}

/// Returns whether these capabilities stand in for permissions that a file does not grant.
fn overrides(capabilities: CapabilitySet, kind: FileKind, perm: u16, wanted: u16) -> bool {
    let is_dir = kind == FileKind::Directory;
    let reads = if is_dir {
        wanted & WRITE == 0
    } else {
        wanted == READ
    };
    let can_execute = is_dir || wanted & EXECUTE == 0 || perm & ANY_EXECUTE != 0;
    can_execute && capabilities.contains(CapabilitySet::DAC_OVERRIDE)
        || reads && capabilities.contains(CapabilitySet::DAC_READ_SEARCH)
}

/// Returns whether both times become "now", by the server's clock.
fn is_now(valid: SetattrValid) -> bool {
    let atime = SetattrValid::ATIME | SetattrValid::ATIME_NOW;
    valid.contains(atime | SetattrValid::MTIME | SetattrValid::MTIME_NOW)
}

impl Server<'_> {
    /// Refuses an operation that the caller may not do, as Linux does.
    pub(super) fn check_permission(&self, header: &InHeader, op: &Op<'_>) -> Result<(), Errno> {
        let node = || self.nodes.get(header.nodeid);
        let is_allowed = |wanted| self.check(header, &node()?, wanted);
        match *op {
            // These two open file handles, for which no directory is searched.
            Op::Lookup { name: b"." | b".." } => Ok(()),
            Op::Lookup { .. } => is_allowed(EXECUTE),
            Op::Mknod { .. }
            | Op::Mkdir { .. }
            | Op::Symlink { .. }
            | Op::Create { .. }
            | Op::Tmpfile { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. } => is_allowed(CHANGE_NAMES),
            Op::Link { node: old, .. } => {
                self.check_link_source(header, &self.nodes.get(old)?)?;
                is_allowed(CHANGE_NAMES)
            }
            Op::Rename {
                name,
                new_dir,
                new_name,
                flags,
            } => {
                let (dir, new_dir) = (&node()?, &self.nodes.get(new_dir)?);
                self.check(header, dir, CHANGE_NAMES)?;
                if dir.ino() == new_dir.ino() {
                    return Ok(());
                }
                self.check(header, new_dir, CHANGE_NAMES)?;
                self.check_moved(header, dir, name)?;
                match flags & RenameFlags::EXCHANGE.bits() != 0 {
                    true => self.check_moved(header, new_dir, new_name),
                    false => Ok(()),
                }
            }
            Op::Open { flags } => is_allowed(wanted_by_open(flags)),
            Op::Opendir => is_allowed(READ),
            Op::Access { mask } => self.check_access(header, &node()?, mask),
            Op::Setattr(changes) => self.check_setattr(header, &node()?, changes),
            Op::Getxattr { name, .. } if name.starts_with(USER) => is_allowed(READ),
            Op::Setxattr { name, .. } | Op::Removexattr { name } if name.starts_with(USER) => {
                is_allowed(WRITE)
            }
            Op::Setxattr { name, .. } | Op::Removexattr { name } if name.starts_with(ACLS) => {
                self.check_owns(header, &node()?)
            }
            _ => Ok(()),
        }
    }

    /// access(2), whose permissions were checked. Where the kernel checks them it sends none.
    pub(super) fn access(&self) -> Outcome {
        match self.settings.agreed.kernel_checks {
            true => Err(Errno::NOSYS),
            false => Ok(Completion::Reply),
        }
    }

    /// Returns whether a change of `node` leaves it the set-group-id bit of `perm`, where this
    /// server has to know: the caller is in the file's group, or has the capability.
    pub(super) fn keeps_set_gid(
        &self,
        header: &InHeader,
        node: &Node,
        perm: u16,
    ) -> Result<bool, Errno> {
        if self.settings.agreed.kernel_checks || perm & SET_GID == 0 {
            return Ok(true);
        }
        let group = self.volume.getattr(node)?.gid;
        Ok(self.is_member(header, group).unwrap_or(false)
            || self.capabilities(header).contains(CapabilitySet::FSETID))
    }

    pub(super) fn check(&self, header: &InHeader, node: &Node, wanted: u16) -> Result<(), Errno> {
        if self.grants(header, node, wanted)? {
            return Ok(());
        }
        let attr = self.volume.getattr(node)?;
        match overrides(self.capabilities(header), attr.kind, attr.perm, wanted) {
            true => Ok(()),
            false => Err(Errno::ACCESS),
        }
    }

    /// Returns whether mode and ACL grant what is wanted.
    fn grants(&self, header: &InHeader, node: &Node, wanted: u16) -> Result<bool, Errno> {
        let mut is_known = true;
        let mut in_group = |gid| {
            let found = self.is_member(header, gid);
            is_known &= found.is_some();
            found.unwrap_or(false)
        };
        let grants = self
            .volume
            .grants(node, header.uid, wanted, &mut in_group)?;
        // To others a mode may grant more than to its group.
        Ok(grants && is_known)
    }

    /// Returns whether the caller is in a group; `None` if that cannot be found out.
    fn is_member(&self, header: &InHeader, gid: u32) -> Option<bool> {
        if header.gid == gid {
            return Some(true);
        }
        let found = self.settings.point.is_in_group(Caller::of(header), gid);
        found
            .inspect_err(|error| debug!("groups of thread {} are not known: {error}", header.pid))
            .ok()
    }

    /// access(2) asks for the real user, which has capabilities if it is root.
    fn check_access(&self, header: &InHeader, node: &Node, mask: u32) -> Result<(), Errno> {
        let wanted = super::low_bits(mask) & (READ | WRITE | EXECUTE);
        match header.uid {
            0 => self.check(header, node, wanted),
            _ if self.grants(header, node, wanted)? => Ok(()),
            _ => Err(Errno::ACCESS),
        }
    }

    fn check_owns(&self, header: &InHeader, node: &Node) -> Result<(), Errno> {
        match self.volume.getattr(node)?.uid == header.uid {
            true => Ok(()),
            false => self.check_has(header, CapabilitySet::FOWNER),
        }
    }

    /// Returns whether a request that reports the times of a file, as the kernel does of one that
    /// it has written, is to be ignored: it may come from a caller that may neither set nor write
    /// the file. An error would be that of a later fsync.
    pub(super) fn ignores_times(
        &self,
        header: &InHeader,
        node: &Node,
        valid: SetattrValid,
    ) -> bool {
        !self.settings.agreed.kernel_checks
            && is_report_of_times(valid)
            && !valid.contains(SetattrValid::FH)
            && self.check_owns(header, node).is_err()
            && self.check(header, node, WRITE).is_err()
    }

    /// A further name of a file is for its owner and for callers that may read and write it, as
    /// with `protected_hardlinks`.
    fn check_link_source(&self, header: &InHeader, node: &Node) -> Result<(), Errno> {
        if self.volume.getattr(node)?.uid == header.uid {
            return Ok(());
        }
        self.check(header, node, READ | WRITE)
            .or_else(|_| self.check_has(header, CapabilitySet::FOWNER))
    }

    /// A directory that moves to another one has its entry `..` changed.
    fn check_moved(&self, header: &InHeader, dir: &Node, name: &[u8]) -> Result<(), Errno> {
        let moved = self.volume.lookup(dir, name)?;
        match moved.kind() {
            FileKind::Directory => self.check(header, &moved, WRITE),
            _ => Ok(()),
        }
    }

    fn check_setattr(&self, header: &InHeader, node: &Node, wire: &SetattrIn) -> Result<(), Errno> {
        let valid = SetattrValid::from_bits_retain(wire.valid);
        let attr = self.volume.getattr(node)?;
        let owns = attr.uid == header.uid;
        let (owner, group) = (SetattrValid::UID, SetattrValid::GID);
        let keeps_owner = !valid.contains(owner) || owns && wire.uid == attr.uid;
        let joins = |gid| gid == attr.gid || self.is_member(header, gid).unwrap_or(false);
        let keeps_group = !valid.contains(group) || owns && joins(wire.gid);
        if !keeps_owner || !keeps_group {
            self.check_has(header, CapabilitySet::CHOWN)?;
        }
        if valid.contains(SetattrValid::MODE) && !owns {
            self.check_has(header, CapabilitySet::FOWNER)?;
        }
        if valid.contains(SetattrValid::SIZE) {
            // Through a handle: it is one that may write.
            return match valid.contains(SetattrValid::FH) {
                true => Ok(()),
                false => self.check(header, node, WRITE),
            };
        }
        let sets_times = valid.intersects(SetattrValid::ATIME | SetattrValid::MTIME);
        if owns || !sets_times || is_report_of_times(valid) {
            return Ok(());
        }
        let refused = match is_now(valid) || is_touch(valid, wire) {
            true if self.check(header, node, WRITE).is_ok() => return Ok(()),
            true => Errno::ACCESS,
            false => Errno::PERM,
        };
        self.check_has(header, CapabilitySet::FOWNER)
            .map_err(|_| refused)
    }

    /// Refuses callers without a capability.
    fn check_has(&self, header: &InHeader, capability: CapabilitySet) -> Result<(), Errno> {
        match self.capabilities(header).contains(capability) {
            true => Ok(()),
            false => Err(Errno::PERM),
        }
    }
}

#[cfg(test)]
mod tests;
