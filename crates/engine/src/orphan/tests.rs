#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use extant_blockdev::MemoryDevice;
use extant_testkit::{Fault, FaultyDevice, Image, Need, Request, RequestKind, Rng, Subject, need};

use super::*;
use crate::file::{self, WriteAt};
use crate::namei;
use crate::state::inode::InodeRef;
use crate::test_support::test_mount::TestFs;
use crate::types::Cred;
use crate::types::XattrMode;
use crate::types::error::Error;
use crate::xattr;

mod number_reuse;

const CONFIGURATIONS: [&str; 3] = [
    "-b 4096 -O orphan_file",
    "-b 1024 -O ^orphan_file",
    "-b 1024 -I 128 -O orphan_file,^metadata_csum",
];

/// A mount of a copy of `image` in memory, and the device.
fn in_memory(image: &Image, options: &str) -> (TestFs, Arc<MemoryDevice>) {
    let bytes = std::fs::read(image.path()).unwrap();
    let dev = Arc::new(MemoryDevice::from_bytes(&bytes));
    (TestFs::on(dev.clone(), options).unwrap(), dev)
}

/// The device as it is, as if the power failed now.
fn snapshot(dev: &MemoryDevice) -> Image {
    Image::of_bytes(&dev.to_bytes()).unwrap()
}

/// Files with content and attributes, without a name, referenced.
fn nameless(fs: &TestFs, count: usize) -> Vec<InodeRef> {
    (0..count)
        .map(|i| {
            let name = format!("gone{i}");
            let file = fs.create(&name);
            let data = vec![7; 3000 * (i % 5)];
            file::write(fs, &file, None, WriteAt::Pos(0), &data, &Cred::root()).unwrap();
            let value = vec![1; 400];
            xattr::set(
                fs,
                &file,
                b"user.a",
                &value,
                XattrMode::Either,
                &Cred::root(),
            )
            .unwrap();
            fs.unlink(&name);
            file
        })
        .collect()
}

/// Free blocks and inodes, after everything that waits is done.
fn free(fs: &TestFs) -> (u64, u64) {
    fs.reap_all();
    fs.journal.force_commit().unwrap();
    let counts = &fs.alloc.counts;
    (counts.free_blocks().get(), counts.free_inodes())
}

#[test]
fn a_crash_leaves_orphans_that_everyone_finishes() {
    for args in CONFIGURATIONS {
        let image = Image::of_mib(16).args(args).make().unwrap();
        let (fs, dev) = in_memory(&image, "");
        let before = free(&fs);
        let files = nameless(&fs, 12);
        let dir = fs.mkdir("d");
        namei::rmdir(&fs, &fs.root(), b"d").unwrap();
        fs.sync().unwrap();
        let crashed = snapshot(&dev);

        let again = TestFs::mount(crashed.path(), "");
        assert_eq!(again.stats.orphans_processed.get(), 13, "{args}");
        assert_eq!(free(&again), before, "{args}");
        again.unmount();
        crashed.fsck_clean().unwrap();

        snapshot(&dev).fsck_replay().unwrap();
        if need(&[Need::Loop]) {
            let crashed = snapshot(&dev);
            let mount = Subject::Ext4.mount(crashed.path(), "").unwrap();
            mount.unmount().unwrap();
            crashed.fsck_clean().unwrap();
        }

        drop((files, dir));
        assert_eq!(free(&fs), before, "{args}: without the crash");
        fs.unmount();
        snapshot(&dev).fsck_clean().unwrap();
    }
}

/// A cut records the file as an orphan until its blocks are freed. A file without a name is one
/// before and after.
#[test]
fn a_nameless_file_that_is_cut_stays_an_orphan() {
    for args in CONFIGURATIONS {
        let image = Image::of_mib(16).args(args).make().unwrap();
        let (fs, dev) = in_memory(&image, "");
        let before = free(&fs);
        let files = nameless(&fs, 5);
        fs.sync().unwrap();
        for (file, size) in files.iter().zip([0, 0, 5000, 100, 20_000]) {
            file::truncate(&fs, file, size, &Cred::root()).unwrap();
        }
        fs.sync().unwrap();
        let crashed = snapshot(&dev);
        let again = TestFs::mount(crashed.path(), "");
        assert_eq!(again.stats.orphans_processed.get(), 5, "{args}");
        assert_eq!(free(&again), before, "{args}");
        again.unmount();
        crashed.fsck_clean().unwrap();
        drop(files);
        assert_eq!(free(&fs), before, "{args}: without the crash");
        fs.unmount();
        snapshot(&dev).fsck_clean().unwrap();
    }
}

#[test]
fn unmount_deletes_what_is_still_referenced() {
    for args in CONFIGURATIONS {
        let image = Image::of_mib(16).args(args).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let files = nameless(&fs, 5);
        fs.unmount();
        image.fsck_clean().unwrap();
        assert!(
            !image
                .header("Filesystem features")
                .unwrap()
                .contains("orphan_present")
        );
        drop(files);
    }
}

#[test]
fn an_interrupted_cut_is_finished() {
    for args in CONFIGURATIONS {
        let image = Image::of_mib(16).args(args).make().unwrap();
        let (fs, dev) = in_memory(&image, "");
        let cred = Cred::root();
        let names: Vec<_> = (0..6).map(|i| format!("f{i}")).collect();
        for name in &names {
            let file = fs.create(name);
            file::write(&fs, &file, None, WriteAt::Pos(0), &[9; 20_000], &cred).unwrap();
        }
        fs.sync().unwrap();
        let full = fs.find("f0").core.read().sectors;
        // The first half of a cut: size and record, no blocks yet.
        for name in &names {
            let file = fs.find(name);
            let mut h = fs.start(credits::ORPHAN + credits::INODE_UPDATE).unwrap();
            add(&fs, &mut h, &file).unwrap();
            file.update(&fs, &mut h, |core| core.disk_size = 5000)
                .unwrap();
        }
        fs.journal.force_commit().unwrap();
        let crashed = snapshot(&dev);
        let again = TestFs::mount(crashed.path(), "");
        assert_eq!(again.stats.orphans_processed.get(), 6);
        for name in &names {
            let file = again.find(name);
            assert!(file.core.read().sectors < full);
            assert!(!is_orphan(&file));
            // What lay behind the new end does not come back.
            file::truncate(&again, &file, 20_000, &cred).unwrap();
            let mut buf = vec![1; 20_000];
            let open = file::open(&again, &file);
            let read = file::read(
                &again,
                &file,
                Some(&open),
                file::ReadMode::Buffered,
                0,
                &mut buf,
            )
            .unwrap();
            assert_eq!(read, 20_000);
            assert!(buf[..5000].iter().all(|b| *b == 9));
            assert!(buf[5000..].iter().all(|b| *b == 0));
        }
        again.unmount();
        crashed.fsck_clean().unwrap();
        snapshot(&dev).fsck_replay().unwrap();
    }
}

#[test]
fn linux_leaves_orphans_that_we_finish() {
    if !need(&[Need::Loop]) {
        return;
    }
    for args in CONFIGURATIONS {
        let image = Image::of_mib(16).args(args).make().unwrap();
        let mount = Subject::Ext4.mount(image.path(), "").unwrap();
        let open: Vec<_> = (0..9)
            .map(|i| {
                let path = mount.join(format!("gone{i}"));
                let file = File::create_new(&path).unwrap();
                file.write_all_at(&vec![3; i * 2000], 0).unwrap();
                std::fs::remove_file(&path).unwrap();
                file
            })
            .collect();
        std::fs::write(mount.join("stays"), "here").unwrap();
        rustix::fs::syncfs(File::open(mount.dir()).unwrap()).unwrap();
        let copy = image.copy().unwrap();
        drop(open);
        mount.unmount().unwrap();

        let fs = TestFs::mount(copy.path(), "");
        assert_eq!(fs.stats.orphans_processed.get(), 9, "{args}");
        assert_eq!(fs.find("stays").size(), 4);
        fs.unmount();
        copy.fsck_clean().unwrap();
    }
}

#[test]
fn a_full_orphan_file_spills_into_the_list() {
    let maker = Image::of_mib(32).args("-b 1024 -N 4096 -O orphan_file -E orphan_file_size=2k");
    let image = maker.make().unwrap();
    let (fs, dev) = in_memory(&image, "");
    let before = free(&fs);
    let root = fs.root();
    let mut files: Vec<_> = (0..700)
        .map(|_| namei::tmpfile(&fs, &root, 0o600, &Cred::root()).unwrap())
        .collect();
    let slots = fs.orphans.file.read().as_ref().unwrap().slots_in_all();
    assert!(slots < 700, "{slots}");
    assert_eq!(fs.stats.orphans_listed.get(), 700 - slots as u64);
    assert_eq!(fs.orphans.list.lock().len(), 700 - slots);
    fs.journal.force_commit().unwrap();
    let crashed = snapshot(&dev);
    let again = TestFs::mount(crashed.path(), "");
    assert_eq!(again.stats.orphans_processed.get(), 700);
    assert_eq!(free(&again), before);
    again.unmount();
    crashed.fsck_clean().unwrap();
    snapshot(&dev).fsck_replay().unwrap();
    // In any order, both kinds of record empty again.
    let mut rng = Rng::new(3);
    while !files.is_empty() {
        files.swap_remove(rng.index(files.len()));
        if rng.chance(5) {
            fs.reap_all();
        }
    }
    assert_eq!(free(&fs), before);
    assert_eq!(fs.orphans.list.lock().len(), 0);
    assert!(fs.orphans.file.read().as_ref().unwrap().is_empty());
    fs.unmount();
    snapshot(&dev).fsck_clean().unwrap();
}

#[test]
fn the_list_survives_any_order_of_removal() {
    let image = Image::of_mib(16).args("-O ^orphan_file").make().unwrap();
    let (fs, dev) = in_memory(&image, "");
    let mut rng = Rng::new(11);
    let mut files = Vec::new();
    for step in 0..120 {
        if files.is_empty() || rng.chance(55) {
            files.extend(nameless(&fs, 1));
        } else {
            files.swap_remove(rng.index(files.len()));
            fs.reap_all();
        }
        assert_eq!(fs.orphans.list.lock().len(), files.len());
        if step % 20 == 19 {
            fs.journal.force_commit().unwrap();
            let crashed = snapshot(&dev);
            let again = TestFs::mount(crashed.path(), "");
            assert_eq!(again.stats.orphans_processed.get(), files.len() as u64);
            again.unmount();
            crashed.fsck_clean().unwrap();
        }
    }
    fs.unmount();
    snapshot(&dev).fsck_clean().unwrap();
}

#[test]
fn many_threads_lose_nothing() {
    for args in ["-b 1024 -O orphan_file", "-b 1024 -O ^orphan_file"] {
        let image = Image::of_mib(32).args(args).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let before = free(&fs);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let fs = &fs;
                scope.spawn(move || {
                    let dir = fs.mkdir(&format!("d{thread}"));
                    let mut rng = Rng::new(thread);
                    let mut held = Vec::new();
                    for i in 0..60 {
                        let name = format!("f{i}");
                        let file =
                            namei::create(fs, &dir, name.as_bytes(), 0o600, &Cred::root()).unwrap();
                        namei::unlink(fs, &dir, name.as_bytes()).unwrap();
                        held.push(file);
                        if rng.chance(60) {
                            held.swap_remove(rng.index(held.len()));
                        }
                    }
                });
            }
        });
        for thread in 0..8 {
            namei::rmdir(&fs, &fs.root(), format!("d{thread}").as_bytes()).unwrap();
        }
        assert_eq!(free(&fs), before, "{args}");
        assert_eq!(fs.stats.inode_deletions.get(), 8 * 61);
        fs.unmount();
        image.fsck_clean().unwrap();
    }
}

#[test]
fn a_read_only_mount_finishes_orphans_where_it_can_write() {
    let image = Image::of_mib(16).args("-O ^orphan_file").make().unwrap();
    let (fs, dev) = in_memory(&image, "");
    let files = nameless(&fs, 3);
    fs.journal.checkpoint_all().unwrap();
    let crashed = snapshot(&dev);
    drop(files);
    drop(fs);
    let other = crashed.copy().unwrap();
    let fs = TestFs::mount(crashed.path(), "ro");
    assert!(fs.check_writable().is_err());
    fs.unmount();
    crashed.fsck_clean().unwrap();
    let fs = TestFs::mount(crashed.path(), "");
    assert_eq!(fs.stats.orphans_processed.get(), 0);
    fs.unmount();
    let fs = TestFs::mount(other.path(), "");
    assert_eq!(fs.stats.orphans_processed.get(), 3);
    fs.unmount();
}

/// Lists that lead to themselves, to the format's own inodes, to free ones, past the end, to inodes
/// with names.
#[test]
fn hostile_lists_end() {
    for (head, next) in [
        ("12", "12"),
        ("13", "12"),
        ("2", "0"),
        ("8", "0"),
        ("1", "0"),
        ("99999999", "0"),
        ("500", "0"),
        ("12", "8"),
        ("13", "500"),
    ] {
        let image = Image::of_mib(16).args("-O ^orphan_file").make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        fs.create("a");
        fs.create("b");
        assert_eq!((fs.find("a").ino.get(), fs.find("b").ino.get()), (12, 13));
        fs.unmount();
        image
            .debugfs_write(&format!("ssv last_orphan {head}"))
            .unwrap();
        image
            .debugfs_write(&format!("sif <12> dtime {next}"))
            .unwrap();
        image.debugfs_write("sif <13> dtime 12").unwrap();
        let fs = TestFs::mount(image.path(), "errors=continue");
        let raw = fs.super_block.read(&fs).unwrap();
        assert_eq!(raw.last_orphan.get(), 0, "{head} {next}");
        fs.create("c");
        fs.unmount();
        // Numbers left in deletion times of inodes with names are all that may be wrong.
        image.fsck_repair().unwrap();
        image.fsck_clean().unwrap();
    }
}

#[test]
fn hostile_orphan_files_end() {
    let maker = Image::of_mib(16).args("-b 1024 -O orphan_file,^metadata_csum");
    let image = maker.make().unwrap();
    let (fs, dev) = in_memory(&image, "");
    let files = nameless(&fs, 4);
    fs.journal.checkpoint_all().unwrap();
    let record = {
        let file = fs.orphans.file.read();
        file.as_ref().unwrap().first_block().get() * 1024
    };
    let bytes = dev.to_bytes();
    drop(files);
    drop(fs);
    let mut rng = Rng::new(4);
    let at = usize::try_from(record).unwrap();
    for round in 0..40 {
        let mut bad = bytes.clone();
        for _ in 0..6 {
            let slot = at + rng.index(250) * 4;
            let value = [2, 8, 11, 12, 13, 500, 70_000, u32::MAX][rng.index(8)];
            bad[slot..slot + 4].copy_from_slice(&value.to_le_bytes());
        }
        if round % 10 == 9 {
            bad[at + 1016] ^= 1;
        }
        let dev = Arc::new(MemoryDevice::from_bytes(&bad));
        match TestFs::on(dev.clone(), "errors=continue") {
            Ok(fs) => {
                assert!(fs.orphans.file.read().as_ref().unwrap().is_empty());
                fs.create("more");
                drop(fs);
            }
            Err(error) => {
                assert_eq!(round % 10, 9, "{error}");
                assert!(error.to_string().contains("orphan block magic"), "{error}");
            }
        }
    }
}

/// An orphan whose inode the device does not give is no damage: the mount fails, and the orphan is
/// there for the next one.
#[test]
fn an_orphan_that_cannot_be_read_fails_the_mount() {
    for args in ["-O orphan_file", "-O ^orphan_file"] {
        let image = Image::of_mib(16).args(args).make().unwrap();
        let (fs, dev) = in_memory(&image, "");
        // Far from the root's inode, in a block of the table that only the orphan needs.
        let others: Vec<_> = (0..40).map(|i| fs.create(&format!("f{i}"))).collect();
        let files = nameless(&fs, 1);
        fs.journal.checkpoint_all().unwrap();
        let bytes = dev.to_bytes();
        let place = snapshot(&dev).debugfs(&format!("imap <{}>", files[0].ino));
        let place = place.unwrap();
        let (_, block) = place.split_once("located at block ").unwrap();
        let block: u64 = block.split_once(',').unwrap().0.parse().unwrap();
        drop((files, others, fs));

        let at = block * image.block_size().unwrap();
        let fails = move |request: Request<'_>| {
            let first = request.offset.get();
            let covers = (first..first + request.len).contains(&at);
            if request.kind == RequestKind::Read && covers {
                Fault::Fail(std::io::ErrorKind::Other)
            } else {
                Fault::Pass
            }
        };
        let faulty = FaultyDevice::new(MemoryDevice::from_bytes(&bytes), fails);
        let refused = TestFs::on(Arc::new(faulty), "errors=continue").map(drop);
        assert!(matches!(refused, Err(Error::Io(_))), "{args}: {refused:?}");
        let fs = TestFs::on(Arc::new(MemoryDevice::from_bytes(&bytes)), "").unwrap();
        assert_eq!(fs.stats.orphans_processed.get(), 1, "{args}");
    }
}
