//! Kinds of quotas that a new volume counts.

use extant_disk::quota::QuotaKind;

use crate::error::{Error, Result};

/// Kinds of quotas that a new volume counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuotaKinds([bool; 3]);

impl QuotaKinds {
    /// No kind.
    pub const NONE: Self = Self([false; 3]);
    /// Users and groups: what mke2fs counts unless it is told otherwise.
    pub const USER_GROUP: Self = Self([true, true, false]);

    /// These, and `kind`.
    #[must_use]
    pub fn with(mut self, kind: QuotaKind) -> Self {
        self.0[kind.index()] = true;
        self
    }

    /// These, but for `kind`.
    #[must_use]
    pub fn without(mut self, kind: QuotaKind) -> Self {
        self.0[kind.index()] = false;
        self
    }

    /// Returns whether `kind` is among them.
    pub fn has(self, kind: QuotaKind) -> bool {
        self.0[kind.index()]
    }
}

/// Reads a list as mke2fs's `quotatype=` takes it: `usrquota`, `grpquota` and `prjquota`, or their
/// first three letters, separated by colons, `^` before those to take away.
///
/// # Errors
/// A name that is not known.
pub fn parse_quota_kinds(list: &str) -> Result<QuotaKinds> {
    let mut kinds = QuotaKinds::NONE;
    for word in list.split(':').filter(|word| !word.is_empty()) {
        let (name, remove) = match word.strip_prefix('^') {
            Some(name) => (name, true),
            None => (word, false),
        };
        let kind = match name {
            "usr" | "usrquota" => QuotaKind::User,
            "grp" | "grpquota" => QuotaKind::Group,
            "prj" | "prjquota" => QuotaKind::Project,
            _ => {
                let why = "usrquota, grpquota and prjquota are known";
                return Err(Error::bad("quotatype", word, why));
            }
        };
        kinds = match remove {
            true => kinds.without(kind),
            false => kinds.with(kind),
        };
    }
    Ok(kinds)
}
