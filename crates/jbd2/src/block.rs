//! A metadata block in memory: its bytes, and which transactions have them.
//!
//! # Copy on write
//! The bytes are a shared, immutable snapshot (`Arc<[u8]>`). Reading clones the `Arc`; modifying changes the
//! bytes in place while nobody else holds them and copies them otherwise. So a reader, a committing
//! transaction and a checkpoint each keep the version they took, and none of them ever stalls a modifier.
//!
//! # States
//! - *not loaded* (`key` zero): no valid bytes; the next read loads them. A new cache entry, a failed read
//!   and a freed block are in this state.
//! - *attached*: `attached` names the transaction that modified the block last and has not taken its
//!   snapshot yet. If the next transaction modifies the block before the committing one took it, the bytes
//!   are set aside in `frozen` first. At most one transaction runs and one commits, so one such slot is enough.
//!
//! # Locks
//! `state` is held for a copy at most, except while the block is read from the device: concurrent readers
//! then wait for the one I/O. Within it, in this order: a transaction's parts, the log's index.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use extant_units::{Pblk, Tid};
use parking_lot::{Mutex, MutexGuard};

/// What a cached block was last checked as: the kind of structure and its owner.
///
/// A hostile image may use one block as two structures; a block that is read under another key than the
/// one it was last checked under is checked again.
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

/// A cheap handle on a cached metadata block. While one exists, the block stays in the cache.
#[derive(Clone)]
pub struct Block(Arc<BlockInner>);

struct BlockInner {
    pblk: Pblk,
    /// The [`CheckKey`] of the bytes, zero while there are none. Written under `state`, except that a
    /// successful check exchanges one non-zero key for another.
    key: AtomicU64,
    /// Looked up since the cache's clock hand last passed.
    referenced: AtomicBool,
    state: Mutex<BlockState>,
}

/// The part of a block that is under its lock.
pub(crate) struct BlockState {
    data: Arc<[u8]>,
    attached: Option<Tid>,
    frozen: Option<(Tid, Arc<[u8]>)>,
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

    /// Where the block lives on the device.
    #[inline]
    pub fn pblk(&self) -> Pblk {
        self.0.pblk
    }

    /// The block's bytes as they are now: a snapshot that later modifications do not change.
    ///
    /// Drop it before modifying the block: a modification copies the bytes while a snapshot of them exists.
    pub fn data(&self) -> BlockData {
        BlockData(Arc::clone(&self.0.state.lock().data))
    }

    /// The bytes, if there are any, and whether a transaction has them that has not begun to log them.
    pub(crate) fn version(&self) -> Option<(BlockData, bool)> {
        let state = self.0.state.lock();
        self.key()?;
        let attached = state.attached.is_some() || state.frozen.is_some();
        Some((BlockData(Arc::clone(&state.data)), attached))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, BlockState> {
        self.0.state.lock()
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, BlockState>> {
        self.0.state.try_lock()
    }

    /// What the bytes were last checked as, `None` if there are none.
    #[inline]
    pub(crate) fn key(&self) -> Option<CheckKey> {
        match self.0.key.load(Ordering::Acquire) {
            CheckKey::NONE => None,
            key => Some(CheckKey(key)),
        }
    }

    /// Notes that the bytes, seen under key `seen`, were checked as `key`. Does nothing if the block was
    /// freed or checked as something else meanwhile.
    pub(crate) fn checked(&self, seen: CheckKey, key: CheckKey) {
        let _ = self
            .0
            .key
            .compare_exchange(seen.0, key.0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether nobody but the holder of this reference (the cache) knows the block. Only meaningful under
    /// the lock of the shard that hands out references.
    pub(crate) fn is_unheld(&self) -> bool {
        let unheld = Arc::strong_count(&self.0) == 1;
        // What the last other holder did, such as writing the block home, happened before.
        fence(Ordering::Acquire);
        unheld
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

    /// Sets the bytes of a locked block.
    pub(crate) fn fill(&self, state: &mut BlockState, data: Arc<[u8]>, key: CheckKey) {
        state.data = data;
        self.0.key.store(key.0, Ordering::Release);
    }

    /// Detaches a freed block from `tid`, keeping aside what an older transaction still has to log, and
    /// unloads it. Returns whether such an older, committing transaction has the block.
    pub(crate) fn release(&self, state: &mut BlockState, tid: Tid) -> bool {
        if let Some(older) = state.attached.take()
            && older != tid
        {
            state.frozen = Some((older, Arc::clone(&state.data)));
        }
        self.0.key.store(CheckKey::NONE, Ordering::Release);
        state.frozen.is_some()
    }

    /// The version that `tid`, which takes no more modifications, has to write. `None` if the block left
    /// the transaction.
    pub(crate) fn take_snapshot(&self, tid: Tid) -> Option<Arc<[u8]>> {
        let mut state = self.lock();
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

impl BlockState {
    /// Whether `tid` has the block already.
    #[inline]
    pub(crate) fn is_attached_to(&self, tid: Tid) -> bool {
        self.attached == Some(tid)
    }

    /// Hands the block to `tid`, setting the bytes aside for an older transaction that still needs them.
    pub(crate) fn attach(&mut self, tid: Tid) {
        if let Some(older) = self.attached.replace(tid)
            && older != tid
        {
            self.frozen = Some((older, Arc::clone(&self.data)));
        }
    }

    /// The bytes for modification, and whether they had to be copied.
    pub(crate) fn data_mut(&mut self) -> (&mut [u8], bool) {
        let shared = Arc::get_mut(&mut self.data).is_none();
        (Arc::make_mut(&mut self.data), shared)
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
        let mut state = block.lock();
        block.fill(&mut state, [byte; 4].into(), CheckKey::UNCHECKED);
        drop(state);
        block
    }

    fn set(block: &Block, tid: u32, byte: u8) -> bool {
        let mut state = block.lock();
        state.attach(Tid::new(tid));
        let (data, copied) = state.data_mut();
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
        assert!(block.release(&mut block.lock(), Tid::new(2)));
        assert_eq!(block.key(), None);
        assert_eq!(block.take_snapshot(Tid::new(1)).unwrap()[0], 1);
        set(&block, 2, 2);
        assert!(!block.release(&mut block.lock(), Tid::new(2)));
        assert_eq!(block.take_snapshot(Tid::new(2)), None);
    }
}
