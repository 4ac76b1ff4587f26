//! Direct I/O on a device that fails: the caller gets the error, and no extent is converted and no
//! size moves over data that did not arrive.
//!
//! Each operation runs on a fresh volume once for each of its device requests and each mode in
//! which that can go wrong.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use extant::{CheckOptions, Error, File, Filesystem, IoBuf, Options, Tuning, check};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_testkit::{Fault, FaultyDevice, Image, Request, RequestKind, content};

/// The file: data, a hole, preallocated space, and data that ends within a block.
const DATA: usize = 64 << 10;
const HOLE: usize = 128 << 10;
const SPACE: usize = 192 << 10;
const SIZE: usize = SPACE + 100;

/// Position and length of the write.
const WRITES: [(usize, usize); 11] = [
    (0, 8192),
    (4096, 40_960),
    (1000, 5000),
    (DATA, 8192),
    (DATA + 5000, 300),
    (HOLE + 4096, 8192),
    (HOLE + 100, 9000),
    (DATA - 4096, 80_000),
    (SPACE, 20_000),
    (SIZE, 10_000),
    (300_000, 7000),
];

/// A mounted image whose device fails one request on demand.
struct Rig {
    memory: Arc<MemoryDevice>,
    fs: Filesystem,
    /// Requests of the kind that pass before one fails; negative: none fails.
    fuse: Arc<AtomicI64>,
    options: Options,
}

impl Rig {
    fn new(base: &[u8], mount: &str, kind: RequestKind, way: Fault) -> Self {
        let memory = Arc::new(MemoryDevice::from_bytes(base));
        let fuse = Arc::new(AtomicI64::new(-1));
        let armed = fuse.clone();
        let plan = move |request: Request<'_>| {
            if request.kind == kind && armed.fetch_sub(1, Ordering::SeqCst) == 0 {
                return way;
            }
            Fault::Pass
        };
        let mut tuning = Tuning::default();
        tuning.flushers = 0;
        tuning.page_cache_bytes = Some(32 << 20);
        let mut options = Options::new();
        let mount = format!("commit=3000,{mount}");
        options.write(true).tuning(tuning);
        options.mount_options(mount.trim_end_matches(','));
        let device: Arc<dyn BlockDevice> = Arc::new(FaultyDevice::new(memory.clone(), plan));
        let fs = options.open_device(device).unwrap();
        Self {
            memory,
            fs,
            fuse,
            options,
        }
    }

    fn file(&self, direct: bool) -> File {
        let mut options = self.fs.open_options();
        options.read(true).write(true).direct(direct);
        options.open("/f").unwrap()
    }

    /// Runs `operation` with its request number `number` failing; returns whether there was one.
    fn failing<R>(&self, number: i64, operation: impl FnOnce() -> R) -> (R, bool) {
        self.fuse.store(number, Ordering::SeqCst);
        let result = operation();
        let failed = self.fuse.swap(-1, Ordering::SeqCst) < 0;
        (result, failed)
    }
}

/// An image with the file, and its content.
fn base(mkfs: &str, mount: &str) -> (Vec<u8>, Vec<u8>) {
    let image = Image::of_mib(16).args(mkfs).junk().make().unwrap();
    let mut options = Filesystem::options();
    options.write(true).mount_options(mount);
    let fs = options.open(image.path()).unwrap();
    let mut model = vec![0; SIZE];
    model[..DATA].copy_from_slice(&content::fill(1, 0, DATA));
    model[SPACE..].copy_from_slice(&content::fill(2, 0, SIZE - SPACE));
    let mut how = fs.open_options();
    let file = how.read(true).write(true).create(true).open("/f").unwrap();
    file.write_at(&model[..DATA], 0).unwrap();
    file.write_at(&model[SPACE..], SPACE as u64).unwrap();
    file.allocate(HOLE as u64..SPACE as u64).unwrap();
    drop(file);
    fs.unmount().unwrap();
    (std::fs::read(image.path()).unwrap(), model)
}

/// Reads all of a file, in one call as far as that goes.
fn all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0xee; 400_000];
    let mut done = 0;
    loop {
        match file.read_at(&mut bytes[done..], done as u64).unwrap() {
            0 => break,
            more => done += more,
        }
    }
    bytes.truncate(done);
    bytes
}

/// One write that fails, and the bytes that may be there afterwards.
fn check_write(base: &[u8], model: &[u8], mount: &str, number: i64, case: Case) -> bool {
    let Case {
        kind,
        way,
        pos,
        len,
        queued,
    } = case;
    let name = format!("{mount}: {kind:?} {number} {way:?} of {len} at {pos}, queued: {queued}");
    let rig = Rig::new(base, mount, kind, way);
    let (cached, direct) = (rig.file(false), rig.file(true));
    let new = content::fill(9, 0, len);
    let mut queue = rig.fs.direct_queue(2);
    let (wrote, failed) = rig.failing(number, || {
        if !queued {
            return direct.write_at(&new, pos as u64);
        }
        let buf = IoBuf::copy_of(&new);
        queue.write(&direct, pos as u64, buf, 7).unwrap();
        queue.wait(1).remove(0).result
    });
    let done = match wrote {
        Ok(done) => done,
        Err(Error::Io(_) | Error::NoSpace) => 0,
        Err(error) => panic!("{name}: {error}"),
    };
    assert!(failed || done == len, "{name}: {done}");
    let mut expected = model.to_vec();
    if done > 0 {
        expected.resize(model.len().max(pos + done), 0);
        expected[pos..pos + done].copy_from_slice(&new[..done]);
    }
    // Where old data was overwritten and the write was torn, a part of the new may have arrived.
    let holds = |found: &[u8], when: &str| {
        assert_eq!(found.len(), expected.len(), "{name}, {when}");
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let torn = matches!(way, Fault::Tear(_)) && failed && (pos..pos + len).contains(&at);
            let had_data = at < DATA || (SPACE..SIZE).contains(&at);
            let arrived = torn && had_data && *found == new[at - pos];
            assert!(found == expected || arrived, "{name}, {when}: byte {at}");
        }
    };
    holds(&all(&cached), "cached");
    holds(&all(&direct), "direct");
    // Zeros before the write may be lost with it, which is reported once.
    let _ = cached.sync_all();
    cached
        .sync_all()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    drop((cached, direct, queue));
    let _ = rig.fs.unmount();
    let findings = check(rig.memory.clone(), &CheckOptions::default()).unwrap();
    assert!(
        findings.findings.is_empty(),
        "{name}: {:?}",
        findings.findings
    );
    let fs = rig.options.open_device(rig.memory).unwrap();
    holds(&fs.read("/f").unwrap(), "afterwards");
    failed
}

/// One failure.
#[derive(Clone, Copy)]
struct Case {
    kind: RequestKind,
    way: Fault,
    pos: usize,
    len: usize,
    queued: bool,
}

#[test]
fn a_direct_write_that_fails_changes_nothing_but_old_data() {
    let other = Fault::Fail(ErrorKind::Other);
    let ways = [
        (RequestKind::Write, other),
        (RequestKind::Write, Fault::Fail(ErrorKind::StorageFull)),
        (RequestKind::Write, Fault::Tear(700)),
        (RequestKind::Read, other),
    ];
    let mut failures = 0;
    for (mkfs, mount) in [
        ("-b 4096", ""),
        ("-b 1024", ""),
        ("-b 4096", "nobuffered_iomap"),
    ] {
        let (base, model) = base(mkfs, mount);
        for (pos, len) in WRITES {
            for (kind, way) in ways {
                // Elsewhere reads are of metadata.
                if kind == RequestKind::Read && pos + len > DATA {
                    continue;
                }
                for queued in [false, true] {
                    let case = Case {
                        kind,
                        way,
                        pos,
                        len,
                        queued,
                    };
                    let mut number = 0;
                    while check_write(&base, &model, mount, number, case) {
                        number += 1;
                        failures += 1;
                    }
                }
            }
        }
    }
    assert!(failures > 200, "only {failures} failures");
}

#[test]
fn a_direct_read_that_fails_says_so_once() {
    let (base, model) = base("-b 4096", "");
    let rig = Rig::new(&base, "", RequestKind::Read, Fault::Fail(ErrorKind::Other));
    let direct = rig.file(true);
    let mut bytes = vec![0; 8192];
    direct.read_at(&mut bytes, 0).unwrap();
    let (read, _) = rig.failing(0, || direct.read_at(&mut bytes, 4096));
    assert!(matches!(read, Err(Error::Io(_))), "{read:?}");
    let mut queue = rig.fs.direct_queue(1);
    let (over, _) = rig.failing(0, || {
        queue.read(&direct, 0, IoBuf::zeroed(8192), 0).unwrap();
        queue.wait(1).remove(0).result
    });
    assert!(matches!(over, Err(Error::Io(_))), "{over:?}");
    assert_eq!(all(&direct), model);
    direct.sync_all().unwrap();
}
