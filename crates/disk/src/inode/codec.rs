//! Records of the inode table, decoded and encoded.

use extant_units::{Ino, Pblk};
use zerocopy::{FromBytes, IntoBytes};

use super::checksum;
use super::raw_inode::{EXTRA_SIZE, GOOD_OLD_SIZE, RawInode, RawInodeExtra, fits};
use super::{InodeCore, InodeError, InodeFlags, InodeFormat, InodeTime};

/// The kind's bits of a mode, and those of a regular file.
const KIND: u16 = 0o170_000;
const REGULAR: u16 = 0o100_000;

impl InodeCore {
    /// Decodes and checks the record of inode `ino`.
    ///
    /// # Errors
    /// A wrong checksum, an `extra_isize` out of bounds, a size with the top bit set, or a slice of
    /// another length than the format says.
    pub fn decode(format: &InodeFormat, ino: Ino, record: &[u8]) -> Result<Self, InodeError> {
        let (mut core, area) = Self::decode_fields(format, ino, record)?;
        core.xattrs = match area {
            Some(area) => area.into(),
            None => vec![0; usize::from(format.extra_room() - core.extra_isize)].into_boxed_slice(),
        };
        Ok(core)
    }

    /// The same without the attributes in the record: `xattrs` is empty. For a look at an inode
    /// that allocates nothing; such an inode is never encoded.
    ///
    /// # Errors
    /// As [`InodeCore::decode`].
    pub fn decode_without_xattrs(
        format: &InodeFormat,
        ino: Ino,
        record: &[u8],
    ) -> Result<Self, InodeError> {
        Self::decode_fields(format, ino, record).map(|(core, _)| core)
    }

    /// The fixed fields, and the attribute area; `None` for one that is not used.
    fn decode_fields<'a>(
        format: &InodeFormat,
        ino: Ino,
        record: &'a [u8],
    ) -> Result<(Self, Option<&'a [u8]>), InodeError> {
        let (raw, extra) = split(format, record)?;
        let x = if format.is_large() {
            extra.extra_isize.get()
        } else {
            0
        };
        let room = format.extra_room();
        if x > room || !x.is_multiple_of(4) {
            return Err(InodeError::ExtraSize { found: x });
        }
        if let Some(seed) = format.inode_seed(ino, raw.generation.get()) {
            let (stored, has_high) = checksum::stored(raw, &extra, x);
            let computed = checksum::checksum(seed, has_high, record);
            if stored != computed {
                return Err(InodeError::Checksum { stored, computed });
            }
        }
        // A large record that says 0 has its extra space unused: the inode gets the known fields
        // and starts with no attributes.
        let extra_isize = if x == 0 { format.known_extra_size() } else { x };
        let area = (x != 0).then(|| &record[GOOD_OLD_SIZE + usize::from(x)..]);
        let flags = InodeFlags::from_bits_retain(raw.flags.get());
        let field = |fits: bool, value: u32| if fits { value } else { 0 };
        let version_hi = field(fits!(x, version_hi), extra.version_hi.get());
        let [atime, ctime, mtime, crtime] = decode_times(raw, &extra, x);
        let core = Self {
            mode: raw.mode.get(),
            links: raw.links.get(),
            uid: join16(raw.uid_lo.get(), raw.uid_hi.get()),
            gid: join16(raw.gid_lo.get(), raw.gid_hi.get()),
            projid: field(fits!(x, projid), extra.projid.get()),
            flags,
            disk_size: decode_size(format, raw)?,
            sectors: decode_sectors(format, raw, flags),
            atime,
            ctime,
            mtime,
            crtime: fits!(extra_isize, crtime).then_some(crtime),
            dtime: raw.dtime.get(),
            version: u64::from(raw.version_lo.get()) | (u64::from(version_hi) << 32),
            generation: raw.generation.get(),
            file_acl: decode_xattr_block(format, raw),
            i_block: raw.block,
            extra_isize,
            xattrs: Box::default(),
        };
        Ok((core, area))
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
        self.check_sizes(format)?;
        self.encode_fields(format, &mut raw)?;
        self.encode_extra(&mut raw, &mut extra);
        let x = self.extra_isize;
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
        if let Some(seed) = format.inode_seed(ino, self.generation) {
            checksum::store(seed, x, record);
        }
        Ok(())
    }

    /// Checks what a record of `format` could not hold.
    fn check_sizes(&self, format: &InodeFormat) -> Result<(), InodeError> {
        let (x, room) = (self.extra_isize, format.extra_room());
        if x > room || !x.is_multiple_of(4) || (room > 0 && x < 4) {
            return Err(InodeError::ExtraSize { found: x });
        }
        let (found, expected) = (self.xattrs.len(), usize::from(room - x));
        if found != expected {
            return Err(InodeError::XattrArea { found, expected });
        }
        if self.disk_size >> 63 != 0 {
            let found = self.disk_size;
            return Err(InodeError::Size { found });
        }
        Ok(())
    }

    /// The fields of the first 128 bytes, but for the times.
    fn encode_fields(&self, format: &InodeFormat, raw: &mut RawInode) -> Result<(), InodeError> {
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
        if format.large_dir || self.mode & KIND == REGULAR {
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
        Ok(())
    }

    /// The times, and the fields of the extra part as far as it reaches.
    fn encode_extra(&self, raw: &mut RawInode, extra: &mut RawInodeExtra) {
        let x = self.extra_isize;
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
    }
}

impl InodeFormat {
    /// Stores the checksum of the record of inode `ino`, whatever else the record holds. Without
    /// `metadata_csum`, or with a record of another length, nothing happens.
    pub fn seal(&self, ino: Ino, record: &mut [u8]) {
        let Ok((raw, extra)) = split(self, record) else {
            return;
        };
        let extra_isize = match self.is_large() {
            true => extra.extra_isize.get(),
            false => 0,
        };
        if let Some(seed) = self.inode_seed(ino, raw.generation.get()) {
            checksum::store(seed, extra_isize, record);
        }
    }

    /// Stores a count of 512-byte sectors in the record of an inode, without its checksum. `None`,
    /// and nothing is stored, if the fields do not hold it or the record has another length.
    pub fn store_sectors(&self, sectors: u64, record: &mut [u8]) -> Option<()> {
        split(self, record).ok()?;
        let (raw, _) = RawInode::mut_from_prefix(record).ok()?;
        let (lo, hi, huge) = encode_sectors(self, sectors).ok()?;
        let mut flags = InodeFlags::from_bits_retain(raw.flags.get());
        flags.set(InodeFlags::HUGE_FILE, huge);
        raw.flags.set(flags.bits());
        raw.blocks_lo.set(lo);
        if self.huge_file {
            raw.blocks_hi.set(hi);
        }
        Some(())
    }
}

/// The first 128 bytes of a record and a copy of the fixed fields behind them, zeros where the
/// record ends before.
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

/// The times of access, change, modification and creation; the last is zero without its field.
fn decode_times(raw: &RawInode, extra: &RawInodeExtra, extra_isize: u16) -> [InodeTime; 4] {
    macro_rules! time {
        ($low:expr, $field:ident) => {{
            let wide = fits!(extra_isize, $field).then(|| extra.$field.get());
            InodeTime::decode($low, wide)
        }};
    }
    let crtime = if fits!(extra_isize, crtime) {
        extra.crtime.get()
    } else {
        0
    };
    [
        time!(raw.atime.get(), atime_extra),
        time!(raw.ctime.get(), ctime_extra),
        time!(raw.mtime.get(), mtime_extra),
        time!(crtime, crtime_extra),
    ]
}

fn decode_size(format: &InodeFormat, raw: &RawInode) -> Result<u64, InodeError> {
    let is_wide = format.large_dir || raw.mode.get() & KIND == REGULAR;
    let high = if is_wide { raw.size_hi.get() } else { 0 };
    let found = u64::from(raw.size_lo.get()) | (u64::from(high) << 32);
    if found >> 63 != 0 {
        return Err(InodeError::Size { found });
    }
    Ok(found)
}

fn decode_xattr_block(format: &InodeFormat, raw: &RawInode) -> Pblk {
    let high = if format.wide_blocks {
        u64::from(raw.file_acl_hi.get())
    } else {
        0
    };
    Pblk::new(u64::from(raw.file_acl_lo.get()) | (high << 32))
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
pub(super) fn encode_sectors(
    format: &InodeFormat,
    sectors: u64,
) -> Result<(u32, u16, bool), InodeError> {
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
