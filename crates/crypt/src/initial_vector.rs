//! Initialization vectors of units of data, and of names, whose vector is that of unit 0.

/// Bytes of the longest vector. Modes that have a shorter one take the front.
pub(crate) const VECTOR_BYTES: usize = 32;

/// The part of an inode's vectors that is the same in all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum VectorBase {
    /// The key is the inode's own.
    Index,
    /// The nonce stands behind the index.
    Nonce([u8; 16]),
    /// The inode number stands above 32 bits of index.
    Inode(u32),
    /// This hash of the inode number is added to 32 bits of index.
    HashedInode(u32),
}

impl VectorBase {
    /// The vector of unit `index`. A base of 32 bits of index wraps: policies that have one fit
    /// volumes only whose files have no more units.
    pub(crate) fn vector(self, index: u64) -> [u8; VECTOR_BYTES] {
        let mut vector = [0; VECTOR_BYTES];
        let low = index & u64::from(u32::MAX);
        let number = match self {
            Self::Index | Self::Nonce(_) => index,
            Self::Inode(inode) => u64::from(inode) << 32 | low,
            Self::HashedInode(hash) => (low + u64::from(hash)) & u64::from(u32::MAX),
        };
        vector[..8].copy_from_slice(&number.to_le_bytes());
        if let Self::Nonce(nonce) = self {
            vector[8..24].copy_from_slice(&nonce);
        }
        vector
    }
}
