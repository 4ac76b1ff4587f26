//! Which data path a file takes, and what the path does: rows 13, 16, 17, 23 to 25, 27.

use extant_engine::{BufferedPath, Cred, Error, FallocateMode};
use extant_testkit::{Image, content};
use extant_units::index;

use crate::rig::{Rig, image};

/// `FS_JOURNAL_DATA_FL`
const JOURNAL_DATA: u32 = 0x4000;
/// `FS_EXTENT_FL`
const EXTENTS: u32 = 0x80000;

#[test]
fn iomap_13_the_path_is_the_files() {
    for (path, options) in [
        (BufferedPath::Iomap, ""),
        (BufferedPath::BufferHead, "nobuffered_iomap"),
    ] {
        let rig = Rig::tuned(&image(32, "-b 4096"), options, |_| ());
        let node = rig.create("f");
        assert_eq!(rig.volume.buffered_path(&node).unwrap(), path);
        let counted = rig.counted(|| rig.write(&node, 0, &[1; 10_000]));
        let iomap = path == BufferedPath::Iomap;
        assert_eq!(counted["begin_calls"] > 0, iomap);
        assert_eq!(counted["buffer_begins"] > 0, !iomap);
        rig.volume.fsync(&node, false).unwrap();
        rig.check(true);
        rig.end();
    }
}

#[test]
fn iomap_16_a_commit_waits_for_no_data() {
    for options in ["data=ordered", "data=writeback"] {
        let rig = Rig::tuned(&image(32, "-b 4096"), options, |_| ());
        let dirty = rig.create("dirty");
        rig.write(&dirty, 0, &[1; 3 << 20]);
        let other = rig.create("other");
        let counted = rig.counted(|| rig.volume.fsync(&other, false).unwrap());
        assert!(counted["commits"] > 0);
        assert_eq!(counted["wb_bytes"], 0, "the data of the other file stays");
        assert_eq!(counted["dirty_bytes"], 0);
        rig.volume.fsync(&dirty, false).unwrap();
        assert_eq!(rig.counters()["ordered_bytes"], 0);
        rig.end();
    }
}

#[test]
fn iomap_17_sizes_and_extents_show_what_has_arrived() {
    let rig = Rig::new("-b 1024");
    let node = rig.create("log");
    let data = vec![7; 5000];
    rig.write(&node, 0, &data);
    // Everything but the data is durable: the file is empty.
    rig.volume.fsync(&rig.create("other"), false).unwrap();
    assert_eq!(rig.content_after_crash("log"), b"");
    let counted = rig.counted(|| rig.volume.fsync(&node, false).unwrap());
    assert_eq!((counted["map_calls"], counted["ioends"]), (1, 1));
    assert_eq!(counted["extents_converted"], 1);
    assert!(rig.content_after_crash("log") == data);
    rig.end();
}

/// The longest allocation: one call places what many writes and folios left.
#[test]
fn iomap_17_one_allocation_places_all_that_is_delayed() {
    let rig = Rig::new("-b 4096");
    let node = rig.create("f");
    for number in 0..64 {
        rig.write(&node, number << 16, &[1; 1 << 16]);
    }
    let counted = rig.counted(|| rig.volume.sync().unwrap());
    assert_eq!(counted["extents_inserted"], 1);
    assert_eq!(counted["map_calls"], 1);
    assert_eq!(rig.volume.map(&node, 0).count(), 1);
    rig.end();
}

/// The flag cannot be given to a file (its data would have to go into the log from then on), and
/// one that has it already, from Linux, is written like any other.
#[test]
fn iomap_23_the_journal_flag_of_a_file_changes_nothing() {
    let made = Image::of_mib(32).args("-b 4096").make().unwrap();
    made.debugfs_write("write /dev/null flagged").unwrap();
    let flags = JOURNAL_DATA | EXTENTS;
    made.debugfs_write(&format!("set_inode_field flagged flags {flags:#x}"))
        .unwrap();
    let rig = Rig::tuned(&std::fs::read(made.path()).unwrap(), "", |_| ());
    let plain = rig.create("plain");
    let asked = rig.volume.flags(&plain).unwrap() | JOURNAL_DATA;
    rig.volume.set_flags(&plain, asked, &Cred::root()).unwrap();
    let node = rig.find("flagged");
    assert_eq!(rig.volume.flags(&node).unwrap(), flags);
    for node in [plain, node] {
        let path = rig.volume.buffered_path(&node).unwrap();
        assert_eq!(path, BufferedPath::Iomap);
        let counted = rig.counted(|| {
            rig.write(&node, 0, &vec![2; 1 << 20]);
            rig.volume.fsync(&node, false).unwrap();
        });
        assert_eq!(counted["wb_bytes"], 1 << 20);
        assert!(counted["blocks_logged"] < 20, "no data in the log");
    }
    assert_eq!(rig.volume.flags(&rig.find("flagged")).unwrap(), flags);
    rig.end();
}

/// Which files keep to the buffer-head path whatever the mount asks for: those that are not in
/// plain blocks behind an extent tree.
#[test]
fn iomap_24_a_file_with_an_older_block_map_takes_the_other_path() {
    let old = Image::of_mib(32)
        .args("-b 1024 -O ^extents,^64bit")
        .make()
        .unwrap();
    let host = old.path().with_extension("data");
    let data: Vec<u8> = (0..100_000u32).map(|at| at.to_le_bytes()[0]).collect();
    std::fs::write(&host, &data).unwrap();
    old.debugfs_write(&format!("write {} old", host.display()))
        .unwrap();
    std::fs::remove_file(&host).unwrap();
    let bytes = std::fs::read(old.path()).unwrap();
    let rig = Rig::tuned(&bytes, "buffered_iomap", |_| ());
    let node = rig.find("old");
    let path = rig.volume.buffered_path(&node).unwrap();
    assert_eq!(path, BufferedPath::BufferHead);
    assert!(rig.content(&node) == data);
    rig.end();
}

/// Data that goes through the journal is the other path's, whatever the options say.
#[test]
fn iomap_24_journalled_data_takes_the_other_path() {
    let bytes = image(32, "-b 4096");
    let rig = Rig::tuned(&bytes, "data=journal,buffered_iomap", |_| ());
    let node = rig.create("f");
    let path = rig.volume.buffered_path(&node).unwrap();
    assert_eq!(path, BufferedPath::BufferHead);
    let counted = rig.counted(|| {
        rig.write(&node, 0, &vec![1; 100_000]);
        rig.volume.fsync(&node, false).unwrap();
    });
    assert_eq!((counted["begin_calls"], counted["map_calls"]), (0, 0));
    assert!(
        counted["blocks_logged"] >= 25,
        "data in the log: {counted:?}"
    );
    let refused = rig.volume.set_buffered_path(&node, BufferedPath::Iomap);
    assert!(
        matches!(refused, Err(Error::NotSupported(_))),
        "{refused:?}"
    );
    rig.end();
}

/// The series excludes journalled files from large folios. Here they have them: what is logged of a
/// folio goes into as many transactions as it needs.
#[test]
fn large_09_journalled_files_have_large_folios_too() {
    for args in ["-b 4096", "-b 1024"] {
        let rig = Rig::tuned(&image(32, args), "data=journal", |_| ());
        let node = rig.create("f");
        let bytes = content::fill(9, 0, 3 << 20);
        let counted = rig.counted(|| {
            rig.write(&node, 0, &bytes);
            rig.volume.fsync(&node, false).unwrap();
        });
        let orders = ["folio_order_9", "folio_order_8", "folio_order_0"].map(|name| counted[name]);
        assert_eq!(orders, [1, 1, 0], "{args}: {counted:?}");
        assert_eq!(counted["credit_overflow"], 0, "{args}: {counted:?}");
        assert!(rig.content_after_crash("f") == bytes, "{args}");
        rig.end();
    }
}

#[test]
fn iomap_25_folios_are_as_large_as_writes_and_reads_allow() {
    let rig = Rig::new("-b 1024");
    let node = rig.create("f");
    let counted = rig.counted(|| rig.write(&node, 0, &[1; 6 << 20]));
    assert_eq!(counted["folio_order_9"], 3);
    assert_eq!(counted["folio_order_0"], 0);
    let counted = rig.counted(|| rig.write(&node, 6 << 20, &[1; 100_000]));
    // 24 pages and a bit.
    assert_eq!((counted["folio_order_4"], counted["folio_order_3"]), (1, 1));
    rig.volume.sync().unwrap();
    rig.volume.drop_caches();
    // Front to back in small steps: windows grow, and folios with them.
    let counted = rig.counted(|| {
        for pos in (0..6 << 20).step_by(4096) {
            assert_eq!(rig.volume.read(&node, pos, &mut [0; 4096]).unwrap(), 4096);
        }
    });
    let large: u64 = (4..=9).map(|n| counted[&*format!("folio_order_{n}")]).sum();
    assert!(large >= 4, "{counted:?}");
    assert!(counted["fill_reads"] < 40);
    rig.end();

    // A cap holds for everybody.
    let rig = Rig::tuned(&image(32, "-b 4096"), "", |tuning| {
        tuning.max_folio_order = 2
    });
    let node = rig.create("f");
    let counted = rig.counted(|| rig.write(&node, 0, &[1; 1 << 20]));
    assert_eq!(counted["folio_order_2"], 64);
    rig.end();
}

#[test]
fn iomap_27_the_mount_options_choose() {
    let bytes = image(32, "-b 4096");
    for (options, asked, path) in [
        ("", BufferedPath::Iomap, BufferedPath::Iomap),
        (
            "buffered_iomap",
            BufferedPath::BufferHead,
            BufferedPath::Iomap,
        ),
        (
            "nobuffered_iomap",
            BufferedPath::Iomap,
            BufferedPath::BufferHead,
        ),
        (
            "nobuffered_iomap,buffered_iomap",
            BufferedPath::Iomap,
            BufferedPath::Iomap,
        ),
        ("", BufferedPath::BufferHead, BufferedPath::BufferHead),
    ] {
        let rig = Rig::tuned(&bytes, options, |tuning| tuning.buffered_path = asked);
        let node = rig.create("f");
        assert_eq!(rig.volume.buffered_path(&node).unwrap(), path, "{options}");
        rig.write(&node, 100, &[1; 50_000]);
        rig.end();
    }
}

/// A folio of 2 MiB in blocks of 1 KiB, each of which lies by itself on the device: its handles get
/// credits for extents as they go, and none takes more than it was given.
#[test]
fn large_05_06_a_folio_of_fragments_stays_within_its_credits() {
    const FOLIO: usize = 2 << 20;
    for options in [
        "nobuffered_iomap",
        "nobuffered_iomap,dioread_lock",
        "nobuffered_iomap,nodelalloc",
        "nobuffered_iomap,data=journal",
    ] {
        let rig = Rig::tuned(&image(32, "-b 1024"), options, |_| ());
        let filler = rig.create("filler");
        let free = rig.volume.statfs().unwrap().blocks_free;
        rig.write(&filler, 0, &vec![1; index((free - 2600) << 10)]);
        rig.volume.sync().unwrap();
        for pos in (0..16 << 20).step_by(2048) {
            let punch = FallocateMode::PunchHole;
            rig.volume
                .fallocate(&filler, punch, pos, 1024, &Cred::root())
                .unwrap();
        }
        // Larger than what else is free in one piece.
        rig.write(&rig.create("rest"), 0, &vec![2; 2400 << 10]);
        rig.volume.sync().unwrap();
        let node = rig.create("f");
        let bytes = content::fill(3, 0, FOLIO);
        let counted = rig.counted(|| {
            rig.write(&node, 0, &bytes);
            rig.volume.fsync(&node, false).unwrap();
        });
        assert_eq!(counted["credit_overflow"], 0, "{options}: {counted:?}");
        let extents = rig.volume.map(&node, 0).count();
        assert!(extents > 1500, "{options}: {extents}");
        // With data in the log a folio's handles end at the log's limit.
        if !options.contains("data=journal") {
            assert_eq!(counted["folio_order_9"], 1, "{options}: {counted:?}");
        }
        rig.volume.drop_caches();
        assert!(rig.content(&node) == bytes, "{options}");
        rig.end();
    }
}
