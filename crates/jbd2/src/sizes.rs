//! How much log a transaction of a given size takes, and how large one may become.

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
    /// For a log of `log_blocks` usable blocks: a transaction may fill a quarter of it, and a sixteenth of
    /// that is kept for revoke records.
    pub(crate) fn for_log(log_blocks: u32, tags_per_block: u32, revokes_per_block: u32) -> Self {
        let max_log_blocks = log_blocks / 4;
        let mut sizes = Self {
            tags_per_block: tags_per_block.max(1),
            revokes_per_block: revokes_per_block.max(1),
            max_log_blocks,
            max_credits: 0,
        };
        let usable = max_log_blocks - max_log_blocks / 16;
        let overhead = usable / sizes.tags_per_block.saturating_add(1) + 1;
        let mut credits = usable.saturating_sub(overhead);
        while credits > 0 && sizes.log_blocks(credits, 0) > usable {
            credits -= 1;
        }
        sizes.max_credits = credits;
        sizes
    }

    /// For a journal without a log: only memory limits a transaction.
    pub(crate) fn without_log(max_blocks: u32) -> Self {
        Self {
            tags_per_block: u32::MAX,
            revokes_per_block: u32::MAX,
            max_log_blocks: max_blocks.saturating_add(3),
            max_credits: max_blocks,
        }
    }

    /// The log blocks that `blocks` metadata blocks and `revokes` revoke records take: themselves, their
    /// descriptors, the revoke blocks and the commit record.
    pub(crate) fn log_blocks(&self, blocks: u32, revokes: u32) -> u32 {
        blocks
            .saturating_add(blocks.div_ceil(self.tags_per_block))
            .saturating_add(revokes.div_ceil(self.revokes_per_block))
            .saturating_add(1)
    }

    /// Whether a transaction of that size keeps within its part of the log.
    pub(crate) fn fits(&self, blocks: u32, revokes: u32) -> bool {
        self.log_blocks(blocks, revokes) <= self.max_log_blocks
    }

    pub(crate) fn max_log_blocks(&self) -> u32 {
        self.max_log_blocks
    }

    pub(crate) fn max_credits(&self) -> u32 {
        self.max_credits
    }

    /// The most revoke records that fit beside a handle of the most credits; larger wishes are cut to it.
    pub(crate) fn max_revokes(&self) -> u32 {
        let spare = self
            .max_log_blocks
            .saturating_sub(self.log_blocks(self.max_credits, 0));
        spare.saturating_mul(self.revokes_per_block)
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
    }
}
