//! FIEMAP in the library: flags, ranges, refusals; and what Linux says of the same file.

use extant::FallocateMode::*;
use extant::{Cred, Error, FiemapExtent, FiemapFlags, Node, Volume};
use extant_testkit::{Cmd, Image, Need, Subject, need};

use crate::world::open;

const KEEP: extant::FallocateMode = Allocate { keep_size: true };

fn all(volume: &Volume, node: &Node, start: u64, len: u64, sync: bool) -> Vec<FiemapExtent> {
    let found = volume.fiemap(node, start, len, sync).unwrap();
    found.map(Result::unwrap).collect()
}

fn short(extents: &[FiemapExtent]) -> Vec<(u64, u64, FiemapFlags)> {
    extents
        .iter()
        .map(|e| (e.logical, e.len, e.flags))
        .collect()
}

#[test]
fn fiemap_tells_space_and_no_holes() {
    let image = Image::of_mib(16).args("-b 4096").make().unwrap();
    let volume = open(&image, true, "");
    let cred = Cred::root();
    let node = volume
        .create(&volume.root().unwrap(), b"f", 0o644, &cred)
        .unwrap();
    assert_eq!(all(&volume, &node, 0, u64::MAX, false), [], "nothing");
    volume.write(&node, 0, &[1; 8192], &cred).unwrap();
    volume.fsync(&node, false).unwrap();
    volume.fallocate(&node, KEEP, 40_960, 8192, &cred).unwrap();
    volume.write(&node, 16_384, &[2; 5000], &cred).unwrap();

    let (none, last) = (FiemapFlags::empty(), FiemapFlags::LAST);
    let delayed = FiemapFlags::DELALLOC | FiemapFlags::UNKNOWN;
    let unwritten = FiemapFlags::UNWRITTEN;
    let dirty = all(&volume, &node, 0, u64::MAX, false);
    assert_eq!(
        short(&dirty),
        [
            (0, 8192, none),
            (16_384, 8192, delayed),
            (40_960, 8192, unwritten | last)
        ]
    );
    assert_eq!(dirty[1].physical, 0);
    assert_ne!(dirty[0].physical, 0);
    // An extent is told as a whole by whatever touches it; the last one is the file's, not the range's.
    let part = short(&all(&volume, &node, 20_000, 10, false));
    assert_eq!(part, [(16_384, 8192, delayed)]);
    assert_eq!(all(&volume, &node, 8192, 8192, false), [], "a hole");
    assert_eq!(
        all(&volume, &node, 49_152, 1, false),
        [],
        "behind all of it"
    );
    let clean = all(&volume, &node, 0, u64::MAX, true);
    assert_eq!(
        short(&clean),
        [
            (0, 8192, none),
            (16_384, 8192, none),
            (40_960, 8192, unwritten | last)
        ]
    );
    assert_ne!(clean[1].physical, 0, "it has its place");

    let nothing = volume.fiemap(&node, 0, 0, false).err();
    assert!(matches!(nothing, Some(Error::Invalid)), "{nothing:?}");
    let limit = u64::from(u32::MAX) * 4096;
    assert_eq!(all(&volume, &node, limit, 1, false), []);
    let far = volume.fiemap(&node, limit + 1, 1, false).err();
    assert!(matches!(far, Some(Error::FileTooBig)), "{far:?}");
    drop(node);
    volume.unmount().unwrap();
    drop(volume);

    if !need(&[Need::Loop, Need::Tool("filefrag")]) {
        return;
    }
    let mount = Subject::Ext4.mount(image.path(), "ro").unwrap();
    let text = Cmd::new("filefrag")
        .arg("-vb1")
        .arg(mount.join("f"))
        .ok()
        .unwrap()
        .out;
    let expected: Vec<(u64, u64, u64, FiemapFlags)> = text
        .lines()
        .filter(|line| line.matches("..").count() == 2)
        .map(|line| {
            let words = line.split([':', '.', ' ']);
            let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
            let mut flags = FiemapFlags::empty();
            flags.set(unwritten, line.contains("unwritten"));
            flags.set(last, line.contains("last"));
            (numbers[1], numbers[3], numbers[5], flags)
        })
        .collect();
    let ours: Vec<_> = clean
        .iter()
        .map(|e| (e.logical, e.physical, e.len, e.flags))
        .collect();
    assert_eq!(ours, expected, "{text}");
}
