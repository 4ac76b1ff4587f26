//! A run of a workload on a recorded device, and the operations that workloads are made of.
//!
//! Each operation enters in the [`Ledger`] what it changes before it begins, and what it promises
//! when it has returned. All take `&self`: a workload may use them from several threads, as long as
//! each file has one thread.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_engine::{
    Cred, Error, FallocateMode, IoBuf, Node, RenameFlags, SetAttr, VerityParams, Volume,
    VolumeOptions, XattrMode,
};
use extant_testkit::crash::Recording;
use extant_testkit::{Event, Fault, FaultyDevice, Recorder, Request, RequestKind, Rng, content};
use extant_units::DevOff;

use crate::ledger::{Ledger, SECTOR, index};
use crate::moves::Move;
use crate::notes;
use crate::setups::Setup;

/// The value of an attribute.
pub(crate) fn attr_value(seed: u64) -> Vec<u8> {
    // Above, what is more than fits a block.
    let len = 8 + seed % 400 + (seed >> 32);
    content::fill(seed, 0, usize::try_from(len).unwrap_or(0))
}

/// Decides the outcome of a request.
type Plan = Box<dyn Fn(Request<'_>) -> Fault + Send + Sync>;

/// A device in memory, with requests that may take their time, and a flush that may fail.
type Device = FaultyDevice<MemoryDevice, Plan>;

/// Behaviour of a device besides what it is asked for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Habits {
    /// Writes take long enough for other threads to do something.
    pub(crate) slow: bool,
    /// The flush of this number fails, counted from the first mount's end on.
    pub(crate) fails: Option<u64>,
}

impl Habits {
    /// `mounted`: flushes count.
    fn plan(self, mounted: Arc<AtomicBool>, flushes: Arc<AtomicU64>) -> Plan {
        Box::new(move |request| match request.kind {
            RequestKind::Write if self.slow => Fault::Delay(Duration::from_micros(100)),
            RequestKind::Flush if mounted.load(Ordering::Relaxed) => {
                let number = flushes.fetch_add(1, Ordering::Relaxed);
                match self.fails == Some(number) {
                    true => Fault::Fail(io::ErrorKind::Other),
                    false => Fault::Pass,
                }
            }
            _ => Fault::Pass,
        })
    }
}

/// Loses what is discarded, as a recorded write of junk.
struct Forgetful(Arc<Recorder<Device>>);

impl BlockDevice for Forgetful {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }
    fn read_vectored_at(&self, offset: DevOff, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.0.read_vectored_at(offset, bufs)
    }
    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: DevOff, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.write_vectored_at(offset, bufs)
    }
    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
    fn write_durable(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.0.write_durable(offset, buf)
    }
    fn discard(&self, offset: DevOff, len: u64) -> io::Result<()> {
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        self.0.read_at(offset, &mut bytes)?;
        // Most free space is junk anyway: that need not be recorded.
        let lost = |byte: &u8| *byte != content::JUNK;
        let sector = index(SECTOR);
        let (Some(first), Some(last)) = (bytes.iter().position(lost), bytes.iter().rposition(lost))
        else {
            return Ok(());
        };
        let first = first / sector * sector;
        let junk = vec![content::JUNK; last + 1 - first];
        let at = offset.checked_add(first as u64);
        self.0
            .write_at(at.ok_or(io::ErrorKind::InvalidInput)?, &junk)
    }
}

/// The flag of files with extents.
const EXTENTS: u32 = 0x8_0000;

/// How the names of files begin that are sealed, or were about to be; they end with a length.
pub(crate) const SEALED: &str = "sealed";

/// The name of a file of which nothing is promised.
pub(crate) const FILLER: &str = "filler";

/// A mounted volume over a recorder.
pub(crate) struct Run {
    setup: &'static Setup,
    options: VolumeOptions,
    dev: Arc<Recorder<Device>>,
    mounted: Option<(Volume, Node)>,
    pub(crate) cred: Cred,
    pub(crate) rng: Rng,
    /// Values of attributes may be longer than a block.
    pub(crate) has_long_values: bool,
    /// Some of what was done is lost for good.
    crashed: bool,
    ledger: Mutex<Ledger>,
}

impl Run {
    /// Mounts a fresh image of `setup`, whose free space is junk.
    pub(crate) fn new(
        setup: &'static Setup,
        mut options: VolumeOptions,
        seed: u64,
        habits: Habits,
    ) -> (Self, Vec<u8>) {
        let base = setup.image();
        let (mounted, flushes) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let device = |bytes: &[u8]| {
            let plan = habits.plan(Arc::clone(&mounted), Arc::clone(&flushes));
            FaultyDevice::new(MemoryDevice::from_bytes(bytes), plan)
        };
        let dev = match setup.border() {
            None => Recorder::new(device(&base)),
            Some(border) => {
                let (volume, journal) = base.split_at(index(border));
                let (dev, journal) = Recorder::pair(device(volume), device(journal));
                options.journal_device(Arc::new(journal));
                dev
            }
        };
        let dev = Arc::new(dev);
        let mut run = Self {
            setup,
            options,
            dev,
            mounted: None,
            cred: Cred::root(),
            rng: Rng::new(seed),
            has_long_values: setup.has_long_values(),
            crashed: false,
            ledger: Mutex::default(),
        };
        run.mount();
        mounted.store(true, Ordering::Relaxed);
        (run, base)
    }

    fn mount(&mut self) {
        let dev = Arc::new(Forgetful(self.dev.clone()));
        let volume = self.options.open_on(dev).unwrap();
        let root = self.setup.top(&volume).unwrap();
        self.mounted = Some((volume, root));
    }

    /// Unmounts. Everything is promised then, whatever was synced before.
    fn unmount(&mut self) {
        if let Some((volume, root)) = self.mounted.take() {
            drop(root);
            volume.unmount().unwrap();
        }
        let now = self.position();
        self.ledger().all_synced(now);
    }

    /// Unmounts and mounts again, on the same device and in the same recording.
    pub(crate) fn remount(&mut self) {
        self.unmount();
        self.mount();
    }

    /// Stops with these files open, and mounts again: what is not durable may be lost.
    pub(crate) fn crash(&mut self, open: Vec<(Node, u64)>) {
        self.crashed = true;
        if let Some((volume, root)) = self.mounted.take() {
            volume.shutdown(false).unwrap();
            drop((open, root));
            let unmounted = volume.unmount();
            assert!(unmounted.is_err(), "it was stopped");
        }
        self.mount();
    }

    /// Returns whether a flush has failed.
    pub(crate) fn failed(&self) -> bool {
        self.dev.events().iter().any(Event::is_failed_flush)
    }

    /// Returns whether a sync has promised something. It may fail after a flush has failed.
    fn promises(&self, result: Result<(), Error>) -> bool {
        match result {
            Ok(()) => true,
            Err(_) if self.failed() => {
                self.ledger().stop();
                false
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Unmounts; what was recorded, and what was promised.
    pub(crate) fn finish(mut self, base: Vec<u8>) -> (Recording, Ledger) {
        if let Some((volume, root)) = self.mounted.take() {
            drop(root);
            // A promise of everything; one that must not be made after a flush has failed, which
            // may be one of the unmount's own.
            let unmounted = volume.unmount();
            if self.promises(unmounted) && !self.crashed {
                let now = self.position();
                self.ledger().all_synced(now);
            }
        }
        let ledger = self.ledger.into_inner();
        let ledger = ledger.unwrap_or_else(PoisonError::into_inner);
        let recording = Recording {
            base,
            events: self.dev.events(),
            notes: notes::write(&ledger),
        };
        (recording, ledger)
    }

    fn position(&self) -> usize {
        self.dev.position()
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Poisoned where a workload ended with a failed flush.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.mounted.as_ref().expect("mounted").0
    }

    pub(crate) fn root(&self) -> &Node {
        &self.mounted.as_ref().expect("mounted").1
    }

    /// The object at `path`, which has no leading slash.
    pub(crate) fn node(&self, path: &str) -> Node {
        path.split('/').fold(self.root().clone(), |dir, name| {
            self.volume().lookup(&dir, name.as_bytes()).unwrap()
        })
    }

    /// The directory of `path`, and its last name.
    fn parent<'p>(&self, path: &'p str) -> (Node, &'p [u8]) {
        match path.rsplit_once('/') {
            Some((dir, name)) => (self.node(dir), name.as_bytes()),
            None => (self.root().clone(), path.as_bytes()),
        }
    }

    /// Fills the volume with a file of which nothing is promised, but for `spare` bytes.
    pub(crate) fn fill(&self, spare: u64) {
        let (volume, cred) = (self.volume(), &self.cred);
        let name = FILLER.as_bytes();
        let node = volume.create(self.root(), name, 0o600, cred).unwrap();
        while self.room() > spare {
            let more = (self.room() - spare).clamp(4096, 1 << 20);
            let zeros = vec![0; usize::try_from(more).unwrap_or(0)];
            volume.append(&node, &zeros, cred).unwrap();
            volume.fsync(&node, false).unwrap();
        }
    }

    /// Bytes that are free.
    pub(crate) fn room(&self) -> u64 {
        let stat = self.volume().statfs().unwrap();
        stat.blocks_available * u64::from(stat.block_size)
    }

    /// Bytes of a block.
    pub(crate) fn block_size(&self) -> u64 {
        self.volume().statfs().unwrap().block_size.into()
    }

    /// Bytes of a cluster.
    pub(crate) fn cluster_size(&self) -> u64 {
        self.volume().statfs().unwrap().cluster_size.into()
    }

    /// The paths of all files.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.ledger().paths()
    }

    pub(crate) fn len(&self, path: &str) -> u64 {
        let ledger = self.ledger();
        ledger.file(ledger.at(path)).len
    }

    /// A file, if there are any.
    pub(crate) fn any_file(&mut self) -> Option<String> {
        let paths = self.paths();
        let at = self.rng.index(paths.len());
        paths.into_iter().nth(at)
    }

    pub(crate) fn mkdir(&self, path: &str) {
        let (dir, name) = self.parent(path);
        self.volume().mkdir(&dir, name, 0o755, &self.cred).unwrap();
    }

    pub(crate) fn rmdir(&self, path: &str) {
        let (dir, name) = self.parent(path);
        self.volume().rmdir(&dir, name).unwrap();
    }

    /// Makes a file of `len` bytes.
    pub(crate) fn create(&self, path: &str, len: u64) {
        let now = self.position();
        self.ledger().create(path, now);
        let (dir, name) = self.parent(path);
        self.volume().create(&dir, name, 0o644, &self.cred).unwrap();
        if len > 0 {
            self.append(path, len);
        }
    }

    /// Makes a file of `len` bytes in the root, under a name of its own.
    pub(crate) fn create_any(&self, len: u64) -> String {
        let path = format!("f{}", self.ledger().files.len());
        self.create(&path, len);
        path
    }

    pub(crate) fn append(&self, path: &str, more: u64) {
        let id = self.ledger().at(path);
        self.append_to(&self.node(path), id, more);
    }

    /// Appends to a file that need not have a name any more.
    pub(crate) fn append_to(&self, node: &Node, id: u64, more: u64) {
        let now = self.position();
        let old = self.ledger().file(id).len;
        let data = self.ledger().append(id, more, now);
        let done = self.volume().append(node, &data, &self.cred).unwrap();
        assert_eq!(done, (old, data.len()));
    }

    /// Writes `count` sectors from sector `first` on, wherever the file ends.
    pub(crate) fn overwrite(&self, path: &str, first: u64, count: u64) {
        let node = self.node(path);
        let (pos, len) = (first * SECTOR, count * SECTOR);
        let (id, now) = (self.ledger().at(path), self.position());
        let data = self.ledger().overwrite(id, pos, len, now);
        let done = self.volume().write(&node, pos, &data, &self.cred).unwrap();
        assert_eq!(done, data.len());
    }

    /// The same as a kernel does that writes its own cache back.
    pub(crate) fn hand_over(&self, path: &str, first: u64, count: u64) {
        let node = self.node(path);
        let (pos, len) = (first * SECTOR, count * SECTOR);
        let (id, now) = (self.ledger().at(path), self.position());
        let data = self.ledger().overwrite(id, pos, len, now);
        let done = self.volume().write_back(&node, pos, &data, &self.cred);
        assert_eq!(done.unwrap(), data.len());
    }

    /// Appends past the cache.
    pub(crate) fn append_direct(&self, path: &str, more: u64) {
        let (id, now) = (self.ledger().at(path), self.position());
        let old = self.ledger().file(id).len;
        let data = self.ledger().append(id, more, now);
        let node = self.node(path);
        let done = self.volume().append_direct(&node, &data, &self.cred);
        assert_eq!(done.unwrap(), (old, data.len()));
    }

    /// Writes `count` sectors from sector `first` on past the cache, wherever the file ends.
    pub(crate) fn overwrite_direct(&self, path: &str, first: u64, count: u64) {
        let node = self.node(path);
        let (pos, len) = (first * SECTOR, count * SECTOR);
        let (id, now) = (self.ledger().at(path), self.position());
        let data = self.ledger().overwrite(id, pos, len, now);
        let done = self.volume().write_direct(&node, pos, &data, &self.cred);
        assert_eq!(done.unwrap(), data.len());
    }

    /// Writes pieces of sectors (first, count) that lie apart past the cache, all of them in flight
    /// at once.
    pub(crate) fn overwrite_in_flight(&self, path: &str, pieces: &[(u64, u64)]) {
        let node = self.node(path);
        let mut queue = self.volume().direct_queue(pieces.len(), &self.cred);
        for &(first, count) in pieces {
            let (pos, len) = (first * SECTOR, count * SECTOR);
            let (id, now) = (self.ledger().at(path), self.position());
            let data = self.ledger().overwrite(id, pos, len, now);
            queue.write(&node, pos, IoBuf::copy_of(&data), len).unwrap();
        }
        for over in queue.wait(pieces.len()) {
            assert_eq!(over.result.unwrap() as u64, over.tag);
        }
    }

    /// Puts the file's data elsewhere, in fewer pieces. Nothing that it promised changes.
    pub(crate) fn defragment(&self, path: &str) {
        let node = self.node(path);
        match self.volume().defragment(&node, &self.cred, |_, _| {}) {
            Ok(_) | Err(Error::NotSupported(_)) => {}
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// Sets the size; to more only in whole sectors.
    pub(crate) fn truncate(&self, path: &str, len: u64) {
        let node = self.node(path);
        let (id, now) = (self.ledger().at(path), self.position());
        self.ledger().resize(id, len, now);
        let changes = SetAttr {
            size: Some(len),
            ..SetAttr::default()
        };
        self.volume().setattr(&node, &changes, &self.cred).unwrap();
    }

    /// Changes `count` sectors from sector `first` on as `mode` does; what takes out or puts in
    /// takes whole blocks, and lets nothing else happen to the file before its next fsync.
    pub(crate) fn fallocate(&self, path: &str, mode: FallocateMode, first: u64, count: u64) {
        use FallocateMode::{Allocate, CollapseRange, InsertRange, PunchHole, ZeroRange};
        let node = self.node(path);
        if mode != PunchHole && self.volume().flags(&node).unwrap() & EXTENTS == 0 {
            // A file with a block map: holes are all that it can have.
            return;
        }
        let (pos, len) = (first * SECTOR, count * SECTOR);
        let (id, now) = (self.ledger().at(path), self.position());
        let moves = matches!(mode, CollapseRange | InsertRange);
        if moves && self.setup.is_encrypted() {
            // Blocks are encrypted for their places.
            let done = self.volume().fallocate(&node, mode, pos, len, &self.cred);
            assert!(matches!(done, Err(Error::NotSupported(_))), "{done:?}");
            return;
        }
        let sectors = first..first + count;
        self.ledger().range(id, now, moves, |file| {
            let keep_size = match mode {
                Allocate { keep_size } | ZeroRange { keep_size } => keep_size,
                _ => true,
            };
            match mode {
                Allocate { .. } => {
                    // Blocks are whole, whatever their size.
                    file.space = file.space.max(len);
                    file.outrun();
                }
                PunchHole => {
                    file.lose_space();
                    file.zero(sectors.clone());
                }
                ZeroRange { .. } => {
                    file.space = file.space.max(len);
                    file.zero(sectors.clone());
                }
                CollapseRange => file.shift(&Move::Out(sectors.clone())),
                InsertRange => file.shift(&Move::In(sectors.clone())),
            }
            if !keep_size && pos + len > file.len {
                file.grow(pos + len);
            }
        });
        let done = self.volume().fallocate(&node, mode, pos, len, &self.cred);
        done.unwrap();
    }

    /// Copies `count` sectors of a file from sector `first` on to sector `to_first` of a file.
    pub(crate) fn copy(&self, from: (&str, u64), to: (&str, u64), count: u64) {
        let now = self.position();
        let ((path, first), (to_path, to_first)) = (from, to);
        {
            let mut ledger = self.ledger();
            let (id, to_id) = (ledger.at(path), ledger.at(to_path));
            ledger.copy((id, first), (to_id, to_first), count, now);
        }
        let (node, to) = (self.node(path), self.node(to_path));
        let done = self.volume().copy_range(
            (&node, first * SECTOR),
            (&to, to_first * SECTOR),
            count * SECTOR,
            &self.cred,
        );
        assert_eq!(done.unwrap(), count * SECTOR);
    }

    /// Gives an attribute the value of a seed, or takes it away.
    pub(crate) fn set_attr(&self, path: &str, key: &str, seed: Option<u64>) {
        let node = self.node(path);
        let (id, now) = (self.ledger().at(path), self.position());
        self.ledger().set_attr(id, key, seed, now);
        let (volume, key) = (self.volume(), key.as_bytes());
        match seed {
            Some(seed) => {
                let value = attr_value(seed);
                volume.setxattr(&node, key, &value, XattrMode::Either, &self.cred)
            }
            None => volume.removexattr(&node, key, &self.cred),
        }
        .unwrap();
    }

    pub(crate) fn fsync(&self, path: &str) {
        let synced = self.volume().fsync(&self.node(path), false);
        let now = self.position();
        if self.promises(synced) {
            self.ledger().synced(path, now);
        }
    }

    /// Fixes the content of a file by fs-verity, where the volume has that. Its data is durable
    /// then.
    pub(crate) fn seal(&self, path: &str) {
        let params = VerityParams {
            block_size: 1024,
            ..VerityParams::default()
        };
        let node = self.node(path);
        let sealed = self.volume().enable_verity(&node, &params, &self.cred);
        if matches!(sealed, Err(Error::NotSupported(_))) {
            return;
        }
        let now = self.position();
        if self.promises(sealed) {
            self.ledger().synced(path, now);
        }
    }

    /// Discards all that is free.
    pub(crate) fn trim(&self) {
        self.volume().trim(0..u64::MAX, 0).unwrap();
    }

    /// Makes everything durable.
    pub(crate) fn sync(&self) {
        let synced = self.volume().sync();
        let now = self.position();
        if self.promises(synced) {
            self.ledger().all_synced(now);
        }
    }

    /// Removes the name; returns the file, which is open, and its number.
    pub(crate) fn unlink(&self, path: &str) -> (Node, u64) {
        let now = self.position();
        let node = self.node(path);
        let id = self.ledger().unlink(path, now);
        let (dir, name) = self.parent(path);
        self.volume().unlink(&dir, name).unwrap();
        (node, id)
    }

    /// Renames, over what may be there.
    pub(crate) fn rename(&self, old: &str, new: &str) {
        let now = self.position();
        self.ledger().rename(old, new, now);
        let ((from, old), (to, new)) = (self.parent(old), self.parent(new));
        let flags = RenameFlags::empty();
        self.volume()
            .rename(&from, old, &to, new, flags, &self.cred)
            .unwrap();
    }
}
