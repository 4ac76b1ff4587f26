//! Nodes of extent trees, directory leaves, index blocks.

use extant_disk::dir_edit::NewEntry;
use extant_disk::dir_gap::NameOrGap;
use extant_disk::dir_hash::{DirHash, DirHasher};
use extant_disk::dirent::{DirFormat, DirentError, FileType};
use extant_disk::extent::{self, Expect, Extent, Index, Node, NodeMut, ROOT_BYTES};
use extant_disk::htree::IndexKind;
use extant_units::{Ino, Lblk, Pblk};

use super::parts::{SEED, block_size, padded};
use crate::feed::Feed;

pub(super) fn extents(how: u8, feed: &mut Feed<'_>) {
    let bs = block_size(how);
    let at = usize::from(feed.u8());
    let usable = |pblk: Pblk, len: u32| {
        let end = pblk.get().checked_add(u64::from(len));
        end.is_some_and(|end| end < 1 << 40)
    };
    if how & 4 != 0 {
        let mut root = [0; ROOT_BYTES];
        for (to, from) in root.iter_mut().zip(feed.take(ROOT_BYTES)) {
            *to = *from;
        }
        if let Ok(node) = Node::check_root(&root, usable) {
            visit(&node, feed.u32());
        }
        edit(&mut root, at, feed);
        return;
    }
    let mut block = padded(feed, bs.bytes());
    if how & 8 != 0 {
        let _ = extent::set_checksum(&mut block, SEED);
    }
    let _ = extent::verify_checksum(&block, SEED);
    if let Ok(node) = Node::check_block(&block, bs, (how & 16 != 0).then_some(SEED), usable) {
        visit(&node, feed.u32());
    }
    edit(&mut block, at, feed);
}

/// Calls every accessor of a checked node.
fn visit(node: &Node<'_>, lblk: u32) {
    assert!(
        node.len() <= usize::from(node.max()) && node.is_full() | (node.len() < node.max().into())
    );
    let _ = node.agrees(&Expect::ROOT);
    let _ = node.agrees(&Expect {
        depth: Some(node.depth()),
        first: node.lblk(0),
        end: u64::from(lblk),
    });
    let found = node.find(Lblk::new(lblk));
    assert!(found.is_none_or(|at| at < node.len()));
    let mut end = 0;
    for extent in node.extents() {
        assert!(extent.len > 0 && u64::from(extent.lblk.get()) >= end);
        end = extent.end();
        assert!(extent.encode().is_ok(), "{extent:?}");
        assert!(extent.slice(extent.lblk, u32::MAX) == Some(extent));
        let _ = extent.slice(Lblk::new(lblk), 7);
    }
    for at in 0..node.len() {
        if let Some(index) = node.index(at) {
            assert!(
                index
                    .encode()
                    .is_ok_and(|slot| Index::decode(&slot) == index)
            );
        }
        let _ = node.next_start(at, u64::MAX);
    }
}

/// Edits of a node whose header is sound; its entries may be anything.
fn edit(bytes: &mut [u8], at: usize, feed: &mut Feed<'_>) {
    let Ok(node) = Node::open(bytes) else { return };
    let len = node.len();
    let new = Extent {
        lblk: Lblk::new(feed.u32()),
        len: u32::from(feed.u16()),
        pblk: Pblk::new(feed.u64()),
        unwritten: at.is_multiple_of(2),
    };
    let Ok(mut edit) = NodeMut::open(bytes) else {
        return;
    };
    if let Ok(slot) = new.encode() {
        assert_eq!(Extent::decode(&slot), new);
        let inserted = edit.insert(at, &[slot, slot]).is_ok();
        assert_eq!(edit.len(), if inserted { len + 2 } else { len });
        let _ = edit.set(at, slot);
    }
    let len = edit.len();
    let to = at + usize::from(feed.u8() % 8);
    let removed = edit.remove(at..to).is_ok();
    assert_eq!(edit.len(), if removed { len - (to - at) } else { len });
    let _ = edit.set_depth(feed.u16());
    assert!(edit.is_empty() == (edit.is_empty()));
    let _ = edit.replace_all(&[]);
}

fn format(how: u8) -> DirFormat {
    DirFormat {
        block_size: block_size(how),
        file_type: how & 4 != 0,
        max_ino: 5000,
        seed: (how & 8 != 0).then_some(SEED),
        folded: how & 32 != 0,
        hashes: how & 64 != 0,
    }
}

pub(super) fn leaf(how: u8, feed: &mut Feed<'_>) {
    let format = format(how);
    let plain = DirFormat {
        seed: None,
        ..format
    };
    let ino = Ino::new(u32::from(feed.u16() % 5000)).unwrap_or(Ino::ROOT);
    let len = usize::from(feed.u8());
    let name = feed.take(len);
    let offset = usize::from(feed.u16());
    let mut block = padded(feed, format.block_size.bytes());
    let _ = (plain.check_leaf(&block), format.check_leaf(&block));
    let _ = (format.dots(&block), format.find(&block, name));
    for record in format.records(&block).flatten() {
        let _ = record.check_name();
        assert!(record.used() <= record.rec_len);
    }
    let entry = NewEntry {
        name,
        ino,
        file_type: FileType::Regular,
        hash: format.hashes.then(|| DirHash::stored(7, u32::from(how))),
    };
    // From here on as the file system does: edits of blocks whose records are sound.
    let sound = format.records(&block).all(|record| record.is_ok());
    let sealed = |block: &[u8]| {
        assert_eq!(format.check_leaf(block), Ok(()));
    };
    match how >> 4 & 3 {
        0 => {
            let before = block.clone();
            if let Ok(Some(at)) = format.insert(&mut block, &entry) {
                into_gap(&format, before, &entry, &block);
                let found = format.records(&block).flatten().find(|r| r.offset == at);
                assert!(found.is_some_and(|r| r.name == name && r.ino == Some(ino)));
                if sound {
                    sealed(&block);
                }
            }
        }
        1 => {
            remove_slot(&format, &block, name);
            if format.remove(&mut block, offset).is_ok() && sound {
                sealed(&block);
            }
            let _ = format.retarget(&mut block, offset, ino, FileType::Symlink);
        }
        2 => {
            let free = format.free_bytes(&block);
            if format.compact(&mut block).is_ok() {
                sealed(&block);
                assert_eq!(format.free_bytes(&block), free);
            }
        }
        _ => {
            let hash = |name: &[u8]| name.iter().fold(7, |h: u32, b| (h * 31) ^ u32::from(*b));
            let hash = |name: &[u8]| hash(name.get(..4).unwrap_or(name));
            if let Ok(split) = format.split(&block, &entry, hash) {
                sealed(&split.low);
                sealed(&split.high);
            }
        }
    }
    let _: Result<_, DirentError> = format.find_gap(&block, name);
    let _ = format.fits_compacted(&block, &entry);
    let seed = [feed.u32(), 0, 7, feed.u32()];
    if let Ok(hasher) = DirHasher::new(how % 7, how & 128 != 0, seed) {
        let _ = hasher.hash(name);
    }
}

/// An insertion into the gap that a search met leads to the same block, and works once.
fn into_gap(format: &DirFormat, mut block: Vec<u8>, entry: &NewEntry<'_>, after: &[u8]) {
    if let Ok(NameOrGap::Gap(gap)) = format.find_or_gap(&block, entry.name) {
        let gap = gap.expect("the gap of the insertion");
        let mut insert = || format.insert_into(&mut block, gap, entry);
        assert!(matches!(insert(), Ok(Some(_))));
        assert_eq!(insert(), Ok(None));
        assert_eq!(block, after);
    }
}

/// The removal of an entry by its slot is that by its offset.
fn remove_slot(format: &DirFormat, block: &[u8], name: &[u8]) {
    let Ok(Some((_, slot))) = format.find_slot(block, name) else {
        return;
    };
    let (mut by_slot, mut by_offset) = (block.to_vec(), block.to_vec());
    let removed = format.remove_slot(&mut by_slot, slot);
    assert_eq!(removed, format.remove(&mut by_offset, slot.offset));
    assert_eq!(by_slot, by_offset);
}

pub(super) fn index(how: u8, feed: &mut Feed<'_>) {
    let format = format(how);
    let kind = if how & 16 != 0 {
        IndexKind::Root
    } else {
        IndexKind::Node
    };
    let (at, key, lblk) = (usize::from(feed.u8()), feed.u32(), feed.u32());
    let mut block = padded(feed, format.block_size.bytes());
    let plain = DirFormat {
        seed: None,
        ..format
    };
    let _ = (
        format.check_index(&block, kind, 1),
        plain.check_index(&block, kind, 2),
    );
    if let Ok(index) = format.index(&block, kind) {
        let found = index.search(key);
        assert!(found < index.len());
        let _ = (index.key(found), index.block(found), index.key(at));
    }
    let _ = format.insert_index(&mut block, kind, at, key, Lblk::new(lblk));
    if let Ok(split) = format.split_node(&block) {
        for half in [split.low, split.high] {
            let half = format
                .index(&half, IndexKind::Node)
                .map(|index| index.len());
            assert!(half.is_ok(), "{half:?}");
        }
    }
    if let Ok(node) = format.grow(&mut block, Lblk::new(lblk), 1) {
        assert!(format.index(&node, IndexKind::Node).is_ok());
    }
    let parent = Ino::new(key % 5000).unwrap_or(Ino::ROOT);
    let _ = format.set_dotdot(&mut block, (how & 32 != 0).then_some(kind), parent);
    if let Ok((root, leaf)) = format.make_index(&block, how % 6) {
        assert!(format.check_index(&root, IndexKind::Root, 1).is_ok());
        assert!(format.check_leaf(&leaf).is_ok());
    }
}
