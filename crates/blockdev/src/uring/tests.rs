use std::path::PathBuf;

use extant_testkit::{Need, TempDir, need};
use extant_units::DevOff;

use super::*;
use crate::host_file::Claimed;

struct Rig {
    _dir: TempDir,
    path: PathBuf,
    host: Arc<HostFile>,
}

/// A file of `len` bytes 7, past the cache where it can be; `None` without io_uring.
fn rig(len: usize) -> Option<Rig> {
    if !need(&[Need::IoUring]) {
        return None;
    }
    let dir = TempDir::new("uring").unwrap();
    let path = dir.join("file");
    std::fs::write(&path, vec![7; len]).unwrap();
    let open = || File::options().read(true).write(true).open(&path).unwrap();
    let claimed = Claimed {
        file: open(),
        mark: None,
    };
    let host = HostFile::new(claimed, Some(open()), len as u64, false, true);
    let host = Arc::new(host);
    Some(Rig {
        _dir: dir,
        path,
        host,
    })
}

impl Rig {
    fn queue(&self, depth: usize) -> io::Result<UringQueue> {
        UringQueue::new(&self.host, self.host.for_rings().unwrap(), depth)
    }
}

fn write(at: u64, byte: u8) -> IoRequest {
    IoRequest {
        op: IoOp::Write,
        offset: DevOff::new(at),
        buf: IoBuf::copy_of(&[byte; 4096]),
        tag: at,
    }
}

fn count(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[test]
fn a_refusal_has_a_text_and_keeps_its_cause() {
    let refusal = |source, switch: Option<&str>| RingRefusal::Kernel {
        source: Arc::new(source),
        switch: switch.map(str::to_owned),
    };
    let tell = |errno: Errno, switch| refusal(errno.into(), switch).to_string();
    let nosys = refusal(Errno::NOSYS.into(), None);
    let cause = std::error::Error::source(&nosys).and_then(|e| e.downcast_ref::<io::Error>());
    assert_eq!(cause.and_then(Errno::from_io_error), Some(Errno::NOSYS));
    assert!(tell(Errno::NOSYS, None).contains("no io_uring"));
    assert!(tell(Errno::PERM, Some("2\n")).contains("is 2"));
    assert!(tell(Errno::PERM, Some("1\n")).contains("privileged"));
    assert!(tell(Errno::PERM, Some("0\n")).contains("seccomp"));
    assert!(tell(Errno::NOMEM, Some("0\n")).contains("ulimit -l"));
    assert!(tell(Errno::MFILE, None).contains("open files"));
    let old = io::Error::from(io::ErrorKind::Unsupported);
    assert!(refusal(old, None).to_string().contains("5.6"));
}

#[test]
fn a_kernel_that_refuses_to_go_on_costs_the_ring_and_no_request() {
    let Some(rig) = rig(64 << 10) else { return };
    let mut queue = rig.queue(8).unwrap();
    for at in 0..4 {
        queue.submit(write(at * 4096, 1)).unwrap();
    }
    queue.kick();
    for at in 4..8 {
        queue.submit(write(at * 4096, 2)).unwrap();
    }
    queue.ring.give_up(&mut queue.ended);
    let mut done = Vec::new();
    queue.drain(&mut done);
    assert!(done.len() == 8 && done.iter().all(|c| c.result.is_ok()));
    assert_eq!(count(&rig.host.counters().finished_by_calls), 4);
    // And the queue works on, by system calls.
    let before = count(&rig.host.counters().requests);
    done.clear();
    for at in 4..8 {
        queue.submit(write(at * 4096, 3)).unwrap();
    }
    queue.drain(&mut done);
    assert!(done.iter().all(|c| c.result.is_ok()) && done.len() == 4);
    assert_eq!(count(&rig.host.counters().requests), before);
    let bytes = std::fs::read(&rig.path).unwrap();
    assert!(bytes[..4 * 4096].iter().all(|&b| b == 1));
    assert!(bytes[4 * 4096..8 * 4096].iter().all(|&b| b == 3));
}

#[test]
fn a_short_transfer_is_finished_by_calls() {
    let Some(rig) = rig(64 << 10) else { return };
    for (op, moved) in [
        (IoOp::Write, Ok(512)),
        (IoOp::Read, Ok(1536)),
        (IoOp::Write, Ok(0)),
        (IoOp::Read, Err(Errno::CANCELED)),
        (IoOp::Flush, Err(Errno::CANCELED)),
    ] {
        std::fs::write(&rig.path, vec![7; 64 << 10]).unwrap();
        let request = IoRequest {
            op,
            ..write(8192, 1)
        };
        let before = count(&rig.host.counters().finished_by_calls);
        let completion = complete(&rig.host, (request, moved));
        completion.result.unwrap();
        assert_eq!(count(&rig.host.counters().finished_by_calls), before + 1);
        let from = moved.unwrap_or(0);
        let after = std::fs::read(&rig.path).unwrap();
        let written = after[8192 + from..8192 + 4096].iter().all(|&b| b == 1);
        assert_eq!(written, op == IoOp::Write);
        let read = completion.buf[from..].iter().all(|&b| b == 7);
        assert_eq!(read, op == IoOp::Read);
    }
}

#[test]
fn registered_buffers_are_used_again_and_outlive_the_queue() {
    let Some(rig) = rig(64 << 10) else { return };
    let mut queue = rig.queue(2).unwrap();
    let mut last = None;
    for round in 0..5 {
        drop(last.take());
        let mut done = Vec::new();
        for at in 0..2 {
            let mut buf = queue.buffer(4096);
            buf.fill(round);
            let request = IoRequest {
                buf,
                ..write(at * 4096, 0)
            };
            queue.submit(request).unwrap();
        }
        queue.drain(&mut done);
        assert!(done.iter().all(|c| c.result.is_ok()));
        last = done.pop();
    }
    let registered = count(&rig.host.counters().registered);
    // Locked memory may be limited; then none is.
    assert!(registered == 10 || queue.registered(1).is_none());
    drop(queue);
    assert!(last.unwrap().buf.iter().all(|&b| b == 4));
}

#[test]
fn what_a_thread_left_in_flight_when_it_ended_is_done() {
    let Some(rig) = rig(1 << 20) else { return };
    let mut queue = rig.queue(64).unwrap();
    let mut queue = std::thread::spawn(move || {
        for at in 0..64 {
            queue.submit(write(at * 4096, 9)).unwrap();
        }
        queue.kick();
        queue
    })
    .join()
    .unwrap();
    let mut done = Vec::new();
    queue.drain(&mut done);
    assert_eq!(done.len(), 64);
    assert!(done.iter().all(|c| c.result.is_ok()));
    assert!(
        std::fs::read(&rig.path).unwrap()[..64 * 4096]
            .iter()
            .all(|&b| b == 9)
    );
}

#[test]
fn a_drop_waits_for_what_is_in_flight() {
    let Some(rig) = rig(1 << 20) else { return };
    for round in 1..20 {
        let mut queue = rig.queue(64).unwrap();
        for at in 0..64 {
            queue.submit(write(at * 4096, round)).unwrap();
        }
        drop(queue);
        let mut bytes = IoBuf::zeroed(64 * 4096);
        rig.host.read(DevOff::ZERO, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&b| b == round));
    }
}
