//! Images with fast commits, and what becomes of them.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_check::{CheckOptions, check, find_log};
use extant_engine::{Error, VolumeOptions};
use extant_jbd2::{LogMap, inspect, recover_to_fast_commits};
use extant_testkit::mount::Subject;
use extant_testkit::tree::{Compare, Tree};
use extant_testkit::{Context, Error as TestError, Image, Need, Result, ensure};
use extant_units::{BlockSize, Blocks, DevOff};

pub(crate) const NEEDS: &[Need] = &[
    Need::Root,
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("fallocate"),
    Need::Tool("setfattr"),
];

/// Trees are alike but for what a replay cannot know: when a directory changed.
pub(crate) const ALIKE: Compare = Compare {
    one_image: false,
    skip_dir_times: true,
    skip_root: false,
    as_fuse2fs_shows: false,
    times_within: 0,
};

pub(crate) fn told(error: impl std::fmt::Display) -> TestError {
    TestError::new(error.to_string())
}

pub(crate) fn device(image: &Image) -> Result<Arc<MemoryDevice>> {
    let bytes = std::fs::read(image.path())?;
    Ok(Arc::new(MemoryDevice::from_bytes(&bytes)))
}

/// The log of a volume.
pub(crate) struct Log {
    pub(crate) map: LogMap,
    pub(crate) bs: BlockSize,
    /// Bytes of the device where the blocks of the fast-commit area are, in order.
    pub(crate) area: Vec<DevOff>,
}

impl Log {
    pub(crate) fn of(image: &Image, dev: &Arc<MemoryDevice>) -> Result<Self> {
        let none = || TestError::new("an image without a journal");
        let map = find_log(Arc::clone(dev) as _)
            .map_err(told)?
            .ok_or_else(none)?;
        let bytes = u32::try_from(image.block_size()?).map_err(told)?;
        let bs = BlockSize::from_bytes(bytes).ok_or_else(none)?;
        let superblock = inspect(&**dev, bs, &map).map_err(told)?;
        let area = superblock.fast_commit_area();
        let place = |at| map.block(at).and_then(|block| bs.dev_off(block));
        let area = area.filter_map(place).collect();
        Ok(Self { map, bs, area })
    }
}

/// The number of fast commits in the log of `image`.
pub(crate) fn fast_commits(image: &Image) -> Result<usize> {
    let dev = device(image)?;
    let log = Log::of(image, &dev)?;
    let blocks = Blocks::new(dev.len() / log.bs.bytes_u64());
    let recovered = recover_to_fast_commits(&*dev, log.bs, &log.map, blocks, 64 << 20);
    let (_, fast) = recovered.map_err(told)?;
    Ok(fast.map_or(0, |fast| fast.records().count()))
}

/// Mounts the volume on `dev` read-write and unmounts it.
pub(crate) fn replay(dev: Arc<dyn BlockDevice>) -> std::result::Result<(), Error> {
    let volume = VolumeOptions::new().write(true).open_on(dev)?;
    volume.unmount()
}

pub(crate) fn check_clean(dev: Arc<dyn BlockDevice>) -> Result<()> {
    let checked = check(dev, &CheckOptions::default()).map_err(told)?;
    ensure!(checked.is_clean(), "the check finds {:?}", checked.findings);
    Ok(())
}

/// The tree that Linux shows of an image.
pub(crate) fn tree_of(image: &Image, options: &str) -> Result<Tree> {
    let mount = Subject::Ext4.mount(image.path(), options)?;
    Tree::take(mount.dir())
}

/// Replays a copy, and compares it with the tree that Linux had.
pub(crate) fn judge(copy: &Image, live: &Tree, how: Compare) -> Result<Tree> {
    let dev = device(copy)?;
    replay(Arc::clone(&dev) as _).map_err(told)?;
    check_clean(Arc::clone(&dev) as _)?;
    let ours = Image::of_bytes(&dev.to_bytes())?;
    ours.fsck_clean()?;
    let tree = tree_of(&ours, "ro,noload")?;
    tree.expect_equal(live, how).context(|| "the mount")?;
    Ok(tree)
}
