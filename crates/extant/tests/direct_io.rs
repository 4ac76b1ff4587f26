//! Direct I/O of the library: one file content, past the cache or through it.

use extant::{BufferedPath, DirectQueue, Error, File, Filesystem, IoBuf, Tuning};
use extant_testkit::{Image, Rng, content};

/// Block size, path, mount options.
const SETUPS: [(&str, BufferedPath, &str); 7] = [
    ("-t ext3 -b 1024", BufferedPath::Iomap, ""),
    ("-b 4096", BufferedPath::Iomap, ""),
    ("-b 1024", BufferedPath::Iomap, ""),
    ("-b 4096", BufferedPath::BufferHead, ""),
    ("-b 1024", BufferedPath::BufferHead, "dioread_lock"),
    ("-b 4096", BufferedPath::Iomap, "data=journal"),
    ("-b 2048", BufferedPath::Iomap, "nodelalloc"),
];

fn open(image: &Image, path: BufferedPath, options: &str) -> Filesystem {
    let mut tuning = Tuning::default();
    tuning.buffered_path = path;
    tuning.page_cache_bytes = Some(32 << 20);
    let mut how = Filesystem::options();
    how.write(true).tuning(tuning).mount_options(options);
    how.open(image.path()).unwrap()
}

/// Returns whether files of such a volume can have space without data.
fn allocates(args: &str) -> bool {
    !args.contains("ext3")
}

fn counter(fs: &Filesystem, name: &str) -> u64 {
    let stats = fs.volume().stats();
    let found = stats.iter().find(|(known, _)| *known == name);
    found.map_or_else(|| panic!("no counter {name}"), |(_, value)| *value)
}

/// The file `/f`, direct and not.
fn both(fs: &Filesystem) -> (File, File) {
    let mut options = fs.open_options();
    options.read(true).write(true).create(true);
    let buffered = options.open("/f").unwrap();
    (buffered, options.direct(true).open("/f").unwrap())
}

/// The same with 64 KiB of ones on the device and nothing of them cached.
fn both_laid_out(fs: &Filesystem) -> (File, File) {
    let (buffered, direct) = both(fs);
    buffered.write_at(&[1; 65536], 0).unwrap();
    buffered.sync_all().unwrap();
    fs.volume().drop_caches();
    (buffered, direct)
}

fn read(file: &File, pos: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    let mut done = 0;
    while done < len {
        match file.read_at(&mut buf[done..], pos + done as u64).unwrap() {
            0 => break,
            more => done += more,
        }
    }
    buf.truncate(done);
    buf
}

#[test]
fn an_aligned_overwrite_goes_to_the_device_and_nowhere_else() {
    let image = Image::of_mib(64).junk().make().unwrap();
    let fs = open(&image, BufferedPath::Iomap, "");
    let (buffered, direct) = both(&fs);
    buffered.write_at(&[1; 1 << 20], 0).unwrap();
    buffered.sync_all().unwrap();
    fs.volume().drop_caches();
    direct.write_at(&[2; 4096], 8192).unwrap();
    let names = [
        "handles",
        "inode_dirty_calls",
        "map_calls",
        "alloc_calls",
        "fill_reads",
    ];
    let counts = || names.map(|name| counter(&fs, name));
    // Sometimes a thread of the file system stores times that were noted.
    let quiet = (0..10).any(|_| {
        let (before, ioends) = (counts(), counter(&fs, "ioends"));
        for block in 0..16 {
            direct.write_at(&[3; 8192], block << 16).unwrap();
        }
        assert_eq!(counter(&fs, "ioends"), ioends + 16);
        counts() == before
    });
    assert!(quiet, "{names:?}: {:?}", counts());
    assert_eq!(counter(&fs, "direct_fallbacks"), 0);
    assert_eq!(counter(&fs, "page_cache_used_bytes"), 0);
    let mut expected = vec![1; 1 << 20];
    expected[8192..12_288].fill(2);
    for block in 0..16 {
        expected[block << 16..][..8192].fill(3);
    }
    assert!(read(&buffered, 0, 1 << 20) == expected);
}

#[test]
fn what_is_cached_is_written_before_and_gone_after() {
    for (args, path, options) in SETUPS {
        let image = Image::of_mib(32).args(args).junk().make().unwrap();
        let fs = open(&image, path, options);
        let (buffered, direct) = both(&fs);
        // Delayed, dirty, and large folios around the range.
        buffered.write_at(&[1; 300_000], 0).unwrap();
        assert!(
            read(&direct, 0, 400_000) == vec![1; 300_000],
            "{args} {options}"
        );
        buffered.write_at(&[2; 100_000], 100_000).unwrap();
        let view = buffered.view(140_000..200_000).unwrap();
        assert_eq!(direct.write_at(&[3; 8192], 147_456).unwrap(), 8192);
        assert_eq!(
            view.chunks().flatten().filter(|byte| **byte == 2).count(),
            60_000
        );
        let mut expected = vec![1; 300_000];
        expected[100_000..200_000].fill(2);
        expected[147_456..155_648].fill(3);
        assert!(read(&buffered, 0, 400_000) == expected, "{args} {options}");
        fs.volume().drop_caches();
        assert!(read(&direct, 0, 400_000) == expected, "{args} {options}");
        assert!(read(&buffered, 0, 400_000) == expected, "{args} {options}");
        drop((buffered, direct));
        fs.unmount().unwrap();
        image.fsck_clean().unwrap();
    }
}

#[test]
fn parts_of_blocks_leave_zeros_where_no_write_went() {
    for (args, path, options) in SETUPS {
        let image = Image::of_mib(32).args(args).junk().make().unwrap();
        let fs = open(&image, path, options);
        let (buffered, direct) = both(&fs);
        let mut model: Vec<u8> = Vec::new();
        let mut put = |pos: usize, len: usize, fill: u8| {
            assert_eq!(direct.write_at(&vec![fill; len], pos as u64).unwrap(), len);
            let size = model.len().max(pos + len);
            model.resize(size, 0);
            model[pos..pos + len].fill(fill);
        };
        // In a hole, behind the end, far behind it, across blocks, before the end of a last block.
        for (fill, (pos, len)) in (1..).zip([
            (100, 50),
            (700, 1),
            (5000, 9000),
            (100_001, 3),
            (99_000, 700),
            (20_000, 40_001),
            (60_001, 1023),
            (200_000, 512),
        ]) {
            put(pos, len, fill);
        }
        // Preallocated space, in the middle and behind the end; block maps have none.
        if allocates(args) {
            buffered.allocate(300_000..350_000).unwrap();
        } else {
            buffered.set_len(350_000).unwrap();
        }
        model.resize(350_000, 0);
        let mut put = |pos: usize, len: usize, fill: u8| {
            assert_eq!(direct.write_at(&vec![fill; len], pos as u64).unwrap(), len);
            model[pos..pos + len].fill(fill);
        };
        put(310_001, 7, 11);
        put(320_000, 10_000, 12);
        put(349_999, 1, 13);
        for _ in 0..2 {
            assert!(read(&direct, 0, 400_000) == model, "{args} {options}");
            assert!(read(&buffered, 0, 400_000) == model, "{args} {options}");
            assert_eq!(read(&direct, 349_990, 100).len(), 10);
            assert_eq!(read(&direct, 350_000, 100).len(), 0);
            fs.volume().drop_caches();
        }
        // The rest of the last block is zero as well.
        buffered.set_len(400_000).unwrap();
        model.resize(400_000, 0);
        assert!(read(&direct, 0, 400_000) == model, "{args} {options}");
        drop((buffered, direct));
        fs.unmount().unwrap();
        image.fsck_clean().unwrap();
        let fs = open(&image, path, options);
        assert!(fs.read("/f").unwrap() == model, "{args} {options}");
    }
}

#[test]
fn appends_and_access_are_as_for_every_file() {
    let image = Image::of_mib(32).make().unwrap();
    let fs = open(&image, BufferedPath::Iomap, "");
    let mut options = fs.open_options();
    let mut log = options
        .append(true)
        .create(true)
        .direct(true)
        .open("/log")
        .unwrap();
    for n in 0..10u8 {
        std::io::Write::write_all(&mut log, &vec![n; 3000]).unwrap();
    }
    assert!(matches!(log.read_at(&mut [0], 0), Err(Error::BadHandle)));
    let expected: Vec<u8> = (0..30_000u32)
        .map(|at| (at / 3000).to_le_bytes()[0])
        .collect();
    assert!(fs.read("/log").unwrap() == expected);
    let reader = fs
        .open_options()
        .read(true)
        .direct(true)
        .open("/log")
        .unwrap();
    assert!(matches!(reader.write_at(&[0], 0), Err(Error::BadHandle)));
    let mut queue = fs.direct_queue(2);
    let refused = queue.write(&reader, 0, IoBuf::zeroed(4096), 0);
    assert!(matches!(refused, Err(Error::BadHandle)));
    let refused = queue.write(&log, 0, IoBuf::zeroed(4096), 0);
    assert!(matches!(refused, Err(Error::BadHandle)));
    assert_eq!(queue.outstanding(), 0);
    fs.set_permissions("/log", extant::Permissions::from_mode(0o4755))
        .unwrap();
    log.write_at(b"x", 0).unwrap();
    drop(queue);
}

#[test]
fn no_space_is_reported_and_leaves_the_rest_alone() {
    let image = Image::of_mib(16).junk().make().unwrap();
    let fs = open(&image, BufferedPath::Iomap, "");
    let (buffered, direct) = both(&fs);
    let piece = vec![7; 1 << 20];
    let mut size = 0;
    let full = loop {
        match direct.write_at(&piece, size) {
            Ok(done) => size += done as u64,
            Err(error) => break error,
        }
        assert!(size <= 16 << 20);
    };
    assert!(matches!(full, Error::NoSpace), "{full}");
    assert!(matches!(
        direct.write_at(&piece, size + 8192),
        Err(Error::NoSpace)
    ));
    assert_eq!(buffered.metadata().unwrap().len(), size);
    assert_eq!(direct.write_at(&[8; 4096], 0).unwrap(), 4096);
    buffered.set_len(0).unwrap();
    assert_eq!(direct.write_at(&piece, 0).unwrap(), piece.len());
    drop((buffered, direct));
    fs.unmount().unwrap();
    image.fsck_clean().unwrap();
}

#[test]
fn a_queue_is_as_deep_as_it_may_be_and_no_deeper() {
    let image = Image::of_mib(32).make().unwrap();
    let fs = open(&image, BufferedPath::Iomap, "");
    for (asked, depth) in [(0, 1), (7, 7), (usize::MAX, 4096)] {
        assert_eq!(fs.direct_queue(asked).depth(), depth);
    }
}

#[test]
fn requests_complete_without_a_thread_that_reaps() {
    let image = Image::of_mib(32).make().unwrap();
    let fs = open(&image, BufferedPath::Iomap, "");
    let (buffered, direct) = both_laid_out(&fs);
    let mut queue = fs.direct_queue(4);
    for tag in 0..4 {
        let mut buf = IoBuf::zeroed(8192);
        buf.fill(2);
        queue.write(&direct, tag * 8192, buf, tag).unwrap();
    }
    assert_eq!(counter(&fs, "direct_fast_path"), 4);
    // Each needs something that a request in flight holds: the range, the file alone, the file
    // truncated.
    buffered.write_at(&[3; 100], 4000).unwrap();
    buffered.allocate(0..65536).unwrap();
    assert_eq!(
        read(&buffered, 8000, 400),
        [&[2; 192][..], &[2; 208][..]].concat()
    );
    buffered.sync_all().unwrap();
    fs.volume().drop_caches();
    queue.write(&direct, 8192, IoBuf::zeroed(4096), 4).unwrap();
    assert_eq!(counter(&fs, "direct_fast_path"), 5);
    buffered.set_len(8192).unwrap();
    let finished = queue.wait(5);
    assert_eq!(finished.len(), 5);
    assert!(finished.iter().all(|over| over.result.is_ok()));
    let mut expected = vec![2; 8192];
    expected[4000..4100].fill(3);
    assert!(read(&direct, 0, 10_000) == expected);
}

#[test]
fn unmounting_waits_for_requests_in_flight() {
    let image = Image::of_mib(32).make().unwrap();
    let fs = open(&image, BufferedPath::Iomap, "");
    let (buffered, direct) = both_laid_out(&fs);
    let mut queue = fs.direct_queue(16);
    for tag in 0..16 {
        let buf = IoBuf::copy_of(&[2; 4096]);
        queue.write(&direct, tag * 4096, buf, tag).unwrap();
    }
    fs.volume().unmount().unwrap();
    let done = queue.wait(16);
    assert!(done.iter().all(|over| matches!(over.result, Ok(4096))));
    queue.read(&direct, 0, IoBuf::zeroed(4096), 0).unwrap();
    assert!(queue.wait(1).remove(0).result.is_err());
    drop((queue, direct, buffered, fs));
    image.fsck_clean().unwrap();
    let fs = open(&image, BufferedPath::Iomap, "");
    assert!(fs.read("/f").unwrap() == [2; 65536]);
}

/// Random operations of every kind on one file, each checked against what it should be.
#[test]
fn direct_and_cached_operations_see_one_file() {
    for (round, (args, path, options)) in (1..).zip(SETUPS) {
        let image = Image::of_mib(64).args(args).junk().make().unwrap();
        let fs = open(&image, path, options);
        let seed = std::env::var("EXTANT_SEED")
            .ok()
            .and_then(|s| s.parse::<u64>().ok());
        let mut mixer = Mixer::new(
            &fs,
            Rng::new(seed.unwrap_or(4).wrapping_mul(round)),
            allocates(args),
        );
        for step in 0..600 {
            mixer.step();
            if step % 50 == 0 {
                mixer.check();
            }
        }
        mixer.check();
        let model = std::mem::take(&mut mixer.model);
        drop(mixer);
        fs.unmount().unwrap();
        image.fsck_clean().unwrap();
        let fs = open(&image, path, options);
        assert!(fs.read("/f").unwrap() == model, "{args} {options}");
    }
}

struct Mixer<'a> {
    fs: &'a Filesystem,
    buffered: File,
    direct: File,
    queue: DirectQueue,
    rng: Rng,
    model: Vec<u8>,
    allocates: bool,
}

impl<'a> Mixer<'a> {
    const MOST: u64 = 600_000;

    fn new(fs: &'a Filesystem, rng: Rng, allocates: bool) -> Self {
        let (buffered, direct) = both(fs);
        Self {
            fs,
            buffered,
            direct,
            queue: fs.direct_queue(8),
            rng,
            model: Vec::new(),
            allocates,
        }
    }

    /// Somewhere in the file or behind it, in every second case on a border.
    fn range(&mut self) -> (u64, usize) {
        let size = self.model.len() as u64;
        let pos = self.rng.below((size + 50_000).min(Self::MOST));
        let len = 1 + self.rng.below(30_000);
        let (pos, len) = if self.rng.chance(50) {
            (pos & !4095, len.next_multiple_of(4096))
        } else {
            (pos, len)
        };
        (pos, usize::try_from(len).unwrap())
    }

    fn put(&mut self, pos: u64, bytes: &[u8]) {
        let at = usize::try_from(pos).unwrap();
        let size = self.model.len().max(at + bytes.len());
        self.model.resize(size, 0);
        self.model[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn step(&mut self) {
        let (pos, len) = self.range();
        let bytes = content::fill(self.rng.next_u64(), pos, len);
        match self.rng.below(20) {
            0..=3 => {
                assert_eq!(self.direct.write_at(&bytes, pos).unwrap(), len);
                self.put(pos, &bytes);
            }
            4..=6 => {
                assert_eq!(self.buffered.write_at(&bytes, pos).unwrap(), len);
                self.put(pos, &bytes);
            }
            7..=9 => self.look(pos, len, true),
            10 | 11 => self.look(pos, len, false),
            12 => self.cut(),
            13 => self.flip(pos, len),
            14 => self.fs.volume().drop_caches(),
            15 => self.direct.sync_data().unwrap(),
            16 if self.allocates => {
                self.buffered.allocate(pos..pos + len as u64).unwrap();
                let end = usize::try_from(pos).unwrap() + len;
                self.model.resize(self.model.len().max(end), 0);
            }
            _ => self.in_flight(),
        }
    }

    fn look(&self, pos: u64, len: usize, direct: bool) {
        let file = if direct { &self.direct } else { &self.buffered };
        let at = usize::try_from(pos).unwrap().min(self.model.len());
        let end = (at + len).min(self.model.len());
        assert!(read(file, pos, len) == self.model[at..end]);
    }

    fn cut(&mut self) {
        let size = self.rng.below(Self::MOST);
        self.direct.set_len(size).unwrap();
        self.model.resize(usize::try_from(size).unwrap(), 0);
    }

    fn flip(&mut self, pos: u64, len: usize) {
        let model = &mut self.model;
        let change = |at: u64, bytes: &mut [u8]| {
            bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
            let at = usize::try_from(at).unwrap();
            model[at..at + bytes.len()].copy_from_slice(bytes);
        };
        self.buffered.edit(pos..pos + len as u64, change).unwrap();
    }

    /// Several requests at once, on ranges apart.
    fn in_flight(&mut self) {
        let mut expected = Vec::new();
        let reads = self.rng.chance(40);
        let mut pos = self.rng.below(100_000) & !4095;
        for tag in 0..6 {
            let len = 4096 * (1 + self.rng.index(3));
            if reads {
                self.queue
                    .read(&self.direct, pos, IoBuf::zeroed(len), tag)
                    .unwrap();
                let size = self.model.len();
                let at = usize::try_from(pos).unwrap().min(size);
                expected.push(self.model[at..(at + len).min(size)].to_vec());
            } else {
                let bytes = content::fill(self.rng.next_u64(), pos, len);
                let buf = IoBuf::copy_of(&bytes);
                self.queue.write(&self.direct, pos, buf, tag).unwrap();
                self.put(pos, &bytes);
                expected.push(bytes);
            }
            pos += (len + 4096 * self.rng.index(4)) as u64;
        }
        let finished = self.queue.wait(6);
        assert_eq!(finished.len(), 6);
        for over in finished {
            let expected = &expected[usize::try_from(over.tag).unwrap()];
            let done = over.result.unwrap();
            assert_eq!(done, expected.len());
            assert!(over.buf[..done] == expected[..]);
        }
    }

    fn check(&self) {
        assert_eq!(
            self.buffered.metadata().unwrap().len(),
            self.model.len() as u64
        );
        self.look(0, self.model.len() + 1, self.model.len().is_multiple_of(2));
    }
}
