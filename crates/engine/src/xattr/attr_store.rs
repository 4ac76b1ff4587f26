//! The storage of attributes in the inode and its block.
//!
//! [`get_stored`], [`exists`], [`set_stored`], [`set_data`], [`longest_data`] and [`release`]
//! take the inode's `xattr_lock`; the others take its guard.

use extant_disk::inline_data::REST;
use extant_disk::xattr::{Entries, Fit, ValueRef, XattrName, XattrSet, area_entries};
use extant_jbd2::Handle;
use extant_units::Pblk;

use super::attr_tables::{AttrTables, with_area, with_block};
use super::locked_attrs::{ExclusiveAttrs, LockedAttrs, SharedAttrs};
use super::shared_blocks::{BlockChange, Dropped};
use super::value_store::{CountedValue, CountedValues, NewValue};
use super::{shared_blocks, value_inode, value_store};
use crate::alloc;
use crate::inode;
use crate::inode::InodeCore;
use crate::state::inode::Inode;
use crate::state::quota::SpaceClaim;
use crate::types::Cred;
use crate::types::error::{Error, Result};
use crate::volume::{Fs, all_or_abort, credits, stop};

/// Looks for an attribute and hands its value to `f`.
pub(super) fn find<G, R>(
    fs: &Fs,
    attrs: &LockedAttrs<'_, G>,
    name: &XattrName<'_>,
    f: impl Fn(&[u8]) -> R,
) -> Result<Option<R>> {
    let look = |entries: Entries<'_>| {
        let found = entries.find(name)?;
        Ok(found.map(|entry| match entry.elsewhere {
            None => Ok(f(entry.value)),
            Some(elsewhere) => Err(elsewhere),
        }))
    };
    let inside = with_area(fs, attrs, look)?;
    let found = match inside {
        Some(found) => Some(found),
        None => with_block(fs, attrs, look)?.flatten(),
    };
    match found {
        Some(Err(at)) => {
            let value = value_inode::read(fs, attrs.inode(), name, &at)?;
            Ok(Some(f(&value)))
        }
        Some(Ok(found)) => Ok(Some(found)),
        None => Ok(None),
    }
}

/// Calls `f` with every name, those in the inode first.
pub(super) fn for_each<G>(
    fs: &Fs,
    attrs: &LockedAttrs<'_, G>,
    mut f: impl FnMut(&XattrName<'_>),
) -> Result<()> {
    let mut walk = |entries: Entries<'_>| {
        for entry in entries {
            f(&entry?.name);
        }
        Ok(())
    };
    with_area(fs, attrs, &mut walk)?;
    with_block(fs, attrs, &mut walk)?;
    Ok(())
}

/// Sets (or with `None` removes) an attribute in its stored form, taking `xattr_lock`: for callers
/// with a handle of their own that have made all checks. `cred` decides whether root's reserve may
/// be used.
///
/// # Errors
/// [`Error::NoSpace`] for a value that fits nowhere or if no block is left; damage; a stopped
/// journal.
pub(crate) fn set_stored(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    name: &XattrName<'_>,
    value: Option<&[u8]>,
    cred: &Cred,
) -> Result<()> {
    all_or_abort(h, |h| {
        set(fs, h, &ExclusiveAttrs::lock(inode), name, value, cred)
    })
}

/// Sets (or with `None` removes) the attribute of data inside of the inode, which is never in a
/// block, and changes the inode with `change`, as one step
/// ([`crate::volume::credits::INODE_UPDATE`]). Takes `xattr_lock`. Returns false, with nothing
/// changed, if the inode has no room for it.
///
/// # Errors
/// Damage; a stopped journal.
pub(crate) fn set_data(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    value: Option<&[u8]>,
    change: impl FnOnce(&mut InodeCore),
) -> Result<bool> {
    let attrs = ExclusiveAttrs::lock(inode);
    let mut area = with_area(fs, &attrs, XattrSet::read_with_references)?;
    match value {
        Some(value) => area.set(&REST, value),
        None => {
            area.remove(&REST);
        }
    }
    let mut bytes = vec![0; inode.core.read().xattrs.len()];
    if area.write_area(&mut bytes) == Fit::TooLarge {
        return Ok(false);
    }
    inode.update(fs, h, |core| {
        debug_assert_eq!(core.xattrs.len(), bytes.len(), "the attributes are locked");
        core.xattrs.copy_from_slice(&bytes);
        change(core);
    })?;
    // Bytes may have changed where no size did.
    inode.note_change(h);
    Ok(true)
}

/// The length of the longest value that the attribute of data inside of the inode may have; `None`
/// if there is no room for it. Takes `xattr_lock`.
///
/// # Errors
/// Damage.
pub(crate) fn longest_data(fs: &Fs, inode: &Inode) -> Result<Option<usize>> {
    let area = with_area(
        fs,
        &SharedAttrs::lock(inode),
        XattrSet::read_with_references,
    )?;
    Ok(area.longest_in_area(&REST, inode.core.read().xattrs.len()))
}

/// Sets (or with `None` removes) an attribute. Removing one that does not exist updates the change
/// time only.
///
/// # Errors
/// As [`set_stored`].
pub(super) fn set(
    fs: &Fs,
    h: &mut Handle,
    attrs: &ExclusiveAttrs<'_>,
    name: &XattrName<'_>,
    value: Option<&[u8]>,
    cred: &Cred,
) -> Result<()> {
    let inode = attrs.inode();
    let area_len = inode.core.read().xattrs.len();
    let old = AttrTables::read(fs, attrs)?;
    let mut new = old.clone();
    let mut elsewhere = None;
    match value {
        None => new.remove(name),
        Some(value) => {
            if new.set(fs, name, value, area_len) == Fit::TooLarge {
                // The number and the hash come later: the entry has the same size.
                let at = ValueRef::new(name, u32::MAX, 0, 0);
                let can = value_store::is_enabled(fs) && !value.is_empty();
                if !can || new.refer(fs, name, at, area_len) == Fit::TooLarge {
                    return Err(Error::NoSpace);
                }
                elsewhere = Some(value);
            }
        }
    }
    // Its own, and all of a block that changes, which may be copied.
    let in_block = (old.block != new.block).then(|| old.block.elsewhere());
    let in_area = (old.area != new.area).then(|| old.area.reference(name));
    let entries = in_block.into_iter().flatten().chain(in_area.flatten());
    let mut values = CountedValues::hold(fs, inode, entries)?;
    let needed = values.credits(fs, elsewhere.map_or(0, <[u8]>::len));
    debug_assert!(
        needed == 0 || h.credits_left() >= needed,
        "the caller has counted the values: {needed} credits, {} left",
        h.credits_left()
    );
    if needed > h.credits_left() {
        return Err(Error::NoSpace);
    }
    if value.is_some() && new != old {
        fs.super_block.note_attributes(fs, h)?;
    }
    if let Some(value) = elsewhere {
        let wanted = NewValue {
            name,
            bytes: value,
            privileged: alloc::may_use_reserve(fs, cred),
        };
        let at = values.acquire(fs, h, inode, wanted)?;
        let fit = new.refer(fs, name, at, area_len);
        debug_assert_eq!(fit, Fit::Fits, "an entry has the size of another one");
    }
    let change = TablesChange {
        name,
        old: &old,
        new: &new,
        values: &values,
        cred,
    };
    let stored = change.store(fs, h, attrs);
    match &stored {
        // Every entry was counted where it was stored.
        Ok(()) => values.let_go(fs, h)?,
        Err(error) if error.is_lack_of_room() => values.let_go(fs, h)?,
        Err(_) => {}
    }
    stored
}

/// A change of one attribute.
struct TablesChange<'a> {
    name: &'a XattrName<'a>,
    old: &'a AttrTables,
    new: &'a AttrTables,
    values: &'a CountedValues,
    cred: &'a Cred,
}

impl TablesChange<'_> {
    /// Stores the tables that differ, and the inode's counts.
    fn store(&self, fs: &Fs, h: &mut Handle, attrs: &ExclusiveAttrs<'_>) -> Result<()> {
        let (inode, old, new) = (attrs.inode(), self.old, self.new);
        if new == old {
            // The same value again: Linux updates the change time all the same.
            return inode.update(fs, h, |core| inode::changed(core, inode::now()));
        }
        let mut bytes = vec![0; inode.core.read().xattrs.len()];
        if new.area != old.area && new.area.write_area(&mut bytes) == Fit::TooLarge {
            return Err(Error::NoSpace);
        }
        let record = inode.hold_record(fs)?;
        let file_acl = inode.core.read().file_acl;
        let (old_at, new_at) = (old.reference(self.name), new.reference(self.name));
        let (less, more) = match old_at == new_at {
            true => (0, 0),
            false => {
                let counted = old_at.filter(|at| self.values.is_counted(fs, at));
                (sectors(fs, counted), sectors(fs, new_at))
            }
        };
        let _claim = self.claim_space(fs, inode, file_acl, more)?;
        let new_acl = match new.block == old.block {
            true => file_acl,
            false => {
                let change = BlockChange {
                    name: self.name,
                    old: &old.block,
                    new: &new.block,
                    values: self.values,
                    cred: self.cred,
                };
                shared_blocks::replace(fs, h, attrs, file_acl, &change)?
            }
        };
        let in_area = |tables: &AttrTables| tables.area.reference(self.name).copied();
        self.values.exchange(fs, h, in_area(old), in_area(new))?;
        let per_block = fs.layout.cluster_sectors();
        inode.update_held(fs, h, &record, |core| {
            if new.area != old.area {
                debug_assert_eq!(core.xattrs.len(), bytes.len(), "the attributes are locked");
                core.xattrs.copy_from_slice(&bytes);
            }
            // Saturates, as the count of a damaged inode may be anything.
            match (core.file_acl.get() != 0, new_acl.get() != 0) {
                (false, true) => core.sectors = core.sectors.saturating_add(per_block),
                (true, false) => core.sectors = core.sectors.saturating_sub(per_block),
                _ => {}
            }
            core.sectors = core.sectors.saturating_add(more).saturating_sub(less);
            core.file_acl = new_acl;
            inode::changed(core, inode::now());
        })?;
        count_values(h, inode, new.count_elsewhere(), old.count_elsewhere())
    }

    /// Claims what the inode gains from its quotas: `sectors` of a value, and a block of attributes
    /// where there is none (`file_acl`).
    fn claim_space(
        &self,
        fs: &Fs,
        inode: &Inode,
        file_acl: Pblk,
        sectors: u64,
    ) -> Result<SpaceClaim> {
        let makes_block = file_acl.get() == 0 && !self.new.block.is_empty();
        let block = if makes_block {
            fs.layout.cluster_bytes()
        } else {
            0
        };
        let privileged = alloc::may_use_reserve(fs, self.cred);
        SpaceClaim::take(inode.quota.as_ref(), sectors * 512 + block, privileged)
    }
}

/// Counts in the quotas of `inode` that `more` of its attributes have their values in inodes of
/// their own, and `less` have them there no more.
fn count_values(h: &mut Handle, inode: &Inode, more: usize, less: usize) -> Result<()> {
    match &inode.quota {
        Some(quota) if more != less => {
            let counted = quota.count_values(h, more as u64, less as u64);
            counted.inspect_err(|error| stop(h, error))
        }
        _ => Ok(()),
    }
}

/// The number of attributes of `inode` with values in inodes of their own. Takes `xattr_lock`.
///
/// # Errors
/// Damage; a failed read.
pub(crate) fn count_values_of(fs: &Fs, inode: &Inode) -> Result<u64> {
    match value_store::is_enabled(fs) {
        true => Ok(AttrTables::read(fs, &SharedAttrs::lock(inode))?.count_elsewhere() as u64),
        false => Ok(0),
    }
}

/// Sectors that an inode counts for a value in an inode of its own.
fn sectors(fs: &Fs, at: Option<ValueRef>) -> u64 {
    let clusters = at.map_or(0, |at| {
        u64::from(at.size).div_ceil(fs.layout.cluster_bytes())
    });
    clusters * fs.layout.cluster_sectors()
}

/// Credits for changes of one attribute of `inode` to a value of `len` bytes (zero to remove it):
/// [`credits::XATTR`], and with `ea_inode` what the values in inodes of their own need. Called with
/// the inode's `lock` held and before the handle is started.
///
/// # Errors
/// [`Error::NoSpace`] if no transaction has as many; damage; a failed read.
pub(crate) fn credits(fs: &Fs, inode: &Inode, len: usize) -> Result<u32> {
    if !value_store::is_enabled(fs) {
        return Ok(credits::XATTR);
    }
    let tables = AttrTables::read(fs, &SharedAttrs::lock(inode))?;
    let needed = credits::sum([
        credits::XATTR,
        value_store::credits(fs, tables.count_elsewhere(), len),
    ]);
    if needed.saturating_add(credits::XATTR) > fs.journal.max_credits() {
        return Err(Error::NoSpace);
    }
    Ok(needed)
}

/// Returns whether an attribute in the inode has its value in an inode of its own, or the table is
/// damaged.
pub(crate) fn has_values_elsewhere(fs: &Fs, inode: &Inode) -> bool {
    if !value_store::is_enabled(fs) {
        return false;
    }
    let core = inode.core.read();
    area_entries(&core.xattrs).map_or(true, |mut entries| {
        entries.any(|entry| entry.map_or(true, |entry| entry.elsewhere.is_some()))
    })
}

/// The stored value of an attribute, if there is one.
///
/// # Errors
/// Damage; a failed read.
pub(crate) fn get_stored(fs: &Fs, inode: &Inode, name: &XattrName<'_>) -> Result<Option<Vec<u8>>> {
    find(fs, &SharedAttrs::lock(inode), name, <[u8]>::to_vec)
}

/// Returns whether an attribute is there.
///
/// # Errors
/// Damage; a failed read.
pub(crate) fn exists(fs: &Fs, inode: &Inode, name: &XattrName<'_>) -> Result<bool> {
    is_there(fs, &SharedAttrs::lock(inode), name)
}

/// Returns whether an attribute is there. Its value may be elsewhere and damaged.
///
/// # Errors
/// Damage; a failed read.
pub(super) fn is_there<G>(
    fs: &Fs,
    attrs: &LockedAttrs<'_, G>,
    name: &XattrName<'_>,
) -> Result<bool> {
    let look = |entries: Entries<'_>| Ok(entries.find(name)?.is_some());
    Ok(with_area(fs, attrs, look)? || with_block(fs, attrs, look)?.unwrap_or(false))
}

/// Releases the inode's attribute block and the values of attributes in inodes of their own, for
/// its eviction. Leaves `last` credits. May restart the handle between values: the inode is an
/// orphan, and has the attributes that are left.
///
/// # Errors
/// Damage; a stopped journal.
pub(crate) fn release(fs: &Fs, h: &mut Handle, inode: &Inode, last: u32) -> Result<()> {
    loop {
        let keeps = release_values(fs, h, inode, last)? == Values::Kept;
        let attrs = ExclusiveAttrs::lock(inode);
        // Values in a block that others have as well: they stay, and this inode counts them no
        // more.
        let shared = match value_store::is_enabled(fs) && !keeps {
            true => AttrTables::read(fs, &attrs)?.block.elsewhere().count(),
            false => 0,
        };
        let pblk = inode.core.read().file_acl;
        if pblk.get() == 0 {
            return Ok(());
        }
        let per_block = fs.layout.cluster_sectors();
        let record = inode.hold_record(fs)?;
        let released = all_or_abort(h, |h| {
            match shared_blocks::release(fs, h, &attrs, pblk, keeps)? {
                Dropped::HasValues => return Ok(false),
                Dropped::Shared => count_values(h, inode, 0, shared)?,
                Dropped::Freed => {}
            }
            inode.update_held(fs, h, &record, |core| {
                core.file_acl = Pblk::ZERO;
                core.sectors = core.sectors.saturating_sub(per_block);
            })?;
            Ok(true)
        })?;
        // Else another inode gave up the block meanwhile, and its values are this one's now.
        if released {
            return Ok(());
        }
    }
}

/// The values of an inode that is evicted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    /// Their references are dropped, but for those in a block that another inode shares.
    Dropped,
    /// A damaged table keeps them: they stay counted, which e2fsck finds.
    Kept,
}

/// Removes the attributes with values in inodes of their own.
fn release_values(fs: &Fs, h: &mut Handle, inode: &Inode, last: u32) -> Result<Values> {
    if !value_store::is_enabled(fs) {
        return Ok(Values::Dropped);
    }
    let tables = AttrTables::read(fs, &SharedAttrs::lock(inode));
    let area_len = inode.core.read().xattrs.len();
    // Values that overlap, as on a hostile image, do not fit where they were.
    let fits = |tables: &AttrTables| {
        tables.area.fits_area(area_len) == Fit::Fits
            && tables.block.fits_block(fs.layout.block_size.bytes()) == Fit::Fits
    };
    let tables = match tables {
        Ok(tables) if fits(&tables) => tables,
        Ok(_) | Err(Error::Corrupt { .. }) => return Ok(Values::Kept),
        Err(error) => return Err(error),
    };
    let mut more = tables.count_elsewhere() > 0;
    while more {
        let needed = credits::sum([last, credits::DROP_VALUES]);
        if !h.ensure(needed)? {
            h.restart(needed)?;
        }
        let attrs = ExclusiveAttrs::lock(inode);
        more = all_or_abort(h, |h| release_some(fs, h, &attrs))?;
    }
    Ok(Values::Dropped)
}

/// Removes some of them. Returns whether there were any.
fn release_some(fs: &Fs, h: &mut Handle, attrs: &ExclusiveAttrs<'_>) -> Result<bool> {
    const AT_ONCE: usize = credits::VALUES_AT_ONCE as usize;
    let inode = attrs.inode();
    let record = inode.hold_record(fs)?;
    let mut tables = AttrTables::read(fs, attrs)?;
    let mut taken = tables.area.take_elsewhere(AT_ONCE);
    let in_area = !taken.is_empty();
    if !in_area {
        taken = tables.block.take_elsewhere(AT_ONCE);
    }
    // Held before their entries go: a read that fails leaves all as it was.
    let mut held = Vec::new();
    for at in &taken {
        match CountedValue::hold(fs, inode, at) {
            Ok(value) => held.push(value),
            // What a damaged entry refers to is no value: it was reported.
            Err(Error::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if !in_area {
        let pblk = inode.core.read().file_acl;
        if taken.is_empty() || !shared_blocks::shrink(fs, h, attrs, pblk, &tables.block)? {
            return Ok(false);
        }
    }
    let mut bytes = vec![0; inode.core.read().xattrs.len()];
    let fit = tables.area.write_area(&mut bytes);
    debug_assert_eq!(fit, Fit::Fits, "a part of what was there");
    let less = taken.iter().map(|at| sectors(fs, Some(*at))).sum();
    inode.update_held(fs, h, &record, |core| {
        core.xattrs.copy_from_slice(&bytes);
        core.sectors = core.sectors.saturating_sub(less);
    })?;
    count_values(h, inode, 0, taken.len())?;
    for value in held {
        value.drop_reference(fs, h)?;
    }
    Ok(true)
}
