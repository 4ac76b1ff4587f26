//! Revoke blocks: the numbers of blocks whose copies in this and earlier transactions must not be
//! replayed.

use extant_units::Pblk;
use zerocopy::FromBytes;
use zerocopy::big_endian::{U32, U64};

use super::{BlockKind, Format, HEADER_LEN, Header, LogBlockError};

/// Start of the records: behind the header and the count of bytes in use.
const RECORDS: usize = HEADER_LEN + 4;

impl Format {
    const fn record_len(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// The records that fit a revoke block of `block_size` bytes.
    pub const fn revokes_per_block(&self, block_size: usize) -> usize {
        // A slice that is shorter than the header holds none.
        self.body_len(block_size).saturating_sub(RECORDS) / self.record_len()
    }

    /// Writes a revoke block for `blocks` into `block`, which is zeroed.
    ///
    /// # Panics
    /// There are more blocks than [`Format::revokes_per_block`]: a revoke without a record would
    /// let a replay write an old copy.
    pub fn write_revokes(&self, block: &mut [u8], sequence: u32, blocks: &[Pblk]) {
        let most = self.revokes_per_block(block.len());
        let count = blocks.len();
        assert!(
            count <= most,
            "{most} records fit a revoke block, not {count}"
        );
        let header = Header {
            kind: BlockKind::Revoke,
            sequence,
        };
        header.write(block);
        let mut used = RECORDS;
        for revoked in blocks {
            let bytes = revoked.get().to_be_bytes();
            let record = &bytes[8 - self.record_len()..];
            block[used..used + record.len()].copy_from_slice(record);
            used += record.len();
        }
        #[allow(clippy::cast_possible_truncation, reason = "at most a block, 64 KiB")]
        let used = (used as u32).to_be_bytes();
        block[HEADER_LEN..RECORDS].copy_from_slice(&used);
        self.seal(block);
    }

    /// The blocks that a revoke block names.
    ///
    /// # Errors
    /// The block claims more bytes than it has.
    pub fn revokes<'a>(
        &'a self,
        block: &'a [u8],
    ) -> Result<impl Iterator<Item = Pblk> + 'a, LogBlockError> {
        let limit = self.body_len(block.len());
        let claimed = block
            .get(HEADER_LEN..)
            .and_then(|rest| U32::read_from_prefix(rest).ok())
            .map_or(0, |(used, _)| used.get());
        let used = extant_units::index(claimed.into());
        if used > limit {
            return Err(LogBlockError::RevokeCount { claimed, limit });
        }
        // A count from disk may end within the header: then there are no records.
        let records = block.get(RECORDS..used).unwrap_or_default();
        Ok(records
            .chunks_exact(self.record_len())
            .filter_map(|record| match record.len() {
                8 => U64::read_from_bytes(record).ok().map(U64::get),
                _ => U32::read_from_bytes(record).ok().map(|n| n.get().into()),
            })
            .map(Pblk::new))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Checksums;
    use super::*;

    #[test]
    fn records_read_back_in_every_format() {
        for (checksums, wide, fit) in [
            (Checksums::None, false, 252),
            (Checksums::V1, true, 126),
            (Checksums::V2, false, 251),
            (Checksums::V3, true, 125),
        ] {
            let format = Format {
                checksums,
                wide,
                uuid: [3; 16],
            };
            assert_eq!(format.revokes_per_block(1024), fit);
            let high = if wide { 1 << 40 } else { 0 };
            let blocks: Vec<Pblk> = (0..fit as u64).map(|i| Pblk::new(high + i)).collect();
            for count in [0, 1, fit] {
                let mut block = vec![0; 1024];
                format.write_revokes(&mut block, 4, &blocks[..count]);
                assert!(format.tail_is_right(&block));
                let read: Vec<Pblk> = format.revokes(&block).unwrap().collect();
                assert_eq!(read, blocks[..count]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "records fit a revoke block")]
    fn a_record_too_many_is_refused() {
        let format = Format {
            checksums: Checksums::None,
            wide: false,
            uuid: [0; 16],
        };
        format.write_revokes(&mut vec![0; 1024], 4, &[Pblk::new(1); 253]);
    }

    #[test]
    fn a_count_past_the_block_is_damage() {
        let format = Format {
            checksums: Checksums::V3,
            wide: true,
            uuid: [3; 16],
        };
        let mut block = vec![0; 1024];
        assert_eq!(format.revokes(&block).unwrap().count(), 0);
        block[12..16].copy_from_slice(&1021u32.to_be_bytes());
        let damage = LogBlockError::RevokeCount {
            claimed: 1021,
            limit: 1020,
        };
        assert_eq!(format.revokes(&block).err(), Some(damage));
        block[12..16].copy_from_slice(&1020u32.to_be_bytes());
        assert_eq!(format.revokes(&block).unwrap().count(), 125);
    }
}
