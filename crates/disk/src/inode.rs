//! Inodes: the record in the inode table, decoded and encoded.
//!
//! [`InodeFormat`] carries what the superblock says about every inode (record size, units, checksum
//! seed); [`InodeCore`] is one inode, decoded. Fields behind byte 128 exist only as far as the
//! inode's own `extra_isize` reaches. Decoding verifies the checksum, the bounds of `extra_isize`
//! and the sign of the size; what needs the rest of the file system (links, block numbers, kinds)
//! is the caller's to judge. Encoding writes the known fields into the old record and leaves every
//! byte that it does not know as it was.

mod flags;
mod raw;
#[cfg(test)]
mod tests;
mod time;

use core::mem::{offset_of, size_of};

use extant_units::{BlockSize, Ino, Pblk};
use zerocopy::{FromBytes, IntoBytes};

use crate::csum::Crc32c;

pub use flags::InodeFlags;
pub use raw::{EXTRA_SIZE, GOOD_OLD_SIZE, RawInode, RawInodeExtra};
pub use time::InodeTime;

/// Bytes of `i_block`: an extent root, a block map, a short symlink target or a device number.
pub const BLOCK_AREA: usize = 60;

/// What is wrong with an inode record.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum InodeError {
    /// The slice is not one record.
    #[error("inode record of {found} bytes where {expected} were expected")]
    RecordSize {
        /// Bytes given.
        found: usize,
        /// `s_inode_size`.
        expected: usize,
    },
    /// The stored checksum is not that of the bytes.
    #[error("bad inode checksum {stored:#010x}, computed {computed:#010x}")]
    Checksum {
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// `i_extra_isize` reaches past the record or is no multiple of four.
    #[error("bad extra inode size {found}")]
    ExtraSize {
        /// As stored.
        found: u16,
    },
    /// A size of 2^63 bytes or more.
    #[error("bad inode size {found:#x}")]
    Size {
        /// As stored.
        found: u64,
    },
    /// The inode uses more space than the format can record.
    #[error("{sectors} sectors do not fit the inode's block count")]
    TooManyBlocks {
        /// In units of 512 bytes.
        sectors: u64,
    },
    /// The xattr area does not fill the record.
    #[error("in-inode attributes of {found} bytes where {expected} were expected")]
    XattrArea {
        /// Bytes given.
        found: usize,
        /// Bytes from the end of the fixed fields to the end of the record.
        expected: usize,
    },
}

/// What the superblock says about every inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeFormat {
    /// Bytes of a record (`s_inode_size`): a power of two from 128 to the block size.
    pub inode_size: u16,
    /// The block size.
    pub block_size: BlockSize,
    /// The `huge_file` feature: 48 bits of space used.
    pub huge_file: bool,
    /// The `64bit` feature: 48 bits of attribute block number.
    pub wide_blocks: bool,
    /// The checksum seed of the file system, with `metadata_csum`.
    pub csum_seed: Option<Crc32c>,
}

impl InodeFormat {
    /// Bytes of a record.
    #[inline]
    pub const fn record_size(&self) -> usize {
        self.inode_size as usize
    }

    /// Whether records have fields behind byte 128 at all.
    #[inline]
    pub const fn is_large(&self) -> bool {
        self.record_size() > GOOD_OLD_SIZE
    }

    /// The largest `extra_isize` that this crate fills and the record holds.
    pub const fn known_extra_size(&self) -> u16 {
        let room = self.inode_size.saturating_sub(128);
        if room < 32 { room } else { 32 }
    }

    /// The seed of all checksums that are keyed by an inode: directory blocks, extent blocks and
    /// the inode itself. `None` without `metadata_csum`.
    pub fn inode_seed(&self, ino: Ino, generation: u32) -> Option<Crc32c> {
        self.csum_seed.map(|seed| {
            seed.feed(&ino.get().to_le_bytes())
                .feed(&generation.to_le_bytes())
        })
    }
}

/// One inode, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InodeCore {
    /// Kind and permissions (`i_mode`).
    pub mode: u16,
    /// Hard links as stored; 1 for a directory with too many subdirectories to count.
    pub links: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project.
    pub projid: u32,
    /// Flags. `HUGE_FILE` is the codec's: set and cleared by encoding.
    pub flags: InodeFlags,
    /// Size on disk in bytes (`i_disksize`), below 2^63.
    pub disk_size: u64,
    /// Space used, in units of 512 bytes.
    pub sectors: u64,
    /// Access time.
    pub atime: InodeTime,
    /// Change time.
    pub ctime: InodeTime,
    /// Modification time.
    pub mtime: InodeTime,
    /// Creation time; `None` where the inode has no room for it.
    pub crtime: Option<InodeTime>,
    /// Deletion time, or the next inode on the orphan list.
    pub dtime: u32,
    /// Changes with every change of the inode (`i_version`); the high half is kept only where there
    /// is room.
    pub version: u64,
    /// Changes each time the inode number is used again.
    pub generation: u32,
    /// The extended attribute block; zero for none.
    pub file_acl: Pblk,
    /// Extent root, block map, short symlink target or device number.
    pub i_block: [u8; BLOCK_AREA],
    /// Bytes of fixed fields behind byte 128; zero exactly when records are 128 bytes.
    pub extra_isize: u16,
    /// The rest of the record, behind the fixed fields: in-inode extended attributes. Empty in
    /// records of 128 bytes.
    pub xattrs: Box<[u8]>,
}

/// Whether the field that ends at `$field` of the extra part lies within `$extra_isize`.
macro_rules! fits {
    ($extra_isize:expr, $field:ident) => {
        offset_of!(RawInodeExtra, $field) + size_of_field(|e: &RawInodeExtra| &e.$field)
            <= usize::from($extra_isize)
    };
}

const fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

impl InodeCore {
    /// An inode with nothing in it: all fields zero, fixed fields of `extra_isize` bytes (cut to
    /// what the record holds), no attributes, creation time at zero if it has room.
    pub fn blank(format: &InodeFormat, extra_isize: u16) -> Self {
        let room = format.inode_size.saturating_sub(128);
        let extra_isize = if room == 0 {
            0
        } else {
            // The field itself and the checksum are always there in a large record.
            (extra_isize & !3).clamp(4, room)
        };
        Self {
            mode: 0,
            links: 0,
            uid: 0,
            gid: 0,
            projid: 0,
            flags: InodeFlags::empty(),
            disk_size: 0,
            sectors: 0,
            atime: InodeTime::default(),
            ctime: InodeTime::default(),
            mtime: InodeTime::default(),
            crtime: fits!(extra_isize, crtime).then(InodeTime::default),
            dtime: 0,
            version: 0,
            generation: 0,
            file_acl: Pblk::ZERO,
            i_block: [0; BLOCK_AREA],
            extra_isize,
            xattrs: vec![0; usize::from(room - extra_isize)].into_boxed_slice(),
        }
    }

    /// Decodes and checks the record of inode `ino`.
    ///
    /// # Errors
    /// A wrong checksum, an `extra_isize` out of bounds, a size with the top bit set, or a slice of
    /// another length than the format says.
    pub fn decode(format: &InodeFormat, ino: Ino, record: &[u8]) -> Result<Self, InodeError> {
        let (raw, extra) = split(format, record)?;
        let stored_extra = if format.is_large() {
            extra.extra_isize.get()
        } else {
            0
        };
        let room = format.inode_size.saturating_sub(128);
        if stored_extra > room || !stored_extra.is_multiple_of(4) {
            return Err(InodeError::ExtraSize {
                found: stored_extra,
            });
        }
        verify_checksum(format, ino, record, raw, &extra, stored_extra)?;

        let is_regular = raw.mode.get() & 0o170_000 == 0o100_000;
        let size_hi = if is_regular { raw.size_hi.get() } else { 0 };
        let disk_size = u64::from(raw.size_lo.get()) | (u64::from(size_hi) << 32);
        if disk_size >> 63 != 0 {
            return Err(InodeError::Size { found: disk_size });
        }
        let flags = InodeFlags::from_bits_retain(raw.flags.get());
        let acl_hi = if format.wide_blocks {
            u64::from(raw.file_acl_hi.get())
        } else {
            0
        };
        let x = stored_extra;
        let wide = |fits: bool, field: u32| fits.then_some(field);
        let version_hi = if fits!(x, version_hi) {
            extra.version_hi.get()
        } else {
            0
        };
        // A large record that says 0 has its extra space unused: take the known fields and start
        // with no attributes.
        let extra_isize = if stored_extra == 0 {
            format.known_extra_size()
        } else {
            stored_extra
        };
        let xattrs = if stored_extra == 0 {
            vec![0; usize::from(room - extra_isize)].into_boxed_slice()
        } else {
            record
                .get(GOOD_OLD_SIZE + usize::from(extra_isize)..)
                .unwrap_or_default()
                .into()
        };
        Ok(Self {
            mode: raw.mode.get(),
            links: raw.links.get(),
            uid: join16(raw.uid_lo.get(), raw.uid_hi.get()),
            gid: join16(raw.gid_lo.get(), raw.gid_hi.get()),
            projid: if fits!(x, projid) {
                extra.projid.get()
            } else {
                0
            },
            flags,
            disk_size,
            sectors: decode_sectors(format, raw, flags),
            atime: InodeTime::decode(
                raw.atime.get(),
                wide(fits!(x, atime_extra), extra.atime_extra.get()),
            ),
            ctime: InodeTime::decode(
                raw.ctime.get(),
                wide(fits!(x, ctime_extra), extra.ctime_extra.get()),
            ),
            mtime: InodeTime::decode(
                raw.mtime.get(),
                wide(fits!(x, mtime_extra), extra.mtime_extra.get()),
            ),
            crtime: fits!(extra_isize, crtime).then(|| {
                InodeTime::decode(
                    if fits!(x, crtime) {
                        extra.crtime.get()
                    } else {
                        0
                    },
                    wide(fits!(x, crtime_extra), extra.crtime_extra.get()),
                )
            }),
            dtime: raw.dtime.get(),
            version: u64::from(raw.version_lo.get()) | (u64::from(version_hi) << 32),
            generation: raw.generation.get(),
            file_acl: Pblk::new(u64::from(raw.file_acl_lo.get()) | (acl_hi << 32)),
            i_block: raw.block,
            extra_isize,
            xattrs,
        })
    }

    /// Writes the inode into its `record`, checksum included. Bytes that belong to no known field
    /// stay as they are: a new inode's record must be zeroed before.
    ///
    /// # Errors
    /// More space used than the format records, or an `extra_isize` or attribute area that does not
    /// fit the record. The record is then unchanged.
    pub fn encode(
        &self,
        format: &InodeFormat,
        ino: Ino,
        record: &mut [u8],
    ) -> Result<(), InodeError> {
        let (mut raw, mut extra) = split(format, record).map(|(raw, extra)| (*raw, extra))?;
        let room = format.inode_size.saturating_sub(128);
        let x = self.extra_isize;
        if x > room || !x.is_multiple_of(4) || (room > 0 && x < 4) {
            return Err(InodeError::ExtraSize { found: x });
        }
        let expected = usize::from(room - x);
        if self.xattrs.len() != expected {
            return Err(InodeError::XattrArea {
                found: self.xattrs.len(),
                expected,
            });
        }
        if self.disk_size >> 63 != 0 {
            return Err(InodeError::Size {
                found: self.disk_size,
            });
        }
        let (blocks_lo, blocks_hi, huge) = encode_sectors(format, self.sectors)?;
        let mut flags = self.flags;
        flags.set(InodeFlags::HUGE_FILE, huge);

        raw.mode.set(self.mode);
        raw.links.set(self.links);
        (raw.uid_lo, raw.uid_hi) = split16(self.uid);
        (raw.gid_lo, raw.gid_hi) = split16(self.gid);
        raw.flags.set(flags.bits());
        raw.blocks_lo.set(blocks_lo);
        raw.blocks_hi.set(blocks_hi);
        raw.size_lo.set(low32(self.disk_size));
        if self.mode & 0o170_000 == 0o100_000 {
            raw.size_hi.set(low32(self.disk_size >> 32));
        }
        raw.dtime.set(self.dtime);
        raw.version_lo.set(low32(self.version));
        raw.generation.set(self.generation);
        raw.file_acl_lo.set(low32(self.file_acl.get()));
        if format.wide_blocks {
            raw.file_acl_hi.set(low16(self.file_acl.get() >> 32));
        }
        raw.block = self.i_block;

        macro_rules! put_time {
            ($time:expr, $low:expr, $field:ident) => {{
                let wide = fits!(x, $field);
                let (low, high) = $time.encode(wide);
                $low.set(low);
                if wide {
                    extra.$field.set(high);
                }
            }};
        }
        put_time!(self.atime, raw.atime, atime_extra);
        put_time!(self.ctime, raw.ctime, ctime_extra);
        put_time!(self.mtime, raw.mtime, mtime_extra);
        if let Some(crtime) = self.crtime.filter(|_| fits!(x, crtime)) {
            put_time!(crtime, extra.crtime, crtime_extra);
        }
        if fits!(x, version_hi) {
            extra.version_hi.set(low32(self.version >> 32));
        }
        if fits!(x, projid) {
            extra.projid.set(self.projid);
        }
        extra.extra_isize.set(x);

        if let Some((head, tail)) = record.split_at_mut_checked(GOOD_OLD_SIZE) {
            head.copy_from_slice(raw.as_bytes());
            let fixed = usize::from(x).min(EXTRA_SIZE);
            if let (Some(to), Some(from)) = (tail.get_mut(..fixed), extra.as_bytes().get(..fixed)) {
                to.copy_from_slice(from);
            }
            if let Some(area) = tail.get_mut(usize::from(x)..) {
                area.copy_from_slice(&self.xattrs);
            }
        }
        store_checksum(format, ino, self.generation, x, record);
        Ok(())
    }

    /// Whether the access, change and modification times have nanoseconds and reach past 2038.
    pub fn has_wide_times(&self) -> bool {
        fits!(self.extra_isize, atime_extra)
    }

    /// The permission bits with set-id and sticky bits.
    #[inline]
    pub const fn perm(&self) -> u16 {
        self.mode & 0o7777
    }
}

fn split<'a>(
    format: &InodeFormat,
    record: &'a [u8],
) -> Result<(&'a RawInode, RawInodeExtra), InodeError> {
    let wrong = InodeError::RecordSize {
        found: record.len(),
        expected: format.record_size(),
    };
    if record.len() != format.record_size() {
        return Err(wrong);
    }
    let (raw, rest) = RawInode::ref_from_prefix(record).map_err(|_| wrong)?;
    let mut extra = RawInodeExtra::default();
    let have = rest.len().min(EXTRA_SIZE);
    if let (Some(to), Some(from)) = (extra.as_mut_bytes().get_mut(..have), rest.get(..have)) {
        to.copy_from_slice(from);
    }
    Ok((raw, extra))
}

fn decode_sectors(format: &InodeFormat, raw: &RawInode, flags: InodeFlags) -> u64 {
    let lo = u64::from(raw.blocks_lo.get());
    if !format.huge_file {
        return lo;
    }
    let count = lo | (u64::from(raw.blocks_hi.get()) << 32);
    if flags.contains(InodeFlags::HUGE_FILE) {
        // 48 bits of blocks of at most 64 KiB: below 2^55 sectors.
        count << (format.block_size.log2() - 9)
    } else {
        count
    }
}

/// Low and high part of the count, and whether it is in blocks.
fn encode_sectors(format: &InodeFormat, sectors: u64) -> Result<(u32, u16, bool), InodeError> {
    let too_many = InodeError::TooManyBlocks { sectors };
    if let Ok(lo) = u32::try_from(sectors) {
        return Ok((lo, 0, false));
    }
    if !format.huge_file {
        return Err(too_many);
    }
    if let Ok(hi) = u16::try_from(sectors >> 32) {
        return Ok((low32(sectors), hi, false));
    }
    let blocks = sectors >> (format.block_size.log2() - 9);
    match u16::try_from(blocks >> 32) {
        Ok(hi) => Ok((low32(blocks), hi, true)),
        Err(_) => Err(too_many),
    }
}

/// The checksum over a whole record with its own two halves taken as zero.
fn checksum(seed: Crc32c, has_high: bool, record: &[u8]) -> u32 {
    const LOW: usize = offset_of!(RawInode, checksum_lo);
    const HIGH: usize = GOOD_OLD_SIZE + offset_of!(RawInodeExtra, checksum_hi);
    let part = |range: core::ops::Range<usize>| record.get(range).unwrap_or_default();
    let csum = seed
        .feed(part(0..LOW))
        .feed(&[0; 2])
        .feed(part(LOW + 2..GOOD_OLD_SIZE));
    let csum = if has_high {
        csum.feed(part(GOOD_OLD_SIZE..HIGH))
            .feed(&[0; 2])
            .feed(part(HIGH + 2..record.len()))
    } else {
        csum.feed(part(GOOD_OLD_SIZE..record.len()))
    };
    if has_high {
        csum.raw()
    } else {
        csum.raw() & 0xffff
    }
}

fn verify_checksum(
    format: &InodeFormat,
    ino: Ino,
    record: &[u8],
    raw: &RawInode,
    extra: &RawInodeExtra,
    extra_isize: u16,
) -> Result<(), InodeError> {
    let Some(seed) = format.inode_seed(ino, raw.generation.get()) else {
        return Ok(());
    };
    let has_high = fits!(extra_isize, checksum_hi);
    let mut stored = u32::from(raw.checksum_lo.get());
    if has_high {
        stored |= u32::from(extra.checksum_hi.get()) << 16;
    }
    let computed = checksum(seed, has_high, record);
    if stored == computed {
        Ok(())
    } else {
        Err(InodeError::Checksum { stored, computed })
    }
}

fn store_checksum(
    format: &InodeFormat,
    ino: Ino,
    generation: u32,
    extra_isize: u16,
    record: &mut [u8],
) {
    let Some(seed) = format.inode_seed(ino, generation) else {
        return;
    };
    let has_high = fits!(extra_isize, checksum_hi);
    let csum = checksum(seed, has_high, record).to_le_bytes();
    let low = offset_of!(RawInode, checksum_lo);
    let high = GOOD_OLD_SIZE + offset_of!(RawInodeExtra, checksum_hi);
    let mut put = |at: usize, bytes: [u8; 2]| {
        if let Some(to) = record.get_mut(at..at + 2) {
            to.copy_from_slice(&bytes);
        }
    };
    put(low, [csum[0], csum[1]]);
    if has_high {
        put(high, [csum[2], csum[3]]);
    }
}

fn join16(lo: u16, hi: u16) -> u32 {
    u32::from(lo) | (u32::from(hi) << 16)
}

fn split16(id: u32) -> (zerocopy::little_endian::U16, zerocopy::little_endian::U16) {
    (
        low16(u64::from(id)).into(),
        low16(u64::from(id >> 16)).into(),
    )
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "the low half is what is asked for"
)]
const fn low32(v: u64) -> u32 {
    v as u32
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "the low half is what is asked for"
)]
const fn low16(v: u64) -> u16 {
    v as u16
}
