//! A volume in memory, its counters, and what its device would show after a crash.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_engine::{Cred, Node, SetAttr, Tuning, Verifier, Volume, VolumeOptions};
use extant_testkit::{Image, Rng};

/// A mounted volume on memory.
pub(crate) struct Rig {
    pub(crate) volume: Volume,
    pub(crate) device: Arc<MemoryDevice>,
}

/// An image as bytes; `args` for mke2fs.
pub(crate) fn image(mib: u64, args: &str) -> Vec<u8> {
    let image = Image::with_args(mib, args).junk().make().unwrap();
    std::fs::read(image.path()).unwrap()
}

impl Rig {
    /// A fresh volume of 32 MiB whose device held junk before.
    pub(crate) fn new(args: &str) -> Self {
        Self::tuned(&image(32, args), "", |_| ())
    }

    /// A volume on `bytes`, without threads of its own that write back.
    pub(crate) fn tuned(bytes: &[u8], options: &str, change: impl FnOnce(&mut Tuning)) -> Self {
        let device = Arc::new(MemoryDevice::from_bytes(bytes));
        let volume = mount(device.clone(), options, change);
        Self { volume, device }
    }

    /// The device as a crash would leave it if every write had arrived.
    pub(crate) fn after_crash(&self) -> Self {
        Self::tuned(&self.device.to_bytes(), "", |_| ())
    }

    /// Ends the volume and has e2fsck look at it.
    pub(crate) fn end(self) {
        self.volume.unmount().unwrap();
        drop(self.volume);
        let image = Image::of_bytes(&self.device.to_bytes()).unwrap();
        image.fsck_clean().unwrap();
    }

    pub(crate) fn create(&self, name: &str) -> Node {
        let root = self.volume.root().unwrap();
        let made = self
            .volume
            .create(&root, name.as_bytes(), 0o644, &Cred::root());
        made.unwrap()
    }

    pub(crate) fn find(&self, name: &str) -> Node {
        let root = self.volume.root().unwrap();
        self.volume.lookup(&root, name.as_bytes()).unwrap()
    }

    pub(crate) fn write(&self, node: &Node, pos: u64, data: &[u8]) {
        let done = self.volume.write(node, pos, data, &Cred::root()).unwrap();
        assert_eq!(done, data.len());
    }

    pub(crate) fn truncate(&self, node: &Node, size: u64) {
        let to = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.volume.setattr(node, &to, &Cred::root()).unwrap();
    }

    /// Everything that the file holds.
    pub(crate) fn content(&self, node: &Node) -> Vec<u8> {
        let size = usize::try_from(self.volume.getattr(node).unwrap().size).unwrap();
        let mut bytes = vec![0x55; size];
        assert_eq!(self.volume.read(node, 0, &mut bytes).unwrap(), size);
        bytes
    }

    /// Content of the file called `name` after a crash now.
    pub(crate) fn content_after_crash(&self, name: &str) -> Vec<u8> {
        let crashed = self.after_crash();
        let content = crashed.content(&crashed.find(name));
        crashed.end();
        content
    }

    pub(crate) fn counters(&self) -> BTreeMap<&'static str, u64> {
        self.volume.stats().into_iter().collect()
    }

    /// Counts that `body` adds to the counters.
    pub(crate) fn counted(&self, body: impl FnOnce()) -> BTreeMap<&'static str, u64> {
        let before = self.counters();
        body();
        let after = self.volume.stats().into_iter();
        after
            .map(|(name, now)| (name, now.wrapping_sub(before[name])))
            .collect()
    }

    /// Every invariant of what is in memory; with `synced`, that nothing is left to be written.
    pub(crate) fn check(&self, synced: bool) {
        let checked = self.volume.verify(&mut Verifier::default(), synced);
        checked.unwrap();
    }
}

/// Mounts `device`, by default with a cache of 32 MiB and no flushers. No timer commits: it may
/// take long to get from one line of a test to the next.
pub(crate) fn mount(
    device: Arc<dyn BlockDevice>,
    options: &str,
    change: impl FnOnce(&mut Tuning),
) -> Volume {
    let mut tuning = Tuning::default();
    tuning.page_cache_bytes = Some(32 << 20);
    tuning.flushers = 0;
    change(&mut tuning);
    let mut open = VolumeOptions::new();
    let options = format!("commit=3000,{options}");
    open.write(true).tuning(tuning).mount_options(&options);
    open.open_on(device).unwrap()
}

/// The data paths that soaks go through. (Not `data=writeback` with `dioread_lock`: a crash may
/// show what a block held before.)
pub(crate) const WAYS: &[&str] = &[
    "",
    "nodelalloc",
    "data=writeback",
    "nobuffered_iomap",
    "nobuffered_iomap,nodelalloc",
    "nobuffered_iomap,dioread_lock",
    "nobuffered_iomap,data=journal",
];

/// A number from the environment.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs `round` again and again for `EXTANT_SECONDS`, with numbers that follow from `EXTANT_SEED`.
pub(crate) fn soak(mut round: impl FnMut(&mut Rng)) {
    let seconds = Duration::from_secs(number("EXTANT_SECONDS").unwrap_or(1));
    let mut rng = Rng::new(number("EXTANT_SEED").unwrap_or(1));
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < seconds {
        round(&mut rng);
        rounds += 1;
    }
    println!("{rounds} rounds");
}
