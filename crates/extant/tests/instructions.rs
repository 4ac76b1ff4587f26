//! Guard of the hot paths: instructions per operation, counted by callgrind.
//!
//! Callgrind counts the same for the same binary whatever else the machine does, so a path that
//! gets longer is seen on a noisy machine as well. The recorded numbers are those of this build
//! profile (`dev`: with debug assertions), not of a release build. A number may change only
//! together with the reason, in the commit that changes it.
//!
//! The test starts this very binary under valgrind with [`COUNTED`] set. Each operation stands in a
//! function of its own, which switches the counting on while it runs.

use std::hint::black_box;
use std::sync::Arc;

use extant::{DirectQueue, Filesystem, IoBuf, Node, Permissions, Tuning};
use extant_blockdev::MemoryDevice;
use extant_testkit::{Cmd, Image, Need, TempDir, need, report};

/// Set in the process that is counted: the image.
const COUNTED: &str = "EXTANT_COUNTED_IMAGE";
/// Calls in each function.
const CALLS: u64 = 400;
/// Requests that are in flight at once.
const DEPTH: usize = 16;
/// Blocks of the file that is written past the cache.
const TABLE_BLOCKS: u64 = 64;
/// The allowed increase over the recorded number, in percent.
const MARGIN: u64 = 5;

/// The operations, and the instructions of one call.
const RECORDED: [(&str, u64); 13] = [
    ("guarded_overwrite", 1225),
    ("guarded_append", 1640),
    ("guarded_read", 1265),
    ("guarded_direct", 2505),
    ("guarded_create", 40300),
    ("guarded_stat", 6590),
    ("guarded_first_stat", 21020),
    ("guarded_lookup", 1650),
    ("guarded_listing", 3550),
    ("guarded_open", 6650),
    ("guarded_chmod", 10280),
    ("guarded_first_write", 25170),
    ("guarded_unlink", 27940),
];

#[inline(never)]
fn guarded_overwrite(file: &extant::File) {
    for _ in 0..CALLS {
        file.write_at(black_box(&[7; 1024]), 4096).expect("a write");
    }
}

#[inline(never)]
fn guarded_append(file: &extant::File) {
    for _ in 0..CALLS {
        file.write_at(black_box(&[7; 64]), 0).expect("an append");
    }
}

#[inline(never)]
fn guarded_read(file: &extant::File) {
    let mut buf = [0; 4096];
    for _ in 0..CALLS {
        file.read_at(black_box(&mut buf), 8192).expect("a read");
    }
}

#[inline(never)]
fn guarded_direct(table: &mut Table) {
    for first in (0..CALLS).step_by(DEPTH) {
        table.overwrite(first..first + DEPTH as u64);
    }
}

/// A file that is overwritten past the cache, by a queue.
struct Table {
    file: extant::File,
    queue: DirectQueue,
    free: Vec<IoBuf>,
}

impl Table {
    /// A file that has its blocks, none of them cached.
    fn new(fs: &Filesystem) -> Self {
        let mut options = fs.open_options();
        let options = options.create(true).write(true);
        let file = options.open("/table").expect("a table");
        for block in 0..TABLE_BLOCKS {
            file.write_at(&[1; 4096], block * 4096).expect("a block");
        }
        file.sync_data().expect("a sync");
        file.drop_cached();
        Self {
            file,
            queue: fs.direct_queue(DEPTH),
            free: (0..DEPTH).map(|_| IoBuf::zeroed(4096)).collect(),
        }
    }

    /// Overwrites these blocks, counted round and round, all at once.
    fn overwrite(&mut self, blocks: std::ops::Range<u64>) {
        for (block, buf) in blocks.zip(self.free.drain(..)) {
            let pos = block % TABLE_BLOCKS * 4096;
            let taken = self.queue.write(&self.file, pos, buf, block);
            taken.expect("a request");
        }
        let mut finished = Vec::with_capacity(DEPTH);
        self.queue.wait_into(DEPTH, &mut finished);
        for over in finished {
            assert_eq!(over.result.expect("a write"), 4096);
            self.free.push(over.buf);
        }
    }
}

#[inline(never)]
fn guarded_create(fs: &Filesystem) {
    for i in 0..CALLS {
        let mut options = fs.open_options();
        let made = options
            .write(true)
            .create_new(true)
            .open(format!("/dir/new{i}"));
        drop(made.expect("a new file"));
    }
}

#[inline(never)]
fn guarded_stat(fs: &Filesystem) {
    for i in 0..CALLS {
        let found = fs.symlink_metadata(format!("/dir/new{i}"));
        black_box(found.expect("a file"));
    }
}

/// Of names that no lookup has found, and inodes that are not in memory.
#[inline(never)]
fn guarded_first_stat(fs: &Filesystem) {
    for i in 0..CALLS {
        let found = fs.symlink_metadata(format!("/kept/new{i}"));
        black_box(found.expect("a file"));
    }
}

/// As a front end looks names up.
#[inline(never)]
fn guarded_lookup(fs: &Filesystem, dir: &Node) {
    for i in 0..CALLS {
        let found = fs.volume().lookup(dir, format!("new{i}").as_bytes());
        black_box(found.expect("a file"));
    }
}

#[inline(never)]
fn guarded_listing(fs: &Filesystem) {
    let entries = fs.read_dir("/dir").expect("a listing");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    assert_eq!(names.map(black_box).count() as u64, CALLS);
}

#[inline(never)]
fn guarded_open(fs: &Filesystem) {
    for i in 0..CALLS {
        let found = fs.open_file(format!("/dir/new{i}"));
        drop(black_box(found.expect("a file")));
    }
}

#[inline(never)]
fn guarded_chmod(fs: &Filesystem) {
    for i in 0..CALLS {
        let bits = Permissions::from_mode(0o640);
        let changed = fs.set_permissions(format!("/dir/new{i}"), bits);
        changed.expect("permissions");
    }
}

#[inline(never)]
fn guarded_first_write(fs: &Filesystem) {
    for i in 0..CALLS {
        let mut options = fs.open_options();
        let file = options.write(true).open(format!("/dir/new{i}"));
        let file = file.expect("a file");
        file.write_at(black_box(&[7; 100]), 0).expect("a write");
    }
}

#[inline(never)]
fn guarded_unlink(fs: &Filesystem) {
    for i in 0..CALLS {
        fs.remove_file(format!("/dir/new{i}")).expect("a name");
    }
}

/// The counted operations. Runs in a process of its own, under callgrind.
#[test]
fn operations() {
    let Some(image) = std::env::var_os(COUNTED) else {
        return;
    };
    let bytes = std::fs::read(image).expect("the image");
    let device = Arc::new(MemoryDevice::from_bytes(&bytes));
    let mounted = || {
        let mut tuning = Tuning::default();
        tuning.flushers = 0;
        let mut options = Filesystem::options();
        let options = options.write(true).tuning(tuning);
        let options = options.mount_options("commit=3000");
        options.open_device(device.clone()).expect("a mount")
    };
    let fs = mounted();
    let mut options = fs.open_options();
    let file = options
        .create(true)
        .read(true)
        .write(true)
        .open("/file")
        .expect("a file");
    file.write_at(&vec![1; 1 << 20], 0).expect("a first write");
    let mut options = fs.open_options();
    let log = options
        .create(true)
        .append(true)
        .open("/log")
        .expect("a log");
    log.write_at(&[1; 64], 0).expect("a first append");
    fs.create_dir("/dir").expect("a directory");
    let mut table = Table::new(&fs);
    // The first requests make what the others find: threads, memory, the runs of the map.
    table.overwrite(0..DEPTH as u64);
    guarded_overwrite(&file);
    guarded_append(&log);
    guarded_read(&file);
    guarded_direct(&mut table);
    drop(table);
    guarded_create(&fs);
    guarded_stat(&fs);
    let dir = fs.node("/dir", false).expect("the directory");
    guarded_lookup(&fs, &dir);
    drop(dir);
    guarded_listing(&fs);
    guarded_open(&fs);
    guarded_chmod(&fs);
    guarded_first_write(&fs);
    guarded_unlink(&fs);
    drop((file, log));
    fs.create_dir("/kept").expect("a directory");
    for i in 0..CALLS {
        fs.create(format!("/kept/new{i}")).expect("a new file");
    }
    fs.unmount().expect("an unmount");
    let fs = mounted();
    fs.symlink_metadata("/kept/new0").expect("a file");
    guarded_first_stat(&fs);
    fs.unmount().expect("an unmount");
}

#[test]
fn no_hot_path_gets_longer() {
    if !need(&[Need::Tool("mke2fs"), Need::Tool("valgrind")]) {
        return;
    }
    // The same hashes of names in every run.
    let seed = "-b 4096 -E hash_seed=6f1e2c7a-2b1d-4c55-9b0e-8f6a3d21c0de";
    let image = Image::of_mib(16).args(seed).make().expect("mke2fs");
    let dir = TempDir::new("callgrind").expect("a directory");
    let out = dir.join("out");
    let this = std::env::current_exe().expect("this program");
    let mut counted = Cmd::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .env(COUNTED, image.path());
    for (name, _) in RECORDED {
        counted = counted.arg(format!("--toggle-collect=*{name}*"));
    }
    let counted = counted.arg(this).args(["--exact", "operations"]);
    counted.ok().expect("callgrind");
    let shown = Cmd::new("callgrind_annotate")
        .args(["--inclusive=yes", "--threshold=100"])
        .arg(&out)
        .ok()
        .expect("callgrind_annotate");
    let text = shown.out;
    let mut worse = Vec::new();
    for (name, recorded) in RECORDED {
        let line = text.lines().find(|line| line.contains(name));
        let total = line.and_then(|line| line.split_whitespace().next());
        let total: u64 = total
            .and_then(|total| total.replace(',', "").parse().ok())
            .unwrap_or_else(|| panic!("{name} is not in callgrind's report"));
        let each = total / CALLS;
        report(&format!(
            "instructions: {name} {each} (recorded {recorded})"
        ));
        if each * 100 > recorded * (100 + MARGIN) {
            worse.push(format!("{name}: {each}, recorded {recorded}"));
        }
    }
    assert!(worse.is_empty(), "longer than recorded: {worse:#?}");
}
