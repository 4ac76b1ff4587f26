//! The kernel's ring, and the memory it works on.
//!
//! # Why it is sound
//! The kernel reads and writes the memory of a request at any time between its submission and its completion. So a ring
//! works only on buffers it owns: [`Ring::push`] takes the request with its [`IoBuf`], keeps both in a slot whose number
//! travels with the request, and gives them out again when the completion with that number has come. Between the two
//! nothing here touches the buffer, and its heap memory does not move when the slot does. No borrowed memory is ever given
//! to the kernel, so nothing depends on a caller to wait. Dropping a ring waits for every completion before any slot is
//! freed; a ring that is forgotten leaks its slots with it.
//!
//! # Concurrency
//! One thread at a time (`&mut`), not always the same. The kernel cancels what a thread has submitted when that thread
//! ends: such completions say `ECANCELED`, and are for the caller to do again.

#![allow(unsafe_code, reason = "what a ring shares with the kernel")]

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use io_uring::{EnterFlags, IoUring, Probe, opcode, squeue, types};
use rustix::io::Errno;

use crate::io_buf::{BufPool, IoBuf};
use crate::queue::{IoOp, IoRequest};

/// The most requests that a ring has in flight.
pub(super) const MOST: usize = 1024;
/// The most bytes that one request asks the kernel for; what is behind them comes out as a short transfer.
const LONGEST: usize = 1 << 30;
/// The memory that a ring registers, and the limits for a piece of it.
const REGISTERED: usize = 4 << 20;
const PIECES: std::ops::RangeInclusive<usize> = (4 << 10)..=(64 << 10);
/// How often, and with what pauses, a kernel that has no memory for a submission is asked again.
const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_millis(1);

/// A request that is over, and how many bytes the kernel says it moved.
pub(super) struct Finished {
    pub(super) request: IoRequest,
    pub(super) moved: Result<usize, Errno>,
    /// It used a registered buffer.
    pub(super) registered: bool,
}

/// Has the kernel make a ring.
///
/// # Errors
/// What the kernel says; [`io::ErrorKind::Unsupported`] if it has rings, but lacks what is needed here.
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
    /// What is in flight, by the number that the kernel knows it by.
    slots: Vec<Option<IoRequest>>,
    free: Vec<usize>,
    /// Slots in the submission ring that the kernel has not taken.
    queued: VecDeque<usize>,
    /// Registered buffers, once somebody asked for one; then their number is what the kernel knows them by.
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
    /// As [`set_up`].
    pub(super) fn new(file: &Arc<File>, depth: usize) -> io::Result<Self> {
        let depth = depth.clamp(1, MOST);
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

    /// A buffer whose memory the kernel knows already, if there is one of that size left.
    pub(super) fn buffer(&mut self, len: usize) -> Option<IoBuf> {
        if self.pool.is_none() && !self.pool_refused {
            self.pool = self.register_buffers();
            self.pool_refused = self.pool.is_none();
        }
        self.pool.as_ref()?.lend(len)
    }

    /// Registers buffers; `None` if the kernel does not want them (locked memory is limited).
    fn register_buffers(&self) -> Option<Arc<BufPool>> {
        let depth = self.slots.len();
        let piece = (REGISTERED / depth).clamp(*PIECES.start(), *PIECES.end());
        let pool = BufPool::new(u16::try_from(depth).ok()?, piece);
        let mut pieces = Vec::with_capacity(depth);
        pool.for_each_free(|_, bytes| {
            pieces.push(libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: bytes.len(),
            });
        });
        // SAFETY: each piece is memory of the pool, whole and once. Its buffers' memory is freed neither while they are
        // lent nor when they come back, but with the pool, which the ring keeps until `io` is closed (drop order of the
        // fields). The kernel touches it only for requests that name it, which is for `entry` to justify.
        let registered = unsafe { self.io.submitter().register_buffers(&pieces) };
        registered.is_ok().then_some(pool)
    }

    /// Takes a request; the kernel gets it with the next [`Ring::wait`].
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
        let Some(slot) = self.slots.get_mut(number) else {
            return Err(request);
        };
        // First to its place, then its address is taken.
        let request = slot.insert(request);
        let target = (!self.file_registered).then(|| self.file.as_raw_fd());
        let entry = entry(target, request, self.pool.as_ref()).user_data(number as u64);
        // SAFETY: the entry names the memory of the slot's buffer, which nobody touches or frees until the completion
        // with this number empties the slot (`collect`), or the entry is known not to have reached the kernel and never
        // to reach it (`give_up`). The file is open for as long as the ring is.
        let pushed = unsafe { self.io.submission().push(&entry) };
        match pushed {
            Ok(()) => {
                self.queued.push_back(number);
                Ok(())
            }
            // Not reached: there are as many entries as slots. The kernel has not seen the request.
            Err(_) => self.release(number).map_or(Ok(()), Err),
        }
    }

    /// Has the kernel begin everything that was pushed, waits until `min` requests (or all, if fewer are in flight) are
    /// finished, and adds those that are. Returns how often the kernel was called.
    pub(super) fn wait(&mut self, min: usize, finished: &mut Vec<Finished>) -> u64 {
        let enough = finished.len() + min.min(self.in_flight());
        let mut enters = 0;
        let mut refusals = 0;
        self.collect(finished);
        while finished.len() < enough || !self.queued.is_empty() {
            enters += 1;
            let before = finished.len();
            let entered = self.enter(enough.saturating_sub(before));
            self.collect(finished);
            match entered {
                Ok(()) | Err(Errno::INTR) => {}
                Err(error) => {
                    let for_now = matches!(error, Errno::AGAIN | Errno::BUSY | Errno::NOMEM);
                    refusals += 1;
                    if self.dead || (for_now && refusals < TRIES) {
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

    /// Calls the kernel once.
    fn enter(&mut self, want: usize) -> Result<(), Errno> {
        #[cfg(test)]
        if let Some(error) = self.refuse_next_enter.take() {
            return Err(error);
        }
        let entered = if self.dead {
            let want = u32::try_from(want).unwrap_or(u32::MAX);
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
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }

    /// Takes what is in the completion ring.
    fn collect(&mut self, finished: &mut Vec<Finished>) {
        let pool = self.pool.as_ref();
        for completion in self.io.completion() {
            let number = usize::try_from(completion.user_data()).unwrap_or(usize::MAX);
            // The kernel is done with the slot's buffer.
            let Some(request) = self.slots.get_mut(number).and_then(Option::take) else {
                continue;
            };
            self.free.push(number);
            let moved = match completion.result() {
                error @ ..0 => Err(Errno::from_raw_os_error(-error)),
                bytes => Ok(usize::try_from(bytes).unwrap_or(0)),
            };
            let registered = pool.is_some_and(|pool| request.buf.number_in(pool).is_some());
            finished.push(Finished {
                request,
                moved,
                registered,
            });
        }
    }

    /// Submits nothing any more. What the kernel has not taken ends with `ECANCELED`.
    fn give_up(&mut self, finished: &mut Vec<Finished>) {
        // From here on the entries that are left in the submission ring stay there: every call of the kernel says "0 to
        // submit". So their buffers can be given back.
        self.dead = true;
        while let Some(number) = self.queued.pop_front() {
            finished.extend(self.release(number).map(|request| Finished {
                request,
                moved: Err(Errno::CANCELED),
                registered: false,
            }));
        }
    }

    /// Empties a slot that the kernel does not know of.
    fn release(&mut self, number: usize) -> Option<IoRequest> {
        let request = self.slots.get_mut(number).and_then(Option::take)?;
        self.free.push(number);
        Some(request)
    }
}

impl Drop for Ring {
    /// Waits for the kernel to be done with all buffers.
    fn drop(&mut self) {
        let all = self.in_flight();
        self.wait(all, &mut Vec::with_capacity(all));
        // The kernel takes a ring apart some time after it was closed, and would hold the file until then.
        if self.file_registered {
            let _ = self.io.submitter().unregister_files();
        }
    }
}

/// What the kernel is told. `target` is the file, unless it is registered. Naming memory is harmless; submitting the
/// entry is what [`Ring::push`] has to justify.
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
    let len = u32::try_from(request.buf.len().min(LONGEST)).unwrap_or(u32::MAX);
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
