//! Making a journal on a device of its own.
//!
//! The device begins with a superblock of ext4 that says so and nothing else; the journal's is the
//! block behind it, and all other blocks are the log's.

use extant_blockdev::BlockDevice;
use extant_disk::dir_hash::HashAlgorithm;
use extant_disk::features::{FeatureSets, RoCompat};
use extant_disk::jbd2::superblock::{JournalSuperblock, MAX_BLOCKS};
use extant_disk::superblock::{DefaultMountOpts, MAGIC, RawSuperblock, SUPERBLOCK_OFFSET, State};
use extant_units::{BlockSize, Blocks, DevOff, exact_u16, exact_u32};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::clusters;
use crate::error::{Error, Result};
use crate::external_journal::log_block;
use crate::features;
use crate::geometry::{FIRST_INO, block_size};
use crate::identity::Identity;
use crate::options::Options;
use crate::profile::Profile;
use crate::superblock::{CRC32C, ERRORS_CONTINUE, EXTRA_ISIZE, NO_LIMIT, times};

/// The fewest blocks of a journal, as mke2fs has it.
const LEAST_BLOCKS: u64 = 1024;

/// A journal on a device of its own, as it is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalPlan {
    /// Blocks of the device that it takes.
    pub blocks: u32,
    /// Bytes of one.
    pub block_size: u32,
    /// Its names and times.
    pub identity: Identity,
    features: FeatureSets,
    inode_size: u16,
}

impl JournalPlan {
    /// Plans a journal on a device of `bytes` bytes. Of `options`, those count that a journal has.
    ///
    /// # Errors
    /// Too few or too many blocks, or a bad block size.
    pub fn of(options: &Options, bytes: u64) -> Result<Self> {
        let profile = Profile::of(options.usage, bytes);
        let wanted = features::resolve_journal(profile.features, &options.features)?;
        if options.journal_mib.is_some() || options.external_journal.is_some() {
            return Err(Error::Conflict("a journal has no journal"));
        }
        let block_size = block_size(options.block_size.unwrap_or(profile.block_size))?;
        let blocks = bytes / block_size.bytes_u64();
        if blocks < LEAST_BLOCKS {
            let what = "a journal of 1024 blocks";
            return Err(Error::TooSmall { bytes, what });
        }
        let at_most = u32::try_from(blocks).ok().filter(|&all| all <= MAX_BLOCKS);
        let Some(blocks) = at_most else {
            let why = "a journal has at most 10240000";
            return Err(Error::TooLarge { blocks, why });
        };
        Ok(Self {
            blocks,
            block_size: exact_u32(block_size.bytes_u64()),
            identity: Identity::of(options)?,
            features: wanted,
            inode_size: exact_u16(options.inode_size.unwrap_or(profile.inode_size).into()),
        })
    }

    /// Bytes that the journal takes of its device.
    pub fn bytes(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.block_size)
    }

    /// Returns whether `options` ask for a journal, not for a volume.
    pub fn is_asked_for(options: &Options) -> bool {
        features::ask_for_journal(&options.features)
    }

    /// Writes the journal to `device`, whatever it held: the superblock last.
    ///
    /// # Errors
    /// Those of the device. There is neither a journal nor a file system on it then.
    pub fn write(&self, device: &dyn BlockDevice) -> Result<()> {
        let bs = block_size(self.block_size)?;
        // A block of an old log must not look like a part of this one.
        device.write_zeroes(DevOff::ZERO, self.bytes())?;
        device.flush()?;
        let at = DevOff::new(log_block(bs) * bs.bytes_u64());
        let uuid = self.identity.uuid;
        let mut log = JournalSuperblock::new_empty(bs, self.blocks, uuid);
        log.set_on_device(exact_u32(log_block(bs)));
        device.write_at(at, &log.to_bytes())?;
        device.flush()?;
        let mut raw = self.superblock(bs);
        raw.seal();
        device.write_durable(DevOff::new(SUPERBLOCK_OFFSET), raw.as_bytes())?;
        Ok(())
    }

    fn superblock(&self, bs: BlockSize) -> Box<RawSuperblock> {
        let mut raw = RawSuperblock::zeroed();
        raw.set_blocks_count(Blocks::new(self.blocks.into()));
        raw.first_data_block = U32::new(u32::from(bs == BlockSize::KIB1));
        raw.log_block_size.set(bs.log2() - 10);
        raw.log_cluster_size.set(bs.log2() - 10);
        let per_group = exact_u32(clusters::group_blocks(bs, 0));
        raw.blocks_per_group.set(per_group);
        raw.clusters_per_group.set(per_group);
        raw.set_features(self.features);
        raw.magic.set(MAGIC);
        raw.set_state(State::VALID);
        raw.errors.set(ERRORS_CONTINUE);
        raw.max_mnt_count.set(NO_LIMIT);
        raw.rev_level.set(1);
        raw.first_ino.set(FIRST_INO);
        raw.inode_size.set(self.inode_size);
        let identity = &self.identity;
        raw.uuid = identity.uuid;
        raw.volume_name = identity.label;
        times(&mut raw, identity.time);
        let words = identity.hash_seed.as_chunks::<4>().0;
        for (word, bytes) in raw.hash_seed.iter_mut().zip(words) {
            *word = U32::from_bytes(*bytes);
        }
        raw.def_hash_version = HashAlgorithm::HalfMd4.version();
        let options = DefaultMountOpts::XATTR_USER | DefaultMountOpts::ACL;
        raw.default_mount_opts.set(options.bits());
        if self.inode_size > 128 {
            raw.min_extra_isize.set(EXTRA_ISIZE);
            raw.want_extra_isize.set(EXTRA_ISIZE);
        }
        if self.features.has_ro_compat(RoCompat::METADATA_CSUM) {
            raw.checksum_type = CRC32C;
        }
        // Both superblocks, in whole KiB.
        raw.kbytes_written.set(2);
        raw
    }
}
