//! POSIX ACLs: ext4's stored form, and the form that users see in `system.posix_acl_*`.
//!
//! Both are a version number and a list of entries. The stored form (version 1) leaves the id out
//! of entries that have none; the users' form (version 2) always has it. [`Acl`] is the decoded
//! list. An ACL is valid if it has one owner, one owning group and one other entry, in that order
//! with the named users and groups between them, and a mask if there is any named entry.

use core::mem::size_of;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `a_version` of the stored form.
const STORED_VERSION: u32 = 1;
/// `a_version` of the form that users see.
const POSIX_VERSION: u32 = 2;
/// The id of entries that have none, in the users' form.
const NO_ID: u32 = u32::MAX;
/// The most entries that a decoded ACL may have: what fits the longest attribute value.
const MAX_ENTRIES: usize = super::xattr::XATTR_VALUE_MAX / size_of::<Short>();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Short {
    tag: U16,
    perm: U16,
}

const _: () = assert!(size_of::<Short>() == 4);

/// The users or groups that an entry is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum AclTag {
    /// The owner.
    UserObj,
    /// A user by id.
    User(u32),
    /// The owning group.
    GroupObj,
    /// A group by id.
    Group(u32),
    /// The most that named users, the owning group and named groups get.
    Mask,
    /// Everyone else.
    Other,
}

impl AclTag {
    const fn raw(self) -> (u16, Option<u32>) {
        match self {
            Self::UserObj => (0x01, None),
            Self::User(id) => (0x02, Some(id)),
            Self::GroupObj => (0x04, None),
            Self::Group(id) => (0x08, Some(id)),
            Self::Mask => (0x10, None),
            Self::Other => (0x20, None),
        }
    }

    /// The tag for a stored number; the id is asked for where it is needed.
    fn from_raw(tag: u16, id: impl FnOnce() -> Option<u32>) -> Result<Self, AclError> {
        let named = || id().ok_or(AclError::Length);
        Ok(match tag {
            0x01 => Self::UserObj,
            0x02 => Self::User(named()?),
            0x04 => Self::GroupObj,
            0x08 => Self::Group(named()?),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return Err(AclError::Tag { found: tag }),
        })
    }

    /// Position of the entry's kind in a valid ACL.
    const fn rank(self) -> u8 {
        match self {
            Self::UserObj => 0,
            Self::User(_) => 1,
            Self::GroupObj => 2,
            Self::Group(_) => 3,
            Self::Mask => 4,
            Self::Other => 5,
        }
    }

    const fn is_named(self) -> bool {
        matches!(self, Self::User(_) | Self::Group(_))
    }
}

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AclEntry {
    /// The users or groups.
    pub tag: AclTag,
    /// Read 4, write 2, execute 1.
    pub perm: u16,
}

/// Damage of an ACL.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AclError {
    /// The value ends inside of a field.
    #[error("ACL of a bad length")]
    Length,
    /// Another version.
    #[error("ACL version {found}")]
    Version {
        /// As stored.
        found: u32,
    },
    /// An unknown kind of entry.
    #[error("ACL entry with tag {found:#x}")]
    Tag {
        /// As stored.
        found: u16,
    },
    /// Permission bits beyond rwx.
    #[error("ACL entry with permissions {found:#o}")]
    Perm {
        /// As stored.
        found: u16,
    },
    /// Entries missing, twice, or out of order.
    #[error("ACL entries are missing, repeated or out of order")]
    Order,
}

/// A decoded ACL.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

/// Takes the first `N` bytes off.
fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], AclError> {
    let (head, rest) = bytes.split_first_chunk::<N>().ok_or(AclError::Length)?;
    *bytes = rest;
    Ok(*head)
}

impl Acl {
    /// An ACL of these entries, not validated.
    pub fn new(entries: Vec<AclEntry>) -> Self {
        Self { entries }
    }

    /// The entries.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Returns whether there are no entries: setting such an ACL removes it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The ACL that says the same as the permission bits of `mode`.
    pub fn from_mode(mode: u16) -> Self {
        let entry = |tag, shift: u32| AclEntry {
            tag,
            perm: (mode >> shift) & 7,
        };
        Self {
            entries: vec![
                entry(AclTag::UserObj, 6),
                entry(AclTag::GroupObj, 3),
                entry(AclTag::Other, 0),
            ],
        }
    }

    /// Decodes the stored form. Not validated.
    ///
    /// # Errors
    /// Another version, an unknown tag, or a length that does not add up.
    pub fn from_stored(value: &[u8]) -> Result<Self, AclError> {
        let mut rest = value;
        let version = u32::from_le_bytes(take(&mut rest)?);
        if version != STORED_VERSION {
            return Err(AclError::Version { found: version });
        }
        Self::decode(rest, |tag, rest| {
            AclTag::from_raw(tag, || take(rest).ok().map(u32::from_le_bytes))
        })
    }

    /// Decodes the form that users pass in. Not validated.
    ///
    /// # Errors
    /// Another version, an unknown tag, or a length that does not add up.
    pub fn from_posix(value: &[u8]) -> Result<Self, AclError> {
        let mut rest = value;
        let version = u32::from_le_bytes(take(&mut rest)?);
        if version != POSIX_VERSION {
            return Err(AclError::Version { found: version });
        }
        Self::decode(rest, |tag, rest| {
            let id = u32::from_le_bytes(take(rest)?);
            AclTag::from_raw(tag, || Some(id))
        })
    }

    fn decode(
        mut rest: &[u8],
        mut tag: impl FnMut(u16, &mut &[u8]) -> Result<AclTag, AclError>,
    ) -> Result<Self, AclError> {
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let raw = u16::from_le_bytes(take(&mut rest)?);
            let perm = u16::from_le_bytes(take(&mut rest)?);
            let tag = tag(raw, &mut rest)?;
            if entries.len() >= MAX_ENTRIES {
                return Err(AclError::Length);
            }
            entries.push(AclEntry { tag, perm });
        }
        Ok(Self { entries })
    }

    /// The stored form.
    pub fn to_stored(&self) -> Vec<u8> {
        self.encode(STORED_VERSION, |id, out| {
            if let Some(id) = id {
                out.extend_from_slice(&id.to_le_bytes());
            }
        })
    }

    /// The form that users see.
    pub fn to_posix(&self) -> Vec<u8> {
        self.encode(POSIX_VERSION, |id, out| {
            out.extend_from_slice(&id.unwrap_or(NO_ID).to_le_bytes());
        })
    }

    fn encode(&self, version: u32, id: impl Fn(Option<u32>, &mut Vec<u8>)) -> Vec<u8> {
        let mut out = U32::new(version).as_bytes().to_vec();
        for entry in &self.entries {
            let (tag, named) = entry.tag.raw();
            let short = Short {
                tag: tag.into(),
                perm: entry.perm.into(),
            };
            out.extend_from_slice(short.as_bytes());
            id(named, &mut out);
        }
        out
    }

    /// Checks that the ACL is one that can be set: order, completeness, permission bits.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), AclError> {
        let mut last = None;
        let (mut named, mut mask) = (false, false);
        for entry in &self.entries {
            if entry.perm & !7 != 0 {
                return Err(AclError::Perm { found: entry.perm });
            }
            if matches!(entry.tag, AclTag::User(NO_ID) | AclTag::Group(NO_ID)) {
                return Err(AclError::Order);
            }
            let rank = entry.tag.rank();
            let follows = match last {
                None => rank == 0,
                // Owner, owning group and other must not be left out: no step over rank 2 or to
                // nothing.
                Some(before) if entry.tag.is_named() && before == rank => true,
                Some(before) => before < rank && !(before < 2 && rank > 2),
            };
            if !follows {
                return Err(AclError::Order);
            }
            last = Some(rank);
            named |= entry.tag.is_named();
            mask |= entry.tag == AclTag::Mask;
        }
        if last != Some(5) || (named && !mask) {
            return Err(AclError::Order);
        }
        Ok(())
    }

    /// `mode` with the permission bits that this ACL stands for (the group's are those of the mask,
    /// if there is one), and whether the ACL says no more than they do.
    pub fn mode(&self, mode: u16) -> (u16, bool) {
        let (mut owner, mut group, mut other) = (0, 0, 0);
        let mut mask = None;
        let mut plain = true;
        for entry in &self.entries {
            let perm = entry.perm & 7;
            match entry.tag {
                AclTag::UserObj => owner = perm,
                AclTag::GroupObj => group = perm,
                AclTag::Other => other = perm,
                AclTag::Mask => {
                    mask = Some(perm);
                    plain = false;
                }
                AclTag::User(_) | AclTag::Group(_) => plain = false,
            }
        }
        let group = mask.unwrap_or(group);
        ((mode & !0o777) | (owner << 6) | (group << 3) | other, plain)
    }

    /// Returns whether the ACL of a file of the group `group` grants all of `wanted` to the user
    /// `uid`, which does not own it. As in Linux's `posix_acl_permission`, the first entry that
    /// fits decides, of several groups one that grants all. `in_group` says whether the user is in
    /// a group; it is asked only where that decides.
    pub fn grants(
        &self,
        uid: u32,
        group: u32,
        wanted: u16,
        in_group: &mut dyn FnMut(u32) -> bool,
    ) -> bool {
        let all = |perm: u16| perm & wanted == wanted;
        let mask = self.entries.iter().find(|e| e.tag == AclTag::Mask);
        let mask = mask.map_or(7, |entry| entry.perm);
        let mut is_member = false;
        for entry in &self.entries {
            let gid = match entry.tag {
                AclTag::User(id) if id == uid => return all(entry.perm & mask),
                AclTag::Other => return !is_member && all(entry.perm),
                AclTag::GroupObj => group,
                AclTag::Group(id) => id,
                AclTag::UserObj | AclTag::User(_) | AclTag::Mask => continue,
            };
            if in_group(gid) {
                is_member = true;
                if all(entry.perm) {
                    return all(mask);
                }
            }
        }
        false
    }

    /// Takes over the permission bits of a `chmod` to `mode`: the group's go to the mask, if there
    /// is one.
    pub fn chmod(&mut self, mode: u16) {
        let has_mask = self.entries.iter().any(|e| e.tag == AclTag::Mask);
        for entry in &mut self.entries {
            match entry.tag {
                AclTag::UserObj => entry.perm = (mode >> 6) & 7,
                AclTag::Mask => entry.perm = (mode >> 3) & 7,
                AclTag::GroupObj if !has_mask => entry.perm = (mode >> 3) & 7,
                AclTag::Other => entry.perm = mode & 7,
                _ => {}
            }
        }
    }

    /// Makes this default ACL the access ACL of a new inode that was asked for with `mode`: each
    /// gives up what the other does not grant. Returns the inode's mode and whether the ACL says
    /// more than it does.
    pub fn inherit(&mut self, mode: u16) -> (u16, bool) {
        let has_mask = self.entries.iter().any(|e| e.tag == AclTag::Mask);
        for entry in &mut self.entries {
            match entry.tag {
                AclTag::UserObj => entry.perm &= (mode >> 6) & 7,
                AclTag::Mask => entry.perm &= (mode >> 3) & 7,
                AclTag::GroupObj if !has_mask => entry.perm &= (mode >> 3) & 7,
                AclTag::Other => entry.perm &= mode & 7,
                _ => {}
            }
        }
        let (mode, plain) = self.mode(mode);
        (mode, !plain)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    fn entry(tag: AclTag, perm: u16) -> AclEntry {
        AclEntry { tag, perm }
    }

    fn sample() -> Acl {
        Acl::new(vec![
            entry(AclTag::UserObj, 7),
            entry(AclTag::User(1000), 6),
            entry(AclTag::User(1001), 4),
            entry(AclTag::GroupObj, 5),
            entry(AclTag::Group(70_000), 7),
            entry(AclTag::Mask, 6),
            entry(AclTag::Other, 1),
        ])
    }

    #[test]
    fn both_forms_come_back() {
        let acl = sample();
        assert_eq!(acl.validate(), Ok(()));
        let stored = acl.to_stored();
        assert_eq!(stored.len(), 4 + 4 * 4 + 3 * 8);
        assert_eq!(Acl::from_stored(&stored), Ok(acl.clone()));
        let posix = acl.to_posix();
        assert_eq!(posix.len(), 4 + 7 * 8);
        assert_eq!(posix[8..12], [0xff; 4]);
        assert_eq!(Acl::from_posix(&posix), Ok(acl));
    }

    #[test]
    fn every_cut_and_every_byte_is_survived() {
        let (stored, posix) = (sample().to_stored(), sample().to_posix());
        for cut in 0..posix.len() {
            let cut_at = cut.min(stored.len());
            let stored = Acl::from_stored(&stored[..cut_at]);
            let posix_cut = Acl::from_posix(&posix[..cut]);
            for acl in [stored, posix_cut].into_iter().flatten() {
                let whole = acl == sample();
                assert!(whole || acl.validate().is_err(), "cut at {cut}");
            }
            for value in [0, 1, 2, 0x7f, 0xff] {
                let mut bad = posix.clone();
                bad[cut] = value;
                let _ = Acl::from_posix(&bad).map(|acl| acl.validate());
            }
        }
        assert_eq!(
            Acl::from_stored(&[2, 0, 0, 0]),
            Err(AclError::Version { found: 2 })
        );
        assert_eq!(
            Acl::from_posix(&[2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]),
            Err(AclError::Tag { found: 3 })
        );
    }

    #[test]
    fn the_first_entry_that_fits_decides() {
        let acl = sample();
        let grants = |uid, groups: &[u32], wanted| {
            acl.grants(uid, 50, wanted, &mut |gid| groups.contains(&gid))
        };
        // Named users are bound by the mask, and their groups add nothing.
        assert!(grants(1000, &[], 6) && !grants(1000, &[], 1));
        assert!(grants(1001, &[70_000], 4) && !grants(1001, &[70_000], 2));
        // Of the groups one has to grant all: two that grant a part each do not.
        assert!(grants(5, &[50], 4) && !grants(5, &[50], 2));
        assert!(!grants(5, &[50], 1), "the mask");
        assert!(grants(5, &[50, 70_000], 6));
        // Members of a group get nothing as others.
        assert!(grants(5, &[], 1) && !grants(5, &[], 4));
        let closed = Acl::new(vec![
            entry(AclTag::UserObj, 7),
            entry(AclTag::GroupObj, 0),
            entry(AclTag::Other, 7),
        ]);
        assert!(!closed.grants(5, 50, 4, &mut |gid| gid == 50));
        assert!(closed.grants(5, 50, 7, &mut |_| false));
        assert!(!Acl::default().grants(5, 50, 0, &mut |_| true));
    }

    #[test]
    fn invalid_lists_are_refused() {
        let good = sample();
        for leave_out in [0, 3, 5, 6] {
            let mut entries = good.entries().to_vec();
            entries.remove(leave_out);
            assert_eq!(Acl::new(entries).validate(), Err(AclError::Order));
        }
        for twice in [0, 3, 5, 6] {
            let mut entries = good.entries().to_vec();
            entries.insert(twice, entries[twice]);
            assert_eq!(Acl::new(entries).validate(), Err(AclError::Order));
        }
        let mut entries = good.entries().to_vec();
        entries.swap(3, 4);
        assert_eq!(Acl::new(entries).validate(), Err(AclError::Order));
        let mut entries = good.entries().to_vec();
        entries[2].perm = 8;
        assert_eq!(
            Acl::new(entries).validate(),
            Err(AclError::Perm { found: 8 })
        );
        assert_eq!(Acl::default().validate(), Err(AclError::Order));
    }

    #[test]
    fn modes_and_acls_say_the_same() {
        for mode in 0..0o1000 {
            let acl = Acl::from_mode(mode);
            assert_eq!(acl.validate(), Ok(()));
            assert_eq!(acl.mode(0o100_000), (0o100_000 | mode, true));
        }
        assert_eq!(sample().mode(0o104_000), (0o104_761, false));
    }

    #[test]
    fn chmod_changes_the_mask() {
        let mut acl = sample();
        acl.chmod(0o640);
        assert_eq!(acl.mode(0), (0o640, false));
        assert_eq!(acl.entries()[3], entry(AclTag::GroupObj, 5));
        let mut plain = Acl::from_mode(0o777);
        plain.chmod(0o124);
        assert_eq!(plain, Acl::from_mode(0o124));
    }

    #[test]
    fn inheriting_takes_the_smaller_of_both() {
        let mut acl = sample();
        let (mode, extended) = acl.inherit(0o100_666);
        assert_eq!((mode, extended), (0o100_660, true));
        assert_eq!(
            acl.entries()[1],
            entry(AclTag::User(1000), 6),
            "named ones stay"
        );
        let mut plain = Acl::from_mode(0o750);
        assert_eq!(plain.inherit(0o100_644), (0o100_640, false));
    }
}
