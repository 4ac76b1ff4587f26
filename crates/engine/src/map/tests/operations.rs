//! Everything that changes a map, on real images: against a model, then judged by e2fsck and
//! debugfs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use extant_disk::extent::MAX_END;
use extant_testkit::Image;
use extant_units::{Ino, Lblk, Pblk};

use super::maps_of_linux::debugfs_extents;
use super::mounted::{MapMount, empty_file};
use crate::state::inode::Inode;
use crate::state::map::{AllocateMode, BlockMapping, MapState, WriteSpan};
use crate::test_support::test_rng::Rng;
use crate::types::error::Error;
use crate::volume::credits;
use crate::{alloc, map};

/// The state of a file's block, without its location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Want {
    Delayed,
    Written,
    Unwritten,
}

/// A file of the mount and the states that its blocks must have.
struct File<'a> {
    mounted: &'a MapMount,
    inode: &'a Inode,
    model: BTreeMap<u32, Want>,
}

const UNWRITTEN: AllocateMode = AllocateMode {
    unwritten: true,
    only_delayed: false,
    metadata: false,
    privileged: false,
    goal: None,
};
const FLUSH: AllocateMode = AllocateMode {
    only_delayed: true,
    ..UNWRITTEN
};

impl File<'_> {
    fn reserve(&mut self, range: Range<u32>) {
        let fs = &self.mounted.fs;
        let mut at = range.start;
        while at < range.end {
            let len = range.end - at;
            let before = map::sequence(self.inode);
            let found =
                map::reserve_delayed(fs, self.inode, WriteSpan::exact(Lblk::new(at), len), false)
                    .unwrap();
            assert_eq!(found.lblk.get(), at);
            assert_eq!(found.new, map::sequence(self.inode) > before, "J16");
            for lblk in at..at + found.len {
                if found.new {
                    assert!(self.model.insert(lblk, Want::Delayed).is_none());
                } else {
                    self.assert_state(lblk, &found);
                }
            }
            at += found.len;
        }
    }

    /// Allocates in `range`. Returns the number of blocks that were allocated.
    fn allocate(&mut self, range: Range<u32>, how: AllocateMode) -> u32 {
        let (mut at, mut count) = (range.start, 0);
        while at < range.end {
            let found = self.allocate_once(at, range.end - at, how);
            for lblk in at..at + found.len {
                if found.new {
                    assert!(
                        self.model
                            .get(&lblk)
                            .is_none_or(|&old| old == Want::Delayed)
                    );
                    let new = if how.unwritten {
                        Want::Unwritten
                    } else {
                        Want::Written
                    };
                    self.model.insert(lblk, new);
                    count += 1;
                } else {
                    self.assert_state(lblk, &found);
                }
            }
            at += found.len;
        }
        count
    }

    /// One call. Where space is short because freed blocks wait for their commit, commits and
    /// retries.
    fn allocate_once(&self, at: u32, len: u32, how: AllocateMode) -> BlockMapping {
        let fs = &self.mounted.fs;
        let allocated = alloc::retry(fs, || {
            let mut h = self.mounted.start(credits::allocate(fs));
            map::allocate(fs, &mut h, self.inode, Lblk::new(at), len, how)
        });
        allocated.unwrap()
    }

    fn convert(&mut self, range: Range<u32>) {
        let fs = &self.mounted.fs;
        let mut h = self.mounted.start(credits::convert(fs));
        let len = range.end - range.start;
        map::convert_to_written(fs, &mut h, self.inode, Lblk::new(range.start), len).unwrap();
        assert!(h.credits_left() > 0, "one credit is left for the size");
        for (_, state) in self.model.range_mut(range) {
            if *state == Want::Unwritten {
                *state = Want::Written;
            }
        }
    }

    fn remove(&mut self, from: u32, to: u64) {
        let fs = &self.mounted.fs;
        let mut h = self.mounted.start(credits::remove(fs));
        map::remove(fs, &mut h, self.inode, Lblk::new(from), to).unwrap();
        self.model.retain(|&l, _| l < from || u64::from(l) >= to);
    }

    fn lookup(&self, lblk: u32, max: u32) -> BlockMapping {
        map::lookup(&self.mounted.fs, self.inode, Lblk::new(lblk), max).unwrap()
    }

    fn assert_state(&self, lblk: u32, found: &BlockMapping) {
        let state = match found.state {
            MapState::Hole => None,
            MapState::Delayed => Some(Want::Delayed),
            MapState::Written(_) => Some(Want::Written),
            MapState::Unwritten(_) => Some(Want::Unwritten),
        };
        assert_eq!(
            state,
            self.model.get(&lblk).copied(),
            "block {lblk}: {found:?}"
        );
    }

    fn compare(&self, span: u32) {
        let mut at = 0;
        while at < span {
            let found = self.lookup(at, span - at);
            (at..at + found.len).for_each(|lblk| self.assert_state(lblk, &found));
            at += found.len;
        }
        let delayed = self.model.values().filter(|&&s| s == Want::Delayed).count();
        assert_eq!(map::reserved_blocks(self.inode), delayed as u64, "J9");
    }

    /// Turns what is still delayed into holes, and gives the inode the size that its blocks need.
    fn finish(&mut self) {
        let fs = &self.mounted.fs;
        let dropped = map::drop_delayed(fs, self.inode, Lblk::ZERO, MAX_END);
        let delayed = self.model.values().filter(|&&s| s == Want::Delayed).count();
        assert_eq!(dropped, delayed as u64);
        self.model.retain(|_, state| *state != Want::Delayed);
        let end = self
            .model
            .last_key_value()
            .map_or(0, |(&l, _)| u64::from(l) + 1);
        let mut h = self.mounted.start(credits::INODE_UPDATE);
        let size = end * fs.layout.block_size.bytes_u64();
        self.inode
            .update(fs, &mut h, |core| {
                self.inode.size.store(size, Ordering::Release);
                core.disk_size = size;
            })
            .unwrap();
    }
}

/// A file's blocks by debugfs.
fn on_disk(image: &Image, ino: Ino) -> BTreeMap<u32, Want> {
    let mut all = BTreeMap::new();
    for e in debugfs_extents(image, ino) {
        let state = if e.unwritten {
            Want::Unwritten
        } else {
            Want::Written
        };
        all.extend((0..e.len).map(|i| (e.lblk.get() + i, state)));
    }
    all
}

/// Random operations on one file.
fn storm(file: &mut File<'_>, rng: &mut Rng, span: u32, longest: u32, rounds: u32) {
    for round in 0..rounds {
        let from = rng.below(span);
        let to = (from + 1 + rng.below(longest)).min(span);
        match rng.below(12) {
            0..=2 => file.reserve(from..to),
            3..=4 => drop(file.allocate(from..to, FLUSH)),
            5 => drop(file.allocate(from..to, UNWRITTEN)),
            6 => drop(file.allocate(
                from..to,
                AllocateMode {
                    unwritten: false,
                    ..UNWRITTEN
                },
            )),
            7..=8 => file.convert(from..to),
            9..=10 => file.remove(from, u64::from(to)),
            _ => {
                let (fs, inode) = (&file.mounted.fs, file.inode);
                map::drop_delayed(fs, inode, Lblk::new(from), to.into());
                file.model
                    .retain(|l, s| !(from..to).contains(l) || *s != Want::Delayed);
            }
        }
        let probe = rng.below(span);
        file.assert_state(probe, &file.lookup(probe, 1));
        if round % 100 == 0 {
            file.compare(span);
        }
    }
    file.compare(span);
}

#[test]
fn random_operations_leave_what_the_model_says() {
    for (number, (args, span, longest, logged)) in [
        ("-b 1024", 3000, 6, true),
        ("-b 1024 -O ^metadata_csum,^64bit", 3000, 4, false),
        ("-b 2048", 2000, 40, true),
        ("-b 4096", 6000, 300, true),
        ("-b 4096 -O ^has_journal", 500, 3, false),
    ]
    .into_iter()
    .enumerate()
    {
        let image = Image::of_mib(64).args(args).make().unwrap();
        let inos = [empty_file(&image, "a"), empty_file(&image, "b")];
        let free = image.header("Free blocks").unwrap();
        let mut expected = Vec::new();
        {
            // A small cache of ranges: much has to be looked up on disk again.
            let dev = extant_blockdev::FileDevice::open(
                image.path(),
                extant_blockdev::OpenMode::ReadWrite,
            );
            let mounted = MapMount::over(std::sync::Arc::new(dev.unwrap()), logged, 200);
            let mut rng = Rng::new(number as u64 + 40);
            let inodes = inos.map(|ino| mounted.inode(ino));
            let mut files: Vec<File<'_>> = inodes
                .iter()
                .map(|inode| File {
                    mounted: &mounted,
                    inode,
                    model: BTreeMap::new(),
                })
                .collect();
            for _ in 0..6 {
                for file in &mut files {
                    storm(file, &mut rng, span, longest, 250);
                }
            }
            for file in &mut files {
                file.finish();
            }
            let stats = &mounted.fs.stats;
            assert!(stats.es_misses.get() > 100 && stats.es_hits.get() > 100);
            expected.extend(files.into_iter().map(|file| file.model));
            drop(inodes);
            mounted.close();
        }
        image.fsck_clean().unwrap();
        for (ino, expected) in inos.iter().zip(&expected) {
            assert!(expected.len() > 100);
            assert_eq!(&on_disk(&image, *ino), expected, "{args}");
        }

        // And all of it can be freed again.
        let mounted = MapMount::new(&image, logged);
        for ino in inos {
            let inode = mounted.inode(ino);
            let mut file = File {
                mounted: &mounted,
                inode: &inode,
                model: BTreeMap::new(),
            };
            file.remove(0, u64::MAX);
            assert_eq!(inode.core.read().sectors, 0);
            file.finish();
        }
        mounted.close();
        image.fsck_clean().unwrap();
        assert_eq!(image.header("Free blocks").unwrap(), free);
    }
}

/// A file in very many pieces: a deep tree, made and removed under handles of a small journal.
#[test]
fn deep_trees_are_made_and_removed_in_small_transactions() {
    let image = Image::of_mib(64).args("-b 1024 -J size=1").make().unwrap();
    let ino = empty_file(&image, "deep");
    let free = image.header("Free blocks").unwrap();
    let mounted = MapMount::new(&image, true);
    let inode = mounted.inode(ino);
    let mut file = File {
        mounted: &mounted,
        inode: &inode,
        model: BTreeMap::new(),
    };
    for at in 0..9000 {
        file.allocate(
            at * 2..at * 2 + 1,
            AllocateMode {
                unwritten: at % 3 == 0,
                ..UNWRITTEN
            },
        );
    }
    let root = inode.core.read().i_block;
    assert_eq!(extant_disk::extent::Node::open(&root).unwrap().depth(), 2);
    file.convert(0..18_000);
    file.compare(18_000);
    file.finish();
    let model = std::mem::take(&mut file.model);
    drop(inode);
    mounted.close();
    image.fsck_clean().unwrap();
    assert_eq!(on_disk(&image, ino), model);

    let mounted = MapMount::new(&image, true);
    let inode = mounted.inode(ino);
    let mut file = File {
        mounted: &mounted,
        inode: &inode,
        model,
    };
    file.remove(7, 11_000);
    file.remove(12_001, u64::MAX);
    file.compare(18_000);
    file.finish();
    let model = std::mem::take(&mut file.model);
    drop(inode);
    mounted.close();
    image.fsck_clean().unwrap();
    assert_eq!(on_disk(&image, ino), model);

    let mounted = MapMount::new(&image, true);
    let inode = mounted.inode(ino);
    let mut file = File {
        mounted: &mounted,
        inode: &inode,
        model,
    };
    file.remove(0, u64::MAX);
    file.finish();
    drop(inode);
    mounted.close();
    image.fsck_clean().unwrap();
    assert_eq!(image.header("Free blocks").unwrap(), free);
}

/// Delayed blocks keep their reservation on a full volume; a request without one is refused and
/// changes nothing.
#[test]
fn promises_hold_when_space_runs_out() {
    let image = Image::of_mib(8)
        .args("-b 1024 -O ^has_journal -m 0")
        .make()
        .unwrap();
    let inos = [empty_file(&image, "a"), empty_file(&image, "b")];
    let mounted = MapMount::new(&image, false);
    let fs = &mounted.fs;
    let [a, b] = inos.map(|ino| mounted.inode(ino));
    let mut file = File {
        mounted: &mounted,
        inode: &a,
        model: BTreeMap::new(),
    };
    // Every second block, so that the tree gets nodes, until nothing is left to reserve.
    let mut at = 0;
    loop {
        match map::reserve_delayed(fs, &a, WriteSpan::exact(Lblk::new(at), 1), false) {
            Ok(found) => assert!(found.new && found.len == 1),
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
        file.model.insert(at, Want::Delayed);
        at += 2;
    }
    assert!(file.model.len() > 3000);
    let mut h = mounted.start(credits::allocate(fs));
    let refused = map::allocate(fs, &mut h, &b, Lblk::ZERO, 1, UNWRITTEN);
    assert!(matches!(refused, Err(Error::NoSpace)));
    drop(h);
    assert_eq!(b.core.read().sectors, 0);

    assert_eq!(file.allocate(0..at, FLUSH), at / 2);
    file.convert(0..at);
    file.compare(at);
    assert_eq!(fs.alloc.counts.reserved_blocks().get(), 0);
    file.finish();
    let model = std::mem::take(&mut file.model);
    drop((a, b));
    mounted.close();
    image.fsck_clean().unwrap();
    assert_eq!(on_disk(&image, inos[0]), model);
}

/// Reservations of more than there is are cut down to what there is.
#[test]
fn a_reservation_goes_as_far_as_there_is_space() {
    let image = Image::of_mib(8)
        .args("-b 1024 -O ^has_journal -m 0")
        .make()
        .unwrap();
    let ino = empty_file(&image, "a");
    let mounted = MapMount::new(&image, false);
    let (fs, inode) = (&mounted.fs, mounted.inode(ino));
    let mut at = 0;
    let mut calls = 0;
    while let Ok(found) =
        map::reserve_delayed(fs, &inode, WriteSpan::exact(Lblk::new(at), 1 << 20), false)
    {
        at += found.len;
        calls += 1;
        assert!(calls < 100);
    }
    assert_eq!(u64::from(at), map::reserved_blocks(&inode));
    assert!(fs.alloc.counts.available_to_users().get() < 2 && at > 5000 && calls > 2);
    // A truncation that drops them gives everything back.
    let mut h = mounted.start(credits::remove(fs));
    map::remove(fs, &mut h, &inode, Lblk::new(10), MAX_END).unwrap();
    drop(h);
    assert_eq!(
        (
            map::reserved_blocks(&inode),
            fs.alloc.counts.reserved_blocks().get()
        ),
        (10, 10)
    );
    map::evict(fs, &inode);
    drop(inode);
    mounted.close();
    image.fsck_clean().unwrap();
}

/// Writeback that comes after a truncation finds a hole and allocates nothing.
#[test]
fn a_truncation_before_writeback_wins() {
    let image = Image::of_mib(8).args("-b 1024").make().unwrap();
    let ino = empty_file(&image, "a");
    let mounted = MapMount::new(&image, true);
    let inode = mounted.inode(ino);
    let mut file = File {
        mounted: &mounted,
        inode: &inode,
        model: BTreeMap::new(),
    };
    file.reserve(0..20);
    let seen = file.lookup(5, 10);
    assert_eq!((seen.state, seen.len), (MapState::Delayed, 10));
    file.remove(5, MAX_END);
    assert_ne!(
        map::sequence(&inode),
        seen.seq,
        "a stale mapping is recognised"
    );
    assert_eq!(file.allocate(5..15, FLUSH), 0);
    assert_eq!(file.allocate(0..5, FLUSH), 5);
    let MapState::Unwritten(first) = file.lookup(0, 9).state else {
        panic!("not unwritten")
    };
    assert_eq!(
        file.lookup(4, 9).state,
        MapState::Unwritten(Pblk::new(first.get() + 4))
    );
    let (ranges, ended) = map::ranges(&mounted.fs, &inode);
    ended.unwrap();
    let ranges: Vec<_> = ranges.iter().map(|r| (r.lblk.get(), r.state)).collect();
    assert_eq!(
        ranges,
        [(0, MapState::Unwritten(first)), (5, MapState::Hole)]
    );
    assert!(matches!(
        map::lookup(&mounted.fs, &inode, Lblk::MAX, 1),
        Err(Error::FileTooBig)
    ));
    file.finish();
    drop(inode);
    mounted.close();
    image.fsck_clean().unwrap();
}
