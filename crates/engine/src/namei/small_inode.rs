//! A small inode: it is deleted under the handle that takes its last name.
//!
//! Small are device nodes, pipes, sockets, short symbolic links, and files with a few runs of
//! blocks that are not in use in memory. One handle changes the directory, clears the record, and
//! frees the blocks and the number. So no crash leaves the inode without a name: it is no orphan,
//! and no eviction follows.
//!
//! # Concurrency
//! The inode has no reference but the caller's. The cache decides that, and gives out none from
//! then on ([`HeldSmallInode::begin`]). An inode that another thread refers to becomes an orphan as
//! any other.

use std::sync::Arc;

use extant_jbd2::{Block, Handle};
use extant_units::exact_u32;

use super::eviction;
use crate::inode::{ExclusiveInode, HeldRecord};
use crate::state::alloc::Run;
use crate::state::inode::Inode;
use crate::types::FileKind;
use crate::types::error::Result;
use crate::volume::{Fs, credits};
use crate::{alloc, map, orphan, xattr};

/// A small inode whose last name goes.
pub(super) struct SmallInode<'a> {
    fs: &'a Fs,
    inode: &'a Arc<Inode>,
    /// Its blocks.
    runs: Vec<Run>,
}

/// A small inode, with the bitmaps of its blocks and its number in memory.
pub(super) struct HeldSmallInode<'a> {
    small: SmallInode<'a>,
    _bitmaps: Vec<Block>,
}

impl<'a> SmallInode<'a> {
    /// `inode`, whose lock is `locked`, if it is small and loses its last name with the next one.
    pub(super) fn of(
        fs: &'a Fs,
        inode: &'a Arc<Inode>,
        locked: ExclusiveInode<'_>,
    ) -> Option<Self> {
        debug_assert_eq!(inode.ino, locked.ino, "the lock of this inode");
        if !inode.is_counted_once() || orphan::is_orphan(inode) {
            return None;
        }
        let runs = runs(fs, locked)?;
        Some(Self { fs, inode, runs })
    }

    /// Credits for its blocks and its number: bitmaps and descriptors.
    pub(super) fn credits(&self) -> u32 {
        let blocks = exact_u32(self.runs.len() as u64) * credits::remove_extent(&self.fs.layout);
        credits::sum([credits::INODE_ALLOC, blocks])
    }

    /// Reads what the deletion changes. `None` if that fails: the inode's eviction reports it.
    pub(super) fn hold(self, h: &mut Handle) -> Option<HeldSmallInode<'a>> {
        let number = alloc::hold_inode_bitmap(self.fs, h, self.inode.ino).ok()?;
        let mut bitmaps: Vec<Block> = number.into_iter().collect();
        for run in &self.runs {
            bitmaps.extend(alloc::hold_block_bitmaps(self.fs, *run).ok()?);
        }
        Some(HeldSmallInode {
            small: self,
            _bitmaps: bitmaps,
        })
    }
}

impl HeldSmallInode<'_> {
    /// Begins the deletion, unless another thread has a reference by now. From then on no thread
    /// gets one, so the caller has changed its first block: it goes on, or stops the journal.
    pub(super) fn begin(&self) -> bool {
        let SmallInode { fs, inode, .. } = &self.small;
        fs.inodes.begin_deletion_of_last(inode)
    }

    /// Makes `record`, which is the inode's, that of an inode that is free.
    ///
    /// # Errors
    /// A stopped journal.
    pub(super) fn clear(&self, h: &mut Handle, record: &HeldRecord) -> Result<()> {
        let SmallInode { fs, inode, .. } = &self.small;
        eviction::clear_record(fs, h, inode, record)
    }

    /// Frees the blocks and the number, once the name is gone and the record is clear. What cannot
    /// be freed stays taken.
    pub(super) fn free(self, h: &mut Handle) {
        let SmallInode { fs, inode, runs } = self.small;
        if !runs.is_empty() {
            alloc::release_window(fs, inode.ino);
            fs.stats.extents_removed.add(runs.len() as u64);
        }
        let mut freed = Ok(());
        for run in runs {
            freed = freed.and(alloc::free_blocks(fs, h, run, false));
        }
        let number = eviction::free_number(fs, h, inode);
        eviction::note_deletion(fs, inode, freed.and(number));
    }
}

/// The blocks of `inode`, if it is small: it has one name at most, no data in memory, no block of
/// attributes, no attribute with its value elsewhere, and few runs of blocks.
fn runs(fs: &Fs, inode: ExclusiveInode<'_>) -> Option<Vec<Run>> {
    let (links, sectors, file_acl) = {
        let core = inode.core.read();
        (core.links, core.sectors, core.file_acl.get())
    };
    let plain = inode.kind != FileKind::Directory && inode.file_state.get().is_none();
    if !plain || links > 1 || file_acl != 0 || xattr::has_values_elsewhere(fs, &inode) {
        return None;
    }
    match sectors {
        0 => Some(Vec::new()),
        _ => map::root_runs(fs, &inode),
    }
}

#[cfg(test)]
mod tests {
    use extant_sync::atomic::Ordering;
    use extant_testkit::Image;

    use super::*;
    use crate::file::{self, WriteAt, write};
    use crate::inode::flush_all_times;
    use crate::namei;
    use crate::test_support::test_mount::TestFs;
    use crate::types::{Cred, XattrMode};
    use crate::xattr;

    /// Orphans and deletions so far.
    fn counted(fs: &TestFs) -> (u64, u64) {
        (fs.stats.orphans_added.get(), fs.stats.inode_deletions.get())
    }

    /// No thread but the test's own evicts.
    fn mounted(image: &Image) -> TestFs {
        let fs = TestFs::mount(image.path(), "");
        fs.inodes.reaper.stop();
        fs
    }

    #[test]
    fn a_small_inode_goes_with_its_last_name() {
        let image = Image::of_mib(16).make().unwrap();
        let fs = mounted(&image);
        let (root, cred) = (fs.root(), Cred::root());
        let number = fs.create("file").ino;
        let kind = (FileKind::Fifo, 0);
        drop(namei::mknod(&fs, &root, b"pipe", kind, 0o600, &cred).unwrap());
        drop(namei::symlink(&fs, &root, b"link", b"short", &cred).unwrap());
        let (orphans, deletions) = counted(&fs);
        for name in ["file", "pipe", "link"] {
            fs.unlink(name);
        }
        assert_eq!(counted(&fs), (orphans, deletions + 3));
        assert!(fs.inodes.in_memory(number).is_none());
        assert_eq!(fs.create("next").ino, number, "the first free one");
        assert_eq!(fs.stats.faults.get(), 0);
        drop(root);
        fs.unmount();
        image.fsck_clean().unwrap();
    }

    #[test]
    fn an_inode_with_data_in_memory_or_another_name_does_not() {
        // Attributes do not fit these inodes: they have a block.
        let image = Image::of_mib(16).args("-b 1024 -I 128").make().unwrap();
        let fs = mounted(&image);
        let (root, cred) = (fs.root(), Cred::root());
        for name in ["data", "attributes", "linked"] {
            let file = fs.create(name);
            match name {
                "data" => {
                    write(&fs, &file, None, WriteAt::Pos(0), b"x", &cred).unwrap();
                }
                "attributes" => {
                    let mode = XattrMode::Either;
                    xattr::set(&fs, &file, b"trusted.x", b"value", mode, &cred).unwrap();
                }
                _ => namei::link(&fs, &file, &root, b"other", &cred).unwrap(),
            }
        }
        let (orphans, deletions) = counted(&fs);
        for (name, added) in [("data", 1), ("attributes", 2), ("linked", 2)] {
            fs.unlink(name);
            assert_eq!(counted(&fs), (orphans + added, deletions), "{name}");
        }
        assert_eq!(fs.find("other").core.read().links, 1);
        fs.reap_all();
        assert_eq!(counted(&fs), (orphans + 2, deletions + 2));
        assert_eq!(fs.stats.faults.get(), 0);
        drop(root);
        fs.unmount();
        image.fsck_clean().unwrap();
    }

    /// A file of several runs, which the mount did not read.
    #[test]
    fn blocks_go_with_the_last_name() {
        let image = Image::of_mib(16).args("-b 1024").make().unwrap();
        let fs = mounted(&image);
        let free = || fs.alloc.counts.free_blocks().get();
        let before = free();
        for (name, runs) in [("four", 4), ("five", 5)] {
            let file = fs.create(name);
            for run in 0..runs {
                let at = WriteAt::Pos(run * 4096);
                write(&fs, &file, None, at, &[7; 2048], &Cred::root()).unwrap();
            }
        }
        file::writeback_all_files(&fs).unwrap();
        flush_all_times(&fs, true).unwrap();
        drop(fs.inodes.evict_unused(|_| true));
        assert_eq!(free(), before - 2 * 4 - 2 * 5 - 1, "the node of a tree");
        let (orphans, deletions) = counted(&fs);
        fs.unlink("four");
        assert_eq!(counted(&fs), (orphans, deletions + 1));
        assert_eq!(free(), before - 2 * 5 - 1);
        fs.unlink("five");
        assert_eq!(counted(&fs), (orphans + 1, deletions + 1), "of two levels");
        fs.reap_all();
        assert_eq!(free(), before);
        assert_eq!(fs.stats.faults.get(), 0);
        fs.unmount();
        image.fsck_clean().unwrap();
    }

    /// An open file works on without a name, and its number is its own.
    #[test]
    fn an_inode_with_another_reference_does_not() {
        let image = Image::of_mib(16).make().unwrap();
        let fs = mounted(&image);
        let file = fs.create("file");
        let (orphans, deletions) = counted(&fs);
        fs.unlink("file");
        assert_eq!(counted(&fs), (orphans + 1, deletions));
        assert_ne!(fs.create("next").ino, file.ino);
        write(&fs, &file, None, WriteAt::Pos(0), b"x", &Cred::root()).unwrap();
        drop(file);
        fs.reap_all();
        assert_eq!(counted(&fs), (orphans + 1, deletions + 1));
        fs.unmount();
        image.fsck_clean().unwrap();
    }

    /// Between the look at the inode and the begin of its deletion other threads may find it.
    #[test]
    fn a_reference_that_comes_late_keeps_the_inode() {
        let image = Image::of_mib(16).make().unwrap();
        let fs = mounted(&image);
        let file = fs.create("file");
        let locked = file.lock_exclusively();
        let mut h = fs.start(credits::INODE_ALLOC).unwrap();
        let small = SmallInode::of(&fs, &file, locked.inode()).unwrap();
        let small = small.hold(&mut h).unwrap();
        let late = fs.iget(file.ino).unwrap();
        assert!(!small.begin());
        assert!(SmallInode::of(&fs, &file, locked.inode()).is_none());
        drop(late);
        assert!(small.begin());
        assert!(fs.iget(file.ino).is_err(), "no new reference");
        assert!(!small.begin(), "it begins once");
        // What follows takes the inode for one in use again.
        file.life.dead.store(false, Ordering::Release);
    }
}
