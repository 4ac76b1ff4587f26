//! Readers and writers of one file, through the cache and past it, on ranges that overlap: no
//! reader sees a torn write, or an old block after a newer one.
//!
//! Every block carries its number, a generation and a checksum. Writers of a block run one after
//! the other, so that generations are in order; readers run at any time. A block that a reader
//! finds must be whole. Its generation must be at least the last one that was written, or found by
//! any reader, before the read began.
//!
//! The device writes and reads every block in pieces and yields the processor in between: a reader
//! that bypasses the locks finds halves.

mod device;
mod file;

use std::sync::Arc;
use std::time::Duration;

use extant::{BufferedPath, Filesystem, Tuning};
use extant_testkit::{Image, report};

use device::Piecemeal;
use file::{Shared, Totals, rage};

/// How long all rounds take together.
fn duration() -> Duration {
    let asked = std::env::var("EXTANT_SECONDS").ok();
    Duration::from_secs(asked.and_then(|s| s.parse().ok()).unwrap_or(6))
}

fn seed() -> u64 {
    let asked = std::env::var("EXTANT_SEED").ok();
    asked.and_then(|s| s.parse().ok()).unwrap_or(1)
}

/// Arguments of mke2fs, path, mount options, largest folio.
const ROUNDS: [(&str, BufferedPath, &str, u8); 5] = [
    ("-b 4096", BufferedPath::Iomap, "", 9),
    ("-b 1024", BufferedPath::Iomap, "", 2),
    ("-b 4096", BufferedPath::BufferHead, "", 9),
    ("-b 4096", BufferedPath::BufferHead, "data=journal", 9),
    ("-b 4096", BufferedPath::Iomap, "nodelalloc", 0),
];

#[test]
fn buffered_and_direct_io_agree_about_every_block() {
    let mut all = Totals::default();
    for (round, (args, path, options, order)) in (seed()..).zip(ROUNDS) {
        let image = Image::of_mib(48).args(args).junk().make().unwrap();
        let bytes = std::fs::read(image.path()).unwrap();
        let device = Arc::new(Piecemeal::new(&bytes));
        let mut tuning = Tuning::default();
        tuning.buffered_path = path;
        tuning.max_folio_order = order;
        tuning.page_cache_bytes = Some(32 << 20);
        let mut how = Filesystem::options();
        how.write(true).tuning(tuning).mount_options(options);
        let fs = how.open_device(device.clone()).unwrap();
        let shared = Shared::new(&fs);
        let time = duration() / u32::try_from(ROUNDS.len()).unwrap();
        let totals = rage(&fs, &shared, round, time);
        shared.check_all(&fs);
        fs.unmount().unwrap();
        Image::of_bytes(&device.bytes())
            .unwrap()
            .fsck_clean()
            .unwrap();
        let fs = how.open_device(device).unwrap();
        shared.check_all(&fs);
        assert!(
            totals.writes > 50 && totals.reads > 50,
            "{args} {options}: {totals:?}"
        );
        all += totals;
    }
    report(&format!(
        "one file, buffered and direct: {} writes, {} reads of blocks",
        all.writes, all.reads
    ));
}
