//! Many direct requests in flight: `extant_queue`.
//!
//! # Concurrency
//! Calls on one queue run one after the other: a submission waits for a thread that waits for
//! results. Threads that work in parallel have a queue each.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::mem;

use extant::{DirectQueue, Finished, Volume};
use parking_lot::Mutex;

use crate::arguments::{self, Out, slot};
use crate::file::{OpenFile, position};
use crate::filesystem::MountedFs;
use crate::outcome::{Failure, Handle, Result, of_call, on};

/// The operation of a request: bytes of the file into the buffer.
pub const EXTANT_READ_OP: u32 = 0;
/// The operation of a request: the buffer into the file.
pub const EXTANT_WRITE_OP: u32 = 1;

/// The most bytes of a request: what one queue may have to copy at once.
const MAX_REQUEST: usize = 64 << 20;

/// A request: `struct extant_request` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "the header documents the fields")]
pub struct Request<'a> {
    pub file: Option<&'a OpenFile>,
    pub buf: *mut u8,
    pub len: usize,
    pub pos: i64,
    pub tag: u64,
    pub op: u32,
}

/// A result: `struct extant_completion` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the header documents the fields")]
pub struct Completion {
    pub tag: u64,
    pub result: i64,
}

/// The state of a submitted request until its result is taken.
struct Slot {
    tag: u64,
    /// The memory of C that the bytes of a read go to.
    target: Option<Target>,
}

/// Memory of a read that C keeps for it until its result.
struct Target {
    ptr: *mut u8,
    len: usize,
}

// SAFETY: the memory is the request's until its result is taken, whichever thread takes it.
unsafe impl Send for Target {}

struct State {
    queue: DirectQueue,
    /// The slots of submitted requests; a request's tag in `queue` is its slot's number.
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Results that did not fit the array of the call that found them.
    ready: VecDeque<Completion>,
    /// Memory for `wait`.
    finished: Vec<Finished>,
}

/// A queue: `extant_queue` of the header.
pub struct RequestQueue {
    state: Mutex<State>,
    volume: Volume,
}

impl Handle for RequestQueue {
    fn volume(&self) -> &Volume {
        &self.volume
    }
}

impl State {
    /// A number for a new request.
    fn take_slot(&mut self, slot: Slot) -> usize {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[number] = Some(slot);
        number
    }

    /// Gives a number back.
    fn release(&mut self, number: usize) -> Option<Slot> {
        let slot = self.slots.get_mut(number)?.take()?;
        self.free.push(number);
        Some(slot)
    }

    /// Copies the bytes of a finished read to C, and keeps the result.
    fn complete(&mut self, one: Finished) {
        let number = usize::try_from(one.tag).unwrap_or(usize::MAX);
        let Some(slot) = self.release(number) else {
            debug_assert!(false, "a result without a request");
            return;
        };
        let result = match one.result {
            Err(error) => -i64::from(error.errno()),
            Ok(count) => {
                if let Some(target) = slot.target {
                    let count = count.min(target.len).min(one.buf.len());
                    // SAFETY: C keeps `len` bytes at `ptr` for the request until this result, and
                    // `count` is at most that and the length of the source. They are two objects.
                    unsafe { target.ptr.copy_from_nonoverlapping(one.buf.as_ptr(), count) };
                }
                i64::try_from(count).expect("a buffer is shorter than 2^63 bytes")
            }
        };
        let tag = slot.tag;
        self.ready.push_back(Completion { tag, result });
    }

    /// Waits for requests in flight until `min` results are ready, or none is in flight.
    fn reap(&mut self, min: usize) {
        // Zero if more are ready than the caller waits for.
        let missing = min.saturating_sub(self.ready.len());
        let mut finished = mem::take(&mut self.finished);
        self.queue.wait_into(missing, &mut finished);
        finished.drain(..).for_each(|one| self.complete(one));
        self.finished = finished;
    }
}

/// Opens a queue for up to `depth` direct requests in flight.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_queue_open(
    fs: Option<&MountedFs>,
    depth: u32,
    queue: Out<'_, *mut RequestQueue>,
) -> c_int {
    on(fs, |fs| {
        let slot = slot(queue)?;
        let depth = usize::try_from(depth)
            .ok()
            .filter(|n| (1..=4096).contains(n));
        let depth = depth.ok_or_else(|| Failure::invalid("the depth: 1 to 4096"))?;
        let state = Mutex::new(State {
            queue: fs.fs.direct_queue(depth),
            slots: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            finished: Vec::new(),
        });
        let volume = fs.fs.volume().clone();
        slot.write(Box::into_raw(Box::new(RequestQueue { state, volume })));
        Ok(0)
    })
}

/// Submits a request. Its memory is the queue's until its result is taken; that of a write only
/// during the call.
///
/// # Safety
/// As of this crate; the memory of a read stays until its result was taken or the queue is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_queue_submit(
    queue: Option<&RequestQueue>,
    request: Option<&Request<'_>>,
) -> c_int {
    on(queue, |queue| {
        let request = request.ok_or_else(|| Failure::null("the request"))?;
        // SAFETY: the memory of the request, by the contract of this crate.
        unsafe { submit(&mut queue.state.lock(), request) }
    })
}

/// As [`extant_queue_submit`], with the queue locked.
///
/// # Safety
/// The request's pointer is null or shows `len` bytes.
unsafe fn submit(state: &mut State, request: &Request<'_>) -> Result<c_int> {
    let file = request.file.ok_or_else(|| Failure::null("the file"))?;
    if !file.volume().is_same(state.queue.volume()) {
        let why = "the file is of another file system than the queue";
        return Err(Failure::new(libc::EXDEV, why));
    }
    let pos = position(request.pos)?;
    if request.len > MAX_REQUEST {
        return Err(Failure::invalid("a request of more than 64 MiB"));
    }
    if request.buf.is_null() && request.len > 0 {
        return Err(Failure::null("the buffer"));
    }
    let writes = match request.op {
        EXTANT_READ_OP => false,
        EXTANT_WRITE_OP => true,
        op => return Err(Failure::invalid(format!("operation {op}: not known"))),
    };
    let mut buf = state.queue.buffer(request.len);
    let mut target = None;
    if writes {
        // SAFETY: `len` bytes, by the caller's promise.
        buf.copy_from_slice(unsafe { arguments::data(request.buf.cast(), request.len) }?);
    } else {
        target = Some(Target {
            ptr: request.buf,
            len: request.len,
        });
    }
    let tag = request.tag;
    let number = state.take_slot(Slot { tag, target });
    let submitted = match writes {
        true => state.queue.write(&file.file, pos, buf, number as u64),
        false => state.queue.read(&file.file, pos, buf, number as u64),
    };
    if let Err(error) = submitted {
        state.release(number);
        return Err(error.into());
    }
    Ok(0)
}

/// Waits until at least `min` requests have finished, or as many as are in flight, and takes up to
/// `max` results. Returns their number.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_queue_wait(
    queue: Option<&RequestQueue>,
    min: u32,
    results: *mut Completion,
    max: u32,
) -> c_int {
    on(queue, |queue| {
        let max = usize::try_from(max).ok().filter(|&max| max <= 1 << 20);
        let max = max.ok_or_else(|| Failure::invalid("the number of results: up to 2^20"))?;
        let min = usize::try_from(min).ok().filter(|&min| min <= max);
        let min = min.ok_or_else(|| Failure::invalid("min: more than max"))?;
        // SAFETY: null or memory for `max` results, by the contract of this crate.
        let places = unsafe { arguments::places(results, max, "the results") }?;
        let mut state = queue.state.lock();
        state.reap(min);
        let count = state.ready.len().min(max);
        for (slot, one) in places.iter_mut().zip(state.ready.drain(..count)) {
            slot.write(one);
        }
        c_int::try_from(count).map_err(|_| Failure::invalid("the number of results"))
    })
}

/// Waits for what is in flight, and closes the queue. Results that were not taken are lost, and the
/// memory of their reads is not written.
///
/// # Safety
/// As of this crate; no other call uses `queue` now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_queue_close(queue: Option<Box<RequestQueue>>) -> c_int {
    of_call(|| {
        drop(queue.ok_or_else(|| Failure::null("the handle"))?);
        Ok(0)
    })
}
