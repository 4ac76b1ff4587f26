//! The ids that an inode counts for.

use std::sync::Arc;

use extant_disk::inode::InodeCore;
use extant_disk::quota::QuotaKind;

use super::Dquot;

/// The ids of an inode, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OwnerIds([u32; 3]);

impl OwnerIds {
    /// These.
    pub(crate) fn new(uid: u32, gid: u32, project: u32) -> Self {
        Self([uid, gid, project])
    }

    /// Those that are stored.
    pub(crate) fn of(core: &InodeCore) -> Self {
        Self([core.uid, core.gid, core.projid])
    }

    /// The id of one kind.
    pub(crate) fn get(&self, kind: QuotaKind) -> u32 {
        self.0[kind.index()]
    }
}

/// The ids of an inode, with the dquots of those kinds that the volume counts.
#[derive(Clone)]
pub(crate) struct Owners {
    pub(crate) ids: OwnerIds,
    dquots: [Option<Arc<Dquot>>; 3],
}

impl Owners {
    /// With what `find` knows of each id.
    pub(crate) fn new(
        ids: OwnerIds,
        mut find: impl FnMut(QuotaKind, u32) -> Option<Arc<Dquot>>,
    ) -> Self {
        Self {
            ids,
            dquots: QuotaKind::ALL.map(|kind| find(kind, ids.get(kind))),
        }
    }

    /// The dquots.
    pub(crate) fn dquots(&self) -> impl Iterator<Item = &Arc<Dquot>> {
        self.dquots.iter().flatten()
    }

    /// Those that `other` does not have.
    pub(super) fn beside<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Arc<Dquot>> {
        self.dquots()
            .filter(|dquot| !other.dquots().any(|known| Arc::ptr_eq(known, dquot)))
    }
}
