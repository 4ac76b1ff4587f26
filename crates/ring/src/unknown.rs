//! Rings on a machine whose structures the crate `io-uring` does not know: there are none.
//!
//! # Invariants
//! No value of [`NoRing`] or [`NoCommandProbe`] exists, so no method of one is ever called. Making
//! one fails: rings are unsupported, as on a kernel without io_uring.

#![allow(
    unsafe_code,
    reason = "the functions are as unsafe as where rings exist"
)]

use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;

pub use self::{NoCommandProbe as CommandProbe, NoCommandRing as CommandRing, NoRing as Ring};
use crate::transfer::{Ended, Transfer};

/// Marks a ring of transfers.
#[derive(Debug)]
pub enum Transfers {}

/// Marks a ring of commands.
#[derive(Debug)]
pub enum Commands {}

/// A ring, of which there is none here.
pub struct NoRing<T: 'static, R = Transfers> {
    none: Infallible,
    of: PhantomData<(T, R)>,
}

/// A ring of commands, of which there is none here.
pub type NoCommandRing<T> = NoRing<T, Commands>;

impl<T, R> NoRing<T, R> {
    /// Not called: see the module's header.
    pub fn set_file(&mut self, _: Arc<dyn AsFd + Send + Sync>) {
        match self.none {}
    }

    /// Not called.
    ///
    /// # Errors
    /// None.
    pub fn put(&mut self, _: T) -> Result<usize, T> {
        match self.none {}
    }

    /// Not called.
    pub fn item(&mut self, _: usize) -> Option<&mut T> {
        match self.none {}
    }

    /// Not called.
    pub fn lent(&self) -> usize {
        match self.none {}
    }

    /// Not called.
    ///
    /// # Errors
    /// None.
    pub fn enter(&mut self, _: usize) -> Result<bool, Errno> {
        match self.none {}
    }

    /// Not called.
    pub fn reap(&mut self) -> Option<Ended<u64>> {
        match self.none {}
    }

    /// Not called.
    pub fn wait(&mut self, _: usize, _: &mut Vec<Ended<T>>) -> u64 {
        match self.none {}
    }

    /// Not called.
    pub fn give_up(&mut self, _: &mut Vec<Ended<T>>) {
        match self.none {}
    }

    /// Not called.
    ///
    /// # Errors
    /// None.
    pub fn outcome(&mut self) -> Result<Result<usize, Errno>, Errno> {
        match self.none {}
    }
}

impl<T> NoRing<T> {
    /// Makes no ring.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`].
    pub fn new(_: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Not called.
    ///
    /// # Safety
    /// Safe.
    pub unsafe fn register_buffers(&mut self, _: &[*mut [u8]]) -> bool {
        match self.none {}
    }

    /// Not called.
    ///
    /// # Errors
    /// None.
    pub fn transfer(&mut self, _: T, _: impl FnOnce(&mut T) -> Transfer<'_>) -> Result<(), T> {
        match self.none {}
    }
}

impl<T> NoCommandRing<T> {
    /// Makes no ring.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`].
    pub fn for_commands(_: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Not called.
    ///
    /// # Errors
    /// None.
    pub fn enable(&mut self, _: Arc<dyn AsFd + Send + Sync>) -> io::Result<()> {
        match self.none {}
    }

    /// Not called.
    ///
    /// # Safety
    /// Safe.
    pub unsafe fn command(&mut self, _: u64, _: u32, _: &[u8], _: Option<(*const u8, u32)>) {
        match self.none {}
    }

    /// Not called.
    pub fn hear(&mut self, _: BorrowedFd<'_>, _: u64) {
        match self.none {}
    }

    /// Not called.
    ///
    /// # Errors
    /// None.
    pub fn look(&mut self) -> Result<bool, Errno> {
        match self.none {}
    }
}

/// A ring for one command, of which there is none here.
pub struct NoCommandProbe(Infallible);

impl NoCommandProbe {
    /// Makes no ring.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`].
    pub fn make() -> io::Result<NoCommandProbe> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Not called.
    ///
    /// # Errors
    /// None.
    pub fn may_command(self, _: BorrowedFd<'_>) -> io::Result<()> {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_of_an_unknown_machine_are_unsupported() {
        let errors = [
            Ring::<()>::new(1).err(),
            CommandRing::<()>::for_commands(1).err(),
            CommandProbe::make().err(),
        ];
        let kinds = errors.map(|error| error.map(|error| error.kind()));
        assert_eq!(kinds, [Some(io::ErrorKind::Unsupported); 3]);
    }
}
