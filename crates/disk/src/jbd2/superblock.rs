//! The log's superblock: its first block.

use std::mem::offset_of;

use extant_units::BlockSize;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BlockKind, Checksums, Format, Header, MAGIC, RawLogHeader};
use crate::csum::Crc32c;

/// Bytes of the superblock. The rest of its block is unused.
pub const SUPERBLOCK_LEN: usize = 1024;
/// The smallest log, in blocks without the superblock and the fast-commit area.
pub const MIN_LOG_BLOCKS: u32 = 16;
/// The smallest journal beside whose area for fast commits Linux and e2fsck read it, in blocks
/// without that area.
const MIN_BESIDE_FAST_COMMITS: u32 = 1024;
/// The largest journal, in blocks: as large as mke2fs makes them. Bounds the memory that a recovery
/// takes.
pub const MAX_BLOCKS: u32 = 10_240_000;
/// `s_checksum_type`: crc32c, the only one that versions 2 and 3 use.
const TYPE_CRC32C: u8 = 4;
/// Fast-commit blocks where the superblock does not say.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;

bitflags::bitflags! {
    /// `s_feature_compat`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Compat: u32 {
        /// Commit blocks have checksums of version 1.
        const CHECKSUM = 1;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `s_feature_incompat`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Incompat: u32 {
        /// There may be revoke blocks.
        const REVOKE = 1;
        /// Block numbers have 64 bits.
        const WIDE = 2;
        /// A commit block may have reached the disk before its transaction.
        const ASYNC_COMMIT = 4;
        /// Checksums of version 2.
        const CHECKSUM_V2 = 8;
        /// Checksums of version 3.
        const CHECKSUM_V3 = 0x10;
        /// The end of the log is an area for fast commits.
        const FAST_COMMIT = 0x20;
        const _ = !0;
    }
}

/// The incompatible features that are understood.
const KNOWN: Incompat = Incompat::REVOKE
    .union(Incompat::WIDE)
    .union(Incompat::ASYNC_COMMIT)
    .union(Incompat::CHECKSUM_V2)
    .union(Incompat::CHECKSUM_V3)
    .union(Incompat::FAST_COMMIT);

/// `journal_superblock_t` as stored.
#[repr(C)]
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
struct Raw {
    header: RawLogHeader,
    block_size: U32,
    max_len: U32,
    first: U32,
    sequence: U32,
    start: U32,
    errno: U32,
    compat: U32,
    incompat: U32,
    ro_compat: U32,
    uuid: [u8; 16],
    users: U32,
    dynamic_super: U32,
    max_transaction: U32,
    max_transaction_data: U32,
    checksum_type: u8,
    padding: [u8; 3],
    fast_commit_blocks: U32,
    head: U32,
    padding2: [U32; 40],
    checksum: U32,
    user_ids: [[u8; 16]; 48],
}

const _: () = assert!(size_of::<Raw>() == SUPERBLOCK_LEN);
const _: () = assert!(offset_of!(Raw, compat) == 0x24);
const _: () = assert!(offset_of!(Raw, uuid) == 0x30);
const _: () = assert!(offset_of!(Raw, checksum_type) == 0x50);
const _: () = assert!(offset_of!(Raw, checksum) == 0xfc);

/// Damage of a log's superblock.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum JournalSuperblockError {
    /// It is shorter than 1024 bytes.
    #[error("the journal superblock is cut short")]
    Short,
    /// No magic number, or not the kind of block it should be.
    #[error("this is no journal superblock")]
    NoSuperblock,
    /// Unknown incompatible or read-only-compatible feature bits.
    #[error("unknown journal features (incompat {incompat:#x}, ro_compat {ro_compat:#x})")]
    UnknownFeatures {
        /// Incompatible bits that are not known.
        incompat: u32,
        /// Read-only-compatible bits; none is known.
        ro_compat: u32,
    },
    /// More than one version of checksums.
    #[error("the journal claims more than one version of checksums")]
    SeveralChecksums,
    /// A checksum algorithm other than crc32c.
    #[error("journal checksum type {0} is unknown")]
    ChecksumType(u8),
    /// The checksum is wrong.
    #[error("journal superblock checksum {found:#010x}, expected {expected:#010x}")]
    BadChecksum {
        /// As stored.
        found: u32,
        /// As computed.
        expected: u32,
    },
    /// Another block size than the file system's.
    #[error("the journal has blocks of {found} bytes, the file system of {expected}")]
    BlockSize {
        /// As stored.
        found: u32,
        /// The file system's.
        expected: usize,
    },
    /// Its length, first block, or fast-commit area make no sense for the blocks there are.
    #[error("the journal claims blocks {first}..{end} of the {len} that it has")]
    Geometry {
        /// First block of the log.
        first: u32,
        /// The block behind the log.
        end: u32,
        /// The journal file's blocks.
        len: u64,
    },
    /// The log does not start inside the log.
    #[error("the journal's log starts at block {start}, outside of {first}..{end}")]
    Start {
        /// As stored.
        start: u32,
        /// First block of the log.
        first: u32,
        /// The block behind the log.
        end: u32,
    },
}

/// A checked superblock of a log: its geometry lies within the journal's blocks.
#[derive(Clone)]
pub struct JournalSuperblock {
    raw: Raw,
}

impl JournalSuperblock {
    /// Reads and checks the superblock of a journal that has `len` blocks of size `bs`.
    ///
    /// # Errors
    /// Any damage: see [`JournalSuperblockError`].
    pub fn parse(block: &[u8], bs: BlockSize, len: u64) -> Result<Self, JournalSuperblockError> {
        use JournalSuperblockError as E;
        let (raw, _) = Raw::read_from_prefix(block).map_err(|_| E::Short)?;
        let this = Self { raw };
        match Header::parse(block).map(|header| header.kind) {
            Some(BlockKind::SuperblockV1 | BlockKind::SuperblockV2) => {}
            _ => return Err(E::NoSuperblock),
        }
        this.check_features()?;
        if this.raw.block_size.get() as usize != bs.bytes() {
            return Err(E::BlockSize {
                found: this.raw.block_size.get(),
                expected: bs.bytes(),
            });
        }
        this.check_geometry(len)?;
        Ok(this)
    }

    fn check_features(&self) -> Result<(), JournalSuperblockError> {
        use JournalSuperblockError as E;
        let unknown = self.incompat().difference(KNOWN).bits();
        let ro_compat = if self.has_features() {
            self.raw.ro_compat.get()
        } else {
            0
        };
        if unknown != 0 || ro_compat != 0 {
            return Err(E::UnknownFeatures {
                incompat: unknown,
                ro_compat,
            });
        }
        let versions = [
            self.compat().contains(Compat::CHECKSUM),
            self.incompat().contains(Incompat::CHECKSUM_V2),
            self.incompat().contains(Incompat::CHECKSUM_V3),
        ];
        if versions.iter().filter(|&&v| v).count() > 1 {
            return Err(E::SeveralChecksums);
        }
        if self.format().has_block_checksums() {
            if self.raw.checksum_type != TYPE_CRC32C {
                return Err(E::ChecksumType(self.raw.checksum_type));
            }
            let (found, expected) = (self.raw.checksum.get(), self.checksum());
            if found != expected {
                return Err(E::BadChecksum { found, expected });
            }
        }
        Ok(())
    }

    fn check_geometry(&self, len: u64) -> Result<(), JournalSuperblockError> {
        use JournalSuperblockError as E;
        let (first, end, start) = (self.first(), self.end(), self.start());
        let room = end.checked_sub(first);
        let sane = first >= 1
            && self.raw.max_len.get() <= MAX_BLOCKS
            && u64::from(self.raw.max_len.get()) <= len
            && room.is_some_and(|room| room >= MIN_LOG_BLOCKS);
        if !sane {
            return Err(E::Geometry { first, end, len });
        }
        if start != 0 && !(first..end).contains(&start) {
            return Err(E::Start { start, first, end });
        }
        Ok(())
    }

    fn has_features(&self) -> bool {
        self.raw.header.kind.get() == BlockKind::SuperblockV2.raw()
    }

    /// Compatible features; none in a superblock of version 1.
    pub fn compat(&self) -> Compat {
        if self.has_features() {
            Compat::from_bits_retain(self.raw.compat.get())
        } else {
            Compat::empty()
        }
    }

    /// Incompatible features; none in a superblock of version 1.
    pub fn incompat(&self) -> Incompat {
        if self.has_features() {
            Incompat::from_bits_retain(self.raw.incompat.get())
        } else {
            Incompat::empty()
        }
    }

    /// Layout of the log's blocks, as the features say.
    pub fn format(&self) -> Format {
        let incompat = self.incompat();
        let checksums = if incompat.contains(Incompat::CHECKSUM_V3) {
            Checksums::V3
        } else if incompat.contains(Incompat::CHECKSUM_V2) {
            Checksums::V2
        } else if self.compat().contains(Compat::CHECKSUM) {
            Checksums::V1
        } else {
            Checksums::None
        };
        Format {
            checksums,
            wide: incompat.contains(Incompat::WIDE),
            uuid: self.raw.uuid,
        }
    }

    /// The log's first block, counted from the superblock's.
    pub fn first(&self) -> u32 {
        self.raw.first.get()
    }

    /// The block behind the log's last one, where it wraps.
    pub fn end(&self) -> u32 {
        let len = self.raw.max_len.get();
        // Also of fields that are not checked yet: an end of 0 is refused.
        len.saturating_sub(self.fast_commit_blocks())
    }

    /// The blocks of the fast-commit area; empty without that feature. One block between it and the
    /// log is not used.
    pub fn fast_commit_area(&self) -> std::ops::Range<u32> {
        match self.fast_commit_blocks() {
            0 => 0..0,
            _ => self.end() + 1..self.raw.max_len.get(),
        }
    }

    fn fast_commit_blocks(&self) -> u32 {
        if !self.incompat().contains(Incompat::FAST_COMMIT) {
            return 0;
        }
        match self.raw.fast_commit_blocks.get() {
            0 => DEFAULT_FAST_COMMIT_BLOCKS,
            blocks => blocks,
        }
    }

    /// The block where the oldest transaction begins, zero if the log is empty.
    pub fn start(&self) -> u32 {
        self.raw.start.get()
    }

    /// The sequence number expected at [`JournalSuperblock::start`]; of an empty log one that was
    /// not used.
    pub fn sequence(&self) -> u32 {
        self.raw.sequence.get()
    }

    /// The error number that a user of the log recorded when it stopped, zero for none.
    pub fn errno(&self) -> i32 {
        self.raw.errno.get().cast_signed()
    }

    /// How many file systems share the log: one, or zero in a superblock that does not count them.
    pub fn users(&self) -> u32 {
        if self.has_features() {
            self.raw.users.get()
        } else {
            0
        }
    }

    /// The log's UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.raw.uuid
    }

    /// Says where the oldest transaction begins and its number. `start` zero: the log is empty.
    pub fn set_tail(&mut self, start: u32, sequence: u32) {
        self.raw.start = start.into();
        self.raw.sequence = sequence.into();
    }

    /// Says how many blocks the journal has, for one that moves.
    pub fn set_len(&mut self, blocks: u32) {
        self.raw.max_len = blocks.into();
    }

    /// Keeps `blocks` blocks at the end of the log, which is empty and new, for fast commits: they
    /// are part of it until [`JournalSuperblock::enable_fast_commits`].
    pub fn set_fast_commit_blocks(&mut self, blocks: u32) {
        self.raw.fast_commit_blocks = blocks.into();
    }

    /// Makes the log, which is empty and new, begin behind block `at`, where this superblock is on
    /// a device of its own. Nothing uses it yet.
    pub fn set_on_device(&mut self, at: u32) {
        self.raw.first = (at + 1).into();
        self.raw.users = 0.into();
    }

    /// Makes the file system with `uuid` the only user of the log.
    pub fn set_user(&mut self, uuid: [u8; 16]) {
        self.raw.users = 1.into();
        self.raw.user_ids = [[0; 16]; 48];
        self.raw.user_ids[0] = uuid;
    }

    /// Says where the next transaction goes; only meaningful in an empty log, and only a hint.
    pub fn set_head(&mut self, head: u32) {
        if self.has_features() {
            self.raw.head = head.into();
        }
    }

    /// Clears the recorded error number.
    pub fn clear_errno(&mut self) {
        self.raw.errno = 0.into();
    }

    /// Sets what [`JournalSuperblock::errno`] answers: a negative error number, as Linux stores it.
    pub fn set_errno(&mut self, errno: i32) {
        self.raw.errno = errno.cast_unsigned().into();
    }

    /// Turns a superblock of version 1 into one of version 2, with no features, and sets features.
    /// The log must be empty: its blocks are read by these features. Checksums of version 1 and
    /// asynchronous commits are cleared. Returns whether anything changed.
    pub fn upgrade(&mut self, wide: bool, v3: bool) -> bool {
        let before = (self.has_features(), self.compat(), self.incompat());
        if !self.has_features() {
            let rest = &mut self.raw.as_mut_bytes()[offset_of!(Raw, compat)..];
            rest.fill(0);
            self.raw.header.kind = BlockKind::SuperblockV2.raw().into();
        }
        let mut incompat = self.incompat() | Incompat::REVOKE;
        incompat.remove(Incompat::ASYNC_COMMIT);
        if wide {
            incompat |= Incompat::WIDE;
        }
        if v3 && !incompat.contains(Incompat::CHECKSUM_V2) {
            incompat |= Incompat::CHECKSUM_V3;
        }
        self.raw.incompat = incompat.bits().into();
        self.raw.compat = self.compat().difference(Compat::CHECKSUM).bits().into();
        if self.format().has_block_checksums() {
            self.raw.checksum_type = TYPE_CRC32C;
        }
        before != (self.has_features(), self.compat(), self.incompat())
    }

    /// Makes the end of the log an area for fast commits, if a log is left in front of it that is
    /// large enough for all readers: Linux and e2fsck refuse a smaller one. The log must be empty,
    /// and its superblock of version 2. Returns whether anything changed.
    pub fn enable_fast_commits(&mut self) -> bool {
        if !self.has_features() || self.incompat().contains(Incompat::FAST_COMMIT) {
            return false;
        }
        let before = self.raw.incompat;
        self.raw.incompat = (self.incompat() | Incompat::FAST_COMMIT).bits().into();
        if self.end() < MIN_BESIDE_FAST_COMMITS || self.fast_commit_area().is_empty() {
            self.raw.incompat = before;
            return false;
        }
        // The usual size as zero is one that e2fsck refuses.
        self.raw.fast_commit_blocks = self.fast_commit_blocks().into();
        true
    }

    /// Gives up the area for fast commits. The log must be empty. Linux does so when it empties a
    /// log, for systems that do not know the feature. Returns whether anything changed.
    pub fn disable_fast_commits(&mut self) -> bool {
        let has = self.has_features() && self.incompat().contains(Incompat::FAST_COMMIT);
        if has {
            let rest = self.incompat().difference(Incompat::FAST_COMMIT);
            self.raw.incompat = rest.bits().into();
        }
        has
    }

    /// The bytes to store, with their checksum.
    pub fn to_bytes(&self) -> [u8; SUPERBLOCK_LEN] {
        let mut raw = self.raw.clone();
        raw.header.magic = MAGIC.into();
        if self.format().has_block_checksums() {
            raw.checksum = self.checksum().into();
        }
        let mut bytes = [0; SUPERBLOCK_LEN];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    fn checksum(&self) -> u32 {
        let (before, rest) = self.raw.as_bytes().split_at(offset_of!(Raw, checksum));
        Crc32c::START
            .feed(before)
            .feed(&[0; 4])
            .feed(&rest[4..])
            .raw()
    }

    /// A superblock for a new, empty log of `len` blocks, without features.
    pub fn new_empty(bs: BlockSize, len: u32, uuid: [u8; 16]) -> Self {
        let mut raw = Raw::new_zeroed();
        raw.header = RawLogHeader {
            magic: MAGIC.into(),
            kind: BlockKind::SuperblockV2.raw().into(),
            sequence: 0.into(),
        };
        raw.block_size = (1 << bs.log2()).into();
        raw.max_len = len.into();
        raw.first = 1.into();
        raw.sequence = 1.into();
        raw.uuid = uuid;
        raw.users = 1.into();
        Self { raw }
    }
}

impl std::fmt::Debug for JournalSuperblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalSuperblock")
            .field("first", &self.first())
            .field("end", &self.end())
            .field("start", &self.start())
            .field("sequence", &self.sequence())
            .field("errno", &self.errno())
            .field("format", &self.format())
            .field("incompat", &self.incompat())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
