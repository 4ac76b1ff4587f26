//! Damage met at run time, and many threads on one file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use extant_blockdev::{BlockDevice, FileDevice, MemoryDevice, OpenMode};
use extant_disk::extent::{MAX_END, Node};
use extant_testkit::{Image, Stop};
use extant_units::{Lblk, Pblk};

use super::mounted::{MapMount, empty_file};
use crate::map;
use crate::state::inode::Inode;
use crate::state::map::{AllocateMode, MapState, WriteSpan};
use crate::test_support::test_rng::Rng;
use crate::types::error::{Error, Location};
use crate::volume::{Fs, credits};

const UNWRITTEN: AllocateMode = AllocateMode {
    unwritten: true,
    only_delayed: false,
    metadata: false,
    privileged: false,
    goal: None,
};

/// Blocks of a region.
const REGION: u32 = 3000;

/// Changes the map of region `number` at random; returns which of its blocks are mapped.
fn change_region(fs: &Fs, inode: &Inode, number: u32) -> Vec<bool> {
    let mut rng = Rng::new(u64::from(number) + 7);
    let base = number * REGION;
    let mut mapped = vec![false; REGION as usize];
    for _ in 0..1200 {
        let at = rng.below(REGION - 40);
        let len = 1 + rng.below(40);
        let range = at as usize..(at + len) as usize;
        let (lblk, end) = (Lblk::new(base + at), u64::from(base + at + len));
        match rng.below(4) {
            0 => {
                let mut h = fs.start(credits::remove(fs)).unwrap();
                map::remove(fs, &mut h, inode, lblk, end).unwrap();
                mapped[range].fill(false);
            }
            1 => {
                let found = map::reserve_delayed(fs, inode, WriteSpan::exact(lblk, len), false);
                assert!(found.unwrap().state != MapState::Hole);
                map::drop_delayed(fs, inode, lblk, end);
            }
            2 => {
                let mut h = fs.start(credits::convert(fs)).unwrap();
                map::convert_to_written(fs, &mut h, inode, lblk, len).unwrap();
            }
            _ => {
                let mut h = fs.start(credits::allocate(fs)).unwrap();
                match map::allocate(fs, &mut h, inode, lblk, len, UNWRITTEN) {
                    Ok(found) => mapped[at as usize..(at + found.len) as usize].fill(true),
                    Err(error) => assert!(matches!(error, Error::NoSpace)),
                }
            }
        }
    }
    mapped
}

/// Threads with a region each of one file, readers all over it: the end is what each did in its
/// region.
#[test]
fn threads_share_a_file() {
    let image = Image::of_mib(64).args("-b 1024").make().unwrap();
    let ino = empty_file(&image, "shared");
    let device = FileDevice::open(image.path(), OpenMode::ReadWrite).unwrap();
    let mounted = MapMount::over(Arc::new(device), true, 300);
    let inode = mounted.inode(ino);
    let (fs, inode_ref) = (&mounted.fs, &*inode);
    let done = AtomicBool::new(false);
    let states: Vec<Vec<bool>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u32)
            .map(|number| scope.spawn(move || change_region(fs, inode_ref, number)))
            .collect();
        for seed in 0..2 {
            let done = &done;
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                while !done.load(Ordering::Relaxed) {
                    let at = Lblk::new(rng.below(4 * REGION));
                    let seq = inode_ref.known.disk_sequence();
                    let found = map::lookup(fs, inode_ref, at, 50).unwrap();
                    assert!(
                        found.lblk == at && found.len >= 1 && found.len <= 50 && found.seq >= seq
                    );
                }
            });
        }
        let _stop = Stop::at_end(&done);
        let states = writers.into_iter().map(|writer| writer.join().unwrap());
        states.collect()
    });
    for (at, &mapped) in (0u32..).zip(states.iter().flatten()) {
        let found = map::lookup(fs, &inode, Lblk::new(at), 1).unwrap();
        let is_mapped = matches!(found.state, MapState::Written(_) | MapState::Unwritten(_));
        assert_eq!(is_mapped, mapped, "block {at}: {found:?}");
    }
    let size = u64::from(4 * REGION) * 1024;
    let mut h = mounted.start(credits::INODE_UPDATE);
    inode
        .update(fs, &mut h, |core| {
            inode.size.store(size, Ordering::Release);
            core.disk_size = size;
        })
        .unwrap();
    drop(h);
    drop(inode);
    mounted.close();
    image.fsck_clean().unwrap();
}

/// An image in memory with a file whose tree has blocks, and where its first node lies.
fn with_a_tree(args: &str) -> (Vec<u8>, extant_units::Ino, Pblk) {
    let image = Image::of_mib(8).args(args).make().unwrap();
    let ino = empty_file(&image, "f");
    let mounted = MapMount::new(&image, false);
    let inode = mounted.inode(ino);
    for at in 0..300 {
        let mut h = mounted.start(credits::allocate(&mounted.fs));
        map::allocate(&mounted.fs, &mut h, &inode, Lblk::new(at * 2), 1, UNWRITTEN).unwrap();
    }
    let root = inode.core.read().i_block;
    let node = Node::open(&root).unwrap().index(0).unwrap().child;
    drop(inode);
    mounted.close();
    let bytes = std::fs::read(image.path()).unwrap();
    (bytes, ino, node)
}

/// A damaged node: an error that names it, counted as a fault, whatever is tried. Nothing panics.
#[test]
fn damaged_nodes_are_reported_with_their_location() {
    for args in [
        "-b 1024 -O ^has_journal",
        "-b 1024 -O ^has_journal,^metadata_csum",
    ] {
        let (bytes, ino, node) = with_a_tree(args);
        let at = usize::try_from(node.get()).unwrap() * 1024;
        let mut rng = Rng::new(2);
        let (mut refused, mut fine) = (0, 0);
        for _ in 0..150 {
            let mut bytes = bytes.clone();
            for _ in 0..=rng.below(2) {
                bytes[at + rng.below(60) as usize] = rng.byte();
            }
            let dev: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&bytes));
            let mounted = MapMount::over(dev, false, 100);
            let (fs, inode) = (&mounted.fs, mounted.inode(ino));
            let result = map::lookup(fs, &inode, Lblk::new(3), 9);
            match &result {
                Err(Error::Corrupt { location, .. }) => {
                    assert!(
                        matches!(location, Location::ExtentNode(i, p) if *i == ino && *p == node)
                    );
                    assert!(fs.stats.faults.get() > 0);
                    refused += 1;
                }
                Err(error) => panic!("{error}"),
                Ok(_) => fine += 1,
            }
            // Whatever else is done ends with an answer.
            let _ = map::reserve_delayed(fs, &inode, WriteSpan::exact(Lblk::new(5), 3), true);
            let _ = map::ranges(fs, &inode);
            let mut h = fs.journal.start(4 * credits::remove(fs)).unwrap();
            let _ = map::allocate(fs, &mut h, &inode, Lblk::new(5), 3, UNWRITTEN);
            let _ = map::convert_to_written(fs, &mut h, &inode, Lblk::ZERO, 600);
            let _ = map::remove(fs, &mut h, &inode, Lblk::new(7), MAX_END);
            map::evict(fs, &inode);
        }
        assert!(refused > 60, "{args}: {refused} refused, {fine} fine");
        assert!(args.contains("metadata_csum") || fine < 10);
    }
}

/// A delayed block is a hole on disk. Where the disk says otherwise when it is read again, the
/// map's blocks are another file's as well: the lookup reports damage, and the reservation stays
/// until its end.
#[test]
fn a_delayed_block_that_is_mapped_on_disk_is_damage() {
    let image = Image::of_mib(8).args("-b 1024 -O ^has_journal");
    let image = image.make().unwrap();
    let [ino, other] = ["f", "other"].map(|name| empty_file(&image, name));
    let device = FileDevice::open(image.path(), OpenMode::ReadWrite).unwrap();
    let mounted = MapMount::over(Arc::new(device), false, 0);
    let (fs, inode, other) = (&mounted.fs, mounted.inode(ino), mounted.inode(other));
    let mut h = mounted.start(credits::allocate(fs));
    map::allocate(fs, &mut h, &other, Lblk::ZERO, 20, UNWRITTEN).unwrap();
    drop(h);
    map::reserve_delayed(fs, &inode, WriteSpan::exact(Lblk::new(5), 3), false).unwrap();
    fs.maps.status.shrink();
    assert_eq!(fs.maps.status.known(), 0, "the disk is asked again");
    let root = other.core.read().i_block;
    inode.core.write().i_block = root;
    match map::lookup(fs, &inode, Lblk::new(4), 1) {
        Err(Error::Corrupt { location, .. }) => assert_eq!(location, Location::Inode(ino)),
        other => panic!("{other:?}"),
    }
    assert_eq!(fs.stats.faults.get(), 1);
    let delayed = map::lookup(fs, &inode, Lblk::new(5), 9).unwrap();
    assert_eq!((delayed.state, delayed.len), (MapState::Delayed, 3));
    assert_eq!(map::drop_delayed(fs, &inode, Lblk::ZERO, MAX_END), 3);
    let counts = &fs.alloc.counts;
    assert_eq!((counts.reserved_blocks().get(), counts.leaked()), (0, 0));
}

/// A node that cannot be freed is lost, and no more: its range is a hole, on disk and in what is
/// known.
#[test]
fn j14_a_node_that_cannot_be_freed_leaves_no_extent_known() {
    let (mut bytes, ino, node) = with_a_tree("-b 1024 -O ^has_journal,^metadata_csum");
    // The descriptor of the only group: where its bitmap is, and the number of free blocks. The
    // first bit is of block 1.
    let field: [u8; 4] = bytes[2048..2052].try_into().unwrap();
    let bit = usize::try_from(node.get()).unwrap() - 1;
    let bitmap = usize::try_from(u32::from_le_bytes(field)).unwrap() * 1024;
    bytes[bitmap + bit / 8] &= !(1 << (bit % 8));
    let free = u16::from_le_bytes([bytes[2060], bytes[2061]]) + 1;
    bytes[2060..2062].copy_from_slice(&free.to_le_bytes());
    let mounted = MapMount::over(Arc::new(MemoryDevice::from_bytes(&bytes)), false, 400);
    let (fs, inode) = (&mounted.fs, mounted.inode(ino));
    let state = |at: u32| map::lookup(fs, &inode, Lblk::new(at), 1).unwrap().state;
    assert!((0..300).all(|at| state(2 * at) != MapState::Hole));
    let removed = || {
        let mut h = mounted.start(credits::remove(fs));
        map::remove(fs, &mut h, &inode, Lblk::ZERO, 600)
    };
    // Each call goes on where the one before it met the damage.
    let removes_all = || {
        let done = removed().is_ok();
        map::known(fs, &inode).unwrap();
        done
    };
    assert!((0..300).any(|_| removes_all()), "the removal ends");
    assert!(fs.stats.faults.get() > 0, "the damage is reported");
    assert!((0..600).all(|at| state(at) == MapState::Hole));
}
