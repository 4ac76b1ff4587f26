//! The quotas of a mount: their files, and the dquots in memory.

use std::collections::HashMap;
use std::sync::Arc;

use extant_disk::quota::{QuotaEntry, QuotaHeader, QuotaKind};
use extant_lock_order::{Locked, Rank, lock};
use extant_sync::{Mutex, MutexGuard};
use extant_units::Ino;

use super::{Dquot, QuotaRules};

/// Dquots that stay in memory without a user, at most.
const UNUSED: usize = 1024;

/// A file of quotas.
pub(crate) struct QuotaFile {
    pub(crate) kind: QuotaKind,
    pub(crate) ino: Ino,
    pub(crate) rules: Arc<QuotaRules>,
    header: Mutex<QuotaHeader>,
}

impl QuotaFile {
    pub(crate) fn new(ino: Ino, header: QuotaHeader, enforced: bool) -> Self {
        Self {
            kind: header.kind,
            ino,
            rules: Arc::new(QuotaRules::new(enforced, header.times)),
            header: Mutex::new(header),
        }
    }

    /// Locks the file: held while an entry is looked up or added.
    #[track_caller]
    pub(crate) fn lock(&self) -> Locked<MutexGuard<'_, QuotaHeader>> {
        lock(Rank::QuotaFile, || self.header.lock())
    }
}

/// The quotas of a mount that writes a volume with such files.
#[derive(Default)]
pub(crate) struct Quotas {
    files: [Option<QuotaFile>; 3],
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    dquots: HashMap<(QuotaKind, u32), Arc<Dquot>>,
    /// The number from which on unused ones are looked for.
    full: usize,
}

impl Quotas {
    /// With these files.
    pub(crate) fn new(files: [Option<QuotaFile>; 3]) -> Self {
        Self {
            files,
            ..Self::default()
        }
    }

    /// The file of a kind, if the volume counts it.
    pub(crate) fn file(&self, kind: QuotaKind) -> Option<&QuotaFile> {
        self.files[kind.index()].as_ref()
    }

    /// Returns whether limits are kept, of any kind.
    pub(crate) fn is_enforced(&self) -> bool {
        let mut files = self.files.iter().flatten();
        files.any(|file| file.rules.enforced)
    }

    /// The dquot of an id, if it is in memory.
    pub(crate) fn known(&self, kind: QuotaKind, id: u32) -> Option<Arc<Dquot>> {
        self.table.lock().dquots.get(&(kind, id)).map(Arc::clone)
    }

    /// The dquot of an id: the one in memory, or else `new`.
    pub(crate) fn enter(&self, new: Dquot) -> Arc<Dquot> {
        let mut table = self.table.lock();
        if table.dquots.len() >= table.full.max(UNUSED) {
            let unused = |dquot: &Arc<Dquot>| Arc::strong_count(dquot) == 1 && dquot.is_stored();
            table.dquots.retain(|_, dquot| !unused(dquot));
            table.full = 2 * table.dquots.len();
        }
        let known = table.dquots.entry((new.kind, new.id));
        Arc::clone(known.or_insert_with(|| Arc::new(new)))
    }

    /// The dquot of an id, in memory: one without a place if nothing is known of it.
    pub(crate) fn known_or_new(&self, kind: QuotaKind, id: u32) -> Option<Arc<Dquot>> {
        let file = self.file(kind)?;
        let new = || self.enter(Dquot::new(kind, QuotaEntry::of(id), None, &file.rules));
        Some(self.known(kind, id).unwrap_or_else(new))
    }

    /// Those that have no entry in a file yet.
    pub(crate) fn without_entry(&self) -> Vec<Arc<Dquot>> {
        let all: Vec<_> = self.table.lock().dquots.values().cloned().collect();
        all.into_iter().filter(|dquot| !dquot.is_stored()).collect()
    }

    /// Lets go of all of them, and of the blocks that they hold. Returns what is reserved in them:
    /// nothing, once all data is written.
    pub(crate) fn close(&self) -> u64 {
        let dquots = std::mem::take(&mut self.table.lock().dquots);
        let reserved = |dquot: Arc<Dquot>| {
            let (_, reserved) = dquot.entry();
            reserved.bytes + reserved.inodes
        };
        dquots.into_values().map(reserved).sum()
    }
}
