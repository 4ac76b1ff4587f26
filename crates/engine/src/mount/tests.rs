//! Mount and unmount of real images: judged by e2fsck and dumpe2fs, compared with Linux where there
//! is a loop device.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, FileDevice, MemoryDevice, OpenMode};
use extant_disk::damage::{CorruptKind, InodeDamage, JournalDamage};
use extant_disk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use extant_testkit::{Cmd, Image, Need, Subject, need};
use extant_units::{Blocks, DevOff, Ino, Pblk};
use zerocopy::FromBytes;

mod second_unmount;
mod torn_superblock;

use super::*;
use crate::config::{MountOptions, Tuning};
use crate::file;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

const SHAPES: &[(u64, &str)] = &[
    (64, "-b 1024"),
    (64, "-b 2048 -O orphan_file"),
    (200, "-b 4096"),
    (67, "-b 1024 -O ^64bit"),
    (40, "-b 1024 -O ^metadata_csum,uninit_bg"),
    (150, "-b 1024 -O ^metadata_csum,uninit_bg,^64bit -I 128"),
    (64, "-b 1024 -O ^metadata_csum,^uninit_bg,^flex_bg -g 1024"),
    (64, "-b 4096 -I 1024 -O ^has_journal"),
    (96, "-b 2048 -O metadata_csum_seed,orphan_file -i 4096"),
    (128, "-b 1024 -J size=32"),
    (128, "-b 1024 -O bigalloc"),
    (300, "-b 4096 -O bigalloc -C 131072"),
];

fn open(image: &Image, options: &str) -> Result<Arc<Fs>> {
    let options = MountOptions::parse(options).unwrap();
    let mode = if options.noload() {
        OpenMode::ReadOnly
    } else {
        OpenMode::ReadWrite
    };
    let dev = FileDevice::open(image.path(), mode).unwrap();
    mount(Arc::new(dev), options, Tuning::default())
}

fn refusal(result: Result<Arc<Fs>>) -> Error {
    match result {
        Ok(_) => panic!("mounted"),
        Err(error) => error,
    }
}

/// Changes the primary superblock of `image` and seals it.
fn patch(image: &Image, change: impl FnOnce(&mut RawSuperblock)) {
    image
        .patch(SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, |bytes| {
            let raw = RawSuperblock::mut_from_bytes(bytes).unwrap();
            change(raw);
            raw.seal();
        })
        .unwrap();
}

#[test]
fn every_shape_mounts_and_unmounts_clean() {
    for (mib, args) in SHAPES {
        let image = Image::of_mib(*mib).args(args).make().unwrap();
        let fs = open(&image, "").unwrap_or_else(|error| panic!("{args}: {error}"));
        let has_log = fs.journal.has_log();
        assert_eq!(has_log, !args.contains("^has_journal"), "{args}");
        assert_eq!(image.needs_recovery().unwrap(), has_log, "{args}");
        unmount(&fs).unwrap_or_else(|error| panic!("{args}: {error}"));
        unmount(&fs).unwrap();
        assert!(matches!(fs.check_writable(), Err(Error::Shutdown(_))));
        drop(fs);
        image
            .fsck_clean()
            .unwrap_or_else(|error| panic!("{args}: {error}"));
        assert_eq!(image.header("Mount count").unwrap(), "1");
        assert_eq!(image.header("Filesystem state").unwrap(), "clean");
    }
}

/// Without the extent feature all files have block maps.
#[test]
fn without_extents_the_mount_can_be_written_to() {
    for args in [
        "-t ext2",
        "-t ext3",
        "-b 1024 -O ^extent,^64bit,^metadata_csum",
    ] {
        let image = Image::of_mib(40).args(args).make().unwrap();
        let fs = open(&image, "").unwrap();
        assert!(fs.check_writable().is_ok(), "{args}");
        assert!(fs.iget(Ino::ROOT).is_ok());
        unmount(&fs).unwrap();
        drop(fs);
        image.fsck_clean().unwrap();
    }
}

#[test]
fn a_read_only_mount_writes_nothing() {
    for args in ["-b 1024", "-b 4096 -O ^has_journal"] {
        let image = Image::of_mib(64).args(args).make().unwrap();
        let before = image.fingerprint().unwrap();
        for options in ["ro", "ro,noload"] {
            let fs = open(&image, options).unwrap();
            assert!(matches!(fs.check_writable(), Err(Error::ReadOnly)));
            assert!(fs.iget(Ino::ROOT).is_ok());
            unmount(&fs).unwrap();
            drop(fs);
        }
        assert_eq!(image.fingerprint().unwrap(), before);
    }
}

#[test]
fn a_crash_leaves_a_journal_that_the_next_mount_replays() {
    let image = Image::of_mib(64).args("-b 1024").make().unwrap();
    let free = image.header("Free inodes").unwrap();
    {
        let fs = open(&image, "").unwrap();
        let mut h = fs.start(4).unwrap();
        fs.super_block
            .update(&fs, &mut h, |raw| {
                raw.volume_name[..3].copy_from_slice(b"hey")
            })
            .unwrap();
        drop(h);
        fs.journal.force_commit().unwrap();
        // As if the process died: nothing is checkpointed.
        fs.journal.abort("crash");
    }
    assert!(image.needs_recovery().unwrap());
    assert_eq!(image.header("Filesystem volume name").unwrap(), "<none>");
    let copy = image.copy().unwrap();

    // Read-only device: a plain error, unless the journal is to be left alone.
    let dev = |image: &Image| FileDevice::open(image.path(), OpenMode::ReadOnly).unwrap();
    let error = refusal(mount(
        Arc::new(dev(&image)),
        MountOptions::default(),
        Tuning::default(),
    ));
    assert!(matches!(error, Error::NeedsReplay), "{error}");
    let fs = open(&image, "ro,noload").unwrap();
    unmount(&fs).unwrap();
    drop(fs);

    // A read-only mount of a writable device replays, and no more than that.
    let fs = open(&image, "ro").unwrap();
    unmount(&fs).unwrap();
    drop(fs);
    assert_eq!(image.header("Filesystem volume name").unwrap(), "hey");
    image.fsck_clean().unwrap();

    let fs = open(&copy, "").unwrap();
    assert_eq!(fs.super_block.read(&fs).unwrap().mnt_count.get(), 2);
    unmount(&fs).unwrap();
    drop(fs);
    assert_eq!(copy.header("Filesystem volume name").unwrap(), "hey");
    assert_eq!(copy.header("Free inodes").unwrap(), free);
    copy.fsck_clean().unwrap();
}

/// All else is replayed; the volume is not mounted, and says why it has to be checked.
#[test]
fn a_damaged_copy_in_the_log_is_named_and_recorded() {
    let image = Image::of_mib(64).args("-b 1024").make().unwrap();
    let name = |label: &'static [u8; 3]| {
        move |raw: &mut RawSuperblock| raw.volume_name[..3].copy_from_slice(label)
    };
    let block = {
        let fs = open(&image, "").unwrap();
        let mut h = fs.start(8).unwrap();
        fs.super_block.update(&fs, &mut h, name(b"hey")).unwrap();
        // A free block, so that nothing else is wrong.
        let block = fs.layout.end().get() - 7;
        let cached = fs.cache.read_unchecked(Pblk::new(block)).unwrap();
        h.modify(&cached, |bytes| bytes.fill(0x77)).unwrap();
        drop(h);
        fs.journal.force_commit().unwrap();
        fs.journal.abort("crash");
        block
    };
    let dump = image.debugfs("logdump -a").unwrap();
    let line = format!("FS block {block} logged at journal block ");
    let at = dump.split_once(&line).unwrap().1;
    let at = at.split([' ', '\n']).next().unwrap();
    let pblk = image.debugfs(&format!("bmap <8> {at}")).unwrap();
    let pblk: u64 = pblk.trim().parse().unwrap();
    image.patch(pblk * 1024, 1, |byte| byte[0] ^= 0x10).unwrap();

    let report =
        extant_check::check_image(image.path(), &extant_check::CheckOptions::default()).unwrap();
    let found = &report.findings[0].kind;
    let CorruptKind::Journal(JournalDamage::Copies { copies }) = found else {
        panic!("{found:?}")
    };
    assert_eq!((copies.first.block, copies.more), (Pblk::new(block), 0));
    for options in ["ro", "", ""] {
        let error = refusal(open(&image, options));
        let copies = *copies;
        let expected = JournalDamage::ReplayedAround { copies }.into();
        assert_eq!(error.corrupt_kind(), Some(&expected));
        let text = error.to_string();
        assert!(text.starts_with("corrupt journal: transaction ") && text.contains("e2fsck"));
        assert_eq!(image.header("Filesystem volume name").unwrap(), "hey");
        let state = image.header("Filesystem state").unwrap();
        assert!(state.contains("with errors"), "{state}");
        assert_eq!(image.header("First error function").unwrap(), "journal");
        assert_eq!(image.header("First error err").unwrap(), "EFSBADCRC");
        let block = image.header("First error block #").unwrap();
        assert_eq!(block, block.to_string());
        assert!(image.needs_recovery().unwrap());
    }
    let repaired = Cmd::new("e2fsck").arg("-fy").arg(image.path());
    assert_eq!(repaired.run().unwrap().code, Some(1));
    image.fsck_clean().unwrap();
    unmount(&open(&image, "").unwrap()).unwrap();
}

#[test]
fn bad_input_gets_its_own_plain_error() {
    let text = |bytes: &[u8]| {
        let dev = Arc::new(MemoryDevice::from_bytes(bytes));
        refusal(mount(dev, MountOptions::default(), Tuning::default())).to_string()
    };
    assert!(text(&[]).contains("only 0 bytes"));
    assert!(text(&[0; 8192]).contains("not an ext4 file system"));
    let image = Image::of_mib(32).args("-b 1024").make().unwrap();
    let good = std::fs::read(image.path()).unwrap();
    assert_eq!(
        text(&good[..20 << 20]),
        "truncated image: the file system has 33554432 bytes, the device 20971520"
    );
    let mut bad = good.clone();
    bad[1024 + 4] ^= 1;
    let said = text(&bad);
    assert!(
        said.contains("corrupt superblock: bad superblock checksum"),
        "{said}"
    );
    assert!(
        said.contains("a good backup lies at 8389632 bytes (mount with ro,sb=8193)"),
        "{said}"
    );
    bad[1024..2048].fill(0);
    let said = text(&bad);
    assert!(
        said.contains("not an ext4 file system") && said.contains("sb=8193"),
        "{said}"
    );
    for options in ["ro,sb=8193", "ro,noload,sb=8193"] {
        let options = MountOptions::parse(options).unwrap();
        let dev = Arc::new(MemoryDevice::from_bytes(&bad));
        let fs = mount(dev, options, Tuning::default()).unwrap();
        assert!(fs.iget(Ino::ROOT).is_ok());
        unmount(&fs).unwrap();
    }
    // A descriptor that does not match its checksum.
    let mut bad = good.clone();
    bad[2048 + 64 + 3] ^= 0x80;
    assert!(
        text(&bad).contains("corrupt descriptor of group 1: group 1: bad descriptor checksum"),
        "{}",
        text(&bad)
    );
}

#[test]
fn the_gate_refuses_or_restricts_by_name() {
    let image = Image::of_mib(32).args("-b 1024").make().unwrap();
    patch(&image, |raw| {
        let bits = raw.feature_incompat.get() | 1 | 1 << 30;
        raw.feature_incompat.set(bits);
    });
    let error = refusal(open(&image, ""));
    assert_eq!(
        error.to_string(),
        "unsupported feature: compression, FEATURE_I30"
    );
    // The last cluster has blocks that do not exist.
    let image = Image::of_mib(64)
        .args("-b 4096 -O bigalloc")
        .make()
        .unwrap();
    patch(&image, |raw| {
        let blocks = raw.blocks_count_lo.get();
        raw.blocks_count_lo.set(blocks - 3);
    });
    let fs = open(&image, "").unwrap();
    assert!(matches!(fs.check_writable(), Err(Error::ReadOnly)));
    unmount(&fs).unwrap();
    drop(fs);
    let image = Image::of_mib(64)
        .args("-O journal_dev -b 4096")
        .make()
        .unwrap();
    let error = refusal(open(&image, ""));
    assert!(matches!(error, Error::UnsupportedFeature(_)), "{error}");
}

#[test]
fn bad_combinations_of_options_are_refused() {
    let image = Image::of_mib(32).args("-b 1024").make().unwrap();
    assert!(matches!(
        refusal(open_with(&image, "noload")),
        Error::BadOption(_)
    ));
    assert!(matches!(
        refusal(open_with(&image, "sb=8193")),
        Error::BadOption(_)
    ));
    image.fsck_clean().unwrap();
}

fn open_with(image: &Image, options: &str) -> Result<Arc<Fs>> {
    let dev = FileDevice::open(image.path(), OpenMode::ReadWrite).unwrap();
    mount(
        Arc::new(dev),
        MountOptions::parse(options).unwrap(),
        Tuning::default(),
    )
}

#[test]
fn a_fault_stops_changes_and_is_recorded() {
    for (options, level) in [
        ("", "ro"),
        ("errors=continue", "none"),
        ("errors=panic", "all"),
    ] {
        let image = Image::of_mib(32).args("-b 1024").make().unwrap();
        let fs = open(&image, options).unwrap();
        fs.fault.report(&fs, &Error::NoSpace);
        assert!(fs.check_writable().is_ok());
        let damage = Error::corrupt(Location::Inode(Ino::new(77).unwrap()), InodeDamage::Missing);
        fs.fault.report(&fs, &damage);
        fs.fault.report(&fs, &damage);
        match level {
            "none" => assert!(fs.check_writable().is_ok()),
            "ro" => {
                assert!(matches!(fs.check_writable(), Err(Error::ReadOnly)));
                assert!(fs.fault.check_alive().is_ok());
            }
            _ => assert!(matches!(fs.fault.check_alive(), Err(Error::Shutdown(_)))),
        }
        assert_eq!(unmount(&fs).is_ok(), level == "none");
        drop(fs);
        assert!(
            image
                .header("Filesystem state")
                .unwrap()
                .contains("with errors"),
            "{options}"
        );
        assert_eq!(image.header("FS Error count").unwrap(), "2", "{options}");
        assert_eq!(image.header("First error function").unwrap(), "inode");
        assert_eq!(image.header("First error inode #").unwrap(), "77");
        assert_eq!(image.header("First error err").unwrap(), "EFSCORRUPTED");
    }
}

#[test]
fn the_journal_is_found_through_the_superblocks_copy() {
    let image = Image::of_mib(64).args("-b 1024").make().unwrap();
    let said = image.debugfs("imap <8>").unwrap();
    let block: u64 = said
        .split("block ")
        .nth(2)
        .or_else(|| said.split("at block ").nth(1))
        .unwrap()
        .split(',')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let offset = u64::from_str_radix(said.trim().rsplit_once("0x").unwrap().1, 16).unwrap();
    image
        .patch(block * 1024 + offset, 128, |bytes| bytes[40] ^= 0xFF)
        .unwrap();
    let fs = open(&image, "").unwrap();
    assert!(fs.journal.has_log());
    unmount(&fs).unwrap();
}

#[test]
fn totals_are_what_linux_says() {
    if !need(&[Need::Loop]) {
        return;
    }
    for (mib, args) in SHAPES {
        for options in ["bsddf", "minixdf"] {
            let image = Image::of_mib(*mib).args(args).make().unwrap();
            let linux = {
                let mounted = Subject::Ext4.mount(image.path(), options).unwrap();
                let out = Cmd::new("stat")
                    .args(["-f", "-c", "%s %b %f %a %c %d"])
                    .arg(mounted.dir())
                    .ok()
                    .unwrap()
                    .out;
                out.split_whitespace()
                    .map(|n| n.parse::<u64>().unwrap())
                    .collect::<Vec<_>>()
            };
            let fs = open(&image, options).unwrap();
            let said = crate::api::inspect::usage::statfs(&fs);
            let ours = [
                u64::from(said.block_size),
                said.blocks,
                said.blocks_free,
                said.blocks_available,
                said.inodes,
                said.inodes_free,
            ];
            unmount(&fs).unwrap();
            drop(fs);
            assert_eq!(ours.to_vec(), linux, "{mib} MiB {args} {options}");
        }
    }
}

/// Uses what mounted as well as it goes; errors are fine, panics and hangs are not.
fn use_somehow(fs: &Arc<Fs>, n: usize) {
    let cred = crate::Cred::root();
    let Ok(root) = fs.iget(Ino::ROOT) else { return };
    let name = format!("f{n}");
    if let Ok(file) = crate::namei::create(fs, &root, name.as_bytes(), 0o644, &cred) {
        let _ = file::write(fs, &file, None, file::WriteAt::Pos(3000), &[7; 9000], &cred);
        let _ = file::fsync(fs, &file, None, false);
    }
    let _ = crate::namei::mkdir(fs, &root, b"dir", 0o755, &cred);
    let _ = crate::namei::unlink(fs, &root, name.as_bytes());
    let said = crate::api::inspect::usage::statfs(fs);
    assert!(said.blocks_available <= said.blocks_free);
}

/// Damages every byte of the superblock, seals it, and mounts and uses what comes out.
#[test]
fn hostile_superblocks_never_panic() {
    let image = Image::of_mib(4)
        .args("-b 1024 -O orphan_file")
        .make()
        .unwrap();
    let good = std::fs::read(image.path()).unwrap();
    let mut mounted = 0;
    for at in 0..SUPERBLOCK_SIZE - 4 {
        // Names, times and the tail that means nothing are many.
        if (0x78..0xC8).contains(&at) || (0x1A0..0x240).contains(&at) || at > 0x290 {
            continue;
        }
        for flip in [0xFF, 0x01, 0x80] {
            let mut bad = good.clone();
            let raw = &mut bad[1024..2048];
            raw[at] ^= flip;
            RawSuperblock::mut_from_bytes(raw).unwrap().seal();
            let dev: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&bad));
            if let Ok(fs) = mount(dev, MountOptions::default(), Tuning::default()) {
                mounted += 1;
                use_somehow(&fs, at);
                let _ = unmount(&fs);
            }
        }
    }
    assert!(mounted > 100, "{mounted}");
}

/// Damages the descriptors of a volume without checksums.
#[test]
fn hostile_descriptors_never_panic() {
    let image = Image::of_mib(18)
        .args("-b 1024 -O ^metadata_csum,^uninit_bg")
        .make()
        .unwrap();
    let good = std::fs::read(image.path()).unwrap();
    let mut mounted = 0;
    for at in 2048..2048 + 3 * 64 {
        for flip in [0xFF, 0x01, 0x80] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            let dev: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&bad));
            if let Ok(fs) = mount(dev, MountOptions::default(), Tuning::default()) {
                mounted += 1;
                use_somehow(&fs, at);
                let _ = unmount(&fs);
            }
        }
    }
    assert!(mounted > 50, "{mounted}");
}

/// A device on which every write of a block full of `0xD7` fails: file data, and nothing else.
fn without_data(image: &Image) -> Arc<dyn BlockDevice> {
    struct NoData(MemoryDevice);
    impl BlockDevice for NoData {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> std::io::Result<()> {
            self.0.read_at(offset, buf)
        }
        fn write_at(&self, offset: DevOff, buf: &[u8]) -> std::io::Result<()> {
            if buf.starts_with(&[0xD7; 512]) {
                return Err(std::io::Error::other("bad sector"));
            }
            self.0.write_at(offset, buf)
        }
        fn flush(&self) -> std::io::Result<()> {
            self.0.flush()
        }
    }
    let bytes = std::fs::read(image.path()).unwrap();
    Arc::new(NoData(MemoryDevice::from_bytes(&bytes)))
}

#[test]
fn lost_data_is_a_fault_only_if_asked_for() {
    let image = Image::of_mib(32).args("-b 1024").make().unwrap();
    for (options, stopped) in [("data_err=ignore", false), ("data_err=abort", true)] {
        let options = MountOptions::parse(options).unwrap();
        let fs = mount(without_data(&image), options, Tuning::default()).unwrap();
        let root = fs.iget(Ino::ROOT).unwrap();
        let cred = crate::Cred::root();
        let file = crate::namei::create(&fs, &root, b"f", 0o644, &cred).unwrap();
        let at = file::WriteAt::Pos(0);
        file::write(&fs, &file, None, at, &[0xD7; 65536], &cred).unwrap();
        let open = file::open(&fs, &file);
        assert!(matches!(
            file::fsync(&fs, &file, Some(&open), false),
            Err(Error::Io(_))
        ));
        assert_eq!(fs.check_writable().is_err(), stopped);
        assert_eq!(fs.alloc.counts.reserved_blocks(), Blocks::ZERO);
        let _ = unmount(&fs);
    }
}

/// A reservation that no file has any more is seen at unmount: still held, or dropped while full.
#[test]
#[cfg(debug_assertions)]
fn a_reservation_that_leaks_is_seen_at_unmount() {
    let image = Image::of_mib(16).make().unwrap();
    for leak in [std::mem::forget, drop::<crate::state::alloc::Reservation>] {
        let fs = open(&image, "").unwrap();
        let root = fs.iget(extant_units::Ino::ROOT).unwrap();
        leak(crate::alloc::reserve(&fs, &root, Blocks::new(3), true).unwrap());
        drop(root);
        let ended = std::panic::AssertUnwindSafe(|| unmount(&fs));
        let refused = std::panic::catch_unwind(ended).unwrap_err();
        let text = refused.downcast_ref::<String>().unwrap();
        assert!(text.contains("(J9, J11)"), "{text}");
    }
    image.fsck_clean().unwrap();
}
