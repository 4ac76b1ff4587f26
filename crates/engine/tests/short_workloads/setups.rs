//! Volumes that workloads begin on, and how they are mounted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use extant_blockdev::MemoryDevice;
use extant_engine::{Cred, Tuning, VolumeOptions, XattrMode};
use extant_testkit::Image;

use crate::content::Habits;
use crate::model::{Model, SMALL, attr_value};
use crate::ops::{Name, Object};

/// The volumes that are made, by the name of their setup.
type Bases = BTreeMap<&'static str, Arc<Vec<u8>>>;

/// A volume and how to mount it.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) habits: Habits,
    /// The size of the image.
    mib: u64,
    /// Arguments of mke2fs.
    mkfs: &'static str,
    /// Mount options.
    pub(crate) mount: &'static str,
    /// The workload's handles are committed one by one.
    commit_each_handle: bool,
}

const fn of_1k(name: &'static str, mount: &'static str) -> Setup {
    Setup {
        name,
        habits: Habits {
            block: 1024,
            early_sizes: false,
        },
        mib: 3,
        mkfs: "-b 1024 -J size=1",
        mount,
        commit_each_handle: false,
    }
}

/// Blocks larger than a page.
const fn of_large_blocks(name: &'static str, block: usize) -> Setup {
    Setup {
        habits: Habits {
            block,
            early_sizes: false,
        },
        mib: 9,
        mkfs: "",
        ..of_1k(name, "")
    }
}

/// All of them: the first is that of a short round.
pub(crate) const SETUPS: &[Setup] = &[
    of_1k("1k", ""),
    Setup {
        habits: Habits {
            block: 4096,
            early_sizes: false,
        },
        mib: 9,
        mkfs: "-b 4096 -J size=4",
        ..of_1k("4k", "")
    },
    Setup {
        commit_each_handle: true,
        ..of_1k("each_handle", "")
    },
    Setup {
        habits: Habits {
            block: 1024,
            early_sizes: true,
        },
        ..of_1k("ordered", "nobuffered_iomap,dioread_lock,nodelalloc")
    },
    of_1k("journalled", "data=journal"),
    Setup {
        mkfs: "-b 1024 -O fast_commit -J size=1,fast_commit_size=16",
        ..of_1k("fast", "")
    },
    of_large_blocks("8k", 8192),
    of_large_blocks("64k", 65536),
];

impl Setup {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        let linux = [Self::of_linux()].into_iter();
        SETUPS.iter().chain(linux).find(|setup| setup.name == name)
    }

    /// The first one as Linux's ext4 has it: what is written back is allocated first, with a size,
    /// and converted when the data is there.
    pub(crate) fn of_linux() -> &'static Self {
        static LINUX: Setup = Setup {
            habits: Habits {
                block: 1024,
                early_sizes: true,
            },
            ..of_1k("linux", "")
        };
        &LINUX
    }

    /// Returns whether e2fsck replays what a cut leaves: of fast commits it does only a part.
    pub(crate) fn is_for_e2fsck(&self) -> bool {
        !self.mkfs.contains("fast_commit")
    }

    /// How Extant mounts it. Nothing happens but what the workload asks for.
    pub(crate) fn options(&self) -> VolumeOptions {
        let mut options = VolumeOptions::new();
        let how = options.write(true).mount_options(self.mount);
        how.tuning(Self::tuning()).clone()
    }

    /// The switches of a mount that runs a workload.
    pub(crate) fn recorded_tuning(&self) -> Tuning {
        let mut tuning = Self::tuning();
        tuning.commit_each_handle = self.commit_each_handle;
        tuning
    }

    fn tuning() -> Tuning {
        let mut tuning = Tuning::default();
        tuning.page_cache_bytes = Some(32 << 20);
        tuning.name_cache_bytes = 0;
        tuning.flushers = 0;
        tuning
    }

    /// The volume that workloads begin on: made once, as all its states are states of one image.
    pub(crate) fn base(&'static self) -> Arc<Vec<u8>> {
        static MADE: Mutex<Bases> = Mutex::new(BTreeMap::new());
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let base = made.entry(self.name);
        base.or_insert_with(|| Arc::new(self.make())).clone()
    }

    fn make(&self) -> Vec<u8> {
        let fixed = "-N 32 -O ^resize_inode,orphan_file -U 6c0a2b1e-53f4-4b0b-9d5a-0d3a0c1f7e11 \
                     -E nodiscard,lazy_itable_init=0,lazy_journal_init=0,\
                     hash_seed=1b9f3a5c-7d2e-4c68-8a41-5e0f9b3d6c27";
        let image = match self.habits.block {
            ..=4096 => Image::of_mib(self.mib),
            block => Image::beside_journal(block as u64, self.mib),
        };
        let image = image.args(self.mkfs).args(fixed).junk();
        let bytes = std::fs::read(image.make().unwrap().path()).unwrap();
        let device = Arc::new(MemoryDevice::from_bytes(&bytes));
        let volume = self.options().open_on(device.clone()).unwrap();
        let (root, cred) = (volume.root().unwrap(), Cred::root());
        for name in [Name(0), Name(2)] {
            let Object::Dir(_) = name.dir() else {
                continue;
            };
            let dir = name.dir().path().as_bytes();
            let dir = volume.mkdir(&root, dir, 0o755, &cred).unwrap();
            let file = name.last().as_bytes();
            let file = volume.create(&dir, file, 0o644, &cred).unwrap();
            let bytes = Model::start_bytes(name, self.habits.block);
            volume.write(&file, 0, &bytes, &cred).unwrap();
            let start = Model::start(self.habits);
            let (_, node) = start.at(name).unwrap();
            let value = attr_value(SMALL, node.attrs[SMALL]);
            let key = SMALL.as_bytes();
            volume
                .setxattr(&file, key, &value, XattrMode::Either, &cred)
                .unwrap();
        }
        drop(root);
        volume.unmount().unwrap();
        drop(volume);
        device.to_bytes()
    }
}
