//! Attribute blocks that several inodes share.
//!
//! Equal attributes (the ACLs and labels of whole trees) are stored once: a block counts the inodes
//! that refer to it. An index by content hash remembers blocks that were written or read, so that
//! an inode that needs such a block finds it.
//!
//! # Invariants
//! - A block with a count above one is never changed except for its count.
//! - A block in the index is an attribute block in use, as long as the block's stripe is held.
//!
//! # Locks
//! A stripe (by block number) is held while a block's count is read and acted upon: shared, changed
//! in place or freed. One at a time, inside `xattr_lock`. The index has a lock of its own, a leaf.

use extant_disk::damage::AttributeDamage;
use extant_disk::xattr::{
    BlockHeader, Fit, XATTR_REFCOUNT_MAX, XattrName, XattrSet, block_entries, seal_block,
};
use extant_jbd2::Handle;
use extant_units::{Blocks, Pblk};

use super::attr_block::{key, read_block};
use super::locked_attrs::ExclusiveAttrs;
use super::value_store::{self, CountedValues};
use crate::alloc;
use crate::state::alloc::{AllocRequest, Run};
use crate::state::inode::Inode;
use crate::types::Cred;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// The header, which belongs to a block itself. The content follows it.
const HEADER: usize = size_of::<BlockHeader>();

fn hash_of(bytes: &[u8]) -> u32 {
    BlockHeader::of(bytes).map_or(0, |header| header.hash.get())
}

/// A change of one attribute in a block.
pub(super) struct BlockChange<'a> {
    pub(super) name: &'a XattrName<'a>,
    pub(super) old: &'a XattrSet,
    pub(super) new: &'a XattrSet,
    /// The values of all attributes in `old` and `new` that are elsewhere.
    pub(super) values: &'a CountedValues,
    /// The one that may use root's reserve, or not.
    pub(super) cred: &'a Cred,
}

/// Result of dropping a reference to a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dropped {
    /// Other inodes have the block.
    Shared,
    /// It is free, and its entries are gone.
    Freed,
    /// It stays: it is the last reference, and attributes have their values elsewhere.
    HasValues,
}

/// Replaces the inode's block `old` (zero for none) by one with the new attributes: an equal block
/// that exists, `old` itself if no other inode shares it, or a new one. Returns it; zero for none.
/// Counts the values that a block has in inodes of their own, once for each block. The caller
/// changes the inode's own fields.
pub(super) fn replace(
    fs: &Fs,
    h: &mut Handle,
    attrs: &ExclusiveAttrs<'_>,
    old: Pblk,
    change: &BlockChange<'_>,
) -> Result<Pblk> {
    let (inode, set, values) = (attrs.inode(), change.new, change.values);
    let drop_old = |h: &mut Handle| match drop_reference(fs, h, inode, old)? {
        Dropped::Freed => values.drop_all(fs, h, change.old),
        Dropped::Shared | Dropped::HasValues => Ok(()),
    };
    if set.is_empty() {
        drop_old(h)?;
        return Ok(Pblk::ZERO);
    }
    debug_assert!(
        old.get() == 0 || old == inode.core.read().file_acl,
        "the inode's own block is replaced"
    );
    let mut bytes = vec![0; fs.layout.block_size.bytes()];
    if set.write_block(&mut bytes) == Fit::TooLarge {
        return Err(Error::NoSpace);
    }
    if let Some(equal) = share_equal(fs, h, inode, &bytes, old)? {
        drop_old(h)?;
        fs.stats.xattr_blocks_shared.bump();
        return Ok(equal);
    }
    if old.get() != 0 && change_in_place(fs, h, inode, old, &bytes)? {
        let entry = |set: &XattrSet| set.reference(change.name).copied();
        values.exchange(fs, h, entry(change.old), entry(change.new))?;
        return Ok(old);
    }
    let new = write_new(fs, h, inode, &bytes, change.cred)?;
    // Before the old block, which counts them, may go with the reference to it.
    values.add_all(fs, h, set)?;
    drop_old(h)?;
    Ok(new)
}

/// Overwrites the block of an inode that is evicted by one with a part of its attributes, `set`.
/// Returns false if another inode shares it.
pub(super) fn shrink(
    fs: &Fs,
    h: &mut Handle,
    attrs: &ExclusiveAttrs<'_>,
    pblk: Pblk,
    set: &XattrSet,
) -> Result<bool> {
    let mut bytes = vec![0; fs.layout.block_size.bytes()];
    if set.write_block(&mut bytes) == Fit::TooLarge {
        return Err(Error::NoSpace);
    }
    change_in_place(fs, h, attrs.inode(), pblk, &bytes)
}

/// Finds a block with the content of `bytes` and counts one more inode on it.
fn share_equal(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    bytes: &[u8],
    old: Pblk,
) -> Result<Option<Pblk>> {
    let hash = hash_of(bytes);
    let shared = &fs.xattr_blocks;
    for pblk in shared.candidates(hash) {
        if pblk == old {
            continue;
        }
        let _counted = shared.stripe(pblk);
        // Freed or changed while no thread held the stripe: then it is not in the index any more.
        if !shared.index.lock().has(hash, pblk) {
            continue;
        }
        let Ok(block) = read_block(fs, inode.ino, pblk) else {
            continue;
        };
        let data = block.data();
        let count = BlockHeader::of(&data).map_or(0, |header| header.refcount.get());
        if data.get(HEADER..) != bytes.get(HEADER..) || count >= XATTR_REFCOUNT_MAX {
            continue;
        }
        set_count(fs, h, &block, count + 1)?;
        return Ok(Some(pblk));
    }
    Ok(None)
}

fn set_count(fs: &Fs, h: &mut Handle, block: &extant_jbd2::Block, count: u32) -> Result<()> {
    debug_assert!(count > 0, "a block without a user is freed");
    let pblk = block.pblk();
    h.modify(block, |bytes| {
        if let Some(header) = BlockHeader::of_mut(bytes) {
            header.refcount.set(count);
        }
        seal_block(fs.layout.csum_seed, pblk, bytes);
    })?;
    Ok(())
}

/// Overwrites the inode's block if no other inode refers to it. Returns whether it was overwritten.
fn change_in_place(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    pblk: Pblk,
    bytes: &[u8],
) -> Result<bool> {
    let shared = &fs.xattr_blocks;
    let _counted = shared.stripe(pblk);
    let block = read_block(fs, inode.ino, pblk)?;
    let old_hash = {
        let data = block.data();
        match BlockHeader::of(&data) {
            Some(header) if header.refcount.get() == 1 => header.hash.get(),
            _ => return Ok(false),
        }
    };
    shared.index.lock().forget(old_hash, pblk);
    h.modify(&block, |to| {
        to.copy_from_slice(bytes);
        seal_block(fs.layout.csum_seed, pblk, to);
    })?;
    shared.index.lock().add(hash_of(bytes), pblk);
    Ok(true)
}

fn write_new(fs: &Fs, h: &mut Handle, inode: &Inode, bytes: &[u8], cred: &Cred) -> Result<Pblk> {
    let request = AllocRequest {
        metadata: true,
        privileged: alloc::may_use_reserve(fs, cred),
        ..AllocRequest::new(alloc::goal_for(fs, inode), Blocks::ONE)
    };
    let run =
        alloc::allocate_blocks(fs, h, &request).inspect_err(|error| fs.fault.report(fs, error))?;
    let pblk = run.start;
    let shared = &fs.xattr_blocks;
    let _counted = shared.stripe(pblk);
    let block = h.create(pblk, key())?;
    h.modify(&block, |to| {
        to.copy_from_slice(bytes);
        seal_block(fs.layout.csum_seed, pblk, to);
    })?;
    shared.index.lock().add(hash_of(bytes), pblk);
    Ok(pblk)
}

/// Drops the reference of an inode that is evicted to block `pblk`. The last one frees it, unless
/// attributes have their values elsewhere and not `keeps` says that these stay counted.
pub(super) fn release(
    fs: &Fs,
    h: &mut Handle,
    attrs: &ExclusiveAttrs<'_>,
    pblk: Pblk,
    keeps: bool,
) -> Result<Dropped> {
    drop_unless(fs, h, attrs.inode(), pblk, |block| {
        let entries = block_entries(block);
        value_store::is_enabled(fs)
            && !keeps
            && entries.is_ok_and(|mut entries| {
                entries.any(|entry| entry.is_ok_and(|entry| entry.elsewhere.is_some()))
            })
    })
}

/// Drops the inode's reference to block `pblk` (zero: nothing to do). The last one frees it.
fn drop_reference(fs: &Fs, h: &mut Handle, inode: &Inode, pblk: Pblk) -> Result<Dropped> {
    match pblk.get() {
        0 => Ok(Dropped::Shared),
        _ => drop_unless(fs, h, inode, pblk, |_| false),
    }
}

fn drop_unless(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    pblk: Pblk,
    has_values: impl FnOnce(&[u8]) -> bool,
) -> Result<Dropped> {
    let shared = &fs.xattr_blocks;
    let _counted = shared.stripe(pblk);
    let block = read_block(fs, inode.ino, pblk)?;
    let (count, hash) = {
        let data = block.data();
        let header = BlockHeader::of(&data).ok_or_else(|| {
            Error::corrupt(
                Location::XattrBlock(inode.ino, pblk),
                AttributeDamage::NoBlock,
            )
        })?;
        (header.refcount.get(), header.hash.get())
    };
    if count > 1 {
        set_count(fs, h, &block, count - 1)?;
        return Ok(Dropped::Shared);
    }
    if has_values(&block.data()) {
        return Ok(Dropped::HasValues);
    }
    shared.index.lock().forget(hash, pblk);
    drop(block);
    let run = Run {
        start: pblk,
        len: Blocks::ONE,
    };
    // Damage of the bitmap is no reason to keep the reference: others may be written already.
    let freed = alloc::free_blocks(fs, h, run, true);
    freed.unwrap_or_else(|error| fs.fault.report(fs, &error));
    Ok(Dropped::Freed)
}

/// Remembers a block that was read.
pub(super) fn remember(fs: &Fs, pblk: Pblk, bytes: &[u8]) {
    let hash = hash_of(bytes);
    if hash != 0 {
        fs.xattr_blocks.index.lock().add(hash, pblk);
    }
}
