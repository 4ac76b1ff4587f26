//! Regular files' data on real images: the same bytes as a vector in memory, for every block and
//! folio size; e2fsck clean; nothing stale; debugfs and a second mount see what was written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use extant_engine::{Cred, Error, Node, SeekTarget, SetAttr, Tuning, Volume, VolumeOptions};
use extant_testkit::{Image, Rng, Stop, content};

fn mount(image: &Image, order: u8, cache: u64) -> Volume {
    mount_with(image, "buffered_iomap", order, cache)
}

fn mount_with(image: &Image, options: &str, order: u8, cache: u64) -> Volume {
    let mut tuning = Tuning::default();
    tuning.max_folio_order = order;
    tuning.page_cache_bytes = Some(cache);
    VolumeOptions::new()
        .write(true)
        .tuning(tuning)
        .mount_options(options)
        .open(image.path())
        .unwrap()
}

fn truncate(volume: &Volume, node: &Node, size: u64) {
    let to = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    volume.setattr(node, &to, &Cred::root()).unwrap();
}

fn read_all(volume: &Volume, node: &Node) -> Vec<u8> {
    let size = volume.getattr(node).unwrap().size;
    let mut bytes = vec![0x55; usize::try_from(size).unwrap()];
    let done = volume.read(node, 0, &mut bytes).unwrap();
    assert_eq!(done, bytes.len());
    bytes
}

/// Content of the file `name` of the root, by debugfs.
fn dumped(image: &Image, name: &str) -> Vec<u8> {
    let out = image.path().with_extension(name);
    image
        .debugfs(&format!("dump /{name} {}", out.display()))
        .unwrap();
    std::fs::read(out).unwrap()
}

fn bytes(rng: &mut Rng, len: u64) -> Vec<u8> {
    // Neither zero nor junk.
    (0..len)
        .map(|_| u8::try_from(1 + rng.below(100)).unwrap())
        .collect()
}

/// A file and what should be in it.
struct Pair {
    node: Node,
    model: Vec<u8>,
}

impl Pair {
    fn step(&mut self, volume: &Volume, rng: &mut Rng, span: u64) {
        let cred = Cred::root();
        let pos = match rng.below(3) {
            0 => self.model.len() as u64,
            1 => rng.below(span) & !4095,
            _ => rng.below(span),
        };
        let limit = [50, 3000, 40_000, span / 3][rng.index(4)];
        let len = 1 + rng.below(limit);
        match rng.below(20) {
            0..8 => {
                let data = bytes(rng, len);
                assert_eq!(
                    volume.write(&self.node, pos, &data, &cred).unwrap(),
                    data.len()
                );
                let start = usize::try_from(pos).unwrap();
                if self.model.len() < start + data.len() {
                    self.model.resize(start + data.len(), 0);
                }
                self.model[start..start + data.len()].copy_from_slice(&data);
            }
            8..15 => {
                let mut buf = vec![0x55; usize::try_from(len).unwrap()];
                let done = volume.read(&self.node, pos, &mut buf).unwrap();
                let start = usize::try_from(pos).unwrap().min(self.model.len());
                let end = (start + buf.len()).min(self.model.len());
                assert!(buf[..done] == self.model[start..end], "read {len} at {pos}");
            }
            15 => {
                let size = rng.below(span);
                truncate(volume, &self.node, size);
                self.model.resize(usize::try_from(size).unwrap(), 0);
            }
            16 => volume.fsync(&self.node, rng.chance(50)).unwrap(),
            17 => {
                let data = bytes(rng, len);
                let (at, done) = volume.append(&self.node, &data, &cred).unwrap();
                assert_eq!((at, done), (self.model.len() as u64, data.len()));
                self.model.extend(data);
            }
            18 => self.seek(volume, pos),
            _ => {
                let attr = volume.getattr(&self.node).unwrap();
                assert_eq!(attr.size, self.model.len() as u64);
            }
        }
    }

    fn seek(&self, volume: &Volume, pos: u64) {
        let data = volume.seek(&self.node, SeekTarget::Data(pos));
        let hole = volume.seek(&self.node, SeekTarget::Hole(pos));
        let size = self.model.len() as u64;
        if pos >= size {
            assert!(matches!(data, Err(Error::NoSuchAddress)));
            assert!(matches!(hole, Err(Error::NoSuchAddress)));
            return;
        }
        let data = data.unwrap_or(size);
        assert!((pos..=size).contains(&hole.unwrap()));
        let skipped = &self.model[usize::try_from(pos).unwrap()..usize::try_from(data).unwrap()];
        assert!(skipped.iter().all(|&byte| byte == 0), "no data was skipped");
    }
}

/// The same on both paths.
fn model(args: &str, order: u8, cache: u64, steps: u32, seed: u64) {
    for options in ["buffered_iomap", "nobuffered_iomap"] {
        model_with(options, args, order, cache, steps, seed);
    }
}

fn model_with(options: &str, args: &str, order: u8, cache: u64, steps: u32, seed: u64) {
    let image = Image::of_mib(24).args(args).junk().make().unwrap();
    let mut volume = mount_with(&image, options, order, cache);
    let mut rng = Rng::new(seed);
    let names: Vec<String> = (0..4).map(|i| format!("file{i}")).collect();
    let mut pairs: Vec<Pair> = names
        .iter()
        .map(|name| Pair {
            node: volume
                .create(
                    &volume.root().unwrap(),
                    name.as_bytes(),
                    0o644,
                    &Cred::root(),
                )
                .unwrap(),
            model: Vec::new(),
        })
        .collect();
    for step in 1..=steps {
        let which = rng.index(pairs.len());
        pairs[which].step(&volume, &mut rng, 700_000);
        if step % (steps / 3) == 0 {
            let models: Vec<Vec<u8>> = pairs.into_iter().map(|pair| pair.model).collect();
            volume.unmount().unwrap();
            drop(volume);
            image.fsck_clean().unwrap();
            for (name, model) in names.iter().zip(&models) {
                assert!(dumped(&image, name) == *model, "debugfs sees {name}");
            }
            volume = mount_with(&image, options, order, cache);
            let root = volume.root().unwrap();
            pairs = names
                .iter()
                .zip(models)
                .map(|(name, model)| Pair {
                    node: volume.lookup(&root, name.as_bytes()).unwrap(),
                    model,
                })
                .collect();
            for pair in &pairs {
                assert!(
                    read_all(&volume, &pair.node) == pair.model,
                    "a second mount sees it"
                );
            }
        }
    }
}

#[test]
fn j43_same_bytes_in_1k_blocks() {
    model("-b 1024", 0, 64 << 20, 400, 11);
    model("-b 1024", 3, 64 << 20, 400, 12);
    model("-b 1024", 9, 64 << 20, 400, 13);
}

#[test]
fn j43_same_bytes_in_2k_blocks() {
    model("-b 2048", 0, 64 << 20, 300, 21);
    model("-b 2048", 9, 64 << 20, 300, 22);
}

#[test]
fn j43_same_bytes_in_4k_blocks() {
    model("-b 4096", 0, 64 << 20, 400, 31);
    model("-b 4096", 3, 64 << 20, 400, 32);
    model("-b 4096", 9, 64 << 20, 400, 33);
}

#[test]
fn same_bytes_in_a_cache_smaller_than_the_files() {
    model("-b 1024", 9, 256 << 10, 400, 41);
    model("-b 4096 -O ^has_journal", 9, 512 << 10, 400, 42);
}

#[test]
fn same_bytes_in_every_data_mode() {
    for (seed, options) in (61..).zip([
        "data=journal",
        "nobuffered_iomap,data=ordered,dioread_lock",
        "nobuffered_iomap,data=ordered,dioread_lock,nodelalloc",
        "nobuffered_iomap,data=writeback,nodelalloc",
    ]) {
        model_with(options, "-b 1024", 9, 256 << 10, 300, seed);
        model_with(options, "-b 4096", 3, 64 << 20, 300, seed);
    }
}

#[test]
fn same_bytes_on_plain_ext4() {
    model(
        "-b 4096 -O ^metadata_csum,^64bit -I 128",
        9,
        64 << 20,
        300,
        51,
    );
}

#[test]
fn holes_show_no_stale_bytes_and_take_no_space() {
    let image = Image::of_mib(64).args("-b 4096").junk().make().unwrap();
    let volume = mount(&image, 9, 64 << 20);
    let root = volume.root().unwrap();
    let node = volume
        .create(&root, b"sparse", 0o644, &Cred::root())
        .unwrap();
    volume
        .write(&node, 40 << 20, b"end", &Cred::root())
        .unwrap();
    volume
        .write(&node, 1_000_001, b"middle", &Cred::root())
        .unwrap();
    truncate(&volume, &node, 1 << 40);
    volume.fsync(&node, false).unwrap();
    let attr = volume.getattr(&node).unwrap();
    assert_eq!((attr.size, attr.blocks), (1 << 40, 16));
    assert_eq!(
        volume.seek(&node, SeekTarget::Data(0)).unwrap(),
        1_000_001 & !4095
    );
    let mut buf = vec![1; 1 << 20];
    volume.read(&node, 500_000, &mut buf).unwrap();
    assert_eq!(buf[500_001..500_007], *b"middle");
    assert!(!buf.contains(&content::JUNK));
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

#[test]
fn the_largest_size_and_one_more() {
    let image = Image::of_mib(32).args("-b 4096").make().unwrap();
    let volume = mount(&image, 9, 32 << 20);
    let root = volume.root().unwrap();
    let node = volume
        .create(&root, b"large", 0o644, &Cred::root())
        .unwrap();
    let limit = u64::from(u32::MAX) * 4096;
    let cred = Cred::root();
    assert_eq!(volume.write(&node, limit - 3, b"abcdef", &cred).unwrap(), 3);
    assert!(matches!(
        volume.write(&node, limit, b"x", &cred),
        Err(Error::FileTooBig)
    ));
    assert!(matches!(
        volume.write(&node, u64::MAX, b"x", &cred),
        Err(Error::FileTooBig)
    ));
    let to = SetAttr {
        size: Some(limit + 1),
        ..SetAttr::default()
    };
    assert!(matches!(
        volume.setattr(&node, &to, &cred),
        Err(Error::FileTooBig)
    ));
    let mut buf = [0; 10];
    assert_eq!(volume.read(&node, limit - 5, &mut buf).unwrap(), 5);
    assert_eq!(buf[..5], *b"\0\0abc");
    assert_eq!(volume.read(&node, u64::MAX, &mut buf).unwrap(), 0);
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

#[test]
fn many_threads_on_one_file_see_whole_blocks() {
    let image = Image::of_mib(64).junk().make().unwrap();
    let volume = mount(&image, 9, 4 << 20);
    let root = volume.root().unwrap();
    let node = volume
        .create(&root, b"shared", 0o644, &Cred::root())
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for seed in 0..3u64 {
            let (volume, node, stop) = (&volume, &node, &stop);
            scope.spawn(move || {
                let _stop = Stop::at_end(stop);
                let mut rng = Rng::new(seed);
                for _ in 0..300 {
                    let fill = u8::try_from(1 + rng.below(100)).unwrap();
                    let block = rng.below(4000);
                    let count = usize::try_from(1 + rng.below(100)).unwrap();
                    volume
                        .write(node, block * 4096, &vec![fill; count * 4096], &Cred::root())
                        .unwrap();
                    match rng.below(30) {
                        0 => truncate(volume, node, rng.below(4000) * 4096),
                        1 => volume.fsync(node, true).unwrap(),
                        _ => {}
                    }
                }
            });
            scope.spawn(move || {
                let mut rng = Rng::new(seed + 100);
                let mut buf = vec![0; 300 * 4096];
                while !stop.load(Ordering::Relaxed) {
                    let done = volume.read(node, rng.below(4000) * 4096, &mut buf).unwrap();
                    for block in buf[..done].chunks_exact(4096) {
                        assert!(block.iter().all(|&byte| byte == block[0]), "a torn block");
                        assert_ne!(block[0], content::JUNK);
                    }
                }
            });
        }
    });
    let live = read_all(&volume, &node);
    volume.unmount().unwrap();
    drop((node, volume));
    image.fsck_clean().unwrap();
    assert!(dumped(&image, "shared") == live);
}

/// Each write comes before all others of its file: the first leaf of the tree splits at its front
/// once it is full, and what leads to it begins earlier. One of the files ends with the split.
#[test]
fn files_that_are_written_backwards_have_sound_trees() {
    const BLOCK: usize = 1024;
    /// The extents that a leaf has room for, and a few around them.
    const EXTENTS: std::ops::RangeInclusive<usize> = 80..=90;
    let image = Image::of_mib(16).args("-b 1024").make().unwrap();
    // An extent is written as soon as it is there: no conversion comes later.
    let options = "nobuffered_iomap,nodelalloc,dioread_lock";
    let volume = mount_with(&image, options, 0, 64 << 20);
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let name = |extents: usize| format!("f{extents}");
    let mut model = vec![0; 2 * EXTENTS.end() * BLOCK];
    for (nth, block) in model.chunks_exact_mut(BLOCK).enumerate() {
        // Every other block, so that no two are one extent.
        block.fill(u8::from(nth % 2 == 1) * u8::try_from(nth).unwrap());
    }
    for extents in EXTENTS {
        let node = volume.create(&root, name(extents).as_bytes(), 0o644, &cred);
        let node = node.unwrap();
        for nth in (0..extents).rev() {
            let pos = (2 * nth + 1) * BLOCK;
            let bytes = &model[pos..pos + BLOCK];
            volume.write(&node, pos as u64, bytes, &cred).unwrap();
        }
        assert!(read_all(&volume, &node) == model[..2 * extents * BLOCK]);
    }
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
    for extents in EXTENTS {
        assert!(dumped(&image, &name(extents)) == model[..2 * extents * BLOCK]);
    }
}

/// Requests of a queue and the cache show each other's bytes, with the file's blocks known to the
/// queue or not.
#[test]
fn a_queue_and_the_cache_agree() {
    const BLOCK: usize = 4096;
    let image = Image::of_mib(16).args("-b 4096").make().unwrap();
    let volume = mount(&image, 3, 64 << 20);
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let node = volume.create(&root, b"f", 0o644, &cred).unwrap();
    let mut model = vec![1; 16 * BLOCK];
    volume.write(&node, 0, &model, &cred).unwrap();
    volume.fsync(&node, false).unwrap();
    let mut queue = volume.direct_queue(4, &cred);
    let mut rng = Rng::new(1);
    for round in 0..60 {
        let at = rng.index(16) * BLOCK;
        let bytes = [2 + round; BLOCK];
        model[at..at + BLOCK].copy_from_slice(&bytes);
        if rng.chance(50) {
            // It stays in the cache.
            volume.write(&node, at as u64, &bytes, &cred).unwrap();
        } else {
            let mut buf = queue.buffer(BLOCK);
            buf.copy_from_slice(&bytes);
            queue.write(&node, at as u64, buf, 0).unwrap();
            assert_eq!(queue.wait(1).remove(0).result.unwrap(), BLOCK);
        }
        let from = rng.index(16) * BLOCK;
        let len = (1 + rng.index(4)) * BLOCK;
        let expected = &model[from..(from + len).min(model.len())];
        if rng.chance(50) {
            let mut buf = vec![0; len];
            let got = volume.read(&node, from as u64, &mut buf).unwrap();
            assert!(&buf[..got] == expected, "round {round}, through the cache");
        } else {
            let buf = queue.buffer(len);
            queue.read(&node, from as u64, buf, 0).unwrap();
            let read = queue.wait(1).remove(0);
            let got = read.result.unwrap();
            assert!(&read.buf[..got] == expected, "round {round}, past it");
        }
        match rng.below(8) {
            0 => volume.drop_caches(),
            1 => volume.fsync(&node, false).unwrap(),
            _ => {}
        }
    }
    drop((queue, node));
    volume.unmount().unwrap();
    assert!(dumped(&image, "f") == model);
}

#[test]
fn a_deleted_file_is_not_written() {
    let image = Image::of_mib(64).junk().make().unwrap();
    let volume = mount(&image, 9, 64 << 20);
    let root = volume.root().unwrap();
    let free = volume.statfs().unwrap().blocks_free;
    let node = volume.create(&root, b"gone", 0o644, &Cred::root()).unwrap();
    volume
        .write(&node, 0, &vec![1; 10 << 20], &Cred::root())
        .unwrap();
    volume.unlink(&root, b"gone").unwrap();
    // Still open: still there.
    assert_eq!(read_all(&volume, &node).len(), 10 << 20);
    volume.write(&node, 0, b"more", &Cred::root()).unwrap();
    drop(node);
    volume.sync().unwrap();
    assert_eq!(volume.statfs().unwrap().blocks_free, free);
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

#[test]
fn conversions_find_room_where_all_that_is_free_waits_for_a_commit() {
    // Blocks of 1 KiB: a few extents fill the inode, and the tree grows by a block when its file is
    // converted.
    let image = Image::of_mib(64).args("-b 1024").make().unwrap();
    let volume = mount(&image, 9, 1 << 30);
    let root = volume.root().unwrap();
    let chunk = vec![1; 1 << 20];
    for round in 0..30 {
        let node = volume.create(&root, b"f", 0o644, &Cred::root()).unwrap();
        let mut pos = 0;
        while pos < 36 << 20 {
            pos += volume.write(&node, pos, &chunk, &Cred::root()).unwrap() as u64;
        }
        let synced = volume.fsync(&node, true);
        assert!(synced.is_ok(), "round {round}: {synced:?}");
        drop(node);
        volume.unlink(&root, b"f").unwrap();
    }
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

#[test]
fn what_a_caller_caches_goes_straight_to_the_device() {
    const MIB: usize = 1 << 20;
    let image = Image::of_mib(64).args("-b 4096").junk().make().unwrap();
    let volume = mount(&image, 9, 16 << 20);
    let cred = Cred::root();
    let root = volume.root().unwrap();
    let node = volume.create(&root, b"f", 0o644, &cred).unwrap();
    let counter = |name: &str| {
        let all = volume.stats();
        all.iter().find(|(n, _)| *n == name).unwrap().1
    };
    let mut model = vec![0; 7 * MIB];
    let mut put = |pos: usize, len: usize, byte: u8| {
        model[pos..pos + len].fill(byte);
        let done = volume
            .write_back(&node, pos as u64, &vec![byte; len], &cred)
            .unwrap();
        assert_eq!(done, len);
    };
    // Out of order, as several of a kernel's requests may arrive; then a hole; then a tail that
    // ends in a block.
    put(MIB, MIB, 2);
    put(0, MIB, 1);
    put(3 * MIB, MIB + 1000, 3);
    let (handles, wb) = (counter("handles"), counter("wb_bytes"));
    assert!(counter("uncached_writes") >= 3 && handles > 0);
    assert_eq!(wb, 3 * MIB as u64, "the tail is in the cache");
    let mut read = vec![9; 5 * MIB];
    // Into the cache: what is there must not survive the next write.
    assert_eq!(volume.read(&node, 0, &mut read).unwrap(), 4 * MIB + 1000);
    assert!(counter("page_cache_used_bytes") >= MIB as u64);
    // Over what is written, and cached.
    put(MIB / 2, MIB, 4);
    // Over what is dirty in the cache: through it.
    let dirty = [5; 100];
    assert_eq!(
        volume
            .write(&node, 3 * MIB as u64 + 50, &dirty, &cred)
            .unwrap(),
        100
    );
    let passed = counter("uncached_writes");
    put(3 * MIB - MIB / 2, MIB, 6);
    assert_eq!(counter("uncached_writes"), passed);
    // A small one, and one that cuts blocks.
    put(6 * MIB, 4096, 7);
    put(5 * MIB + 1, MIB / 2, 8);
    assert_eq!(counter("uncached_writes"), passed);
    model.truncate(6 * MIB + 4096);
    assert!(read_all(&volume, &node) == model);
    volume.fsync(&node, true).unwrap();
    assert!(read_all(&volume, &node) == model);
    volume.unmount().unwrap();
    assert!(dumped(&image, "f") == model, "on the device");
    image.fsck_clean().unwrap();
}

#[test]
fn readers_never_see_the_old_bytes_after_a_write_past_the_cache() {
    const LEN: usize = 1 << 20;
    let image = Image::of_mib(64).args("-b 4096").make().unwrap();
    let volume = mount(&image, 9, 16 << 20);
    let cred = Cred::root();
    let root = volume.root().unwrap();
    let node = volume.create(&root, b"f", 0o644, &cred).unwrap();
    let last = std::sync::atomic::AtomicU8::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut buf = vec![0; LEN];
                while !stop.load(Ordering::Acquire) {
                    let before = last.load(Ordering::Acquire);
                    let done = volume.read(&node, 0, &mut buf).unwrap();
                    // Newer is fine; older than what was finished before the read began is not.
                    let oldest = buf[..done].iter().min().copied().unwrap_or(u8::MAX);
                    assert!(oldest >= before, "{oldest} after {before}");
                }
            });
        }
        let _stop = Stop::at_end(&stop);
        for round in 1..=200u8 {
            volume
                .write_back(&node, 0, &vec![round; LEN], &cred)
                .unwrap();
            last.store(round, Ordering::Release);
        }
    });
    assert!(read_all(&volume, &node) == vec![200; LEN]);
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}
