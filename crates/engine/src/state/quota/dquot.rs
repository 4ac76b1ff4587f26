//! Usage and limits of one id.

use extant_sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use extant_disk::quota::{QuotaEntry, QuotaKind, QuotaLimits, QuotaTimes, QuotaUsage, entry_at};
use extant_jbd2::{Block, Handle};
use extant_lock_order::{Locked, Rank, lock};
use extant_sync::{Mutex, MutexGuard};

use crate::types::error::Result;

/// The rules for all ids of a kind.
#[derive(Debug)]
pub(crate) struct QuotaRules {
    /// Limits are kept (`usrquota`, `grpquota`, `prjquota`). Usage is counted in any case.
    pub(crate) enforced: bool,
    bytes_grace: AtomicU64,
    inodes_grace: AtomicU64,
}

impl QuotaRules {
    pub(crate) fn new(enforced: bool, times: QuotaTimes) -> Self {
        Self {
            enforced,
            bytes_grace: AtomicU64::new(times.bytes.into()),
            inodes_grace: AtomicU64::new(times.inodes.into()),
        }
    }

    /// Changes the grace times.
    pub(crate) fn set_times(&self, times: QuotaTimes) {
        self.bytes_grace
            .store(times.bytes.into(), Ordering::Relaxed);
        self.inodes_grace
            .store(times.inodes.into(), Ordering::Relaxed);
    }
}

/// The place of an entry: its block, which stays in memory, so that counting reads nothing.
pub(crate) struct StoredEntry {
    pub(crate) block: Block,
    /// Its first byte there.
    pub(crate) offset: usize,
}

/// A change of usage.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct UsageChange {
    pub(super) added: QuotaUsage,
    pub(super) removed: QuotaUsage,
    /// The part of `added` that was reserved.
    pub(super) reserved: QuotaUsage,
}

/// Usage and limits of one id, in memory.
pub(crate) struct Dquot {
    pub(crate) kind: QuotaKind,
    pub(crate) id: u32,
    rules: Arc<QuotaRules>,
    state: Mutex<DquotState>,
}

struct DquotState {
    /// As stored; where there is no place, what is to be added to the entry.
    entry: QuotaEntry,
    /// Usage to come: delayed blocks, and what operations are about to take.
    reserved: QuotaUsage,
    /// `None` for an id that has no entry yet.
    stored: Option<StoredEntry>,
}

impl DquotState {
    /// Usage, and what is reserved.
    fn total(&self) -> QuotaUsage {
        sum(self.entry.usage, self.reserved)
    }
}

impl Dquot {
    /// That of `entry`, which is at `stored`, or has no place yet.
    pub(crate) fn new(
        kind: QuotaKind,
        entry: QuotaEntry,
        stored: Option<StoredEntry>,
        rules: &Arc<QuotaRules>,
    ) -> Self {
        Self {
            kind,
            id: entry.id,
            rules: Arc::clone(rules),
            state: Mutex::new(DquotState {
                entry,
                reserved: QuotaUsage::default(),
                stored,
            }),
        }
    }

    #[track_caller]
    fn lock(&self) -> Locked<MutexGuard<'_, DquotState>> {
        lock(Rank::Dquot, || self.state.lock())
    }

    /// The entry, and what is reserved beside.
    pub(crate) fn entry(&self) -> (QuotaEntry, QuotaUsage) {
        let state = self.lock();
        (state.entry, state.reserved)
    }

    /// Returns whether it has an entry in the file.
    pub(crate) fn is_stored(&self) -> bool {
        self.lock().stored.is_some()
    }

    /// Reserves `amount` unless a limit is in the way. An `exempt` caller is never refused.
    pub(super) fn reserve(&self, amount: QuotaUsage, exempt: bool, now: u64) -> bool {
        let mut state = self.lock();
        let total = sum(state.total(), amount);
        if self.rules.enforced && !exempt {
            let most = state.entry.most(now);
            let over = |total: u64, most: u64, more: u64| more != 0 && total > most;
            if over(total.bytes, most.bytes, amount.bytes)
                || over(total.inodes, most.inodes, amount.inodes)
            {
                return false;
            }
        }
        state.reserved = sum(state.reserved, amount);
        self.note_time(&mut state, now);
        true
    }

    /// The bytes that may still be taken without exemption.
    pub(super) fn room(&self, now: u64) -> u64 {
        let state = self.lock();
        match self.rules.enforced {
            true => state
                .entry
                .most(now)
                .bytes
                .saturating_sub(state.total().bytes),
            false => u64::MAX,
        }
    }

    /// Takes `amount` as reserved, whatever the limits are.
    pub(super) fn reserve_moved(&self, amount: QuotaUsage) {
        let mut state = self.lock();
        state.reserved = sum(state.reserved, amount);
    }

    /// Gives a reservation back.
    pub(super) fn give_back(&self, amount: QuotaUsage) {
        let mut state = self.lock();
        debug_assert!(
            amount.bytes <= state.reserved.bytes && amount.inodes <= state.reserved.inodes,
            "{amount:?} of {:?} given back",
            state.reserved
        );
        state.reserved = difference(state.reserved, amount);
    }

    /// Counts a change under `h`.
    ///
    /// # Errors
    /// A stopped journal.
    pub(super) fn count(&self, h: &mut Handle, change: UsageChange, now: u64) -> Result<()> {
        let mut state = self.lock();
        state.reserved = difference(state.reserved, change.reserved);
        // As Linux, a usage that was too low becomes 0.
        let usage = difference(sum(state.entry.usage, change.added), change.removed);
        state.entry.usage = usage;
        self.note_time(&mut state, now);
        store(&state, h)
    }

    /// Begins or ends the grace times that the usage, with what is reserved, asks for.
    fn note_time(&self, state: &mut DquotState, now: u64) {
        let total = state.total();
        let until = |usage: u64, soft: u64, old: u64, grace: &AtomicU64| match soft {
            0 => 0,
            soft if usage <= soft => 0,
            _ if old != 0 || !self.rules.enforced => old,
            _ => now.saturating_add(grace.load(Ordering::Relaxed)),
        };
        let limits = state.entry.limits;
        let entry = &mut state.entry;
        entry.bytes_until = until(
            total.bytes,
            limits.bytes_soft,
            entry.bytes_until,
            &self.rules.bytes_grace,
        );
        entry.inodes_until = until(
            total.inodes,
            limits.inodes_soft,
            entry.inodes_until,
            &self.rules.inodes_grace,
        );
    }

    /// Sets the limits under `h`. The grace times begin anew.
    ///
    /// # Errors
    /// A stopped journal.
    pub(crate) fn set_limits(&self, h: &mut Handle, limits: QuotaLimits, now: u64) -> Result<()> {
        let mut state = self.lock();
        state.entry.limits = limits.stored();
        (state.entry.bytes_until, state.entry.inodes_until) = (0, 0);
        self.note_time(&mut state, now);
        store(&state, h)
    }

    /// Gives it the entry `found` of the file, or one that was made for it, and stores there what
    /// was counted meanwhile.
    ///
    /// # Errors
    /// A stopped journal.
    pub(crate) fn put(
        &self,
        h: &mut Handle,
        found: &QuotaEntry,
        stored: StoredEntry,
    ) -> Result<()> {
        let mut state = self.lock();
        debug_assert!(state.stored.is_none(), "it gets one entry");
        let usage = sum(state.entry.usage, found.usage);
        state.entry = QuotaEntry { usage, ..*found };
        state.stored = Some(stored);
        store(&state, h)
    }
}

/// Writes the entry to its place.
fn store(state: &DquotState, h: &mut Handle) -> Result<()> {
    let Some(stored) = &state.stored else {
        return Ok(());
    };
    let bytes = entry_at(&state.entry);
    h.modify(&stored.block, |block| {
        block[stored.offset..stored.offset + bytes.len()].copy_from_slice(&bytes);
    })?;
    Ok(())
}

/// Saturates, as the usage of a damaged volume may be anything.
fn sum(a: QuotaUsage, b: QuotaUsage) -> QuotaUsage {
    QuotaUsage {
        bytes: a.bytes.saturating_add(b.bytes),
        inodes: a.inodes.saturating_add(b.inodes),
    }
}

fn difference(a: QuotaUsage, b: QuotaUsage) -> QuotaUsage {
    QuotaUsage {
        bytes: a.bytes.saturating_sub(b.bytes),
        inodes: a.inodes.saturating_sub(b.inodes),
    }
}
