//! Vectored reads and writes: one operation, whatever the number of buffers.

use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};

use extant::{BufferedPath, Error, Filesystem, Tuning};
use extant_testkit::{Image, Rng};

fn mounted(image: &Image, path: BufferedPath) -> Filesystem {
    let mut tuning = Tuning::default();
    tuning.buffered_path = path;
    let mut options = Filesystem::options();
    let options = options.write(true).tuning(tuning);
    options.open(image.path()).expect("a mount")
}

fn counter(fs: &Filesystem, name: &str) -> u64 {
    let stats = fs.volume().stats();
    let found = stats.iter().find(|(known, _)| *known == name);
    found.expect("a counter of that name").1
}

/// Cuts `bytes` into up to `parts` slices, some of them empty.
fn cut<'a>(bytes: &'a [u8], parts: usize, rng: &mut Rng) -> Vec<IoSlice<'a>> {
    let mut ends: Vec<usize> = (1..parts).map(|_| rng.index(bytes.len())).collect();
    ends.sort_unstable();
    ends.push(bytes.len());
    let mut from = 0;
    let mut part = |to: usize| IoSlice::new(&bytes[std::mem::replace(&mut from, to)..to]);
    ends.into_iter().map(&mut part).collect()
}

#[test]
fn vectored_calls_do_what_the_plain_ones_do() {
    for path in [BufferedPath::Iomap, BufferedPath::BufferHead] {
        let image = Image::of_mib(32).make().expect("mke2fs");
        let fs = mounted(&image, path);
        let mut rng = Rng::new(7);
        for direct in [false, true] {
            let mut options = fs.open_options();
            options.create(true).read(true).write(true).direct(direct);
            let file = options.open(format!("/direct-{direct}")).expect("a file");
            let mut model = Vec::new();
            for round in 0_u8..60 {
                let len = 1 + rng.index(40_000);
                let pos = rng.index(model.len() + 5000);
                let bytes: Vec<u8> = (0..=250_u8).cycle().take(len).map(|i| round ^ i).collect();
                let bufs = cut(&bytes, 1 + rng.index(12), &mut rng);
                let done = file.write_vectored_at(&bufs, pos as u64).expect("a write");
                assert_eq!(done, len, "{path:?}, round {round}");
                model.resize(model.len().max(pos + len), 0);
                model[pos..pos + len].copy_from_slice(&bytes);

                let from = rng.index(model.len());
                let mut parts: Vec<Vec<u8>> = (0..rng.index(9))
                    .map(|_| vec![0; rng.index(9000)])
                    .collect();
                let mut bufs: Vec<IoSliceMut<'_>> =
                    parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
                let asked: usize = bufs.iter().map(|buf| buf.len()).sum();
                let done = file
                    .read_vectored_at(&mut bufs, from as u64)
                    .expect("a read");
                let there = asked.min(model.len() - from);
                assert_eq!(done, there, "{path:?}, round {round}");
                let got = parts.concat();
                assert!(got[..done] == model[from..from + done], "{path:?}, {round}");
            }
        }
        fs.unmount().expect("an unmount");
        image.fsck_clean().expect("a clean image");
    }
}

#[test]
fn ten_buffers_in_one_folio_are_one_overwrite_and_one_lock() {
    let image = Image::of_mib(32).make().expect("mke2fs");
    let fs = mounted(&image, BufferedPath::Iomap);
    let mut options = fs.open_options();
    let file = options.create(true).read(true).write(true).open("/f");
    let file = file.expect("a file");
    file.write_at(&[1; 256 << 10], 0).expect("a first write");
    // The second write notes nothing any more: times are of this tick, privileges were dropped.
    let bytes = [5; 1 << 10];
    let bufs = [IoSlice::new(&bytes); 10];
    let mut plain_rounds = 0;
    for _ in 0..50 {
        let names = ["overwrites", "tree_sets"];
        let before = names.map(|name| counter(&fs, name));
        assert_eq!(
            file.write_vectored_at(&bufs, 4096).expect("writev"),
            10 << 10
        );
        let after = names.map(|name| counter(&fs, name));
        let cost = [after[0] - before[0], after[1] - before[1]];
        let of_a_tick = [0, 1];
        match cost {
            [1, 0] => plain_rounds += 1,
            _ => assert_eq!(cost, of_a_tick, "overwrites and locked ranges of one call"),
        }
    }
    // A tick of the clock may fall into some of the rounds: such a write locks its range once.
    assert!(plain_rounds > 0, "no call was an overwrite");
}

#[test]
fn positions_and_ends_move_with_vectored_calls() {
    let image = Image::of_mib(32).make().expect("mke2fs");
    let fs = mounted(&image, BufferedPath::Iomap);
    let words = [
        IoSlice::new(b"one "),
        IoSlice::new(b""),
        IoSlice::new(b"two "),
    ];
    let mut options = fs.open_options();
    let mut log = options
        .create(true)
        .append(true)
        .read(true)
        .open("/log")
        .expect("a log");
    assert_eq!(log.write_vectored(&words).expect("an append"), 8);
    assert_eq!(log.write_vectored_at(&words, 0).expect("an append"), 8);
    assert_eq!(log.write_vectored(&words[..1]).expect("an append"), 4);
    assert_eq!(log.stream_position().expect("a position"), 20);
    log.seek(SeekFrom::Start(4)).expect("a seek");
    let (mut a, mut b) = ([0; 6], [0; 20]);
    let mut bufs = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
    assert_eq!(log.read_vectored(&mut bufs).expect("a read"), 16);
    assert_eq!((&a, &b[..10]), (b"two on", &b"e two one "[..]));
    let read_only = fs.open_options().read(true).open("/log").expect("a log");
    let refused = read_only.write_vectored_at(&words, 0);
    assert!(matches!(refused, Err(Error::BadHandle)), "{refused:?}");
}
