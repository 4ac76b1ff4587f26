//! Trimming and `discard`: which bytes are reported to the device as free, and when.

use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use extant::{Error, Filesystem, Options};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_testkit::{Image, Watchdog};
use extant_units::DevOff;

/// A device that loses the bytes that are discarded, and records them.
struct Forgetful {
    inner: MemoryDevice,
    discards: Mutex<Vec<Range<u64>>>,
    fails: AtomicBool,
    /// Called once, in the middle of the next discard.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl BlockDevice for Forgetful {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, buf)
    }
    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
    fn discard(&self, offset: DevOff, len: u64) -> io::Result<()> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(io::Error::other("no discards today"));
        }
        if let Some(act) = self.meanwhile.lock().unwrap().take() {
            act();
        }
        let junk = vec![0xD5; usize::try_from(len).unwrap()];
        self.inner.write_at(offset, &junk)?;
        let range = offset.get()..offset.get() + len;
        self.discards.lock().unwrap().push(range);
        Ok(())
    }
}

struct Rig {
    dev: Arc<Forgetful>,
    fs: Filesystem,
}

const MIB: u64 = 1 << 20;

impl Rig {
    /// A volume of 32 MiB in four groups.
    fn new(options: &str) -> Rig {
        Self::of_mib(32, options)
    }

    /// A volume of so many MiB, on a device of 32.
    fn of_mib(mib: u64, options: &str) -> Rig {
        let args = "-b 1024 -E lazy_itable_init=0,lazy_journal_init=0 -m 0";
        let image = Image::of_mib(mib).args(args).junk().make().unwrap();
        let mut bytes = std::fs::read(image.path()).unwrap();
        bytes.resize(32 << 20, 0xD5);
        let dev = Arc::new(Forgetful {
            inner: MemoryDevice::from_bytes(&bytes),
            discards: Mutex::default(),
            fails: AtomicBool::new(false),
            meanwhile: Mutex::default(),
        });
        let fs = Self::mount(&dev, options);
        Rig { dev, fs }
    }

    fn mount(dev: &Arc<Forgetful>, options: &str) -> Filesystem {
        let mut how = Options::new();
        how.write(true).mount_options(options);
        how.open_device(dev.clone()).unwrap()
    }

    /// Discards since the last call: bytes, and calls.
    fn discarded(&self) -> (u64, usize) {
        let all = std::mem::take(&mut *self.dev.discards.lock().unwrap());
        (
            all.iter().map(|range| range.end - range.start).sum(),
            all.len(),
        )
    }

    fn free(&self) -> u64 {
        let stat = self.fs.statfs().unwrap();
        stat.blocks_free * u64::from(stat.block_size)
    }

    /// The volume is sound, and `files` hold what they should.
    fn judge(self, files: &[(&str, &[u8])]) {
        for (path, bytes) in files {
            assert!(self.fs.read(path).unwrap() == *bytes, "{path}");
        }
        self.fs.unmount().unwrap();
        let image = Image::of_bytes(&self.dev.inner.to_bytes()).unwrap();
        image.fsck_clean().unwrap();
        let again = Self::mount(&self.dev, "");
        for (path, bytes) in files {
            assert!(again.read(path).unwrap() == *bytes, "{path} after a mount");
        }
    }
}

#[test]
fn all_that_is_free_is_trimmed_once() {
    let rig = Rig::new("");
    let data: Vec<u8> = (0..3 * MIB).map(|at| at.to_le_bytes()[1]).collect();
    rig.fs.write("/kept", &data).unwrap();
    rig.fs.write("/gone", &data).unwrap();
    rig.fs.sync().unwrap();
    rig.fs.remove_file("/gone").unwrap();
    rig.fs.sync().unwrap();
    let free = rig.free();
    assert_eq!(rig.fs.trim().unwrap(), free);
    assert_eq!(rig.discarded().0, free);
    // Nothing was freed since.
    assert_eq!(rig.fs.trim().unwrap(), 0);
    rig.fs.write("/new", &data).unwrap();
    rig.fs.sync().unwrap();
    assert_eq!(rig.fs.trim().unwrap(), 0);
    rig.fs.remove_file("/new").unwrap();
    rig.fs.sync().unwrap();
    let again = rig.fs.trim().unwrap();
    assert!(again >= 3 * MIB && again <= free, "{again}");
    assert_eq!(rig.discarded().0, again);
    rig.judge(&[("/kept", &data)]);
}

#[test]
fn ranges_and_short_runs_are_left_out() {
    let rig = Rig::new("");
    let volume = rig.fs.volume().clone();
    // Every other block of a file in small pieces is freed: runs of one block.
    for index in 0..64 {
        rig.fs.write(format!("/{index}"), [7; 1024]).unwrap();
        rig.fs.sync().unwrap();
    }
    for index in (0..64).step_by(2) {
        rig.fs.remove_file(format!("/{index}")).unwrap();
    }
    rig.fs.sync().unwrap();
    let long = volume.trim(0..u64::MAX, 4096).unwrap();
    assert!(long <= rig.free() - 24 * 1024, "{long} of {}", rig.free());
    let runs = rig.dev.discards.lock().unwrap().clone();
    assert!(runs.iter().all(|run| run.end - run.start >= 4096));
    rig.discarded();
    // A run that was left out is trimmed later.
    assert!(volume.trim(0..u64::MAX, 0).unwrap() >= 24 * 1024);
    rig.discarded();
    // A part of two groups, from and to the middle of a block.
    let part = 7 * MIB + 5..12 * MIB + 700;
    let done = volume.trim(part.clone(), 0).unwrap();
    let runs = rig.dev.discards.lock().unwrap().clone();
    assert!(
        runs.iter()
            .all(|run| part.start <= run.start && run.end <= part.end)
    );
    assert_eq!(rig.discarded().0, done);
    rig.judge(&[("/1", &[7; 1024]), ("/63", &[7; 1024])]);
}

#[test]
fn senseless_ranges_are_refused() {
    let rig = Rig::new("");
    let volume = rig.fs.volume();
    for (range, minimum) in [
        (0..1023, 0),
        (32 * MIB..64 * MIB, 0),
        (0..u64::MAX, 8 * MIB + 1),
        (5..5, 0),
    ] {
        let reported = volume.trim(range.clone(), minimum);
        assert!(
            matches!(reported, Err(Error::Invalid)),
            "{range:?} {minimum}: {reported:?}"
        );
    }
    assert_eq!(rig.discarded(), (0, 0));
    let before = rig.free();
    rig.dev.fails.store(true, Ordering::Relaxed);
    assert!(matches!(rig.fs.trim(), Err(Error::Io(_))));
    rig.dev.fails.store(false, Ordering::Relaxed);
    assert_eq!((rig.fs.trim().unwrap(), rig.free()), (before, before));
    let dev = rig.dev.clone();
    rig.judge(&[]);
    let read_only = Rig::mount(&dev, "ro");
    assert!(matches!(read_only.trim(), Err(Error::ReadOnly)));
}

#[test]
fn freed_blocks_are_discarded_when_that_is_durable_and_not_before() {
    for (options, reported) in [("discard,commit=300", true), ("commit=300", false)] {
        let rig = Rig::new(options);
        rig.fs.write("/gone", vec![1; 2 << 20]).unwrap();
        rig.fs.write("/kept", [2; 5000]).unwrap();
        rig.fs.sync().unwrap();
        rig.discarded();
        rig.fs.remove_file("/gone").unwrap();
        // Deletion is done by the time the totals are asked for; its transaction runs.
        let free = rig.free();
        assert_eq!(rig.discarded(), (0, 0), "{options}");
        // Neither does trimming touch it.
        if !reported {
            let trimmed = rig.fs.trim().unwrap();
            assert!(trimmed <= free - 2 * MIB, "{trimmed} of {free}");
            rig.discarded();
        }
        rig.fs.sync().unwrap();
        let (bytes, _) = rig.discarded();
        assert_eq!(bytes >= 2 * MIB, reported, "{options}: {bytes}");
        rig.judge(&[("/kept", &[2; 5000])]);
    }
}

/// Writers, deletions and trimming at the same time on a volume that is nearly full: no byte is
/// lost, and no call fails for want of space because a run is being trimmed.
#[test]
fn trimming_beside_writers() {
    let rig = Rig::new("commit=300");
    let quarter = usize::try_from(rig.free() / 5).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let trimmer = scope.spawn(|| {
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) {
                rig.fs.volume().trim(0..u64::MAX, 0).unwrap();
                rounds += 1;
            }
            rounds
        });
        let writers: Vec<_> = (0..2u8)
            .map(|number| {
                let fs = &rig.fs;
                scope.spawn(move || {
                    let path = format!("/w{number}");
                    for round in 0..12u8 {
                        let data = vec![number * 16 + round + 1; quarter * 2 - quarter / 8];
                        fs.write(&path, &data).unwrap();
                        fs.open_file(&path).unwrap().sync_all().unwrap();
                        fs.volume().drop_caches();
                        assert!(fs.read(&path).unwrap() == data, "{path}, round {round}");
                        fs.remove_file(&path).unwrap();
                        fs.sync().unwrap();
                    }
                })
            })
            .collect();
        let ended: Vec<_> = writers
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        stop.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(Result::unwrap);
        assert!(trimmer.join().unwrap() > 0);
    });
    rig.fs
        .volume()
        .verify(&mut extant::Verifier::default(), false)
        .unwrap();
    rig.judge(&[]);
}

/// The image file of the host gives its blocks back.
#[test]
fn a_trimmed_image_is_sparse() {
    let image = Image::of_mib(64).junk().make().unwrap();
    let used = |path| std::fs::metadata(path).unwrap().blocks() * 512;
    let before = used(image.path());
    assert!(before >= 48 * MIB, "{before} bytes of junk");
    let fs = Options::new().write(true).open(image.path()).unwrap();
    fs.write("/kept", vec![9; 3 << 20]).unwrap();
    fs.sync().unwrap();
    let trimmed = fs.trim().unwrap();
    fs.unmount().unwrap();
    let after = used(image.path());
    // The host's own extents may cost a few blocks.
    assert!(
        after + trimmed <= before + MIB,
        "{before}, {after}, {trimmed}"
    );
    let fs = Options::new().open(image.path()).unwrap();
    assert!(fs.read("/kept").unwrap() == vec![9; 3 << 20]);
    fs.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// The device is told of the last group's free blocks while the group gets more.
#[test]
fn a_group_that_grows_while_it_is_trimmed_is_trimmed_again() {
    let _limit = Watchdog::new(Duration::from_secs(120));
    let rig = Rig::of_mib(28, "");
    let volume = rig.fs.volume().clone();
    let ((begin, begun), (end, ended)) = (channel(), channel());
    *rig.dev.meanwhile.lock().unwrap() = Some(Box::new(move || {
        begin.send(()).unwrap();
        ended.recv().unwrap();
    }));
    let last = (24 << 20) + 1024;
    let fs = &rig.fs;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            begun.recv().unwrap();
            fs.grow(32 << 20).unwrap();
            end.send(()).unwrap();
        });
        volume.trim(last..u64::MAX, 0).unwrap();
    });
    volume.trim(last..u64::MAX, 0).unwrap();
    let told = rig.dev.discards.lock().unwrap().clone();
    let all = |range: &Range<u64>| range.start < 28 * MIB && range.end >= 32 * MIB;
    assert!(told.iter().any(all), "{told:?}");
    assert_eq!(volume.trim(last..u64::MAX, 0).unwrap(), 0);
    rig.judge(&[]);
}
