//! Feature bits: which optional parts of the format a file system uses.
//!
//! Three sets with three rules. A file system with an unknown *compat* bit may be written; with an
//! unknown *ro_compat* bit it may only be read; with an unknown *incompat* bit it may not be
//! touched. Which bits Extant supports stands here once, in `SUPPORTED` of each set: the mount and
//! the check both go by it. Names are those of
//! `mke2fs -O` and `dumpe2fs`; a bit without a name is called `FEATURE_C<n>`, `FEATURE_I<n>` or
//! `FEATURE_R<n>` after its set and bit number, as `dumpe2fs` does.

use core::fmt;

macro_rules! feature_set {
    (
        $(#[$meta:meta])* $name:ident, $letter:literal,
        { $(#[doc = $doc:literal] $bit:ident = $value:literal, $text:literal;)* }
    ) => {
        bitflags::bitflags! {
            $(#[$meta])*
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
            pub struct $name: u32 {
                $(#[doc = $doc] const $bit = $value;)*
                const _ = !0;
            }
        }

        impl $name {
            /// Every named bit with its name, in order of the bits.
            pub const NAMED: &'static [(Self, &'static str)] = &[$((Self::$bit, $text)),*];

            /// The name of each bit that is set, in order of the bits; unnamed bits included.
            pub fn names(self) -> impl Iterator<Item = FeatureName> {
                (0..32).filter_map(move |bit| {
                    let one = Self::from_bits_retain(1 << bit);
                    if !self.contains(one) {
                        return None;
                    }
                    let named = Self::NAMED.iter().find(|(known, _)| *known == one);
                    Some(match named {
                        Some((_, name)) => FeatureName::Known(name),
                        None => FeatureName::Unknown { set: $letter, bit },
                    })
                })
            }
        }
    };
}

feature_set! {
    /// `s_feature_compat`: may be ignored by readers and writers that do not know them.
    Compat, 'C', {
        /// Directory blocks are preallocated (never implemented).
        DIR_PREALLOC = 0x1, "dir_prealloc";
        /// Inodes of AFS servers.
        IMAGIC_INODES = 0x2, "imagic_inodes";
        /// A journal inode exists.
        HAS_JOURNAL = 0x4, "has_journal";
        /// Extended attributes may exist.
        EXT_ATTR = 0x8, "ext_attr";
        /// Inode 7 holds blocks for a growing descriptor table.
        RESIZE_INODE = 0x10, "resize_inode";
        /// Directories may be hash trees.
        DIR_INDEX = 0x20, "dir_index";
        /// Lazily initialised groups, an early form.
        LAZY_BG = 0x40, "lazy_bg";
        /// Snapshots' exclude inode (never merged in Linux).
        EXCLUDE_INODE = 0x80, "exclude_inode";
        /// Snapshots' exclude bitmap (never merged in Linux).
        EXCLUDE_BITMAP = 0x100, "snapshot_bitmap";
        /// At most two backups of the superblock, named in `s_backup_bgs`.
        SPARSE_SUPER2 = 0x200, "sparse_super2";
        /// The journal may hold fast commits.
        FAST_COMMIT = 0x400, "fast_commit";
        /// Inode numbers and the UUID never change.
        STABLE_INODES = 0x800, "stable_inodes";
        /// Orphans are kept in a file.
        ORPHAN_FILE = 0x1000, "orphan_file";
    }
}

feature_set! {
    /// `s_feature_incompat`: code that does not know one of these must not even read.
    Incompat, 'I', {
        /// Compressed files (never implemented).
        COMPRESSION = 0x1, "compression";
        /// Directory entries carry the file's type.
        FILETYPE = 0x2, "filetype";
        /// The journal holds transactions to replay.
        RECOVER = 0x4, "needs_recovery";
        /// This is an external journal, not a file system.
        JOURNAL_DEV = 0x8, "journal_dev";
        /// Group descriptors live in their meta group.
        META_BG = 0x10, "meta_bg";
        /// Files may be mapped by extents.
        EXTENTS = 0x40, "extent";
        /// 64-bit block numbers, larger group descriptors.
        SIXTY_FOUR_BIT = 0x80, "64bit";
        /// Protection against mounting twice.
        MMP = 0x100, "mmp";
        /// Bitmaps and inode tables may lie outside of their group.
        FLEX_BG = 0x200, "flex_bg";
        /// Large attribute values live in inodes.
        EA_INODE = 0x400, "ea_inode";
        /// Data in directory entries (Lustre).
        DIRDATA = 0x1000, "dirdata";
        /// The checksum seed is stored, not derived from the UUID.
        CSUM_SEED = 0x2000, "metadata_csum_seed";
        /// Directories past 2 GiB, hash trees of three levels.
        LARGEDIR = 0x4000, "large_dir";
        /// File contents inside of the inode.
        INLINE_DATA = 0x8000, "inline_data";
        /// Encrypted inodes may exist.
        ENCRYPT = 0x1_0000, "encrypt";
        /// Directories may fold case.
        CASEFOLD = 0x2_0000, "casefold";
    }
}

feature_set! {
    /// `s_feature_ro_compat`: code that does not know one of these may read, but not write.
    RoCompat, 'R', {
        /// Backups of the superblock only in groups 0, 1 and powers of 3, 5, 7.
        SPARSE_SUPER = 0x1, "sparse_super";
        /// Files may exceed 2 GiB.
        LARGE_FILE = 0x2, "large_file";
        /// Directories as B-trees (never implemented).
        BTREE_DIR = 0x4, "btree_dir";
        /// Block counts of inodes may be 48 bits, or count file system blocks.
        HUGE_FILE = 0x8, "huge_file";
        /// Group descriptors carry a crc16; groups may be uninitialised.
        GDT_CSUM = 0x10, "uninit_bg";
        /// Directories may have more subdirectories than a link count can hold.
        DIR_NLINK = 0x20, "dir_nlink";
        /// Inodes reserve a stated number of bytes for their larger fields.
        EXTRA_ISIZE = 0x40, "extra_isize";
        /// A snapshot exists (never merged in Linux).
        HAS_SNAPSHOT = 0x80, "snapshot";
        /// Quota files are hidden inodes.
        QUOTA = 0x100, "quota";
        /// Space is allocated in clusters of several blocks.
        BIGALLOC = 0x200, "bigalloc";
        /// All metadata carries a crc32c.
        METADATA_CSUM = 0x400, "metadata_csum";
        /// Replicas (never implemented).
        REPLICA = 0x800, "replica";
        /// The image asks never to be written.
        READONLY = 0x1000, "read-only";
        /// Project quotas are tracked.
        PROJECT = 0x2000, "project";
        /// Blocks may be shared between files (Android's deduplicated images).
        SHARED_BLOCKS = 0x4000, "shared_blocks";
        /// Files protected by fs-verity may exist.
        VERITY = 0x8000, "verity";
        /// The orphan file may hold entries.
        ORPHAN_PRESENT = 0x1_0000, "orphan_present";
    }
}

impl Incompat {
    /// The features that Extant supports: a volume with any other incompat feature is refused.
    pub const SUPPORTED: Self = Self::FILETYPE
        .union(Self::RECOVER)
        .union(Self::META_BG)
        .union(Self::EXTENTS)
        .union(Self::SIXTY_FOUR_BIT)
        .union(Self::MMP)
        .union(Self::FLEX_BG)
        .union(Self::CSUM_SEED)
        .union(Self::CASEFOLD)
        .union(Self::EA_INODE)
        .union(Self::LARGEDIR)
        .union(Self::INLINE_DATA)
        .union(Self::ENCRYPT);
}

impl RoCompat {
    /// The features that Extant supports: a volume with any other ro_compat feature is only read.
    pub const SUPPORTED: Self = Self::SPARSE_SUPER
        .union(Self::LARGE_FILE)
        .union(Self::HUGE_FILE)
        .union(Self::GDT_CSUM)
        .union(Self::DIR_NLINK)
        .union(Self::EXTRA_ISIZE)
        .union(Self::METADATA_CSUM)
        .union(Self::BIGALLOC)
        .union(Self::QUOTA)
        .union(Self::PROJECT)
        .union(Self::VERITY)
        .union(Self::ORPHAN_PRESENT);
}

/// The name of one feature bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeatureName {
    /// A bit with a name.
    Known(&'static str),
    /// A bit that has no name.
    Unknown {
        /// Which set: `C`, `I` or `R`.
        set: char,
        /// The bit's number, 0..=31.
        bit: u32,
    },
}

impl fmt::Display for FeatureName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(name) => f.write_str(name),
            Self::Unknown { set, bit } => write!(f, "FEATURE_{set}{bit}"),
        }
    }
}

/// The three sets of one file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FeatureSets {
    /// May be ignored.
    pub compat: Compat,
    /// Must be known to read.
    pub incompat: Incompat,
    /// Must be known to write.
    pub ro_compat: RoCompat,
}

impl FeatureSets {
    /// Returns whether every one of `bits` is set.
    #[inline]
    pub const fn has_compat(&self, bits: Compat) -> bool {
        self.compat.contains(bits)
    }

    /// Returns whether every one of `bits` is set.
    #[inline]
    pub const fn has_incompat(&self, bits: Incompat) -> bool {
        self.incompat.contains(bits)
    }

    /// Returns whether every one of `bits` is set.
    #[inline]
    pub const fn has_ro_compat(&self, bits: RoCompat) -> bool {
        self.ro_compat.contains(bits)
    }

    /// Returns whether all metadata carries a crc32c (`metadata_csum`).
    #[inline]
    pub const fn metadata_csum(&self) -> bool {
        self.has_ro_compat(RoCompat::METADATA_CSUM)
    }

    /// Returns whether groups may be uninitialised and descriptors carry a checksum:
    /// `metadata_csum` or `uninit_bg`.
    #[inline]
    pub const fn group_csum(&self) -> bool {
        self.ro_compat
            .intersects(RoCompat::METADATA_CSUM.union(RoCompat::GDT_CSUM))
    }

    /// The names of all features, compat before incompat before ro_compat, as `dumpe2fs` orders
    /// them.
    pub fn names(&self) -> impl Iterator<Item = FeatureName> {
        self.compat
            .names()
            .chain(self.incompat.names())
            .chain(self.ro_compat.names())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_has_a_name() {
        let all = Incompat::from_bits_retain(!0);
        let names: Vec<String> = all.names().map(|name| name.to_string()).collect();
        assert_eq!(names.len(), 32);
        assert_eq!(names[0], "compression");
        assert_eq!(names[5], "FEATURE_I5");
        assert_eq!(names[31], "FEATURE_I31");
        assert_eq!(
            RoCompat::from_bits_retain(1 << 20)
                .names()
                .next()
                .map(|n| n.to_string())
                .as_deref(),
            Some("FEATURE_R20")
        );
    }

    #[test]
    fn named_bits_are_single_and_ordered() {
        let check = |bits: Vec<u32>| {
            assert!(bits.iter().all(|bit| bit.is_power_of_two()));
            assert!(bits.is_sorted_by(|a, b| a < b));
        };
        check(Compat::NAMED.iter().map(|(bit, _)| bit.bits()).collect());
        check(Incompat::NAMED.iter().map(|(bit, _)| bit.bits()).collect());
        check(RoCompat::NAMED.iter().map(|(bit, _)| bit.bits()).collect());
    }

    #[test]
    fn either_checksum_protects_descriptors() {
        let mut sets = FeatureSets::default();
        assert!(!sets.group_csum());
        sets.ro_compat = RoCompat::GDT_CSUM;
        assert!(sets.group_csum() && !sets.metadata_csum());
        sets.ro_compat = RoCompat::METADATA_CSUM;
        assert!(sets.group_csum() && sets.metadata_csum());
    }
}
