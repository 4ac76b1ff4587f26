//! One file, changed by a Linux mount or by a volume, to be compared.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use extant_engine::{Cred, Error, FallocateMode, Node, SeekTarget, SetAttr, Volume, VolumeOptions};
use extant_testkit::{Cmd, Image, Mount, Subject};
use rustix::fs::{Advice, FallocateFlags, SeekFrom};

/// An errno, or nothing.
pub(crate) type Answer = Result<(), i32>;

/// A file as it shows: size, bytes, where data and holes begin, and a letter for each block that
/// has space.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct View {
    pub(crate) size: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) seeks: Vec<u64>,
    pub(crate) shape: String,
}

/// One file of a file system.
pub(crate) trait World {
    fn put(&self, pos: u64, data: &[u8]);
    fn cut(&self, size: u64);
    fn run(&self, mode: FallocateMode, offset: u64, len: u64) -> Answer;
    /// Makes everything durable and forgets the cache: what is seen afterwards does not depend on
    /// it.
    fn sync_and_forget(&self);
    fn size(&self) -> u64;
    fn bytes(&self) -> Vec<u8>;
    fn seek(&self, target: SeekTarget) -> Result<u64, i32>;
    fn shape(&self) -> String;

    fn seeks(&self) -> Vec<u64> {
        let mut all = Vec::new();
        let mut pos = 0;
        while let Ok(data) = self.seek(SeekTarget::Data(pos)) {
            let hole = self.seek(SeekTarget::Hole(data)).unwrap();
            all.extend([data, hole]);
            pos = hole;
        }
        all
    }

    fn view(&self) -> View {
        self.sync_and_forget();
        let (seeks, shape) = (self.seeks(), self.shape());
        View {
            size: self.size(),
            bytes: self.bytes(),
            seeks,
            shape,
        }
    }
}

pub(crate) fn flags(mode: FallocateMode) -> FallocateFlags {
    let keep = |keep_size: bool| {
        if keep_size {
            FallocateFlags::KEEP_SIZE
        } else {
            FallocateFlags::empty()
        }
    };
    match mode {
        FallocateMode::Allocate { keep_size } => keep(keep_size),
        FallocateMode::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        FallocateMode::ZeroRange { keep_size } => FallocateFlags::ZERO_RANGE | keep(keep_size),
        FallocateMode::CollapseRange => FallocateFlags::COLLAPSE_RANGE,
        FallocateMode::InsertRange => FallocateFlags::INSERT_RANGE,
    }
}

/// A file on a mount of Linux's.
pub(crate) struct Linux {
    file: File,
    block: u64,
    mount: Mount,
}

impl Linux {
    pub(crate) fn new(image: &Image, options: &str) -> Self {
        let mount = Subject::Ext4.mount(image.path(), options).unwrap();
        // Small unwritten parts of an extent shall be split off, not zeroed: only then what is
        // unwritten follows from what was done.
        let found = Cmd::new("findmnt").args(["-no", "SOURCE"]).arg(mount.dir());
        let device = found.ok().unwrap().out;
        let device = device.trim().trim_start_matches("/dev/");
        let limit = format!("/sys/fs/ext4/{device}/extent_max_zeroout_kb");
        std::fs::write(limit, "0").unwrap();
        let mut open = File::options();
        let file = open.read(true).write(true).create(true).truncate(false);
        let file = file.open(mount.join("file")).unwrap();
        Self {
            file,
            block: image.block_size().unwrap(),
            mount,
        }
    }

    pub(crate) fn close(self) {
        drop(self.file);
        self.mount.unmount().unwrap();
    }

    fn path(&self) -> std::path::PathBuf {
        self.mount.join("file")
    }
}

impl World for Linux {
    fn put(&self, pos: u64, data: &[u8]) {
        self.file.write_all_at(data, pos).unwrap();
    }

    fn cut(&self, size: u64) {
        self.file.set_len(size).unwrap();
    }

    fn run(&self, mode: FallocateMode, offset: u64, len: u64) -> Answer {
        rustix::fs::fallocate(&self.file, flags(mode), offset, len)
            .map_err(rustix::io::Errno::raw_os_error)
    }

    fn sync_and_forget(&self) {
        self.file.sync_all().unwrap();
        rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed).unwrap();
    }

    fn size(&self) -> u64 {
        self.file.metadata().unwrap().size()
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }

    fn seek(&self, target: SeekTarget) -> Result<u64, i32> {
        let from = match target {
            SeekTarget::Data(pos) => SeekFrom::Data(pos),
            SeekTarget::Hole(pos) => SeekFrom::Hole(pos),
        };
        rustix::fs::seek(&self.file, from).map_err(rustix::io::Errno::raw_os_error)
    }

    fn shape(&self) -> String {
        shape(
            self.size().div_ceil(self.block),
            filefrag(&self.path(), self.block),
        )
    }
}

/// First block, blocks, letter.
type Run = (u64, u64, char);

fn shape(blocks: u64, runs: Vec<Run>) -> String {
    let end = runs.last().map_or(0, |(first, len, _)| first + len);
    let mut letters = vec!['.'; usize::try_from(blocks.max(end)).unwrap()];
    for (first, len, letter) in runs {
        let (first, len) = (
            usize::try_from(first).unwrap(),
            usize::try_from(len).unwrap(),
        );
        letters[first..first + len].fill(letter);
    }
    letters.into_iter().collect()
}

/// The runs of a file's blocks, by Linux.
fn filefrag(path: &Path, block: u64) -> Vec<Run> {
    let text = Cmd::new("filefrag")
        .args([&format!("-vb{block}")])
        .arg(path)
        .ok()
        .unwrap()
        .out;
    let mut runs = Vec::new();
    for line in text.lines() {
        let numbers: Vec<u64> = line
            .split([':', '.', ' '])
            .filter_map(|word| word.parse().ok())
            .collect();
        if let [_, first, _, _, _, len, ..] = numbers[..]
            && line.matches("..").count() == 2
        {
            let letter = if line.contains("unwritten") { 'u' } else { 'w' };
            runs.push((first, len, letter));
        }
    }
    runs
}

/// Opens an image, which has been open before perhaps: a child that another test starts has our
/// descriptors, and with them the lock, until it runs its program.
pub(crate) fn open(image: &Image, write: bool, options: &str) -> Volume {
    let mut tries = 0;
    loop {
        let opened = VolumeOptions::new()
            .write(write)
            .mount_options(options)
            .open(image.path());
        match opened {
            Err(Error::InUse { .. }) if tries < 200 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other.unwrap(),
        }
    }
}

/// A file of ours.
pub(crate) struct Ours {
    pub(crate) volume: Volume,
    pub(crate) node: Node,
}

impl Ours {
    pub(crate) fn new(image: &Image, options: &str) -> Self {
        let volume = open(image, true, options);
        let root = volume.root().unwrap();
        let node = volume
            .lookup(&root, b"file")
            .unwrap_or_else(|_| volume.create(&root, b"file", 0o644, &Cred::root()).unwrap());
        Self { volume, node }
    }

    pub(crate) fn close(self) {
        drop(self.node);
        self.volume.unmount().unwrap();
    }
}

impl World for Ours {
    fn put(&self, pos: u64, data: &[u8]) {
        let done = self.volume.write(&self.node, pos, data, &Cred::root());
        assert_eq!(done.unwrap(), data.len());
    }

    fn cut(&self, size: u64) {
        let to = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.volume.setattr(&self.node, &to, &Cred::root()).unwrap();
    }

    fn run(&self, mode: FallocateMode, offset: u64, len: u64) -> Answer {
        self.volume
            .fallocate(&self.node, mode, offset, len, &Cred::root())
            .map_err(|error| error.errno())
    }

    fn sync_and_forget(&self) {
        self.volume.fsync(&self.node, false).unwrap();
        self.volume.drop_cached(&self.node);
    }

    fn size(&self) -> u64 {
        self.volume.getattr(&self.node).unwrap().size
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0x55; usize::try_from(self.size()).unwrap()];
        let done = self.volume.read(&self.node, 0, &mut bytes).unwrap();
        assert_eq!(done, bytes.len());
        bytes
    }

    fn seek(&self, target: SeekTarget) -> Result<u64, i32> {
        self.volume
            .seek(&self.node, target)
            .map_err(|error| error.errno())
    }

    fn shape(&self) -> String {
        let block = u64::from(self.volume.block_size());
        let mut runs = Vec::new();
        for extent in self.volume.map(&self.node, 0) {
            let extent = extent.unwrap();
            let letter = match extent.state {
                extant_engine::ExtentState::Written => 'w',
                extant_engine::ExtentState::Unwritten => 'u',
                extant_engine::ExtentState::Delayed => 'd',
                extant_engine::ExtentState::Hole => continue,
            };
            runs.push((extent.logical / block, extent.len / block, letter));
        }
        shape(self.size().div_ceil(block), runs)
    }
}
