//! A metadata block in memory: its bytes, and the transactions that have yet to log them.
//!
//! # Invariants
//! - The bytes are a shared, immutable snapshot (`Arc<[u8]>`). Reading clones the `Arc`. Modifying
//!   changes the bytes in place if no other reference exists, and copies them otherwise. So a
//!   reader, a committing transaction and a checkpoint each keep the version they took, and none of
//!   them delays a modification.
//! - *Not loaded* (`key` is zero): the block has no valid bytes; the next read loads them. New
//!   entries of the cache, failed reads and freed blocks are in this state.
//! - *Attached*: `attached` names the transaction that modified the block last and has not taken
//!   its snapshot yet. If the next transaction modifies the block before the committing one took
//!   its snapshot, the older bytes stay in `frozen`. At most one transaction runs and one
//!   commits, so one such slot is enough.
//!
//! # Locks
//! The block's lock ([`BlockGuard`]) is held for the time of a copy at most, except while the block
//! is read from the device: concurrent readers then wait for the one I/O. Inside it, in this order:
//! a transaction's parts, the log's index.

use extant_sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::ops::Deref;
use std::sync::Arc;

use extant_sync::{Mutex, MutexGuard};
use extant_units::{Pblk, Tid};

/// The kind of structure that a cached block was last checked as, and the owner of the structure.
///
/// A hostile image may use one block as two structures. A block that is read under another key than
/// the one it was last checked under is checked again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckKey(u64);

impl CheckKey {
    /// Not loaded.
    const NONE: u64 = 0;
    /// Loaded, never checked as a whole.
    pub(crate) const UNCHECKED: Self = Self(1);

    /// The key of a structure of `kind` that belongs to `owner` (an inode, a group, or zero).
    #[inline]
    pub const fn new(kind: u8, owner: u32) -> Self {
        Self((1 << 63) | ((kind as u64) << 32) | owner as u64)
    }
}

/// A counted reference to a cached metadata block. While one exists, the block stays in the cache.
#[derive(Clone)]
pub struct Block(Arc<BlockInner>);

struct BlockInner {
    pblk: Pblk,
    /// The [`CheckKey`] of the bytes, zero while there are none. Stored under the block's lock,
    /// except that a successful check exchanges one non-zero key for another.
    key: AtomicU64,
    /// Looked up since the cache's clock hand last passed.
    referenced: AtomicBool,
    state: Mutex<BlockState>,
}

/// The part of a block that its lock protects.
struct BlockState {
    data: Arc<[u8]>,
    attached: Option<Tid>,
    frozen: Option<(Tid, Arc<[u8]>)>,
}

/// A locked block.
pub(crate) struct BlockGuard<'a> {
    block: &'a Block,
    state: MutexGuard<'a, BlockState>,
}

impl Block {
    /// A block without bytes.
    pub(crate) fn unloaded(pblk: Pblk) -> Self {
        Self(Arc::new(BlockInner {
            pblk,
            key: AtomicU64::new(CheckKey::NONE),
            referenced: AtomicBool::new(true),
            state: Mutex::new(BlockState {
                data: Arc::default(),
                attached: None,
                frozen: None,
            }),
        }))
    }

    /// The block's number on the device.
    #[inline]
    pub fn pblk(&self) -> Pblk {
        self.0.pblk
    }

    /// The block's bytes as they are now: a snapshot that later modifications do not change.
    ///
    /// Drop it before modifying the block: a modification copies the bytes while a snapshot of them
    /// exists.
    pub fn data(&self) -> BlockData {
        BlockData(Arc::clone(&self.0.state.lock().data))
    }

    /// The bytes, if there are any, and whether a transaction has yet to take its snapshot of them.
    pub(crate) fn data_and_attached(&self) -> Option<(BlockData, bool)> {
        let state = self.0.state.lock();
        self.key()?;
        let attached = state.attached.is_some() || state.frozen.is_some();
        Some((BlockData(Arc::clone(&state.data)), attached))
    }

    #[inline]
    pub(crate) fn lock(&self) -> BlockGuard<'_> {
        BlockGuard {
            block: self,
            state: self.0.state.lock(),
        }
    }

    pub(crate) fn try_lock(&self) -> Option<BlockGuard<'_>> {
        let state = self.0.state.try_lock()?;
        Some(BlockGuard { block: self, state })
    }

    /// The key that the bytes were last checked under, `None` if there are no bytes.
    #[inline]
    pub(crate) fn key(&self) -> Option<CheckKey> {
        match self.0.key.load(Ordering::Acquire) {
            CheckKey::NONE => None,
            key => Some(CheckKey(key)),
        }
    }

    /// Records that the bytes, seen under key `seen`, were checked under `key`. Does nothing if the
    /// block was freed or checked under another key meanwhile.
    pub(crate) fn set_checked(&self, seen: CheckKey, key: CheckKey) {
        debug_assert_ne!(
            seen.0,
            CheckKey::NONE,
            "bytes were checked, so there are some"
        );
        let _ = self
            .0
            .key
            .compare_exchange(seen.0, key.0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Returns whether this reference is the only one. The caller is the cache: it holds the lock
    /// of the shard that hands out references, so that none is added meanwhile.
    pub(crate) fn is_unreferenced(&self) -> bool {
        let only = Arc::strong_count(&self.0) == 1;
        // What the holder of the last other reference did, such as writing the block to its home
        // location, happens before what follows the eviction. Pairs with the release in the drop of
        // that reference.
        fence(Ordering::Acquire);
        only
    }

    #[inline]
    pub(crate) fn mark_referenced(&self) {
        if !self.0.referenced.load(Ordering::Relaxed) {
            self.0.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Clears the referenced mark and returns what it was.
    pub(crate) fn take_referenced(&self) -> bool {
        self.0.referenced.swap(false, Ordering::Relaxed)
    }

    /// The version that `tid`, which takes no more modifications, has to write. `None` if the block
    /// was freed in that transaction.
    pub(crate) fn take_snapshot(&self, tid: Tid) -> Option<Arc<[u8]>> {
        let mut state = self.0.state.lock();
        if state.attached == Some(tid) {
            state.attached = None;
            return Some(Arc::clone(&state.data));
        }
        state
            .frozen
            .take_if(|(owner, _)| *owner == tid)
            .map(|(_, data)| data)
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({})", self.0.pblk)
    }
}

impl BlockGuard<'_> {
    /// Returns whether the block has no bytes.
    pub(crate) fn is_unloaded(&self) -> bool {
        self.block.key().is_none()
    }

    /// Sets the bytes.
    pub(crate) fn fill(&mut self, data: Arc<[u8]>, key: CheckKey) {
        debug_assert_ne!(key.0, CheckKey::NONE, "bytes have a key");
        self.state.data = data;
        self.block.0.key.store(key.0, Ordering::Release);
    }

    /// Returns whether the block is attached to `tid` already.
    #[inline]
    pub(crate) fn is_attached_to(&self, tid: Tid) -> bool {
        self.state.attached == Some(tid)
    }

    /// Attaches the block to `tid`, and preserves the bytes for an older transaction that has yet
    /// to take its snapshot.
    pub(crate) fn attach(&mut self, tid: Tid) {
        if let Some(older) = self.state.attached.replace(tid)
            && older != tid
        {
            self.freeze(older, tid);
        }
    }

    /// Detaches a freed block from `tid`, keeps the bytes for an older transaction that has yet to
    /// log them, and unloads the block. Returns whether such an older, committing transaction has
    /// the block.
    pub(crate) fn release(&mut self, tid: Tid) -> bool {
        if let Some(older) = self.state.attached.take()
            && older != tid
        {
            self.freeze(older, tid);
        }
        self.block.0.key.store(CheckKey::NONE, Ordering::Release);
        self.state.frozen.is_some()
    }

    /// Unloads the block, unless a transaction has it.
    pub(crate) fn unload(&mut self) {
        if self.state.attached.is_none() && self.state.frozen.is_none() {
            self.block.0.key.store(CheckKey::NONE, Ordering::Release);
        }
    }

    /// Preserves the bytes as the version of the committing transaction `older`, before the running
    /// transaction `tid` changes them.
    fn freeze(&mut self, older: Tid, tid: Tid) {
        debug_assert!(tid.is_after(older), "{tid} runs while {older} commits");
        debug_assert!(
            self.state.frozen.is_none(),
            "one transaction commits at a time"
        );
        self.state.frozen = Some((older, Arc::clone(&self.state.data)));
    }

    /// The bytes for modification, and whether they had to be copied.
    pub(crate) fn data_mut(&mut self) -> (&mut [u8], bool) {
        let data = &mut self.state.data;
        let shared = Arc::get_mut(data).is_none();
        (Arc::make_mut(data), shared)
    }
}

/// An immutable snapshot of a block's bytes. Holds no lock.
#[derive(Clone)]
pub struct BlockData(Arc<[u8]>);

impl Deref for BlockData {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for BlockData {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// `len` zero bytes that can still be written through [`Arc::get_mut`].
pub(crate) fn zeroed(len: usize) -> Arc<[u8]> {
    std::iter::repeat_n(0, len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(byte: u8) -> Block {
        let block = Block::unloaded(Pblk::new(7));
        block.lock().fill([byte; 4].into(), CheckKey::UNCHECKED);
        block
    }

    fn set(block: &Block, tid: u32, byte: u8) -> bool {
        let mut guard = block.lock();
        guard.attach(Tid::new(tid));
        let (data, copied) = guard.data_mut();
        data.fill(byte);
        copied
    }

    #[test]
    fn a_held_snapshot_makes_a_modification_copy() {
        let block = loaded(1);
        assert!(!set(&block, 1, 2));
        let held = block.data();
        assert!(set(&block, 1, 3));
        assert!(!set(&block, 1, 4));
        assert_eq!((held[0], block.data()[0]), (2, 4));
    }

    #[test]
    fn the_committing_transaction_keeps_its_version() {
        let block = loaded(0);
        set(&block, 1, 1);
        set(&block, 2, 2);
        assert_eq!(block.take_snapshot(Tid::new(1)).unwrap()[0], 1);
        assert_eq!(block.take_snapshot(Tid::new(1)), None);
        assert_eq!(block.take_snapshot(Tid::new(2)).unwrap()[0], 2);
    }

    #[test]
    fn freeing_keeps_what_the_committing_transaction_logs() {
        let block = loaded(0);
        set(&block, 1, 1);
        assert!(block.lock().release(Tid::new(2)));
        assert_eq!(block.key(), None);
        assert_eq!(block.take_snapshot(Tid::new(1)).unwrap()[0], 1);
        set(&block, 2, 2);
        assert!(!block.lock().release(Tid::new(2)));
        assert_eq!(block.take_snapshot(Tid::new(2)), None);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "one transaction commits at a time")]
    fn a_third_live_transaction_is_refused() {
        let block = loaded(0);
        for tid in 1..=3 {
            set(&block, tid, 1);
        }
    }
}
