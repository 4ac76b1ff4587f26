//! Devices that fail, and writers and readers, while a file is sealed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_engine::{Cred, TreeHash, VolumeOptions};
use extant_testkit::{Fault, FaultyDevice, Image, RequestKind};
use extant_units::DevOff;

use crate::kit::{
    VERITY, blocks, create, data, digest, find, free, image, open, params, read, seal,
};

/// Each write that fails while a file is sealed leaves the file as it was, or ends the mount.
#[test]
fn a_failed_write_seals_nothing() {
    let image = image(16, "-b 1024");
    let bytes = std::fs::read(image.path()).unwrap();
    let how = params(TreeHash::Sha256, 1024, b"");
    let contents = data(600 << 10);
    let mut sealed = 0;
    for number in 0..400 {
        let armed = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
        let plan = {
            let armed = Arc::clone(&armed);
            move |request: extant_testkit::Request<'_>| {
                let counts = armed.0.load(Ordering::SeqCst)
                    && matches!(request.kind, RequestKind::Write | RequestKind::Flush);
                match counts && armed.1.fetch_add(1, Ordering::SeqCst) == number {
                    true => Fault::Fail(io::ErrorKind::Other),
                    false => Fault::Pass,
                }
            }
        };
        let device = Arc::new(FaultyDevice::new(MemoryDevice::from_bytes(&bytes), plan));
        let mut options = VolumeOptions::new();
        let volume = options.write(true).open_on(device.clone()).unwrap();
        let node = create(&volume, "f", &contents);
        let before = free(&volume);
        armed.0.store(true, Ordering::SeqCst);
        let done = seal(&volume, &node, &how);
        let ended = armed.1.load(Ordering::SeqCst) <= number;
        armed.0.store(false, Ordering::SeqCst);
        let protected = volume.flags(&node).unwrap() & VERITY != 0;
        assert_eq!(done.is_ok(), protected, "write {number}: {done:?}");
        if let Err(error) = &done
            && volume.sync().is_ok()
        {
            assert_eq!(error.errno(), 5, "write {number}");
            assert!(free(&volume) >= before - 10, "write {number}");
        }
        drop(node);
        let _ = volume.unmount();
        drop(volume);
        let mut kept = vec![0; bytes.len()];
        device.read_at(DevOff::new(0), &mut kept).unwrap();
        let state = Image::of_bytes(&kept).unwrap();
        let volume = open(&state, "");
        if volume
            .root()
            .and_then(|root| volume.lookup(&root, b"f"))
            .is_ok()
        {
            let node = find(&volume, "f");
            let protected = volume.flags(&node).unwrap() & VERITY != 0;
            assert!(protected || volume.measure_verity(&node).is_err());
            if protected {
                sealed += 1;
                assert_eq!(read(&volume, &node).unwrap(), contents, "write {number}");
            } else {
                let most = 2 * (600 + 8);
                assert!(blocks(&volume, &node) <= most, "write {number}");
            }
        }
        volume.unmount().unwrap();
        drop(volume);
        state.fsck_clean().unwrap();
        if ended {
            assert!(number > 5, "{number} writes");
            assert!(sealed > 0);
            return;
        }
    }
    panic!("it does not end");
}

/// Data whose writeback failed is not sealed before an opener was told.
#[test]
fn lost_data_is_not_sealed() {
    let image = image(16, "-b 1024");
    let bytes = std::fs::read(image.path()).unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let plan = {
        let fails = Arc::clone(&fails);
        move |request: extant_testkit::Request<'_>| {
            let fail = fails.load(Ordering::SeqCst) && request.kind == RequestKind::Write;
            match fail {
                true => Fault::Fail(io::ErrorKind::Other),
                false => Fault::Pass,
            }
        }
    };
    let device = Arc::new(FaultyDevice::new(MemoryDevice::from_bytes(&bytes), plan));
    let mut options = VolumeOptions::new();
    let volume = options.write(true).open_on(device).unwrap();
    let how = params(TreeHash::Sha256, 1024, b"");
    let node = create(&volume, "f", &[1; 50_000]);
    volume.sync().unwrap();
    // Allocated already: no change of the map is in the way.
    volume.write(&node, 0, &[2; 50_000], &Cred::root()).unwrap();
    fails.store(true, Ordering::SeqCst);
    let refused = seal(&volume, &node, &how).unwrap_err();
    fails.store(false, Ordering::SeqCst);
    assert_eq!(refused.errno(), 5);
    let refused = seal(&volume, &node, &how).unwrap_err();
    assert_eq!(refused.errno(), 5, "no opener knows of it");
    let told = volume.fsync(&node, false).unwrap_err();
    assert_eq!(told.errno(), 5);
    volume.write(&node, 0, &[3; 50_000], &Cred::root()).unwrap();
    seal(&volume, &node, &how).unwrap();
    assert_eq!(read(&volume, &node).unwrap(), [3; 50_000]);
    // That of the whole volume has not been told yet.
    assert!(volume.unmount().is_err());
}

/// An overwrite that failed, of which fsync told, is in the cache and not on the device: what is
/// sealed is what the device has.
#[test]
fn a_failed_overwrite_is_not_sealed_from_the_cache() {
    let image = image(16, "-b 1024");
    let bytes = std::fs::read(image.path()).unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let plan = {
        let fails = Arc::clone(&fails);
        move |request: extant_testkit::Request<'_>| {
            // One write, that of data: those of the log follow it.
            let is_write = request.kind == RequestKind::Write;
            match is_write && fails.swap(false, Ordering::SeqCst) {
                true => Fault::Fail(io::ErrorKind::Other),
                false => Fault::Pass,
            }
        }
    };
    let device = Arc::new(FaultyDevice::new(MemoryDevice::from_bytes(&bytes), plan));
    let mut options = VolumeOptions::new();
    let volume = options.write(true).open_on(device).unwrap();
    let how = params(TreeHash::Sha256, 1024, b"");
    let node = create(&volume, "f", &[1; 50_000]);
    volume.sync().unwrap();
    volume.write(&node, 0, &[2; 50_000], &Cred::root()).unwrap();
    fails.store(true, Ordering::SeqCst);
    assert_eq!(volume.fsync(&node, false).unwrap_err().errno(), 5);
    seal(&volume, &node, &how).unwrap();
    let there = read(&volume, &node).unwrap();
    assert_eq!(there[0], 1, "the device has the old bytes");
    let told = volume.measure_verity(&node).unwrap().1;
    assert_eq!(told, digest(&there, &how));
}

/// Data that a front end lost is not sealed before that is told, by the refusal itself or by fsync.
#[test]
fn data_that_a_front_end_lost_is_not_sealed() {
    let image = image(16, "-b 1024");
    let volume = open(&image, "");
    let how = params(TreeHash::Sha256, 1024, b"");
    for is_synced in [true, false] {
        let node = create(&volume, &format!("{is_synced}"), &data(5000));
        volume.note_lost_data(&node);
        match is_synced {
            true => volume.fsync(&node, false).unwrap(),
            false => assert_eq!(seal(&volume, &node, &how).unwrap_err().errno(), 5),
        }
        seal(&volume, &node, &how).unwrap();
    }
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// Writers, openers and readers beside a seal: what is there afterwards is what the digest is of,
/// and what readers have cached is what the device has.
#[test]
fn writers_and_readers_beside_a_seal() {
    let image = image(64, "-b 4096");
    let volume = open(&image, "");
    let how = params(TreeHash::Sha256, 4096, b"");
    const BYTES: usize = 1 << 20;
    for round in 0..20 {
        let name = format!("f{round}");
        let node = create(&volume, &name, &vec![1; BYTES]);
        let ended = AtomicBool::new(false);
        let refusals = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for writer in 0..2_usize {
                let (volume, node, refusals) = (&volume, &node, &refusals);
                scope.spawn(move || {
                    for step in 0.. {
                        let at = (step * 7 + writer * 3) % (BYTES / 4096) * 4096;
                        let page = [2 + u8::try_from(step % 200).unwrap(); 4096];
                        match volume.write(node, at as u64, &page, &Cred::root()) {
                            Ok(written) => assert_eq!(written, 4096),
                            Err(error) => {
                                assert_eq!(error.errno(), 1);
                                refusals.fetch_add(1, Ordering::SeqCst);
                                return;
                            }
                        }
                    }
                });
            }
            scope.spawn(|| {
                while !ended.load(Ordering::SeqCst) {
                    match volume.open_for_writing(&node) {
                        Ok(access) => drop(access),
                        Err(error) => assert!([1, 26].contains(&error.errno()), "{error}"),
                    }
                    std::thread::yield_now();
                }
            });
            scope.spawn(|| {
                let mut page = [0; 4096];
                for step in 0.. {
                    if ended.load(Ordering::SeqCst) {
                        return;
                    }
                    let at = step % (BYTES / 4096) * 4096;
                    volume.read(&node, at as u64, &mut page).unwrap();
                }
            });
            loop {
                match seal(&volume, &node, &how) {
                    Ok(()) => break,
                    Err(error) => assert!([16, 26].contains(&error.errno()), "{error}"),
                }
            }
            ended.store(true, Ordering::SeqCst);
        });
        assert_eq!(refusals.load(Ordering::SeqCst), 2);
        let cached = read(&volume, &node).unwrap();
        assert_eq!(
            volume.measure_verity(&node).unwrap().1,
            digest(&cached, &how)
        );
        volume.drop_cached(&node);
        assert!(read(&volume, &node).unwrap() == cached, "round {round}");
    }
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}
