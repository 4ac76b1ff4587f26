//! The allocators below a whole file system that runs full.

use std::sync::atomic::AtomicU64;

use extant_testkit::content;

use super::*;
use crate::file::{self, WriteAt};
use crate::namei;
use crate::test_support::test_mount::TestFs;

/// Writes files of growing size from four threads until there is no space, deletes most, and again;
/// what was written and synced is there, and the volume is clean at the end.
fn fill(args: &str, options: &str, mib: u64) {
    let image = image(mib, args);
    let fs = TestFs::mount(image.path(), options);
    let before = fs.alloc.counts.free_blocks();
    for round in 0..3u64 {
        let refused = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for worker in 0..4u64 {
                let (fs, refused) = (&fs, &refused);
                scope.spawn(move || {
                    let cred = Cred::root();
                    let dir = match namei::lookup(fs, &fs.root(), format!("d{worker}").as_bytes()) {
                        Ok(dir) => dir,
                        Err(_) => fs.mkdir(&format!("d{worker}")),
                    };
                    for i in 0.. {
                        let name = format!("r{round}-{i}");
                        let Ok(file) = namei::create(fs, &dir, name.as_bytes(), 0o644, &cred)
                        else {
                            break;
                        };
                        let seed = worker << 32 | round << 16 | i;
                        let mut pos = 0;
                        let size = 1 << (12 + i % 9);
                        while pos < size {
                            let piece = content::fill(seed, pos, 10_000);
                            match file::write(fs, &file, None, WriteAt::Pos(pos), &piece, &cred) {
                                Ok((_, done)) => pos += done as u64,
                                Err(Error::NoSpace) => break,
                                Err(error) => panic!("{error}"),
                            }
                        }
                        if pos < size {
                            break;
                        }
                    }
                    refused.fetch_add(1, Relaxed);
                });
            }
        });
        assert_eq!(refused.into_inner(), 4);
        file::writeback_all_files(&fs).unwrap();
        let counts = &fs.alloc.counts;
        assert_eq!(counts.reserved_blocks(), Blocks::ZERO, "J11");
        assert!(
            counts.available_to_users().get() < 16,
            "{:?}",
            counts.available_to_users()
        );
        check_and_delete(&fs, round);
        fs.reap_all();
        fs.journal.force_commit().unwrap();
        assert_eq!(counts.available(), counts.free_blocks());
    }
    for worker in 0..4 {
        let name = format!("d{worker}");
        namei::rmdir(&fs, &fs.root(), name.as_bytes()).unwrap();
    }
    fs.reap_all();
    fs.journal.force_commit().unwrap();
    let after = fs.alloc.counts.free_blocks();
    fs.unmount();
    image.fsck_clean().unwrap();
    assert_eq!(after, before, "{args}");
}

fn check_and_delete(fs: &TestFs, round: u64) {
    for worker in 0..4u64 {
        let dir = fs.find(&format!("d{worker}"));
        for i in 0.. {
            let name = format!("r{round}-{i}");
            let Ok(file) = namei::lookup(fs, &dir, name.as_bytes()) else {
                break;
            };
            let seed = worker << 32 | round << 16 | i;
            let len = usize::try_from(file.size()).unwrap();
            let mut got = vec![0; len];
            let read = file::read(fs, &file, None, file::ReadMode::Buffered, 0, &mut got).unwrap();
            assert_eq!(read, len);
            // Pieces of 10,000 bytes are filled by their position.
            for (at, piece) in got.chunks(10_000).enumerate() {
                let pos = at as u64 * 10_000;
                assert_eq!(content::first_wrong(seed, pos, piece), None, "{name}");
            }
            drop(file);
            namei::unlink(fs, &dir, name.as_bytes()).unwrap();
        }
    }
}

#[test]
fn a_volume_that_runs_full_loses_nothing() {
    fill("-b 1024", "", 48);
    fill("-b 4096 -m 0", "", 64);
    fill("-b 2048 -O ^metadata_csum,uninit_bg,^64bit -I 128", "", 48);
    fill("-b 1024 -O ^has_journal", "", 32);
}
