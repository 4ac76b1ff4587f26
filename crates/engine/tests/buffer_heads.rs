//! The buffer-head path on real images: what a write costs, counted, and that it leaves the same
//! files.

use std::collections::BTreeMap;

use extant_engine::{BufferedPath, Cred, Node, Tuning, Volume, VolumeOptions};
use extant_testkit::Image;

const FOLIO: u64 = 2 << 20;

fn content(salt: u8, len: u64) -> Vec<u8> {
    (0..len)
        .map(|pos| u8::try_from((pos / 3 + u64::from(salt)) % 251).unwrap())
        .collect()
}

fn mount(image: &Image, options: &str, change: impl FnOnce(&mut Tuning)) -> Volume {
    let mut tuning = Tuning::default();
    tuning.buffered_path = BufferedPath::BufferHead;
    tuning.page_cache_bytes = Some(64 << 20);
    // Nothing is written, stored or committed behind a test's back.
    tuning.flushers = 0;
    change(&mut tuning);
    VolumeOptions::new()
        .write(true)
        .tuning(tuning)
        .mount_options(&format!("commit=3000,{options}"))
        .open(image.path())
        .unwrap()
}

fn create(volume: &Volume, name: &str) -> Node {
    let root = volume.root().unwrap();
    volume
        .create(&root, name.as_bytes(), 0o644, &Cred::root())
        .unwrap()
}

/// Counts that `body` adds to the counters.
fn counted(volume: &Volume, body: impl FnOnce()) -> BTreeMap<&'static str, u64> {
    let before: BTreeMap<_, _> = volume.stats().into_iter().collect();
    body();
    let after = volume.stats().into_iter();
    after
        .map(|(name, value)| (name, value.wrapping_sub(before[name])))
        .collect()
}

fn write(volume: &Volume, node: &Node, pos: u64, bytes: &[u8]) {
    let done = volume.write(node, pos, bytes, &Cred::root()).unwrap();
    assert_eq!(done, bytes.len());
}

#[test]
fn tail_t1_t2_visits_end_with_the_range() {
    for (args, n) in [("-b 1024", 2048), ("-b 4096", 512)] {
        for stop in [true, false] {
            let image = Image::of_mib(64).args(args).make().unwrap();
            let volume = mount(&image, "", |tuning| tuning.stop_at_range_end = stop);
            let node = create(&volume, "f");
            write(&volume, &node, 0, &content(1, FOLIO));
            let k = if stop { 1 } else { n };
            let small = counted(&volume, || write(&volume, &node, 0, &[1; 1024]));
            assert_eq!((small["begin_visits"], small["commit_visits"]), (k, k));
            assert_eq!(small["block_maps"], 0, "the records know where it is");
            assert_eq!(small["handles"], 0);
            let last = counted(&volume, || write(&volume, &node, FOLIO - 1, &[1]));
            let visits = (last["begin_visits"], last["commit_visits"]);
            assert_eq!(visits, (n, n), "the prefix has to be walked");
            volume.unmount().unwrap();
            drop(volume);
            image.fsck_clean().unwrap();
        }
    }
}

#[test]
fn append_a5_no_handle_and_no_inode_dirtied_into_delayed_space() {
    for dirty in [false, true] {
        let image = Image::of_mib(64).args("-b 4096").make().unwrap();
        let volume = mount(&image, "", |tuning| tuning.dirty_inode_on_append = dirty);
        let node = create(&volume, "f");
        volume.append(&node, &[1; 1000], &Cred::root()).unwrap();
        let appended = counted(&volume, || {
            for _ in 0..100 {
                volume.append(&node, &[2; 1000], &Cred::root()).unwrap();
            }
        });
        // One for each folio that an append touches, or none at all.
        let expected = if dirty { appended["buffer_begins"] } else { 0 };
        assert!(appended["buffer_begins"] >= 100);
        assert_eq!(appended["handles"], expected);
        assert_eq!(appended["inode_dirty_calls"], expected);
        // The next append goes into a block that has been written: the size on disk moves with it.
        volume.fsync(&node, false).unwrap();
        let into_written = counted(&volume, || {
            volume.append(&node, &[3; 10], &Cred::root()).unwrap();
        });
        assert_eq!(into_written["inode_dirty_calls"], 1);
        volume.unmount().unwrap();
        drop(volume);
        image.fsck_clean().unwrap();
        let volume = mount(&image, "", |_| {});
        let node = volume.lookup(&volume.root().unwrap(), b"f").unwrap();
        assert_eq!(volume.getattr(&node).unwrap().size, 101_010);
    }
}

#[test]
fn without_delayed_allocation_space_is_chosen_at_once() {
    let image = Image::of_mib(64).args("-b 1024").make().unwrap();
    let volume = mount(&image, "nodelalloc", |_| {});
    let node = create(&volume, "f");
    let bytes = content(3, 300_000);
    let wrote = counted(&volume, || write(&volume, &node, 0, &bytes));
    assert!(wrote["handles"] > 0);
    assert_eq!(wrote["alloc_blocks"], 293, "{wrote:?}");
    assert_eq!(wrote["reserved"], 0);
    volume.fsync(&node, false).unwrap();
    volume.unmount().unwrap();
    drop(volume);
    image.fsck_clean().unwrap();
    let volume = mount(&image, "", |_| {});
    let node = volume.lookup(&volume.root().unwrap(), b"f").unwrap();
    let mut back = vec![0; bytes.len()];
    volume.read(&node, 0, &mut back).unwrap();
    assert!(back == bytes);
}

#[test]
fn data_modes_order_what_they_promise_to() {
    for (options, ordered) in [
        ("data=ordered,dioread_lock", true),
        ("data=ordered,dioread_lock,nodelalloc", true),
        ("data=writeback,dioread_lock", false),
        ("data=writeback,dioread_lock,nodelalloc", false),
        ("data=journal", false),
        ("data=ordered", false),
        ("data=ordered,nodelalloc", false),
    ] {
        let image = Image::of_mib(64).args("-b 1024").junk().make().unwrap();
        let volume = mount(&image, options, |_| {});
        let node = create(&volume, "f");
        let bytes = content(5, 500_000);
        let wrote = counted(&volume, || {
            write(&volume, &node, 0, &bytes[..300_000]);
            volume.fsync(&node, false).unwrap();
            write(&volume, &node, 300_000, &bytes[300_000..]);
            // Overwritten in place: nothing new is allocated.
            write(&volume, &node, 1000, &bytes[1000..2000]);
            volume.fsync(&node, true).unwrap();
        });
        assert_eq!(wrote["ordered_bytes"] > 0, ordered, "{options}: {wrote:?}");
        if options == "data=journal" {
            assert_eq!(
                wrote["wb_bytes"], 0,
                "nothing goes home but by a checkpoint"
            );
            assert!(wrote["blocks_logged"] >= 489, "{wrote:?}");
        }
        // A short life: nothing may be lost or leaked with data that a commit still waits for.
        let doomed = create(&volume, "doomed");
        write(&volume, &doomed, 0, &bytes);
        volume.unlink(&volume.root().unwrap(), b"doomed").unwrap();
        drop(doomed);
        volume.unmount().unwrap();
        drop(volume);
        image.fsck_clean().unwrap();
        let volume = mount(&image, "", |_| {});
        let node = volume.lookup(&volume.root().unwrap(), b"f").unwrap();
        let mut back = vec![0; bytes.len()];
        volume.read(&node, 0, &mut back).unwrap();
        assert!(back == bytes, "{options}");
    }
}

/// `FS_JOURNAL_DATA_FL`.
const JOURNAL_DATA: u32 = 0x4000;

#[test]
fn a_file_changes_its_way_while_it_is_in_use() {
    let image = Image::of_mib(64).args("-b 1024").junk().make().unwrap();
    let volume = mount(&image, "", |_| {});
    let (node, other) = (create(&volume, "f"), create(&volume, "other"));
    let mut model: Vec<u8> = Vec::new();
    let mut logged = 0;
    for round in 0..24u64 {
        let bytes = content(u8::try_from(round).unwrap(), 30_000 + round * 7919);
        let pos = usize::try_from(round * 10_007 % 90_000)
            .unwrap()
            .min(model.len());
        write(&volume, &node, pos as u64, &bytes);
        model.resize(model.len().max(pos + bytes.len()), 0);
        model[pos..pos + bytes.len()].copy_from_slice(&bytes);
        match round % 6 {
            0 | 3 => {
                let flags = volume.flags(&node).unwrap() ^ JOURNAL_DATA;
                volume.set_flags(&node, flags, &Cred::root()).unwrap();
                let on = flags & JOURNAL_DATA != 0;
                let counted = counted(&volume, || {
                    write(&volume, &node, 0, &bytes[..5000]);
                    volume.fsync(&node, false).unwrap();
                });
                model[..5000].copy_from_slice(&bytes[..5000]);
                assert_eq!(counted["wb_bytes"] == 0, on, "{counted:?}");
                logged += u32::from(on);
            }
            1 => volume
                .set_buffered_path(&node, BufferedPath::Iomap)
                .unwrap(),
            2 => volume
                .set_buffered_path(&node, BufferedPath::BufferHead)
                .unwrap(),
            4 => volume.drop_caches(),
            _ => {
                // Blocks that were logged are freed, and taken by another file that is not.
                volume.fsync(&node, false).unwrap();
                let size = extant_engine::SetAttr {
                    size: Some(20_000),
                    ..extant_engine::SetAttr::default()
                };
                volume.setattr(&node, &size, &Cred::root()).unwrap();
                model.truncate(20_000);
                volume.sync().unwrap();
                write(&volume, &other, 0, &content(99, 150_000));
                volume.fsync(&other, false).unwrap();
            }
        }
        let mut back = vec![0; model.len() + 1];
        let read = volume.read(&node, 0, &mut back).unwrap();
        assert!(back[..read] == model, "round {round}");
    }
    assert!(logged > 2);
    volume.unmount().unwrap();
    drop(volume);
    image.fsck_clean().unwrap();
    let volume = mount(&image, "", |_| {});
    for (name, want) in [("f", model), ("other", content(99, 150_000))] {
        let node = volume
            .lookup(&volume.root().unwrap(), name.as_bytes())
            .unwrap();
        let mut back = vec![0; want.len() + 1];
        let read = volume.read(&node, 0, &mut back).unwrap();
        assert!(back[..read] == want, "{name}");
    }
}

/// A switch of the data path lasts for the inode in memory. Loaded anew such a file would take the
/// other path, which does not see the log, so its data stays out of that.
#[test]
fn a_file_on_another_path_than_its_own_logs_no_data() {
    let image = Image::of_mib(32).args("-b 1024").make().unwrap();
    let volume = mount(&image, "", |tuning| {
        tuning.buffered_path = BufferedPath::Iomap;
    });
    let node = create(&volume, "f");
    let flags = volume.flags(&node).unwrap() | JOURNAL_DATA;
    for flag_first in [true, false] {
        let switch = |path| volume.set_buffered_path(&node, path).unwrap();
        let set = |flags| volume.set_flags(&node, flags, &Cred::root()).unwrap();
        set(flags & !JOURNAL_DATA);
        switch(BufferedPath::Iomap);
        if flag_first {
            set(flags);
            switch(BufferedPath::BufferHead);
        } else {
            switch(BufferedPath::BufferHead);
            set(flags);
        }
        let counted = counted(&volume, || {
            write(&volume, &node, 0, &content(1, 40_000));
            volume.fsync(&node, false).unwrap();
        });
        assert_eq!(counted["wb_bytes"], 40 << 10);
    }
    volume.unmount().unwrap();
    drop(volume);
    image.fsck_clean().unwrap();
}
