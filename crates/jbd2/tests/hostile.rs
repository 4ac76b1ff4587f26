//! Damaged and hostile logs: an error that names the block and nothing written, an earlier
//! boundary, or all but the blocks whose copies are damaged; never a panic, never a write where
//! none belongs.

mod common;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use extant_blockdev::{BlockDevice, FileDevice, MemoryDevice, OpenMode};
use extant_disk::damage::{JournalDamage, JournalSuperblockError, LogBlockError};
use extant_disk::jbd2::crc32::Crc32;
use extant_jbd2::{Config, JournalError, LogMap, inspect, recover, recover_within};
use extant_units::{BlockSize, Blocks, DevOff, Pblk};

const LEN: u32 = 64;
/// Device block of log block `index`.
fn place(index: u32) -> u64 {
    log_map(LEN).block(index).unwrap().get()
}

/// A device whose log holds three transactions: blocks 1..=4 are stamped 1, then 3..=6 are 2, then
/// 1 is revoked and 7 is 3. Log blocks: descriptor 1, copies 2..6, commit 6; 7, 8..12, 12; revoke
/// 13, 14, 15, 16.
fn dirty(checksums: bool) -> MemoryDevice {
    let dev = Arc::new(formatted(LEN));
    let config = Config {
        checksums,
        ..manual()
    };
    let (cache, journal) = open(dev.clone(), LEN, config);
    journal
        .commit(put(&cache, &journal, &[1, 2, 3, 4], 1))
        .unwrap();
    journal
        .commit(put(&cache, &journal, &[3, 4, 5, 6], 2))
        .unwrap();
    let mut handle = journal.start_with_revokes(1, 1).unwrap();
    handle.forget(Pblk::new(1)).unwrap();
    let block = cache.read_unchecked(Pblk::new(7)).unwrap();
    handle.modify(&block, |bytes| stamp(bytes, 3)).unwrap();
    let tid = handle.tid();
    drop(handle);
    journal.commit(tid).unwrap();
    journal.abort("the test crashes here");
    MemoryDevice::from_bytes(&dev.to_bytes())
}

fn state(dev: &dyn BlockDevice) -> Vec<u64> {
    (1..=7).map(|p| stamp_on(dev, p)).collect()
}

/// Contents that a replay may leave: nothing, or the end of one of the three transactions.
const BOUNDARIES: [[u64; 7]; 4] = [
    [0; 7],
    [1, 1, 1, 1, 0, 0, 0],
    [1, 1, 2, 2, 2, 2, 0],
    [0, 1, 2, 2, 2, 2, 3],
];

fn try_recover(dev: &dyn BlockDevice) -> Result<extant_jbd2::Recovery, JournalError> {
    recover(dev, BS, &log_map(LEN), Blocks::new(dev.len() / 1024))
}

fn write(dev: &MemoryDevice, log_block: u32, at: usize, bytes: &[u8]) {
    let offset = BS.dev_off(Pblk::new(place(log_block))).unwrap();
    let offset = offset.checked_add(at as u64).unwrap();
    dev.write_at(offset, bytes).unwrap();
}

#[test]
fn the_undamaged_log_shows_its_last_boundary() {
    for checksums in [false, true] {
        let dev = dirty(checksums);
        let recovery = try_recover(&dev).unwrap();
        assert_eq!(
            (recovery.transactions, recovery.replayed, recovery.revoked),
            (3, 6, 1)
        );
        assert_eq!(state(&dev), BOUNDARIES[3]);
    }
}

#[test]
fn with_checksums_no_flipped_bit_is_replayed() {
    let good = dirty(true).to_bytes();
    let (mut errors, mut shorter, mut unharmed, mut skipped) = (0, 0, 0, 0);
    for log_block in 0..17 {
        for at in (0..BYTES).step_by(7) {
            let bit = 1 << (at % 8);
            let dev = MemoryDevice::from_bytes(&good);
            let offset = usize::try_from(place(log_block)).unwrap() * BYTES + at;
            write(&dev, log_block, at, &[good[offset] ^ bit]);
            let before = dev.to_bytes();
            match try_recover(&dev) {
                Err(_) => {
                    assert!(
                        dev.to_bytes() == before,
                        "block {log_block}+{at}: written all the same"
                    );
                    errors += 1;
                }
                Ok(recovery) if recovery.skipped > 0 => {
                    // The flipped copy's block is as before it, all others are there.
                    let first = recovery.first_skipped.unwrap();
                    assert_eq!((recovery.skipped, first.log_block), (1, log_block));
                    let block = usize::try_from(first.block.get()).unwrap() - 1;
                    let mut expected = BOUNDARIES[3];
                    expected[block] =
                        BOUNDARIES[usize::try_from(first.tid.get()).unwrap() - 2][block];
                    assert_eq!(state(&dev), expected, "block {log_block}+{at}");
                    skipped += 1;
                }
                Ok(_) => {
                    let shown = state(&dev);
                    let boundary = BOUNDARIES.iter().position(|b| b[..] == shown);
                    match boundary.unwrap_or_else(|| panic!("block {log_block}+{at}: {shown:?}")) {
                        3 => unharmed += 1,
                        _ => shorter += 1,
                    }
                }
            }
        }
    }
    // Magic and sequence numbers end the log; the second half of a commit block and superseded
    // copies do not matter.
    assert!(
        errors > 400 && shorter > 8 && unharmed > 200 && skipped > 800,
        "{errors} {shorter} {unharmed} {skipped}"
    );
}

#[test]
fn without_checksums_random_damage_ends_in_a_result() {
    let good = dirty(false).to_bytes();
    let mut rng = Rng(4711);
    let mut replays = 0;
    for _ in 0..1500 {
        let dev = MemoryDevice::from_bytes(&good);
        for _ in 0..1 + rng.below(6) {
            // Control blocks and the superblock, in their first bytes mostly.
            let log_block = [0, 1, 6, 7, 12, 13, 14, 16][usize::try_from(rng.below(8)).unwrap()];
            let reach = if rng.below(2) == 0 { 64 } else { 1024 };
            let at = usize::try_from(rng.below(reach)).unwrap();
            let byte =
                [0, 1, 0xff, rng.next().to_le_bytes()[0]][usize::try_from(rng.below(4)).unwrap()];
            write(&dev, log_block, at, &[byte]);
        }
        let log = log_map(LEN);
        let before = dev.to_bytes();
        let result = try_recover(&dev);
        let after = dev.to_bytes();
        match result {
            Err(_) => assert!(after == before),
            Ok(_) => {
                replays += 1;
                // Inside the log only the superblock may change.
                for p in (LOG_AT..dev.len() / 1024)
                    .filter(|&p| log.contains(Pblk::new(p)) && p != place(0))
                {
                    let range = usize::try_from(p).unwrap() * BYTES
                        ..(usize::try_from(p).unwrap() + 1) * BYTES;
                    assert!(
                        before[range.clone()] == after[range],
                        "block {p} of the log"
                    );
                }
            }
        }
    }
    assert!(replays > 150, "{replays}");
}

/// Damage to a log without checksums, and the error that reports it.
fn refused(is_expected: fn(&JournalError) -> bool, damage: impl FnOnce(&MemoryDevice)) {
    let dev = dirty(false);
    damage(&dev);
    let before = dev.to_bytes();
    let error = try_recover(&dev).unwrap_err();
    assert!(is_expected(&error), "{error:?}");
    assert!(dev.to_bytes() == before, "{error}: written all the same");
}

/// A function that returns whether an error of the journal has this pattern.
macro_rules! kind {
    (log: $($pattern:tt)+) => {
        |error| matches!(error, JournalError::Corrupt(JournalDamage::$($pattern)+))
    };
    (superblock: $($pattern:tt)+) => {
        |error| {
            matches!(
                error,
                JournalError::CorruptSuperblock(JournalSuperblockError::$($pattern)+)
                    | JournalError::UnsupportedSuperblock(JournalSuperblockError::$($pattern)+)
            )
        }
    };
}

#[test]
fn damage_is_reported_and_nothing_is_written() {
    let word = |value: u32| value.to_be_bytes();
    // The first tag's block number is at 12 of the descriptor.
    refused(kind!(log: TargetPastEnd { .. }), |dev| {
        write(dev, 7, 12, &word(5000))
    });
    let inside = u32::try_from(place(40)).unwrap();
    refused(kind!(log: TargetInLog { .. }), |dev| {
        write(dev, 7, 12, &word(inside))
    });
    refused(
        kind!(log: LogBlock { error: LogBlockError::RevokeCount { .. }, .. }),
        |dev| write(dev, 13, 12, &word(4000)),
    );
    refused(kind!(superblock: NoSuperblock), |dev| {
        write(dev, 0, 0, &[0])
    });
    refused(kind!(superblock: UnknownFeatures { .. }), |dev| {
        write(dev, 0, 0x28, &word(0x41))
    });
    refused(kind!(superblock: SeveralChecksums), |dev| {
        write(dev, 0, 0x28, &word(0x18))
    });
    refused(kind!(superblock: Start { start: 64, .. }), |dev| {
        write(dev, 0, 0x1c, &word(64))
    });
    refused(
        kind!(superblock: Geometry { first: 1, end: 65, .. }),
        |dev| write(dev, 0, 0x10, &word(65)),
    );
    refused(kind!(superblock: BlockSize { found: 4096, .. }), |dev| {
        write(dev, 0, 0x0c, &word(4096))
    });
}

#[test]
fn a_wrong_checksum_names_its_transaction() {
    let dev = dirty(true);
    write(&dev, 7, 100, &[1]);
    let error = try_recover(&dev).unwrap_err().to_string();
    assert!(error.contains("has a wrong checksum"), "{error}");
    // A revoke record that is damaged might be any: the bytes behind the last one count, too.
    let dev = dirty(true);
    write(&dev, 13, 500, &[1]);
    let error = try_recover(&dev).unwrap_err().to_string();
    assert!(error.contains("has a wrong checksum"), "{error}");
    assert_eq!(state(&dev), BOUNDARIES[0]);
    // A wrong checksum of a commit record is no end of the log.
    let dev = dirty(true);
    write(&dev, 12, 16, &[1, 2, 3, 4]);
    let error = try_recover(&dev).unwrap_err().to_string();
    assert!(error.contains("has a wrong checksum"), "{error}");
    // Without its commit record no transaction counts, and none behind it.
    let dev = dirty(true);
    write(&dev, 6, 0, &[0; 4]);
    let recovery = try_recover(&dev).unwrap();
    assert_eq!((recovery.transactions, recovery.replayed), (0, 0));
    assert_eq!(state(&dev), BOUNDARIES[0]);
    // A superseded copy is not needed.
    let dev = dirty(true);
    write(&dev, 4, 100, &[1]);
    try_recover(&dev).unwrap();
    assert_eq!(state(&dev), BOUNDARIES[3]);
}

/// A log decides how many copies are listed, and the host how much memory there is for them.
#[test]
fn a_list_of_copies_that_exceeds_the_memory_is_refused() {
    // Nine copies, each of 160 bytes.
    let dev = dirty(true);
    let blocks = Blocks::new(dev.len() / 1024);
    let recover = |memory| recover_within(&dev, BS, &log_map(LEN), blocks, memory);
    let error = recover(8 * 160).unwrap_err().to_string();
    assert!(error.contains("replaying the journal"), "{error}");
    assert_eq!(state(&dev), BOUNDARIES[0]);
    recover(8 * 160 + 1).unwrap();
    assert_eq!(state(&dev), BOUNDARIES[3]);
}

/// Recovery can be repeated: the log stays as it was for the repair of the file system.
#[test]
fn damaged_copies_are_skipped_and_named() {
    let dev = dirty(true);
    // The second transaction's copies of blocks 3 and 5, the last ones of both.
    write(&dev, 8, 100, &[1]);
    write(&dev, 10, 100, &[1]);
    let log = dev.to_bytes();
    for _ in 0..2 {
        let recovery = try_recover(&dev).unwrap();
        assert_eq!(
            (recovery.transactions, recovery.replayed, recovery.skipped),
            (3, 5, 2)
        );
        assert_eq!(
            recovery.first_skipped.unwrap().to_string(),
            "transaction 3, log block 8: wrong checksum of the copy of block 3"
        );
        let skipped = recovery.skipped_copies().unwrap();
        assert_eq!(
            (Some(skipped.first), skipped.more),
            (recovery.first_skipped, 1)
        );
        // Of block 3 there is an older copy.
        assert_eq!(state(&dev), [0, 1, 1, 2, 0, 2, 3]);
        let from = usize::try_from(LOG_AT).unwrap() * BYTES;
        assert!(dev.to_bytes()[from..] == log[from..], "the log was changed");
    }
    assert_ne!(inspect(&dev, BS, &log_map(LEN)).unwrap().start(), 0);
}

/// A damaged copy is replaced by the newest good one before it, unless that was revoked: the block
/// was something else in between.
#[test]
fn a_revoked_or_damaged_copy_is_no_substitute() {
    let dev = Arc::new(formatted(LEN));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    // Log blocks: descriptor 1, copies 2..6, commit 6.
    journal
        .commit(put(&cache, &journal, &[3, 4, 5, 6], 1))
        .unwrap();
    // Revoke 7, descriptor 8, copies 9 and 10, commit 11.
    let mut handle = journal.start_with_revokes(2, 1).unwrap();
    handle.forget(Pblk::new(3)).unwrap();
    for p in [5, 6] {
        let block = cache.read_unchecked(Pblk::new(p)).unwrap();
        handle.modify(&block, |bytes| stamp(bytes, 2)).unwrap();
    }
    let tid = handle.tid();
    drop(handle);
    journal.commit(tid).unwrap();
    // Block 3 is data for a while.
    let at = BS.dev_off(Pblk::new(3)).unwrap();
    dev.write_at(at, &99_u64.to_le_bytes()).unwrap();
    // Descriptor 12, copies 13..17, commit 17.
    let mut handle = journal.start(4).unwrap();
    let block = handle.create(Pblk::new(3), KEY).unwrap();
    handle.modify(&block, |bytes| stamp(bytes, 3)).unwrap();
    for p in [4, 5, 6] {
        let block = cache.read_unchecked(Pblk::new(p)).unwrap();
        handle.modify(&block, |bytes| stamp(bytes, 3)).unwrap();
    }
    let tid = handle.tid();
    drop((handle, block));
    journal.commit(tid).unwrap();
    journal.abort("the test crashes here");
    let dev = MemoryDevice::from_bytes(&dev.to_bytes());
    // All of the last copies, and the second one of block 6.
    for log_block in [10, 13, 14, 15, 16] {
        write(&dev, log_block, 100, &[1]);
    }
    let recovery = try_recover(&dev).unwrap();
    assert_eq!((recovery.transactions, recovery.skipped), (3, 4));
    let found = [3, 4, 5, 6].map(|p| stamp_on(&dev, p));
    assert_eq!(found, [99, 1, 2, 1], "{recovery:?}");
}

/// Zeros are not written over zeros, and over all else they are.
#[test]
fn a_copy_of_zeros_replaces_old_bytes() {
    let dev = Arc::new(formatted(LEN));
    dev.write_at(BS.dev_off(Pblk::new(3)).unwrap(), &99_u64.to_le_bytes())
        .unwrap();
    let (cache, journal) = open(dev.clone(), LEN, manual());
    journal.commit(put(&cache, &journal, &[3, 4], 0)).unwrap();
    journal.abort("the test crashes here");
    let dev = MemoryDevice::from_bytes(&dev.to_bytes());
    assert_eq!(stamp_on(&dev, 3), 99);
    try_recover(&dev).unwrap();
    assert_eq!((stamp_on(&dev, 3), stamp_on(&dev, 4)), (0, 0));
}

/// A device that returns other bytes of a block at one of its reads.
struct Fickle {
    inner: MemoryDevice,
    block: DevOff,
    reads: AtomicU64,
    wrong: u64,
}

impl BlockDevice for Fickle {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)?;
        if offset == self.block && self.reads.fetch_add(1, Ordering::Relaxed) == self.wrong {
            buf[100] ^= 1;
        }
        Ok(())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Copies are read once to choose among them, and once more to be written.
#[test]
fn a_copy_that_changes_between_two_reads_is_not_written() {
    let with = |wrong| Fickle {
        inner: dirty(true),
        // The last copy of block 6.
        block: BS.dev_off(Pblk::new(place(11))).unwrap(),
        reads: AtomicU64::new(0),
        wrong,
    };
    let sound = with(u64::MAX);
    try_recover(&sound).unwrap();
    assert_eq!(stamp_on(&sound, 6), 2);
    let reads = sound.reads.load(Ordering::Relaxed);
    assert!(reads >= 2, "{reads} reads of the copy");
    let fickle = with(reads - 1);
    let error = try_recover(&fickle).unwrap_err().to_string();
    assert!(
        error.contains("wrong checksum of the copy of block 6"),
        "{error}"
    );
    assert_eq!(stamp_on(&fickle, 6), 0);
}

#[test]
fn a_stale_commit_ends_the_log() {
    // The third transaction's commit is damaged and older than the second's: left over from another
    // round.
    let dev = dirty(true);
    write(&dev, 16, 48, &[0; 8]);
    let recovery = try_recover(&dev).unwrap();
    assert_eq!(recovery.transactions, 2);
    assert_eq!(state(&dev), BOUNDARIES[2]);
}

/// A log as of [`dirty`] with one checksum for each transaction, as Linux writes it with its option
/// `journal_checksum`, and with more of the superblock's features.
fn with_transaction_checksums(incompat: u32) -> MemoryDevice {
    let dev = dirty(false);
    let read = |log_block, bytes: &mut [u8]| {
        let at = BS.dev_off(Pblk::new(place(log_block))).unwrap();
        dev.read_at(at, bytes).unwrap();
    };
    let mut block = [0; BYTES];
    read(0, &mut block);
    let found = u32::from_be_bytes(block[0x28..0x2c].try_into().unwrap());
    write(&dev, 0, 0x24, &1u32.to_be_bytes());
    write(&dev, 0, 0x28, &(found | incompat).to_be_bytes());
    for (blocks, commit) in [(1..6, 6), (7..12, 12), (14..16, 16)] {
        let sum = blocks.fold(Crc32::START, |sum, log_block| {
            read(log_block, &mut block);
            sum.feed(&block)
        });
        write(&dev, commit, 12, &[1, 4, 0, 0]);
        write(&dev, commit, 16, &sum.raw().to_be_bytes());
    }
    dev
}

/// A transaction whose blocks are not those of its checksum is damaged. With asynchronous commits
/// its blocks may have been on their way when the power went, and the log ends before it.
#[test]
fn checksums_of_whole_transactions_are_verified() {
    const ASYNC_COMMIT: u32 = 4;
    for incompat in [0, ASYNC_COMMIT] {
        let dev = with_transaction_checksums(incompat);
        assert_eq!(try_recover(&dev).unwrap().transactions, 3);
        assert_eq!(state(&dev), BOUNDARIES[3]);
        // The second descriptor, and one of its copies.
        for log_block in [7, 9] {
            let dev = with_transaction_checksums(incompat);
            write(&dev, log_block, 500, &[1]);
            let recovered = try_recover(&dev);
            if incompat == ASYNC_COMMIT {
                assert_eq!(recovered.unwrap().transactions, 1);
                assert_eq!(state(&dev), BOUNDARIES[1]);
            } else {
                let error = recovered.unwrap_err().to_string();
                assert!(error.contains("has a wrong checksum"), "{error}");
                assert_eq!(state(&dev), BOUNDARIES[0]);
            }
        }
    }
}

#[test]
fn a_log_without_an_end_stops_after_one_round() {
    // Every block is a descriptor of the expected transaction whose tags say nothing.
    let dev = dirty(false);
    let header = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 1, 0, 0, 0, 2];
    for log_block in 1..LEN {
        write(&dev, log_block, 0, &[0; BYTES]);
        write(&dev, log_block, 0, &header);
    }
    let recovery = try_recover(&dev).unwrap();
    assert_eq!((recovery.transactions, recovery.replayed), (0, 0));
}

#[test]
fn the_sequence_never_repeats_a_number_that_was_tried() {
    let dev = dirty(true);
    // The third transaction loses its commit record: it was never there.
    write(&dev, 16, 0, &[0; BYTES]);
    try_recover(&dev).unwrap();
    assert_eq!(state(&dev), BOUNDARIES[2]);
    let dev = Arc::new(dev);
    let (cache, journal) = open(dev.clone(), LEN, manual());
    let tid = put(&cache, &journal, &[1], 9);
    assert!(
        tid.get() > 4,
        "{tid} may be taken for what is left of transaction 4"
    );
}

#[test]
fn an_error_recorded_by_an_earlier_user_is_reported_and_cleared() {
    let dev = Arc::new(dirty(false));
    write(&dev, 0, 0x20, &(-5i32).to_be_bytes());
    assert_eq!(try_recover(&*dev).unwrap().errno, -5);
    let (_, journal) = open(dev.clone(), LEN, manual());
    assert_eq!(journal.recorded_errno(), -5);
    journal.clear_errno().unwrap();
    journal.close().unwrap();
    assert_eq!(inspect(&*dev, BS, &log_map(LEN)).unwrap().errno(), 0);
}

#[test]
fn a_read_only_device_is_refused_only_if_it_must_be_written() {
    let dir = std::env::temp_dir().join(format!("extant-jbd2-{}", std::process::id()));
    std::fs::write(&dir, dirty(true).to_bytes()).unwrap();
    let dev = FileDevice::open(&dir, OpenMode::ReadOnly).unwrap();
    assert!(matches!(try_recover(&dev), Err(JournalError::ReadOnly)));
    drop(dev);
    try_recover(&FileDevice::open(&dir, OpenMode::ReadWrite).unwrap()).unwrap();
    let dev = FileDevice::open(&dir, OpenMode::ReadOnly).unwrap();
    assert!(try_recover(&dev).unwrap().was_clean);
    std::fs::remove_file(dir).unwrap();
}

#[test]
fn invalid_maps_are_refused() {
    let dev = MemoryDevice::new(64 << 10);
    for runs in [
        vec![],
        vec![(Pblk::new(60), 10)],
        vec![(Pblk::new(1), 20), (Pblk::new(10), 20)],
        vec![(Pblk::MAX, 1)],
    ] {
        let error =
            recover(&dev, BlockSize::KIB1, &LogMap::new(runs), Blocks::new(64)).unwrap_err();
        assert!(matches!(error, JournalError::Corrupt(_)), "{error}");
    }
}
