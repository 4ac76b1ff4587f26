//! Random changes of encrypted files beside a model in memory.

use std::ops::Range;

use extant_engine::{Cred, FallocateMode, Node, SetAttr, Volume, VolumeOptions};
use extant_testkit::{Rng, content};

use super::kit::{KEY, create, image, make_secret, open_with_key, policies, read, secret};

const MOST: u64 = 300_000;
/// Bytes of a direct request.
const DIRECT: u64 = 1 << 16;

fn part(from: u64, to: u64) -> Range<usize> {
    usize::try_from(from).unwrap()..usize::try_from(to).unwrap()
}

/// A direct write or read, which goes through the cache.
fn direct_step(volume: &Volume, file: &Node, model: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.below(MOST) / DIRECT * DIRECT;
    let size = model.len() as u64;
    if rng.below(2) == 0 {
        let bytes = content::fill(rng.next_u64(), at, usize::try_from(DIRECT).unwrap());
        if size < at + DIRECT {
            model.resize(usize::try_from(at + DIRECT).unwrap(), 0);
        }
        model[part(at, at + DIRECT)].copy_from_slice(&bytes);
        let written = volume.write_direct(file, at, &bytes, &Cred::root());
        assert_eq!(written.unwrap(), bytes.len());
        return;
    }
    let mut bytes = vec![0; usize::try_from(DIRECT).unwrap()];
    let read = volume.read_direct(file, at, &mut bytes).unwrap();
    let end = (at + DIRECT).min(size).max(at);
    assert_eq!(read as u64, end - at);
    if read > 0 {
        assert!(bytes[..read] == model[part(at, end)], "{at}");
    }
}

fn step(volume: &Volume, file: &Node, model: &mut Vec<u8>, rng: &mut Rng) {
    let (at, len) = (rng.below(MOST), 1 + rng.below(40_000));
    let cred = Cred::root();
    let size = model.len() as u64;
    match rng.below(10) {
        0 | 1 => {
            let bytes = content::fill(rng.next_u64(), at, usize::try_from(len).unwrap());
            if size < at + len {
                model.resize(usize::try_from(at + len).unwrap(), 0);
            }
            model[part(at, at + len)].copy_from_slice(&bytes);
            assert_eq!(volume.write(file, at, &bytes, &cred).unwrap(), bytes.len());
        }
        2 => {
            model.resize(usize::try_from(at).unwrap(), 0);
            let size = SetAttr {
                size: Some(at),
                ..SetAttr::default()
            };
            volume.setattr(file, &size, &cred).unwrap();
        }
        3 => {
            let mode = FallocateMode::PunchHole;
            volume.fallocate(file, mode, at, len, &cred).unwrap();
            let end = (at + len).min(size);
            if at < end {
                model[part(at, end)].fill(0);
            }
        }
        4 => {
            let mode = FallocateMode::ZeroRange { keep_size: true };
            volume.fallocate(file, mode, at, len, &cred).unwrap();
            let end = (at + len).min(size);
            if at < end {
                model[part(at, end)].fill(0);
            }
        }
        5 => {
            let mode = FallocateMode::Allocate { keep_size: true };
            volume.fallocate(file, mode, at, len, &cred).unwrap();
        }
        6 => volume.fsync(file, rng.below(2) == 0).unwrap(),
        7 | 8 => direct_step(volume, file, model, rng),
        _ => {
            let mut bytes = vec![0; usize::try_from(len).unwrap()];
            let read = volume.read(file, at, &mut bytes).unwrap();
            let end = (at + len).min(size).max(at);
            assert_eq!(read as u64, end - at);
            if read > 0 {
                assert!(bytes[..read] == model[part(at, end)], "{at} {len}");
            }
        }
    }
}

/// Whatever is written, cut, punched and read, through the cache and by mounts one after the other:
/// a file has the bytes that it would have if it were not encrypted.
#[test]
fn files_have_the_bytes_of_the_model() {
    let shapes = [
        ("-b 1024", ""),
        ("-b 4096", "dioread_lock"),
        ("-b 4096 -O bigalloc", "nodelalloc"),
        ("-b 65536", "data=journal"),
    ];
    for round in 0..8 {
        let (args, options) = shapes[round % shapes.len()];
        let mut rng = Rng::new(round as u64 + 1);
        let image = image(args);
        let volume = open_with_key(&image);
        let id = volume.add_key(&KEY).unwrap();
        let all = policies(id);
        let policy = all[round % all.len()];
        let dir = make_secret(&volume, &policy);
        create(&volume, &dir, b"file", b"");
        drop(dir);
        volume.unmount().unwrap();
        let mut model = Vec::new();
        for _ in 0..4 {
            let mut mount = VolumeOptions::new();
            let volume = mount.write(true).mount_options(options).open(image.path());
            let volume = volume.unwrap();
            volume.add_key(&KEY).unwrap();
            let file = volume.lookup(&secret(&volume), b"file").unwrap();
            assert!(read(&volume, &file) == model, "{args} {options} {policy:?}");
            for _ in 0..100 {
                step(&volume, &file, &mut model, &mut rng);
            }
            assert!(read(&volume, &file) == model, "{args} {options} {policy:?}");
            drop(file);
            volume.unmount().unwrap();
            image.fsck_clean().unwrap();
        }
    }
}
