//! Damage of a group's bitmap.

use core::fmt;

damage! {
    /// A bitmap of a group.
    BitmapDamage {
        Checksum { stored: u32, computed: u32 } =>
            "bad checksum (stored {stored:#x}, computed {computed:#x})",
        Padding => "the padding at the end is not set",
        MarkedFree { count: u64, runs: BitRuns } => "{count} in use but marked free: {runs}",
        MarkedInUse { count: u64, runs: BitRuns } => "{count} free but marked in use: {runs}",
        FormatMarkedFree { start: u32, end: u32 } =>
            "blocks {start}..{end} of the format itself are marked free",
        FreeBlocks { free: u32, stored: u32 } =>
            "{free} blocks are free, the descriptor says {stored}",
        FreeInodes { free: u32, stored: u32 } =>
            "{free} inodes are free, the descriptor says {stored}",
        FilesInUnwritten => "marked as never written, but files own blocks of the group",
        LastUnwritten => "marked as never written, but the group ends early",
        InodesInUnwritten => "the group has inodes in use, but its bitmap was never written",
        UsedPastMark { mark: u32 } =>
            "inodes past the {mark} that were ever used are marked as in use",
        FreesUnused => "freeing blocks of a group that has none in use",
        FreesFree { start: u32, end: u32 } =>
            "freeing blocks {start}..{end} of the group, not all of which are in use",
        LastGroup => "the last group is out of use",
    }
}

/// First few ranges of a set of bits, and the number of all bits in it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct BitRuns {
    ranges: Vec<(u32, u32)>,
    count: u64,
}

impl BitRuns {
    /// Ranges that are shown; one more shows that there are more.
    const SHOWN: usize = 5;

    /// Adds a bit behind those before.
    pub fn add(&mut self, bit: u32) {
        self.count += 1;
        if let Some((_, end)) = self.ranges.last_mut()
            && *end + 1 == bit
        {
            *end = bit;
        } else if self.ranges.len() <= Self::SHOWN {
            self.ranges.push((bit, bit));
        }
    }

    /// Bits in all.
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl fmt::Display for BitRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.ranges.iter().take(Self::SHOWN).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        if self.ranges.len() > Self::SHOWN {
            write!(f, " ...")?;
        }
        Ok(())
    }
}
