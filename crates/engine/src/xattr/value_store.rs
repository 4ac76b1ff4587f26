//! Inodes that hold values of attributes (feature `ea_inode`): made, shared, counted.
//!
//! A value that fits neither the inode nor the attribute block of its owner is the content of an
//! inode without a name, whose bytes go through the journal. Attributes with equal values share
//! one: it counts the entries, in inodes and in attribute blocks, that refer to it. An attribute
//! block is one copy of its entries, whatever number of inodes share the block. With the last
//! entry the inode becomes an orphan, under the same handle, loses the flag of such inodes, and is
//! evicted as any other.
//!
//! An index by hash remembers inodes that were made or read, so that an equal value finds its
//! inode. [`super::value_inode`] reads values; [`super::attr_store`] decides which go here.
//!
//! # Invariants
//! - The count and the links change together under the inode's core lock: an inode without a link
//!   has no count, and is never counted again.
//! - An inode that a thread counts is in memory ([`CountedValue`]) and so is not evicted.
//!
//! # Locks
//! The owner's `xattr_lock` is held, and no stripe of a shared block while a value is made.
//!
//! # Credits
//! [`credits::value`] to make one,
//! [`credits::VALUE_REFERENCE`] for each that is counted.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use extant_disk::damage::AttributeDamage;
use extant_disk::features::Incompat;
use extant_disk::xattr::{ValueRef, XattrError, XattrName, XattrSet};
use extant_jbd2::Handle;
use extant_units::{Ino, Lblk, at_most_u32, exact_u32};

use super::value_inode;
use crate::inode::{self, HeldRecord, InodeCore, InodeFlags};
use crate::state::alloc::InodeRequest;
use crate::state::inode::{Inode, InodeRef};
use crate::state::map::{AllocateMode, MapState};
use crate::state::volume::CheckKind;
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::{Fs, credits};
use crate::{alloc, map, orphan};

/// The permissions of such an inode, as in Linux.
const PERMISSIONS: u16 = 0o600;

/// An inode that holds a value, with its record in memory: counting it reads nothing.
pub(super) struct CountedValue {
    inode: InodeRef,
    record: HeldRecord,
}

/// Returns whether values may be in inodes of their own.
pub(super) fn is_enabled(fs: &Fs) -> bool {
    fs.layout.features.has_incompat(Incompat::EA_INODE)
}

impl CountedValue {
    /// The inode that `at`, an entry of `owner`, refers to.
    ///
    /// # Errors
    /// Damage: it holds no value; a failed read.
    pub(super) fn hold(fs: &Fs, owner: &Inode, at: &ValueRef) -> Result<Self> {
        let held = || {
            let inode = fs.iget_value(Ino::new(at.inode).ok_or(Error::Stale)?)?;
            Self::of(fs, inode)
        };
        held()
            .map_err(|error| match error {
                Error::Stale => {
                    let (offset, inode) = (0, at.inode);
                    let damage = XattrError::ValueInode { offset, inode };
                    Error::corrupt(Location::Inode(owner.ino), damage)
                }
                other => other,
            })
            .inspect_err(|error| fs.fault.report(fs, error))
    }

    /// `inode`; [`Error::Stale`] if it holds no value.
    fn of(fs: &Fs, inode: InodeRef) -> Result<Self> {
        if inode.kind != FileKind::Regular || !inode.holds_value() || inode.is_unlinked() {
            return Err(Error::Stale);
        }
        let record = inode.hold_record(fs)?;
        Ok(Self { inode, record })
    }

    /// Its number.
    fn number(&self) -> u32 {
        self.inode.ino.get()
    }

    /// Returns whether the blocks of the value are counted by the owner of each attribute as well.
    /// Values that Lustre made are not.
    pub(super) fn is_counted(&self, fs: &Fs) -> bool {
        !self
            .inode
            .core
            .read()
            .is_value_of_lustre(fs.layout.inodes_count())
    }

    /// Counts one more entry. False if the last one went meanwhile.
    pub(super) fn add_reference(&self, fs: &Fs, h: &mut Handle) -> Result<bool> {
        self.inode.update_held(fs, h, &self.record, |core| {
            // The largest count stays, as it may be too low.
            let users = core.value_users().max(1).saturating_add(1);
            if core.links != 0 {
                core.set_value_users(users);
            }
            core.links != 0
        })
    }

    /// Counts one more entry of a value that another one has.
    ///
    /// # Errors
    /// Damage: the count was too low, and the last of them is gone; a stopped journal.
    fn add_known(&self, fs: &Fs, h: &mut Handle) -> Result<()> {
        if self.add_reference(fs, h)? {
            return Ok(());
        }
        let damage = AttributeDamage::ValueReferences {
            stored: 0,
            users: 1,
        };
        let error = Error::corrupt(Location::Inode(self.inode.ino), damage);
        fs.fault.report(fs, &error);
        Err(error)
    }

    /// Counts one entry less. With the last one the inode becomes an orphan.
    pub(super) fn drop_reference(&self, fs: &Fs, h: &mut Handle) -> Result<()> {
        let hash = self.inode.update_held(fs, h, &self.record, |core| {
            let users = match core.value_users() {
                // One of Lustre has one user, another may have any number: it stays.
                0 if !core.is_value_of_lustre(fs.layout.inodes_count()) => return None,
                u64::MAX => return None,
                users => users.saturating_sub(1),
            };
            core.set_value_users(users);
            if users != 0 {
                return None;
            }
            core.links = 0;
            // Linux 6.18 drops an orphan with the flag from its list and leaves it allocated; one
            // without the flag is a file to it.
            core.flags.remove(InodeFlags::EA_INODE);
            Some(core.value_hash())
        })?;
        let Some(hash) = hash else { return Ok(()) };
        fs.xattr_blocks.values.lock().forget(hash, self.inode.ino);
        orphan::add(fs, h, &self.inode)
    }
}

/// The inodes of values whose counts a change of attributes may change, all of them in memory.
pub(super) struct CountedValues {
    held: BTreeMap<u32, CountedValue>,
    /// The one that was counted for the new entry before that is stored.
    acquired: Option<u32>,
}

/// Credits to count `references` values, and to make one of `len` bytes, if that is not zero.
pub(super) fn credits(fs: &Fs, references: usize, len: usize) -> u32 {
    let made = match len {
        0 => 0,
        _ => credits::sum([credits::value(fs, len), credits::VALUE_REFERENCE]),
    };
    let references = at_most_u32(references as u64);
    credits::sum([references.saturating_mul(credits::VALUE_REFERENCE), made])
}

impl CountedValues {
    /// Those that `entries` of `owner` refer to.
    ///
    /// # Errors
    /// Damage: an entry refers to no value; a failed read.
    pub(super) fn hold<'a>(
        fs: &Fs,
        owner: &Inode,
        entries: impl IntoIterator<Item = &'a ValueRef>,
    ) -> Result<Self> {
        let mut held = BTreeMap::new();
        for at in entries {
            if let Entry::Vacant(vacant) = held.entry(at.inode) {
                vacant.insert(CountedValue::hold(fs, owner, at)?);
            }
        }
        let acquired = None;
        Ok(Self { held, acquired })
    }

    /// Credits to count them, and to make one of `len` bytes, if that is not zero.
    pub(super) fn credits(&self, fs: &Fs, len: usize) -> u32 {
        credits(fs, self.held.len(), len)
    }

    /// Finds or makes the inode of the value `new` of `owner`, and counts it until
    /// [`CountedValues::let_go`].
    ///
    /// # Errors
    /// As [`acquire`].
    pub(super) fn acquire(
        &mut self,
        fs: &Fs,
        h: &mut Handle,
        owner: &Inode,
        new: NewValue<'_>,
    ) -> Result<ValueRef> {
        debug_assert!(self.acquired.is_none(), "a change has one new value");
        let (value, at) = acquire(fs, h, owner, new)?;
        self.held.entry(at.inode).or_insert(value);
        self.acquired = Some(at.inode);
        Ok(at)
    }

    /// Drops what [`CountedValues::acquire`] counted.
    ///
    /// # Errors
    /// A stopped journal.
    pub(super) fn let_go(&self, fs: &Fs, h: &mut Handle) -> Result<()> {
        match self.acquired.and_then(|ino| self.held.get(&ino)) {
            Some(value) => value.drop_reference(fs, h),
            None => Ok(()),
        }
    }

    fn of(&self, at: &ValueRef) -> Option<&CountedValue> {
        let value = self.held.get(&at.inode);
        debug_assert!(value.is_some(), "all that change are held");
        value
    }

    /// Returns whether the owner of `at` counts the blocks of its value.
    pub(super) fn is_counted(&self, fs: &Fs, at: &ValueRef) -> bool {
        self.of(at).is_none_or(|value| value.is_counted(fs))
    }

    /// Counts the entries of a block that was made.
    ///
    /// # Errors
    /// A stopped journal.
    pub(super) fn add_all(&self, fs: &Fs, h: &mut Handle, block: &XattrSet) -> Result<()> {
        for value in block.elsewhere().filter_map(|at| self.of(at)) {
            value.add_known(fs, h)?;
        }
        Ok(())
    }

    /// Drops the entries of a block that was freed.
    ///
    /// # Errors
    /// A stopped journal.
    pub(super) fn drop_all(&self, fs: &Fs, h: &mut Handle, block: &XattrSet) -> Result<()> {
        for value in block.elsewhere().filter_map(|at| self.of(at)) {
            value.drop_reference(fs, h)?;
        }
        Ok(())
    }

    /// Counts an entry that became `new` and was `old`.
    ///
    /// # Errors
    /// A stopped journal.
    pub(super) fn exchange(
        &self,
        fs: &Fs,
        h: &mut Handle,
        old: Option<ValueRef>,
        new: Option<ValueRef>,
    ) -> Result<()> {
        if old == new {
            return Ok(());
        }
        if let Some(value) = new.and_then(|at| self.of(&at)) {
            value.add_known(fs, h)?;
        }
        match old.and_then(|at| self.of(&at)) {
            Some(value) => value.drop_reference(fs, h),
            None => Ok(()),
        }
    }
}

/// The new value of an attribute.
#[derive(Clone, Copy)]
pub(super) struct NewValue<'a> {
    pub(super) name: &'a XattrName<'a>,
    pub(super) bytes: &'a [u8],
    /// Its blocks may come from root's reserve.
    pub(super) privileged: bool,
}

/// Finds or makes an inode with the value `new` of `owner`, and counts one more entry on it.
///
/// # Errors
/// [`Error::NoSpace`], after which the inode that was made is an orphan; damage; a stopped journal.
fn acquire(
    fs: &Fs,
    h: &mut Handle,
    owner: &Inode,
    new: NewValue<'_>,
) -> Result<(CountedValue, ValueRef)> {
    let hash = fs.layout.value_seed.feed(new.bytes).raw();
    let held = match share(fs, h, new.bytes, hash)? {
        Some(shared) => shared,
        None => make(fs, h, owner, new, hash)?,
    };
    let size = exact_u32(new.bytes.len() as u64);
    let at = ValueRef::new(new.name, held.number(), size, hash);
    Ok((held, at))
}

/// Finds an inode with `value` and counts one more entry on it.
fn share(fs: &Fs, h: &mut Handle, value: &[u8], hash: u32) -> Result<Option<CountedValue>> {
    let candidates = fs.xattr_blocks.values.lock().candidates(hash);
    for ino in candidates {
        let held = fs
            .iget_value(ino)
            .and_then(|inode| CountedValue::of(fs, inode));
        let Ok(held) = held else {
            // Freed, and perhaps in use for something else.
            fs.xattr_blocks.values.lock().forget(hash, ino);
            continue;
        };
        let same = value_inode::content(fs, &held.inode, value.len()).is_ok_and(|old| old == value);
        if same && held.add_reference(fs, h)? {
            fs.stats.xattr_values_shared.bump();
            return Ok(Some(held));
        }
    }
    Ok(None)
}

/// Makes an inode with the value `new` of `owner`, which one entry has.
fn make(
    fs: &Fs,
    h: &mut Handle,
    owner: &Inode,
    new: NewValue<'_>,
    hash: u32,
) -> Result<CountedValue> {
    let request = InodeRequest {
        parent: owner.ino,
        directory: false,
        top_level: false,
    };
    let (ino, generation) = alloc::allocate_inode(fs, h, &request)?;
    let core = blank(fs, owner, generation, new.bytes.len(), hash);
    let inode = fs
        .inodes
        .insert_new(fs, ino, FileKind::Regular, (core, None))?;
    let stored = inode.store_new(fs, h).and_then(|()| inode.hold_record(fs));
    let record = match stored {
        Ok(record) => record,
        Err(error) => {
            inode.begin_deletion();
            fs.inodes.forget(&inode);
            alloc::free_inode(fs, h, ino, false)?;
            return Err(error);
        }
    };
    let held = CountedValue { inode, record };
    let filled = fill(fs, h, &held.inode, new.bytes, new.privileged);
    alloc::release_window(fs, ino);
    if let Err(error) = filled {
        held.drop_reference(fs, h)?;
        return Err(error);
    }
    fs.xattr_blocks.values.lock().add(hash, ino);
    Ok(held)
}

/// The inode of a value of `len` bytes, without its blocks.
fn blank(fs: &Fs, owner: &Inode, generation: u32, len: usize, hash: u32) -> InodeCore {
    let mut core = InodeCore::blank(&inode::format(&fs.layout), fs.layout.want_extra_isize);
    core.generation = generation;
    core.links = 1;
    (core.uid, core.gid) = {
        let owner = owner.core.read();
        (owner.uid, owner.gid)
    };
    core.mode = FileKind::Regular.mode_bits() | PERMISSIONS;
    core.flags = InodeFlags::EA_INODE;
    if fs.layout.features.has_incompat(Incompat::EXTENTS) {
        core.flags |= InodeFlags::EXTENTS;
        core.i_block = map::empty_root();
    }
    core.disk_size = len as u64;
    core.mtime = inode::now().clamped(core.has_wide_times());
    core.crtime = core.crtime.map(|_| core.mtime);
    core.set_value_users(1);
    core.set_value_hash(hash);
    core
}

/// Writes `value` into the new inode's blocks.
fn fill(fs: &Fs, h: &mut Handle, inode: &Inode, value: &[u8], privileged: bool) -> Result<()> {
    let how = AllocateMode {
        metadata: true,
        privileged,
        ..AllocateMode::default()
    };
    let key = CheckKind::XattrValue.of_inode(inode.ino);
    let block_size = fs.layout.block_size.bytes();
    let mut pieces = value.chunks(block_size);
    let mut lblk = Lblk::ZERO;
    while pieces.len() > 0 {
        let left = exact_u32(pieces.len() as u64);
        let mapping = map::allocate(fs, h, inode, lblk, left, how)?;
        let MapState::Written(first) = mapping.state else {
            return Err(Error::NoSpace);
        };
        debug_assert!(
            (1..=left).contains(&mapping.len),
            "blocks that were asked for"
        );
        for (at, piece) in (0..mapping.len).zip(pieces.by_ref()) {
            let block = h.create(first.plus(at.into()), key)?;
            h.modify(&block, |bytes| {
                if let Some(to) = bytes.get_mut(..piece.len()) {
                    to.copy_from_slice(piece);
                }
            })?;
        }
        lblk = lblk.plus(mapping.len);
    }
    Ok(())
}
