//! The kernel's ring, and the memory that it works on.
//!
//! # Invariants
//! Why the `unsafe` calls are sound: the kernel reads and writes the memory of a request at any
//! time between its submission and its completion. So a ring works only on buffers that it owns.
//!
//! 1. [`Ring::push`] takes the request with its [`IoBuf`] and keeps both in a slot. The slot's
//!    number travels with the request.
//! 2. The slot is emptied when the completion with that number has come. Until then nothing here
//!    touches the buffer, and its heap memory does not move when the slot does.
//! 3. No borrowed memory is given to the kernel, so nothing depends on a caller that waits.
//! 4. Dropping a ring waits for every completion before any slot is freed. A ring that is forgotten
//!    leaks its slots with it.
//!
//! # Concurrency
//! One thread at a time uses a ring (`&mut`), not always the same. The kernel cancels the requests
//! of a thread that ends: their completions carry `ECANCELED`, and the caller makes them again.

#![allow(unsafe_code, reason = "what a ring shares with the kernel")]

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use extant_units::index;
use io_uring::{EnterFlags, IoUring, Probe, opcode, squeue, types};
use rustix::io::Errno;

use crate::io_buf::{BufPool, IoBuf};
use crate::queue::{IoOp, IoRequest};

/// The most requests that a ring has in flight.
pub(super) const MAX_DEPTH: usize = 1024;
/// The most bytes that one request asks the kernel for. A longer one ends as a short transfer.
const MAX_LEN: usize = 1 << 30;
/// Bytes of memory that a ring registers, and the limits of one buffer of it.
const REGISTERED_LEN: usize = 4 << 20;
const BUFFER_LEN: std::ops::RangeInclusive<usize> = (4 << 10)..=(64 << 10);
/// How often a submission is repeated that the kernel has no memory for, and the pause between.
const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_millis(1);

/// A request that has ended, and how many bytes the kernel moved.
pub(super) struct Finished {
    pub(super) request: IoRequest,
    pub(super) moved: Result<usize, Errno>,
    /// It used a registered buffer.
    pub(super) registered: bool,
}

/// Makes a ring.
///
/// # Errors
/// The kernel refused; [`io::ErrorKind::Unsupported`] if its rings lack an operation or a feature
/// that is needed here.
pub(super) fn set_up(depth: usize) -> io::Result<IoUring> {
    let entries = u32::try_from(depth).map_err(io::Error::other)?;
    let io = IoUring::builder().dontfork().build(entries)?;
    let mut probe = Probe::new();
    io.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::ReadFixed::CODE,
        opcode::WriteFixed::CODE,
        opcode::Fsync::CODE,
    ];
    if !io.params().is_feature_nodrop() || !needed.iter().all(|&op| probe.is_supported(op)) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(io)
}

/// A ring for one file.
pub(super) struct Ring {
    io: IoUring,
    file: Arc<File>,
    /// The file is registered, as number 0.
    file_registered: bool,
    /// The requests in flight, by the number that the kernel returns with the completion.
    slots: Vec<Option<IoRequest>>,
    free: Vec<usize>,
    /// Slots in the submission ring that the kernel has not taken.
    queued: VecDeque<usize>,
    /// Registered buffers, from the first request for one on. Their numbers are the kernel's.
    pool: Option<Arc<BufPool>>,
    pool_refused: bool,
    /// The kernel refuses to be entered: nothing more is submitted.
    dead: bool,
    #[cfg(test)]
    pub(super) refuse_next_enter: Option<Errno>,
}

impl Ring {
    /// A ring for up to `depth` requests to `file`.
    ///
    /// # Errors
    /// See [`set_up`].
    pub(super) fn new(file: &Arc<File>, depth: usize) -> io::Result<Self> {
        let depth = depth.clamp(1, MAX_DEPTH);
        let io = set_up(depth)?;
        let file_registered = io.submitter().register_files(&[file.as_raw_fd()]).is_ok();
        Ok(Self {
            io,
            file: Arc::clone(file),
            file_registered,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            queued: VecDeque::with_capacity(depth),
            pool: None,
            pool_refused: false,
            dead: false,
            #[cfg(test)]
            refuse_next_enter: None,
        })
    }

    /// Requests that were pushed and are not finished.
    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// A registered buffer, if one of that size is left.
    pub(super) fn buffer(&mut self, len: usize) -> Option<IoBuf> {
        if self.pool.is_none() && !self.pool_refused {
            self.pool = self.register_buffers();
            self.pool_refused = self.pool.is_none();
        }
        self.pool.as_ref()?.lend(len)
    }

    /// Registers buffers; `None` if the kernel refuses (locked memory is limited).
    fn register_buffers(&self) -> Option<Arc<BufPool>> {
        let depth = self.slots.len();
        let piece = (REGISTERED_LEN / depth).clamp(*BUFFER_LEN.start(), *BUFFER_LEN.end());
        let pool = BufPool::new(u16::try_from(depth).ok()?, piece);
        let mut pieces = Vec::with_capacity(depth);
        pool.for_each_free(|_, bytes| {
            pieces.push(libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: bytes.len(),
            });
        });
        // SAFETY: each piece is the whole memory of one buffer of the pool. That memory is freed
        // with the pool only, neither while a buffer is lent nor when it returns, and the ring
        // keeps the pool until `io` is closed (drop order of the fields). The kernel touches the
        // memory only for requests that name it, which `push` justifies.
        let registered = unsafe { self.io.submitter().register_buffers(&pieces) };
        registered.is_ok().then_some(pool)
    }

    /// Takes a request. The next [`Ring::wait`] submits it.
    ///
    /// # Errors
    /// The request, if all slots are in use or the ring is dead.
    pub(super) fn push(&mut self, request: IoRequest) -> Result<(), IoRequest> {
        if self.dead {
            return Err(request);
        }
        let Some(number) = self.free.pop() else {
            return Err(request);
        };
        let slot = &mut self.slots[number];
        assert!(
            slot.is_none(),
            "a free slot is empty: its number names one request"
        );
        // The request moves to its slot before its address is taken.
        let request = slot.insert(request);
        let target = (!self.file_registered).then(|| self.file.as_raw_fd());
        let entry = entry(target, request, self.pool.as_ref()).user_data(number as u64);
        // SAFETY: the entry names the memory of the slot's buffer. Nothing touches or frees it
        // until the completion with this number empties the slot (`collect`), or the entry is known
        // never to reach the kernel (`give_up`). The file is open for as long as the ring exists.
        let pushed = unsafe { self.io.submission().push(&entry) };
        match pushed {
            Ok(()) => {
                self.queued.push_back(number);
                Ok(())
            }
            // Not reached: there are as many entries as slots. The kernel has not taken the
            // request.
            Err(_) => self.release(number).map_or(Ok(()), Err),
        }
    }

    /// Submits everything that was pushed, waits until `min` requests (or all, if fewer are in
    /// flight) have ended, and adds all that have to `finished`. Returns how often it entered the
    /// kernel.
    pub(super) fn wait(&mut self, min: usize, finished: &mut Vec<Finished>) -> u64 {
        let enough = finished.len() + min.min(self.in_flight());
        let mut enters = 0;
        let mut refusals = 0;
        self.collect(finished);
        while finished.len() < enough || !self.queued.is_empty() {
            enters += 1;
            let before = finished.len();
            // Zero if only submissions are left.
            let entered = self.enter(enough.saturating_sub(before));
            self.collect(finished);
            match entered {
                Ok(()) | Err(Errno::INTR) => {}
                Err(error) => {
                    let temporary = matches!(error, Errno::AGAIN | Errno::BUSY | Errno::NOMEM);
                    refusals += 1;
                    if self.dead || (temporary && refusals < TRIES) {
                        if finished.len() == before {
                            thread::sleep(PAUSE);
                        }
                    } else {
                        self.give_up(finished);
                    }
                }
            }
        }
        enters
    }

    /// Enters the kernel once.
    fn enter(&mut self, want: usize) -> Result<(), Errno> {
        #[cfg(test)]
        if let Some(error) = self.refuse_next_enter.take() {
            return Err(error);
        }
        let entered = if self.dead {
            #[allow(clippy::cast_possible_truncation, reason = "at most MAX_DEPTH")]
            let want = want as u32;
            let flags = EnterFlags::GETEVENTS.bits();
            // SAFETY: no argument is passed, and nothing is submitted.
            unsafe {
                self.io
                    .submitter()
                    .enter::<libc::sigset_t>(0, want, flags, None)
            }
        } else {
            self.io.submit_and_wait(want)
        };
        let left = self.io.submission().len();
        while self.queued.len() > left {
            self.queued.pop_front();
        }
        match entered {
            Ok(_) => Ok(()),
            // An error that has no number of the host counts as an I/O error.
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }

    /// Takes the completions that the ring holds.
    fn collect(&mut self, finished: &mut Vec<Finished>) {
        let pool = self.pool.as_ref();
        for completion in self.io.completion() {
            let number = index(completion.user_data());
            // The kernel no longer uses the slot's buffer.
            let Some(request) = self.slots.get_mut(number).and_then(Option::take) else {
                debug_assert!(false, "completion {number} belongs to no request");
                continue;
            };
            self.free.push(number);
            let moved = match completion.result() {
                error @ ..0 => Err(Errno::from_raw_os_error(-error)),
                bytes => Ok(index(u64::from(bytes.cast_unsigned()))),
            };
            let registered = pool.is_some_and(|pool| request.buf.number_in(pool).is_some());
            finished.push(Finished {
                request,
                moved,
                registered,
            });
        }
    }

    /// Stops submitting. Requests that the kernel has not taken end with `ECANCELED`.
    fn give_up(&mut self, finished: &mut Vec<Finished>) {
        // From here on, each entry of the kernel submits nothing, so the entries that are left in
        // the submission ring stay there, and their buffers can be returned.
        self.dead = true;
        while let Some(number) = self.queued.pop_front() {
            finished.extend(self.release(number).map(|request| Finished {
                request,
                moved: Err(Errno::CANCELED),
                registered: false,
            }));
        }
    }

    /// Empties a slot that the kernel has not taken.
    fn release(&mut self, number: usize) -> Option<IoRequest> {
        let request = self.slots.get_mut(number).and_then(Option::take)?;
        self.free.push(number);
        Some(request)
    }
}

impl Drop for Ring {
    /// Waits until the kernel no longer uses any buffer.
    fn drop(&mut self) {
        let all = self.in_flight();
        self.wait(all, &mut Vec::with_capacity(all));
        // The kernel frees a ring some time after it was closed, and would hold the file until
        // then.
        if self.file_registered {
            let _ = self.io.submitter().unregister_files();
        }
    }
}

/// The entry of the submission ring for a request. `target` is the file, unless it is registered.
/// Making an entry is safe; [`Ring::push`] justifies its submission.
fn entry(
    target: Option<i32>,
    request: &mut IoRequest,
    pool: Option<&Arc<BufPool>>,
) -> squeue::Entry {
    macro_rules! with_file {
        ($op:ident $(, $argument:expr)* => $($call:tt)*) => {
            match target {
                Some(fd) => opcode::$op::new(types::Fd(fd) $(, $argument)*) $($call)*.build(),
                None => opcode::$op::new(types::Fixed(0) $(, $argument)*) $($call)*.build(),
            }
        };
    }
    let at = request.offset.get();
    #[allow(clippy::cast_possible_truncation, reason = "at most MAX_LEN")]
    let len = request.buf.len().min(MAX_LEN) as u32;
    let number = pool.and_then(|pool| request.buf.number_in(pool));
    match (request.op, number) {
        (IoOp::Read, None) => {
            with_file!(Read, request.buf.as_mut_ptr(), len => .offset(at))
        }
        (IoOp::Read, Some(number)) => {
            with_file!(ReadFixed, request.buf.as_mut_ptr(), len, number => .offset(at))
        }
        (IoOp::Write, None) => with_file!(Write, request.buf.as_ptr(), len => .offset(at)),
        (IoOp::Write, Some(number)) => {
            with_file!(WriteFixed, request.buf.as_ptr(), len, number => .offset(at))
        }
        (IoOp::Flush, _) => {
            with_file!(Fsync => .flags(types::FsyncFlags::DATASYNC))
        }
    }
}
