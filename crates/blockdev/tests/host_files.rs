//! Files and block devices of the host, moved by every kind of I/O: through the host's cache and
//! past it, by threads and by io_uring. All of them must be the same device.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use extant_blockdev::{
    BlockDevice, Completion, FileDevice, FileIo, FileQueues, IoBuf, IoOp, IoQueue, IoRequest,
    OpenError, OpenMode, Queueing, open_queue,
};
use extant_testkit::{Cmd, LoopDevice, Need, Rng, TempDir, need, patience};
use extant_units::DevOff;

const LEN: usize = 256 << 10;
const LEN_U64: u64 = LEN as u64;

const WAYS: [FileIo; 4] = [
    FileIo::SYSCALLS,
    FileIo::IO_URING,
    FileIo {
        direct: true,
        queues: FileQueues::Threads,
    },
    FileIo {
        direct: false,
        queues: FileQueues::Auto,
    },
];

/// A file in the directory of temporary files, or a block device over one, with sectors of two
/// sizes.
struct Disk {
    path: PathBuf,
    _device: Option<LoopDevice>,
    _dir: TempDir,
}

fn disks() -> Vec<Disk> {
    let make = |sector: Option<u32>| {
        let dir = TempDir::new("host-files").unwrap();
        let path = dir.join("disk");
        File::create(&path).unwrap().set_len(LEN_U64).unwrap();
        let device = sector.map(|sector| LoopDevice::over(&path, sector).unwrap());
        Disk {
            path: device.as_ref().map_or(path, |d| d.path().to_owned()),
            _device: device,
            _dir: dir,
        }
    };
    let mut all = vec![make(None)];
    if need(&[Need::Loop]) {
        all.extend([make(Some(512)), make(Some(4096))]);
    }
    all
}

/// Opens it. A process that another test is starting just now shares the files of this one, a block
/// device that was closed included, until it executes its program.
fn open(path: &Path, io: FileIo) -> FileDevice {
    let end = Instant::now() + patience(Duration::from_secs(60));
    loop {
        match FileDevice::open_with(path, OpenMode::ReadWrite, io) {
            Err(OpenError::InUse(..)) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened.unwrap(),
        }
    }
}

fn at(offset: usize) -> DevOff {
    DevOff::new(offset as u64)
}

/// Part of the device: often of whole sectors, often not, sometimes at its end.
fn range(rng: &mut Rng) -> (usize, usize) {
    let unit = [1, 512, 4096, 4096][rng.index(4)];
    let start = rng.index(LEN / unit) * unit;
    let len = (1 + rng.index(20 << 10) / unit) * unit;
    (start, len.min(LEN - start))
}

/// One random operation on the device and on the bytes that it should have.
fn step(device: &FileDevice, model: &mut [u8], rng: &mut Rng) {
    let (start, len) = range(rng);
    let byte = |rng: &mut Rng| rng.next_u64().to_le_bytes()[0];
    match rng.below(6) {
        0 => {
            let mut buf = IoBuf::zeroed(len);
            device.read_at(at(start), &mut buf).unwrap();
            assert!(*buf == model[start..start + len]);
        }
        1 => {
            // Into memory that is not aligned, in pieces.
            let mut bytes = vec![0; len + 3];
            let (_, rest) = bytes.split_at_mut(3);
            let (one, two) = rest.split_at_mut(rng.index(len));
            let mut bufs = [IoSliceMut::new(one), IoSliceMut::new(two)];
            device.read_vectored_at(at(start), &mut bufs).unwrap();
            assert!(bytes[3..] == model[start..start + len]);
        }
        2 => {
            let mut buf = IoBuf::zeroed(len);
            buf.fill(byte(rng));
            device.write_at(at(start), &buf).unwrap();
            model[start..start + len].copy_from_slice(&buf);
        }
        3 => {
            let bytes = vec![byte(rng); len + 1];
            device.write_at(at(start), &bytes[1..]).unwrap();
            model[start..start + len].copy_from_slice(&bytes[1..]);
        }
        4 => {
            let mut buf = IoBuf::zeroed(len);
            buf.fill(byte(rng));
            let cut = [len / 2, len / 1024 * 512][rng.index(2)];
            let bufs = [
                IoSlice::new(&buf[..cut]),
                IoSlice::new(&[]),
                IoSlice::new(&buf[cut..]),
            ];
            device.write_vectored_at(at(start), &bufs).unwrap();
            model[start..start + len].copy_from_slice(&buf);
        }
        _ => {
            let bytes = vec![byte(rng); len];
            device.write_durable(at(start), &bytes).unwrap();
            model[start..start + len].copy_from_slice(&bytes);
        }
    }
}

fn submit(queue: &mut dyn IoQueue, op: IoOp, offset: usize, buf: IoBuf) {
    let request = IoRequest {
        op,
        offset: at(offset),
        buf,
        tag: offset as u64,
    };
    assert!(queue.submit(request).is_ok());
}

/// Disjoint ranges, all in flight at once: some written, some read.
fn burst(queue: &mut dyn IoQueue, model: &mut [u8], rng: &mut Rng) {
    let mut start = rng.index(6000);
    let mut reads = BTreeMap::new();
    let mut done = Vec::new();
    while start < LEN && queue.in_flight() < queue.depth() {
        let unit = [1, 512, 4096][rng.index(3)];
        start = start.next_multiple_of(unit);
        let len = ((1 + rng.index(4)) * unit).min(LEN.saturating_sub(start));
        if len == 0 {
            break;
        }
        let mut buf = match rng.below(2) {
            0 => queue.buffer(len),
            _ => IoBuf::zeroed(len),
        };
        if rng.chance(50) {
            buf.fill(rng.next_u64().to_le_bytes()[0]);
            model[start..start + len].copy_from_slice(&buf);
            submit(queue, IoOp::Write, start, buf);
        } else {
            reads.insert(start as u64, len);
            submit(queue, IoOp::Read, start, buf);
        }
        start += len;
        if rng.chance(10) {
            queue.reap(1, &mut done);
        }
    }
    queue.drain(&mut done);
    for Completion { tag, buf, result } in done {
        result.unwrap();
        if let Some(len) = reads.remove(&tag) {
            let start = usize::try_from(tag).unwrap();
            assert!(buf.len() == len && *buf == model[start..start + len]);
        }
    }
    assert!(reads.is_empty());
}

#[test]
fn every_way_is_the_same_device() {
    if !need(&[Need::IoUring]) {
        return;
    }
    for (number, place) in disks().into_iter().enumerate() {
        let mut model = vec![0; LEN];
        for (seed, io) in (0..12).zip(WAYS.into_iter().cycle()) {
            let mut rng = Rng::new(seed);
            // Each finds what the one before has left.
            let device = Arc::new(open(&place.path, io));
            let rings = io.queues != FileQueues::Threads;
            if number > 0 {
                let sector = [0, 512, 4096][number];
                assert_eq!(device.direct_alignment(), io.direct.then_some(sector));
            }
            let shared: Arc<dyn BlockDevice> = device.clone();
            let mut queue = open_queue(&shared, 24);
            assert_eq!(device.io_uring(), rings);
            for _ in 0..60 {
                step(&device, &mut model, &mut rng);
                if rng.chance(30) {
                    burst(&mut *queue, &mut model, &mut rng);
                }
            }
            submit(&mut *queue, IoOp::Flush, 0, IoBuf::default());
            drop(queue);
            let counters: BTreeMap<_, _> = device.counters().into_iter().collect();
            assert_eq!(counters["uring_requests"] > 0, rings);
            assert_eq!(
                counters["device_copied"] > 0,
                device.direct_alignment().is_some()
            );
            let mut all = vec![0; LEN];
            device.read_at(DevOff::ZERO, &mut all).unwrap();
            assert!(all == model, "{io:?}, seed {seed}");
        }
    }
}

#[test]
fn many_threads_share_a_device() {
    if !need(&[Need::IoUring]) {
        return;
    }
    const THREADS: usize = 6;
    // Not a multiple of any sector: neighbours cut the same units.
    const PART: usize = LEN / THREADS;
    for place in disks() {
        for io in WAYS {
            let device: Arc<dyn BlockDevice> = Arc::new(open(&place.path, io));
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let device = Arc::clone(&device);
                    scope.spawn(move || {
                        let mut rng = Rng::new(thread as u64);
                        let mut queue = (thread % 2 == 0).then(|| open_queue(&device, 4));
                        let mut mine = vec![0; PART];
                        device.write_at(at(thread * PART), &mine).unwrap();
                        for round in 0..100u8 {
                            let start = rng.index(PART);
                            let len = (PART - start).min(1 + rng.index(3000));
                            let mut buf = IoBuf::zeroed(len);
                            buf.fill(round);
                            mine[start..start + len].fill(round);
                            let offset = thread * PART + start;
                            let Some(queue) = &mut queue else {
                                device.write_at(at(offset), &buf).unwrap();
                                continue;
                            };
                            submit(&mut **queue, IoOp::Write, offset, buf);
                            // The next one may overlap.
                            let mut done = Vec::new();
                            queue.drain(&mut done);
                            assert!(done[0].result.is_ok());
                        }
                        let mut back = vec![0; PART];
                        device.read_at(at(thread * PART), &mut back).unwrap();
                        assert!(back == mine);
                    });
                }
            });
        }
    }
}

/// All that writing `len` bytes of `device` through a queue says.
fn fill(device: &Arc<dyn BlockDevice>, len: usize) -> Vec<io::Result<()>> {
    let mut queue = open_queue(device, 8);
    let mut done = Vec::new();
    for offset in (0..len).step_by(16 << 10) {
        while queue.in_flight() == queue.depth() {
            queue.reap(1, &mut done);
        }
        let mut buf = queue.buffer(16 << 10);
        buf.fill(1);
        submit(&mut *queue, IoOp::Write, offset, buf);
    }
    queue.drain(&mut done);
    done.into_iter().map(|c| c.result).collect()
}

#[test]
fn a_full_disk_below_is_an_error_and_no_more() {
    if !need(&[Need::IoUring, Need::Loop, Need::Tool("mke2fs")]) {
        return;
    }
    // Through the cache, and past it.
    for kind in ["tmpfs", "ext4"] {
        let dir = TempDir::new("full-below").unwrap();
        let below = dir.join("below");
        std::fs::create_dir(&below).unwrap();
        if kind == "tmpfs" {
            let mount = ["-t", "tmpfs", "-o", "size=1m", "none"];
            Cmd::new("mount").args(mount).arg(&below).ok().unwrap();
        } else {
            let disk = dir.join("disk");
            File::create(&disk).unwrap().set_len(2 << 20).unwrap();
            let mke2fs = Cmd::new("mke2fs").args(["-q", "-F", "-t", "ext4", "-O", "^has_journal"]);
            mke2fs.arg(&disk).ok().unwrap();
            let mount = Cmd::new("mount").args(["-o", "loop"]).arg(&disk);
            mount.arg(&below).ok().unwrap();
        }
        let _mounted = Unmount(below.clone());
        let path = below.join("sparse");
        File::create(&path).unwrap().set_len(8 << 20).unwrap();
        for io in WAYS {
            let device: Arc<dyn BlockDevice> = Arc::new(open(&path, io));
            let results = fill(&device, 4 << 20);
            assert_eq!(results.len(), 256);
            let kinds = results.iter().filter_map(|r| r.as_ref().err());
            let kinds: Vec<_> = kinds.map(io::Error::kind).collect();
            assert!(!kinds.is_empty() && kinds.len() < 256, "{kind}, {io:?}");
            assert!(
                kinds.iter().all(|&k| k == io::ErrorKind::StorageFull),
                "{kind}, {io:?}: {kinds:?}"
            );
            let mut first = [0; 16];
            device.read_at(DevOff::ZERO, &mut first).unwrap();
            assert_eq!(first, [1; 16]);
        }
    }
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        // The kernel may hold the file of a ring a moment longer.
        for _ in 0..100 {
            let umount = Cmd::new("umount").arg(&self.0).ok();
            if umount.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_file_that_was_cut_short_ends_reads_with_an_error() {
    if !need(&[Need::IoUring]) {
        return;
    }
    let dir = TempDir::new("cut-short").unwrap();
    let path = dir.join("file");
    for io in WAYS {
        std::fs::write(&path, vec![5; LEN]).unwrap();
        let device: Arc<dyn BlockDevice> = Arc::new(open(&path, io));
        let mut queue = open_queue(&device, 4);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(8192 + 512).unwrap();
        for offset in [0, 4096, 8192, 65536] {
            submit(&mut *queue, IoOp::Read, offset, IoBuf::zeroed(4096));
        }
        let mut done = Vec::new();
        queue.drain(&mut done);
        let kinds: BTreeMap<u64, Option<io::ErrorKind>> = done
            .iter()
            .map(|c| (c.tag, c.result.as_ref().err().map(io::Error::kind)))
            .collect();
        let past = Some(io::ErrorKind::UnexpectedEof);
        let expected = [(0, None), (4096, None), (8192, past), (65536, past)];
        assert_eq!(kinds, BTreeMap::from(expected), "{io:?}");
    }
}

#[test]
fn what_is_empty_or_past_the_end_is_answered_by_every_way() {
    if !need(&[Need::IoUring]) {
        return;
    }
    for place in disks() {
        for io in WAYS {
            let device: Arc<dyn BlockDevice> = Arc::new(open(&place.path, io));
            let mut queue = open_queue(&device, 8);
            let empty = queue.buffer(0);
            submit(&mut *queue, IoOp::Read, 1, empty);
            submit(&mut *queue, IoOp::Write, 2, IoBuf::default());
            // The end is the end, for what comes near it as for what is far behind.
            submit(&mut *queue, IoOp::Write, LEN, IoBuf::default());
            submit(&mut *queue, IoOp::Write, LEN - 4096, IoBuf::zeroed(8192));
            submit(&mut *queue, IoOp::Read, LEN - 1, IoBuf::zeroed(2));
            submit(&mut *queue, IoOp::Read, usize::MAX - 1, IoBuf::zeroed(4096));
            let mut done = Vec::new();
            queue.drain(&mut done);
            let mut ok: Vec<usize> = done
                .iter()
                .filter(|c| c.result.is_ok())
                .map(|c| usize::try_from(c.tag).unwrap())
                .collect();
            ok.sort_unstable();
            assert_eq!((done.len(), ok), (6, vec![1, 2, LEN]), "{io:?}");
            let failed = done.iter().filter_map(|c| c.result.as_ref().err());
            let kinds: Vec<_> = failed.map(io::Error::kind).collect();
            assert_eq!(kinds, [io::ErrorKind::InvalidInput; 3]);
        }
    }
}

#[test]
fn readers_are_refused_writes_and_locks_hold_for_every_way() {
    if !need(&[Need::IoUring]) {
        return;
    }
    let dir = TempDir::new("locks").unwrap();
    let path = dir.join("file");
    std::fs::write(&path, vec![5; LEN]).unwrap();
    for io in WAYS {
        let writer = open(&path, io);
        for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
            let second = FileDevice::open_with(&path, mode, io);
            assert!(matches!(second, Err(OpenError::InUse(..))));
        }
        // A queue that outlives its device keeps the lock: it may still write.
        let writer: Arc<dyn BlockDevice> = Arc::new(writer);
        let left = open_queue(&writer, 2);
        drop(writer);
        let second = FileDevice::open_with(&path, OpenMode::ReadOnly, io);
        assert!(matches!(second, Err(OpenError::InUse(..))));
        drop(left);
        let reader = FileDevice::open_with(&path, OpenMode::ReadOnly, io).unwrap();
        let reader: Arc<dyn BlockDevice> = Arc::new(reader);
        let mut queue = open_queue(&reader, 4);
        submit(&mut *queue, IoOp::Write, 0, IoBuf::zeroed(4096));
        submit(&mut *queue, IoOp::Flush, 1, IoBuf::default());
        submit(&mut *queue, IoOp::Read, 2, IoBuf::zeroed(100));
        let mut done = Vec::new();
        queue.drain(&mut done);
        let ok: BTreeMap<u64, bool> = done.iter().map(|c| (c.tag, c.result.is_ok())).collect();
        assert_eq!(ok, BTreeMap::from([(0, false), (1, true), (2, true)]));
    }
    assert!(std::fs::read(&path).unwrap().iter().all(|&b| b == 5));
}

/// Has the kernel answer this thread's `io_uring_setup` with `errno`.
fn forbid(errno: i32) {
    let load = |offset| filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let give = |value| filter(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    let setup = u32::try_from(libc::SYS_io_uring_setup).unwrap();
    let errno = u32::try_from(errno).unwrap();
    let mut program = [
        // The number of the call comes first.
        load(0),
        filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, setup),
        give(libc::SECCOMP_RET_ERRNO | errno),
        give(libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap(),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the first call takes numbers only; the second copies the program, which is there and
    // as long as it says.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const filter,
            )
    };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

fn filter(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt,
        jf,
        k,
    }
}

#[test]
fn where_the_kernel_refuses_system_calls_do_the_same() {
    let dir = TempDir::new("refused").unwrap();
    let path = dir.join("file");
    let words = [
        (libc::EPERM, "not permitted"),
        (libc::ENOSYS, "no io_uring"),
    ];
    let past = FileIo {
        direct: true,
        queues: FileQueues::Auto,
    };
    for ((errno, word), io) in words.into_iter().zip([FileIo::IO_URING, past]) {
        std::fs::write(&path, vec![0; LEN]).unwrap();
        // A filter holds for the thread that sets it.
        let thread = std::thread::spawn({
            let path = path.clone();
            move || {
                forbid(errno);
                let device = open(&path, io);
                // Without `IO_URING` the ring is tried with the first queue.
                assert_eq!(device.refusal().is_some(), io == FileIo::IO_URING);
                assert!(matches!(device.queueing(4), Queueing::Threads));
                device
            }
        });
        let device = Arc::new(thread.join().unwrap());
        assert!(!device.io_uring());
        let why = device.refusal().unwrap().to_string();
        assert!(why.contains(word), "{why}");
        // For good.
        assert!(matches!(device.queueing(4), Queueing::Threads));
        let shared: Arc<dyn BlockDevice> = device.clone();
        assert!(fill(&shared, LEN).iter().all(Result::is_ok));
        assert!(device.counters().contains(&("device_io_uring", 0)));
        drop((shared, device));
        assert!(std::fs::read(&path).unwrap().iter().all(|&b| b == 1));
    }
}
