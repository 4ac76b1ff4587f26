use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use std::io;

use extant_units::DevOff;

use super::*;
use crate::MemoryDevice;
use crate::io_buf::IoBuf;
use crate::null::NullDevice;
use crate::queue::{Completion, IoOp, IoRequest};
use crate::thread_queue::ThreadQueue;

fn request(op: IoOp, offset: u64, buf: IoBuf, tag: u64) -> IoRequest {
    IoRequest {
        op,
        offset: DevOff::new(offset),
        buf,
        tag,
    }
}

/// Both kinds of queue over one device.
fn both(device: &Arc<dyn BlockDevice>, depth: usize) -> [Box<dyn IoQueue>; 2] {
    [
        open_queue(device, depth),
        Box::new(ThreadQueue::new(Arc::clone(device), depth)),
    ]
}

#[test]
fn what_was_written_is_read_and_every_tag_comes_back_once() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(1 << 20));
    for mut queue in both(&device, 8) {
        let mut done = Vec::new();
        for tag in 0..64u64 {
            let mut buf = queue.buffer(4096);
            buf.fill(u8::try_from(tag).unwrap());
            while queue.in_flight() == queue.depth() {
                queue.reap(1, &mut done);
            }
            queue
                .submit(request(IoOp::Write, tag * 4096, buf, tag))
                .unwrap();
        }
        queue.drain(&mut done);
        assert_eq!(queue.in_flight(), 0);
        let mut tags: Vec<u64> = done.iter().map(|c| c.tag).collect();
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..64));
        assert!(done.iter().all(|c| c.result.is_ok()));
        for Completion { tag, buf, .. } in done.drain(..) {
            queue
                .submit(request(IoOp::Read, (63 - tag) * 4096, buf, tag))
                .unwrap_or_else(|full| {
                    // The other 8 are in flight: this one goes past the queue.
                    device.read_at(full.offset, &mut vec![0; 4096]).unwrap();
                });
        }
        queue.drain(&mut done);
        assert_eq!(done.len(), 8);
        for c in &done {
            assert!(c.buf.iter().all(|&b| u64::from(b) == 63 - c.tag));
        }
    }
}

#[test]
fn a_full_queue_gives_the_request_back_and_errors_come_with_completions() {
    let device: Arc<dyn BlockDevice> = Arc::new(NullDevice::new(8192));
    for mut queue in both(&device, 2) {
        let past = request(IoOp::Write, 8192, IoBuf::zeroed(512), 1);
        queue.submit(past).unwrap();
        queue
            .submit(request(IoOp::Flush, 0, IoBuf::default(), 2))
            .unwrap();
        let back = queue
            .submit(request(IoOp::Read, 512, IoBuf::zeroed(100), 3))
            .unwrap_err();
        assert_eq!((back.tag, back.buf.len()), (3, 100));
        let mut done = Vec::new();
        queue.reap(2, &mut done);
        let by_tag: BTreeMap<u64, bool> = done.iter().map(|c| (c.tag, c.result.is_ok())).collect();
        assert_eq!(by_tag, BTreeMap::from([(1, false), (2, true)]));
        queue.submit(back).unwrap();
        queue.reap(99, &mut done);
        assert_eq!((done.len(), queue.in_flight()), (3, 0));
        // Nothing to wait for.
        queue.reap(1, &mut done);
    }
}

/// Requests wait until a number of them are there.
struct Meeting {
    needed: usize,
    here: Mutex<usize>,
    all_here: Condvar,
    finished: AtomicUsize,
}

impl BlockDevice for Meeting {
    fn len(&self) -> u64 {
        1 << 20
    }
    fn read_at(&self, _: DevOff, _: &mut [u8]) -> io::Result<()> {
        panic!("a read that goes wrong");
    }
    fn write_at(&self, _: DevOff, _: &[u8]) -> io::Result<()> {
        let mut here = self.here.lock();
        *here += 1;
        self.all_here.notify_all();
        while *here < self.needed {
            self.all_here.wait(&mut here);
        }
        self.finished.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn threads_have_as_many_in_flight_as_asked_for_and_a_drop_waits_for_all() {
    let meeting = Arc::new(Meeting {
        needed: 8,
        here: Mutex::new(0),
        all_here: Condvar::new(),
        finished: AtomicUsize::new(0),
    });
    let device: Arc<dyn BlockDevice> = meeting.clone();
    let mut queue = open_queue(&device, 8);
    for tag in 0..7 {
        queue
            .submit(request(IoOp::Write, 0, IoBuf::zeroed(1), tag))
            .unwrap();
    }
    let mut done = Vec::new();
    queue.reap(0, &mut done);
    assert_eq!((done.len(), queue.in_flight()), (0, 7));
    queue
        .submit(request(IoOp::Write, 0, IoBuf::zeroed(1), 7))
        .unwrap();
    drop(queue);
    assert_eq!(meeting.finished.load(Ordering::Relaxed), 8);
}

#[test]
fn a_device_that_panics_is_an_error() {
    let device: Arc<dyn BlockDevice> = Arc::new(Meeting {
        needed: 0,
        here: Mutex::new(0),
        all_here: Condvar::new(),
        finished: AtomicUsize::new(0),
    });
    let mut queue = open_queue(&device, 1);
    for tag in 0..2 {
        queue
            .submit(request(IoOp::Read, 0, IoBuf::zeroed(1), tag))
            .unwrap();
        let mut done = Vec::new();
        queue.drain(&mut done);
        assert!(done[0].result.is_err());
    }
}
