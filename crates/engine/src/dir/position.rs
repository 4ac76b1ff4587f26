//! Positions in a directory listing.
//!
//! A position has 63 bits and starts at zero: 0 stands before ".", 1 before "..", 2 before the
//! first entry.
//!
//! - In a directory that has an index or could get one at any moment (one block, `dir_index`),
//!   entries are listed in hash order and a position is the hash: the upper 31 bits of the major
//!   hash above 32 bits of a second hash of the name. That is the minor hash, or a crc32c where the
//!   algorithm has none. Both are those that entries have stored, where they have. Splitting,
//!   compacting and adding levels do not change a position.
//! - In any other directory entries never move, and a position is a byte offset.
//!
//! Names whose hashes agree in all 63 bits are listed by name at successive positions. A reader
//! that stops between two of them may miss one, if an earlier one is removed meanwhile. No other
//! name can be missed.

use extant_disk::dir_hash::{DirHash, DirHasher, HashAlgorithm};

/// Before "..".
pub(super) const DOTDOT: u64 = 1;
/// Before the first entry other than "." and "..".
pub(super) const FIRST: u64 = 2;
/// After the last entry. No name has this position, as the largest major hash is kept free.
pub(super) const END: u64 = u64::MAX >> 1;

/// The position of `name` in hash order, before names of the same hash are told apart.
pub(super) fn of_name(hasher: &DirHasher, name: &[u8]) -> u64 {
    let mut hash = hasher.hash(name);
    if hasher.algorithm() == HashAlgorithm::Legacy {
        hash.minor = extant_disk::csum::Crc32c::START.feed(name).raw();
    }
    of_hash(hash)
}

/// The position of names with hash `hash`.
pub(super) fn of_hash(DirHash { major, minor }: DirHash) -> u64 {
    let position = of_major(major) | u64::from(minor);
    debug_assert!(position < END, "the largest major hash is kept free");
    position
}

/// The first position of major hash `major`. Its lowest bit, the collision bit of a key, does not
/// count.
pub(super) const fn of_major(major: u32) -> u64 {
    ((major >> 1) as u64) << 32
}

/// The major hash at a position; the largest for positions past the end.
pub(super) fn major(position: u64) -> u32 {
    u32::try_from(position >> 32).map_or(u32::MAX, |upper| upper.min(u32::MAX >> 1) << 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_hashes_cross() {
        assert_eq!(
            major(of_major(DirHash::MAX_MAJOR) | 0xffff_ffff),
            DirHash::MAX_MAJOR
        );
        assert!(of_major(DirHash::MAX_MAJOR) | 0xffff_ffff < END);
        assert_eq!(of_major(8), of_major(9));
        assert_eq!(major(u64::MAX), 0xffff_fffe);
        assert_eq!(major(FIRST), 0);
    }

    #[test]
    fn the_legacy_hash_has_a_second_one() {
        let hasher = DirHasher::with(HashAlgorithm::Legacy, false, [0; 4]);
        assert_ne!(of_name(&hasher, b"a") & 0xffff_ffff, 0);
    }
}
