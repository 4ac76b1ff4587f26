//! Inodes: given out once, spread as Linux spreads them, tables initialised before use.

use std::collections::HashSet;

use extant_blockdev::BlockDevice;
use extant_disk::damage::InodeDamage;
use extant_testkit::content::JUNK;
use parking_lot::Mutex;

use super::*;
use crate::volume::credits;

impl Rig {
    fn new_inode(&self, parent: Ino, directory: bool, top_level: bool) -> Result<Ino> {
        let mut h = self.journal.start(credits::INODE_ALLOC).unwrap();
        let request = InodeRequest {
            parent,
            directory,
            top_level,
        };
        Ok(self.core().allocate_inode(&mut h, &request)?.0)
    }

    fn drop_inode(&self, ino: Ino, directory: bool) -> Result<()> {
        let mut h = self.journal.start(2).unwrap();
        self.core().free_inode(&mut h, ino, directory)
    }

    fn group_of(&self, ino: Ino) -> u32 {
        self.layout.group_of_inode(ino).unwrap().0.get()
    }
}

#[test]
fn directories_spread_and_files_stay() {
    let image = image(512, "-b 1024 -G 4");
    let rig = Rig::open(&image).unwrap();
    assert_eq!(rig.layout.flex_groups(), 16);
    let tops: Vec<Ino> = (0..16)
        .map(|_| rig.new_inode(Ino::ROOT, true, true).unwrap())
        .collect();
    let flexes: HashSet<u32> = tops.iter().map(|&ino| rig.group_of(ino) >> 2).collect();
    assert!(flexes.len() >= 12, "{flexes:?}");
    for &top in &tops {
        let file = rig.new_inode(top, false, false).unwrap();
        assert_eq!(rig.group_of(file), rig.group_of(top));
        let below = rig.new_inode(top, true, false).unwrap();
        assert_eq!(rig.group_of(below) >> 2, rig.group_of(top) >> 2);
    }
    rig.finish();
    let dirs: u32 = dump(&image).iter().map(|group| group.dirs).sum();
    assert_eq!(dirs, 2 + 16 + 16);
}

/// Whatever order they were freed in.
#[test]
fn the_first_free_inode_is_the_next() {
    let image = image(64, "-b 1024 -N 4096");
    let rig = Rig::open(&image).unwrap();
    let next = || rig.new_inode(Ino::ROOT, false, false).unwrap();
    let made: Vec<Ino> = (0..200).map(|_| next()).collect();
    assert!(made.is_sorted());
    for at in [70, 3, 150, 4] {
        rig.drop_inode(made[at], false).unwrap();
    }
    let again: Vec<Ino> = (0..4).map(|_| next()).collect();
    assert_eq!(again, [3, 4, 70, 150].map(|at| made[at]));
    assert!(next() > made[199]);
    rig.finish();
}

#[test]
fn all_inodes_are_given_once_and_taken_back() {
    for args in [
        "-b 1024 -N 4096",
        "-b 1024 -N 4096 -O ^metadata_csum,^uninit_bg,^flex_bg",
        "-b 4096 -N 4096 -O ^metadata_csum,uninit_bg -I 128",
    ] {
        let image = image(64, args);
        let rig = Rig::open(&image).unwrap();
        let all = Mutex::new(HashSet::new());
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (rig, all) = (&rig, &all);
                scope.spawn(move || {
                    let directory = worker == 0;
                    while let Ok(ino) = rig.new_inode(Ino::ROOT, directory, false) {
                        assert!(ino.get() >= 11);
                        assert!(all.lock().insert((ino, directory)), "given twice");
                    }
                });
            }
        });
        let all = all.into_inner();
        assert_eq!(all.len() as u64, rig.totals.free_inodes, "{args}");
        assert_eq!(rig.alloc.counts.free_inodes(), 0);
        let dirs = all.iter().filter(|(_, directory)| *directory).count() as u64;
        assert_eq!(rig.alloc.counts.dirs(), rig.totals.dirs + dirs);
        rig.journal.force_commit().unwrap();
        let freed: HashSet<u64> = all
            .iter()
            .filter(|(ino, _)| ino.get() % 3 == 0)
            .map(|&(ino, directory)| {
                rig.drop_inode(ino, directory).unwrap();
                u64::from(ino.get())
            })
            .collect();
        rig.finish();
        let groups = dump(&image);
        let free: HashSet<u64> = groups
            .iter()
            .flat_map(|group| group.free_inode_numbers.clone())
            .flatten()
            .collect();
        assert_eq!(free, freed, "{args}");
        let counted: u32 = groups.iter().map(|group| group.free_inodes).sum();
        assert_eq!(counted as usize, freed.len());
        assert!(groups.iter().all(|group| group.unused_inodes == 0));
    }
}

#[test]
fn frees_of_inodes_that_make_no_sense_are_damage() {
    let image = image(64, "-b 1024");
    let rig = Rig::open(&image).unwrap();
    let is_damage = |raw: u32, damage: InodeDamage| {
        let ino = Ino::new(raw).unwrap();
        let error = rig.drop_inode(ino, false).unwrap_err();
        assert_eq!(error.corrupt_kind(), Some(&damage.into()));
    };
    is_damage(2, InodeDamage::FreesReserved);
    is_damage(12, InodeDamage::FreesFree);
    is_damage(rig.layout.inodes_count(), InodeDamage::FreesUnused);
    is_damage(u32::MAX, InodeDamage::FreesMissing);
    rig.finish();
}

#[test]
fn generations_differ() {
    let image = image(64, "-b 1024");
    let rig = Rig::open(&image).unwrap();
    let request = InodeRequest {
        parent: Ino::ROOT,
        directory: false,
        top_level: false,
    };
    let mut seen = HashSet::new();
    for _ in 0..100 {
        let mut h = rig.journal.start(credits::INODE_ALLOC).unwrap();
        let (ino, generation) = rig.core().allocate_inode(&mut h, &request).unwrap();
        drop(h);
        assert!(seen.insert((ino, generation)));
        rig.drop_inode(ino, false).unwrap();
    }
    assert_eq!(
        seen.iter().map(|(_, g)| g).collect::<HashSet<_>>().len(),
        100
    );
    rig.finish();
}

/// A table that mke2fs never wrote is full of whatever was on the device.
#[test]
fn garbage_in_an_unwritten_table_never_shows() {
    let image = image(64, "-b 1024 -E lazy_itable_init=1,nodiscard");
    let rig = Rig::open(&image).unwrap();
    let inodes_per_block = rig.layout.inodes_per_block;
    // Groups whose table was not written: fill those tables with junk.
    let mut junked = Vec::new();
    for group in rig.layout.all_groups() {
        let mut locked = rig.groups.lock(group).unwrap();
        let desc = locked.state.desc;
        if desc.itable_unused == rig.layout.inodes_per_group {
            locked.state.desc.flags.remove(GroupFlags::ITABLE_ZEROED);
            let at = rig.layout.block_size.dev_off(desc.inode_table).unwrap();
            let junk = vec![JUNK; rig.layout.itable_blocks as usize * 1024];
            rig.dev.write_at(at, &junk).unwrap();
            junked.push(group);
        }
    }
    assert!(junked.len() > 4);
    // Every new inode reads as zeros, and so does all of its block.
    let mut taken = Vec::new();
    while let Ok(ino) = rig.new_inode(Ino::ROOT, false, false) {
        let location = rig.groups.inode_location(&rig.layout, ino).unwrap();
        let block = rig.cache.read_unchecked(location.block).unwrap().data();
        if junked.contains(&Group::new(rig.group_of(ino))) {
            assert!(block.iter().all(|&byte| byte == 0), "inode {ino}");
        }
        taken.push(ino);
        if taken.len() > 5000 && ino.get() % inodes_per_block == 3 {
            break;
        }
    }
    rig.journal.force_commit().unwrap();
    // Freed and taken again: the mark stays, nothing is zeroed a second time.
    let ino = taken[taken.len() - 1];
    let location = rig.groups.inode_location(&rig.layout, ino).unwrap();
    let mut h = rig.journal.start(1).unwrap();
    let block = rig.cache.read_unchecked(location.block).unwrap();
    h.modify(&block, |bytes| bytes[location.offset] = 1)
        .unwrap();
    drop(h);
    rig.drop_inode(ino, false).unwrap();
    assert_eq!(rig.new_inode(Ino::ROOT, false, false).unwrap(), ino);
    let block = rig.cache.read_unchecked(location.block).unwrap().data();
    assert_eq!(block[location.offset], 1);
    rig.finish();
    for group in dump(&image) {
        let free: u64 = group
            .free_inode_numbers
            .iter()
            .map(|run| run.end - run.start)
            .sum();
        assert_eq!(u64::from(group.free_inodes), free);
        assert!(u64::from(group.unused_inodes) <= free);
    }
}
