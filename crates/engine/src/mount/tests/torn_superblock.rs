//! Direct writes of the superblock, each torn between its two sectors: the next mount mends it.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_disk::features::Incompat;
use extant_disk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State};
use extant_testkit::{Event, Image, Recorder};
use extant_units::{Blocks, DevOff, index};

use crate::config::MountOptions;
use crate::mount::read_superblock;
use crate::state::volume::mounted_superblock::{is_in_use, write_directly, write_note};

/// Bytes that a drive writes whole.
const SECTOR: usize = 512;

type Change = fn(&mut RawSuperblock);

fn fault(raw: &mut RawSuperblock) {
    raw.set_state(raw.state() | State::ERROR);
    raw.error_count.set(raw.error_count.get() + 1);
    raw.first_error_errcode = 2;
    raw.last_error_errcode = 2;
}

fn mark(raw: &mut RawSuperblock, on: bool) {
    let mut features = raw.features();
    features.incompat.set(Incompat::RECOVER, on);
    raw.set_features(features);
}

fn begin(raw: &mut RawSuperblock) {
    mark(raw, true);
    raw.mnt_count.set(raw.mnt_count.get() + 1);
    raw.set_mount_time(7);
}

fn end(raw: &mut RawSuperblock) {
    mark(raw, false);
    raw.set_free_blocks_count(Blocks::new(4000));
    fault(raw);
}

fn begin_without_journal(raw: &mut RawSuperblock) {
    raw.set_state(raw.state() - State::VALID);
    raw.mnt_count.set(raw.mnt_count.get() + 1);
}

fn end_without_journal(raw: &mut RawSuperblock) {
    raw.set_state(raw.state() | State::VALID);
    raw.free_inodes_count.set(5);
}

/// Tears every write of the superblock in `events` both ways. Returns the superblock at the end,
/// and the number of torn ones that were mended.
fn tear_each(base: Vec<u8>, events: &[Event]) -> (Box<RawSuperblock>, usize) {
    let at = index(SUPERBLOCK_OFFSET);
    let (mut now, mut mended) = (base, 0);
    for event in events {
        let Event::Write { offset, data } = event else {
            continue;
        };
        assert_eq!((index(offset.get()), data.len()), (at, SUPERBLOCK_SIZE));
        for part in [0..SECTOR, SECTOR..SUPERBLOCK_SIZE] {
            let mut torn = now.clone();
            torn[at + part.start..at + part.end].copy_from_slice(&data[part.clone()]);
            let bytes: [u8; SUPERBLOCK_SIZE] = torn[at..at + SUPERBLOCK_SIZE].try_into().unwrap();
            mended += usize::from(!RawSuperblock::copy_from(&bytes).unwrap().checksum_ok());
            let dev: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&torn));
            let found = read_superblock::read(&dev, &mut MountOptions::default());
            found.unwrap_or_else(|error| panic!("{part:?} of write {mended}: {error}"));
        }
        now[at..at + SUPERBLOCK_SIZE].copy_from_slice(data);
    }
    let bytes: [u8; SUPERBLOCK_SIZE] = now[at..at + SUPERBLOCK_SIZE].try_into().unwrap();
    (RawSuperblock::copy_from(&bytes).unwrap(), mended)
}

#[test]
fn a_superblock_torn_in_any_direct_write_is_mended() {
    for (mkfs, begin, end) in [
        ("-b 1024", begin as Change, end as Change),
        (
            "-b 1024 -O ^has_journal",
            begin_without_journal,
            end_without_journal,
        ),
    ] {
        let image = Image::of_mib(16).args(mkfs).make().unwrap();
        let base = std::fs::read(image.path()).unwrap();
        let memory = Recorder::new(MemoryDevice::from_bytes(&base));
        let recorder = Arc::new(memory);
        let dev: Arc<dyn BlockDevice> = recorder.clone();
        // A fault is noted before the volume is in use, while it is, and after the last write of an
        // unmount that has failed.
        write_directly(&dev, fault).unwrap();
        write_directly(&dev, begin).unwrap();
        write_note(&dev, fault).unwrap();
        write_directly(&dev, fault).unwrap();
        write_directly(&dev, end).unwrap();
        let mut bytes = [0; SUPERBLOCK_SIZE];
        dev.read_at(DevOff::new(SUPERBLOCK_OFFSET), &mut bytes)
            .unwrap();
        let unmounted = RawSuperblock::copy_from(&bytes).unwrap();
        assert!(!is_in_use(&unmounted), "{mkfs}");
        write_note(&dev, fault).unwrap();
        let (last, mended) = tear_each(base, &recorder.events());
        assert!(mended >= 8, "{mkfs}: {mended}");
        // That unmount is none: the next mount looks at the journal.
        assert!(is_in_use(&last) && last.checksum_ok(), "{mkfs}");
        assert!(last.state().contains(State::ERROR), "{mkfs}");
    }
}
