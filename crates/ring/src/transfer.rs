//! A transfer: what a ring is asked for, and how it ends.

use rustix::io::Errno;

/// A request on memory of its item, which may be of the registered buffer of that number.
pub enum Transfer<'a> {
    /// Fill the bytes with those from a position on.
    Read(&'a mut [u8], u64, Option<u16>),
    /// Write them there.
    Write(&'a [u8], u64, Option<u16>),
    /// Make earlier writes durable.
    Sync,
}

/// The item of a request that has ended, and what the kernel says: how much it has done.
pub type Ended<T> = (T, Result<usize, Errno>);
