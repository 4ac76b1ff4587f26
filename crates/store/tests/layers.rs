//! Layers over versions in a folder of the host: what is written, what a push of it sends, and what
//! is told of layers that do not fit.

use std::fs;
use std::path::PathBuf;

use extant_blockdev::{BlockDevice, MemoryDevice, OpenMode};
use extant_store::{
    Caches, Error, LayeredImage, Location, PushOptions, Pushed, Store, StoredImage, is_layer, push,
    push_layer, versions,
};
use extant_testkit::{Rng, TempDir};
use extant_units::DevOff;

const CHUNK: usize = 16 << 10;
const CHUNKS: usize = 24;

struct Folder(TempDir);

impl Folder {
    /// A folder with version 1 of `root`, and the content of that.
    fn new() -> (Self, Vec<u8>) {
        let folder = Self(TempDir::new("layers").unwrap());
        let mut rng = Rng::new(3);
        let words = (0..CHUNK * CHUNKS / 8).flat_map(|_| rng.next_u64().to_le_bytes());
        let bytes: Vec<u8> = words.collect();
        let options = PushOptions {
            chunk_bytes: u32::try_from(CHUNK).unwrap(),
            ..PushOptions::default()
        };
        let store = Store::open(&folder.location("root")).unwrap();
        let image = MemoryDevice::from_bytes(&bytes);
        push(&store, &image, options, &|| true, &|_| {}).unwrap();
        (folder, bytes)
    }

    fn location(&self, name: &str) -> Location {
        let folder = self.0.join("store").display().to_string();
        format!("file://{folder}/{name}").parse().unwrap()
    }

    fn layer(&self) -> PathBuf {
        self.0.join("layer")
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<LayeredImage, Error> {
        let caches = Caches::default();
        LayeredImage::open(&self.location(name), caches, &self.layer(), mode)
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let image = self.open("root", OpenMode::ReadWrite).unwrap();
        image.write_at(DevOff::new(at as u64), bytes).unwrap();
        image.flush().unwrap();
    }

    fn push(&self, name: &str) -> Result<Pushed, Error> {
        let store = Store::open(&self.location(name))?;
        let options = PushOptions::default();
        push_layer(&store, &self.layer(), Caches::default(), options, &|_| {})
    }

    fn versions(&self, name: &str) -> usize {
        let store = Store::open(&self.location(name)).unwrap();
        versions(&store).unwrap().len()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        all(&StoredImage::open(&self.location(name), Caches::default()).unwrap())
    }
}

fn all(image: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(image.len()).unwrap()];
    image.read_at(DevOff::ZERO, &mut bytes).unwrap();
    bytes
}

fn counter(image: &dyn BlockDevice, name: &str) -> u64 {
    let counters = image.counters();
    counters.iter().find(|(one, _)| *one == name).unwrap().1
}

#[test]
fn a_layer_becomes_the_next_version_and_goes_on_from_there() {
    let (folder, mut bytes) = Folder::new();
    let old = bytes.clone();
    folder.write(5 * CHUNK + 100, &[1; 50]);
    bytes[5 * CHUNK + 100..][..50].fill(1);
    folder.write(9 * CHUNK, &[0; CHUNK]);
    bytes[9 * CHUNK..][..CHUNK].fill(0);
    assert!(is_layer(&folder.layer()));
    let image = folder.open("root", OpenMode::ReadOnly).unwrap();
    assert!(all(&image) == bytes);
    assert_eq!(counter(&image, "blocks_in_layer"), 1 + 4);
    drop(image);
    assert!(folder.read("root") == old);

    // One chunk has other bytes, and one has zeros, which are not stored.
    let pushed = folder.push("root").unwrap();
    assert_eq!((pushed.version.number, pushed.new_chunks), (2, 1));
    assert_eq!(pushed.chunks, CHUNKS as u64 - 1);
    assert!(folder.read("root") == bytes);
    assert!(folder.read("root@1") == old);
    let image = folder.open("root", OpenMode::ReadOnly).unwrap();
    assert_eq!(counter(&image, "blocks_in_layer"), 0);
    assert_eq!(image.version(), 2);
    drop(image);

    folder.write(0, &[7; 10]);
    bytes[..10].fill(7);
    assert_eq!(folder.push("root").unwrap().version.number, 3);
    assert!(folder.read("root") == bytes);
}

#[test]
fn chunks_without_changes_are_neither_read_nor_asked_for() {
    let (folder, _) = Folder::new();
    folder.write(5 * CHUNK, &[1; 4096]);
    // A push of the whole image would notice.
    fs::rename(folder.0.join("store/chunks"), folder.0.join("away")).unwrap();
    fs::create_dir(folder.0.join("store/chunks")).unwrap();
    let failed = folder.push("root").unwrap_err();
    assert!(matches!(failed, Error::Io(_)), "{failed}");
    fs::remove_dir(folder.0.join("store/chunks")).unwrap();
    fs::rename(folder.0.join("away"), folder.0.join("store/chunks")).unwrap();
    let chunk = {
        let image = StoredImage::open(&folder.location("root"), Caches::default()).unwrap();
        image.manifest().chunks()[9].unwrap().to_string()
    };
    fs::remove_file(
        folder
            .0
            .join(format!("store/chunks/{}/{chunk}", &chunk[..2])),
    )
    .unwrap();
    assert_eq!(folder.push("root").unwrap().new_chunks, 1);
}

#[test]
fn a_push_that_ended_before_the_layer_was_emptied_is_not_pushed_again() {
    let (folder, _) = Folder::new();
    folder.write(0, b"changed");
    let before = fs::read(folder.layer()).unwrap();
    let first = folder.push("root").unwrap();
    fs::write(folder.layer(), &before).unwrap();
    assert_eq!(folder.push("root").unwrap().version, first.version);
    assert_eq!(folder.versions("root"), 2);

    // With other changes it is over an old version.
    fs::write(folder.layer(), &before).unwrap();
    folder.write(100, b"more");
    let refused = folder.push("root").unwrap_err();
    let expected = matches!(refused, Error::Superseded { base: 1, last: 2 });
    assert!(expected, "{refused}");
    let branched = folder.push("branch").unwrap();
    assert_eq!((branched.version.number, folder.versions("root")), (1, 2));
    let image = folder.open("branch", OpenMode::ReadWrite).unwrap();
    assert_eq!(counter(&image, "blocks_in_layer"), 0, "it goes on there");
    drop(image);
    fs::write(folder.layer(), &before).unwrap();
    let refused = folder.push("branch").unwrap_err();
    let expected = matches!(refused, Error::NotNew { last: 1 });
    assert!(expected, "a branch that is another one: {refused}");
}

#[test]
fn layers_that_do_not_fit_are_refused() {
    let (folder, bytes) = Folder::new();
    let said = |name: &str| {
        folder
            .open(name, OpenMode::ReadWrite)
            .unwrap_err()
            .to_string()
    };
    let none = folder.open("root", OpenMode::ReadOnly).unwrap_err();
    assert!(
        matches!(none, Error::Io(_)),
        "only what writes makes one: {none}"
    );
    folder.write(0, b"changed");
    let layer = fs::read(folder.layer()).unwrap();

    let store = Store::open(&folder.location("other")).unwrap();
    let image = MemoryDevice::from_bytes(&bytes);
    push(&store, &image, PushOptions::default(), &|| true, &|_| {}).unwrap();
    assert!(
        said("other").contains("which is not there"),
        "{}",
        said("other")
    );
    let store = Store::open(&folder.location("root")).unwrap();
    push(&store, &image, PushOptions::default(), &|| true, &|_| {}).unwrap();
    assert!(
        said("root@2").contains("a layer over version 1"),
        "{}",
        said("root@2")
    );
    folder.open("root@1", OpenMode::ReadWrite).unwrap();
    folder.open("root", OpenMode::ReadWrite).unwrap();

    let second = folder.open("root", OpenMode::ReadWrite).unwrap();
    assert!(said("root").contains("in use"), "{}", said("root"));
    assert!(
        folder
            .push("root")
            .unwrap_err()
            .to_string()
            .contains("in use")
    );
    drop(second);
    for at in [0, 9, 14, 20, 30, 40, 64, 200, 500] {
        let mut damaged = layer.clone();
        damaged[at] ^= 0x40;
        fs::write(folder.layer(), damaged).unwrap();
        let said = said("root");
        assert!(
            said.contains("it is no layer") || said.contains("header is damaged"),
            "{said}"
        );
    }
    for len in [0, 100, 512, layer.len() - 1] {
        fs::write(folder.layer(), &layer[..len]).unwrap();
        let said = said("root");
        assert!(
            said.contains("it is no layer") || said.contains("too short"),
            "{said}"
        );
    }
}

#[test]
fn resend_sends_what_the_version_has_as_well() {
    let (folder, bytes) = Folder::new();
    folder.write(5 * CHUNK, &[1; 4096]);
    let image = StoredImage::open(&folder.location("root"), Caches::default()).unwrap();
    let chunk = image.manifest().chunks()[9].unwrap().to_string();
    let chunk = folder
        .0
        .join(format!("store/chunks/{}/{chunk}", &chunk[..2]));
    fs::write(&chunk, "damaged").unwrap();
    let store = Store::open(&folder.location("root")).unwrap();
    let options = PushOptions {
        resend: true,
        ..PushOptions::default()
    };
    // It has to be read for that.
    let failed = push_layer(&store, &folder.layer(), Caches::default(), options, &|_| {});
    assert!(failed.is_err());
    push(
        &store,
        &MemoryDevice::from_bytes(&bytes),
        PushOptions {
            chunk_bytes: u32::try_from(CHUNK).unwrap(),
            ..options
        },
        &|| true,
        &|_| {},
    )
    .unwrap();
    assert!(folder.read("root") == bytes);
}
