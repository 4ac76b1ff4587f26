//! A reference to an inode.

use std::fmt;
use std::sync::{Arc, OnceLock};

use extant_units::Ino;

use crate::file::{self, OpenState};
use crate::inode::{Inode, InodeRef};
use crate::types::FileKind;
use crate::volume::Fs;

/// A counted reference to an inode of a [`super::Volume`]. While one exists, the inode keeps its
/// number and its content even if its last name is removed.
///
/// It also stands for an opener of the file: its clones share the state of sequential reading, and
/// are told once of a failed writeback.
#[derive(Clone)]
pub struct Node {
    inode: InodeRef,
    open: Arc<OnceLock<OpenState>>,
}

impl Node {
    pub(super) fn new(inode: InodeRef) -> Node {
        Node {
            inode,
            open: Arc::default(),
        }
    }

    /// The inode's number.
    pub fn ino(&self) -> Ino {
        self.inode.ino
    }

    /// Changes each time the number is used again.
    pub fn generation(&self) -> u32 {
        self.inode.generation
    }

    /// Its kind.
    pub fn kind(&self) -> FileKind {
        self.inode.kind
    }

    pub(super) fn inode(&self) -> &Arc<Inode> {
        self.inode.shared()
    }

    pub(super) fn counted(&self) -> &InodeRef {
        &self.inode
    }

    /// The opener's state, if the inode has data.
    pub(super) fn open(&self, fs: &Fs) -> Option<&OpenState> {
        let regular = self.kind() == FileKind::Regular;
        regular.then(|| self.open.get_or_init(|| file::open(fs, self.inode())))
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({} {:?})", self.ino(), self.kind())
    }
}
