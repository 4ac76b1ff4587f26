//! Entries that have the hashes of their names behind them: those of directories that both encrypt
//! names and fold their case.
//!
//! No one without the key can compute such a hash (SipHash of the folded name), so it is stored,
//! major and minor, in the eight bytes behind a name that is padded to four. "." and ".." have
//! none. The index of such a directory has version [`VERSION`]. (`ext4_dir_entry_hash`)

use crate::dir_hash::DirHash;

/// The hash version of an index over such entries (SipHash).
pub const VERSION: u8 = 6;
/// Bytes of the two hashes.
pub(crate) const BYTES: usize = 8;

/// Bytes that `hash` takes.
pub(crate) const fn room_of(hash: Option<DirHash>) -> usize {
    if hash.is_some() { BYTES } else { 0 }
}

/// The hash at byte `at` of `record`.
pub(crate) fn read(record: &[u8], at: usize) -> Option<DirHash> {
    let bytes: &[u8; BYTES] = record.get(at..)?.first_chunk()?;
    let [a, b, c, d, rest @ ..] = *bytes;
    Some(DirHash::stored(
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes(rest),
    ))
}

/// Writes `hash` to byte `at` of `record`.
pub(crate) fn write(record: &mut [u8], at: usize, hash: DirHash) {
    let place = record.get_mut(at..);
    if let Some(place) = place.and_then(|place| place.first_chunk_mut::<BYTES>()) {
        let (major, minor) = place.split_at_mut(BYTES / 2);
        major.copy_from_slice(&hash.major.to_le_bytes());
        minor.copy_from_slice(&hash.minor.to_le_bytes());
    }
}
