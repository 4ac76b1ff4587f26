//! Fields of an inode that holds the value of an attribute (`ea_inode`).
//!
//! The number of attributes that have the value is in the seconds of the time of change (its upper
//! half) and the version (its lower half), the crc32c of the value in the seconds of the time of
//! access.

use super::{InodeCore, InodeTime};

impl InodeCore {
    /// Returns whether it is an orphan that held a value until its last attribute went. It has
    /// lost the flag of such inodes, and counts in no quota as before: those that had the
    /// attribute did.
    pub fn was_value(&self) -> bool {
        self.links == 0 && self.value_users() == 0
    }

    /// Number of attributes, each in an inode or in a block of attributes, that have the value.
    /// Zero in those that Lustre made, which count nothing.
    pub fn value_users(&self) -> u64 {
        u64::from(low32(self.ctime.secs)) << 32 | (self.version & u64::from(u32::MAX))
    }

    /// Returns whether Lustre made the inode of a value, on a volume of so many inodes: it has no
    /// count, and the number of the inode that has the attribute in place of the time of its last
    /// change.
    pub fn is_value_of_lustre(&self, inodes: u32) -> bool {
        self.value_users() == 0 && (1..=inodes).contains(&low32(self.mtime.secs))
    }

    /// Stores that number.
    pub fn set_value_users(&mut self, users: u64) {
        let (high, low) = (users >> 32, users & u64::from(u32::MAX));
        // Half of 64 bits. As a signed number, which every inode holds.
        let secs = i64::from(u32::try_from(high).unwrap_or(0).cast_signed());
        self.ctime = InodeTime { secs, nanos: 0 };
        self.version = low;
    }

    /// The hash of the value.
    pub fn value_hash(&self) -> u32 {
        low32(self.atime.secs)
    }

    /// Stores the hash of the value.
    pub fn set_value_hash(&mut self, hash: u32) {
        // An inode with room for it says that a hash is no date before 1970, as in Linux.
        let secs = match self.has_wide_times() {
            true => i64::from(hash),
            false => i64::from(hash.cast_signed()),
        };
        self.atime = InodeTime { secs, nanos: 0 };
    }
}

/// The stored part of a time in seconds.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the low half is what is stored"
)]
const fn low32(secs: i64) -> u32 {
    secs as u32
}

#[cfg(test)]
mod tests {
    use extant_units::{BlockSize, Ino};

    use super::super::InodeFormat;
    use super::*;

    #[test]
    fn fields_are_stored_and_read_in_inodes_of_all_sizes() {
        for inode_size in [128, 256] {
            let format = InodeFormat {
                inode_size,
                block_size: BlockSize::KIB1,
                huge_file: true,
                wide_blocks: true,
                large_dir: false,
                csum_seed: None,
            };
            for (users, hash) in [(0, 0), (1, 1), (u64::MAX, u32::MAX), (1 << 63, 1 << 31)] {
                let mut core = InodeCore::blank(&format, 32);
                core.mode = 0o100_600;
                core.set_value_users(users);
                core.set_value_hash(hash);
                let mut record = vec![0; usize::from(inode_size)];
                let ino = Ino::new(12).unwrap();
                core.encode(&format, ino, &mut record).unwrap();
                let read = InodeCore::decode(&format, ino, &record).unwrap();
                assert_eq!((read.value_users(), read.value_hash()), (users, hash));
                assert_eq!(record[8..12], hash.to_le_bytes(), "i_atime");
                let half = |from: usize| record[from..from + 4].to_vec();
                let halves = [half(36), half(12)].concat();
                assert_eq!(halves, users.to_le_bytes(), "i_version, i_ctime");
            }
        }
    }
}
