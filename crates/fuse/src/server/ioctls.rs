//! The ioctls that the kernel passes on: those behind chattr, and those of the whole volume.
//!
//! It passes on what describes its arguments in the command's number.

use extant_engine::Node;

use super::{Done, Outcome, Server};
use crate::abi::{InHeader, IoctlOut};
use crate::errno::Errno;
use crate::live;
use crate::reply::ReplyBuf;
use crate::resize;

/// Commands, as `ioctl(2)` has them.
mod command {
    pub(super) const GETFLAGS: u32 = 0x8008_6601;
    pub(super) const SETFLAGS: u32 = 0x4008_6602;
    pub(super) const GETFLAGS_32: u32 = 0x8004_6601;
    pub(super) const SETFLAGS_32: u32 = 0x4004_6602;
    pub(super) const GETVERSION: u32 = 0x8008_7601;
    pub(super) const GETVERSION_32: u32 = 0x8004_7601;
    pub(super) const FSGETXATTR: u32 = 0x801c_581f;
    pub(super) const FSSETXATTR: u32 = 0x401c_5820;
    pub(super) const SHUTDOWN: u32 = 0x8004_587d;
    pub(super) const FITRIM: u32 = 0xc018_5879;
    pub(super) use crate::resize::GROW;
    pub(super) const RESIZE_FS: u32 = 0x4008_6610;
    pub(super) const GETFSLABEL: u32 = 0x8100_9431;
    pub(super) const SETFSLABEL: u32 = 0x4100_9432;
}

/// Bytes of `struct fsxattr`, and where the project id stands in it.
const FSXATTR_LEN: usize = 28;
const FSXATTR_PROJECT: usize = 12;

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
        let cred = super::cred(header, 0);
        let mut answer = Vec::new();
        match command {
            command::GETFLAGS | command::GETFLAGS_32 => {
                answer.extend_from_slice(&self.volume.flags(node)?.to_ne_bytes());
            }
            command::SETFLAGS | command::SETFLAGS_32 => {
                self.volume.set_flags(node, word(0)?, &cred)?;
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
                self.volume
                    .set_xflags(node, word(0)?, word(FSXATTR_PROJECT)?, &cred)?;
            }
            _ => answer = self.volume_ioctl(header, command, data)?,
        }
        if answer.len() > out_size as usize {
            return Err(Errno::INVAL);
        }
        reply.put(&IoctlOut::default())?;
        reply.put_bytes(&answer)?;
        Ok(Done::Reply)
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
        let roots = [command::SHUTDOWN, command::FITRIM, command::SETFSLABEL];
        if !roots.contains(&command) {
            return Err(Errno::NOTTY);
        }
        if header.uid != 0 {
            return Err(Errno::PERM);
        }
        match command {
            // The command's number says that it returns a word, though it takes one: FUSE does not
            // pass it on. What was done so far is committed, which is the second of the three ways
            // that ext4 knows.
            command::SHUTDOWN => self.volume.shutdown(true)?,
            command::FITRIM => return self.trim(data),
            _ => {
                let label = data.split(|&byte| byte == 0).next();
                self.volume.set_label(label.unwrap_or_default())?;
            }
        }
        Ok(Vec::new())
    }

    /// RESIZE_FS takes a number of blocks, GROW one of bytes, and answers why it did not grow.
    fn grow(&self, header: &InHeader, command: u32, data: &[u8]) -> Result<Vec<u8>, Errno> {
        if !live::allowed(header.uid) {
            return Err(Errno::PERM);
        }
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
