//! Directories: looking up, listing, and everything that changes an entry.

use extant_engine::{Cred, Dirent, Error, FileKind, Ino, Node, RenameFlags};

use super::{Completion, Outcome, Server, attr_wire, ino_of, low_bits, perm};
use crate::abi::{self, DirentHead, EntryOut};
use crate::errno::Errno;
use crate::reply::ReplyBuf;

/// A directory entry, copied out so that its inode can be loaded with no lock of the directory
/// held.
struct Listed {
    ino: Ino,
    kind: Option<FileKind>,
    name: Vec<u8>,
    next_pos: u64,
}

impl Server<'_> {
    /// A name that is missing is an answer too, and as good for as long: the kernel makes the next
    /// entry itself.
    pub(super) fn lookup(&self, parent: u64, name: &[u8], reply: &mut ReplyBuf) -> Outcome {
        let found = match name {
            // File handles (NFS) are opened by these two; the node may be one that the kernel has
            // forgotten.
            b"." => self.by_number(parent)?,
            b".." => {
                let dir = self.by_number(parent)?;
                self.volume.lookup(&dir, name)?
            }
            _ => match self.volume.lookup(&self.nodes.get(parent)?, name) {
                Ok(node) => node,
                Err(Error::NotFound) => {
                    reply.put(&EntryOut {
                        entry_valid: self.name_valid(),
                        ..EntryOut::default()
                    })?;
                    return Ok(Completion::Reply);
                }
                Err(error) => return Err(error.into()),
            },
        };
        self.reply_entry(&found, reply)
    }

    fn by_number(&self, id: u64) -> Result<Node, Errno> {
        match self.nodes.get(id) {
            Ok(node) => Ok(node),
            Err(_) => Ok(self.volume.node(ino_of(id).ok_or(Errno::STALE)?)?),
        }
    }

    /// Replies with the entry of `node`, which counts a lookup of it.
    fn reply_entry(&self, node: &Node, reply: &mut ReplyBuf) -> Outcome {
        let attr = self.volume.getattr(node)?;
        let entry = self.entry_counted(node, &attr);
        reply.put(&entry)?;
        Ok(Completion::Entries(vec![entry.nodeid]))
    }

    pub(super) fn readdir(
        &self,
        dir: &Node,
        offset: u64,
        size: u32,
        plus: bool,
        reply: &mut ReplyBuf,
    ) -> Outcome {
        let limit = (size as usize).min(crate::init::REPLY_LEN);
        if !plus {
            let mut failed = Ok(());
            self.volume.readdir(dir, offset, &mut |entry| {
                let head = self.dirent_head(entry.ino, entry.kind, entry.name, entry.next_pos);
                let fits = head.and_then(|head| reply.put_dirent(limit, None, &head, entry.name));
                fits.unwrap_or_else(|errno| {
                    failed = Err(errno);
                    false
                })
            })?;
            failed?;
            return Ok(Completion::Reply);
        }
        let mut ids = Vec::new();
        for entry in self.list(dir, offset, limit)? {
            let head = self.dirent_head(entry.ino, entry.kind, &entry.name, entry.next_pos)?;
            let with = match entry.name.as_slice() {
                b"." | b".." => None,
                // An inode that cannot be loaded keeps its name; looking it up will say what is
                // wrong with it.
                _ => self
                    .volume
                    .node(entry.ino)
                    .and_then(|node| {
                        let attr = self.volume.getattr(&node)?;
                        Ok((node, attr))
                    })
                    .ok(),
            };
            let mut out = EntryOut::default();
            if let Some((node, attr)) = &with {
                out.nodeid = self.nodes.id(attr.ino);
                out.generation = u64::from(node.generation());
                (out.entry_valid, out.attr_valid) = (self.name_valid(), self.attr_valid(attr));
                out.attr = attr_wire(attr);
            }
            if !reply.put_dirent(limit, Some(&out), &head, &entry.name)? {
                break;
            }
            // Named only now that it is known to fit.
            if let Some((node, _)) = &with {
                let id = self.nodes.remember(node);
                ids.push(id);
            }
        }
        Ok(Completion::Entries(ids))
    }

    /// The entries from `offset` on that fill a listing with attributes of `limit` bytes.
    fn list(&self, dir: &Node, offset: u64, limit: usize) -> Result<Vec<Listed>, Errno> {
        let fixed = size_of::<EntryOut>() + size_of::<DirentHead>();
        let mut room = limit;
        let mut entries = Vec::with_capacity(limit / (fixed + 16) + 1);
        self.volume.readdir(dir, offset, &mut |entry: Dirent<'_>| {
            let len = (fixed + entry.name.len()).next_multiple_of(8);
            let fits = len <= room;
            if fits {
                room -= len;
                let Dirent {
                    ino,
                    kind,
                    name,
                    next_pos,
                } = entry;
                entries.push(Listed {
                    ino,
                    kind,
                    name: name.to_vec(),
                    next_pos,
                });
            }
            fits
        })?;
        Ok(entries)
    }

    fn dirent_head(
        &self,
        ino: Ino,
        kind: Option<FileKind>,
        name: &[u8],
        next_pos: u64,
    ) -> Result<DirentHead, Errno> {
        Ok(DirentHead {
            ino: ino.get().into(),
            off: next_pos,
            namelen: u32::try_from(name.len()).map_err(|_| Errno::IO)?,
            kind: kind.map_or(0, |kind| u32::from(kind.mode_bits() >> 12)),
        })
    }

    /// The credentials of a caller that makes a file in `dir`. A request names one group of it:
    /// where the kernel has left the set-group-id bit in `mode`, the caller is in the directory's
    /// group.
    fn creator_cred(&self, dir: &Node, mode: u32, cred: &Cred) -> Result<Cred, Errno> {
        const SET_GID: u16 = 0o2000;
        let mut cred = cred.clone();
        if perm(mode) & SET_GID != 0 && self.settings.agreed.checks_set_gid {
            cred.groups.push(self.volume.getattr(dir)?.gid);
        }
        Ok(cred)
    }

    pub(super) fn mknod(
        &self,
        dir: &Node,
        name: &[u8],
        mode: u32,
        rdev: u32,
        cred: &Cred,
        reply: &mut ReplyBuf,
    ) -> Outcome {
        let kind = FileKind::from_mode(low_bits(mode)).ok_or(Errno::INVAL)?;
        let (perm, cred) = (perm(mode), self.creator_cred(dir, mode, cred)?);
        let node = self.volume.mknod(dir, name, kind, perm, rdev, &cred)?;
        self.reply_entry(&node, reply)
    }

    pub(super) fn mkdir(
        &self,
        dir: &Node,
        name: &[u8],
        mode: u32,
        cred: &Cred,
        reply: &mut ReplyBuf,
    ) -> Outcome {
        let node = self.volume.mkdir(dir, name, perm(mode), cred)?;
        self.reply_entry(&node, reply)
    }

    pub(super) fn symlink(
        &self,
        dir: &Node,
        name: &[u8],
        target: &[u8],
        cred: &Cred,
        reply: &mut ReplyBuf,
    ) -> Outcome {
        let node = self.volume.symlink(dir, name, target, cred)?;
        self.reply_entry(&node, reply)
    }

    /// Creating and opening in one. Where opens send no message this one is declined, once: the
    /// kernel then uses MKNOD, and saves the RELEASE that would follow a CREATE.
    pub(super) fn create(
        &self,
        dir: &Node,
        name: &[u8],
        mode: u32,
        cred: &Cred,
        reply: &mut ReplyBuf,
    ) -> Outcome {
        if !self.kernel_sends_open() {
            return Err(Errno::NOSYS);
        }
        let cred = self.creator_cred(dir, mode, cred)?;
        let node = self.volume.create(dir, name, perm(mode), &cred)?;
        self.reply_entry_and_open(&node, reply)
    }

    pub(super) fn tmpfile(
        &self,
        dir: &Node,
        mode: u32,
        cred: &Cred,
        reply: &mut ReplyBuf,
    ) -> Outcome {
        let cred = self.creator_cred(dir, mode, cred)?;
        let node = self.volume.tmpfile(dir, perm(mode), &cred)?;
        self.reply_entry_and_open(&node, reply)
    }

    /// Replies with the entry of `node`, which was made, and with a handle opened for writing.
    fn reply_entry_and_open(&self, node: &Node, reply: &mut ReplyBuf) -> Outcome {
        let attr = self.volume.getattr(node)?;
        let mut entry = self.entry_counted(node, &attr);
        let handle = self.register_writer(entry.nodeid, node, &attr);
        let handle = handle.inspect_err(|_| self.forget(entry.nodeid, 1))?;
        // Not before: from here on the file is armed when space becomes short.
        entry.attr_valid = self.attr_valid(&attr);
        reply.put(&entry)?;
        reply.put(&super::data::open_reply(abi::FOPEN_KEEP_CACHE, handle))?;
        Ok(Completion::Open {
            node: entry.nodeid,
            handle,
            named: true,
        })
    }

    pub(super) fn link(
        &self,
        old: u64,
        dir: &Node,
        name: &[u8],
        cred: &Cred,
        reply: &mut ReplyBuf,
    ) -> Outcome {
        let node = self.nodes.get(old)?;
        self.volume.link(&node, dir, name, cred)?;
        self.reply_entry(&node, reply)
    }

    pub(super) fn rename(
        &self,
        dir: &Node,
        name: &[u8],
        new_dir: u64,
        new_name: &[u8],
        flags: u32,
        cred: &Cred,
    ) -> Outcome {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        let new_dir = self.nodes.get(new_dir)?;
        self.volume
            .rename(dir, name, &new_dir, new_name, flags, cred)?;
        Ok(Completion::Reply)
    }
}
