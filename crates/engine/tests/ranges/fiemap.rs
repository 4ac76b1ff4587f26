//! FIEMAP in the library: flags, ranges, refusals; and what Linux says of the same file.

use extant_engine::FallocateMode::*;
use extant_engine::{Cred, Error, FiemapExtent, FiemapFlags, Node, Volume};
use extant_testkit::{Cmd, Image, Need, Subject, need};

use crate::world::open;

const KEEP: extant_engine::FallocateMode = Allocate { keep_size: true };

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

/// Asks for ranges that no file of `volume` can have.
fn check_limits(volume: &Volume, node: &Node) {
    let nothing = volume.fiemap(node, 0, 0, false).err();
    assert!(matches!(nothing, Some(Error::Invalid)), "{nothing:?}");
    let limit = u64::from(u32::MAX) * 4096;
    assert_eq!(all(volume, node, limit - 1, 1, false), []);
    let behind = volume.fiemap(node, limit, 1, false).err();
    assert!(matches!(behind, Some(Error::Invalid)), "{behind:?}");
    let far = volume.fiemap(node, limit + 1, 1, false).err();
    assert!(matches!(far, Some(Error::FileTooBig)), "{far:?}");
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
    // What the range has of an extent, in whole blocks; the last one is the range's.
    let part = |start, len| short(&all(&volume, &node, start, len, false));
    assert_eq!(part(20_000, 10), [(16_384, 4096, delayed | last)]);
    assert_eq!(part(1, 1), [(0, 4096, last)]);
    assert_eq!(part(0, 16_384), [(0, 8192, last)]);
    assert_eq!(
        part(0, 16_385),
        [(0, 8192, none), (16_384, 4096, delayed | last)]
    );
    assert_eq!(part(45_056, 1), [(45_056, 4096, unwritten | last)]);
    let second = all(&volume, &node, 4096, 1, false);
    assert_eq!(second[0].physical, dirty[0].physical + 4096);
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

    check_limits(&volume, &node);
    drop(node);
    volume.unmount().unwrap();
    drop(volume);

    let clean: Vec<_> = clean
        .iter()
        .map(|e| (e.logical, e.physical, e.len, e.flags))
        .collect();
    if need(&[Need::Loop, Need::Tool("filefrag")]) {
        assert_eq!(clean, found_by_linux(&image));
    }
}

/// The extents of `f` on `image` as Linux lists them: position, block address, length, flags.
fn found_by_linux(image: &Image) -> Vec<(u64, u64, u64, FiemapFlags)> {
    let mount = Subject::Ext4.mount(image.path(), "ro").unwrap();
    let text = Cmd::new("filefrag")
        .arg("-vb1")
        .arg(mount.join("f"))
        .ok()
        .unwrap()
        .out;
    text.lines()
        .filter(|line| line.matches("..").count() == 2)
        .map(|line| {
            let words = line.split([':', '.', ' ']);
            let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
            let mut flags = FiemapFlags::empty();
            flags.set(FiemapFlags::UNWRITTEN, line.contains("unwritten"));
            flags.set(FiemapFlags::LAST, line.contains("last"));
            (numbers[1], numbers[3], numbers[5], flags)
        })
        .collect()
}

/// Asks Linux: start, length and flags of each extent of a range, one a line; or the name of the
/// error.
const ASK: &str = r#"
import errno, fcntl, struct, sys
with open(sys.argv[1]) as file:
    for line in sys.argv[2:]:
        start, len = line.split()
        ask = bytearray(struct.pack('=QQIIII', int(start), int(len), 0, 0, 64, 0) + bytes(64 * 56))
        try:
            fcntl.ioctl(file, 0xC020660B, ask)
        except OSError as error:
            print(errno.errorcode[error.errno])
            continue
        found = struct.unpack_from('=QQII', ask)[3]
        each = [struct.unpack_from('=QQQQQI', ask, 32 + 56 * i) for i in range(found)]
        print([(e[0], e[1], e[2], e[5]) for e in each])
"#;

/// Whatever part of a file is asked for, both say the same.
#[test]
fn fiemap_of_every_range_is_what_linux_says() {
    if !need(&[Need::Loop, Need::Tool("python3")]) {
        return;
    }
    let edges = &[0, 1, 1023, 1024, 9000, 9216, 20_000, 23_000, 40_000, 61_000];
    let writes = &[(0, 9000), (20_000, 3000), (60_000, 100)];
    compare_with_linux("-b 1024", writes, true, edges);
    let edges = &[0, 1, 99, 100, 101, 1023, 1024];
    for args in ["-b 1024 -O inline_data", "-b 4096 -I 1024 -O inline_data"] {
        compare_with_linux(args, &[(0, 100)], false, edges);
    }
}

fn compare_with_linux(args: &str, writes: &[(u64, usize)], allocates: bool, edges: &[u64]) {
    let image = Image::of_mib(16).args(args).make().unwrap();
    let volume = open(&image, true, "");
    let cred = Cred::root();
    let root = volume.root().unwrap();
    let node = volume.create(&root, b"f", 0o644, &cred).unwrap();
    for (pos, len) in writes {
        let bytes = vec![7; *len];
        volume.write(&node, *pos, &bytes, &cred).unwrap();
    }
    if allocates {
        let done = volume.fallocate(&node, KEEP, 40_000, 50_000, &cred);
        done.unwrap();
    }
    volume.fsync(&node, false).unwrap();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for start in edges {
        for len in [0, 1, 1024, 12_000, 30_000, 1 << 62, u64::MAX] {
            ranges.push((*start, len));
        }
    }
    // Linux has a smaller limit for data inside of inodes, which does not stay there.
    if allocates {
        let limit = u64::from(u32::MAX) * 1024;
        ranges.extend([(limit - 1, 1), (limit, 1), (limit + 1, 1), (90_000, 5000)]);
    }
    let said = |(start, len): (u64, u64)| match volume.fiemap(&node, start, len, false) {
        Err(Error::Invalid) => "EINVAL".to_owned(),
        Err(Error::FileTooBig) => "EFBIG".to_owned(),
        Err(error) => error.to_string(),
        Ok(found) => {
            let shown = |e: FiemapExtent| {
                let (at, place, len, flags) = (e.logical, e.physical, e.len, e.flags.bits());
                format!("({at}, {place}, {len}, {flags})")
            };
            let each: Vec<String> = found.map(|extent| shown(extent.unwrap())).collect();
            format!("[{}]", each.join(", "))
        }
    };
    let ours: Vec<String> = ranges.iter().copied().map(said).collect();
    drop((node, root));
    volume.unmount().unwrap();
    drop(volume);

    let mount = Subject::Ext4.mount(image.path(), "ro").unwrap();
    let mut ask = Cmd::new("python3").args(["-c", ASK]).arg(mount.join("f"));
    for (start, len) in &ranges {
        ask = ask.arg(format!("{start} {len}"));
    }
    let theirs = ask.ok().unwrap().out;
    for ((range, ours), theirs) in ranges.iter().zip(&ours).zip(theirs.lines()) {
        assert_eq!(ours, theirs, "{range:?}");
    }
    assert_eq!(theirs.lines().count(), ours.len());
}
