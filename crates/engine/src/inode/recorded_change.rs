//! Changes of an inode's record, as far as fast commits are concerned: which of them the record in
//! a fast commit tells.
//!
//! Such a record has the fixed fields, and a replay takes them. It has no attributes, does not say
//! where the data is, and makes no inode one of another kind. So the bytes of the record before and
//! after decide: what is not known here to be told is not. Linux's replay counts the blocks of the
//! map anew, and no block of attributes: a file that has one is not told.

use extant_disk::inode::{GOOD_OLD_SIZE, InodeFlags, RawInode};
use extant_jbd2::Handle;
use extant_units::Ino;
use zerocopy::IntoBytes;

use crate::state::volume::OperationRecorder;
use crate::types::FileKind;

/// A change of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecordChange {
    /// The inode has no name, and no replay makes it: what is in its record counts for nothing.
    Gone,
    /// Fields of a regular file.
    Fields,
    /// The same, and the root of its map, whose ranges are noted by the code that changes it.
    Map,
    /// Times of a directory, which change with its entries.
    Entries,
    /// Anything else.
    Other,
}

/// Flags of inodes with more to them than a record and a map.
const SPECIAL: InodeFlags = InodeFlags::INLINE_DATA
    .union(InodeFlags::ENCRYPT)
    .union(InodeFlags::VERITY)
    .union(InodeFlags::EA_INODE)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::CASEFOLD);

impl RecordChange {
    /// The change from the record `before`, `None` for that of a new inode, to `after`.
    pub(super) fn of(before: Option<&[u8]>, after: &[u8]) -> Self {
        let Some(new) = RawInode::of(after) else {
            return Self::Other;
        };
        let kind = FileKind::from_mode(new.mode.get());
        if kind == Some(FileKind::Directory) {
            return match before {
                Some(before) if is_by_entries(before, after) => Self::Entries,
                _ => Self::Other,
            };
        }
        if new.links.get() == 0 {
            return Self::Gone;
        }
        let flags = InodeFlags::from_bits_retain(new.flags.get());
        let plain = kind == Some(FileKind::Regular)
            && flags.contains(InodeFlags::EXTENTS)
            && !flags.intersects(SPECIAL)
            && (new.file_acl_lo.get(), new.file_acl_hi.get()) == (0, 0)
            && new.dtime.get() == 0;
        let Some(rest) = attributes(after).filter(|_| plain) else {
            return Self::Other;
        };
        let Some(before) = before else {
            return match rest.iter().all(|byte| *byte == 0) {
                true => Self::Fields,
                false => Self::Other,
            };
        };
        let Some(old) = RawInode::of(before) else {
            return Self::Other;
        };
        let same = old.links.get() != 0
            && FileKind::from_mode(old.mode.get()) == kind
            && (old.flags, old.generation) == (new.flags, new.generation)
            && (old.file_acl_lo, old.file_acl_hi) == (new.file_acl_lo, new.file_acl_hi)
            && old.dtime == new.dtime
            && attributes(before) == Some(rest);
        match same {
            true if old.block == new.block => Self::Fields,
            true => Self::Map,
            false => Self::Other,
        }
    }

    /// The change to the record `after` of a new inode, where `old` was. A replay keeps what it is
    /// not told: Linux leaves the attributes of a deleted inode in its record, and they would be
    /// the new one's.
    pub(super) fn of_new(old: &[u8], after: &[u8]) -> Self {
        let kept = attributes(after).map_or(0, <[u8]>::len);
        let rest = &old[old.len().saturating_sub(kept)..];
        let has_extents = RawInode::of(old).is_some_and(|old| old.block[2..4] != [0, 0]);
        match rest.iter().all(|byte| *byte == 0) && !has_extents {
            true => Self::of(None, after),
            false => Self::Other,
        }
    }

    /// Notes this change of inode `ino`, made under `h`.
    pub(super) fn note(self, operations: &OperationRecorder, h: &mut Handle, ino: Ino) {
        match self {
            Self::Gone => {}
            Self::Fields => operations.touch(h, ino),
            Self::Map if h.is_told() => operations.touch(h, ino),
            Self::Entries if h.is_told() => {}
            _ => h.set_untold(),
        }
    }
}

/// The bytes of a record behind its fixed fields. The length of these stands at their beginning.
fn attributes(record: &[u8]) -> Option<&[u8]> {
    let Some(extra) = record
        .get(GOOD_OLD_SIZE..)
        .filter(|extra| !extra.is_empty())
    else {
        return Some(&[]);
    };
    let len = u16::from_le_bytes(extra.get(..2)?.try_into().ok()?);
    extra.get(usize::from(len)..)
}

/// Returns whether the records of a directory differ in nothing but its times and version. One that
/// grows or gets an index is not told: Linux's replay would not count its new blocks.
fn is_by_entries(before: &[u8], after: &[u8]) -> bool {
    let (Some(old), Some(new)) = (RawInode::of(before), RawInode::of(after)) else {
        return false;
    };
    let mut expected = *old;
    (expected.mtime, expected.ctime) = (new.mtime, new.ctime);
    expected.atime = new.atime;
    (expected.version_lo, expected.checksum_lo) = (new.version_lo, new.checksum_lo);
    let flags = InodeFlags::from_bits_retain(old.flags.get());
    expected.as_bytes() == new.as_bytes()
        && !flags.intersects(SPECIAL)
        && attributes(before).is_some()
        && attributes(before) == attributes(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGULAR: u16 = 0o100_644;

    fn record(mode: u16, flags: InodeFlags, change: impl FnOnce(&mut RawInode)) -> Vec<u8> {
        let mut raw: RawInode = zerocopy::FromZeros::new_zeroed();
        (raw.mode, raw.links) = (mode.into(), 1.into());
        raw.flags = (flags | InodeFlags::EXTENTS).bits().into();
        change(&mut raw);
        let mut bytes = raw.as_bytes().to_vec();
        bytes.resize(256, 0);
        bytes[128] = 32;
        bytes
    }

    fn file(change: impl FnOnce(&mut RawInode)) -> Vec<u8> {
        record(REGULAR, InodeFlags::empty(), change)
    }

    #[test]
    fn fields_of_a_file_are_told_and_what_else_is_in_its_record_is_not() {
        let plain = file(|_| ());
        let of = |after: &[u8]| RecordChange::of(Some(&plain), after);
        for (told, changed) in [
            (RecordChange::Fields, file(|raw| raw.size_lo = 7.into())),
            (RecordChange::Fields, file(|raw| raw.links = 2.into())),
            (
                RecordChange::Fields,
                file(|raw| raw.mode = 0o100_600.into()),
            ),
            (RecordChange::Map, file(|raw| raw.block[9] = 1)),
            (RecordChange::Gone, file(|raw| raw.links = 0.into())),
            (RecordChange::Other, file(|raw| raw.generation = 1.into())),
            (RecordChange::Other, file(|raw| raw.file_acl_lo = 1.into())),
            (RecordChange::Other, file(|raw| raw.file_acl_hi = 1.into())),
            (RecordChange::Other, file(|raw| raw.dtime = 1.into())),
            (RecordChange::Other, file(|raw| raw.mode = 0o120_777.into())),
            (
                RecordChange::Other,
                record(REGULAR, InodeFlags::NOATIME, |_| ()),
            ),
        ] {
            assert_eq!(of(&changed), told, "{changed:?}");
        }
        let mut more = plain.clone();
        more[140] = 1;
        assert_eq!(of(&more), RecordChange::Fields, "a time");
        more[160] = 1;
        assert_eq!(of(&more), RecordChange::Other, "an attribute");
        let mut longer = plain.clone();
        longer[128] = 28;
        assert_eq!(of(&longer), RecordChange::Other);
        let unlinked = file(|raw| raw.links = 0.into());
        let named = RecordChange::of(Some(&unlinked), &plain);
        assert_eq!(named, RecordChange::Other, "a name for one without");
        for special in SPECIAL.iter() {
            let record = record(REGULAR, special, |_| ());
            let same = RecordChange::of(Some(&record), &record);
            assert_eq!(same, RecordChange::Other, "{special:?}");
        }
    }

    #[test]
    fn a_new_file_is_told_if_it_has_no_attributes() {
        let mut new = file(|_| ());
        assert_eq!(RecordChange::of(None, &new), RecordChange::Fields);
        new[170] = 1;
        assert_eq!(RecordChange::of(None, &new), RecordChange::Other);
        for mode in [0o040_755, 0o120_777, 0o020_600] {
            let other = record(mode, InodeFlags::empty(), |_| ());
            assert_eq!(RecordChange::of(None, &other), RecordChange::Other);
        }
        let shares = file(|raw| raw.file_acl_lo = 9.into());
        assert_eq!(RecordChange::of(None, &shares), RecordChange::Other);
        let same = RecordChange::of(Some(&shares), &shares);
        assert_eq!(same, RecordChange::Other, "a block that it had");
        let small = file(|_| ())[..128].to_vec();
        assert_eq!(RecordChange::of(None, &small), RecordChange::Fields);
    }

    #[test]
    fn a_new_file_is_not_told_over_what_another_one_left() {
        let new = file(|_| ());
        let of = |old: &[u8]| RecordChange::of_new(old, &new);
        assert_eq!(of(&vec![0; 256]), RecordChange::Fields);
        let mut old = file(|raw| raw.links = 0.into());
        assert_eq!(of(&old), RecordChange::Fields);
        old[200] = 1;
        assert_eq!(of(&old), RecordChange::Other, "an attribute");
        let mapped = file(|raw| raw.block[2] = 1);
        assert_eq!(of(&mapped), RecordChange::Other, "an extent");
    }

    #[test]
    fn a_directory_changes_with_its_entries_or_untold() {
        let dir = |change: fn(&mut RawInode)| record(0o040_755, InodeFlags::empty(), change);
        let plain = dir(|_| ());
        let of = |after: &[u8]| RecordChange::of(Some(&plain), after);
        assert_eq!(of(&plain), RecordChange::Entries);
        assert_eq!(of(&dir(|raw| raw.mtime = 9.into())), RecordChange::Entries);
        for other in [
            dir(|raw| raw.links = 2.into()),
            dir(|raw| raw.mode = 0o040_700.into()),
            dir(|raw| raw.uid_lo = 1.into()),
            dir(|raw| raw.links = 0.into()),
            dir(|raw| raw.file_acl_lo = 1.into()),
            record(0o040_755, InodeFlags::DIRSYNC, |_| ()),
            record(0o040_755, InodeFlags::INDEX, |_| ()),
            dir(|raw| raw.size_lo = 9.into()),
            dir(|raw| raw.blocks_lo = 9.into()),
            dir(|raw| raw.block[8] = 1),
        ] {
            assert_eq!(of(&other), RecordChange::Other);
        }
        let mut more = plain.clone();
        more[200] = 1;
        assert_eq!(of(&more), RecordChange::Other);
    }
}
