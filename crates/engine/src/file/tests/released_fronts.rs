//! Fronts of long writes: what is unlocked as a write proceeds, and what stays locked. The device
//! has a gate, as in `gates`.

use extant_testkit::{Request, RequestKind, wait_until};
use extant_units::Lblk;

use super::gates::{BLOCK, BLOCK_LEN, Stage, any_read, waiting, writes_of};
use crate::file::{WriteAt, drop_clean, fallocate, fsync, range_lock_stats, write, write_direct};
use crate::map;
use crate::state::inode::InodeRef;
use crate::state::map::WriteSpan;
use crate::types::error::Error;
use crate::types::{Cred, FallocateMode};

/// A long write that is stopped in its second half: how it is made, and what stops it.
struct LongWrite {
    at: fn(u64) -> WriteAt,
    direct: bool,
    /// The file's second half has its blocks; the last of them is not in the cache.
    backed: bool,
    /// The request that is held back.
    stops_at: fn(&Request<'_>) -> bool,
}

/// Blocks of the file, and of its first half.
const LONG: u64 = 144;
const HALF: u64 = 72;
/// A block of the second half that the first writer has not passed when it is stopped.
const BEHIND: u64 = LONG - 2;

/// Bytes of a half.
fn half() -> usize {
    usize::try_from(HALF).unwrap() * BLOCK_LEN
}

/// A file of [`LONG`] blocks, of which the first `backed` have their data; nothing is cached.
fn long_file(stage: &Stage, backed: u64) -> InodeRef {
    let inode = stage.create("long");
    let ones = vec![1; usize::try_from(backed).unwrap() * BLOCK_LEN];
    stage.put(&inode, 0, &ones);
    fsync(&stage.fs, &inode, None, false).unwrap();
    stage.cut(&inode, LONG * BLOCK);
    drop_clean(&inode);
    inode
}

/// A long write lets go of its front as it proceeds: a second writer passes there while the first
/// is still at work behind it, and waits where the first has not been. Without that it waits at the
/// front.
#[test]
fn a_writer_follows_another_through_a_file() {
    let second_half: fn(&Request<'_>) -> bool = |request| writes_of(4)(request);
    for long in [
        // Through the cache: the last block, which is written in part, has to be read.
        LongWrite {
            at: WriteAt::Pos,
            direct: false,
            backed: true,
            stops_at: any_read,
        },
        // Past the cache, in two runs: what is there, and a hole.
        LongWrite {
            at: WriteAt::Pos,
            direct: true,
            backed: false,
            stops_at: second_half,
        },
        // What a mount hands over in large pieces, likewise.
        LongWrite {
            at: WriteAt::UpperWriteback,
            direct: false,
            backed: false,
            stops_at: second_half,
        },
    ] {
        for releases in [true, false] {
            follow(&long, releases);
        }
    }
}

fn follow(long: &LongWrite, releases: bool) {
    let stage = Stage::tuned("", |tuning| tuning.release_fronts = releases);
    let inode = long_file(&stage, if long.backed { LONG } else { HALF });
    let half = half();
    let mut bytes = [vec![2; half], vec![4; half]].concat();
    if long.backed {
        bytes.truncate(2 * half - 100);
    }
    let before = range_lock_stats(&stage.fs);
    let waits = || stage.fs.stats.range_lock_waits.get();
    std::thread::scope(|scope| {
        let closed = stage.dev.gate().close(long.stops_at);
        let first = scope.spawn(|| {
            let (fs, at, cred) = (&stage.fs, (long.at)(0), Cred::root());
            let (_, done) = if long.direct {
                write_direct(fs, &inode, None, at, &bytes, &cred).unwrap()
            } else {
                write(fs, &inode, None, at, &bytes, &cred).unwrap()
            };
            assert_eq!(done, bytes.len());
        });
        closed.wait_for(1);
        let quiet = waits();
        let front = scope.spawn(|| stage.put(&inode, 0, &[5; 2 * BLOCK_LEN]));
        wait_until("the front", || front.is_finished() || waits() > quiet);
        let (passed, quiet) = (front.is_finished(), waits());
        let behind = waiting(
            scope,
            "the end",
            || stage.put(&inode, BEHIND * BLOCK, &[6; BLOCK_LEN]),
            || waits() > quiet,
        );
        assert!(!first.is_finished());
        drop(closed);
        for writer in [first, front, behind] {
            writer.join().unwrap();
        }
        assert_eq!(passed, releases, "whether the front was free meanwhile");
    });
    // Each release trims the record; nothing is cut out of its middle.
    let now = range_lock_stats(&stage.fs);
    assert_eq!(now.trim_last > before.trim_last, releases, "{now:?}");
    assert_eq!(now.prealloc_allocs, before.prealloc_allocs, "{now:?}");
    let found = stage.get(&inode, 0, 2 * half);
    let (own, end) = (2 * BLOCK_LEN, 2 * half - 2 * BLOCK_LEN);
    assert!(found[..own].iter().all(|byte| *byte == 5));
    assert!(found[own..half].iter().all(|byte| *byte == 2));
    assert!(found[half..end].iter().all(|byte| *byte == 4));
    assert_eq!(found[end..end + BLOCK_LEN], [6; BLOCK_LEN]);
    stage.end();
}

/// Data that a direct write has to pass through the cache stays locked until it is on the device:
/// where space runs out on the way there, a second attempt writes it again.
#[test]
fn what_falls_back_to_the_cache_stays_locked() {
    let stage = Stage::new("");
    let (fs, inode, half) = (&stage.fs, &long_file(&stage, HALF), half());
    // Delayed blocks without data: no direct write can go there.
    let (first, count) = (u32::try_from(HALF).unwrap(), u32::try_from(HALF).unwrap());
    map::reserve_delayed(fs, inode, WriteSpan::exact(Lblk::new(first), count), false).unwrap();
    let bytes = [vec![2; half], vec![4; half]].concat();
    let waits = || fs.stats.range_lock_waits.get();
    std::thread::scope(|scope| {
        let closed = stage.dev.gate().close(writes_of(4));
        let direct = scope.spawn(|| {
            let at = WriteAt::Pos(0);
            let (_, done) = write_direct(fs, inode, None, at, &bytes, &Cred::root()).unwrap();
            assert_eq!(done, bytes.len());
        });
        closed.wait_for(1);
        assert_eq!(fs.stats.direct_fallbacks.get(), 1);
        stage.put(inode, 0, &[5; BLOCK_LEN]);
        let quiet = waits();
        let behind = waiting(
            scope,
            "what the cache has got",
            // More folios than a write changes without its range: it waits for nothing else.
            || stage.put(inode, HALF * BLOCK, &[6; 6 * BLOCK_LEN]),
            || waits() > quiet,
        );
        drop(closed);
        direct.join().unwrap();
        behind.join().unwrap();
    });
    let found = stage.get(inode, 0, 2 * half);
    assert_eq!(found[..BLOCK_LEN], [5; BLOCK_LEN]);
    assert!(found[BLOCK_LEN..half].iter().all(|byte| *byte == 2));
    let end = half + 6 * BLOCK_LEN;
    assert!(found[half..end].iter().all(|byte| *byte == 6));
    assert!(found[end..].iter().all(|byte| *byte == 4));
    stage.end();
}

/// Has all blocks in use but `free`, and lets a commit return `pending` more.
fn fill_volume(stage: &Stage, free: u64, pending: u64) {
    let filler = stage.create("filler");
    let mode = FallocateMode::Allocate { keep_size: false };
    let (mut end, mut len) = (0, 2048);
    while len > 0 {
        let range = (end * BLOCK, len * BLOCK);
        match fallocate(&stage.fs, &filler, mode, range, &Cred::root()) {
            Ok(()) => end += len,
            Err(error) => {
                assert!(matches!(error, Error::NoSpace), "{error}");
                stage.cut(&filler, end * BLOCK);
                len /= 2;
            }
        }
    }
    stage.cut(&filler, (end - free) * BLOCK);
    stage.fs.journal.force_commit().unwrap();
    stage.cut(&filler, (end - free - pending) * BLOCK);
}

/// A long write that runs out of space has let go of its front: what another writer has put there
/// meanwhile stays, as that writer came later.
#[test]
fn a_write_without_space_leaves_alone_what_it_has_released() {
    for at in [WriteAt::Pos, WriteAt::UpperWriteback] {
        let stage = Stage::new("");
        let inode = long_file(&stage, 0);
        let (space, more) = (HALF + 8, 8);
        fill_volume(&stage, space, more);
        let bytes = vec![2; 2 * half()];
        std::thread::scope(|scope| {
            // Of what it allocates; the device is asked for a commit when no space is left.
            let closed = stage.dev.gate().close(is_commit);
            let first = scope.spawn(|| {
                let cred = Cred::root();
                write(&stage.fs, &inode, None, at(0), &bytes, &cred).unwrap()
            });
            closed.wait_for(1);
            stage.put(&inode, 0, &[5; 2 * BLOCK_LEN]);
            assert!(!first.is_finished());
            drop(closed);
            let (pos, done) = first.join().unwrap();
            assert!(pos == 0 && done >= half() && done < bytes.len(), "{done}");
            let found = stage.get(&inode, 0, done);
            assert!(found[..2 * BLOCK_LEN].iter().all(|byte| *byte == 5));
            assert!(found[2 * BLOCK_LEN..].iter().all(|byte| *byte == 2));
        });
        stage.end();
    }
}

/// Picks the first block of a transaction in the log.
fn is_commit(request: &Request<'_>) -> bool {
    request.kind == RequestKind::Write && request.data.starts_with(&[0xC0, 0x3B, 0x39, 0x98])
}
