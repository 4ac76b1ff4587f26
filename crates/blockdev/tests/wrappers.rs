//! Wrappers over devices that fail: a queue passes them, and a latch remembers what they lost.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io;
use std::sync::Arc;

use extant_blockdev::{
    BlockDevice, FileDevice, FileIo, FileQueues, IoBuf, IoOp, IoRequest, LatchedDevice,
    MemoryDevice, OpenMode, Queueing, open_queue,
};
use extant_testkit::{Event, Fault, FaultyDevice, Loss, LossyDevice, Recorder, Request, TempDir};
use extant_units::DevOff;

fn is_latched(result: io::Result<()>) -> bool {
    result.is_err_and(|error| error.to_string().contains("an earlier flush"))
}

#[test]
fn wrappers_see_what_goes_through_a_queue() {
    let plan = |request: Request<'_>| match request.offset.get() {
        4096 => Fault::Fail(io::ErrorKind::StorageFull),
        _ => Fault::Pass,
    };
    let dir = TempDir::new("wrappers").unwrap();
    let path = dir.join("file");
    std::fs::write(&path, [0; 1 << 16]).unwrap();
    let io = FileIo {
        direct: false,
        queues: FileQueues::Auto,
    };
    let file = FileDevice::open_with(&path, OpenMode::ReadWrite, io).unwrap();
    // The submitting thread makes the requests of the one, threads those of the other.
    let inner: [Arc<dyn BlockDevice>; 2] = [Arc::new(MemoryDevice::new(1 << 16)), Arc::new(file)];
    for (number, inner) in inner.into_iter().enumerate() {
        let recorder = Arc::new(Recorder::new(FaultyDevice::new(inner, plan)));
        let device: Arc<dyn BlockDevice> = recorder.clone();
        let threads = matches!(device.queueing(4), Queueing::Threads);
        assert_eq!(threads, number == 1);
        let mut queue = open_queue(&device, 4);
        let mut submit = |op, at, len| {
            let (offset, buf) = (DevOff::new(at), IoBuf::copy_of(&vec![9; len]));
            let request = IoRequest {
                op,
                offset,
                buf,
                tag: at,
            };
            queue.submit(request).unwrap();
            let mut done = Vec::new();
            queue.drain(&mut done);
            done.pop().unwrap().result.map_err(|error| error.kind())
        };
        assert_eq!(submit(IoOp::Write, 0, 512), Ok(()));
        let full = Err(io::ErrorKind::StorageFull);
        assert_eq!(submit(IoOp::Write, 4096, 512), full);
        assert_eq!(submit(IoOp::Flush, 1, 0), Ok(()));
        let events = recorder.events();
        assert_eq!((events.len(), &events[2]), (3, &Event::Flush { covers: 2 }));
    }
}

#[test]
fn after_one_failed_flush_none_succeeds() {
    let lossy = Arc::new(LossyDevice::new(MemoryDevice::new(4096)));
    let device = LatchedDevice::new(lossy.clone());
    device.write_durable(DevOff::ZERO, &[1; 512]).unwrap();
    device.flush().unwrap();
    assert_eq!(device.latch().failure().map(ToString::to_string), None);
    // The failure of a write past the end does not concern earlier writes.
    assert!(device.write_durable(DevOff::new(4096), &[1]).is_err());
    device.flush().unwrap();
    device.write_at(DevOff::ZERO, &[2; 512]).unwrap();
    lossy.fail(Loss {
        after: 0,
        seed: 1,
        cached: true,
    });
    let first = device.flush().unwrap_err();
    assert_eq!(first.to_string(), "the host lost writes");
    assert!(
        device
            .latch()
            .failure()
            .unwrap()
            .to_string()
            .contains("lost writes")
    );
    for _ in 0..3 {
        assert!(is_latched(device.flush()));
        assert!(is_latched(device.write_durable(DevOff::ZERO, &[3; 512])));
    }
    lossy.flush().unwrap();
    let mut seen = [0; 512];
    device.read_at(DevOff::ZERO, &mut seen).unwrap();
    assert_eq!(
        seen, [2; 512],
        "a durable write that is refused writes nothing"
    );
    // A note passes, and repairs nothing.
    device.write_note(DevOff::new(512), &[4; 512]).unwrap();
    assert!(is_latched(device.flush()));
    lossy.crash(9).unwrap();
    device.read_at(DevOff::new(512), &mut seen).unwrap();
    assert_eq!(seen, [4; 512]);
    let failed = ("device_flush_failed", 1);
    assert!(device.counters().contains(&failed));
}

#[test]
fn a_failed_durable_write_or_note_is_remembered_as_well() {
    type Call = fn(&LatchedDevice) -> io::Result<()>;
    let calls: [Call; 3] = [
        |device| device.flush(),
        |device| device.write_durable(DevOff::ZERO, &[1; 512]),
        |device| device.write_note(DevOff::ZERO, &[1; 512]),
    ];
    for (nth, call) in calls.iter().enumerate() {
        for after in 0..=u64::from(nth == 1) {
            let lossy = Arc::new(LossyDevice::new(MemoryDevice::new(4096)));
            let device = LatchedDevice::new(lossy.clone());
            lossy.fail(Loss {
                after,
                seed: 1,
                cached: true,
            });
            assert!(call(&device).is_err(), "{nth} {after}");
            assert!(is_latched(device.flush()), "{nth} {after}");
        }
    }
}
