//! Changes of a file's size: the space behind the end, the rest of the last block on the device,
//! and what may not be changed.

use std::sync::Arc;

use extant_blockdev::MemoryDevice;
use extant_engine::{Cred, Error, FallocateMode, Node, SetAttr, Volume, VolumeOptions};
use extant_testkit::Image;

/// Bytes that stand nowhere else on a volume.
const MARK: &[u8; 16] = b"bytes to look at";

fn open(bytes: &[u8], options: &str) -> (Arc<MemoryDevice>, Volume) {
    let dev = Arc::new(MemoryDevice::from_bytes(bytes));
    let mut mount = VolumeOptions::new();
    let volume = mount
        .write(true)
        .mount_options(options)
        .open_on(dev.clone());
    (dev, volume.unwrap())
}

fn made(args: &str) -> Vec<u8> {
    let image = Image::with_args(16, args).make().unwrap();
    std::fs::read(image.path()).unwrap()
}

fn create(volume: &Volume, name: &[u8]) -> Node {
    let root = volume.root().unwrap();
    volume.create(&root, name, 0o644, &Cred::root()).unwrap()
}

fn set_size(volume: &Volume, node: &Node, size: u64) -> Result<(), Error> {
    let to = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    volume.setattr(node, &to, &Cred::root()).map(drop)
}

/// How often [`MARK`] stands on the device.
fn marks(dev: &MemoryDevice) -> usize {
    let bytes = dev.to_bytes();
    bytes
        .chunks_exact(MARK.len())
        .filter(|part| part == MARK)
        .count()
}

/// The part that is cut off of a block is zero on the device as well: another system that makes the
/// file longer shows it.
#[test]
fn the_rest_of_the_last_block_is_zero_on_the_device() {
    for (args, options) in [
        ("-b 4096", ""),
        ("-b 1024", "nobuffered_iomap"),
        ("-b 1024 -t ext3", ""),
        ("-b 16384", ""),
        ("-b 65536", "nobuffered_iomap"),
    ] {
        let (dev, volume) = open(&made(args), options);
        let node = create(&volume, b"f");
        let block = volume.block_size() as usize;
        let whole = MARK.repeat(2 * block / MARK.len());
        volume.write(&node, 0, &whole, &Cred::root()).unwrap();
        volume.fsync(&node, false).unwrap();
        assert_eq!(marks(&dev), 2 * block / MARK.len(), "{args}");
        // The second block is freed, and not written.
        let size = block as u64 + 5 * MARK.len() as u64;
        set_size(&volume, &node, size).unwrap();
        assert_eq!(marks(&dev), block / MARK.len() + 5, "{args} {options}");
        volume.unmount().unwrap();
    }
}

/// As Linux: space behind the end goes with a truncation that changes nothing else.
#[test]
fn a_truncation_to_the_same_size_frees_the_space_behind_it() {
    let (_, volume) = open(&made("-b 1024"), "");
    let node = create(&volume, b"f");
    volume.write(&node, 0, &[1; 3000], &Cred::root()).unwrap();
    volume.fsync(&node, false).unwrap();
    let blocks = || volume.getattr(&node).unwrap().blocks;
    assert_eq!(blocks(), 6);
    let allocate = FallocateMode::Allocate { keep_size: true };
    volume
        .fallocate(&node, allocate, 0, 100_000, &Cred::root())
        .unwrap();
    assert_eq!(blocks(), 196);
    set_size(&volume, &node, 3000).unwrap();
    assert_eq!((blocks(), volume.getattr(&node).unwrap().size), (6, 3000));
    volume.unmount().unwrap();
}

#[test]
fn a_volume_that_is_not_written_refuses_changes_that_would_do_nothing() {
    let (dev, volume) = open(&made("-b 1024"), "");
    let node = create(&volume, b"f");
    volume.write(&node, 0, &[1; 3000], &Cred::root()).unwrap();
    drop(node);
    volume.unmount().unwrap();
    let volume = VolumeOptions::new().open_on(dev).unwrap();
    let node = volume.lookup(&volume.root().unwrap(), b"f").unwrap();
    let cred = Cred::root();
    let refused = |what: &str, result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::ReadOnly)), "{what}: {result:?}");
    };
    refused("truncation", set_size(&volume, &node, 3000));
    let copied = volume.copy_range((&node, 3000), (&node, 0), 1, &cred);
    refused("copy", copied.map(drop));
    refused("trim", volume.trim(0..u64::MAX, 0).map(drop));
    let moved = volume.move_extents(&node, &node, 0..1024, 0);
    refused("exchange", moved.map(drop));
}

/// Requests for other kinds of files are refused before anything is looked at.
#[test]
fn only_regular_files_have_sizes_to_change() {
    let (_, volume) = open(&made("-b 1024"), "");
    let (file, cred) = (create(&volume, b"f"), Cred::root());
    volume.write(&file, 0, &[1; 3000], &cred).unwrap();
    let root = volume.root().unwrap();
    assert!(matches!(set_size(&volume, &root, 0), Err(Error::IsDir)));
    let written = volume.write(&root, 0, b"x", &cred);
    assert!(matches!(written, Err(Error::IsDir)), "{written:?}");
    for (from, to) in [(&file, &root), (&root, &file)] {
        let copied = volume.copy_range((from, 0), (to, 0), 100, &cred);
        assert!(matches!(copied, Err(Error::IsDir)), "{copied:?}");
    }
    volume.unmount().unwrap();
}
