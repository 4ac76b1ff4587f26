//! Images in a folder of the host: whole round trips, what versions share, and what is told when
//! the folder is damaged.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_store::{
    Caches, DiskCache, Error, GcOptions, Location, Prefix, PushOptions, Pushed, Store, StoredImage,
    gc, prefetch, pull, push, versions,
};
use extant_testkit::{Fault, FaultyDevice, Request, RequestKind, Rng, TempDir, wait_until};
use extant_units::DevOff;

const CHUNK: usize = 4096;
const OPTIONS: PushOptions = PushOptions {
    chunk_bytes: 4096,
    threads: 4,
    resend: false,
};

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new("store").unwrap())
    }

    fn location(&self, name: &str) -> Location {
        let folder = self.0.path().display();
        format!("file://{folder}/{name}").parse().unwrap()
    }

    fn push(&self, name: &str, image: &dyn BlockDevice) -> Result<Pushed, Error> {
        let location = self.location(name);
        let store = Store::open(&location)?;
        push(&store, image, OPTIONS, &|| true, &|_| {})
    }

    fn pull(&self, name: &str) -> Result<Vec<u8>, Error> {
        let location = self.location(name);
        let store = Store::open(&location)?;
        let make = |len| Ok(MemoryDevice::new(len));
        let (_, image) = pull(&store, make, &|_| {})?;
        Ok(image.to_bytes())
    }

    fn open(&self, name: &str, memory: u64) -> StoredImage {
        let caches = Caches { memory, disk: None };
        StoredImage::open(&self.location(name), caches).unwrap()
    }

    /// The files of a folder in it, in order.
    fn files(&self, below: &str) -> Vec<PathBuf> {
        fn walk(dir: &Path, to: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(dir).into_iter().flatten() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => walk(&path, to),
                    false => to.push(path),
                }
            }
        }
        let mut files = Vec::new();
        walk(&self.0.join(below), &mut files);
        files.sort();
        files
    }
}

/// `chunks` chunks, every fourth of which is zeros, and a part of one.
fn content(seed: u64, chunks: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = Vec::new();
    for nth in 0..chunks {
        let words = (0..CHUNK / 16).flat_map(|_| rng.next_u64().to_le_bytes());
        let chunk: Vec<u8> = words.chain(std::iter::repeat_n(7, CHUNK / 2)).collect();
        bytes.extend(if nth % 4 == 3 { vec![0; CHUNK] } else { chunk });
    }
    bytes.extend([9; 1000]);
    bytes
}

fn device(bytes: &[u8]) -> MemoryDevice {
    MemoryDevice::from_bytes(bytes)
}

#[test]
fn an_image_comes_back_and_versions_share_chunks() {
    let folder = Folder::new();
    let mut bytes = content(1, 20);
    let first = folder.push("root", &device(&bytes)).unwrap();
    assert_eq!(
        (first.version.number, first.chunks, first.new_chunks),
        (1, 16, 16)
    );
    assert_eq!(folder.files("chunks").len(), 16);
    let old = bytes.clone();
    bytes[5 * CHUNK + 17] ^= 1;
    let second = folder.push("root", &device(&bytes)).unwrap();
    assert_eq!(
        (second.version.number, second.chunks, second.new_chunks),
        (2, 16, 1)
    );
    assert!(second.sent_bytes < 4096, "{}", second.sent_bytes);
    let other = folder.push("copy", &device(&bytes)).unwrap();
    assert_eq!((other.version.number, other.new_chunks), (1, 0));

    assert!(folder.pull("root").unwrap() == bytes);
    assert!(folder.pull("root@1").unwrap() == old);
    let location = folder.location("root");
    let all = versions(&Store::open(&location).unwrap()).unwrap();
    let all: Vec<_> = all
        .into_iter()
        .map(|(_, version)| version.unwrap())
        .collect();
    assert_eq!(all, [first.version, second.version]);
    assert!(matches!(folder.pull("none"), Err(Error::NoImage)));
    let missing = folder.pull("root@3");
    assert!(
        matches!(missing, Err(Error::NoVersion { number: 3 })),
        "{missing:?}"
    );
}

#[test]
fn reads_fetch_each_chunk_once_and_zeros_never() {
    let folder = Folder::new();
    let bytes = content(2, 12);
    folder.push("root", &device(&bytes)).unwrap();
    let image = folder.open("root", 64 << 20);
    assert_eq!(image.len(), bytes.len() as u64);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (image, bytes) = (&image, &bytes);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                for _ in 0..200 {
                    let from = rng.index(bytes.len());
                    let len = rng.index(3 * CHUNK);
                    let len = len.min(bytes.len() - from);
                    let mut buf = vec![1; len];
                    image.read_at(DevOff::new(from as u64), &mut buf).unwrap();
                    assert!(buf == bytes[from..from + len], "{from} {len}");
                }
            });
        }
    });
    let (_, fetched) = image.counters()[0];
    assert_eq!(fetched, 10, "nine chunks that are not zeros, and the last");
    let end = DevOff::new(bytes.len() as u64 - 1);
    assert!(image.read_at(end, &mut [0; 2]).is_err(), "past the end");
    assert!(image.write_at(DevOff::ZERO, &[1]).is_err());
}

#[test]
fn few_chunks_stay_in_memory() {
    let folder = Folder::new();
    let bytes = content(3, 15);
    folder.push("root", &device(&bytes)).unwrap();
    let image = folder.open("root", 0);
    let mut buf = vec![0; bytes.len()];
    for _ in 0..2 {
        image.read_at(DevOff::ZERO, &mut buf).unwrap();
        assert!(buf == bytes);
    }
    assert_eq!(
        image.counters()[0].1,
        26,
        "each twice: four are kept of thirteen"
    );
}

/// A second reader takes all from the folder, and the store only for what is damaged there.
#[test]
fn readers_share_a_folder_of_chunks() {
    let folder = Folder::new();
    let bytes = content(10, 8);
    folder.push("root", &device(&bytes)).unwrap();
    let cached = || {
        let disk = DiskCache::open(&folder.0.join("cache"), 1 << 20).unwrap();
        let caches = Caches {
            memory: 0,
            disk: Some(disk),
        };
        let image = StoredImage::open(&folder.location("root"), caches).unwrap();
        let mut buf = vec![0; bytes.len()];
        image.read_at(DevOff::ZERO, &mut buf).unwrap();
        assert!(buf == bytes);
        (image.counters()[0].1, image.counters()[1].1)
    };
    assert_eq!(cached(), (7, 0));
    assert_eq!(cached(), (0, 7));
    let files = folder.files("cache/chunks");
    assert_eq!(files.len(), 7);
    std::fs::write(&files[2], b"torn").unwrap();
    assert_eq!(cached(), (1, 6));
    assert_eq!(cached(), (0, 7));
}

/// A read of a damaged chunk fails and names it; the others are read.
#[test]
fn a_damaged_or_missing_chunk_is_named() {
    let folder = Folder::new();
    let bytes = content(4, 8);
    folder.push("root", &device(&bytes)).unwrap();
    let files = folder.files("chunks");
    let name = |file: &Path| file.file_name().unwrap().to_str().unwrap().to_owned();
    let (altered, swapped, missing) = (&files[0], &files[1], &files[2]);
    let mut object = std::fs::read(altered).unwrap();
    let middle = object.len() / 2;
    object[middle] ^= 1;
    std::fs::write(altered, object).unwrap();
    std::fs::copy(&files[3], swapped).unwrap();
    std::fs::remove_file(missing).unwrap();
    let image = folder.open("root", 64 << 20);
    let mut failed = Vec::new();
    for at in (0..bytes.len()).step_by(CHUNK) {
        let mut buf = [0; 100];
        match image.read_at(DevOff::new(at as u64), &mut buf) {
            Ok(()) => assert!(buf == bytes[at..at + 100]),
            Err(error) => failed.push(error.to_string()),
        }
    }
    assert_eq!(failed.len(), 3, "{failed:#?}");
    for (file, why) in [
        (altered, "damaged"),
        (swapped, "damaged"),
        (missing, "missing"),
    ] {
        let named = |said: &&String| said.contains(&name(file)) && said.contains(why);
        assert_eq!(failed.iter().filter(named).count(), 1, "{failed:#?}");
    }
    assert!(folder.pull("root").is_err());
    // The push does not read what is there, unless it is asked to send all.
    let location = folder.location("root");
    let store = Store::open(&location).unwrap();
    let all = PushOptions {
        resend: true,
        ..OPTIONS
    };
    push(&store, &device(&bytes), all, &|| true, &|_| {}).unwrap();
    assert!(folder.pull("root").unwrap() == bytes);
}

/// Not even the version before it need be whole; objects of no content are none.
#[test]
fn a_push_mends_what_is_missing() {
    let folder = Folder::new();
    let bytes = content(11, 8);
    folder.push("root", &device(&bytes)).unwrap();
    let files = folder.files("chunks");
    std::fs::remove_file(&files[0]).unwrap();
    std::fs::write(&files[1], b"").unwrap();
    for manifest in folder.files("manifests") {
        std::fs::remove_file(manifest).unwrap();
    }
    assert!(folder.pull("root").is_err());
    let pushed = folder.push("root", &device(&bytes)).unwrap();
    assert_eq!((pushed.version.number, pushed.new_chunks), (2, 2));
    assert!(folder.pull("root").unwrap() == bytes);
}

#[test]
fn an_image_that_changes_is_not_pushed() {
    let folder = Folder::new();
    let location = folder.location("root");
    let store = Store::open(&location).unwrap();
    let image = device(&content(12, 4));
    let pushed = push(&store, &image, OPTIONS, &|| false, &|_| {});
    assert!(matches!(pushed, Err(Error::Changed)), "{pushed:?}");
    assert!(matches!(folder.pull("root"), Err(Error::NoImage)));
}

#[test]
fn objects_of_other_names_are_no_versions() {
    let folder = Folder::new();
    let bytes = content(13, 4);
    folder.push("root", &device(&bytes)).unwrap();
    for stray in ["7", "+0000000000000000007", "notes", "00000000000000000000"] {
        std::fs::write(folder.0.join("names/root").join(stray), b"{}").unwrap();
    }
    assert!(folder.pull("root").unwrap() == bytes);
    assert_eq!(
        folder.push("root", &device(&bytes)).unwrap().version.number,
        2
    );
    let last = folder.0.join("names/root/18446744073709551615");
    std::fs::write(last, b"{}").unwrap();
    let pushed = folder.push("root", &device(&bytes));
    assert!(matches!(pushed, Err(Error::Damaged { .. })), "{pushed:?}");
    let location = folder.location("root");
    let all = versions(&Store::open(&location).unwrap()).unwrap();
    let good: Vec<bool> = all.iter().map(|(_, version)| version.is_ok()).collect();
    assert_eq!(good, [true, true, false]);
}

#[test]
fn a_damaged_manifest_or_version_is_refused() {
    let folder = Folder::new();
    folder.push("root", &device(&content(5, 8))).unwrap();
    for below in ["manifests", "names/root"] {
        let [file] = &folder.files(below)[..] else {
            panic!("one file")
        };
        let good = std::fs::read(file).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(file, bad).unwrap();
            // The time and the length of a version are shown, and nothing goes by them.
            let opened = StoredImage::open(&folder.location("root"), Caches::default());
            assert!(
                opened.is_err() || below != "manifests",
                "{below}, byte {at}"
            );
        }
        std::fs::write(file, vec![b'1'; 5000]).unwrap();
        assert!(StoredImage::open(&folder.location("root"), Caches::default()).is_err());
        std::fs::write(file, good).unwrap();
        assert!(StoredImage::open(&folder.location("root"), Caches::default()).is_ok());
    }
}

/// Only direct children of a name are its versions.
#[test]
fn what_lies_below_a_version_is_none() {
    let folder = Folder::new();
    let bytes = content(11, 2);
    folder.push("root", &device(&bytes)).unwrap();
    let deep = folder.0.join("names/root/x/00000000000000000009");
    std::fs::create_dir_all(deep.parent().unwrap()).unwrap();
    std::fs::write(deep, "{}").unwrap();
    assert!(folder.pull("root").unwrap() == bytes);
    let pushed = folder.push("root", &device(&bytes)).unwrap();
    assert_eq!(pushed.version.number, 2);
}

/// The other push ends while this one reads.
#[test]
fn of_two_pushes_of_one_name_one_fails() {
    let folder = Folder::new();
    let (ours, theirs) = (content(6, 8), content(7, 8));
    let location = folder.location("root");
    let store = Store::open(&location).unwrap();
    let calls = AtomicU64::new(0);
    let meanwhile = |_| {
        if calls.fetch_add(1, Ordering::SeqCst) == 3 {
            folder.push("root", &device(&theirs)).unwrap();
        }
    };
    let pushed = push(&store, &device(&ours), OPTIONS, &|| true, &meanwhile);
    assert!(
        matches!(pushed, Err(Error::Overtaken { number: 1 })),
        "{pushed:?}"
    );
    assert!(folder.pull("root").unwrap() == theirs);
    assert_eq!(
        folder.push("root", &device(&ours)).unwrap().version.number,
        2
    );
}

/// A push that ends early leaves the version before it, and what it sent is not sent again.
#[test]
fn a_push_that_ended_early_goes_on() {
    let folder = Folder::new();
    let old = content(8, 8);
    folder.push("root", &device(&old)).unwrap();
    let new = content(9, 40);
    for reads in [0, 1, 7, 20, 33] {
        let count = AtomicU64::new(0);
        let plan = move |request: Request<'_>| match request.kind {
            RequestKind::Read if count.fetch_add(1, Ordering::SeqCst) >= reads => {
                Fault::Fail(std::io::ErrorKind::Other)
            }
            _ => Fault::Pass,
        };
        let failing = FaultyDevice::new(device(&new), plan);
        assert!(matches!(folder.push("root", &failing), Err(Error::Io(_))));
        assert!(folder.pull("root").unwrap() == old, "after {reads} reads");
    }
    let before = folder.files("chunks").len();
    let pushed = folder.push("root", &device(&new)).unwrap();
    assert!(
        before > 7 + 20 && pushed.new_chunks < 12,
        "{before}, {pushed:?}"
    );
    assert!(folder.pull("root").unwrap() == new);
}

/// A manifest that a store made up: its first chunk has the hash of its last, shorter one.
#[test]
fn a_hash_in_two_lengths_is_no_chunk() {
    let folder = Folder::new();
    let short = [5; 100];
    let hash = blake3::hash(&short);
    let mut manifest = b"extchunk".to_vec();
    manifest.extend([1_u32, 4096].map(u32::to_le_bytes).as_flattened());
    manifest.extend(4196_u64.to_le_bytes());
    manifest.extend([*hash.as_bytes(); 2].as_flattened());
    manifest.extend([0; 2]);
    let named = blake3::hash(&manifest).to_hex().to_string();
    let version =
        format!("{{\"format\":1,\"manifest\":\"{named}\",\"bytes\":4196,\"time\":0,\"push\":0}}");
    let hex = hash.to_hex().to_string();
    for (object, content) in [
        (
            format!("chunks/{}/{hex}", &hex[..2]),
            zstd::bulk::compress(&short, 1).unwrap(),
        ),
        (format!("manifests/{named}"), manifest),
        (
            "names/root/00000000000000000001".to_owned(),
            version.into_bytes(),
        ),
    ] {
        let path = folder.0.join(object);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let image = folder.open("root", 64 << 20);
    let mut buf = [0; 100];
    image.read_at(DevOff::new(4096), &mut buf).unwrap();
    assert_eq!(buf, short);
    let read = image.read_at(DevOff::new(3000), &mut buf);
    assert!(read.is_err_and(|error| error.to_string().contains(&hex)));
}

/// `count` chunks with content, none of which is zeros.
fn full(seed: u64, count: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let words = (0..count * CHUNK / 8).flat_map(|_| rng.next_u64().to_le_bytes());
    words.collect()
}

fn counter(image: &StoredImage, name: &str) -> u64 {
    let counters = image.counters();
    counters.iter().find(|(one, _)| *one == name).unwrap().1
}

#[test]
fn a_start_is_read_ahead_in_the_order_of_the_one_before() {
    let folder = Folder::new();
    folder.push("root", &device(&full(9, 64))).unwrap();
    let image = folder.open("root", 1 << 20);
    for chunk in [40, 41, 7, 40, 3] {
        let at = DevOff::new(chunk * CHUNK as u64 + 5);
        image.read_at(at, &mut [0; 10]).unwrap();
    }
    let list = image.start_list();
    assert_eq!(list.chunks(), [40, 41, 7, 3]);

    let again = Arc::new(folder.open("root", 1 << 20));
    prefetch(&again, list.to_string().parse().unwrap()).unwrap();
    wait_until("reading ahead", || {
        counter(&again, "chunks_read_ahead") == 4
    });
    assert_eq!(counter(&again, "chunks_fetched"), 4);
    for chunk in list.chunks() {
        let at = DevOff::new(u64::from(*chunk) * CHUNK as u64);
        again.read_at(at, &mut [0; 10]).unwrap();
    }
    assert_eq!(counter(&again, "chunks_fetched"), 4, "all were there");
    assert_eq!(again.start_list(), list, "reading ahead is no read");
}

#[test]
fn what_is_read_ahead_waits_for_its_readers() {
    let folder = Folder::new();
    folder.push("root", &device(&full(10, 64))).unwrap();
    let all = "extant start list 1\nchunk-bytes 4096\n0-63\n9999\n";
    // Memory for 16 chunks: 8 are read ahead of the readers.
    let image = Arc::new(folder.open("root", 16 * CHUNK as u64));
    prefetch(&image, all.parse().unwrap()).unwrap();
    for read in 0..=56 {
        wait_until("reading ahead", || {
            counter(&image, "chunks_read_ahead") == 8 + read
        });
        let at = DevOff::new(read * CHUNK as u64);
        image.read_at(at, &mut [0; 10]).unwrap();
    }
    assert_eq!(counter(&image, "chunks_fetched"), 64, "each chunk once");

    // Chunks of another length are others, and an image that is dropped is not read.
    let other = all.replace("4096", "8192").parse().unwrap();
    let image = Arc::new(folder.open("root", 16 * CHUNK as u64));
    prefetch(&image, other).unwrap();
    prefetch(&image, all.parse().unwrap()).unwrap();
    wait_until("reading ahead", || {
        counter(&image, "chunks_read_ahead") == 8
    });
    let weak = Arc::downgrade(&image);
    drop(image);
    wait_until("the threads", || weak.upgrade().is_none());

    // With a folder, all of it.
    let caches = Caches {
        memory: 0,
        disk: Some(DiskCache::open(&folder.0.join("cache"), 1 << 20).unwrap()),
    };
    let image = Arc::new(StoredImage::open(&folder.location("root"), caches).unwrap());
    prefetch(&image, all.parse().unwrap()).unwrap();
    wait_until("reading ahead", || {
        counter(&image, "chunks_read_ahead") == 64
    });
}

#[test]
fn versions_go_only_where_the_others_can_be_read() {
    let folder = Folder::new();
    for seed in 1..4 {
        folder.push("root", &device(&content(seed, 5))).unwrap();
    }
    let prefix = format!("file://{}", folder.0.path().display());
    let store = Store::open_prefix(&prefix.parse::<Prefix>().unwrap()).unwrap();
    let options = GcOptions {
        keep: NonZeroUsize::new(1),
        ..GcOptions::default()
    };
    let last = folder.files("names").pop().unwrap();
    let good = std::fs::read(&last).unwrap();
    std::fs::write(&last, "damaged").unwrap();
    assert!(matches!(
        gc(&store, options, &|_, _| {}),
        Err(Error::Damaged { .. })
    ));
    assert_eq!(
        folder.files("names").len(),
        3,
        "what is left could not be read"
    );
    std::fs::write(&last, good).unwrap();
    let collected = gc(&store, options, &|_, _| {}).unwrap();
    assert_eq!((collected.versions, folder.files("names").len()), (2, 1));
}
