//! The hold on a volume that several hosts can reach, while a repair writes it.
//!
//! Multiple mount protection has a state for this: while its block says so, no host mounts the
//! volume and no program repairs it. A repair that is broken off leaves that state, as e2fsck does,
//! and a person has to say that no host uses the volume.
//!
//! # Concurrency
//! The block is read before the check and must be the same when the volume is taken: a host that
//! used the volume in between has left another time there. It is read again at once after the state
//! was written, and before the volume is released. A host that read the block before that and
//! writes its own number after it is seen at the release only: a repair does not wait as a mount
//! does, so it is no protection against a mount that begins at the same moment.

use std::time::{SystemTime, UNIX_EPOCH};

use extant_blockdev::BlockDevice;
use extant_disk::csum::Crc32c;
use extant_disk::features::Incompat;
use extant_disk::mmp::{MMP_SIZE, Mmp, MmpState};
use extant_units::{DevOff, Pblk};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::image::Image;

/// Name of the device in the block, for the user of another host.
const NAME: &[u8] = b"extant fix";

/// The protection of a volume before it is written.
pub(crate) enum Protection {
    /// The volume has none.
    None,
    /// Its block is damaged: whether another host uses the volume is not known.
    Damaged,
    /// No host used the volume when the block was read.
    Free(Box<Block>),
}

/// The block, as it was read.
pub(crate) struct Block {
    at: DevOff,
    seed: Option<Crc32c>,
    mmp: Mmp,
}

/// A volume that no other host uses until it is released.
pub(crate) struct Hold<'a> {
    dev: &'a dyn BlockDevice,
    block: Block,
}

impl Protection {
    /// Reads the block on `dev`, which `image` is a copy of.
    ///
    /// # Errors
    /// [`Error::InUse`], or the device failed.
    pub(crate) fn read(dev: &dyn BlockDevice, image: &Image) -> Result<Protection> {
        let Some(pblk) = block_of(image) else {
            return Ok(Protection::None);
        };
        let Ok(at) = image.at(pblk) else {
            return Ok(Protection::Damaged);
        };
        let bytes = read(dev, at)?;
        match Mmp::parse(&bytes, image.seed) {
            // A damaged block is a finding of the check.
            Err(_) => Ok(Protection::Damaged),
            Ok(mmp) if mmp.state() != MmpState::Clean => Err(Error::InUse),
            Ok(mmp) => Ok(Protection::Free(Box::new(Block {
                at,
                seed: image.seed,
                mmp,
            }))),
        }
    }

    /// Keeps other hosts away from the volume on `dev`.
    ///
    /// # Errors
    /// [`Error::InUse`] if a host has used it since the block was read; the block is damaged, or
    /// the device failed.
    pub(crate) fn hold<'a>(&self, dev: &'a dyn BlockDevice) -> Result<Option<Hold<'a>>> {
        let block = match self {
            Protection::None => return Ok(None),
            Protection::Damaged => {
                let what = "the block of multiple mount protection is damaged: \
                            whether another host uses the volume is not known";
                return Err(Error::Unreadable(what.into()));
            }
            Protection::Free(block) => block,
        };
        let mut hold = Hold {
            dev,
            block: Block {
                at: block.at,
                seed: block.seed,
                mmp: block.mmp.clone(),
            },
        };
        hold.confirm()?;
        hold.store(MmpState::Fsck)?;
        hold.confirm()?;
        Ok(Some(hold))
    }
}

impl Hold<'_> {
    /// Lets other hosts use the volume.
    ///
    /// # Errors
    /// [`Error::InUse`] if another host has taken it nevertheless, or the device failed.
    pub(crate) fn release(mut self) -> Result<()> {
        self.confirm()?;
        self.store(MmpState::Clean)
    }

    /// Fails unless the block is as it was last read or written here.
    fn confirm(&self) -> Result<()> {
        match read(self.dev, self.block.at)? == *self.block.mmp.as_bytes() {
            true => Ok(()),
            false => Err(Error::InUse),
        }
    }

    /// Writes a state with a time that was not there before, durably.
    fn store(&mut self, state: MmpState) -> Result<()> {
        let mmp = &mut self.block.mmp;
        mmp.set_state(state);
        // A time from disk may be the largest already.
        mmp.time.set(now().max(mmp.time.get().saturating_add(1)));
        mmp.node.fill(0);
        mmp.device.fill(0);
        for (to, from) in mmp.device.iter_mut().zip(NAME) {
            *to = *from;
        }
        mmp.seal(self.block.seed);
        Ok(self.dev.write_durable(self.block.at, mmp.as_bytes())?)
    }
}

/// The block of the protection; `None` without the feature.
pub(crate) fn block_of(image: &Image) -> Option<Pblk> {
    let has_it = image.sb.features().has_incompat(Incompat::MMP);
    has_it.then(|| Pblk::new(image.sb.raw().mmp_block.get()))
}

fn read(dev: &dyn BlockDevice, at: DevOff) -> Result<[u8; MMP_SIZE]> {
    let mut bytes = [0; MMP_SIZE];
    dev.read_fresh_at(at, &mut bytes)?;
    Ok(bytes)
}

/// Seconds since the epoch.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    // A clock before the epoch is as good as any: the time in the block only has to change.
    since.map_or(0, |since| since.as_secs())
}
