//! The plan of a volume: how large it is, and where everything lies.
//!
//! The smallest size is searched for by plans of empty volumes, which cost nothing beside the
//! sources; the files are placed once or twice.

use std::ops::Range;

use extant_disk::dir_hash::{DirHasher, HashAlgorithm};
use extant_disk::features::{Compat, FeatureSets, Incompat, RoCompat};
use extant_mkfs::{Formats, Identity, Layout};
use extant_units::BlockSize;

use crate::directory::DirLayout;
use crate::error::{Error, Result};
use crate::numbering::{Numbering, number};
use crate::options::Options;
use crate::placement::{Placement, Placing, measure};
use crate::tree::{NodeId, Tree};

/// Sizes in blocks at which a volume's journal becomes larger: between them, a larger volume has
/// more room.
const STEPS: [u64; 9] = [
    0, 2048, 0x8000, 0x4_0000, 0x8_0000, 0x40_0000, 0x80_0000, 0x100_0000, 0x200_0000,
];
/// The largest volume that is tried, in blocks.
const MOST: u64 = 1 << 42;
/// Bytes of the free part for which there is an inode, where nothing else is said.
const BYTES_PER_INODE: u64 = 16384;

/// A volume that is planned.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) layout: Layout,
    pub(crate) numbering: Numbering,
    pub(crate) placement: Placement,
    pub(crate) dirs: DirLayout,
}

impl Planned {
    /// Asserts that layout, placement and numbering agree. Nothing is written yet.
    fn assert_agreed(&self) {
        assert_eq!(
            self.layout.free_blocks(),
            self.placement.left,
            "the same blocks are left"
        );
        assert_eq!(
            self.layout.last_inode(),
            self.numbering.last(),
            "the same inodes are in use"
        );
    }
}

/// The inputs of a plan.
pub(crate) struct Sizing<'a> {
    pub(crate) tree: &'a mut Tree,
    pub(crate) options: &'a Options,
    /// Options of the volume: the block size and the hash seed are known.
    pub(crate) volume: extant_mkfs::Options,
    pub(crate) block_size: BlockSize,
    /// The files with data, in their order.
    pub(crate) files: &'a [NodeId],
    /// Bytes of the device, where it is one.
    pub(crate) device: Option<u64>,
}

impl Sizing<'_> {
    /// Plans the volume.
    ///
    /// # Errors
    /// A size that does not do; options that no volume can have.
    pub(crate) fn plan(self) -> Result<Planned> {
        let size = self.options.size.or(self.device);
        // The first plan tells the features.
        let sketch = Layout::plan(&self.volume, size.unwrap_or_else(|| self.sketched()))?;
        let features = sketch.geometry().features;
        refuse_unbuilt(&features)?;
        let seed = self.volume.hash_seed.expect("the job derives a seed");
        let seed = seed.as_chunks::<4>().0.iter();
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(seed) {
            *word = u32::from_le_bytes(*bytes);
        }
        let dirs = DirLayout {
            hasher: DirHasher::with(HashAlgorithm::HalfMd4, false, words),
            indexed: features.has_compat(Compat::DIR_INDEX),
        };
        let mut first = sketch.last_inode() + 1;
        let mut need_more = 0;
        loop {
            let uncounted = features.has_ro_compat(RoCompat::DIR_NLINK);
            let numbering = number(self.tree, &dirs, first, uncounted)?;
            let formats = Formats::of(&sketch, &Identity::of(&self.volume)?);
            let need = measure(self.tree, &numbering, &dirs, &formats, &sketch)? + need_more;
            let layout = match size {
                Some(bytes) => self.fixed(bytes, need, &numbering)?,
                None => self.smallest(need, &numbering)?,
            };
            if layout.last_inode() + 1 != first {
                first = layout.last_inode() + 1;
                continue;
            }
            let placing = Placing {
                tree: self.tree,
                numbering: &numbering,
                files: self.files,
                layout: &layout,
                block_size: self.block_size,
            };
            let placed = placing.all();
            let wanted = self.free(need) / self.block_size.bytes_u64();
            match placed.filter(|placed| size.is_some() || placed.left >= wanted) {
                Some(placement) => {
                    let mut layout = layout;
                    let inodes = numbering.dirs.iter().filter(|id| !is_own(&numbering, **id));
                    let inodes = inodes.map(|id| self.tree.node(*id).ino);
                    layout.populate(&placement.taken, numbering.last(), inodes);
                    let planned = Planned {
                        layout,
                        numbering,
                        placement,
                        dirs,
                    };
                    planned.assert_agreed();
                    return Ok(planned);
                }
                None if size.is_some() => {
                    return Err(Error::NoRoom {
                        bytes: layout.bytes(),
                        what: "the files and their maps do not fit".to_owned(),
                    });
                }
                // Blocks of maps and of attributes.
                None => need_more = (need_more * 2).max(64),
            }
        }
    }

    /// Bytes of the first plan, where no size is given: enough for as many inodes as are asked for,
    /// of which a group has at most one for each block.
    fn sketched(&self) -> u64 {
        let inodes = self.volume.inodes.unwrap_or(0).min(u64::from(u32::MAX));
        (1 << 30) + inodes * self.block_size.bytes_u64()
    }

    /// The volume of `bytes` bytes, with the inodes that are needed.
    fn fixed(&self, bytes: u64, need: u64, numbering: &Numbering) -> Result<Layout> {
        let mut layout = Layout::plan(&self.volume, bytes)?;
        let used = numbering.last();
        if layout.geometry().inodes() < used && !self.inodes_are_given() {
            let mut volume = self.volume.clone();
            volume.inodes = Some(u64::from(used));
            layout = Layout::plan(&volume, bytes)?;
        }
        self.check_inodes(&layout, used)?;
        if layout.free_blocks() < need {
            let bs = self.block_size.bytes_u64();
            let what = format!(
                "{} bytes are needed for files, {} are free",
                need * bs,
                layout.free_blocks() * bs
            );
            let bytes = layout.bytes();
            return Err(Error::NoRoom { bytes, what });
        }
        Ok(layout)
    }

    /// Bytes that stay free beside `need` blocks of files.
    fn free(&self, need: u64) -> u64 {
        let share = u64::from(self.options.free_percent.min(99));
        let blocks = (need.min(MOST) * share).div_ceil(100 - share);
        let bytes = blocks * self.block_size.bytes_u64();
        bytes.max(self.options.free)
    }

    fn inodes_are_given(&self) -> bool {
        self.volume.inodes.is_some() || self.volume.bytes_per_inode.is_some()
    }

    fn check_inodes(&self, layout: &Layout, used: u32) -> Result<()> {
        let inodes = layout.geometry().inodes();
        if inodes < used {
            let what = format!("{used} inodes are needed, it has {inodes}");
            let bytes = layout.bytes();
            return Err(Error::NoRoom { bytes, what });
        }
        Ok(())
    }

    /// The smallest volume with `need` free blocks and those that shall stay free.
    fn smallest(&self, need: u64, numbering: &Numbering) -> Result<Layout> {
        let bs = self.block_size.bytes_u64();
        let free = self.free(need).div_ceil(bs);
        if need + free > MOST {
            return Err(too_large());
        }
        let mut volume = self.volume.clone();
        if !self.inodes_are_given() {
            let spare = self.free(need) / BYTES_PER_INODE;
            volume.inodes = Some(u64::from(numbering.last()) + spare);
        }
        let attempt = |blocks: u64| {
            let layout = Layout::plan(&volume, blocks * bs).ok()?;
            let fits = layout.free_blocks() >= need + free;
            (fits && layout.geometry().inodes() >= numbering.last()).then_some(layout)
        };
        let journal = Layout::plan(&volume, STEPS[1] * bs).map_or(0, |l| l.journal_blocks());
        let steps = STEPS.windows(2).map(|pair| pair[0]..pair[1]);
        let steps = steps.skip(usize::from(journal > 0));
        let last = STEPS[STEPS.len() - 1];
        for step in steps.chain(doublings(last)) {
            let (mut low, mut high) = (step.start.max(need + free), step.end - 1);
            if low > high {
                continue;
            }
            let Some(mut best) = attempt(high) else {
                continue;
            };
            while low < high {
                let middle = low + (high - low) / 2;
                match attempt(middle) {
                    Some(layout) => (best, high) = (layout, middle),
                    None => low = middle + 1,
                }
            }
            return Ok(best);
        }
        // The reason is that of a large volume.
        Layout::plan(&volume, (need + free + STEPS[2]) * bs)?;
        Err(too_large())
    }
}

fn too_large() -> Error {
    Error::Options("no volume is large enough".to_owned())
}

/// Ranges from `start` on, each twice as long as the one before.
fn doublings(start: u64) -> impl Iterator<Item = Range<u64>> {
    let next = |range: &Range<u64>| Some(range.end..range.end * 2);
    std::iter::successors(Some(start..start * 2), next).take_while(|range| range.end <= MOST)
}

/// Returns whether a directory is one of an empty volume.
fn is_own(numbering: &Numbering, id: NodeId) -> bool {
    id == NodeId::ROOT || Some(id) == numbering.lost_found
}

/// Refuses features that files are not built with.
fn refuse_unbuilt(features: &FeatureSets) -> Result<()> {
    if !features.has_incompat(Incompat::EXTENTS) {
        let what = "files without extents are not built: leave extent among the features";
        return Err(Error::Options(what.to_owned()));
    }
    if features.has_ro_compat(RoCompat::QUOTA) {
        let what = "usage is not counted: leave quota out of the features";
        return Err(Error::Options(what.to_owned()));
    }
    Ok(())
}
