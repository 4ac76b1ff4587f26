//! Numbers in untrusted bytes: every access is checked, none panics.

/// The unsigned number of `width` bytes (1..=8) at `at`; zero where there are no such bytes.
pub(super) fn get(bytes: &[u8], at: usize, width: usize, big: bool) -> u64 {
    let Some(part) = at.checked_add(width).and_then(|end| bytes.get(at..end)) else {
        return 0;
    };
    let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
    if big {
        part.iter().fold(0, add)
    } else {
        part.iter().rev().fold(0, add)
    }
}

/// Little-endian, 16 bits.
pub(super) fn le16(bytes: &[u8], at: usize) -> u64 {
    get(bytes, at, 2, false)
}

/// Little-endian, 32 bits.
pub(super) fn le32(bytes: &[u8], at: usize) -> u64 {
    get(bytes, at, 4, false)
}

/// Big-endian, 32 bits.
pub(super) fn be32(bytes: &[u8], at: usize) -> u64 {
    get(bytes, at, 4, true)
}

/// Stores the low `width` bytes of `value` at `at`, as far as there are bytes.
pub(super) fn put(bytes: &mut [u8], at: usize, width: usize, big: bool, value: u64) {
    let little = value.to_le_bytes();
    for i in 0..width.min(8) {
        let from = if big { width - 1 - i } else { i };
        let to = at.checked_add(i).and_then(|at| bytes.get_mut(at));
        if let (Some(to), Some(byte)) = (to, little.get(from)) {
            *to = *byte;
        }
    }
}

/// `bytes[at..at + len]`, or what there is of it.
pub(super) fn part(bytes: &[u8], at: usize, len: usize) -> &[u8] {
    let from = at.min(bytes.len());
    let to = from.saturating_add(len).min(bytes.len());
    bytes.get(from..to).unwrap_or_default()
}

/// A number as an index; the largest if it is none.
pub(super) fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// The low 32 bits.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the low half is what is asked for"
)]
pub(super) fn low32(value: u64) -> u32 {
    value as u32
}
