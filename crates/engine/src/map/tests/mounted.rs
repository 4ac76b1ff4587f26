//! A file system over an image, as far as maps need one: journal, groups, allocator, inodes.

use std::sync::{Arc, Weak};

use extant_blockdev::{BlockDevice, FileDevice, OpenMode};
use extant_disk::inode::InodeFlags;
use extant_disk::superblock::State;
use extant_jbd2::{Config, Handle, Journal, LogMap};
use extant_testkit::Image;
use extant_units::{Ino, Lblk};

use crate::config::{ErrorsPolicy, MountOptions, Tuning};
use crate::map::{RawMap, raw_runs};
use crate::mount;
use crate::state::attr_blocks::SharedBlocks;
use crate::state::crypt::KeyRing;
use crate::state::file::{Files, LoggedDevice};
use crate::state::inode::{InodeCache, InodeRef};
use crate::state::map::{DelayedTrees, SharedMaps, StatusCache};
use crate::state::orphans::Orphans;
use crate::state::volume::{Fault, MountedSuperblock, RenameLock};
use crate::test_support::test_rig::Rig;
use crate::volume::Fs;

/// The file system.
pub(super) struct MapMount {
    pub(super) fs: Arc<Fs>,
}

impl MapMount {
    /// Mounts `image`, which needs no replay, with its journal or without one.
    pub(super) fn new(image: &Image, logged: bool) -> Self {
        let dev = FileDevice::open(image.path(), OpenMode::ReadWrite).unwrap();
        Self::over(Arc::new(dev), logged, 1 << 19)
    }

    /// The same over any device; all status trees remember about `known` ranges.
    pub(super) fn over(dev: Arc<dyn BlockDevice>, logged: bool, known: u64) -> Self {
        let rig = Rig::over(dev).unwrap();
        let tuning = Tuning {
            page_cache_bytes: Some(1 << 20),
            ..Tuning::default()
        };
        let device = LoggedDevice::new(rig.dev.clone(), rig.journal.clone(), rig.layout.block_size);
        let block_size = rig.layout.block_size;
        let delayed = DelayedTrees::new(&rig.alloc.counts, block_size, tuning.tree());
        let fs = Fs {
            latch: Arc::default(),
            super_block: MountedSuperblock::new(&rig.layout, State::VALID),
            layout: rig.layout,
            dev: rig.dev,
            cache: rig.cache,
            journal: rig.journal.clone(),
            operations: None,
            groups: rig.groups,
            alloc: rig.alloc,
            zones: rig.zones,
            inodes: InodeCache::new(&rig.stats, tuning.block_cache_bytes),
            names: extant_name_cache::NameCache::new(0),
            maps: SharedMaps {
                status: StatusCache::with_limit(known),
                delayed,
            },
            quotas: std::sync::OnceLock::new(),
            xattr_blocks: SharedBlocks::default(),
            keys: KeyRing::default(),
            files: Files::new(&tuning, block_size, device),
            orphans: Orphans::default(),
            options: MountOptions::default(),
            tuning,
            stats: rig.stats,
            fault: Fault::new(ErrorsPolicy::Continue),
            rename_lock: RenameLock::default(),
            growing: parking_lot::Mutex::default(),
            interrupted: false.into(),
            mmp: std::sync::OnceLock::new(),
            ended: std::sync::OnceLock::new(),
            this: Weak::new(),
            upcalls: mount::UPCALLS,
        };
        let mut fs = shared(fs);
        if logged {
            let journal = log(&fs);
            fs.clear_inodes();
            let mut whole = Arc::into_inner(fs).unwrap();
            whole.inodes = InodeCache::new(&whole.stats, whole.tuning.block_cache_bytes);
            whole.journal = journal;
            fs = shared(whole);
        }
        Self { fs }
    }

    /// The inode that `debugfs` numbers.
    pub(super) fn inode(&self, ino: Ino) -> InodeRef {
        self.fs.iget(ino).unwrap()
    }

    /// A handle.
    pub(super) fn start(&self, credits: u32) -> Handle {
        self.fs.start(credits).unwrap()
    }

    /// Writes everything home and sums up the superblock, as an unmount does.
    pub(super) fn close(self) {
        let fs = &self.fs;
        let mut h = self.start(2);
        let free = fs.alloc.counts.free_blocks();
        fs.super_block
            .update(fs, &mut h, |raw| raw.set_free_blocks_count(free))
            .unwrap();
        drop(h);
        fs.journal.close().unwrap();
        let stats = fs.journal.stats();
        assert_eq!(stats.credit_overflows, 0, "J22");
        assert_eq!(fs.stats.faults.get(), 0);
        assert_eq!(fs.alloc.counts.reserved_blocks().get(), 0, "J11");
        fs.clear_inodes();
    }
}

/// The image's own journal.
fn log(fs: &Arc<Fs>) -> Arc<Journal> {
    let ino = fs.layout.journal_inode.unwrap();
    let core = fs.iget_internal(ino).unwrap().core.read().clone();
    let blocks = core.disk_size / fs.layout.block_size.bytes_u64();
    let zones = crate::state::volume::SystemZones::default();
    let map = RawMap {
        cache: &fs.cache,
        layout: &fs.layout,
        zones: &zones,
        ino,
        generation: core.generation,
        i_block: core.i_block,
        extents: core.flags.contains(InodeFlags::EXTENTS),
    };
    let runs = raw_runs(&map, u32::try_from(blocks).unwrap()).unwrap();
    assert_eq!(runs.first().map(|run| run.lblk), Some(Lblk::ZERO));
    let runs = runs.into_iter().map(|run| (run.pblk, run.len)).collect();
    let config = Config {
        checksums: fs.layout.metadata_csum(),
        ..Config::default()
    };
    Journal::open(
        Arc::clone(&fs.cache),
        Arc::clone(&fs.dev),
        LogMap::new(runs),
        config,
    )
    .unwrap()
}

/// An empty regular file `name` in the root of `image`, made by debugfs.
pub(super) fn empty_file(image: &Image, name: &str) -> Ino {
    image
        .debugfs_write(&format!("write /dev/null {name}"))
        .unwrap();
    let stat = image.debugfs(&format!("stat {name}")).unwrap();
    let number = stat.split_whitespace().nth(1).unwrap();
    Ino::new(number.parse().unwrap()).unwrap()
}

/// `fs` with a pointer to itself.
fn shared(fs: Fs) -> Arc<Fs> {
    Arc::new_cyclic(|this| Fs {
        this: this.clone(),
        ..fs
    })
}
