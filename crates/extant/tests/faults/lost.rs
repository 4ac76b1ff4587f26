//! A host that loses writes and reports that once: no caller gets an acknowledgement for lost data,
//! whichever caller got the report.
//!
//! # Responsibility
//! Several callers ask for durability in every order, and one flush of the device fails. The caller
//! that meets it gets the error, and so must all later ones. After a power cut of the host, all
//! acknowledged data must be there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use extant::{CheckOptions, Cred, File, Filesystem, IoBuf, Options, Tuning, check};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_failpoint::{ActiveFailpoint, Failpoint};
use extant_testkit::{Image, Loss, LossyDevice};
use extant_units::DevOff;

/// The files, and their size.
const NAMES: [&str; 3] = ["/A", "/B", "/C"];
const LEN: usize = 24 << 10;
const EIO: i32 = 5;
const EROFS: i32 = 30;

type Host = LossyDevice<Arc<MemoryDevice>>;

/// A caller that asks for durability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    /// fdatasync of B.
    DatasyncB,
    /// fsync of A.
    FsyncA,
    /// A new directory, and syncfs: the commit thread.
    Commit,
    /// A write to C in a queue, and its fdatasync.
    QueueC,
    Unmount,
}

const CALLS: [Call; 5] = [
    Call::DatasyncB,
    Call::FsyncA,
    Call::Commit,
    Call::QueueC,
    Call::Unmount,
];

/// A volume and how it is mounted.
#[derive(Clone, Copy, Debug)]
struct Kind {
    mkfs: &'static str,
    mount: &'static str,
}

const KINDS: [Kind; 5] = [
    Kind {
        mkfs: "-b 1024",
        mount: "",
    },
    Kind {
        mkfs: "-b 4096",
        mount: "errors=continue",
    },
    Kind {
        mkfs: "-b 1024",
        mount: "nobuffered_iomap,data=journal",
    },
    Kind {
        mkfs: "-t ext3 -b 1024",
        mount: "nodelalloc",
    },
    Kind {
        mkfs: "-b 1024 -O ^has_journal",
        mount: "",
    },
];

impl Kind {
    fn has_log(self) -> bool {
        !self.mkfs.contains("^has_journal")
    }

    fn options(self, failpoint: ActiveFailpoint) -> Options {
        let mut tuning = Tuning::default();
        tuning.flushers = 0;
        tuning.page_cache_bytes = Some(32 << 20);
        tuning.failpoint = failpoint;
        let mut options = Options::new();
        let mount = format!("commit=3000,{}", self.mount);
        options.write(true).cred(Cred::root()).tuning(tuning);
        options.mount_options(mount.trim_end_matches(','));
        options
    }

    /// An image with the files, all ones.
    fn base(self) -> Vec<u8> {
        let image = Image::of_mib(8).args(self.mkfs).make().unwrap();
        let fs = Filesystem::options().write(true).open(image.path());
        let fs = fs.unwrap();
        for name in NAMES {
            fs.write(name, [1; LEN]).unwrap();
        }
        fs.unmount().unwrap();
        std::fs::read(image.path()).unwrap()
    }
}

/// A mounted volume on a host that loses writes.
struct Rig {
    kind: Kind,
    host: Arc<Host>,
    fs: Option<Filesystem>,
    /// Direct and cached openers of each file.
    direct: Vec<File>,
    cached: Vec<File>,
    /// Files whose new content was acknowledged, and directories.
    promised: BTreeMap<&'static str, u8>,
    made: Vec<&'static str>,
    /// A call has failed.
    reported: bool,
    trouble: Vec<String>,
}

fn errno<T>(result: &extant::Result<T>) -> i32 {
    result.as_ref().err().map_or(0, extant::Error::errno)
}

impl Rig {
    fn new(kind: Kind, base: &[u8], failpoint: ActiveFailpoint) -> Self {
        let memory = Arc::new(MemoryDevice::from_bytes(base));
        let host = Arc::new(LossyDevice::new(memory));
        let device: Arc<dyn BlockDevice> = host.clone();
        let fs = kind.options(failpoint).open_device(device).unwrap();
        let open = |direct: bool| {
            NAMES.map(|name| {
                let mut how = fs.open_options();
                how.read(true).write(true).direct(direct);
                how.open(name).unwrap()
            })
        };
        let (direct, cached) = (open(true).into(), open(false).into());
        Self {
            kind,
            host,
            fs: Some(fs),
            direct,
            cached,
            promised: NAMES.map(|name| (name, 1)).into(),
            made: Vec::new(),
            reported: false,
            trouble: Vec::new(),
        }
    }

    /// Writes A and B past the cache. Neither is durable.
    fn overwrite(&self) {
        for file in &self.direct[..2] {
            file.write_at(&[2; LEN], 0).unwrap();
        }
    }

    fn call(&mut self, call: Call) {
        let Some(fs) = &self.fs else { return };
        let mut covers = Vec::new();
        let result = match call {
            Call::DatasyncB => {
                covers.push(NAMES[1]);
                self.direct[1].sync_data()
            }
            Call::FsyncA => {
                covers.push(NAMES[0]);
                self.direct[0].sync_all()
            }
            Call::Commit => {
                covers.extend([NAMES[0], NAMES[1]]);
                // Without a log a directory may be torn.
                let name = self.kind.has_log().then_some("/d");
                let made = name.map_or(Ok(()), |name| fs.create_dir(name));
                let durable = made.and_then(|()| fs.sync());
                if durable.is_ok() {
                    self.made.extend(name);
                }
                durable
            }
            Call::QueueC => {
                let mut queue = fs.direct_queue(1);
                let buf = IoBuf::copy_of(&[2; LEN]);
                let wrote = match queue.write(&self.direct[2], 0, buf, 0) {
                    Ok(()) => queue.wait(1).remove(0).result.map(drop),
                    Err(error) => Err(error),
                };
                covers.extend(wrote.is_ok().then_some(NAMES[2]));
                wrote.and_then(|()| self.direct[2].sync_data())
            }
            Call::Unmount => {
                covers.extend([NAMES[0], NAMES[1]]);
                self.direct.clear();
                self.cached.clear();
                self.fs.take().map_or(Ok(()), Filesystem::unmount)
            }
        };
        let failed = self.host.failures() > 0;
        match result {
            Ok(()) => {
                let covers = covers.into_iter().map(|name| (name, 2));
                self.promised.extend(covers);
                if failed {
                    let what = format!("{call:?} was promised what may be lost");
                    self.trouble.push(what);
                }
            }
            Err(error) if !failed => self.trouble.push(format!("{call:?}: {error}")),
            Err(error) if ![EIO, EROFS].contains(&error.errno()) => {
                self.trouble.push(format!("{call:?}: {error}"));
            }
            Err(_) => self.reported = true,
        }
    }

    /// Each opener that has not asked yet gets the error of lost data once, and then that the file
    /// system refuses changes.
    fn ask_the_others(&mut self) {
        for (name, file) in NAMES.iter().zip(&self.cached) {
            let answers = [file.sync_data(), file.sync_all()].map(|result| errno(&result));
            if answers != [EIO, EROFS] {
                let text = format!("an opener of {name} that had not asked: {answers:?}");
                self.trouble.push(text);
            }
        }
        let Some(fs) = &self.fs else { return };
        let refused = [errno(&fs.create_dir("/late")), errno(&fs.sync())];
        if refused != [EROFS; 2] {
            self.trouble
                .push(format!("changes afterwards: {refused:?}"));
        }
        // Reads go on.
        let read = fs.read(NAMES[0]).map(|bytes| bytes.len());
        if !matches!(read, Ok(LEN)) {
            self.trouble.push(format!("a read afterwards: {read:?}"));
        }
    }

    /// The host loses its power; everything acknowledged must be there.
    fn end(mut self, seed: u64) -> Vec<String> {
        let failed = self.host.failures() > 0;
        if failed && self.fs.is_some() {
            self.ask_the_others();
        }
        self.call(Call::Unmount);
        self.host.crash(seed).unwrap();
        let memory = self.host.inner().clone();
        if failed && !needs_care(&memory) {
            self.trouble.push("the volume is marked clean".into());
        }
        if let Err(why) = self.judge(&memory) {
            self.trouble.push(why);
        }
        self.trouble
    }

    fn judge(&self, memory: &Arc<MemoryDevice>) -> Result<(), String> {
        let options = self.kind.options(ActiveFailpoint::default());
        let fs = options.open_device(memory.clone());
        let fs = fs.map_err(|error| format!("mount: {error}"))?;
        for (name, version) in &self.promised {
            let bytes = fs.read(name).map_err(|error| format!("{name}: {error}"))?;
            if bytes.len() != LEN || bytes.iter().any(|byte| !(*version..=2).contains(byte)) {
                return Err(format!("{name} was promised version {version}: it is lost"));
            }
        }
        for name in &self.made {
            fs.metadata(name)
                .map_err(|error| format!("{name} was durable: {error}"))?;
        }
        fs.unmount().map_err(|error| format!("unmount: {error}"))?;
        if self.kind.has_log() {
            let report = check(memory.clone(), &CheckOptions::default());
            let report = report.map_err(|error| format!("check: {error}"))?;
            if let Some(finding) = report.findings.first() {
                return Err(format!("check: {finding}"));
            }
        }
        Ok(())
    }
}

/// Returns whether the superblock says that the volume needs a replay or a check: RECOVER in the
/// incompatible features, or no VALID in the state.
fn needs_care(memory: &MemoryDevice) -> bool {
    let mut superblock = [0; 1024];
    memory.read_at(DevOff::new(1024), &mut superblock).unwrap();
    superblock[0x60] & 4 != 0 || superblock[0x3a] & 1 == 0
}

/// All orders of the calls; an unmount ends them.
fn orders() -> Vec<Vec<Call>> {
    fn extend(order: &mut Vec<Call>, all: &mut Vec<Vec<Call>>) {
        let mut longer = false;
        if order.last() != Some(&Call::Unmount) {
            for call in CALLS {
                if !order.contains(&call) {
                    longer = true;
                    order.push(call);
                    extend(order, all);
                    order.pop();
                }
            }
        }
        if !longer {
            all.push(order.clone());
        }
    }
    let mut all = Vec::new();
    extend(&mut Vec::new(), &mut all);
    all
}

/// One order, and the flush that fails in it: returns what went wrong, and whether a flush failed.
fn run(
    kind: Kind,
    base: &[u8],
    order: &[Call],
    loss: Loss,
    failpoint: ActiveFailpoint,
) -> (Vec<String>, bool) {
    let mut rig = Rig::new(kind, base, failpoint);
    rig.overwrite();
    rig.host.fail(loss);
    for call in order {
        rig.call(*call);
    }
    let failed = rig.host.failures() > 0;
    let named = |what| format!("{kind:?} {order:?} {loss:?}: {what}");
    (rig.end(loss.seed).into_iter().map(named).collect(), failed)
}

/// All orders on all kinds of volumes, with each of the first flushes failing.
fn all_orders(kinds: &[Kind], failpoint: ActiveFailpoint) -> (Vec<String>, u64) {
    let (mut trouble, mut failures, mut seed) = (Vec::new(), 0, 1);
    for &kind in kinds {
        let base = kind.base();
        for order in orders() {
            // One number of flushes for each order and kind, and all numbers for neighbours.
            seed += 1;
            let loss = Loss {
                after: seed % 5,
                seed,
                cached: !seed.is_multiple_of(3),
            };
            let (more, failed) = run(kind, &base, &order, loss, failpoint);
            trouble.extend(more);
            failures += u64::from(failed);
        }
    }
    (trouble, failures)
}

#[test]
fn callers_in_every_order_learn_of_a_flush_that_lost_writes() {
    assert_eq!(orders().len(), 65);
    let (trouble, failures) = all_orders(&KINDS, ActiveFailpoint::default());
    assert!(trouble.is_empty(), "{}: {trouble:#?}", trouble.len());
    assert!(failures > 200, "only {failures}");
    extant_testkit::report(&format!("lost writes: {failures} orders of callers"));
}

#[test]
fn a_forgotten_flush_failure_is_found() {
    let (trouble, _) = all_orders(
        &KINDS[..1],
        ActiveFailpoint::only(Failpoint::FlushFailureForgotten),
    );
    let found = |what: &str| trouble.iter().any(|line| line.contains(what));
    assert!(found("was promised what may be lost"), "{trouble:#?}");
    assert!(found("it is lost"), "{trouble:#?}");
    assert!(found("marked clean"), "{trouble:#?}");
}

#[test]
fn a_tail_that_moves_after_a_failed_flush_is_found() {
    let base = KINDS[0].base();
    let order = [Call::Commit, Call::Unmount];
    let runs = (0..48).map(|seed| {
        let loss = Loss {
            after: seed % 8,
            seed,
            cached: true,
        };
        [
            ActiveFailpoint::default(),
            ActiveFailpoint::only(Failpoint::TailAfterFailedFlush),
        ]
        .map(|failpoint| run(KINDS[0], &base, &order, loss, failpoint).0)
    });
    let mut found = 0;
    for [sound, failing] in runs {
        assert!(sound.is_empty(), "{sound:#?}");
        let lost = |line: &String| line.contains("was durable") || line.contains("check:");
        found += usize::from(failing.iter().any(lost));
    }
    assert!(found > 0);
}

/// Without barriers nothing is acknowledged before the unmount, which must fail.
#[test]
fn an_unmount_without_barriers_tells_of_lost_writes() {
    for after in 0..2 {
        let kind = Kind {
            mkfs: "-b 1024",
            mount: "nobarrier",
        };
        let mut rig = Rig::new(kind, &kind.base(), ActiveFailpoint::default());
        rig.overwrite();
        let fs = rig.fs.as_ref().unwrap();
        fs.create_dir("/d").unwrap();
        rig.direct[0].sync_all().unwrap();
        rig.host.fail(Loss {
            after,
            seed: 8,
            cached: false,
        });
        rig.call(Call::Unmount);
        assert_eq!(
            (rig.host.failures(), rig.reported),
            (1, true),
            "{:?}",
            rig.trouble
        );
        assert!(needs_care(rig.host.inner()), "{after}");
    }
}

/// `errors=`: a failed flush stops changes whatever the policy, and is on record.
#[test]
fn a_failed_flush_stops_as_much_as_its_policy_says() {
    let kind = KINDS[0];
    let base = kind.base();
    for (policy, change, read) in [
        ("continue", EROFS, 0),
        ("remount-ro", EROFS, 0),
        ("panic", EIO, EIO),
    ] {
        let mount = match policy {
            "continue" => "errors=continue",
            "panic" => "errors=panic",
            _ => "errors=remount-ro",
        };
        let mut rig = Rig::new(Kind { mount, ..kind }, &base, ActiveFailpoint::default());
        rig.overwrite();
        rig.host.fail(Loss {
            after: 0,
            seed: 1,
            cached: true,
        });
        rig.call(Call::DatasyncB);
        assert!(rig.reported);
        let fs = rig.fs.take().unwrap();
        assert_eq!(errno(&fs.create_dir("/after")), change, "{policy}");
        assert_eq!(errno(&fs.read("/C")), read, "{policy}");
        rig.direct.clear();
        rig.cached.clear();
        assert!(fs.unmount().is_err(), "{policy}");
        let image = Image::of_bytes(&rig.host.inner().to_bytes()).unwrap();
        let state = image.header("Filesystem state").unwrap();
        assert!(state.contains("with errors"), "{policy}: {state}");
        assert_eq!(image.header("First error function").unwrap(), "flush");
        assert_eq!(image.header("Journal errno").unwrap(), "-5", "{policy}");
        // The next mount replays, and changes are served again.
        let host: Arc<dyn BlockDevice> = rig.host.clone();
        let fs = kind
            .options(ActiveFailpoint::default())
            .open_device(host)
            .unwrap();
        fs.write("/C", [2; LEN]).unwrap();
        fs.unmount().unwrap();
    }
}

/// Threads write and sync files of their own while one flush fails.
#[test]
fn callers_at_once_learn_of_a_flush_that_lost_writes() {
    let kind = KINDS[0];
    let base = kind.base();
    for seed in 0..24 {
        let mut rig = Rig::new(kind, &base, ActiveFailpoint::default());
        rig.host.fail(Loss {
            after: seed % 12,
            seed,
            cached: seed.is_multiple_of(2),
        });
        let (trouble, last) = (Mutex::new(Vec::new()), AtomicU64::new(0));
        let (host, direct, fs) = (&rig.host, &rig.direct, rig.fs.as_ref().unwrap());
        let promised = Mutex::new(BTreeMap::new());
        std::thread::scope(|s| {
            for nth in 0..4 {
                let (trouble, promised, last) = (&trouble, &promised, &last);
                s.spawn(move || {
                    let (mut reported, mut version) = (false, 1);
                    while version < 200 {
                        version += 1;
                        // One flush begins before the failure and ends after it: it acknowledges
                        // nothing.
                        let before = host.failures();
                        let result = match nth {
                            3 => fs
                                .create_dir(format!("/t{seed}-{version}"))
                                .and_then(|()| fs.sync()),
                            _ => direct[nth]
                                .write_at(&[version; LEN], 0)
                                .and_then(|_| direct[nth].sync_data()),
                        };
                        match result {
                            Ok(()) if reported || before > 0 => {
                                let what = format!("caller {nth}: a promise after the failure");
                                return trouble.lock().unwrap().push(what);
                            }
                            Ok(()) if nth < 3 => {
                                promised.lock().unwrap().insert(NAMES[nth], version);
                            }
                            Ok(()) => {}
                            Err(_) if reported => return,
                            Err(_) => {
                                reported = true;
                                last.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(last.into_inner(), 4, "{seed}: every caller got the error");
        rig.promised = promised.into_inner().unwrap();
        rig.trouble = trouble.into_inner().unwrap();
        rig.call(Call::Unmount);
        rig.host.crash(seed).unwrap();
        let memory = rig.host.inner().clone();
        let fs = kind
            .options(ActiveFailpoint::default())
            .open_device(memory)
            .unwrap();
        for (name, version) in &rig.promised {
            // Writes after the last acknowledgement may be there in part.
            let bytes = fs.read(name).unwrap();
            let lost = bytes.iter().any(|byte| byte < version);
            assert!(!lost, "{seed}: {name} was promised version {version}");
        }
        assert!(rig.trouble.is_empty(), "{seed}: {:?}", rig.trouble);
        fs.unmount().unwrap();
    }
}
