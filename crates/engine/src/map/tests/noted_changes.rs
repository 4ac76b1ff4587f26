//! Which changes of a map an fsync waits for.

use extant_testkit::Image;
use extant_units::{Lblk, Tid};

use super::mounted::{MapMount, empty_file};
use crate::map;
use crate::state::inode::Inode;
use crate::state::map::{AllocateMode, MapState};
use crate::volume::credits;

const UNWRITTEN: AllocateMode = AllocateMode {
    unwritten: true,
    only_delayed: false,
    metadata: false,
    privileged: false,
    goal: None,
};

/// The transactions that fsync and fdatasync wait for.
fn last_changes(inode: &Inode) -> [Option<Tid>; 2] {
    [false, true].map(|datasync| inode.last_change(datasync))
}

/// Data is written to unwritten blocks and then converted. The conversion of a block in the middle
/// of a file changes a node of its tree and nothing in its inode.
#[test]
fn an_fsync_waits_for_a_change_in_a_node_alone() {
    let image = Image::of_mib(16).args("-b 1024").make().unwrap();
    let ino = empty_file(&image, "a");
    let mounted = MapMount::new(&image, true);
    let (fs, inode) = (&mounted.fs, mounted.inode(ino));
    let convert = |lblk: u32, len| {
        fs.journal.force_commit().unwrap();
        let mut h = mounted.start(credits::convert(fs));
        map::convert_to_written(fs, &mut h, &inode, Lblk::new(lblk), len).unwrap();
        let found = map::lookup(fs, &inode, Lblk::new(lblk), len).unwrap();
        assert!(matches!(found.state, MapState::Written(_)), "{found:?}");
        h.tid()
    };
    // Up to four extents are in the inode itself; more are in a node.
    for (extents, in_inode) in [(1..4, true), (4..20, false)] {
        for i in extents.clone() {
            let mut h = mounted.start(credits::allocate(fs));
            let lblk = Lblk::new(i * 4);
            map::allocate(fs, &mut h, &inode, lblk, 2, UNWRITTEN).unwrap();
            assert_eq!(last_changes(&inode), [Some(h.tid()); 2]);
        }
        let root = inode.core.read().i_block;
        let tid = convert(extents.start * 4, 2);
        assert_eq!(root != inode.core.read().i_block, in_inode);
        assert_eq!(last_changes(&inode), [Some(tid); 2], "{extents:?}");
        // Nothing is left to change.
        let later = convert(extents.start * 4, 2);
        assert!(later != tid);
        assert_eq!(last_changes(&inode), [Some(tid); 2], "{extents:?}");
    }
    drop(inode);
    mounted.close();
}
