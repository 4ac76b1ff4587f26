//! Options of the caller.

use crate::external_journal::ExternalJournal;
use crate::features::FeatureEdit;
use crate::profile::Usage;
use crate::quota_kinds::QuotaKinds;

/// How a file system is to be made. The default is mke2fs's.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Its use, which chooses what is not said below.
    pub usage: Usage,
    /// Bytes of a block: a power of two from 1024 to 65536.
    pub block_size: Option<u32>,
    /// With the feature `bigalloc`: bytes of a cluster, a power of two from the block size to 512
    /// MiB, instead of 16 blocks.
    pub cluster_size: Option<u64>,
    /// Bytes of an inode: a power of two from 128 to the block size, at most 32768.
    pub inode_size: Option<u32>,
    /// One inode for so many bytes.
    pub bytes_per_inode: Option<u64>,
    /// So many inodes, instead of a ratio; rounded up to fill whole blocks in each group.
    pub inodes: Option<u64>,
    /// The volume's label, at most 16 bytes.
    pub label: Vec<u8>,
    /// The volume's UUID, instead of a random one.
    pub uuid: Option<[u8; 16]>,
    /// Share of the blocks that only root may take, in percent: 0 to 50.
    pub reserved_percent: Option<f64>,
    /// The journal's size in MiB, instead of one that fits the volume.
    pub journal_mib: Option<u32>,
    /// With the feature `fast_commit`: KiB of the area for them behind the journal's blocks,
    /// instead of one that fits the volume.
    pub fast_commit_kib: Option<u32>,
    /// The journal on a device of its own that the volume is to use, instead of one inside of it.
    pub external_journal: Option<ExternalJournal>,
    /// Features to add to the usage's, or to take away, in this order.
    pub features: Vec<FeatureEdit>,
    /// The seed of directory hashes, instead of a random one.
    pub hash_seed: Option<[u8; 16]>,
    /// Blocks of one disk of a RAID before the next one's begin.
    pub stride: u32,
    /// Blocks of a whole stripe of a RAID.
    pub stripe_width: u32,
    /// With the feature `casefold`: names in folded directories must be UTF-8.
    pub strict_names: bool,
    /// Owner and group of the root directory.
    pub root_owner: (u32, u32),
    /// With the feature `quota`: the kinds that are counted. Projects are if the feature `project`
    /// is there, which goes with their kind.
    pub quotas: QuotaKinds,
    /// Leaves unused parts of the inode tables to the first mount. On a device that reads as zeros
    /// they are zero either way.
    pub lazy_itable_init: Option<bool>,
    /// When it is made, in seconds since 1970, instead of now (or `SOURCE_DATE_EPOCH`).
    pub time: Option<u64>,
    /// The whole device is discarded first. Only of block devices; files become sparse anyway.
    pub discard: bool,
    /// Allows to overwrite what is there.
    pub force: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            usage: Usage::Default,
            block_size: None,
            cluster_size: None,
            inode_size: None,
            bytes_per_inode: None,
            inodes: None,
            label: Vec::new(),
            uuid: None,
            reserved_percent: None,
            journal_mib: None,
            fast_commit_kib: None,
            external_journal: None,
            features: Vec::new(),
            hash_seed: None,
            stride: 0,
            stripe_width: 0,
            strict_names: false,
            root_owner: (0, 0),
            quotas: QuotaKinds::USER_GROUP,
            lazy_itable_init: None,
            time: None,
            discard: false,
            force: false,
        }
    }
}
