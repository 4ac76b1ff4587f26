//! Units as types.
//!
//! Every quantity that could be mistaken for another has a type of its own. The types are
//! `repr(transparent)`, have no `Deref` and no `From<u64>`: a number becomes a unit by
//! `new` and a unit becomes a number by `get`, in plain sight. Crossing between bytes and
//! blocks goes through [`BlockSize`], which checks for overflow.
//!
//! This crate depends on nothing and allocates nothing.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod block_size;
mod counts;
mod position;
mod tid;

pub use block_size::BlockSize;
pub use counts::{Blocks, Group, Ino};
pub use position::{DevOff, Lblk, PageIdx, Pblk, Pos};
pub use tid::Tid;

/// Bytes in a page of the page cache: the smallest folio. 4096 on every host.
pub const PAGE_SIZE: usize = 4096;
/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;

/// `value` as an index. For callers whose value is bounded by memory that exists: the size of a
/// buffer or folio.
#[inline]
pub fn index(value: u64) -> usize {
    debug_assert!(usize::try_from(value).is_ok());
    #[allow(
        clippy::cast_possible_truncation,
        reason = "bounded by memory that exists"
    )]
    {
        value as usize
    }
}

/// `value` as 32 bits. For callers whose value is bounded by what it was computed from.
#[inline]
pub fn exact_u32(value: u64) -> u32 {
    debug_assert!(
        u32::try_from(value).is_ok(),
        "{value} has more than 32 bits"
    );
    at_most_u32(value)
}

/// `value` as 16 bits. For callers whose value is bounded by what it was computed from.
#[inline]
pub fn exact_u16(value: u64) -> u16 {
    let exact = u16::try_from(value);
    debug_assert!(exact.is_ok(), "{value} has more than 16 bits");
    exact.unwrap_or(u16::MAX)
}

/// The smaller of `value` and the largest `u32`: for lengths that are worked off in pieces anyway.
#[inline]
pub fn at_most_u32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The smaller of `value` and the largest `usize`: for lengths that a buffer's length cuts anyway.
#[inline]
pub fn at_most_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
