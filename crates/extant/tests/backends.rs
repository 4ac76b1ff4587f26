//! The same file system however its image is read and written: through the host's cache and past
//! it, with and without io_uring.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use extant::{Backend, Error, Filesystem};
use extant_testkit::{Image, LoopDevice, Need, Rng, content, need, patience};

/// Opens it. A process that another test is starting at this moment shares the open files of this
/// one, also a block device that was closed, until it executes its program.
fn open(path: &Path, backend: Backend) -> Filesystem {
    let end = Instant::now() + patience(Duration::from_secs(60));
    loop {
        let mut options = Filesystem::options();
        match options.write(true).backend(backend).open(path) {
            Err(Error::InUse { .. }) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened.unwrap(),
        }
    }
}

fn counters(fs: &Filesystem) -> BTreeMap<&'static str, u64> {
    fs.volume().stats().into_iter().collect()
}

/// Writes, overwrites, renames, removes and syncs; returns what must be there.
fn work(fs: &Filesystem, seed: u64) -> BTreeMap<String, Vec<u8>> {
    let mut rng = Rng::new(seed);
    let mut all = BTreeMap::new();
    for number in 0..60 {
        let name = format!("/dir{}/f{number}", rng.below(4));
        fs.create_dir_all(name.rsplit_once('/').unwrap().0).unwrap();
        let len = [100, 5000, 70_000, 1 << 20][rng.index(4)];
        let mut bytes = content::fill(seed + number, 0, len);
        let mut file = fs
            .open_options()
            .read(true)
            .write(true)
            .create(true)
            .open(&name)
            .unwrap();
        file.write_all(&bytes).unwrap();
        let at = rng.index(len);
        let part = content::fill(seed, 0, rng.index(len - at) + 1);
        file.write_at(&part, at as u64).unwrap();
        bytes[at..at + part.len()].copy_from_slice(&part);
        if rng.chance(30) {
            file.sync_all().unwrap();
        }
        all.insert(name, bytes);
        if rng.chance(20) {
            let (victim, _) = all.pop_first().unwrap();
            fs.remove_file(&victim).unwrap();
        }
    }
    all
}

fn compare(fs: &Filesystem, all: &BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in all {
        let mut back = Vec::new();
        fs.open_options()
            .read(true)
            .open(name)
            .unwrap()
            .read_to_end(&mut back)
            .unwrap();
        assert!(back == *bytes, "{name}");
    }
}

#[test]
fn a_file_system_is_the_same_over_every_backend() {
    if !need(&[Need::IoUring, Need::Loop, Need::Tool("mke2fs")]) {
        return;
    }
    // Blocks smaller than the device's sectors are no ext4 for Linux, but an image can be on any
    // disk.
    for (blocks, sector) in [(4096, 512), (4096, 4096), (1024, 512), (1024, 4096)] {
        let image = Image::of_mib(48)
            .args(&format!("-b {blocks}"))
            .make()
            .unwrap();
        let disk = LoopDevice::over(image.path(), sector).unwrap();
        let mut all = BTreeMap::new();
        let backends = [
            Backend::IoUring,
            Backend::Syscalls,
            Backend::Auto,
            Backend::IoUring,
        ];
        for (round, backend) in (0..).zip(backends) {
            let fs = open(disk.path(), backend);
            compare(&fs, &all);
            for name in all.keys() {
                fs.remove_file(name).unwrap();
            }
            all = work(&fs, round);
            in_flight(&fs, u8::try_from(round).unwrap());
            let counters = counters(&fs);
            let past = backend == Backend::IoUring;
            assert_eq!(counters["device_direct"], u64::from(past));
            let rings = backend != Backend::Syscalls;
            assert_eq!(counters["device_io_uring"], u64::from(rings));
            // Blocks smaller than a sector go by calls.
            if !past || blocks >= sector {
                assert_eq!(counters["uring_requests"] > 0, rings);
            }
            assert!(counters["direct_fast_path"] > 0);
            // Metadata is not aligned in memory. Requests for parts of sectors (small blocks, the
            // superblock) are merged with the rest of the sector.
            assert_eq!(counters["device_copied"] > 0, past);
            assert_eq!(counters["device_merged"] > 0, past && sector == 4096);
            compare(&fs, &all);
            fs.volume().drop_caches();
            compare(&fs, &all);
            fs.unmount().unwrap();
            image.fsck_clean().unwrap();
        }
    }
}

/// Direct requests, many in flight: each block is written with its number and the round, and read.
fn in_flight(fs: &Filesystem, round: u8) {
    const BLOCKS: u64 = 128;
    let mut options = fs.open_options();
    let options = options.read(true).write(true).create(true);
    let mut file = options.open("/direct").unwrap();
    file.write_all(&vec![0; 4096 * 128]).unwrap();
    file.sync_all().unwrap();
    let mut queue = fs.direct_queue(16);
    for block in (0..BLOCKS).rev() {
        let mut buf = queue.buffer(4096);
        buf.fill(round ^ u8::try_from(block).unwrap());
        queue.write(&file, block * 4096, buf, block).unwrap();
        // A finished request brings its buffer back.
        for finished in queue.wait(0) {
            assert_eq!(finished.result.unwrap(), 4096);
        }
    }
    for finished in queue.wait(16) {
        assert_eq!(finished.result.unwrap(), 4096);
    }
    assert_eq!(queue.outstanding(), 0);
    for block in 0..BLOCKS {
        queue
            .read(&file, block * 4096, queue.buffer(4096), block)
            .unwrap();
    }
    for finished in queue.wait(128) {
        assert_eq!(finished.result.unwrap(), 4096);
        let expected = round ^ u8::try_from(finished.tag).unwrap();
        assert!(finished.buf.iter().all(|&byte| byte == expected));
    }
    drop(queue);
    file.sync_all().unwrap();
    let mut back = Vec::new();
    fs.open_options()
        .read(true)
        .open("/direct")
        .unwrap()
        .read_to_end(&mut back)
        .unwrap();
    for (block, bytes) in (0u8..).zip(back.chunks(4096)) {
        assert!(bytes.iter().all(|&byte| byte == round ^ block));
    }
}

#[test]
fn a_mount_option_chooses_and_the_builder_goes_before_it() {
    if !need(&[Need::IoUring, Need::Tool("mke2fs")]) {
        return;
    }
    let image = Image::of_mib(16).make().unwrap();
    for (option, backend, rings) in [
        ("", None, 1),
        ("backend=syscalls", None, 0),
        ("backend=io_uring", None, 1),
        ("backend=io_uring", Some(Backend::Syscalls), 0),
        ("backend=syscalls", Some(Backend::Auto), 1),
    ] {
        let mut options = Filesystem::options();
        options.mount_options(option);
        if let Some(backend) = backend {
            options.backend(backend);
        }
        let fs = options.open(image.path()).unwrap();
        // A program that leaves it open gets the error with its first queue.
        drop(fs.direct_queue(1));
        assert_eq!(counters(&fs)["device_io_uring"], rings, "{option}");
        fs.unmount().unwrap();
    }
}
