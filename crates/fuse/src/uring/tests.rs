//! Duties of workers, and rings that the kernel refuses in part or at times, over a mount that
//! answers every request with one error.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use extant_testkit::{FuseRings, Need, TempDir, need};
use rustix::io::Errno as Sys;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::*;
use crate::abi::op;
use crate::errno::Errno;
use crate::init::{REPLY_LEN, REQUEST_LEN, RequestedFeatures, handshake, payload_len};
use crate::pool::{IdlePolicy, Pool};
use crate::reply::ReplyBuf;
use crate::request::Request;
use crate::serve::Completion;

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

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
    let all = duties(&processors, None);
    let queues: Vec<usize> = all.iter().flat_map(|d| d.queues.clone()).collect();
    let entries = |queue| queues.iter().filter(|&&q| q == queue).count();
    let busy = per_queue(2, None);
    assert_eq!([0, 1, 2, 3].map(entries), [busy, FEWEST, busy, FEWEST]);
    assert_eq!(all.len(), queues.len(), "a worker for each entry");
    let bound = all.iter().filter(|d| d.processor == Some(d.queues[0]));
    assert_eq!(bound.count(), 2 * busy);
}

#[test]
fn many_processors_that_are_off_share_some_workers() {
    let processors = Processors {
        possible: 100,
        online: vec![0],
    };
    let all = duties(&processors, None);
    let off: Vec<&Duty> = all.iter().filter(|d| d.processor.is_none()).collect();
    assert_eq!(off.len(), WORKERS_OF_OFF);
    for queue in 1..100 {
        let of_queue = off.iter().filter(|d| d.queues.contains(&queue));
        assert_eq!(of_queue.count(), FEWEST, "{queue}");
    }
    assert!(off.iter().all(|d| d.queues.len() <= 7), "evenly");
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
#[derive(Default)]
struct Refuser {
    /// So many STATFSs are to be served at once: they wait for one another.
    together: AtomicUsize,
    /// So many are, or were.
    here: AtomicUsize,
}

impl Refuser {
    /// Serves a STATFS. Returns whether the others came.
    fn meet(&self) -> bool {
        self.here.fetch_add(1, Ordering::SeqCst);
        let begun = Instant::now();
        while self.here.load(Ordering::SeqCst) < self.together.load(Ordering::SeqCst) {
            if begun.elapsed() > LONG / 4 {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

impl Serve for Refuser {
    fn may_block(&self, _: &[u8]) -> bool {
        false
    }

    fn serve(&self, request: &[u8], reply: &mut ReplyBuf<'_>) -> io::Result<Completion> {
        let request = Request::new(request).unwrap();
        if let op::FORGET | op::BATCH_FORGET | op::INTERRUPT = request.header.opcode {
            return Ok(Completion::Silent);
        }
        let alone = request.header.opcode == op::STATFS && !self.meet();
        let error = if alone { Errno::INTR } else { Errno::RANGE };
        reply.finish(request.header.unique, Err(error));
        Ok(Completion::Reply)
    }

    fn fail_after_panic(&self, _: &[u8], _: &mut ReplyBuf<'_>) -> Completion {
        panic!("again");
    }

    fn undo_undelivered(&self, _: Completion) {}
}

/// What came of a start: whether the rings carried a request, the entries that the kernel has
/// taken, and whether all workers that are asked say that they are idle.
#[derive(Debug, PartialEq)]
struct Start {
    carried: bool,
    entries: u64,
    idle: bool,
}

/// A request that a thread makes of the mount at `dir`, on `processor` if one is given. It may
/// never be answered as long as there is the mount.
fn ask(dir: &Path, processor: Option<usize>) -> Receiver<Option<Sys>> {
    let (dir, (answer, answered)) = (dir.to_owned(), channel());
    thread::spawn(move || {
        if let Some(processor) = processor {
            let mut set = CpuSet::new();
            set.set(processor);
            sched_setaffinity(None, &set).unwrap();
        }
        // Once it is late nothing listens.
        let _ = answer.send(rustix::fs::statfs(&dir).err());
    });
    answered
}

/// A mount whose rings are started. What happens on the way, none of which panics: that would be a
/// hang.
struct Course<'a> {
    /// That its rings know of.
    processors: Processors,
    /// Spoils the workers before they are started.
    spoil: &'a mut dyn FnMut(&mut [Worker]),
    /// After the rings were agreed on, before they are started.
    agreed: &'a mut dyn FnMut(),
    /// While the mount answers.
    serving: &'a mut dyn FnMut(&Refuser, &Traffic),
}

/// Mounts at `dir`, spoils the workers, starts them, and has the mount answer a request.
fn start_over(dir: &Path, mut spoil: impl FnMut(&mut [Worker])) -> Start {
    let course = Course {
        processors: Processors::read().unwrap(),
        spoil: &mut spoil,
        agreed: &mut || {},
        serving: &mut |_, _| {},
    };
    course.run(dir)
}

impl Course<'_> {
    fn run(self, dir: &Path) -> Start {
        let fuse = File::options().read(true).write(true).open("/dev/fuse");
        let fuse = fuse.unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&fuse);
        let data = format!("fd={fd},rootmode=40000,user_id=0,group_id=0\0");
        let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes()).unwrap();
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        mount("refuser", dir, "fuse.refuser", flags, data).unwrap();
        let device = Arc::new(Device::new(fuse.into()).unwrap());
        let blank = BlankRings::of(self.processors, None).unwrap();
        let mut rings = Rings::prepare(&device, blank, payload_len()).unwrap();
        (self.spoil)(&mut rings.workers);
        let requested = RequestedFeatures {
            writeback: false,
            rings: true,
            kernel_checks: true,
            time_gran: 1,
        };
        assert!(handshake(&device, requested).unwrap().rings);
        (self.agreed)();
        let (answer, start) = serve(&device, rings, dir, self.serving);
        drop(device);
        unmount(dir, UnmountFlags::DETACH).unwrap();
        assert_eq!(answer, Ok(Some(Sys::RANGE)));
        start
    }
}

/// What a request made while the mount answers is answered; an error if it is not.
type Answer = Result<Option<Sys>, std::sync::mpsc::RecvTimeoutError>;

/// Has `rings` serve, or the device, until one request was answered and `serving` has returned.
fn serve(
    device: &Arc<Device>,
    rings: Rings,
    dir: &Path,
    serving: &mut dyn FnMut(&Refuser, &Traffic),
) -> (Answer, Start) {
    let traffic = Arc::clone(rings.traffic());
    let (ring_workers, workers) = (rings.workers(), 2);
    let in_flight = InFlight::new(workers + ring_workers);
    let refuser = Refuser::default();
    thread::scope(|scope| {
        let ours = (&refuser, device);
        let threads = rings.start(scope, ours, (&in_flight, workers), false);
        let threads = threads.unwrap();
        let pool = Pool::new(device, &refuser, &in_flight, (workers, IdlePolicy::Sleep));
        let mut seen = None;
        let ready = || {
            let answer = ask(dir, None).recv_timeout(LONG);
            serving(&refuser, &traffic);
            // What the kernel has taken it gives back as the mount ends.
            let entries = traffic.list()[0].1;
            let carried = traffic.carries();
            // Each try has little time.
            let begun = Instant::now();
            let mut idle = traffic.is_idle();
            while carried && !idle && begun.elapsed() < LONG {
                idle = traffic.is_idle();
            }
            let start = Start {
                carried,
                entries,
                idle,
            };
            seen = Some((answer, start));
            device.close()
        };
        let served = pool.run((REQUEST_LEN, REPLY_LEN), ready);
        for thread in threads.into_iter().flatten() {
            thread.join().unwrap().unwrap();
        }
        served.unwrap();
        seen.unwrap()
    })
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
    let start = start_over(dir.path(), one_of_others);
    assert!(by_device(&start), "one of the others: {start:?}");
    let start = start_over(dir.path(), all_of_last);
    assert!(by_device(&start), "all of the last queue: {start:?}");
    assert_eq!(start_over(dir.path(), one_of_last), by_rings(all - 1));

    // A ring that is in use already cannot be taken into use.
    let in_use = |workers: &mut [Worker]| workers[0].take_into_use();
    let start = start_over(dir.path(), in_use);
    assert!(by_device(&start), "a ring that fails: {start:?}");

    // Where memory is short for a while the entries are registered later.
    let later = |workers: &mut [Worker]| workers.iter_mut().for_each(|w| w.lack_memory(3));
    assert_eq!(start_over(dir.path(), later), by_rings(all));
    let later_refused = |workers: &mut [Worker]| {
        all_of_last(workers);
        workers.iter_mut().for_each(|w| w.lack_memory(3));
    };
    let start = start_over(dir.path(), later_refused);
    assert!(by_device(&start), "refused later: {start:?}");
    let never = |workers: &mut [Worker]| workers[0].lack_memory(u32::MAX);
    let start = start_over(dir.path(), never);
    assert!(by_device(&start), "never registered: {start:?}");
}

/// The numbers of the workers that have an entry of the last queue, and of the others.
fn last_and_others(workers: &[Worker]) -> (Vec<usize>, Vec<usize>) {
    let last = workers.iter().flat_map(Worker::queues).last();
    (0..workers.len()).partition(|&number| workers[number].queues().last() == last)
}

fn shrink(workers: &mut [Worker], which: &[usize]) {
    let each = which.iter();
    each.for_each(|&number| workers[number].shrink_entry());
}

fn one_of_others(workers: &mut [Worker]) {
    let (last, others) = last_and_others(workers);
    shrink(
        workers,
        others.first().map_or(&last[..], std::slice::from_ref),
    );
}

fn all_of_last(workers: &mut [Worker]) {
    let (last, _) = last_and_others(workers);
    shrink(workers, &last);
}

fn one_of_last(workers: &mut [Worker]) {
    let (last, _) = last_and_others(workers);
    shrink(workers, &last[last.len() - 1..]);
}

/// The kernel's switch, which has one user at a time.
struct Switch(Option<FuseRings>);

impl Switch {
    fn set(&mut self, on: bool) {
        self.0 = None;
        self.0 = Some(FuseRings::set(on).unwrap());
    }
}

/// The kernel has refused an entry, so it minds the switch, which is off.
#[test]
fn rings_that_were_declined_before_are_declined() {
    if !need(&[Need::Root, Need::Fuse, Need::FuseRings]) {
        return;
    }
    let mut switch = Switch(None);
    switch.set(true);
    let dir = TempDir::new_in(&std::env::temp_dir(), "rings").unwrap();
    let course = Course {
        processors: Processors::read().unwrap(),
        spoil: &mut all_of_last,
        agreed: &mut || switch.set(false),
        serving: &mut |_, _| {},
    };
    assert!(!course.run(dir.path()).carried);
}

/// The kernel has refused one of the entries, so it minds the switch. The others carry requests.
#[test]
fn a_switch_that_goes_off_stops_rings_until_it_is_on_again() {
    if !need(&[Need::Root, Need::Fuse, Need::FuseRings]) {
        return;
    }
    let mut switch = Switch(None);
    switch.set(true);
    let dir = TempDir::new_in(&std::env::temp_dir(), "rings").unwrap();
    let mut seen = None;
    let mut serving = |_: &Refuser, traffic: &Traffic| {
        switch.set(false);
        let enters = || traffic.list()[1].1;
        let before = enters();
        let asked = ask(dir.path(), None);
        // The worker gives its reply, and gives it again.
        let begun = Instant::now();
        while enters() < before + 3 && begun.elapsed() < LONG {
            thread::sleep(Duration::from_millis(1));
        }
        let early = asked.try_recv();
        switch.set(true);
        seen = Some((early, asked.recv_timeout(LONG)));
    };
    let course = Course {
        processors: Processors::read().unwrap(),
        spoil: &mut one_of_last,
        agreed: &mut || {},
        serving: &mut serving,
    };
    assert!(course.run(dir.path()).carried);
    let (early, late) = seen.unwrap();
    assert!(early.is_err(), "answered while it was off: {early:?}");
    assert_eq!(late, Ok(Some(Sys::RANGE)));
}

/// A processor that was off when the mount began has callers that do not wait for one another.
#[test]
fn a_processor_that_is_switched_on_later_has_more_than_one_worker() {
    if !need(&[Need::Root, Need::Fuse, Need::FuseRings]) {
        return;
    }
    let Processors { possible, online } = Processors::read().unwrap();
    let [first, .., late] = online[..] else {
        eprintln!("SKIPPED: there is one processor");
        return;
    };
    let _switched = FuseRings::set(true).unwrap();
    let dir = TempDir::new_in(&std::env::temp_dir(), "rings").unwrap();
    let mut answers = Vec::new();
    let mut serving = |refuser: &Refuser, _: &Traffic| {
        let here = refuser.here.load(Ordering::SeqCst);
        refuser.together.store(here + FEWEST, Ordering::SeqCst);
        let asked: Vec<_> = (0..FEWEST).map(|_| ask(dir.path(), Some(late))).collect();
        answers.extend(asked.into_iter().map(|one| one.recv_timeout(LONG)));
    };
    let course = Course {
        processors: Processors {
            possible,
            online: vec![first],
        },
        spoil: &mut |_| {},
        agreed: &mut || {},
        serving: &mut serving,
    };
    assert!(course.run(dir.path()).carried);
    assert_eq!(answers, [Ok(Some(Sys::RANGE)); FEWEST]);
}
