//! The part of its ids' usage that one inode has.

use std::fmt;
use std::sync::Arc;

use extant_disk::quota::QuotaUsage;
use extant_jbd2::Handle;
use extant_lock_order::{Locked, Rank, lock};
use extant_sync::{Mutex, MutexGuard};

use super::dquot::UsageChange;
use super::{Dquot, OwnerIds, Owners};
use crate::state::volume::mounted_superblock::now;
use crate::types::error::Result;

/// Usage that an inode counts in quotas: exactly what its record says.
pub(crate) struct InodeQuota {
    charge: Mutex<Charge>,
}

struct Charge {
    owners: Owners,
    /// Bytes in the usage of `owners`.
    bytes: u64,
    /// The inode itself is in their usage.
    counted: bool,
    /// Bytes that are reserved for the inode, in all of `owners`; those that are claimed included.
    reserved: u64,
    /// Of these, bytes that the next growth uses up.
    claimed: u64,
    /// Bytes that the live claims were made for, together.
    claims: u64,
    /// Values of its attributes in inodes of their own, as they were when a new owner was prepared.
    values: u64,
}

impl fmt::Debug for InodeQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InodeQuota")
    }
}

impl InodeQuota {
    /// That of an inode of `owners` that is in use and has `bytes`, or of a new one.
    pub(crate) fn new(owners: Owners, in_use: Option<u64>) -> Self {
        let charge = Charge {
            owners,
            bytes: in_use.unwrap_or(0),
            counted: in_use.is_some(),
            reserved: 0,
            claimed: 0,
            claims: 0,
            values: 0,
        };
        Self {
            charge: Mutex::new(charge),
        }
    }

    #[track_caller]
    fn lock(&self) -> Locked<MutexGuard<'_, Charge>> {
        lock(Rank::InodeQuota, || self.charge.lock())
    }

    /// The ids that it counts for.
    pub(crate) fn ids(&self) -> OwnerIds {
        self.lock().owners.ids
    }

    /// Reserves `bytes`, unless a limit is in the way.
    pub(crate) fn reserve(&self, bytes: u64, exempt: bool) -> bool {
        let mut charge = self.lock();
        if !reserve_in(charge.owners.dquots(), of_bytes(bytes), exempt) {
            return false;
        }
        charge.reserved += bytes;
        true
    }

    /// Reserves as many of `want` units of `unit` bytes as the limits allow. Returns how many.
    pub(crate) fn reserve_up_to(&self, want: u32, unit: u64, exempt: bool) -> u32 {
        let mut charge = self.lock();
        let mut want = want;
        while want > 0 {
            let bytes = u64::from(want) * unit;
            if reserve_in(charge.owners.dquots(), of_bytes(bytes), exempt) {
                charge.reserved += bytes;
                return want;
            }
            // Another thread may take some of it meanwhile: looked at again, with fewer.
            let room = charge.owners.dquots().map(|dquot| dquot.room(now()) / unit);
            let room = room.min().unwrap_or(0);
            want = u32::try_from(room).map_or(want - 1, |room| room.min(want - 1));
        }
        0
    }

    /// Gives `bytes` of what is reserved back.
    pub(crate) fn give_back(&self, bytes: u64) {
        let mut charge = self.lock();
        charge.give_back(bytes);
    }

    /// Begins a claim of `bytes` that are reserved.
    pub(super) fn begin_claim(&self, bytes: u64) {
        let mut charge = self.lock();
        charge.claimed += bytes;
        charge.claims += bytes;
        debug_assert!(charge.claimed <= charge.reserved, "claims are reserved");
    }

    /// Ends a claim that was made for `bytes`. What no growth used up is given back, or stays
    /// reserved.
    pub(super) fn end_claim(&self, bytes: u64, gives_back: bool) {
        let mut charge = self.lock();
        charge.claims -= bytes;
        let unused = charge.claimed.saturating_sub(charge.claims);
        charge.claimed -= unused;
        if gives_back {
            charge.give_back(unused);
        }
    }

    /// Counts that the inode has `bytes`, as its record says now.
    ///
    /// # Errors
    /// A stopped journal.
    pub(crate) fn set_bytes(&self, h: &mut Handle, bytes: u64) -> Result<()> {
        let mut charge = self.lock();
        let added = bytes.saturating_sub(charge.bytes);
        let removed = charge.bytes.saturating_sub(bytes);
        if added == 0 && removed == 0 {
            return Ok(());
        }
        let claimed = added.min(charge.claimed);
        charge.claimed -= claimed;
        charge.reserved -= claimed;
        charge.bytes = bytes;
        let change = UsageChange {
            added: of_bytes(added),
            removed: of_bytes(removed),
            reserved: of_bytes(claimed),
        };
        count_in(charge.owners.dquots(), h, change)
    }

    /// Counts the inode itself, which was reserved ([`InodeQuota::reserve_inode`]).
    ///
    /// # Errors
    /// A stopped journal.
    pub(crate) fn begin(&self, h: &mut Handle) -> Result<()> {
        let mut charge = self.lock();
        charge.counted = true;
        let change = UsageChange {
            added: ONE_INODE,
            reserved: ONE_INODE,
            ..UsageChange::default()
        };
        count_in(charge.owners.dquots(), h, change)
    }

    /// The inode is free: what it had is counted no more.
    ///
    /// # Errors
    /// A stopped journal.
    pub(crate) fn end(&self, h: &mut Handle) -> Result<()> {
        self.set_bytes(h, 0)?;
        let mut charge = self.lock();
        if !std::mem::take(&mut charge.counted) {
            return Ok(());
        }
        let change = UsageChange {
            removed: ONE_INODE,
            ..UsageChange::default()
        };
        count_in(charge.owners.dquots(), h, change)
    }

    /// Counts `more` values of attributes in inodes of their own, or `less`.
    ///
    /// # Errors
    /// A stopped journal.
    pub(crate) fn count_values(&self, h: &mut Handle, more: u64, less: u64) -> Result<()> {
        let inodes = |inodes| QuotaUsage { bytes: 0, inodes };
        let change = UsageChange {
            added: inodes(more),
            removed: inodes(less),
            ..UsageChange::default()
        };
        let mut charge = self.lock();
        charge.values = charge.values.saturating_add(more).saturating_sub(less);
        count_in(charge.owners.dquots(), h, change)
    }

    /// Reserves the inode itself and `values` of its attributes in those of `owners` that it does
    /// not count for yet, with all of its bytes, unless a limit is in the way. `None` if it is;
    /// otherwise it is given back when the result is dropped: by then it is counted.
    pub(crate) fn reserve_moved(
        &self,
        owners: &Owners,
        values: u64,
        exempt: bool,
    ) -> Option<MovedUsage> {
        let mut charge = self.lock();
        charge.values = values;
        let amount = charge.moved();
        let new: Vec<_> = owners.beside(&charge.owners).cloned().collect();
        let fits = reserve_in(new.iter(), amount, exempt);
        fits.then(|| MovedUsage { new, amount })
    }

    /// Reserves a new inode in all of its dquots.
    pub(crate) fn reserve_inode(&self, exempt: bool) -> bool {
        reserve_in(self.lock().owners.dquots(), ONE_INODE, exempt)
    }

    /// Gives a new inode back, unless it was counted.
    pub(crate) fn give_back_inode(&self) {
        let charge = self.lock();
        for dquot in charge.owners.dquots().filter(|_| !charge.counted) {
            dquot.give_back(ONE_INODE);
        }
    }

    /// Moves all that is counted to `owners`.
    ///
    /// # Errors
    /// A stopped journal.
    pub(crate) fn move_to(&self, h: &mut Handle, owners: Owners) -> Result<()> {
        let mut charge = self.lock();
        let (amount, reserved) = (charge.moved(), of_bytes(charge.reserved));
        let counted = QuotaUsage {
            bytes: charge.bytes,
            ..amount
        };
        for dquot in charge.owners.beside(&owners) {
            dquot.give_back(reserved);
            let change = UsageChange {
                removed: counted,
                ..UsageChange::default()
            };
            dquot.count(h, change, now())?;
        }
        for dquot in owners.beside(&charge.owners) {
            dquot.reserve_moved(reserved);
            let change = UsageChange {
                added: counted,
                ..UsageChange::default()
            };
            dquot.count(h, change, now())?;
        }
        charge.owners = owners;
        Ok(())
    }
}

/// Usage that is reserved for new owners until it is moved to them.
#[must_use = "it lasts until the owner has changed"]
pub(crate) struct MovedUsage {
    new: Vec<Arc<Dquot>>,
    amount: QuotaUsage,
}

impl Drop for MovedUsage {
    fn drop(&mut self) {
        for dquot in &self.new {
            dquot.give_back(self.amount);
        }
    }
}

impl Charge {
    /// Usage that another owner takes over, reserved bytes included.
    fn moved(&self) -> QuotaUsage {
        QuotaUsage {
            bytes: self.bytes.saturating_add(self.reserved),
            inodes: u64::from(self.counted) + self.values,
        }
    }

    fn give_back(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.reserved, "{bytes} of {}", self.reserved);
        let bytes = bytes.min(self.reserved);
        self.reserved -= bytes;
        for dquot in self.owners.dquots() {
            dquot.give_back(of_bytes(bytes));
        }
    }
}

const ONE_INODE: QuotaUsage = QuotaUsage {
    bytes: 0,
    inodes: 1,
};

fn of_bytes(bytes: u64) -> QuotaUsage {
    QuotaUsage { bytes, inodes: 0 }
}

/// Reserves `amount` in all of `dquots`, or in none.
fn reserve_in<'a>(
    dquots: impl Iterator<Item = &'a Arc<Dquot>>,
    amount: QuotaUsage,
    exempt: bool,
) -> bool {
    let now = now();
    let mut taken = Vec::new();
    for dquot in dquots {
        if !dquot.reserve(amount, exempt, now) {
            for dquot in taken {
                Dquot::give_back(dquot, amount);
            }
            return false;
        }
        taken.push(dquot);
    }
    true
}

fn count_in<'a>(
    dquots: impl Iterator<Item = &'a Arc<Dquot>>,
    h: &mut Handle,
    change: UsageChange,
) -> Result<()> {
    let now = now();
    let mut result = Ok(());
    for dquot in dquots {
        result = result.and(dquot.count(h, change, now));
    }
    result
}
