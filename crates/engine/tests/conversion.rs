//! Files with block maps are given extents: the same data in the same place, for Linux too; a crash
//! shows the one map or the other; and what cannot be converted stays as it was.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_check::{CheckOptions, check, check_image};
use extant_engine::damage::MapDamage;
use extant_engine::{Cred, Error, Node, Volume, VolumeOptions};
use extant_testkit::crash::{Budget, Explorer};
use extant_testkit::{Cmd, Image, Need, Recorder, Subject, content, need};

/// The flag in Linux's number: the file has extents.
const EXTENTS: u32 = 0x8_0000;

fn options() -> VolumeOptions {
    let mut options = VolumeOptions::new();
    options.write(true);
    options
}

/// No handle used more than it had asked for (J22).
fn no_overflow(volume: &Volume) {
    let counters = volume.stats();
    let overflow = counters.iter().find(|(name, _)| *name == "credit_overflow");
    assert_eq!(overflow, Some(&("credit_overflow", 0)));
}

fn find(volume: &Volume, name: &str) -> Node {
    let root = volume.root().unwrap();
    volume.lookup(&root, name.as_bytes()).unwrap()
}

fn has_extents(volume: &Volume, node: &Node) -> bool {
    volume.flags(node).unwrap() & EXTENTS != 0
}

/// Blocks that the files get: every other one of a stretch, one run, and a few far out.
fn blocks() -> Vec<u64> {
    let scattered = (0..700).step_by(2);
    scattered
        .chain(2000..3500)
        .chain([70_000, 70_001, 70_300])
        .collect()
}

fn bytes(at: u64, block: u64) -> Vec<u8> {
    content::fill(at + 1, at * block, usize::try_from(block).unwrap())
}

/// Compares all of `file`.
fn compare(volume: &Volume, node: &Node, block: u64) -> Result<(), String> {
    let want = blocks();
    let size = volume
        .getattr(node)
        .map_err(|error| error.to_string())?
        .size;
    if size != (want.last().unwrap() + 1) * block {
        return Err(format!("{size} bytes"));
    }
    let mut buf = vec![0; usize::try_from(block).unwrap()];
    for at in (0..3600).chain(69_990..70_301) {
        buf.fill(7);
        let done = volume.read(node, at * block, &mut buf);
        let done = done.map_err(|error| format!("block {at}: {error}"))?;
        let same = if want.contains(&at) {
            buf == bytes(at, block)
        } else {
            buf.iter().all(|&byte| byte == 0)
        };
        if !same || done != buf.len() {
            return Err(format!("block {at} is not what was written"));
        }
    }
    Ok(())
}

/// An image with the feature, whose files `f` and directory `d` are older than it.
fn older(mkfs: &str) -> Image {
    let image = Image::of_mib(24).args(mkfs).junk().make().unwrap();
    let block = image.block_size().unwrap();
    let volume = options().open(image.path()).unwrap();
    let cred = Cred::root();
    let root = volume.root().unwrap();
    let f = volume.create(&root, b"f", 0o644, &cred).unwrap();
    for at in blocks() {
        volume
            .write(&f, at * block, &bytes(at, block), &cred)
            .unwrap();
    }
    let d = volume.mkdir(&root, b"d", 0o755, &cred).unwrap();
    for i in 0..300 {
        let name = format!("{i:0>50}");
        volume.create(&d, name.as_bytes(), 0o600, &cred).unwrap();
    }
    assert!(matches!(
        volume.convert_to_extents(&f),
        Err(Error::NotSupported(_))
    ));
    drop((root, f, d));
    volume.unmount().unwrap();
    drop(volume);
    Cmd::new("tune2fs")
        .args(["-O", "extent"])
        .arg(image.path())
        .ok()
        .unwrap();
    image
}

#[test]
fn a_file_gets_extents_where_its_data_lies() {
    if !need(&[Need::Root, Need::Loop, Need::Tool("tune2fs")]) {
        return;
    }
    for (mkfs, mount) in [
        ("-t ext3 -b 1024", ""),
        ("-b 1024 -O ^extent,^64bit", "nobuffered_iomap"),
        ("-t ext3 -b 4096", "data=journal"),
        ("-t ext2 -b 1024", ""),
    ] {
        let image = older(mkfs);
        let block = image.block_size().unwrap();
        let volume = options().mount_options(mount).open(image.path()).unwrap();
        let cred = Cred::root();
        let (f, d) = (find(&volume, "f"), find(&volume, "d"));
        let places = |node| -> Vec<_> {
            let all = volume.map(node, 0).map(Result::unwrap);
            all.filter(|extent| extent.physical.is_some())
                .map(|extent| (extent.logical, extent.physical, extent.len))
                .collect()
        };
        let before = places(&f);
        // What is dirty gets its place first.
        let more = 4000 * block;
        volume.write(&f, more, &bytes(4000, block), &cred).unwrap();
        for node in [&f, &d] {
            assert!(!has_extents(&volume, node), "{mkfs}");
            volume.convert_to_extents(node).unwrap();
            volume.convert_to_extents(node).unwrap();
            assert!(has_extents(&volume, node), "{mkfs}");
        }
        let mut after = places(&f);
        after.retain(|&(at, ..)| at != more);
        assert_eq!(before, after, "{mkfs}");
        compare(&volume, &f, block).unwrap();
        let mut buf = vec![0; usize::try_from(block).unwrap()];
        volume.read(&f, more, &mut buf).unwrap();
        assert_eq!(buf, bytes(4000, block));
        // It goes on as a file with extents does.
        for at in (1..700).step_by(2) {
            volume
                .write(&f, at * block, &bytes(at, block), &cred)
                .unwrap();
        }
        volume.create(&d, b"one more", 0o600, &cred).unwrap();
        drop((f, d));
        volume.unmount().unwrap();
        no_overflow(&volume);
        drop(volume);
        image.fsck_clean().unwrap();
        let report = check_image(image.path(), &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{report:?}");
        let linux = Subject::Ext4.mount(image.path(), "ro").unwrap();
        let theirs = std::fs::read(linux.join("f")).unwrap();
        for at in (0..700).chain(2000..3500) {
            let from = usize::try_from(at * block).unwrap();
            let there = &theirs[from..from + buf.len()];
            assert!(there == bytes(at, block), "{mkfs}: block {at}");
        }
        assert_eq!(std::fs::read_dir(linux.join("d")).unwrap().count(), 301);
        linux.unmount().unwrap();
    }
}

#[test]
fn a_conversion_is_one_step_for_a_crash() {
    if !need(&[Need::Tool("tune2fs")]) {
        return;
    }
    let image = older("-t ext3 -b 1024");
    let base = std::fs::read(image.path()).unwrap();
    let recorder = Arc::new(Recorder::new(MemoryDevice::from_bytes(&base)));
    let device: Arc<dyn BlockDevice> = recorder.clone();
    let volume = options().open_on(device).unwrap();
    let f = find(&volume, "f");
    volume.convert_to_extents(&f).unwrap();
    volume.fsync(&f, false).unwrap();
    drop(f);
    volume.unmount().unwrap();
    drop(volume);
    let (mut old, mut new) = (0, 0);
    let explorer = Explorer::new(base, recorder.events(), 1, Budget::SHORT);
    let totals = explorer.run(|state| {
        let text = |error: Error| error.to_string();
        let device: Arc<dyn BlockDevice> = state.device;
        let volume = options().open_on(device.clone()).map_err(text)?;
        let f = find(&volume, "f");
        compare(&volume, &f, 1024)?;
        if has_extents(&volume, &f) {
            new += 1;
        } else {
            old += 1;
        }
        drop(f);
        volume.unmount().map_err(text)?;
        drop(volume);
        let report = check(device, &CheckOptions::default()).map_err(|error| error.to_string())?;
        match report.findings.first() {
            Some(finding) => Err(finding.to_string()),
            None => Ok(()),
        }
    });
    totals.unwrap_or_else(|failure| panic!("{}: {}", failure.cut, failure.why));
    assert!(
        old > 0 && new > 0,
        "{old} with the old map, {new} with the new one"
    );
}

/// However often the numbers lead to a block, no more is taken in than the inode counts and the
/// volume has.
#[test]
fn a_map_of_more_than_there_can_be_is_refused() {
    let image = older("-t ext3 -b 1024");
    let block = image.debugfs("bmap f 12").unwrap();
    let at: u32 = block.trim().parse().unwrap();
    // A block of data whose numbers all lead to itself, as the third level: sixteen million blocks.
    let numbers: Vec<u8> = at.to_le_bytes().repeat(256);
    image
        .patch(u64::from(at) * 1024, 1024, |bytes| {
            bytes.copy_from_slice(&numbers);
        })
        .unwrap();
    let itself = format!("sif f block[TIND] {at}");
    for requests in [
        vec!["sif f blocks 20".to_owned()],
        vec![itself.clone()],
        vec![itself, "sif f blocks 0xfffffffe".to_owned()],
    ] {
        let damaged = image.copy().unwrap();
        for request in &requests {
            damaged.debugfs_write(request).unwrap();
        }
        let mut options = options();
        options.mount_options("errors=continue");
        let volume = options.open(damaged.path()).unwrap();
        let f = find(&volume, "f");
        let error = volume.convert_to_extents(&f).unwrap_err();
        let expected = MapDamage::PastCount.into();
        assert_eq!(error.corrupt_kind(), Some(&expected), "{requests:?}");
        assert!(!has_extents(&volume, &f));
        let mut first = vec![0; 1024];
        volume.read(&f, 0, &mut first).unwrap();
        assert!(first == bytes(0, 1024));
        drop(f);
        volume.unmount().unwrap();
    }
}

#[test]
fn refused_flags_leave_the_map() {
    if !need(&[Need::Tool("tune2fs")]) {
        return;
    }
    const IMMUTABLE: u32 = 0x10;
    let image = older("-t ext3 -b 1024");
    let volume = options().open(image.path()).unwrap();
    let user = Cred {
        uid: 1000,
        privileged: false,
        ..Cred::root()
    };
    for name in ["f", "d"] {
        let node = find(&volume, name);
        let asked = volume.flags(&node).unwrap() | EXTENTS | IMMUTABLE;
        let refused = volume.set_flags(&node, asked, &user);
        assert!(matches!(refused, Err(Error::NotPermitted)), "{refused:?}");
        assert!(!has_extents(&volume, &node), "{name} was converted");
        volume.set_flags(&node, asked - IMMUTABLE, &user).unwrap();
        assert!(has_extents(&volume, &node), "{name} was not");
    }
    volume.unmount().unwrap();
}
