//! A reference to an inode.

use extant_sync::OnceLock;
use extant_sync::atomic::{AtomicBool, Ordering};
use std::fmt;
use std::sync::Arc;

use extant_units::Ino;

use crate::file;
use crate::state::file::OpenState;
use crate::state::inode::{Inode, InodeRef};
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
    opener: Arc<Opener>,
}

/// State that the clones of a [`Node`] share.
#[derive(Default)]
struct Opener {
    state: OnceLock<OpenState>,
    /// Opened when memory had no data of the file, so no writeback of it had failed: the state that
    /// is made at first use tells all failures.
    before_data: AtomicBool,
}

impl Node {
    pub(super) fn new(inode: InodeRef) -> Node {
        Node {
            inode,
            opener: Arc::default(),
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

    /// Opens the file: from now on its failures of writeback are this opener's. Makes no data in
    /// memory where there is none.
    pub(super) fn begin(&self, fs: &Fs) {
        if self.inode.file_state.get().is_some() {
            self.open(fs);
        } else {
            self.opener.before_data.store(true, Ordering::Release);
        }
    }

    /// The opener's state, if the inode is a regular file.
    pub(super) fn open(&self, fs: &Fs) -> Option<&OpenState> {
        let opener = &*self.opener;
        let make = || match opener.before_data.load(Ordering::Acquire) {
            true => file::opened_before_file_state(fs, self.inode()),
            false => file::open(fs, self.inode()),
        };
        let regular = self.kind() == FileKind::Regular;
        regular.then(|| opener.state.get_or_init(make))
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({} {:?})", self.ino(), self.kind())
    }
}

#[cfg(test)]
mod tests {
    use extant_testkit::Image;

    use super::*;
    use crate::test_support::test_mount::TestFs;

    /// An open makes no data, so the state of the opener comes later, and begins at the open.
    #[test]
    fn an_opener_from_before_the_data_is_told_of_its_loss() {
        let image = Image::of_mib(8).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let inode = fs.create("file");
        let told = |node: &Node| file::fsync(&fs, &inode, node.open(&fs), false).is_err();
        let open = || {
            let node = Node::new(inode.clone());
            node.begin(&fs);
            node
        };
        let early = open();
        assert!(inode.file_state.get().is_none());
        let writer = Node::new(inode.clone());
        assert!(!told(&writer));
        inode.file_state.get().unwrap().note_lost_writes();
        assert!(told(&writer));
        let late = open();
        assert!(told(&early));
        assert!(!told(&early), "once");
        assert!(!told(&late));
    }
}
