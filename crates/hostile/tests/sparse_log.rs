//! A log whose copies are holes: an image of few bytes that names gigabytes. Looking at it and
//! mounting it cost little, or are refused.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::MetadataExt;

use extant::{CheckOptions, Filesystem, Tuning, check_image};
use extant_hostile::meter::Meter;
use extant_testkit::{Image, Need, TempDir, need};

#[global_allocator]
static METER: Meter = Meter;

/// Copies in the log.
const COPIES: u32 = 300_000;
/// Copies that a descriptor of 4 KiB names, with 32-bit tags and one UUID.
const EACH: u32 = 508;
/// Bounds of the memory of a copy that is replayed, and of the rest of the file system.
const MEMORY: usize = COPIES as usize * 200 + (32 << 20);

/// A volume of 8 GiB with a log of [`COPIES`] copies in one transaction, each of them a hole.
fn sparse() -> Image {
    let args = "-b 4096 -O ^metadata_csum,^64bit,^resize_inode -J size=1250 -E lazy_journal_init=1";
    let image = Image::of_mib(8 << 10).args(args).make().unwrap();
    let descriptors = COPIES.div_ceil(EACH);
    let places: Vec<u32> = (0..descriptors).map(|i| 1 + i * (EACH + 1)).collect();
    let commit = 1 + COPIES + descriptors;
    let blocks = log_blocks(&image, &[&[0], &places[..], &[commit]].concat());
    let (&[superblock], rest) = blocks.split_at(1) else {
        unreachable!()
    };
    let (places, commit) = rest.split_at(places.len());
    let mut targets = targets();
    for (number, &at) in places.iter().enumerate() {
        let first = u32::try_from(number).unwrap() * EACH;
        let count = EACH.min(COPIES - first) as usize;
        let block = descriptor(targets.by_ref().take(count).collect());
        image
            .patch(at * 4096, 4096, |bytes| bytes.copy_from_slice(&block))
            .unwrap();
    }
    let header = [0xC03B_3998_u32, 2, 1].map(u32::to_be_bytes).concat();
    image
        .patch(commit[0] * 4096, 12, |bytes| bytes.copy_from_slice(&header))
        .unwrap();
    // The sequence number and the start of the log.
    let (sequence, start) = (0x18, 0x1C);
    for field in [sequence, start] {
        image
            .patch(superblock * 4096 + field, 4, |bytes| {
                bytes.copy_from_slice(&1_u32.to_be_bytes());
            })
            .unwrap();
    }
    // `needs_recovery`.
    image.patch(1024 + 0x60, 1, |bytes| bytes[0] |= 4).unwrap();
    image
}

/// Runs of the log's blocks on the device.
fn log_blocks(image: &Image, wanted: &[u32]) -> Vec<u64> {
    let requests: String = wanted.iter().map(|at| format!("bmap <8> {at}\n")).collect();
    let dir = TempDir::new("requests").unwrap();
    std::fs::write(dir.join("all"), requests).unwrap();
    let said = extant_testkit::Cmd::new("debugfs")
        .arg("-f")
        .arg(dir.join("all"))
        .arg(image.path())
        .ok()
        .unwrap();
    let numbers = said.out.lines().filter_map(|line| line.trim().parse().ok());
    let numbers: Vec<u64> = numbers.collect();
    assert_eq!(numbers.len(), wanted.len());
    numbers
}

/// Free blocks, far from the log and from the format's own.
fn targets() -> impl Iterator<Item = u32> {
    (44..62).flat_map(|group| (10_000..32_000).map(move |block| group * 32_768 + block))
}

fn descriptor(targets: Vec<u32>) -> Vec<u8> {
    const SAME_UUID: u32 = 2;
    const LAST: u32 = 8;
    let mut words = vec![0xC03B_3998, 1, 1];
    let last = targets.len() - 1;
    for (number, target) in targets.into_iter().enumerate() {
        let same = if number == 0 { 0 } else { SAME_UUID };
        words.extend([target, same | if number == last { LAST } else { 0 }]);
        if number == 0 {
            words.extend([0; 4]);
        }
    }
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
    bytes.resize(4096, 0);
    bytes
}

fn held(image: &Image) -> u64 {
    std::fs::metadata(image.path()).unwrap().blocks() * 512
}

/// One test, since memory is measured of the whole process.
#[test]
fn a_log_of_holes_costs_neither_memory_nor_disk() {
    if !need(&[Need::Tool("mke2fs"), Need::Tool("debugfs")]) {
        return;
    }
    let image = sparse();
    let before = held(&image);
    assert!(before < 32 << 20, "{before} bytes of disk");
    let mut tuning = Tuning::default();
    tuning.page_cache_bytes = Some(1 << 20);
    tuning.block_cache_bytes = 1 << 20;
    tuning.name_cache_bytes = 1 << 20;
    METER.reset_peak_usage();
    let report = check_image(image.path(), &CheckOptions::default()).unwrap();
    assert_eq!(report.replayed, 1);
    let fs = Filesystem::options().tuning(tuning).open(image.path());
    assert_eq!(fs.unwrap().read_dir("/").unwrap().count(), 1);
    let peak = METER.peak_usage();
    assert!(peak < MEMORY, "{peak} bytes of memory");

    // With less than the list of copies takes, a plain error.
    let little = Some(1 << 20);
    let options = CheckOptions {
        replay_bytes: little,
        ..CheckOptions::default()
    };
    tuning.replay_bytes = little;
    let refused = [
        check_image(image.path(), &options).map(drop),
        Filesystem::options()
            .tuning(tuning)
            .open(image.path())
            .map(drop),
        Filesystem::options()
            .write(true)
            .tuning(tuning)
            .open(image.path())
            .map(drop),
    ];
    for result in refused {
        let error = result.unwrap_err().to_string();
        assert!(
            error.contains("exceeds the limit of 1 MiB of memory"),
            "{error}"
        );
    }
    assert_eq!(held(&image), before);

    tuning.replay_bytes = None;
    let fs = Filesystem::options()
        .write(true)
        .tuning(tuning)
        .open(image.path());
    fs.unwrap().unmount().unwrap();
    let after = held(&image);
    assert!(
        after < before + (1 << 20),
        "grew from {before} to {after} bytes"
    );
    image.fsck_clean().unwrap();
}
