//! Copies, exchanges of blocks and direct writes at the borders of what they are given.

use std::sync::Arc;

use extant_units::Ino;

use super::{disk_size, file, mounted, mounted_with, put};
use crate::file::{
    Reader, Side, WriteAt, copy_range, drop_clean, fsync, move_extents, read, write_and_wait,
    write_direct,
};
use crate::inode::InodeRef;
use crate::mount;
use crate::types::Cred;
use crate::types::error::Error;
use crate::volume::Fs;

const BLOCK: u64 = 4096;
const BLOCK_LEN: usize = 4096;

fn bytes(fs: &Arc<Fs>, inode: &InodeRef, len: usize) -> Vec<u8> {
    let mut bytes = vec![0x55; len];
    let done = read(fs, inode, None, Reader::Ordinary, 0, &mut bytes).unwrap();
    bytes.truncate(done);
    bytes
}

/// A file of `len` bytes on the device, all `tag`.
fn stored(fs: &Arc<Fs>, name: &[u8], tag: u8, len: usize) -> InodeRef {
    let inode = file(fs, name);
    put(fs, &inode, 0, &vec![tag; len]);
    fsync(fs, &inode, None, false).unwrap();
    inode
}

#[test]
fn a_copy_goes_on_behind_a_hole() {
    let fs = mounted("");
    let (from, to) = (stored(&fs, b"from", 1, BLOCK_LEN), file(&fs, b"to"));
    put(&fs, &from, 5 * BLOCK, &[2; BLOCK_LEN]);
    let side = |inode| Side {
        inode,
        open: None,
        pos: 0,
    };
    let cred = Cred::root();
    let done = copy_range(&fs, &side(&from), &side(&to), u64::MAX / 2, &cred).unwrap();
    assert_eq!(done, 6 * BLOCK);
    let all = bytes(&fs, &to, 7 * BLOCK_LEN);
    assert!(all == bytes(&fs, &from, 7 * BLOCK_LEN) && all.len() == 6 * BLOCK_LEN);
    fsync(&fs, &to, None, false).unwrap();
    assert_eq!(to.core.read().sectors, 2 * 8, "the hole takes no space");
    mount::unmount(&fs).unwrap();
}

#[test]
fn blocks_are_exchanged_between_two_files_of_one_volume() {
    let (fs, other) = (mounted(""), mounted(""));
    let a = stored(&fs, b"a", 1, BLOCK_LEN);
    let b = stored(&fs, b"b", 2, BLOCK_LEN);
    let foreign = stored(&other, b"c", 3, BLOCK_LEN);
    for (orig, donor) in [(&a, &a), (&a, &foreign), (&foreign, &b)] {
        let refused = move_extents(&fs, orig, donor, 0..BLOCK, 0);
        assert!(matches!(refused, Err(Error::Invalid)), "{refused:?}");
    }
    assert_eq!(move_extents(&fs, &a, &b, 0..BLOCK, 0).unwrap(), BLOCK);
    mount::unmount(&fs).unwrap();
    mount::unmount(&other).unwrap();
}

/// The two ranges may begin on different pages, and have to at the same place of their page.
#[test]
fn blocks_are_exchanged_at_the_same_place_of_a_page() {
    let fs = mounted_with("-b 1024", "");
    let a = stored(&fs, b"a", 1, 4 * BLOCK_LEN);
    let b = stored(&fs, b"b", 2, 4 * BLOCK_LEN);
    for (start, donor_pos) in [(1024, 2048), (0, BLOCK + 1024), (1024, BLOCK)] {
        let refused = move_extents(&fs, &a, &b, start..start + 1024, donor_pos);
        assert!(
            matches!(refused, Err(Error::Invalid)),
            "{start}: {refused:?}"
        );
    }
    for (start, donor_pos) in [(0, BLOCK), (1024, BLOCK + 1024), (2 * BLOCK + 2048, 2048)] {
        let moved = move_extents(&fs, &a, &b, start..start + 1024, donor_pos);
        assert_eq!(moved.unwrap(), 1024, "{start}");
    }
    mount::unmount(&fs).unwrap();
}

#[test]
fn a_direct_write_keeps_what_its_blocks_hold_besides() {
    let fs = mounted("");
    let inode = stored(&fs, b"f", 1, 2 * BLOCK_LEN + 1000);
    drop_clean(&inode);
    let before = fs.files.stats.snapshot().edge_reads;
    // From within the first block to behind the end.
    let at = WriteAt::Pos(4000);
    let (_, done) = write_direct(&fs, &inode, None, at, &[2; 5000], &Cred::root()).unwrap();
    assert_eq!(done, 5000);
    assert_eq!(fs.files.stats.snapshot().edge_reads - before, 2);
    assert_eq!(fs.stats.direct_fallbacks.get(), 0);
    drop_clean(&inode);
    let mut expected = vec![1; 2 * BLOCK_LEN + 1000];
    expected[4000..9000].fill(2);
    assert!(bytes(&fs, &inode, 3 * BLOCK_LEN) == expected);
    mount::unmount(&fs).unwrap();
}

#[test]
fn only_data_of_regular_files_is_waited_for() {
    let fs = mounted("");
    let root = fs.iget(Ino::ROOT).unwrap();
    write_and_wait(&fs, &root);
    let inode = file(&fs, b"f");
    put(&fs, &inode, 0, &[1; 100]);
    write_and_wait(&fs, &inode);
    assert_eq!((disk_size(&inode), inode.has_dirty_data()), (100, false));
    mount::unmount(&fs).unwrap();
}
