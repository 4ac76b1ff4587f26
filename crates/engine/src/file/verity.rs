//! Files that fs-verity protects, which are only read: the way from a file to its Merkle tree.
//!
//! The descriptor and the tree lie in the file's blocks behind its end. What is read into the cache
//! is checked against the tree before anything sees it, and so once for as long as it stays there.
//! The digest of the file itself is not compared with anything, and a signature is not looked at:
//! that is the caller's trust, as on Linux.

use std::borrow::Cow;

use extant_disk::features::RoCompat;
use extant_disk::inode::InodeFlags;
use extant_disk::verity::{
    MAX_DESCRIPTOR, TREE_ALIGN, TreeHash, TreeShape, VerityDescriptor, VerityError,
    descriptor_place,
};
use extant_units::{BlockSize, Pos};

use crate::file::encoding;
use crate::map;
use crate::state::file::{FileState, MerkleTree};
use crate::state::inode::Inode;
use crate::state::map::MapState;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// Returns whether the data of a file with `flags` is checked against a tree.
pub(in crate::file) fn is_protected(flags: InodeFlags) -> bool {
    flags.contains(InodeFlags::VERITY)
}

/// Fails on a volume that has no files with fs-verity.
pub(in crate::file) fn require_feature(fs: &Fs) -> Result<()> {
    match fs.layout.features.has_ro_compat(RoCompat::VERITY) {
        true => Ok(()),
        false => Err(Error::NotSupported(
            "fs-verity on a volume without the feature verity",
        )),
    }
}

/// Checks whole blocks of `inode` from `pos` on, as they were read.
///
/// # Errors
/// They are not what the tree says; damage of the descriptor; a failed read of the tree.
pub(in crate::file) fn check(
    fs: &Fs,
    inode: &Inode,
    state: &FileState,
    pos: Pos,
    bytes: &[u8],
) -> Result<()> {
    let tree = match state.merkle_tree.get() {
        Some(tree) => tree,
        None => {
            let made = open(fs, inode)?;
            state.merkle_tree.get_or_init(|| Box::new(made))
        }
    };
    let start = tree_start(inode).map_err(|error| damage(inode, error))?;
    tree.check(pos.get(), bytes, |at, block| {
        read(fs, inode, start + at, block)
    })
}

/// A descriptor that was found and checked, and where its tree lies.
pub(in crate::file) struct FoundTree {
    /// The descriptor as it is stored.
    pub(in crate::file) stored: Vec<u8>,
    descriptor: VerityDescriptor,
    shape: TreeShape,
    start: u64,
}

impl FoundTree {
    /// The hash function.
    pub(in crate::file) fn hash(&self) -> TreeHash {
        self.descriptor.hash
    }

    /// Bytes of the tree.
    pub(in crate::file) fn tree_bytes(&self) -> u64 {
        self.shape.blocks << self.descriptor.log_block
    }

    /// Reads the tree from byte `at` of it on.
    pub(in crate::file) fn read_tree(
        &self,
        fs: &Fs,
        inode: &Inode,
        at: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        read(fs, inode, self.start + at, buf)
    }
}

/// Opens the tree of a file.
fn open(fs: &Fs, inode: &Inode) -> Result<MerkleTree> {
    let found = find(fs, inode)?;
    Ok(MerkleTree::new(found.descriptor, found.shape))
}

/// Finds and checks the descriptor.
///
/// # Errors
/// Damage; a failed read.
pub(in crate::file) fn find(fs: &Fs, inode: &Inode) -> Result<FoundTree> {
    let bs = fs.layout.block_size;
    let end = map::last_end(fs, inode)? * bs.bytes_u64();
    let of = |error| damage(inode, error);
    let start = tree_start(inode).map_err(of)?;
    if end <= start {
        return Err(of(VerityError::Missing));
    }
    let mut stored = [0; 4];
    read(fs, inode, end - 4, &mut stored)?;
    let stored = u32::from_le_bytes(stored);
    let (at, len) = descriptor_place(end, stored, start, bs).map_err(of)?;
    debug_assert!(len <= MAX_DESCRIPTOR, "its length was checked");
    let mut bytes = vec![0; len];
    read(fs, inode, at, &mut bytes)?;
    let descriptor = VerityDescriptor::parse(&bytes, inode.size(), bs).map_err(of)?;
    let shape = TreeShape::of(&descriptor).map_err(of)?;
    if shape.blocks << descriptor.log_block > at - start {
        return Err(of(VerityError::TreeTooLong));
    }
    Ok(FoundTree {
        stored: bytes,
        descriptor,
        shape,
        start,
    })
}

/// Byte of the file at which its tree begins.
pub(in crate::file) fn tree_start(inode: &Inode) -> Result<u64, VerityError> {
    let start = inode.size().checked_next_multiple_of(TREE_ALIGN);
    start.ok_or(VerityError::Missing)
}

/// Reads what lies behind the end of the file's data.
fn read(fs: &Fs, inode: &Inode, from: u64, buf: &mut [u8]) -> Result<()> {
    let bs: BlockSize = fs.layout.block_size;
    let mut done = 0;
    while done < buf.len() {
        let pos = Pos::new(from + done as u64);
        let lblk = bs.lblk(pos).ok_or(Error::FileTooBig)?;
        let MapState::Written(pblk) = map::lookup(fs, inode, lblk, 1)?.state else {
            return Err(damage(inode, VerityError::Missing));
        };
        let block = fs.cache.read_unchecked(pblk)?;
        let data = block.data();
        let mut data = Cow::Borrowed(&*data);
        if inode.flags().contains(InodeFlags::ENCRYPT) {
            encoding::decode(fs, inode, bs.pos(lblk), data.to_mut())?;
        }
        let there = &data[bs.offset_in_block(pos)..];
        let part = there.len().min(buf.len() - done);
        buf[done..done + part].copy_from_slice(&there[..part]);
        done += part;
    }
    Ok(())
}

/// The error of a protected file whose data is not where a tree could be.
pub(in crate::file) fn unprotected(inode: &Inode) -> Error {
    damage(inode, VerityError::Missing)
}

fn damage(inode: &Inode, error: VerityError) -> Error {
    Error::corrupt(Location::Inode(inode.ino), error)
}
