//! The part that all rings have: slots, the file, and the calls into the kernel.

#![allow(unsafe_code, reason = "what a ring shares with the kernel")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use extant_units::index;
use io_uring::register::Restriction;
use io_uring::squeue::{self, EntryMarker, Flags};
use io_uring::{Builder, EnterFlags, IoUring, cqueue, types};
use rustix::io::Errno;

/// Pause before a call is repeated for which the kernel lacked memory.
const PAUSE: Duration = Duration::from_millis(1);
/// How often such a call is repeated where there is another way.
const TRIES: u32 = 1000;

/// The item of a request that has ended, and what the kernel says: how much it has done.
pub type Ended<T> = (T, Result<usize, Errno>);

struct Slot<T> {
    item: Option<T>,
    /// While the kernel has the item: the number of its request among all that were pushed.
    lent: Option<u64>,
}

/// A ring. One thread at a time uses it (`&mut`).
pub struct Ring<T: 'static, E: EntryMarker = squeue::Entry> {
    pub(crate) io: IoUring<E>,
    slots: Vec<Slot<T>>,
    /// Numbers of empty slots.
    free: Vec<usize>,
    lent: usize,
    file: Option<Arc<dyn AsFd + Send + Sync>>,
    /// The file as requests name it: its descriptor, or its number once it is registered.
    pub(crate) target: (types::Fd, Flags),
    /// Requests that were pushed.
    pushed: u64,
    /// Nothing more is submitted.
    pub(crate) dead: bool,
    #[cfg(test)]
    pub(crate) refuse_next_enter: Option<Errno>,
}

impl<T, E: EntryMarker> Ring<T, E> {
    /// A ring of so many slots, and for `spare` requests without one.
    pub(crate) fn build(
        builder: &mut Builder<E, cqueue::Entry>,
        slots: usize,
        spare: usize,
    ) -> io::Result<Self> {
        let depth = u32::try_from(slots + spare).map_err(io::Error::other)?;
        let empty = |_| Slot {
            item: None,
            lent: None,
        };
        Ok(Self {
            io: builder.dontfork().build(depth)?,
            slots: (0..slots).map(empty).collect(),
            free: (0..slots).rev().collect(),
            lent: 0,
            file: None,
            target: (types::Fd(-1), Flags::empty()),
            pushed: 0,
            dead: false,
            #[cfg(test)]
            refuse_next_enter: None,
        })
    }

    /// Has the kernel refuse any operation but these, and registering anything, once the ring is
    /// enabled.
    pub(crate) fn restrict(self, operations: &[u8]) -> io::Result<Self> {
        let operations = operations.iter().map(|&code| Restriction::sqe_op(code));
        let flags = Restriction::sqe_flags_allowed(Flags::FIXED_FILE.bits());
        let mut all: Vec<_> = operations.chain([flags]).collect();
        self.io.submitter().register_restrictions(&mut all)?;
        Ok(self)
    }

    /// Takes the file that requests are for, which stays open until the ring is gone. Registering
    /// it saves the kernel a look at the table of descriptors; it works without.
    pub fn set_file(&mut self, file: Arc<dyn AsFd + Send + Sync>) {
        let fd = file.as_fd().as_raw_fd();
        self.target = match self.io.submitter().register_files(&[fd]) {
            Ok(()) => (types::Fd(0), Flags::FIXED_FILE),
            Err(_) => (types::Fd(fd), Flags::empty()),
        };
        self.file = Some(file);
    }

    /// Puts an item into an empty slot.
    ///
    /// # Errors
    /// The item, if there is none.
    pub fn put(&mut self, item: T) -> Result<usize, T> {
        let Some(number) = self.free.pop() else {
            return Err(item);
        };
        self.slots[number].item = Some(item);
        Ok(number)
    }

    /// The item in a slot, unless the kernel has it.
    pub fn item(&mut self, number: usize) -> Option<&mut T> {
        let slot = self.slots.get_mut(number)?;
        slot.item.as_mut().filter(|_| slot.lent.is_none())
    }

    /// Empties a slot, unless the kernel has the item.
    pub(crate) fn take(&mut self, number: usize) -> Option<T> {
        self.item(number)?;
        self.free.push(number);
        self.slots[number].item.take()
    }

    /// Items that the kernel has.
    pub fn lent(&self) -> usize {
        self.lent
    }

    /// Adds a request, which [`Ring::enter`] hands over, and lends the item in slot `number` for
    /// it. A number that is no slot's is that of a request without an item.
    ///
    /// # Safety
    /// The request names no memory but that of the item.
    pub(crate) unsafe fn push(&mut self, number: u64, mut request: E) {
        if let Some(slot) = self.slots.get_mut(index(number)) {
            assert!(slot.lent.is_none(), "an item is lent once at a time");
            slot.lent = Some(self.pushed);
            self.lent += 1;
        }
        request.set_user_data(number);
        // SAFETY: the caller's. Nothing touches or frees the item while it is lent.
        while unsafe { self.io.submission().push(&request) }.is_err() {
            // The ring of submissions is full: the kernel takes what is there.
            let _ = self.enter(0);
        }
        self.pushed += 1;
    }

    /// Hands over what was pushed, and waits for so many completions. False if the kernel lacked
    /// memory, and a pause has passed.
    ///
    /// # Errors
    /// It refuses to be entered, not for now only.
    pub fn enter(&mut self, want: usize) -> Result<bool, Errno> {
        #[cfg(test)]
        if let Some(error) = self.refuse_next_enter.take() {
            return entered(Err(error.into()));
        }
        if !self.dead {
            return entered(self.io.submit_and_wait(want));
        }
        let (want, submitter) = (u32::try_from(want), self.io.submitter());
        let (want, flags) = (want.unwrap_or(u32::MAX), EnterFlags::GETEVENTS.bits());
        // SAFETY: no argument is passed, and nothing is submitted.
        entered(unsafe { submitter.enter::<libc::sigset_t>(0, want, flags, None) })
    }

    /// Takes a completion, if there is one: its number instead of an item, which is here again.
    pub fn reap(&mut self) -> Option<Ended<u64>> {
        let completion = self.io.completion().next()?;
        let number = completion.user_data();
        if let Some(slot) = self.slots.get_mut(index(number)) {
            let lent = slot.lent.take();
            debug_assert!(lent.is_some(), "completion {number} belongs to no request");
            self.lent -= usize::from(lent.is_some());
        }
        let result = match completion.result() {
            error @ ..0 => Err(Errno::from_raw_os_error(-error)),
            done => Ok(index(u64::from(done.cast_unsigned()))),
        };
        Some((number, result))
    }

    /// Hands over everything that was pushed, waits until `min` requests (or all, if fewer are in
    /// flight) have ended, and adds all that have to `ended`. Returns how often it entered the
    /// kernel.
    pub fn wait(&mut self, min: usize, ended: &mut Vec<Ended<T>>) -> u64 {
        let enough = ended.len() + min.min(self.lent);
        let (mut enters, mut shortages) = (0, 0);
        self.collect(ended);
        while ended.len() < enough || (!self.dead && !self.io.submission().is_empty()) {
            enters += 1;
            // Zero if only submissions are left.
            let entered = self.enter(enough.saturating_sub(ended.len()));
            self.collect(ended);
            shortages += u32::from(entered == Ok(false));
            if entered.is_err() || shortages == TRIES {
                self.give_up(ended);
            }
        }
        enters
    }

    /// Takes the completions that the ring holds.
    fn collect(&mut self, ended: &mut Vec<Ended<T>>) {
        while let Some((number, result)) = self.reap() {
            ended.extend(self.take(index(number)).map(|item| (item, result)));
        }
    }

    /// Submits nothing from now on. Requests that the kernel has not taken end with `ECANCELED`.
    pub fn give_up(&mut self, ended: &mut Vec<Ended<T>>) {
        // What is left in the ring of submissions stays there, so its items can be returned.
        self.dead = true;
        let taken = self.pushed - self.io.submission().len() as u64;
        for number in 0..self.slots.len() {
            let lent = &mut self.slots[number].lent;
            if lent.take_if(|nth| *nth >= taken).is_some() {
                self.lent -= 1;
                let item = self.take(number);
                ended.extend(item.map(|item| (item, Err(Errno::CANCELED))));
            }
        }
    }

    /// Hands over the only request of a ring, and waits for its result.
    ///
    /// # Errors
    /// The kernel refuses to be entered, or lacks memory for a second.
    pub fn outcome(&mut self) -> Result<Result<usize, Errno>, Errno> {
        for _ in 0..TRIES {
            self.enter(1)?;
            if let Some((_, result)) = self.reap() {
                return Ok(result);
            }
        }
        Err(Errno::NOMEM)
    }
}

impl<T, E: EntryMarker> Drop for Ring<T, E> {
    /// Waits until the kernel no longer uses any memory. Commands are not waited for (see the
    /// crate's header).
    fn drop(&mut self) {
        if size_of::<E>() == size_of::<squeue::Entry>() {
            self.wait(self.lent, &mut Vec::new());
            // The kernel frees a ring some time after it was closed, and would hold the file until
            // then.
            if !self.target.1.is_empty() {
                let _ = self.io.submitter().unregister_files();
            }
        }
    }
}

/// After entering the kernel: see [`Ring::enter`].
pub(crate) fn entered(result: io::Result<usize>) -> Result<bool, Errno> {
    let Err(error) = result else {
        return Ok(true);
    };
    // An error that has no number of the host counts as an I/O error.
    match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
        Errno::INTR | Errno::TIME => Ok(true),
        error => {
            thread::sleep(PAUSE);
            let for_now = matches!(error, Errno::AGAIN | Errno::BUSY | Errno::NOMEM);
            if for_now { Ok(false) } else { Err(error) }
        }
    }
}
