//! Space that an allocation is about to add to an inode.

use std::sync::Arc;

use super::InodeQuota;
use crate::types::error::{Error, Result};

/// Bytes that an allocation is about to add to an inode: the next growth of its sectors uses them
/// up. What is left when this is dropped goes back, or stays reserved if it was before. Does
/// nothing where no quota is counted.
#[must_use = "it lasts until the growth is counted"]
pub(crate) struct SpaceClaim {
    quota: Option<Arc<InodeQuota>>,
    bytes: u64,
    /// Bytes that are left go back.
    is_own: bool,
}

impl SpaceClaim {
    /// Reserves `bytes` and claims them.
    ///
    /// # Errors
    /// [`Error::OverQuota`].
    pub(crate) fn take(quota: Option<&Arc<InodeQuota>>, bytes: u64, exempt: bool) -> Result<Self> {
        let quota = quota.filter(|_| bytes > 0);
        if quota.is_some_and(|quota| !quota.reserve(bytes, exempt)) {
            return Err(Error::OverQuota);
        }
        Ok(Self::begin(quota, bytes, true))
    }

    /// As [`SpaceClaim::take`], for up to `want` units of `unit` bytes, at least one: as many as
    /// the limits allow. Returns how many as well.
    ///
    /// # Errors
    /// [`Error::OverQuota`].
    pub(crate) fn take_some(
        quota: Option<&Arc<InodeQuota>>,
        want: u32,
        unit: u64,
        exempt: bool,
    ) -> Result<(Self, u32)> {
        let Some(quota) = quota else {
            return Ok((Self::begin(None, 0, true), want));
        };
        match quota.reserve_up_to(want, unit, exempt) {
            0 => Err(Error::OverQuota),
            got => {
                let bytes = u64::from(got) * unit;
                Ok((Self::begin(Some(quota), bytes, true), got))
            }
        }
    }

    /// Claims `bytes` of a [`Reservation`](crate::state::alloc::Reservation), whose blocks are
    /// consumed once the growth is counted.
    pub(crate) fn of_reserved(quota: Option<&Arc<InodeQuota>>, bytes: u64) -> Self {
        Self::begin(quota, bytes, false)
    }

    /// Ends a claim of reserved blocks, which are consumed: what no growth used up goes back. That
    /// is all of it after a failure, and a part if the change of the map freed nodes.
    pub(crate) fn consume(mut self) {
        self.is_own = true;
    }

    fn begin(quota: Option<&Arc<InodeQuota>>, bytes: u64, is_own: bool) -> Self {
        let quota = quota.cloned();
        if let Some(quota) = &quota {
            quota.begin_claim(bytes);
        }
        Self {
            quota,
            bytes,
            is_own,
        }
    }
}

impl Drop for SpaceClaim {
    fn drop(&mut self) {
        if let Some(quota) = &self.quota {
            quota.end_claim(self.bytes, self.is_own);
        }
    }
}
