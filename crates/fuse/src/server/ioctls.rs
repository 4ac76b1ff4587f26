//! The ioctls that the kernel passes on: those behind chattr, and those of the whole volume.
//!
//! It passes on what describes its arguments in the command's number.
//!
//! # Invariants
//! Each command that changes something checks its caller here. The kernel checks those of chattr
//! alone, since Linux 5.13, and only under the numbers for its native word size, not under those of
//! 32-bit programs.
//!
//! | command | for |
//! |---|---|
//! | SETFLAGS, FSSETXATTR | the owner, uid 0, and callers with `CAP_FOWNER` |
//! | journalled data | callers with `CAP_SYS_RESOURCE` or `CAP_SYS_ADMIN` among them |
//! | ENABLE_VERITY | callers that may write the file |
//! | POLICY, to set one | the owner, by the engine |
//! | KEY, but to ask for its state | the same as SHUTDOWN |
//! | SHUTDOWN, FITRIM, SETFSLABEL | the daemon's user, and callers with `CAP_SYS_ADMIN` |
//! | NEXT_QUOTA, SET_QUOTA | the same |
//! | RESIZE_FS, GROW | those, and callers with `CAP_SYS_RESOURCE` |
//!
//! The daemon's user counts unless that is root: a container's root has the same number.

use extant_engine::{Cred, Error, Node};
use rustix::process::geteuid;
use rustix::thread::CapabilitySet;
use tracing::debug;

use super::{Completion, Outcome, Server};
use crate::abi::{InHeader, IoctlOut};
use crate::capabilities::Caller;
use crate::errno::Errno;
use crate::quotas::{self, QuotaChange};
use crate::reply::ReplyBuf;
use crate::resize;

/// Commands, as `ioctl(2)` has them.
mod command {
    pub(super) const GETFLAGS: u32 = 0x8008_6601;
    pub(super) const SETFLAGS: u32 = 0x4008_6602;
    pub(super) const GETVERSION: u32 = 0x8008_7601;
    pub(super) const GETVERSION_32: u32 = 0x8004_7601;
    pub(super) const FSGETXATTR: u32 = 0x801c_581f;
    pub(super) const FSSETXATTR: u32 = 0x401c_5820;
    pub(super) const SHUTDOWN: u32 = 0x8004_587d;
    pub(super) const FITRIM: u32 = 0xc018_5879;
    pub(super) use crate::keys::{KEY, POLICY};
    pub(super) use crate::quotas::{NEXT as NEXT_QUOTA, SET as SET_QUOTA};
    pub(super) use crate::resize::GROW;
    pub(super) use crate::sealing::{ENABLE as ENABLE_VERITY, MEASURE as MEASURE_VERITY};
    pub(super) const RESIZE_FS: u32 = 0x4008_6610;
    pub(super) const GETFSLABEL: u32 = 0x8100_9431;
    pub(super) const SETFSLABEL: u32 = 0x4100_9432;
}

/// Bytes of `struct fsxattr`, and where the project id stands in it.
const FSXATTR_LEN: usize = 28;
const FSXATTR_PROJECT: usize = 12;

/// `FS_JOURNAL_DATA_FL`.
const JOURNAL_DATA: u32 = 0x4000;
/// `FS_IMMUTABLE_FL` and `FS_APPEND_FL`. The bits of `FS_XFLAG_*` for them are half as large.
const IMMUTABLE_OR_APPEND: u32 = 0x30;

/// Each of them lets a caller take more of the volume than others.
const RESOURCES: CapabilitySet = CapabilitySet::SYS_RESOURCE.union(CapabilitySet::SYS_ADMIN);

/// Bytes of a label with the zeros behind it.
const LABEL_LEN: usize = 256;

impl Server<'_> {
    pub(super) fn ioctl(
        &self,
        header: &InHeader,
        node: &Node,
        command: u32,
        data: &[u8],
        out_size: u32,
        reply: &mut ReplyBuf,
    ) -> Outcome {
        let word = |at: usize| {
            let bytes = data.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_ne_bytes).ok_or(Errno::INVAL)
        };
        let mut answer = Vec::new();
        match command {
            command::GETFLAGS => {
                answer.extend_from_slice(&self.volume.flags(node)?.to_ne_bytes());
            }
            command::SETFLAGS => {
                let flags = word(0)?;
                let changed = flags ^ self.volume.flags(node)?;
                let cred = self.cred_to_set_flags(header, node, changed)?;
                self.volume.set_flags(node, flags, &cred)?;
            }
            command::GETVERSION | command::GETVERSION_32 => {
                answer.extend_from_slice(&node.generation().to_ne_bytes());
            }
            command::FSGETXATTR => {
                let (xflags, project) = self.volume.xflags(node)?;
                answer.resize(FSXATTR_LEN, 0);
                answer[..4].copy_from_slice(&xflags.to_ne_bytes());
                answer[FSXATTR_PROJECT..FSXATTR_PROJECT + 4]
                    .copy_from_slice(&project.to_ne_bytes());
            }
            command::FSSETXATTR => {
                let (xflags, project) = (word(0)?, word(FSXATTR_PROJECT)?);
                let changed = (xflags ^ self.volume.xflags(node)?.0) << 1;
                let cred = self.cred_to_set_flags(header, node, changed & IMMUTABLE_OR_APPEND)?;
                self.volume.set_xflags(node, xflags, project, &cred)?;
            }
            command::ENABLE_VERITY => self.enable_verity(header, node, data)?,
            command::MEASURE_VERITY => answer = self.measure_verity(node, data)?,
            command::POLICY => answer = self.policy_request(header, node, data)?,
            _ => answer = self.volume_ioctl(header, command, data)?,
        }
        if answer.len() > out_size as usize {
            return Err(Errno::INVAL);
        }
        reply.put(&IoctlOut::default())?;
        reply.put_bytes(&answer)?;
        Ok(Completion::Reply)
    }

    /// The caller as one that may change the flags of `node`; privileged if it has the capabilities
    /// for those that are `changed`.
    fn cred_to_set_flags(
        &self,
        header: &InHeader,
        node: &Node,
        changed: u32,
    ) -> Result<Cred, Errno> {
        let mut cred = super::cred(header, 0);
        let owner = self.volume.getattr(node)?.uid;
        // The kernel has checked a caller with uid 0. Its capabilities are not looked up here:
        // under overlayfs the request is the mounter's, and the thread that waits is another
        // process's.
        let owns = cred.uid == owner || cred.uid == 0;
        if !owns && !self.capabilities(header).contains(CapabilitySet::FOWNER) {
            return Err(Errno::PERM);
        }
        let fixed = changed & IMMUTABLE_OR_APPEND != 0;
        if fixed && !cred.privileged {
            let capabilities = self.capabilities(header);
            cred.privileged = capabilities.contains(CapabilitySet::LINUX_IMMUTABLE);
        }
        if changed & JOURNAL_DATA != 0 {
            let may_change_protection = !fixed || cred.privileged;
            cred.privileged =
                may_change_protection && self.capabilities(header).intersects(RESOURCES);
        }
        Ok(cred)
    }

    /// Refuses callers that may not change the whole volume, for which they need one of `wanted`.
    fn check_may_administer(&self, header: &InHeader, wanted: CapabilitySet) -> Result<(), Errno> {
        let user = geteuid();
        let of_host = !self.device.is_guest();
        let own = of_host && !user.is_root() && header.uid == user.as_raw();
        if own || self.capabilities(header).intersects(wanted) {
            return Ok(());
        }
        Err(Errno::PERM)
    }

    /// The caller's capabilities; none where they cannot be found out.
    pub(super) fn capabilities(&self, header: &InHeader) -> CapabilitySet {
        let found = self.settings.point.capabilities_of(Caller::of(header));
        found.unwrap_or_else(|error| {
            debug!("what thread {} may do is not known: {error}", header.pid);
            CapabilitySet::empty()
        })
    }

    /// Commands to the volume, on any file of it; returns what they answer.
    fn volume_ioctl(&self, header: &InHeader, command: u32, data: &[u8]) -> Result<Vec<u8>, Errno> {
        if command == command::GETFSLABEL {
            let mut label = self.volume.label()?;
            label.resize(LABEL_LEN, 0);
            return Ok(label);
        }
        if command == command::GROW || command == command::RESIZE_FS {
            return self.grow(header, command, data);
        }
        if command == command::KEY && Self::only_asks(data) {
            return self.key_request(data);
        }
        let administers = [
            command::SHUTDOWN,
            command::FITRIM,
            command::SETFSLABEL,
            command::NEXT_QUOTA,
            command::SET_QUOTA,
            command::KEY,
        ];
        if !administers.contains(&command) {
            return Err(Errno::NOTTY);
        }
        self.check_may_administer(header, CapabilitySet::SYS_ADMIN)?;
        match command {
            // The command's number says that it returns a word, though it takes one: FUSE does not
            // pass it on. What was done so far is committed, which is the second of the three ways
            // that ext4 knows.
            command::SHUTDOWN => self.volume.shutdown(true)?,
            command::FITRIM => return self.trim(data),
            command::KEY => return self.key_request(data),
            command::NEXT_QUOTA => return self.next_quota(data),
            command::SET_QUOTA => self.set_quota(data)?,
            _ => {
                let label = data.split(|&byte| byte == 0).next();
                self.volume.set_label(label.unwrap_or_default())?;
            }
        }
        Ok(Vec::new())
    }

    /// RESIZE_FS takes a number of blocks, GROW one of bytes, and answers why it did not grow.
    fn grow(&self, header: &InHeader, command: u32, data: &[u8]) -> Result<Vec<u8>, Errno> {
        self.check_may_administer(header, RESOURCES)?;
        let asked = resize::asked(data).ok_or(Errno::INVAL)?;
        if command == command::RESIZE_FS {
            let bytes = asked.checked_mul(self.volume.block_size().into());
            self.volume.grow(bytes.ok_or(Errno::INVAL)?)?;
            return Ok(Vec::new());
        }
        let grown = self.volume.grow(asked);
        Ok(resize::answer(
            asked,
            grown.err().map(|error| error.to_string()),
        ))
    }

    /// NEXT_QUOTA: takes a kind of quota and an id; returns the entry of the id, or of the first
    /// one behind it that has one.
    fn next_quota(&self, data: &[u8]) -> Result<Vec<u8>, Errno> {
        let (kind, id) = quotas::asked(data).ok_or(Errno::INVAL)?;
        let (times, entry) = self.volume.next_quota(kind, id)?;
        Ok(quotas::answer(kind, &entry.ok_or(Error::NotFound)?, times))
    }

    /// SET_QUOTA: takes limits of an id, or grace times of a kind of quota.
    fn set_quota(&self, data: &[u8]) -> Result<(), Errno> {
        let (kind, change) = quotas::change(data).ok_or(Errno::INVAL)?;
        match change {
            QuotaChange::Limits(id, limits) => self.volume.set_quota_limits(kind, id, limits)?,
            QuotaChange::Times(times) => self.volume.set_quota_times(kind, times)?,
        }
        Ok(())
    }

    /// FITRIM: takes a `struct fstrim_range` (where to begin, how far to go, the least that is
    /// worth it) and returns it with the bytes trimmed in the place of the length.
    fn trim(&self, data: &[u8]) -> Result<Vec<u8>, Errno> {
        let long = |at: usize| {
            let bytes = data.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u64::from_ne_bytes).ok_or(Errno::INVAL)
        };
        let (start, minimum) = (long(0)?, long(16)?);
        // A length to the end of any volume is usual: the range saturates.
        let range = start..start.saturating_add(long(8)?);
        let trimmed = self.volume.trim(range, minimum)?;
        let answer = [start, trimmed, minimum];
        Ok(answer.into_iter().flat_map(u64::to_ne_bytes).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{IoctlIn, ROOT_ID, op};
    use crate::testing::{FuzzServer, with_server};
    use extant_engine::{SetAttr, VolumeOptions};
    use extant_testkit::{Image, Need, need};
    use zerocopy::IntoBytes;

    const NOATIME: u32 = 0x80;
    const OWNER: u32 = 1000;

    /// Asks for `command` with `data` on the root directory as user `uid`; the error's number.
    fn asked(server: &mut FuzzServer<'_>, uid: u32, command: u32, data: &[u8]) -> i32 {
        let operation = IoctlIn {
            cmd: command,
            in_size: u32::try_from(data.len()).unwrap(),
            ..IoctlIn::default()
        };
        let mut header = InHeader {
            opcode: op::IOCTL,
            unique: 2,
            nodeid: ROOT_ID,
            uid,
            ..InHeader::default()
        };
        let len = header.as_bytes().len() + operation.as_bytes().len() + data.len();
        header.len = u32::try_from(len).unwrap();
        let request = [header.as_bytes(), operation.as_bytes(), data].concat();
        let reply = server.by_device(&request).unwrap();
        -i32::from_ne_bytes(reply[4..8].try_into().unwrap())
    }

    /// Requests that older kernels pass on without looking at the owner.
    #[test]
    fn flags_are_the_owners() {
        if !need(&[Need::Tool("mke2fs")]) {
            return;
        }
        let image = Image::of_mib(16).make().unwrap();
        let volume = VolumeOptions::new().write(true).open(image.path()).unwrap();
        let root = volume.root().unwrap();
        let owned = SetAttr {
            uid: Some(OWNER),
            ..SetAttr::default()
        };
        volume.setattr(&root, &owned, &Cred::root()).unwrap();
        let flags = volume.flags(&root).unwrap();
        let word = (flags | NOATIME).to_ne_bytes();
        let mut common = [0; FSXATTR_LEN];
        common[0] = 0x40;
        let (eperm, enotty) = (-Errno::PERM.negative(), -Errno::NOTTY.negative());
        let answers = with_server(&volume, |server| {
            let mut answers = Vec::new();
            for uid in [OWNER + 1, OWNER, 0] {
                let set = asked(server, uid, command::SETFLAGS, &word);
                let other_view = asked(server, uid, command::FSSETXATTR, &common);
                // The number of 32-bit processes, which no kernel looks at.
                let narrow = asked(server, uid, 0x4004_6602, &word);
                answers.push((uid, set, other_view, narrow));
            }
            answers
        });
        let expected = [
            (OWNER + 1, eperm, eperm, enotty),
            (OWNER, 0, 0, enotty),
            (0, 0, 0, enotty),
        ];
        assert_eq!(answers.unwrap(), expected);
        assert_eq!(volume.flags(&root).unwrap(), flags | NOATIME);
    }
}
