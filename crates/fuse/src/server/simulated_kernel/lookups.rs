//! The life of a process's files as nodes: looked up, opened again, forgotten, removed.

use zerocopy::{FromBytes, IntoBytes};

use super::client::{Client, File, O_RDWR};
use super::pages::PAGE;
use crate::abi::{EntryOut, OpenIn, OpenOut, ROOT_ID, ReleaseIn, op};

impl Client<'_> {
    /// Removes all that it has made, in either order with the last use.
    pub(super) fn leave(&mut self) {
        while !self.files.is_empty() {
            let at = self.files.len() - 1;
            self.compare(at);
            let file = self.files.pop().unwrap();
            self.world.check_lookups(file.id);
            let is_first = self.rng.chance(50);
            if is_first {
                self.unlink(&file.name);
            }
            self.release(&file);
            self.kernel.drop_inode(file.id);
            if !is_first {
                self.unlink(&file.name);
            }
        }
        while let Some((name, id)) = self.directories.pop() {
            self.remove_directory(&name, id);
        }
    }

    fn unlink(&self, name: &str) {
        let of = (ROOT_ID, self.task());
        let reply = self.kernel.call(op::UNLINK, of, name.as_bytes(), None);
        reply.unwrap();
    }

    fn release(&self, file: &File) {
        let release = ReleaseIn {
            fh: file.handle,
            ..ReleaseIn::default()
        };
        let reply = self
            .kernel
            .call(op::RELEASE, (file.id, 0), release.as_bytes(), None);
        reply.unwrap();
    }

    /// Looks a node up again. An answer to an older question tells nothing of the attributes.
    fn look_up(&self, id: u64, name: &str) -> EntryOut {
        let told = self.kernel.inode(id, |inode| inode.told);
        let of = (ROOT_ID, self.task());
        let reply = self.kernel.call(op::LOOKUP, of, name.as_bytes(), None);
        let (entry, _) = EntryOut::read_from_prefix(&reply.unwrap()).unwrap();
        assert_eq!(entry.nodeid, id, "another node of {name}");
        self.kernel.inode(id, |inode| {
            if inode.told == told {
                inode.learn(entry.attr_valid > 0, &entry.attr);
            }
            inode.lookups += 1;
        });
        entry
    }

    pub(super) fn reopen(&mut self, at: usize) {
        let id = self.files[at].id;
        self.kernel.write_back(id);
        if self.rng.chance(50) {
            self.look_up(id, &self.files[at].name);
        }
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

    /// Drops the inode of a file that is not open, and looks the file up again: the FORGET may be
    /// served late.
    pub(super) fn evict(&mut self, at: usize) {
        let file = self.files.swap_remove(at);
        self.kernel.write_back(file.id);
        self.release(&file);
        let mut lost = self.kernel.inode(file.id, |inode| inode.lost.clone());
        self.kernel.drop_inode(file.id);
        let entry = self.look_up(file.id, &file.name);
        // Of what was lost at the end the server does not know.
        let size = entry.attr.size.div_ceil(PAGE);
        assert!(
            size == file.size || !lost.is_empty(),
            "the length of a file"
        );
        let mut content = file.content;
        content.split_off(&size);
        lost.split_off(&size);
        self.kernel.inode(file.id, |inode| {
            inode.size = entry.attr.size;
            inode.lost = lost;
        });
        let open = OpenIn {
            flags: O_RDWR,
            open_flags: 0,
        };
        let of = (file.id, self.task());
        let reply = self.kernel.call(op::OPEN, of, open.as_bytes(), None);
        let (open, _) = OpenOut::read_from_prefix(&reply.unwrap()).unwrap();
        self.kernel.inode(file.id, |inode| inode.handle = open.fh);
        self.files.push(File {
            handle: open.fh,
            content,
            size,
            told: 0,
            base: self.world.failures(file.id),
            is_too_large: false,
            ..file
        });
    }
}
