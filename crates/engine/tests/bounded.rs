//! Work per call is bounded: damaged maps that name the same blocks again and again are refused
//! after no more steps than a sound volume of that size could need, and what takes long can be
//! interrupted. Steps are counted, never timed.

use extant_engine::damage::CorruptKind;
use extant_engine::{Cred, Error, Interrupt, Node, SeekTarget, Volume, VolumeOptions};
use extant_testkit::Image;

/// Blocks of 1 KiB of the volumes here.
const BLOCK: u64 = 1024;
/// Their number.
const BLOCKS: u64 = 8192;
/// No checksums: a forged block is as good as any.
const PLAIN: &str = "-b 1024 -O ^extent,^64bit,^metadata_csum";

fn open(image: &Image) -> Volume {
    VolumeOptions::new().write(true).open(image.path()).unwrap()
}

/// Damage stops nothing.
fn open_and_continue(image: &Image) -> Volume {
    let mut options = VolumeOptions::new();
    options.write(true).mount_options("errors=continue");
    options.open(image.path()).unwrap()
}

fn find(volume: &Volume, name: &str) -> Result<Node, Error> {
    volume.lookup(&volume.root()?, name.as_bytes())
}

fn counter(volume: &Volume, name: &str) -> u64 {
    let counters = volume.stats();
    let found = counters.iter().find(|(this, _)| *this == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

/// Lookups in maps, answered by the status tree or from disk.
fn map_steps(volume: &Volume) -> u64 {
    counter(volume, "es_hits") + counter(volume, "es_misses")
}

/// A volume with a directory `d` of one entry, a file `f`, and four more blocks to forge maps of:
/// their numbers.
fn forgeable(args: &str) -> (Image, [u64; 4]) {
    let image = Image::of_mib((BLOCKS * BLOCK) >> 20)
        .args(args)
        .make()
        .unwrap();
    let volume = open(&image);
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let d = volume.mkdir(&root, b"d", 0o755, &cred).unwrap();
    volume.create(&d, b"entry", 0o644, &cred).unwrap();
    let f = volume.create(&root, b"f", 0o644, &cred).unwrap();
    volume.write(&f, 0, &[7; 1024], &cred).unwrap();
    let spare = volume.create(&root, b"spare", 0o644, &cred).unwrap();
    volume.write(&spare, 0, &[7; 4096], &cred).unwrap();
    volume.sync().unwrap();
    drop((root, d, f, spare));
    volume.unmount().unwrap();
    let found = image.debugfs("blocks spare").unwrap();
    let found: Vec<u64> = found
        .split_whitespace()
        .map(|at| at.parse().unwrap())
        .collect();
    (image, found.try_into().unwrap())
}

/// Fills a block with one number.
fn fill(image: &Image, at: u64, with: u64) {
    let with = u32::try_from(with).unwrap().to_le_bytes();
    let forge = |bytes: &mut [u8]| {
        bytes
            .chunks_exact_mut(4)
            .for_each(|to| to.copy_from_slice(&with))
    };
    image.patch(at * BLOCK, 1024, forge).unwrap();
}

/// Gives the block map of `name` three levels that name `data` at every place. Its size becomes
/// `size`.
fn repeat(image: &Image, name: &str, data: u64, [one, two, three, _]: [u64; 4], size: u64) {
    for (at, with) in [(one, data), (two, one), (three, two)] {
        fill(image, at, with);
    }
    for (slot, at) in [("IND", one), ("DIND", two), ("TIND", three)] {
        image
            .debugfs_write(&format!("sif {name} block[{slot}] {at}"))
            .unwrap();
    }
    for slot in 1..12 {
        image
            .debugfs_write(&format!("sif {name} block[{slot}] {data}"))
            .unwrap();
    }
    image
        .debugfs_write(&format!("sif {name} size {size}"))
        .unwrap();
    image
        .debugfs_write(&format!("sif {name} blocks 0xfffffffe"))
        .unwrap();
}

fn first_block(image: &Image, name: &str) -> u64 {
    let blocks = image.debugfs(&format!("blocks {name}")).unwrap();
    blocks.split_whitespace().next().unwrap().parse().unwrap()
}

#[track_caller]
fn assert_damage<T: std::fmt::Debug>(result: Result<T, Error>, name: &str) {
    let error = result.expect_err(name);
    let kind = error.corrupt_kind().map(CorruptKind::name);
    assert_eq!(kind.as_deref(), Some(name), "{error}");
}

/// A directory that is as long as the volume, of one block.
#[test]
fn a_directory_whose_blocks_come_twice_is_damage() {
    for args in [PLAIN, "-b 1024 -O ^extent,^64bit,^metadata_csum,^dir_index"] {
        let (image, spare) = forgeable(args);
        repeat(
            &image,
            "d",
            first_block(&image, "d"),
            spare,
            (BLOCKS - 192) * BLOCK,
        );
        let volume = open_and_continue(&image);
        let d = find(&volume, "d").unwrap();
        let before = map_steps(&volume);
        let mut names = 0;
        let listed = volume.readdir(&d, 0, &mut |_| {
            names += 1;
            true
        });
        assert_damage(listed, "Directory.RepeatedBlock");
        assert_eq!(names, 0);
        assert_damage(volume.lookup(&d, b"missing"), "Directory.RepeatedBlock");
        let made = volume.create(&d, b"new", 0o644, &Cred::root());
        assert_damage(made, "Directory.RepeatedBlock");
        let root = volume.root().unwrap();
        assert_damage(volume.rmdir(&root, b"d"), "Directory.RepeatedBlock");
        let steps = map_steps(&volume) - before;
        assert!(steps < 64, "{steps} looks at the map");
    }
}

/// One walk through its map is what a sound directory pays.
#[test]
fn a_sound_directory_is_walked_once_for_that() {
    let image = Image::of_mib(8).args("-b 1024").make().unwrap();
    let volume = open(&image);
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let mut names = 0;
    for number in 0..400 {
        let name = format!("a name of some length, number {number}");
        volume.create(&root, name.as_bytes(), 0o644, &cred).unwrap();
    }
    volume
        .readdir(&root, 0, &mut |_| {
            names += 1;
            true
        })
        .unwrap();
    assert_eq!(names, 403);
    let before = map_steps(&volume);
    let (mut pos, mut listed) = (0, 0);
    loop {
        let from = pos;
        volume
            .readdir(&root, pos, &mut |entry| {
                listed += 1;
                pos = entry.next_pos;
                false
            })
            .unwrap();
        if pos == from || listed > 403 {
            break;
        }
    }
    assert_eq!(listed, 403);
    // Three blocks of the index and the leaf for each entry, and nothing that goes through the
    // whole map.
    let steps = map_steps(&volume) - before;
    assert!(steps < 403 * 8, "{steps} looks at the map");
}

/// A journal of one block again and again is not taken for one of as many: the superblock has a
/// copy of its map.
#[test]
fn a_journal_whose_blocks_come_twice_is_damage() {
    let (image, spare) = forgeable(PLAIN);
    let (journal, blocks) = (first_block(&image, "<8>"), 1024);
    repeat(&image, "<8>", journal, spare, blocks * BLOCK);
    let volume = open(&image);
    find(&volume, "d").unwrap();
    volume.unmount().unwrap();
}

/// Sizes of directories are judged when the inode is read.
#[test]
fn a_directory_larger_than_it_may_be_is_not_loaded() {
    let (image, spare) = forgeable(PLAIN);
    repeat(
        &image,
        "d",
        first_block(&image, "d"),
        spare,
        (BLOCKS + 1) * BLOCK,
    );
    assert_damage(find(&open(&image), "d"), "Inode.DirectoryTooLarge");

    let image = Image::of_mib(4096).make().unwrap();
    image.debugfs_write("mkdir d").unwrap();
    image.debugfs_write("sif d size 0x80000000").unwrap();
    assert_damage(find(&open(&image), "d"), "Inode.DirectoryTooLarge");
    image.debugfs_write("sif d size 4096").unwrap();
    find(&open(&image), "d").unwrap();
}

/// A file that maps 2^24 blocks of the volume's 2^13.
#[test]
fn walks_through_the_map_of_a_file_end() {
    let (image, spare) = forgeable(PLAIN);
    repeat(&image, "f", first_block(&image, "f"), spare, 1 << 34);
    let volume = open_and_continue(&image);
    let f = find(&volume, "f").unwrap();
    assert_damage(volume.seek(&f, SeekTarget::Hole(0)), "Map.PastVolume");
    let mut extents = 0;
    let last = volume.map(&f, 0).inspect(|_| extents += 1).last();
    assert_damage(last.unwrap(), "Map.PastVolume");
    let listed: Result<Vec<_>, _> = volume
        .fiemap(&f, 0, u64::MAX >> 1, false)
        .unwrap()
        .collect();
    assert_damage(listed, "Map.PastVolume");
    assert!(extents <= 2 * BLOCKS + 1, "{extents} extents");
    let steps = map_steps(&volume);
    assert!(steps < 20 * BLOCKS, "{steps} looks at the map");
}

/// Freeing ends at the first block that is free already, data or not.
#[test]
fn a_map_that_repeats_itself_is_not_freed_to_its_end() {
    for data in [true, false] {
        let (image, spare) = forgeable(PLAIN);
        let named = if data { first_block(&image, "f") } else { 0 };
        repeat(&image, "f", named, spare, 1 << 34);
        let volume = open_and_continue(&image);
        let root = volume.root().unwrap();
        volume.unlink(&root, b"f").unwrap();
        volume.wait_for_background_work();
        let (faults, freed) = (
            counter(&volume, "faults"),
            counter(&volume, "extents_removed"),
        );
        assert!((1..20).contains(&faults), "{faults} faults");
        assert!(freed < 2 * BLOCKS, "{freed} extents freed");
    }
}

/// A search and a listing end at the next block; what did not begin in the request does not.
#[test]
fn an_interrupt_ends_the_walks_of_its_request() {
    let image = Image::of_mib(8)
        .args("-b 1024 -O ^dir_index")
        .make()
        .unwrap();
    let volume = open(&image);
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    for number in 0..400 {
        let name = format!("a name of some length, number {number}");
        volume.create(&root, name.as_bytes(), 0o644, &cred).unwrap();
    }
    let f = volume.create(&root, b"f", 0o644, &cred).unwrap();
    let interrupt = Interrupt::new();
    let mut seen = 0;
    let listed = interrupt.during(|| {
        volume.readdir(&root, 0, &mut |_| {
            seen += 1;
            interrupt.set();
            true
        })
    });
    assert!(matches!(listed, Err(Error::Interrupted)), "{listed:?}");
    assert!(
        (1..=2).contains(&seen),
        "{seen} entries of the batch that was there"
    );
    let sought = interrupt.during(|| volume.lookup(&root, b"missing"));
    assert!(matches!(sought, Err(Error::Interrupted)), "{sought:?}");
    let made = interrupt.during(|| volume.create(&root, b"missing", 0o644, &cred));
    assert!(matches!(made, Err(Error::Interrupted)), "{made:?}");
    let mapped = interrupt.during(|| volume.map(&f, 0).next().map(Result::err));
    assert!(
        matches!(mapped, Some(Some(Error::Interrupted))),
        "{mapped:?}"
    );
    assert_eq!(Error::Interrupted.errno(), 4);
    // Nothing is the worse for it.
    interrupt
        .during(|| volume.write(&f, 0, b"written", &cred))
        .unwrap();
    assert!(matches!(
        volume.lookup(&root, b"missing"),
        Err(Error::NotFound)
    ));
    volume.create(&root, b"missing", 0o644, &cred).unwrap();
    drop((root, f));
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// The end of a mount: a removal of several transactions stops between two, and the next mount
/// finishes it.
#[test]
fn interrupting_all_leaves_an_orphan_that_the_next_mount_frees() {
    for args in ["-b 1024 -O ^orphan_file", "-b 1024 -O orphan_file"] {
        let image = Image::of_mib(32).args(args).make().unwrap();
        let mut options = VolumeOptions::new();
        options.write(true).mount_options("data=journal");
        let volume = options.open(image.path()).unwrap();
        let (root, cred) = (volume.root().unwrap(), Cred::root());
        let free = volume.statfs().unwrap().blocks_free;
        let f = volume.create(&root, b"f", 0o644, &cred).unwrap();
        // Logged blocks need revoke records, which no handle has enough of.
        volume.write(&f, 0, &vec![1; 6 << 20], &cred).unwrap();
        volume.create(&root, b"small", 0o644, &cred).unwrap();
        volume.sync().unwrap();
        volume.interrupt_all();
        drop(f);
        volume.unlink(&root, b"f").unwrap();
        volume.unlink(&root, b"small").unwrap();
        volume.wait_for_background_work();
        assert_eq!(
            counter(&volume, "inode_deletions"),
            1,
            "{args}: the small one"
        );
        assert_eq!(counter(&volume, "faults"), 0, "{args}: it is no damage");
        let sought = volume.map(&root, 0).next().map(Result::err);
        assert!(
            matches!(sought, Some(Some(Error::Interrupted))),
            "{sought:?}"
        );
        drop(root);
        volume.unmount().unwrap();
        drop(volume);

        let volume = open(&image);
        assert_eq!(counter(&volume, "orphans_processed"), 1, "{args}");
        assert_eq!(volume.statfs().unwrap().blocks_free, free, "{args}");
        volume.unmount().unwrap();
        image.fsck_clean().unwrap();
    }
}
