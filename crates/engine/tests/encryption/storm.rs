//! Random changes of encrypted files beside a model in memory.

use extant_engine::{Cred, FallocateMode, Node, SetAttr, Volume};
use extant_testkit::{Rng, content};

use super::kit::{KEY, create, image, make_secret, open_with_key, policies, read, secret};

const MOST: u64 = 300_000;

fn step(volume: &Volume, file: &Node, model: &mut Vec<u8>, rng: &mut Rng) {
    let (at, len) = (rng.below(MOST), 1 + rng.below(40_000));
    let cred = Cred::root();
    let size = model.len() as u64;
    let part = |from: u64, to: u64| usize::try_from(from).unwrap()..usize::try_from(to).unwrap();
    match rng.below(8) {
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
    for (seed, args) in ["-b 1024", "-b 4096", "-b 4096 -O bigalloc", "-b 65536"]
        .iter()
        .enumerate()
    {
        let mut rng = Rng::new(seed as u64 + 1);
        let image = image(args);
        let volume = open_with_key(&image);
        let id = volume.add_key(&KEY).unwrap();
        let all = policies(id);
        let dir = make_secret(&volume, &all[seed * 2 % all.len()]);
        create(&volume, &dir, b"file", b"");
        volume.unmount().unwrap();
        let mut model = Vec::new();
        for _ in 0..6 {
            let volume = open_with_key(&image);
            let file = volume.lookup(&secret(&volume), b"file").unwrap();
            assert!(read(&volume, &file) == model, "{args}");
            for _ in 0..120 {
                step(&volume, &file, &mut model, &mut rng);
            }
            assert!(read(&volume, &file) == model, "{args}");
            drop(file);
            volume.unmount().unwrap();
            image.fsck_clean().unwrap();
        }
    }
}
