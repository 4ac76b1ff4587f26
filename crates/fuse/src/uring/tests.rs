//! Duties of workers, and starts of rings that the kernel refuses in part, over a mount that
//! answers every request with one error.

use std::fs::File;
use std::path::Path;

use extant_testkit::{FuseRings, Need, TempDir, need};
use rustix::io::Errno as Sys;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;
use crate::abi::op;
use crate::errno::Errno;
use crate::init::{REPLY_LEN, REQUEST_LEN, Wishes, handshake, payload_len};
use crate::pool::{Habit, Pool};
use crate::reply::ReplyBuf;
use crate::request::Request;
use crate::serve::Done;

#[test]
fn each_queue_has_a_worker_to_spare() {
    let unbounded = |queues| per_queue(queues, None);
    assert_eq!([1, 4, 5, 8, 64].map(unbounded), [16, 16, 12, 8, 4]);
    // Entries of 1 MiB each come to hold a quarter.
    let bounded = |mib: u64| per_queue(2, Some(mib << 20));
    assert_eq!([16, 32, 64, 128, 1024].map(bounded), [2, 4, 8, 16, 16]);
}

#[test]
fn queues_of_processors_that_are_off_have_an_entry() {
    let processors = Processors {
        possible: 4,
        online: vec![0, 2],
    };
    let duties = duties(&processors, None);
    assert_eq!(duties.len(), 2 * per_queue(2, None) + 1);
    let queues: Vec<usize> = duties.iter().flat_map(|d| d.queues.clone()).collect();
    let entries = |queue| queues.iter().filter(|&&q| q == queue).count();
    assert_eq!(
        [0, 1, 2, 3].map(entries),
        [per_queue(2, None), 1, per_queue(2, None), 1]
    );
    let bound = duties.iter().filter(|d| d.processor == Some(d.queues[0]));
    assert_eq!(bound.count(), 2 * per_queue(2, None));
}

#[test]
fn a_worker_that_panics_closes_the_device() {
    let (ours, _theirs) = rustix::pipe::pipe().unwrap();
    let device = Device::new(ours).unwrap();
    let died = |panics: bool| {
        let work = || {
            let _close = CloseIfPanicking(&device);
            assert!(!panics, "as planned");
        };
        thread::scope(|scope| scope.spawn(work).join().is_err())
    };
    assert!(!died(false) && !device.is_gone());
    assert!(died(true) && device.is_gone());
}

/// Answers every request with the same error.
struct Refuser;

impl Serve for Refuser {
    fn may_block(&self, _: &[u8]) -> bool {
        false
    }

    fn serve(&self, request: &[u8], reply: &mut ReplyBuf<'_>) -> io::Result<Done> {
        let request = Request::new(request).unwrap();
        if let op::FORGET | op::BATCH_FORGET | op::INTERRUPT = request.header.opcode {
            return Ok(Done::Silent);
        }
        reply.finish(request.header.unique, Err(Errno::RANGE));
        Ok(Done::Reply)
    }

    fn panicked(&self, _: &[u8], _: &mut ReplyBuf<'_>) -> Done {
        panic!("again");
    }

    fn undelivered(&self, _: Done) {}
}

/// What came of a start: whether the rings carried a request, the entries that the kernel has
/// taken, and whether all workers that are asked say that they are idle.
#[derive(Debug, PartialEq)]
struct Start {
    carried: bool,
    entries: u64,
    idle: bool,
}

/// Mounts at `dir`, spoils the workers, starts them, and has the mount answer a request.
fn start_over(dir: &Path, spoil: impl FnOnce(&mut [Worker])) -> Start {
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    let fuse = fuse.unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&fuse);
    let data = format!("fd={fd},rootmode=40000,user_id=0,group_id=0\0");
    let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes()).unwrap();
    let flags = MountFlags::NODEV | MountFlags::NOSUID;
    mount("refuser", dir, "fuse.refuser", flags, data).unwrap();
    let device = Arc::new(Device::new(fuse.into()).unwrap());
    let blank = BlankRings::make(None).unwrap();
    let mut rings = Rings::prepare(&device, blank, payload_len()).unwrap();
    spoil(&mut rings.workers);
    let wishes = Wishes {
        writeback: false,
        rings: true,
        time_gran: 1,
    };
    assert!(handshake(&device, wishes).unwrap().rings);
    let traffic = Arc::clone(rings.traffic());
    let (ring_workers, workers) = (rings.workers(), 2);
    let in_flight = InFlight::new(workers + ring_workers);
    let started = thread::scope(|scope| {
        let ours = (&Refuser, &device);
        let threads = rings.start(scope, ours, (&in_flight, workers), false);
        let threads = threads.unwrap();
        let pool = Pool::new(&device, &Refuser, &in_flight, (workers, Habit::Sleep));
        let mut answer = None;
        let mut look = || {
            answer = Some(rustix::fs::statfs(dir).err());
            // What the kernel has taken it gives back as the mount ends.
            let entries = traffic.list()[0].1;
            let start = Start {
                carried: traffic.carries(),
                entries,
                idle: traffic.is_idle(),
            };
            device.close()?;
            io::Result::Ok(start)
        };
        let mut start = None;
        pool.run((REQUEST_LEN, REPLY_LEN), || {
            start = Some(look()?);
            Ok(())
        })
        .unwrap();
        for thread in threads.into_iter().flatten() {
            thread.join().unwrap().unwrap();
        }
        assert_eq!(answer, Some(Some(Sys::RANGE)));
        start.unwrap()
    });
    drop(device);
    unmount(dir, UnmountFlags::DETACH).unwrap();
    started
}

#[test]
fn rings_start_all_or_the_device_serves() {
    if !need(&[Need::Root, Need::Fuse, Need::FuseRings]) {
        return;
    }
    let _switched = FuseRings::set(true).unwrap();
    let dir = TempDir::new_in(&std::env::temp_dir(), "rings").unwrap();
    let processors = Processors::read().unwrap();
    let all = duties(&processors, None)
        .iter()
        .map(|d| d.queues.len())
        .sum::<usize>() as u64;
    let by_rings = |entries| Start {
        carried: true,
        entries,
        idle: true,
    };
    let by_device = |start: &Start| !start.carried;
    assert_eq!(start_over(dir.path(), |_| {}), by_rings(all));

    // The kernel refuses an entry that is too small.
    let is_of_last = |workers: &[Worker]| {
        let last = workers.iter().flat_map(Worker::queues).last();
        let of_last = workers.iter().map(|w| w.queues().last() == last);
        of_last.collect::<Vec<_>>()
    };
    let shrink = |workers: &mut [Worker], which: &[usize]| {
        which
            .iter()
            .for_each(|&number| workers[number].shrink_entry());
    };
    let one_of_others = |workers: &mut [Worker]| {
        if let Some(number) = is_of_last(workers).iter().position(|last| !last) {
            shrink(workers, &[number]);
        } else {
            (0..workers.len()).for_each(|number| shrink(workers, &[number]));
        }
    };
    let start = start_over(dir.path(), one_of_others);
    assert!(by_device(&start), "one of the others: {start:?}");
    let all_of_last = |workers: &mut [Worker]| {
        let last = is_of_last(workers);
        let which: Vec<usize> = (0..last.len()).filter(|&n| last[n]).collect();
        shrink(workers, &which);
    };
    let start = start_over(dir.path(), all_of_last);
    assert!(by_device(&start), "all of the last queue: {start:?}");
    let one_of_last = |workers: &mut [Worker]| {
        let last = is_of_last(workers);
        shrink(workers, &[last.iter().rposition(|&last| last).unwrap()]);
    };
    assert_eq!(start_over(dir.path(), one_of_last), by_rings(all - 1));

    // A ring that is in use already cannot be taken into use.
    let in_use = |workers: &mut [Worker]| workers[0].take_into_use();
    let start = start_over(dir.path(), in_use);
    assert!(by_device(&start), "a ring that fails: {start:?}");
}
