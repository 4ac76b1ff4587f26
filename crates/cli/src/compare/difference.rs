//! Differences that a comparison finds.

use extant::{FileKind, Timestamp};

/// A side of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Left,
    Right,
}

/// A difference between two files of one path. Pairs have the left value first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Difference {
    /// One side has nothing of this name.
    Only(Side),
    Kind(FileKind, FileKind),
    Mode(u16, u16),
    Owner(u32, u32),
    Group(u32, u32),
    Modified(Timestamp, Timestamp),
    Size(u64, u64),
    /// The first byte that differs.
    Content(u64),
    Target(Vec<u8>, Vec<u8>),
    /// Numbers of a device node, in Linux's encoding.
    Device(u32, u32),
    /// The name of an extended attribute that one side has.
    XattrOnly(Side, Vec<u8>),
    /// The name of an extended attribute whose values differ.
    Xattr(Vec<u8>),
    /// The first name of the same file on each side, where an earlier one was met.
    Links(Option<Vec<u8>>, Option<Vec<u8>>),
}

/// One side of a difference.
pub(crate) enum Value {
    Kind(FileKind),
    Mode(u16),
    Number(u64),
    Time(Timestamp),
    Device(u32),
    Bytes(Vec<u8>),
    /// None there.
    Nothing,
}

impl Difference {
    /// The word for it in output for programs.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Difference::Only(Side::Left) => "only_left",
            Difference::Only(Side::Right) => "only_right",
            Difference::Kind(..) => "kind",
            Difference::Mode(..) => "mode",
            Difference::Owner(..) => "owner",
            Difference::Group(..) => "group",
            Difference::Modified(..) => "mtime",
            Difference::Size(..) => "size",
            Difference::Content(_) => "content",
            Difference::Target(..) => "target",
            Difference::Device(..) => "device",
            Difference::XattrOnly(Side::Left, _) => "xattr_only_left",
            Difference::XattrOnly(Side::Right, _) => "xattr_only_right",
            Difference::Xattr(_) => "xattr",
            Difference::Links(..) => "links",
        }
    }

    /// Both values, for differences that have them.
    pub(crate) fn values(&self) -> Option<(Value, Value)> {
        let number = |n: &u32| Value::Number(u64::from(*n));
        let name = |name: &Option<Vec<u8>>| name.clone().map_or(Value::Nothing, Value::Bytes);
        Some(match self {
            Difference::Kind(left, right) => (Value::Kind(*left), Value::Kind(*right)),
            Difference::Mode(left, right) => (Value::Mode(*left), Value::Mode(*right)),
            Difference::Owner(left, right) | Difference::Group(left, right) => {
                (number(left), number(right))
            }
            Difference::Modified(left, right) => (Value::Time(*left), Value::Time(*right)),
            Difference::Size(left, right) => (Value::Number(*left), Value::Number(*right)),
            Difference::Target(left, right) => {
                (Value::Bytes(left.clone()), Value::Bytes(right.clone()))
            }
            Difference::Device(left, right) => (Value::Device(*left), Value::Device(*right)),
            Difference::Links(left, right) => (name(left), name(right)),
            Difference::Only(_)
            | Difference::Content(_)
            | Difference::XattrOnly(..)
            | Difference::Xattr(_) => return None,
        })
    }
}
