//! The border between a worker and the ring that brings its requests.
//!
//! The kernel is behind it ([`super::ring`]), or what a test has in its place.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::entry::Entry;

/// The news of a completion.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The entry holds a request, or the kernel refused its command.
    Entry(usize, Result<(), Errno>),
    /// The worker's bell rang.
    Bell,
    /// The device was closed.
    Closed,
}

/// A worker's ring, with its entries.
pub(super) trait EntryRing {
    /// The queue of each entry.
    fn queues(&self) -> &[u16];

    /// From now on the ring is this thread's.
    fn enable(&mut self) -> io::Result<()>;

    /// An entry, if the kernel does not have it.
    fn entry(&mut self, number: usize) -> Option<&mut Entry>;

    /// Gives the reply in an entry to the kernel, which gives the entry back with the next request.
    fn commit(&mut self, number: usize);

    /// Has the ring hear of the worker's bell, once.
    fn hear_bell(&mut self, bell: BorrowedFd<'_>);

    /// Has the ring hear when the device is closed.
    fn hear_close(&mut self);

    /// Hands over what was pushed. What the kernel does not take now goes with the next call.
    fn submit(&mut self);

    /// Registers all entries. What has happened meanwhile goes to `events`.
    ///
    /// # Errors
    /// The kernel refuses to be entered, refuses an entry, or lacks memory for a second.
    fn register_all(&mut self, events: &mut Vec<Event>) -> io::Result<()>;

    /// Hands over what was pushed, and waits until something happens.
    ///
    /// # Errors
    /// The kernel refuses to be entered.
    fn wait(&mut self, events: &mut Vec<Event>) -> io::Result<()>;

    /// Hands over what was pushed, and finds out what has happened: all that the kernel had begun
    /// for this ring before. Returns false if it lacked memory: then it has not taken all that was
    /// pushed, and more may have happened.
    ///
    /// # Errors
    /// The kernel refuses to be entered.
    fn look(&mut self, events: &mut Vec<Event>) -> io::Result<bool>;
}
