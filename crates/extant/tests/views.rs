//! Views of files: `File::view` and `File::edit` on real images, on both data paths.

use std::sync::atomic::{AtomicBool, Ordering};

use extant::{BufferedPath, Error, Filesystem, MAX_VIEW, Tuning};
use extant_testkit::{Image, Stop, content};

const PATHS: [BufferedPath; 2] = [BufferedPath::Iomap, BufferedPath::BufferHead];

fn open(image: &Image, path: BufferedPath) -> Filesystem {
    let mut tuning = Tuning::default();
    tuning.buffered_path = path;
    tuning.page_cache_bytes = Some(64 << 20);
    let mut options = Filesystem::options();
    options
        .write(true)
        .tuning(tuning)
        .open(image.path())
        .unwrap()
}

fn counter(fs: &Filesystem, name: &str) -> u64 {
    let stats = fs.volume().stats();
    let found = stats.iter().find(|(known, _)| *known == name);
    found.map_or_else(|| panic!("no counter {name}"), |(_, value)| *value)
}

#[test]
fn a_view_outlives_what_happens_to_the_file() {
    for path in PATHS {
        let image = Image::of_mib(32).make().unwrap();
        let fs = open(&image, path);
        let data = content::fill(1, 0, 3_000_000);
        fs.write("/a", &data).unwrap();
        let file = fs.open_options().read(true).write(true).open("/a").unwrap();
        let view = file.view(100..u64::MAX).unwrap();
        assert_eq!(view.len(), data.len() - 100);
        assert_eq!(view.shared(), view.len(), "nothing was copied");
        file.write_at(&[7; 100_000], 50_000).unwrap();
        file.set_len(1000).unwrap();
        file.sync_all().unwrap();
        fs.remove_file("/a").unwrap();
        drop(file);
        fs.unmount().unwrap();
        let shown: Vec<u8> = view.chunks().flatten().copied().collect();
        assert!(shown == data[100..]);
        image.fsck_clean().unwrap();
    }
}

#[test]
fn an_edit_is_a_write_in_place() {
    for path in PATHS {
        let image = Image::of_mib(64).args("-b 1024").make().unwrap();
        let fs = open(&image, path);
        let mut model = content::fill(2, 0, 2_500_000);
        fs.write("/a", &model).unwrap();
        fs.set_permissions("/a", extant::Permissions::from_mode(0o4755))
            .unwrap();
        let file = fs.open_options().read(true).write(true).open("/a").unwrap();
        // A hole in the middle, and a cold cache.
        file.set_len(3_000_000).unwrap();
        model.resize(3_000_000, 0);
        fs.sync().unwrap();
        fs.volume().drop_caches();
        let mut expected_at = 1_000_001;
        let flip = |at: u64, bytes: &mut [u8]| {
            assert_eq!(at, expected_at);
            expected_at += bytes.len() as u64;
            bytes.iter_mut().for_each(|byte| *byte ^= 0x0f);
        };
        assert_eq!(file.edit(1_000_001..9_999_999, flip).unwrap(), 1_999_999);
        model[1_000_001..].iter_mut().for_each(|byte| *byte ^= 0x0f);
        assert!(fs.read("/a").unwrap() == model);
        let meta = file.metadata().unwrap();
        assert_eq!(meta.len(), 3_000_000, "an edit grows nothing");
        drop(file);
        fs.unmount().unwrap();
        image.fsck_clean().unwrap();
        let fs = open(&image, path);
        assert!(fs.read("/a").unwrap() == model);
    }
}

/// Cached blocks with space are changed in place: no second mapping, no read, no reservation.
#[test]
fn an_edit_of_cached_bytes_touches_no_device() {
    let image = Image::of_mib(32).make().unwrap();
    let fs = open(&image, BufferedPath::Iomap);
    fs.write("/a", content::fill(3, 0, 1 << 20)).unwrap();
    fs.sync().unwrap();
    let file = fs.open_options().read(true).write(true).open("/a").unwrap();
    let before = ["fill_reads", "edge_reads", "handles"].map(|name| counter(&fs, name));
    file.edit(0..1 << 20, |_, bytes| bytes.fill(1)).unwrap();
    let after = ["fill_reads", "edge_reads", "handles"].map(|name| counter(&fs, name));
    assert_eq!(before, after);
}

#[test]
fn access_and_limits() {
    let image = Image::of_mib(32).make().unwrap();
    let fs = open(&image, BufferedPath::Iomap);
    fs.write("/a", b"0123456789").unwrap();
    let nothing = |_: u64, _: &mut [u8]| {};
    let read_only = fs.open_options().read(true).open("/a").unwrap();
    assert!(matches!(
        read_only.edit(0..5, nothing),
        Err(Error::BadHandle)
    ));
    let write_only = fs.open_options().write(true).open("/a").unwrap();
    assert!(matches!(write_only.view(0..5), Err(Error::BadHandle)));
    assert!(matches!(
        write_only.edit(0..5, nothing),
        Err(Error::BadHandle)
    ));
    let appending = fs
        .open_options()
        .read(true)
        .append(true)
        .open("/a")
        .unwrap();
    assert!(matches!(
        appending.edit(0..5, nothing),
        Err(Error::BadHandle)
    ));
    assert!(read_only.view(10..20).unwrap().is_empty());
    assert_eq!(read_only.view(8..20).unwrap().len(), 2);
    let backwards = std::ops::Range { start: 7, end: 3 };
    assert!(read_only.view(backwards).unwrap().is_empty());
    let huge = fs
        .open_options()
        .create(true)
        .read(true)
        .write(true)
        .open("/b")
        .unwrap();
    huge.set_len(1 << 40).unwrap();
    let view = huge.view(0..u64::MAX).unwrap();
    assert_eq!(view.len(), MAX_VIEW);
    assert!(
        view.chunks()
            .all(|chunk| chunk.iter().all(|&byte| byte == 0))
    );
}

/// A call within an edit to the same file system would wait for itself, so it fails; another file
/// system serves it.
#[test]
fn calls_from_within_an_edit_fail_instead_of_hanging() {
    for path in PATHS {
        let images = [(); 2].map(|()| Image::of_mib(16).make().unwrap());
        let [fs, other] = [open(&images[0], path), open(&images[1], path)];
        for fs in [&fs, &other] {
            fs.write("/a", [1; 5000]).unwrap();
        }
        let file = fs.open_options().read(true).write(true).open("/a").unwrap();
        let second = other
            .open_options()
            .read(true)
            .write(true)
            .open("/a")
            .unwrap();
        let deadlock = |result: Result<(), Error>| {
            assert!(matches!(result, Err(Error::Deadlock)));
        };
        let mut calls = 0;
        file.edit(0..10, |_, bytes| {
            calls += 1;
            bytes.fill(2);
            deadlock(file.read_at(&mut [0; 10], 0).map(drop));
            deadlock(file.write_at(&[3; 10], 0).map(drop));
            deadlock(file.view(0..10).map(drop));
            deadlock(file.edit(0..10, |_, _| {}).map(drop));
            deadlock(file.set_len(0));
            deadlock(file.sync_all());
            deadlock(fs.sync());
            deadlock(fs.volume().unmount());
            deadlock(fs.volume().shutdown(true));
            fs.volume().drop_caches();
            second
                .edit(0..10, |_, bytes| {
                    deadlock(file.read_at(&mut [0; 10], 0).map(drop));
                    bytes.fill(4);
                })
                .unwrap();
        })
        .unwrap();
        assert_eq!(calls, 1);
        assert_eq!(
            fs.read("/a").unwrap()[..12],
            [[2; 10].as_slice(), &[1; 2]].concat()
        );
        assert_eq!(other.read("/a").unwrap()[..10], [4; 10]);
    }
}

/// A panic within an edit leaves the file system usable, and the changes before it are written like
/// others.
#[test]
fn a_panic_within_an_edit_is_survived() {
    let image = Image::of_mib(16).make().unwrap();
    let fs = open(&image, BufferedPath::Iomap);
    fs.write("/a", [1; 5000]).unwrap();
    fs.sync().unwrap();
    let file = fs.open_options().read(true).write(true).open("/a").unwrap();
    let panics = || {
        file.edit(0..100, |_, bytes| {
            bytes[0] = 2;
            panic!("on purpose");
        })
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).unwrap_err();
    file.write_at(&[3; 10], 10).unwrap();
    drop(file);
    fs.unmount().unwrap();
    image.fsck_clean().unwrap();
    let fs = open(&image, BufferedPath::Iomap);
    assert_eq!(
        fs.read("/a").unwrap()[..20],
        [[2].as_slice(), &[1; 9], &[3; 10]].concat()
    );
}

#[test]
fn no_space_is_reported_when_the_edit_begins_and_nothing_stays_promised() {
    let image = Image::of_mib(8)
        .args("-b 1024 -m 0 -J size=1")
        .make()
        .unwrap();
    let fs = open(&image, BufferedPath::Iomap);
    let file = fs
        .open_options()
        .create(true)
        .read(true)
        .write(true)
        .open("/a")
        .unwrap();
    file.set_len(32 << 20).unwrap();
    let mut pieces = 0;
    let done = file.edit(0..32 << 20, |_, bytes| {
        pieces += 1;
        bytes.fill(5);
    });
    let done = done.unwrap();
    assert!(
        pieces > 0 && done < 8 << 20,
        "{done} bytes in {pieces} pieces"
    );
    let mut verifier = extant::Verifier::default();
    fs.volume().verify(&mut verifier, false).unwrap();
    fs.sync().unwrap();
    fs.volume().verify(&mut verifier, true).unwrap();
    let read = fs.read("/a").unwrap();
    let done = usize::try_from(done).unwrap();
    assert!(
        read[..done].iter().all(|&byte| byte == 5) && read[done..].iter().all(|&byte| byte == 0)
    );
    drop(file);
    fs.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// Edits beside truncation, sync and readers: every view shows one edit's byte, or zeros behind the
/// moving end.
#[test]
fn edits_and_views_beside_truncation_and_sync() {
    const SIZE: u64 = 200_000;
    for path in PATHS {
        let image = Image::of_mib(32).args("-b 1024").junk().make().unwrap();
        let fs = open(&image, path);
        fs.write("/a", vec![1; 200_000]).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (fs, stop) = (&fs, &stop);
            let open = move || fs.open_options().read(true).write(true).open("/a").unwrap();
            for seed in 0..2u8 {
                scope.spawn(move || {
                    let (file, mut at) = (open(), u64::from(seed));
                    while !stop.load(Ordering::Relaxed) {
                        at = (at * 31 + 17) % (SIZE / 1024);
                        let from = at * 1024;
                        file.edit(from..from + 1024, |_, bytes| bytes.fill(seed + 2))
                            .unwrap();
                    }
                });
            }
            scope.spawn(move || {
                let (file, mut at) = (open(), 5);
                while !stop.load(Ordering::Relaxed) {
                    at = (at * 13 + 7) % (SIZE / 1024);
                    let view = file.view(at * 1024..at * 1024 + 1024).unwrap();
                    let shown: Vec<u8> = view.chunks().flatten().copied().collect();
                    let first = shown.first().copied().unwrap_or(0);
                    assert!(first <= 3 && shown.iter().all(|&byte| byte == first || byte == 0));
                }
            });
            let _stop = Stop::at_end(stop);
            let file = open();
            for round in 0..150u64 {
                file.set_len((round * 7919) % SIZE).unwrap();
                file.set_len(SIZE).unwrap();
                if round % 5 == 0 {
                    file.sync_all().unwrap();
                }
            }
        });
        fs.sync().unwrap();
        let mut verifier = extant::Verifier::default();
        fs.volume().verify(&mut verifier, true).unwrap();
        let cached = fs.read("/a").unwrap();
        fs.unmount().unwrap();
        image.fsck_clean().unwrap();
        assert!(open(&image, path).read("/a").unwrap() == cached);
    }
}

/// Data inside of the inode has no folio: its view is a copy.
#[test]
fn a_view_of_inline_data_is_a_copy() {
    let image = Image::of_mib(16)
        .args("-O inline_data -I 512")
        .make()
        .unwrap();
    let data = content::fill(3, 0, 200);
    let source = image.path().with_extension("data");
    std::fs::write(&source, &data).unwrap();
    let request = format!("write {} inside", source.display());
    image.debugfs_write(&request).unwrap();
    let fs = Filesystem::options().open(image.path()).unwrap();
    let file = fs.open_options().read(true).open("/inside").unwrap();
    for (range, shown) in [
        (0..u64::MAX, &data[..]),
        (50..70, &data[50..70]),
        (190..300, &data[190..]),
        (200..300, &[]),
    ] {
        let view = file.view(range).unwrap();
        assert_eq!(view.chunks().collect::<Vec<_>>().concat(), shown);
        assert_eq!(view.shared(), 0);
    }
}
