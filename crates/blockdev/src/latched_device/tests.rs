//! Every caller whose writes a failed flush may have lost gets an error.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use parking_lot::{Condvar, Mutex};

use super::*;
use crate::open_queue;
use crate::queue::{Completion, IoOp, IoRequest};
use crate::{FileDevice, FileIo, FileQueues, IoBuf, MemoryDevice, OpenMode};

/// A device whose flushes wait for permission, and fail once.
struct Gated {
    memory: MemoryDevice,
    open: Mutex<bool>,
    changed: Condvar,
    inside: AtomicU64,
    flushes: AtomicU64,
    fail_next: AtomicBool,
    zeroed: AtomicU64,
}

impl Gated {
    fn new(open: bool) -> Arc<Self> {
        Arc::new(Self {
            memory: MemoryDevice::new(4096),
            open: Mutex::new(open),
            changed: Condvar::new(),
            inside: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            fail_next: AtomicBool::new(false),
            zeroed: AtomicU64::new(0),
        })
    }

    fn open(&self) {
        *self.open.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until a flush is inside.
    fn entered(&self) {
        while self.inside.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
    }
}

impl BlockDevice for Gated {
    fn len(&self) -> u64 {
        self.memory.len()
    }
    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, buf)
    }
    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.memory.write_at(offset, buf)
    }
    fn write_zeroes(&self, _offset: DevOff, len: u64) -> io::Result<()> {
        self.zeroed.fetch_add(len, Ordering::SeqCst);
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        assert_eq!(
            self.inside.fetch_add(1, Ordering::SeqCst),
            0,
            "one at a time"
        );
        let failed = self.fail_next.swap(false, Ordering::SeqCst);
        let mut open = self.open.lock();
        while !*open {
            self.changed.wait(&mut open);
        }
        drop(open);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        if failed {
            return Err(io::Error::other("planned"));
        }
        Ok(())
    }
}

/// Waits until that many callers wait for a flush to end.
fn all_wait(device: &LatchedDevice, callers: usize) {
    while device.latch().waiting() < callers {
        thread::yield_now();
    }
}

fn is_latched(result: io::Result<()>) -> bool {
    result.is_err_and(|error| error.to_string().contains("an earlier flush"))
}

/// A device that knows a better way to write zeros is asked for it, unless writes are refused.
#[test]
fn zeros_are_left_to_the_device() {
    let gated = Gated::new(true);
    let device = LatchedDevice::new(gated.clone());
    device.write_zeroes(DevOff::new(512), 1024).unwrap();
    assert_eq!(gated.zeroed.load(Ordering::SeqCst), 1024);
    device.latch().sever();
    assert!(device.write_zeroes(DevOff::new(512), 1024).is_err());
    assert_eq!(gated.zeroed.load(Ordering::SeqCst), 1024);
}

#[test]
fn later_errors_keep_the_first_one_as_their_cause() {
    /// A device whose flush fails with `ENOSPC`.
    struct Full(MemoryDevice);
    impl BlockDevice for Full {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
            self.0.read_at(offset, buf)
        }
        fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
            self.0.write_at(offset, buf)
        }
        fn flush(&self) -> io::Result<()> {
            Err(io::Error::from_raw_os_error(28))
        }
    }
    let device = LatchedDevice::new(Arc::new(Full(MemoryDevice::new(512))));
    assert_eq!(device.flush().unwrap_err().raw_os_error(), Some(28));
    let later = device.flush().unwrap_err();
    let cause = later.get_ref().and_then(|error| error.source());
    let cause = cause.and_then(|error| error.downcast_ref::<io::Error>());
    assert_eq!(cause.and_then(io::Error::raw_os_error), Some(28));
}

#[test]
fn a_flush_that_arrives_during_a_failing_one_fails_too() {
    let gated = Gated::new(false);
    gated.fail_next.store(true, Ordering::SeqCst);
    let device = LatchedDevice::new(gated.clone());
    thread::scope(|s| {
        let first = s.spawn(|| device.flush());
        gated.entered();
        let calls: Vec<_> = (0..4)
            .map(|nth| {
                let device = &device;
                s.spawn(move || match nth {
                    0 => device.write_durable(DevOff::ZERO, &[1; 512]),
                    _ => device.flush(),
                })
            })
            .collect();
        all_wait(&device, calls.len());
        gated.open();
        let first = first.join().unwrap().unwrap_err();
        assert_eq!(first.to_string(), "planned");
        for call in calls {
            assert!(is_latched(call.join().unwrap()));
        }
    });
    assert_eq!(gated.flushes.load(Ordering::SeqCst), 1);
}

#[test]
fn callers_that_wait_share_the_next_flush() {
    let gated = Gated::new(false);
    let device = LatchedDevice::new(gated.clone());
    thread::scope(|s| {
        let first = s.spawn(|| device.flush());
        gated.entered();
        let calls: Vec<_> = (0..8).map(|_| s.spawn(|| device.flush())).collect();
        all_wait(&device, calls.len());
        gated.open();
        first.join().unwrap().unwrap();
        for call in calls {
            call.join().unwrap().unwrap();
        }
    });
    let (made, shared) = (
        gated.flushes.load(Ordering::SeqCst),
        device.latch().shared(),
    );
    assert_eq!(
        (made, shared),
        (2, 7),
        "the running one may have missed their writes"
    );
}

#[test]
fn a_panic_in_a_flush_is_a_failure() {
    struct Panicking(MemoryDevice);
    impl BlockDevice for Panicking {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
            self.0.read_at(offset, buf)
        }
        fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
            self.0.write_at(offset, buf)
        }
        fn flush(&self) -> io::Result<()> {
            panic!("planned")
        }
    }
    let device = LatchedDevice::new(Arc::new(Panicking(MemoryDevice::new(512))));
    let flush = std::panic::AssertUnwindSafe(|| device.flush());
    assert!(std::panic::catch_unwind(flush).is_err());
    assert!(is_latched(device.flush()), "and nothing hangs");
}

/// The result of a flush in a queue of depth 2 to `device`.
fn queued_flush(device: &Arc<dyn BlockDevice>) -> io::Result<()> {
    let mut queue = open_queue(device, 2);
    let request = IoRequest {
        op: IoOp::Flush,
        offset: DevOff::ZERO,
        buf: IoBuf::zeroed(0),
        tag: 7,
    };
    queue.submit(request).unwrap();
    assert_eq!(queue.in_flight(), 1);
    let mut done: Vec<Completion> = Vec::new();
    queue.drain(&mut done);
    assert_eq!((done.len(), done[0].tag, queue.in_flight()), (1, 7, 0));
    done.remove(0).result
}

#[test]
fn flushes_in_queues_obey_the_latch_and_set_it() {
    for fails_in_queue in [false, true] {
        let gated = Gated::new(true);
        let device: Arc<dyn BlockDevice> = Arc::new(LatchedDevice::new(gated.clone()));
        queued_flush(&device).unwrap();
        gated.fail_next.store(true, Ordering::SeqCst);
        if fails_in_queue {
            assert!(queued_flush(&device).is_err());
            assert!(is_latched(device.flush()));
        } else {
            assert!(device.flush().is_err());
        }
        assert!(is_latched(queued_flush(&device)));
    }
}

/// A device with a queue of its own, of a file with rings where the kernel has them.
#[test]
fn a_devices_own_queue_does_not_flush_past_the_latch() {
    let path = std::env::temp_dir().join(format!("extant-latched-{}", std::process::id()));
    std::fs::File::create(&path).unwrap().set_len(8192).unwrap();
    let io = FileIo {
        direct: false,
        queues: FileQueues::Auto,
    };
    let file = FileDevice::open_with(&path, OpenMode::ReadWrite, io).unwrap();
    let latched = LatchedDevice::new(Arc::new(file));
    let latch = latched.latch().clone();
    let device: Arc<dyn BlockDevice> = Arc::new(latched);
    queued_flush(&device).unwrap();
    let mut queue = open_queue(&device, 2);
    assert!(
        latch
            .run_unlatched(|| Err(io::Error::other("planned")))
            .is_err()
    );
    assert!(is_latched(queued_flush(&device)));
    // Reads and writes continue.
    for (tag, op) in [(1, IoOp::Write), (2, IoOp::Read)] {
        let (offset, buf) = (DevOff::ZERO, IoBuf::zeroed(4096));
        let request = IoRequest {
            op,
            offset,
            buf,
            tag,
        };
        queue.submit(request).unwrap();
        let mut done = Vec::new();
        queue.reap(1, &mut done);
        done.remove(0).result.unwrap();
    }
    drop((queue, device));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_severed_device_is_read_and_never_written() {
    let path = std::env::temp_dir().join(format!("extant-severed-{}", std::process::id()));
    std::fs::write(&path, [1; 8192]).unwrap();
    let file = FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
    let latched = LatchedDevice::new(Arc::new(file));
    let latch = Arc::clone(latched.latch());
    let device: Arc<dyn BlockDevice> = Arc::new(latched);
    let mut queue = open_queue(&device, 2);
    latch.sever();
    assert!(device.write_at(DevOff::ZERO, &[2; 512]).is_err());
    let pieces = [io::IoSlice::new(&[2; 512])];
    assert!(device.write_vectored_at(DevOff::ZERO, &pieces).is_err());
    assert!(device.write_durable(DevOff::ZERO, &[2; 512]).is_err());
    assert!(device.write_note(DevOff::ZERO, &[2; 512]).is_err());
    assert!(device.discard(DevOff::ZERO, 4096).is_err());
    let request = IoRequest {
        op: IoOp::Write,
        offset: DevOff::ZERO,
        buf: IoBuf::zeroed(4096),
        tag: 1,
    };
    queue.submit(request).unwrap();
    let mut done = Vec::new();
    queue.drain(&mut done);
    assert!(done.remove(0).result.is_err());
    let mut seen = [0; 8192];
    device.read_at(DevOff::ZERO, &mut seen).unwrap();
    assert_eq!(seen, [1; 8192]);
    drop((queue, device));
    std::fs::remove_file(path).unwrap();
}
