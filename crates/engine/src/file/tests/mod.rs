//! Claims about the data path, as counters of a mounted image.

mod borders;
mod crash;
mod gates;
mod joint;
mod parallel;
mod released_fronts;
mod rows;
mod sealed;

use std::sync::Arc;

use extant_blockdev::MemoryDevice;
use extant_testkit::Image;
use extant_units::Lblk;

use crate::config::MountOptions;
use crate::config::Tuning;
use crate::file::range_lock::{lock_range, round_out_to_blocks};
use crate::file::write::try_write_folios;
use crate::file::{ReadMode, WriteAt, fsync, read, write};
use crate::map;
use crate::mount;
use crate::namei::{self, ParentAndName};
use crate::state::inode::InodeRef;
use crate::state::map::MapState;
use crate::types::Cred;
use crate::types::FileKind;
use crate::volume::Fs;

fn mounted(options: &str) -> Arc<Fs> {
    mounted_with("-b 4096", options)
}

fn mounted_with(mkfs: &str, options: &str) -> Arc<Fs> {
    mounted_of(32, mkfs, options)
}

/// A volume of so many MiB.
fn mounted_of(mib: u64, mkfs: &str, options: &str) -> Arc<Fs> {
    let image = Image::of_mib(mib).args(mkfs).make().unwrap();
    let bytes = std::fs::read(image.path()).unwrap();
    let options = MountOptions::parse(&format!("commit=3000,{options}")).unwrap();
    let tuning = Tuning {
        page_cache_bytes: Some(32 << 20),
        // Nothing is written behind a test's back.
        flushers: 0,
        ..Tuning::default()
    };
    mount::mount(Arc::new(MemoryDevice::from_bytes(&bytes)), options, tuning).unwrap()
}

fn file(fs: &Arc<Fs>, name: &[u8]) -> InodeRef {
    let root = fs.iget(extant_units::Ino::ROOT).unwrap();
    namei::create(fs, &root, name, 0o644, &Cred::root()).unwrap()
}

fn put(fs: &Arc<Fs>, inode: &InodeRef, pos: u64, data: &[u8]) {
    let (_, done) = write(fs, inode, None, WriteAt::Pos(pos), data, &Cred::root()).unwrap();
    assert_eq!(done, data.len());
}

fn disk_size(inode: &InodeRef) -> u64 {
    inode.core.read().disk_size
}

#[test]
fn iomap_15_appends_start_no_handle() {
    let fs = mounted("");
    let inode = file(&fs, b"log");
    // The first write looks whether there are privileges to take away.
    put(&fs, &inode, 0, b"x");
    let before = fs.journal.stats().handles;
    for _ in 0..3000 {
        write(&fs, &inode, None, WriteAt::End, &[7; 1000], &Cred::root()).unwrap();
    }
    assert_eq!(fs.journal.stats().handles, before);
    assert_eq!(inode.size(), 3_000_001);
    assert_eq!(disk_size(&inode), 0, "the size on disk waits for the data");
    let begins = fs.files.stats.snapshot().begins;
    // An append that goes over the end of a block asks for both blocks; all others ask for none.
    assert!(begins <= 2 * 740, "{begins} mappings for 733 blocks");
    fsync(&fs, &inode, None, false).unwrap();
    assert_eq!(disk_size(&inode), 3_000_001);
    assert_eq!(map::reserved_blocks(&inode), 0);
    assert_eq!(fs.alloc.counts.reserved_blocks().get(), 0);
    assert!(!inode.has_dirty_data());
    mount::unmount(&fs).unwrap();
}

/// The case of a database's log: each record is made durable before the next.
#[test]
fn an_append_after_an_fsync_is_as_short_as_one_before() {
    for block in ["-b 1024", "-b 4096"] {
        let fs = mounted_with(block, "");
        let inode = file(&fs, b"log");
        put(&fs, &inode, 0, &[1; 100]);
        fsync(&fs, &inode, None, true).unwrap();
        let before = fs.files.stats.snapshot();
        for i in 1..9 {
            // Between two ticks of the clock.
            let put_at_once = |_| {
                crate::inode::touch_mtime(&fs, &inode);
                try_write_folios(&fs, &inode, None, WriteAt::End, &[2_u8; 100][..])
            };
            let at = (0..100).find_map(put_at_once);
            assert_eq!(at, Some(i * 100), "{block}");
            fsync(&fs, &inode, None, true).unwrap();
        }
        let after = fs.files.stats.snapshot();
        assert_eq!(after.begins, before.begins, "{block}");
        assert_eq!(after.overwrites - before.overwrites, 8, "{block}");
        assert_eq!(disk_size(&inode), 900);
        mount::unmount(&fs).unwrap();
    }
}

#[test]
fn a_cached_overwrite_takes_neither_lock_nor_handle_nor_map() {
    let fs = mounted("");
    let inode = file(&fs, b"hot");
    put(&fs, &inode, 0, &vec![1; 3 << 20]);
    fsync(&fs, &inode, None, false).unwrap();
    let before = (
        fs.files.stats.snapshot().begins,
        fs.journal.stats().handles,
        fs.stats.lock_waits.get(),
    );
    {
        // Would keep every writer out that asks for the lock alone.
        let _unchecked = extant_lock_order::exempt();
        let _held = inode.lock_shared();
        let _stored = inode.core.write();
        for pos in [0, 700, (2 << 20) - 1024, (3 << 20) - 1024] {
            let at = WriteAt::UpperWriteback(pos);
            let (_, done) = write(&fs, &inode, None, at, &[2; 1024], &Cred::root()).unwrap();
            assert_eq!(done, 1024);
        }
    }
    let after = (
        fs.files.stats.snapshot().begins,
        fs.journal.stats().handles,
        fs.stats.lock_waits.get(),
    );
    assert_eq!(before, after);
    // Across two folios: the range makes it one step.
    let waits = std::thread::scope(|scope| {
        let held = lock_range(
            &fs,
            &inode,
            round_out_to_blocks(fs.layout.block_size, 2 << 20, 3 << 20),
        );
        let writer = scope.spawn(|| put(&fs, &inode, (2 << 20) - 10, &[3; 20]));
        while fs.stats.range_lock_waits.get() == 0 {
            std::thread::yield_now();
        }
        drop(held.unwrap());
        writer.join().unwrap();
        fs.stats.range_lock_waits.get()
    });
    assert_eq!((waits, fs.stats.lock_waits.get()), (1, before.2));
    mount::unmount(&fs).unwrap();
}

#[test]
fn a_cached_read_waits_for_no_writer() {
    let fs = mounted("noatime");
    let inode = file(&fs, b"read");
    put(&fs, &inode, 0, &vec![1; 1 << 20]);
    let mut buf = [0; 5000];
    let _unchecked = extant_lock_order::exempt();
    let _writing = inode.lock_exclusively();
    let _stored = inode.core.write();
    let done = read(&fs, &inode, None, ReadMode::Buffered, 4000, &mut buf).unwrap();
    assert_eq!((done, buf), (5000, [1; 5000]));
}

#[test]
fn flags_and_privileges_reach_the_shortest_way_at_once() {
    use crate::attr::{get_flags, set_flags, setattr};
    let fs = mounted("");
    let inode = file(&fs, b"guarded");
    let owner = Cred::root();
    put(&fs, &inode, 0, &[1; 4096]);
    put(&fs, &inode, 0, &[2; 4096]);
    let before = inode.core.read().mtime;
    let old = crate::types::Timestamp { secs: 7, nanos: 0 };
    let changes = crate::types::SetAttr {
        mtime: Some(crate::types::SetTime::At(old)),
        ..Default::default()
    };
    setattr(&fs, &inode, &changes, &owner).unwrap();
    put(&fs, &inode, 0, &[3; 10]);
    assert!(inode.core.read().mtime >= before, "noted again");
    let immutable = extant_disk::inode::InodeFlags::IMMUTABLE.bits();
    set_flags(&fs, &inode, get_flags(&inode) | immutable, &owner).unwrap();
    let denied = write(&fs, &inode, None, WriteAt::Pos(0), b"x", &owner).unwrap_err();
    assert_eq!(denied.errno(), crate::Error::NotPermitted.errno());
}

#[test]
fn iomap_17_writeback_maps_long_runs_under_few_handles() {
    let fs = mounted("");
    let inode = file(&fs, b"stream");
    for i in 0..8 {
        put(&fs, &inode, i << 20, &vec![1; 1 << 20]);
    }
    let (before, handles) = (fs.files.stats.snapshot(), fs.journal.stats().handles);
    fsync(&fs, &inode, None, true).unwrap();
    let after = fs.files.stats.snapshot();
    let runs = after.ioends - before.ioends;
    assert!(runs <= 4, "{runs} ioends for 8 MiB");
    assert!(after.map_calls - before.map_calls <= runs + 1);
    let handles = fs.journal.stats().handles - handles;
    assert!(handles <= 2 * runs + 2, "{handles} handles for {runs} runs");
    assert_eq!(fs.journal.stats().credit_overflows, 0);
    mount::unmount(&fs).unwrap();
}

#[test]
fn an_overwrite_of_written_blocks_changes_no_metadata() {
    let fs = mounted("");
    let inode = file(&fs, b"db");
    put(&fs, &inode, 0, &vec![1; 1 << 20]);
    fsync(&fs, &inode, None, false).unwrap();
    let before = fs.journal.stats().handles;
    put(&fs, &inode, 4096, &vec![2; 8192]);
    fsync(&fs, &inode, None, true).unwrap();
    assert_eq!(fs.journal.stats().handles, before);
    mount::unmount(&fs).unwrap();
}

#[test]
fn without_delayed_allocation_space_is_unwritten_until_the_data_is_there() {
    let fs = mounted("nodelalloc");
    let inode = file(&fs, b"now");
    put(&fs, &inode, 0, &[1; 10_000]);
    let map = map::lookup(&fs, &inode, Lblk::ZERO, 10).unwrap();
    assert!(matches!(map.state, MapState::Unwritten(_)));
    assert_eq!(disk_size(&inode), 0);
    let mut buf = vec![0; 10_000];
    read(&fs, &inode, None, ReadMode::Buffered, 0, &mut buf).unwrap();
    assert_eq!(buf, [1; 10_000]);
    fsync(&fs, &inode, None, false).unwrap();
    let map = map::lookup(&fs, &inode, Lblk::ZERO, 10).unwrap();
    assert!(matches!(map.state, MapState::Written(_)));
    assert_eq!(disk_size(&inode), 10_000);
    mount::unmount(&fs).unwrap();
}

#[test]
fn a_sync_mount_leaves_nothing_dirty() {
    let fs = mounted("sync");
    let inode = file(&fs, b"safe");
    put(&fs, &inode, 0, &[1; 5000]);
    assert!(!inode.has_dirty_data());
    assert_eq!(disk_size(&inode), 5000);
    let tid = inode.last_change(false).unwrap();
    assert!(fs.journal.is_durable(tid));
    mount::unmount(&fs).unwrap();
}

#[test]
fn a_rename_over_another_file_waits_for_the_data() {
    let fs = mounted("");
    let root = fs.iget(extant_units::Ino::ROOT).unwrap();
    let old = file(&fs, b"config");
    put(&fs, &old, 0, b"old");
    let new = file(&fs, b"config.new");
    put(&fs, &new, 0, b"newer");
    let flags = crate::RenameFlags::default();
    let names = [b"config.new".as_slice(), b"config"];
    let [from, to] = names.map(|name| ParentAndName::new(&root, name));
    namei::rename(&fs, from, to, flags, &Cred::root()).unwrap();
    assert!(!new.has_dirty_data());
    assert_eq!(disk_size(&new), 5);
    mount::unmount(&fs).unwrap();
}

#[test]
fn only_files_hold_data() {
    let fs = mounted("");
    let root = fs.iget(extant_units::Ino::ROOT).unwrap();
    assert_eq!(root.kind, FileKind::Directory);
    let denied = read(&fs, &root, None, ReadMode::Buffered, 0, &mut [0; 10]).unwrap_err();
    assert!(matches!(denied, crate::Error::IsDir));
    let denied = write(&fs, &root, None, WriteAt::End, b"x", &Cred::root()).unwrap_err();
    assert!(matches!(denied, crate::Error::IsDir));
    fsync(&fs, &root, None, false).unwrap();
    mount::unmount(&fs).unwrap();
}

/// A front end's reads leave no folios behind, and see what is dirty as well as what is stored.
#[test]
fn reads_past_the_cache_see_everything_and_keep_nothing() {
    let fs = mounted("");
    let inode = file(&fs, b"a");
    let cred = Cred::root();
    let bytes: Vec<u8> = (0..3 << 16)
        .map(|at: u32| at.to_le_bytes()[1] | 1)
        .collect();
    write(&fs, &inode, None, WriteAt::Pos(5000), &bytes, &cred).unwrap();
    fsync(&fs, &inode, None, false).unwrap();
    crate::file::drop_data_for_eviction(&fs, &inode);
    write(&fs, &inode, None, WriteAt::Pos(40_000), &[0; 100], &cred).unwrap();
    let mut expected = vec![0; 5000];
    expected.extend(&bytes);
    expected[40_000..40_100].fill(0);
    let cached = fs.files.pages.stats().used_bytes;
    let mut seen = vec![9; expected.len() + 10];
    let read = read(&fs, &inode, None, ReadMode::Uncached, 0, &mut seen).unwrap();
    assert!(seen[..read] == expected);
    assert_eq!(fs.files.pages.stats().used_bytes, cached);
    assert!(fs.files.stats.uncached_reads.get() >= 2);
}

#[test]
fn an_empty_write_has_the_position_that_was_asked_for() {
    let fs = mounted("");
    let inode = file(&fs, b"a");
    put(&fs, &inode, 0, &[7; 5000]);
    let write_nothing = |at| write(&fs, &inode, None, at, &[], &Cred::root()).unwrap();
    assert_eq!(write_nothing(WriteAt::Pos(100)), (100, 0));
    assert_eq!(write_nothing(WriteAt::Pos(9000)), (9000, 0));
    assert_eq!(write_nothing(WriteAt::End), (5000, 0));
    assert_eq!(inode.size(), 5000);
}

/// The space that is promised to a file's dirty data is free again once the file is gone.
#[test]
fn an_eviction_gives_back_what_is_reserved() {
    let fs = mounted("");
    let inode = file(&fs, b"a");
    put(&fs, &inode, 0, &[7; 50_000]);
    assert!(fs.alloc.counts.reserved_blocks().get() > 0);
    crate::file::drop_data_for_eviction(&fs, &inode);
    assert_eq!(map::reserved_blocks(&inode), 0);
    assert_eq!(fs.alloc.counts.reserved_blocks().get(), 0);
}
