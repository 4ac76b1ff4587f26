//! How much of the log a transaction takes, and how large a transaction may become.
//!
//! # Invariants
//! J22: what handles declare decides whether a transaction fits, so the largest handle that may
//! start always fits its transaction's part of the log, with the revoke records that it may make.

use extant_disk::jbd2::superblock::MIN_LOG_BLOCKS;

/// The sizes that follow from a journal's block size, format and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Blocks that one descriptor block describes.
    tags_per_block: u32,
    /// Revoke records that one revoke block holds.
    revokes_per_block: u32,
    /// Log blocks that one transaction may take.
    max_log_blocks: u32,
    /// The most blocks one handle may declare.
    max_credits: u32,
}

impl Sizes {
    /// The sizes for a log of `log_blocks` usable blocks. A transaction may fill a quarter of it,
    /// and a sixteenth of that is reserved for revoke records.
    pub(crate) fn for_log(log_blocks: u32, tags_per_block: u32, revokes_per_block: u32) -> Self {
        assert!(
            log_blocks >= MIN_LOG_BLOCKS,
            "no log of {log_blocks} blocks is opened"
        );
        let holds_one = tags_per_block > 0 && revokes_per_block > 0;
        assert!(holds_one, "a log block holds a record");
        let max_log_blocks = log_blocks / 4;
        let mut sizes = Self {
            tags_per_block,
            revokes_per_block,
            max_log_blocks,
            max_credits: 0,
        };
        let usable = max_log_blocks - max_log_blocks / 16;
        // A first guess; the loop takes a few steps at most.
        let overhead = usable / (tags_per_block + 1) + 1;
        sizes.max_credits = usable - overhead;
        while sizes.max_credits > 0 && sizes.log_blocks(sizes.max_credits, 0) > usable.into() {
            sizes.max_credits -= 1;
        }
        sizes
    }

    /// The sizes of a journal without a log: only memory limits a transaction. It makes no revoke
    /// records, so handles are granted none, however many they declare.
    pub(crate) fn without_log(max_blocks: u32) -> Self {
        let no_overhead = u32::MAX;
        let mut sizes = Self {
            tags_per_block: no_overhead,
            revokes_per_block: no_overhead,
            max_log_blocks: max_blocks,
            max_credits: max_blocks,
        };
        sizes.max_log_blocks += 2;
        debug_assert!(
            sizes.fits(max_blocks, 0) && sizes.max_revokes() == 0,
            "a descriptor, a commit block"
        );
        sizes
    }

    /// The log blocks that `blocks` metadata blocks and `revokes` revoke records take: the copies,
    /// their descriptors, the revoke blocks and the commit record.
    pub(crate) fn log_blocks(&self, blocks: u32, revokes: u32) -> u64 {
        let descriptors = blocks.div_ceil(self.tags_per_block);
        let revoke_blocks = revokes.div_ceil(self.revokes_per_block);
        u64::from(blocks) + u64::from(descriptors) + u64::from(revoke_blocks) + 1
    }

    /// Returns whether a transaction of that size stays within its part of the log.
    pub(crate) fn fits(&self, blocks: u32, revokes: u32) -> bool {
        self.log_blocks(blocks, revokes) <= self.max_log_blocks.into()
    }

    pub(crate) fn max_log_blocks(&self) -> u32 {
        self.max_log_blocks
    }

    pub(crate) fn max_credits(&self) -> u32 {
        self.max_credits
    }

    /// The most revoke records that fit beside a handle of the most credits. A handle that declares
    /// more is granted this many.
    pub(crate) fn max_revokes(&self) -> u32 {
        let most = self.log_blocks(self.max_credits, 0);
        let spare = u64::from(self.max_log_blocks).checked_sub(most);
        let spare = spare.unwrap_or_else(|| panic!("a handle of the most credits fits: {self:?}"));
        let revokes = spare * u64::from(self.revokes_per_block);
        // More than a u32 counts is no limit.
        u32::try_from(revokes).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_handle_fits_and_one_more_would_not_be_granted() {
        for log_blocks in [16, 60, 1023, 4095, 262_143] {
            for tags in [54, 63, 254, 4000] {
                let sizes = Sizes::for_log(log_blocks, tags, 100);
                let max = sizes.max_credits();
                assert!(max > 0, "{sizes:?}");
                assert!(sizes.fits(max, sizes.max_revokes()), "{sizes:?}");
                assert!(max > log_blocks / 5 || log_blocks < 64, "{sizes:?}");
            }
        }
    }

    #[test]
    fn a_transaction_counts_its_overhead() {
        let sizes = Sizes::for_log(1024, 10, 100);
        assert_eq!(sizes.log_blocks(0, 0), 1);
        assert_eq!(sizes.log_blocks(10, 0), 12);
        assert_eq!(sizes.log_blocks(11, 101), 11 + 2 + 2 + 1);
        // A quarter is 256 blocks, of which 16 are for revoke records.
        assert_eq!(sizes.max_credits(), 217);
        assert_eq!(sizes.log_blocks(217, 0), 240);
        assert_eq!(sizes.max_revokes(), 16 * 100);
    }
}
