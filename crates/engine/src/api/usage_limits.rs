//! Quotas of a volume.

use extant_disk::quota::{QuotaEntry, QuotaKind, QuotaLimits, QuotaTimes};

use super::node::Node;
use super::volume::Volume;
use crate::Result;
use crate::api::inspect::usage;
use crate::quota;
use crate::state::quota::Quotas;
use crate::types::FsStat;

impl Volume {
    /// The grace times of a kind of quota, and the entries of all ids that have one, in the order
    /// of the ids. Delayed data is not counted yet.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] if the volume does not count this kind; damage; a failed
    /// read.
    pub fn quotas(&self, kind: QuotaKind) -> Result<(QuotaTimes, Vec<QuotaEntry>)> {
        quota::report(self.fs(), kind)
    }

    /// The grace times of a kind of quota, and the entry of `id`, or of the first id behind it that
    /// has one.
    ///
    /// # Errors
    /// As [`Volume::quotas`].
    pub fn next_quota(&self, kind: QuotaKind, id: u32) -> Result<(QuotaTimes, Option<QuotaEntry>)> {
        quota::next(self.fs(), kind, id)
    }

    /// Sets the limits of an id. They are kept by mounts with `usrquota`, `grpquota` or `prjquota`.
    ///
    /// # Errors
    /// As [`Volume::quotas`]; [`crate::Error::NoSpace`] for a new entry;
    /// [`crate::Error::ReadOnly`].
    pub fn set_quota_limits(&self, kind: QuotaKind, id: u32, limits: QuotaLimits) -> Result<()> {
        quota::set_limits(self.fs(), kind, id, limits)
    }

    /// Sets the times for which soft limits may be passed.
    ///
    /// # Errors
    /// As [`Volume::set_quota_limits`].
    pub fn set_quota_times(&self, kind: QuotaKind, times: QuotaTimes) -> Result<()> {
        quota::set_times(self.fs(), kind, times)
    }

    /// Returns whether limits of quotas are kept: a write may then be refused for its user.
    pub fn keeps_quotas(&self) -> bool {
        self.fs().quotas.get().is_some_and(Quotas::is_enforced)
    }

    /// As [`Volume::statfs`], of the part of the volume that is `node`'s project's, if the project
    /// has limits that are kept and children of `node` inherit it.
    ///
    /// # Errors
    /// The file system is shut down.
    pub fn statfs_at(&self, node: &Node) -> Result<FsStat> {
        let whole = self.statfs()?;
        Ok(match quota::project_space(self.fs(), node.inode()) {
            Some(project) => usage::of_project(whole, &project),
            None => whole,
        })
    }
}
