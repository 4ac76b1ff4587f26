//! Uses of a volume, with the features and sizes of each.
//!
//! The sizes of the default are those of the types `floppy`, `small`, `default`, `big` and `huge`
//! of mke2fs.conf, chosen by the device's length.

use extant_disk::features::{Compat, FeatureSets, Incompat, RoCompat};

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// The use of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Usage {
    /// Anything: mke2fs's defaults, which depend on the size.
    #[default]
    Default,
    /// Many small files: blocks of 1 KiB, an inode for 4 KiB.
    Small,
    /// Few large files: an inode for 1 MiB.
    LargeFile,
    /// An image that is made once: no journal, no room for growth, no reserved blocks.
    Minimal,
    /// The drive of a micro VM: nothing is left for the guest to initialise, nothing is reserved.
    Firecracker,
    /// A partition of Android: the features of its mke2fs.conf, reserved blocks of 1 %.
    Android,
    /// A boot volume that every GRUB 2 reads: no 64bit, no checksums of metadata.
    Grub,
}

/// Defaults of a use, for what the options leave open.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Profile {
    pub(crate) features: FeatureSets,
    pub(crate) block_size: u32,
    pub(crate) inode_size: u32,
    pub(crate) bytes_per_inode: u64,
    pub(crate) reserved_percent: f64,
    pub(crate) lazy_itable_init: bool,
}

/// The features of `mke2fs -t ext4`.
const EXT4: FeatureSets = FeatureSets {
    compat: Compat::HAS_JOURNAL
        .union(Compat::EXT_ATTR)
        .union(Compat::RESIZE_INODE)
        .union(Compat::DIR_INDEX),
    incompat: Incompat::FILETYPE
        .union(Incompat::EXTENTS)
        .union(Incompat::SIXTY_FOUR_BIT)
        .union(Incompat::FLEX_BG),
    ro_compat: RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::METADATA_CSUM),
};

impl Profile {
    /// The profile of `usage` for a device of `bytes` bytes.
    pub(crate) fn of(usage: Usage, bytes: u64) -> Self {
        let (block_size, bytes_per_inode) = match bytes {
            0..=0x2F_FFFF => (1024, 8192),
            _ if bytes < 512 * MIB => (1024, 4096),
            _ if bytes < 4 * TIB => (4096, 16384),
            _ if bytes < 16 * TIB => (4096, 32768),
            _ => (4096, 65536),
        };
        let mut profile = Self {
            features: EXT4,
            block_size,
            inode_size: 256,
            bytes_per_inode,
            reserved_percent: 5.0,
            lazy_itable_init: true,
        };
        profile.adapt(usage);
        profile
    }

    fn adapt(&mut self, usage: Usage) {
        let features = &mut self.features;
        match usage {
            Usage::Default => {}
            Usage::Small => (self.block_size, self.bytes_per_inode) = (1024, 4096),
            Usage::LargeFile => (self.block_size, self.bytes_per_inode) = (4096, 1 << 20),
            Usage::Minimal => {
                features.compat -= Compat::HAS_JOURNAL | Compat::RESIZE_INODE;
                self.reserved_percent = 0.0;
            }
            Usage::Firecracker => {
                (self.block_size, self.bytes_per_inode) = (4096, 16384);
                self.reserved_percent = 0.0;
                self.lazy_itable_init = false;
            }
            Usage::Android => {
                features.compat -= Compat::RESIZE_INODE;
                features.incompat -= Incompat::SIXTY_FOUR_BIT | Incompat::FLEX_BG;
                features.ro_compat -= RoCompat::METADATA_CSUM;
                features.ro_compat |= RoCompat::GDT_CSUM;
                (self.block_size, self.bytes_per_inode) = (4096, 16384);
                self.reserved_percent = 1.0;
            }
            Usage::Grub => {
                features.incompat -= Incompat::SIXTY_FOUR_BIT;
                features.ro_compat -= RoCompat::METADATA_CSUM;
                features.ro_compat |= RoCompat::GDT_CSUM;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_chooses_blocks_and_inodes() {
        let sizes = |bytes| {
            let profile = Profile::of(Usage::Default, bytes);
            (profile.block_size, profile.bytes_per_inode)
        };
        assert_eq!(sizes(3 * MIB - 1), (1024, 8192));
        assert_eq!(sizes(3 * MIB), (1024, 4096));
        assert_eq!(sizes(512 * MIB - 1), (1024, 4096));
        assert_eq!(sizes(512 * MIB), (4096, 16384));
        assert_eq!(sizes(4 * TIB), (4096, 32768));
        assert_eq!(sizes(16 * TIB), (4096, 65536));
    }
}
