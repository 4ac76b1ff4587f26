//! Joint writeback: what it saves, and what happens where it meets others or fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_pagecache::WritebackReason;
use extant_testkit::{
    Event, Fault, FaultyDevice, GatedDevice, Image, Recorder, Request, RequestKind, Watchdog,
};
use extant_units::{Ino, Lblk};

use crate::api::inspect::verifier::Verifier;
use crate::config::{MountOptions, Tuning};
use crate::file::{
    ReadMode, WriteAt, fallocate, fsync, read, truncate, write, writeback_all_files,
};
use crate::state::inode::InodeRef;
use crate::state::map::MapState;
use crate::types::{Cred, FallocateMode};
use crate::volume::Fs;
use crate::{alloc, map, mount, namei};

/// Files of a test.
const FILES: u8 = 40;
/// Bytes of a block.
const BLOCK: u64 = 1024;

/// The image that each test starts from; its free space is junk.
fn image() -> Vec<u8> {
    let image = Image::of_mib(8).args("-b 1024").junk().make().unwrap();
    std::fs::read(image.path()).unwrap()
}

fn mounted(dev: Arc<dyn BlockDevice>) -> Arc<Fs> {
    mounted_as(dev, Tuning::default())
}

fn mounted_as(dev: Arc<dyn BlockDevice>, tuning: Tuning) -> Arc<Fs> {
    let tuning = Tuning {
        page_cache_bytes: Some(16 << 20),
        flushers: 0,
        ..tuning
    };
    let options = MountOptions::parse("commit=3000").unwrap();
    mount::mount(dev, options, tuning).unwrap()
}

/// The bytes of file `number`: one block, or a few.
fn content(number: u8) -> Vec<u8> {
    vec![number + 1; 100 + usize::from(number) * 150]
}

fn name(number: u8) -> String {
    format!("file{number}")
}

/// New files, written and not on the device.
fn fill(fs: &Arc<Fs>) -> Vec<InodeRef> {
    let root = fs.iget(Ino::ROOT).unwrap();
    let make = |number: u8| {
        let inode = namei::create(fs, &root, name(number).as_bytes(), 0o644, &Cred::root());
        let inode = inode.unwrap();
        write(
            fs,
            &inode,
            None,
            WriteAt::Pos(0),
            &content(number),
            &Cred::root(),
        )
        .unwrap();
        inode
    };
    (0..FILES).map(make).collect()
}

fn bytes_of(fs: &Arc<Fs>, inode: &InodeRef) -> Vec<u8> {
    let mut bytes = vec![0x55; 10_000];
    let done = read(fs, inode, None, ReadMode::Buffered, 0, &mut bytes).unwrap();
    bytes.truncate(done);
    bytes
}

/// Looks at all files on a mount that has nothing cached of them, and has e2fsck look at what that
/// mount leaves: no block is lost.
fn check_all(dev: Vec<u8>) {
    let dev = Arc::new(MemoryDevice::from_bytes(&dev));
    let fs = mounted(dev.clone());
    let root = fs.iget(Ino::ROOT).unwrap();
    for number in 0..FILES {
        let inode = namei::lookup(&fs, &root, name(number).as_bytes()).unwrap();
        assert_eq!(bytes_of(&fs, &inode), content(number), "file {number}");
    }
    drop(root);
    Verifier::default().check(&fs, false).unwrap();
    mount::unmount(&fs).unwrap();
    let after = Image::of_bytes(&dev.to_bytes()).unwrap();
    after.fsck_clean().unwrap();
}

#[test]
fn new_files_share_a_run_a_request_and_a_handle() {
    let dev = Arc::new(MemoryDevice::from_bytes(&image()));
    let fs = mounted(dev.clone());
    let files = fill(&fs);
    let (before, handles) = (fs.files.stats.snapshot(), fs.journal.stats().handles);
    let stored = fs.stats.inode_dirty_calls.get();
    writeback_all_files(&fs).unwrap();
    let after = fs.files.stats.snapshot();
    assert_eq!(after.joint_files - before.joint_files, u64::from(FILES));
    assert_eq!(after.ioends - before.ioends, 1);
    assert_eq!(fs.journal.stats().handles - handles, 1);
    assert_eq!(fs.stats.inode_dirty_calls.get() - stored, u64::from(FILES));
    // One after the other on the device, in the order of their numbers.
    let mut next = None;
    for (number, inode) in (0..).zip(&files) {
        assert!(!inode.has_dirty_data());
        assert_eq!(inode.core.read().disk_size, content(number).len() as u64);
        let map = map::lookup(&fs, inode, Lblk::ZERO, 100).unwrap();
        let MapState::Written(start) = map.state else {
            panic!("{map:?}");
        };
        assert!(next.is_none_or(|next| next == start), "file {number}");
        next = start.checked_add(map.len.into());
    }
    assert_eq!(fs.alloc.counts.reserved_blocks().get(), 0);
    assert_eq!(fs.journal.stats().credit_overflows, 0);
    drop(files);
    Verifier::default().check(&fs, true).unwrap();
    fs.sync().unwrap();
    let crashed = dev.to_bytes();
    mount::unmount(&fs).unwrap();
    check_all(crashed);
    check_all(dev.to_bytes());
}

/// A crash between the request and the commit leaves files without content, and free blocks.
#[test]
fn a_crash_before_the_commit_shows_nothing_of_it() {
    let dev = Arc::new(MemoryDevice::from_bytes(&image()));
    let fs = mounted(dev.clone());
    let files = fill(&fs);
    fs.journal.force_commit().unwrap();
    writeback_all_files(&fs).unwrap();
    let crashed = mounted(Arc::new(MemoryDevice::from_bytes(&dev.to_bytes())));
    let root = crashed.iget(Ino::ROOT).unwrap();
    for number in 0..FILES {
        let inode = namei::lookup(&crashed, &root, name(number).as_bytes()).unwrap();
        let core = inode.core.read();
        assert_eq!((core.disk_size, core.sectors), (0, 0), "file {number}");
    }
    drop(root);
    mount::unmount(&crashed).unwrap();
    drop(files);
    mount::unmount(&fs).unwrap();
}

/// A file that is cut while the data is on its way is written by a pass of its own. One that is to
/// get blocks waits for those that its data has.
#[test]
fn files_that_change_meanwhile_lose_nothing() {
    let _limit = Watchdog::new(Duration::from_secs(240));
    let dev = Arc::new(GatedDevice::new(MemoryDevice::from_bytes(&image())));
    let fs = mounted(dev.clone());
    let files = fill(&fs);
    // The request for all of them: it is longer than any block of the log.
    let joint = |request: &Request<'_>| request.len > 40 * BLOCK;
    let closed = dev.gate().close(joint);
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| writeback_all_files(&fs).unwrap());
        closed.wait_for(1);
        // The blocks that hold the data are reserved by the file: no others may use that up.
        let reserved = fs.alloc.counts.reserved_blocks();
        let fill = scope.spawn(|| {
            let mode = FallocateMode::Allocate { keep_size: true };
            fallocate(&fs, &files[7], mode, (0, 8 * BLOCK), &Cred::root()).unwrap();
        });
        let pages = &files[7].file_state.get().unwrap().address_space;
        extant_testkit::wait_until("the pass to be waited for", || {
            fill.is_finished() || pages.is_pass_awaited()
        });
        assert!(!fill.is_finished(), "it did not wait for the writeback");
        assert_eq!(fs.alloc.counts.reserved_blocks(), reserved);
        let cut = scope.spawn(|| truncate(&fs, &files[9], 0, &Cred::root()).unwrap());
        extant_testkit::wait_until("the size to move", || files[9].size() == 0);
        drop(closed);
        flusher.join().unwrap();
        fill.join().unwrap();
        cut.join().unwrap();
    });
    assert_eq!(bytes_of(&fs, &files[9]), b"");
    write(
        &fs,
        &files[9],
        None,
        WriteAt::End,
        &content(9),
        &Cred::root(),
    )
    .unwrap();
    for inode in &files {
        fsync(&fs, inode, None, false).unwrap();
    }
    drop(files);
    Verifier::default().check(&fs, false).unwrap();
    mount::unmount(&fs).unwrap();
    check_all(dev.inner().to_bytes());
}

/// A file is cut to nothing while its data is on its way, before it has a block. Its own pass then
/// gives it blocks, and a power cut may come before these are freed: the mount after it does that.
#[test]
fn a_file_that_is_cut_meanwhile_has_no_blocks_after_a_crash() {
    let _limit = Watchdog::new(Duration::from_secs(240));
    let base = image();
    let log = Arc::new(Recorder::new(MemoryDevice::from_bytes(&base)));
    let dev = Arc::new(GatedDevice::new(log.clone()));
    let tuning = Tuning {
        commit_each_handle: true,
        ..Tuning::default()
    };
    let fs = mounted_as(dev.clone(), tuning);
    let files = fill(&fs);
    let closed = dev
        .gate()
        .close(|request: &Request<'_>| request.len > 40 * BLOCK);
    let mut begin = 0;
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| writeback_all_files(&fs).unwrap());
        closed.wait_for(1);
        let cut = scope.spawn(|| truncate(&fs, &files[9], 0, &Cred::root()).unwrap());
        extant_testkit::wait_until("the size to move", || files[9].size() == 0);
        begin = log.position();
        drop(closed);
        flusher.join().unwrap();
        cut.join().unwrap();
    });
    fs.journal.force_commit().unwrap();
    drop(files);
    mount::unmount(&fs).unwrap();
    let events = log.events();
    let mut state = base;
    let mut orphans = 0;
    for (at, event) in events.iter().enumerate() {
        if let Event::Write { offset, data } = event {
            let start = usize::try_from(offset.get()).unwrap();
            state[start..start + data.len()].copy_from_slice(data);
        }
        if at < begin || !matches!(event, Event::Flush { .. }) {
            continue;
        }
        let crashed = mounted(Arc::new(MemoryDevice::from_bytes(&state)));
        orphans += crashed.stats.orphans_processed.get();
        let root = crashed.iget(Ino::ROOT).unwrap();
        let inode = namei::lookup(&crashed, &root, name(9).as_bytes()).unwrap();
        assert_eq!(map::last_end(&crashed, &inode).unwrap(), 0, "event {at}");
        drop((root, inode));
        mount::unmount(&crashed).unwrap();
    }
    assert!(orphans > 0, "no state lies between the two");
}

/// A request that fails is no answer for any one file: each is written by itself.
#[test]
fn after_a_failed_request_each_file_is_written_alone() {
    let memory = Arc::new(MemoryDevice::from_bytes(&image()));
    let failing = Arc::new(AtomicBool::new(true));
    let armed = failing.clone();
    let plan = move |request: Request<'_>| {
        let joint = request.kind == RequestKind::Write && request.len > 40 * BLOCK;
        match joint && armed.load(Ordering::SeqCst) {
            true => Fault::Fail(std::io::ErrorKind::Other),
            false => Fault::Pass,
        }
    };
    let fs = mounted(Arc::new(FaultyDevice::new(memory.clone(), plan)));
    let files = fill(&fs);
    writeback_all_files(&fs).unwrap();
    assert_eq!(fs.files.stats.snapshot().failed_ioends, 1);
    failing.store(false, Ordering::SeqCst);
    for inode in &files {
        assert!(!inode.has_dirty_data());
        fsync(&fs, inode, None, false).unwrap();
    }
    drop(files);
    Verifier::default().check(&fs, false).unwrap();
    mount::unmount(&fs).unwrap();
    check_all(memory.to_bytes());
}

/// Files that share a flusher's turn and have nothing in common but that.
#[test]
fn files_that_cannot_join_are_written_all_the_same() {
    let dev = Arc::new(MemoryDevice::from_bytes(&image()));
    let fs = mounted(dev.clone());
    let files = fill(&fs);
    let old = &files[3];
    fsync(&fs, old, None, false).unwrap();
    write(&fs, old, None, WriteAt::Pos(0), &content(3), &Cred::root()).unwrap();
    // Begins with a hole.
    let sparse = &files[5];
    truncate(&fs, sparse, 0, &Cred::root()).unwrap();
    write(&fs, sparse, None, WriteAt::Pos(5000), b"end", &Cred::root()).unwrap();
    let owners = fs.files.pages.dirty_owners();
    assert_eq!(owners.len(), usize::from(FILES));
    owners[0].write_back_all(&owners, WritebackReason::Background);
    let joint = fs.files.stats.snapshot().joint_files;
    assert_eq!(joint, u64::from(FILES) - 2);
    assert!(files.iter().all(|inode| !inode.has_dirty_data()));
    let mut expected = vec![0; 5000];
    expected.extend(b"end");
    assert_eq!(bytes_of(&fs, sparse), expected);
    truncate(&fs, sparse, 0, &Cred::root()).unwrap();
    write(&fs, sparse, None, WriteAt::End, &content(5), &Cred::root()).unwrap();
    drop(files);
    fs.sync().unwrap();
    mount::unmount(&fs).unwrap();
    check_all(dev.to_bytes());
}

#[test]
fn a_sparse_file_is_written_as_a_whole() {
    let fs = mounted(Arc::new(MemoryDevice::from_bytes(&image())));
    let root = fs.iget(Ino::ROOT).unwrap();
    let make = |name: &[u8]| namei::create(&fs, &root, name, 0o644, &Cred::root()).unwrap();
    let files = [make(b"sparse"), make(b"small")];
    // A block in each of more folios than a small file has, of fewer bytes than it may have.
    let put = |inode: &InodeRef, at: u64| {
        let bytes = [7; 1024];
        write(&fs, inode, None, WriteAt::Pos(at), &bytes, &Cred::root()).unwrap();
    };
    (0..40).for_each(|page| put(&files[0], page * 4096));
    put(&files[1], 0);
    writeback_all_files(&fs).unwrap();
    for file in &files {
        assert!(!file.has_dirty_data());
    }
    drop((root, files));
    mount::unmount(&fs).unwrap();
}

/// A file that was cut while its data was on its way: no crash may show blocks of it behind its
/// size that count as written.
#[test]
fn a_file_that_was_cut_gets_no_extent() {
    let fs = mounted(Arc::new(MemoryDevice::from_bytes(&image())));
    let root = fs.iget(Ino::ROOT).unwrap();
    let file = namei::create(&fs, &root, b"file", 0o644, &Cred::root()).unwrap();
    let put = |len: usize| {
        write(
            &fs,
            &file,
            None,
            WriteAt::Pos(0),
            &vec![7; len],
            &Cred::root(),
        )
    };
    put(2 * 1024).unwrap();
    for (size, enters) in [(BLOCK, false), (BLOCK + 1, true)] {
        let held = alloc::hold_blocks(&fs, alloc::goal_for(&fs, &file), (2, 2));
        let held = held.unwrap().unwrap();
        let run = held.run();
        file.size.store(size, Ordering::SeqCst);
        let mut h = fs.start(16).unwrap();
        let marked = held.mark(&mut h).unwrap();
        let parts = (&marked, run);
        let entered = map::link_first_extent(&fs, &mut h, &file, parts, 2 * BLOCK).unwrap();
        assert_eq!(entered, enters, "{size}");
        assert_eq!(map::has_no_extent(&file), !enters);
        if !enters {
            marked.give_back(&mut h, run).unwrap();
        }
    }
    assert_eq!(file.core.read().disk_size, BLOCK + 1);
    drop((root, file));
    mount::unmount(&fs).unwrap();
}
