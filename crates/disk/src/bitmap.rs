//! Bitmaps: one bit per block (or inode) of a group, lowest bit of the first byte first.
//!
//! Plain functions over the bytes of a bitmap block. All take a bit count `len`: bits at or past it
//! (the padding) are never looked at unless named. A range that leaves the bytes is cut, never a
//! panic.

use core::ops::Range;

use extant_units::{BlockSize, exact_u32};

/// Returns whether bit `at` is set. Bits past the bytes count as set (never free).
#[inline]
pub fn test(bytes: &[u8], at: u32) -> bool {
    bytes
        .get((at >> 3) as usize)
        .is_none_or(|byte| byte >> (at & 7) & 1 == 1)
}

/// Sets bit `at`; returns whether it was set before. Bits past the bytes are not there to set.
pub fn set(bytes: &mut [u8], at: u32) -> bool {
    let Some(byte) = bytes.get_mut((at >> 3) as usize) else {
        return true;
    };
    let mask = 1 << (at & 7);
    let before = *byte & mask != 0;
    *byte |= mask;
    before
}

/// Clears bit `at`; returns whether it was set before. Bits past the bytes are not there to clear.
pub fn clear(bytes: &mut [u8], at: u32) -> bool {
    let Some(byte) = bytes.get_mut((at >> 3) as usize) else {
        return false;
    };
    let mask = 1 << (at & 7);
    let before = *byte & mask != 0;
    *byte &= !mask;
    before
}

/// Calls `each(byte index, mask of the bits of the range in that byte)`.
fn for_each_byte(range: Range<u32>, mut each: impl FnMut(usize, u8)) {
    let mut at = range.start;
    while at < range.end {
        let first = at & 7;
        let count = (8 - first).min(range.end - at);
        #[allow(clippy::cast_possible_truncation, reason = "at most eight bits")]
        let mask = (((1u16 << count) - 1) << first) as u8;
        each((at >> 3) as usize, mask);
        at += count;
    }
}

/// Sets every bit of `range`.
pub fn set_range(bytes: &mut [u8], range: Range<u32>) {
    for_each_byte(range, |index, mask| {
        if let Some(byte) = bytes.get_mut(index) {
            *byte |= mask;
        }
    });
}

/// Clears every bit of `range`.
pub fn clear_range(bytes: &mut [u8], range: Range<u32>) {
    for_each_byte(range, |index, mask| {
        if let Some(byte) = bytes.get_mut(index) {
            *byte &= !mask;
        }
    });
}

/// The bitmap of `len` free blocks or inodes: its padding is set.
pub fn of_free(block_size: BlockSize, len: u32) -> Vec<u8> {
    let mut bytes = vec![0; block_size.bytes()];
    set_range(&mut bytes, len..exact_u32(block_size.bytes_u64() * 8));
    bytes
}

/// How many bits of `range` are set. Bits past the bytes count as set.
pub fn count_set(bytes: &[u8], range: Range<u32>) -> u32 {
    let mut total = 0;
    for_each_byte(range, |index, mask| {
        total += (bytes.get(index).copied().unwrap_or(!0) & mask).count_ones();
    });
    total
}

/// How many of the first `len` bits are clear.
pub fn count_clear(bytes: &[u8], len: u32) -> u32 {
    len - count_set(bytes, 0..len)
}

/// The first set bit in `from..len`, or `len`.
pub fn next_set(bytes: &[u8], from: u32, len: u32) -> u32 {
    next(bytes, from, len, 0)
}

/// The first clear bit in `from..len`, or `len`.
pub fn next_clear(bytes: &[u8], from: u32, len: u32) -> u32 {
    next(bytes, from, len, !0)
}

/// The first bit in `from..len` that differs from those of `fill` (all zero or all one), or `len`.
fn next(bytes: &[u8], from: u32, len: u32, fill: u8) -> u32 {
    let mut at = from;
    while at < len {
        let index = (at >> 3) as usize;
        if at & 7 == 0 && len - at >= 64 {
            // Whole words: the common case of long runs.
            if let Some(word) = bytes
                .get(index..index + 8)
                .and_then(|word| word.first_chunk())
            {
                let differing = u64::from_le_bytes(*word) ^ u64::from_le_bytes([fill; 8]);
                if differing == 0 {
                    at += 64;
                    continue;
                }
                return at + differing.trailing_zeros();
            }
        }
        // Bits past the bytes count as set, as in `count_set`.
        let byte = bytes.get(index).copied().unwrap_or(!0);
        let differing = (byte ^ fill) >> (at & 7);
        if differing != 0 {
            return (at + differing.trailing_zeros()).min(len);
        }
        at = (at | 7) + 1;
    }
    len
}

/// The runs of clear bits among the first `len`, in order.
pub fn clear_runs(bytes: &[u8], len: u32) -> impl Iterator<Item = Range<u32>> {
    let mut at = 0;
    core::iter::from_fn(move || {
        let start = next_clear(bytes, at, len);
        if start >= len {
            return None;
        }
        let end = next_set(bytes, start, len);
        at = end;
        Some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same questions answered bit by bit.
    fn naive_runs(bytes: &[u8], len: u32) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for at in (0..len).filter(|&at| bytes[(at / 8) as usize] & 1 << (at % 8) == 0) {
            match runs.last_mut() {
                Some(run) if run.end == at => run.end += 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }

    #[test]
    fn runs_match_a_bit_by_bit_scan() {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..300 {
            let mut bytes = vec![0u8; 64];
            let len = u32::try_from(random() % 513).unwrap();
            for _ in 0..random() % 12 {
                let start = u32::try_from(random() % 512).unwrap();
                let end = start + u32::try_from(random() % 128).unwrap();
                let range = start..end.min(512);
                if random() % 3 == 0 {
                    clear_range(&mut bytes, range.clone());
                    assert_eq!(count_set(&bytes, range), 0);
                } else {
                    set_range(&mut bytes, range.clone());
                    assert_eq!(count_set(&bytes, range.clone()), range.end - range.start);
                }
            }
            let runs: Vec<_> = clear_runs(&bytes, len).collect();
            assert_eq!(runs, naive_runs(&bytes, len));
            let free: u32 = runs.iter().map(|run| run.end - run.start).sum();
            assert_eq!(count_clear(&bytes, len), free);
        }
    }

    #[test]
    fn bits_past_the_bytes_are_never_free() {
        let mut bytes = [0u8; 2];
        assert!(test(&bytes, 16) && set(&mut bytes, 16) && !clear(&mut bytes, 16));
        assert!(clear_runs(&bytes, 40).eq(std::iter::once(0..16)));
        set_range(&mut bytes, 10..100);
        assert_eq!(bytes, [0, 0xFC]);
        assert!(
            !set(&mut bytes, 3) && set(&mut bytes, 3) && clear(&mut bytes, 3) && !test(&bytes, 3)
        );
    }
}
