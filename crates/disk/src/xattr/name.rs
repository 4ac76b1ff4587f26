//! Names of extended attributes: the prefix as a number, the rest as bytes.

/// The stored prefix of a name (`e_name_index`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct NameIndex(u8);

impl NameIndex {
    /// `user.`
    pub const USER: Self = Self(1);
    /// `system.posix_acl_access`, a whole name.
    pub const POSIX_ACL_ACCESS: Self = Self(2);
    /// `system.posix_acl_default`, a whole name.
    pub const POSIX_ACL_DEFAULT: Self = Self(3);
    /// `trusted.`
    pub const TRUSTED: Self = Self(4);
    /// `security.`
    pub const SECURITY: Self = Self(6);
    /// `system.`
    pub const SYSTEM: Self = Self(7);
    /// `system.richacl`, a whole name.
    pub const RICHACL: Self = Self(8);
    /// The encryption context of the inode. Users do not see it.
    pub const ENCRYPTION: Self = Self(9);

    /// From the stored byte.
    #[inline]
    pub const fn from_raw(raw: u8) -> Self {
        Self(raw)
    }

    /// As stored.
    #[inline]
    pub const fn raw(self) -> u8 {
        self.0
    }

    /// The prefix and whether it is the whole name; `None` for indices that no one gave out.
    pub const fn prefix(self) -> Option<(&'static [u8], bool)> {
        Some(match self {
            Self::USER => (b"user.", false),
            Self::POSIX_ACL_ACCESS => (b"system.posix_acl_access", true),
            Self::POSIX_ACL_DEFAULT => (b"system.posix_acl_default", true),
            Self::TRUSTED => (b"trusted.", false),
            Self::SECURITY => (b"security.", false),
            Self::SYSTEM => (b"system.", false),
            Self::RICHACL => (b"system.richacl", true),
            _ => return None,
        })
    }
}

/// In the order of matching: whole names before the prefix that they share.
const ALL: [NameIndex; 7] = [
    NameIndex::USER,
    NameIndex::POSIX_ACL_ACCESS,
    NameIndex::POSIX_ACL_DEFAULT,
    NameIndex::RICHACL,
    NameIndex::TRUSTED,
    NameIndex::SECURITY,
    NameIndex::SYSTEM,
];

/// A name, split.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct XattrName<'a> {
    /// The prefix.
    pub index: NameIndex,
    /// Rest behind it; empty where the index is the whole name.
    pub rest: &'a [u8],
}

impl<'a> XattrName<'a> {
    /// The name of an access ACL.
    pub const ACL_ACCESS: XattrName<'static> = XattrName {
        index: NameIndex::POSIX_ACL_ACCESS,
        rest: b"",
    };
    /// The name of a default ACL.
    pub const ACL_DEFAULT: XattrName<'static> = XattrName {
        index: NameIndex::POSIX_ACL_DEFAULT,
        rest: b"",
    };

    /// The name of what an inode is encrypted by.
    pub const ENCRYPTION_CONTEXT: XattrName<'static> = XattrName {
        index: NameIndex::ENCRYPTION,
        rest: b"c",
    };

    /// Splits a full name such as `user.mime_type`; `None` if no prefix matches, the rest is empty
    /// where it must not be, or it holds a NUL.
    pub fn parse(full: &'a [u8]) -> Option<Self> {
        if full.contains(&0) {
            return None;
        }
        ALL.into_iter().find_map(|index| {
            let (prefix, whole) = index.prefix()?;
            let rest = full.strip_prefix(prefix)?;
            (rest.is_empty() == whole).then_some(Self { index, rest })
        })
    }

    /// The full name; `None` if the index is unknown.
    pub fn full(&self) -> Option<Vec<u8>> {
        let (prefix, _) = self.index.prefix()?;
        Some([prefix, self.rest].concat())
    }

    /// The order of entries in a block.
    pub(super) fn block_order(&self) -> (u8, usize, &'a [u8]) {
        (self.index.raw(), self.rest.len(), self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_and_join() {
        for (full, index, rest) in [
            (&b"user.a"[..], NameIndex::USER, &b"a"[..]),
            (b"system.posix_acl_access", NameIndex::POSIX_ACL_ACCESS, b""),
            (
                b"system.posix_acl_default",
                NameIndex::POSIX_ACL_DEFAULT,
                b"",
            ),
            (b"system.richacl", NameIndex::RICHACL, b""),
            (b"system.data", NameIndex::SYSTEM, b"data"),
            (b"trusted.x.y", NameIndex::TRUSTED, b"x.y"),
            (b"security.capability", NameIndex::SECURITY, b"capability"),
        ] {
            let name = XattrName::parse(full).unwrap_or_else(|| panic!("{full:?}"));
            assert_eq!((name.index, name.rest), (index, rest));
            assert_eq!(name.full().as_deref(), Some(full));
        }
    }

    #[test]
    fn names_without_a_home_are_refused() {
        for bad in [
            &b"user."[..],
            b"user",
            b"",
            b"os2.x",
            b"trusted.",
            b"user.a\0b",
        ] {
            assert_eq!(XattrName::parse(bad), None, "{bad:?}");
        }
    }
}
