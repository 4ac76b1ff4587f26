//! Images on a host with reflinks: they share the blocks of large files with their sources.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::{build, expect_equal};
use extant_build::Options;
use extant_testkit::{Cmd, Mount, Need, TempDir, content, need};

const NEEDS: &[Need] = &[
    Need::Loop,
    Need::Tool("mkfs.xfs"),
    Need::Tool("filefrag"),
    Need::Tool("e2fsck"),
];
const MIB: u64 = 1 << 20;

/// Bytes that a file shares with others, by `filefrag`.
fn shared_bytes(path: &Path) -> u64 {
    let told = Cmd::new("filefrag").args(["-s", "-v", "-b1"]).arg(path);
    let told = told.ok().unwrap().out;
    let shared = told.lines().filter(|line| line.contains("shared"));
    // The number, where it is in the file, where on the device, how long.
    let lens = shared.map(|line| {
        line.split(':')
            .nth(3)
            .unwrap()
            .trim()
            .parse::<u64>()
            .unwrap()
    });
    lens.sum()
}

/// Makes a file with data at `ranges`.
fn sparse(path: &Path, seed: u64, ranges: impl IntoIterator<Item = (u64, u64)>, size: u64) -> u64 {
    let file = File::create(path).unwrap();
    let mut sum = 0;
    for (at, len) in ranges {
        let bytes = content::fill(seed, at, usize::try_from(len).unwrap());
        file.write_all_at(&bytes, at).unwrap();
        sum += len;
    }
    file.set_len(size).unwrap();
    sum
}

/// Fills `dir`. Returns the bytes of its large files, holes left out, of those that lie in large
/// pieces and of all.
fn fill(dir: &Path) -> (u64, u64) {
    // Every volume has one: with it, the root has as many links.
    fs::create_dir_all(dir.join("lost+found")).unwrap();
    let sizes = [3_000_001, 5 * MIB, 300 << 10, 4096, 1000, 0];
    for (number, size) in (0..).zip(sizes) {
        let bytes = content::fill(number, 0, usize::try_from(size).unwrap());
        fs::write(dir.join(format!("file {number}")), bytes).unwrap();
    }
    let ranges = [(MIB, 2 * MIB), (7 * MIB, 2 * MIB)];
    let behind = sparse(&dir.join("sparse"), 9, ranges, 20 * MIB + 5);
    // Holes within what is copied at once: behind them the file is elsewhere than on the image.
    let ranges = [(0, 300 << 10), (400 << 10, 300 << 10), (MIB, 20 << 10)];
    let split = sparse(&dir.join("split"), 10, ranges, 2 * MIB);
    let ranges = (0..30).map(|number| (number * (100 << 10), 96 << 10));
    let pitted = sparse(&dir.join("pitted"), 11, ranges, 3_000_000);
    let large = sizes[..3].iter().sum::<u64>() + behind;
    (large, large + split + pitted)
}

#[test]
fn large_files_share_their_blocks_with_the_image_where_the_host_can() {
    if !need(NEEDS) {
        return;
    }
    let dir = TempDir::new("build").unwrap();
    let disk = dir.join("disk");
    File::create(&disk).unwrap().set_len(400 * MIB).unwrap();
    Cmd::new("mkfs.xfs")
        .args(["-q", "-m", "reflink=1"])
        .arg(&disk)
        .ok()
        .unwrap();
    let host = Mount::by_linux("xfs", &disk, "").unwrap();
    let folder = host.join("folder");
    let (large, all) = fill(&folder);
    let (image, elsewhere) = (host.join("image"), dir.join("image"));
    build(&[&folder], &image, &Options::default()).unwrap();
    let shared = shared_bytes(&image);
    // Ends of files are written, and what is left of a batch.
    assert!(
        shared * 10 >= large * 8 && shared <= all,
        "{shared} of {large} bytes are shared"
    );
    // Another file system can share nothing, and has the same bytes.
    build(&[&folder], &elsewhere, &Options::default()).unwrap();
    let same = fs::read(&image).unwrap() == fs::read(&elsewhere).unwrap();
    assert!(same, "shared blocks are not what is written elsewhere");
    expect_equal(&image, &folder);
    host.unmount().unwrap();
}
