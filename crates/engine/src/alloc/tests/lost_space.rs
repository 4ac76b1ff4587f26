//! Free blocks that cannot be had: of groups that are out of use, and with numbers too large.

use extant_disk::inode::BLOCK_AREA;
use extant_testkit::TempDir;

use super::*;
use crate::file::{self, WriteAt, write};
use crate::inode::InodeFlags;
use crate::map;
use crate::volume::credits;

/// A volume whose `group` has a damaged block bitmap.
fn damaged(group: Group) -> Image {
    let image = image(16, "-b 1024 -m 0 -g 1024 -N 256 -O ^resize_inode");
    let rig = Rig::open(&image).unwrap();
    // From now on the group has a bitmap.
    let start = rig.layout.group_start(group).get();
    rig.take(&ask(start + 500, 1)).unwrap();
    rig.journal.checkpoint_all().unwrap();
    let block = rig.groups.lock(group).unwrap().state.desc.block_bitmap;
    let at = rig.layout.block_size.dev_off(block).unwrap();
    rig.dev.write_at(at, &[0x55; 128]).unwrap();
    rig.journal.close().unwrap();
    drop(rig);
    image
}

/// A look for room that takes nothing finds the damage first.
#[test]
fn a_damaged_group_that_is_only_looked_at_is_reported_and_counted() {
    let group = Group::new(9);
    for policy in ["errors=continue", "errors=remount-ro"] {
        let image = damaged(group);
        let fs = TestFs::mount(image.path(), policy);
        let before = fs.alloc.counts.free_blocks().get();
        let free = u64::from(fs.groups.lock(group).unwrap().state.desc.free_blocks);
        assert_eq!(room_for(&fs, fs.layout.group_start(group), 4), None);
        assert_eq!(fs.stats.faults.get(), 1, "{policy}");
        assert_eq!(fs.alloc.counts.free_blocks().get(), before - free);
        assert_eq!(fs.check_writable().is_ok(), policy == "errors=continue");
    }
}

/// A write finds the blocks for all that it accepts.
#[test]
fn a_damaged_group_promises_no_blocks() {
    let group = Group::new(9);
    let image = damaged(group);
    let fs = TestFs::mount(image.path(), "errors=continue");
    let before = fs.alloc.counts.free_blocks();
    let free = u64::from(fs.groups.lock(group).unwrap().state.desc.free_blocks);
    let mut h = fs.start(2).unwrap();
    let goal = fs.layout.group_start(group).get() + 500;
    let refused = allocate_blocks(&fs, &mut h, &ask(goal, 1));
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    drop(h);
    assert_eq!(fs.alloc.counts.free_blocks().get(), before.get() - free);

    let (file, cred) = (fs.create("file"), Cred::root());
    let mut at = 0;
    while write(&fs, &file, None, WriteAt::Pos(at), &[7; 1024], &cred).is_ok() {
        at += 1024;
        assert!(at < 16 << 20, "more than the volume has");
    }
    file::writeback_all_files(&fs).unwrap();
    assert_eq!(file.core.read().disk_size, at);
    drop(file);
    fs.unmount();
}

/// Blocks that the volume lists as bad stay its own when it is filled.
#[test]
fn bad_blocks_are_given_to_no_file() {
    let dir = TempDir::new("bad").unwrap();
    let list = dir.path().join("blocks");
    std::fs::write(&list, "5000\n5001\n5002\n9000\n13000\n").unwrap();
    let image = image(16, &format!("-b 1024 -m 0 -l {}", list.display()));
    let fs = TestFs::mount(image.path(), "");
    let (file, cred) = (fs.create("file"), Cred::root());
    let mut at = 0;
    while write(&fs, &file, None, WriteAt::Pos(at), &[7; 4096], &cred).is_ok() {
        at += 4096;
        assert!(at < 16 << 20, "more than the volume has");
    }
    file::writeback_all_files(&fs).unwrap();
    drop(file);
    fs.unmount();
    image.fsck_clean().unwrap();
    assert!(at > 10 << 20, "{at} bytes are not all of it");
    let fs = TestFs::mount(image.path(), "");
    fs.unlink("file");
    fs.reap_all();
    fs.unmount();
    image.fsck_clean().unwrap();
}

/// A file with a block map is promised no block whose number has more than 32 bits.
#[test]
fn a_block_map_is_promised_no_block_that_it_cannot_name() {
    // A little more than 2^32 blocks, in a sparse file. A group has 32 MiB.
    let low: u32 = 1 << 18;
    let args = "-b 2048 -m 0 -O ^has_journal,^resize_inode,sparse_super2,64bit -i 16777216 -G 4096 \
                -E lazy_itable_init=1,num_backup_sb=0,packed_meta_blocks=1";
    let image = image(u64::from(low) * 32 + 512, args);
    let fs = TestFs::mount(image.path(), "");
    assert!(fs.layout.groups() > low && fs.layout.end().get() > 1 << 32);
    let (file, cred) = (fs.create("old"), Cred::root());
    let mut h = fs.start(credits::INODE_UPDATE).unwrap();
    let made = file.update(&fs, &mut h, |core| {
        core.flags.remove(InodeFlags::EXTENTS);
        core.i_block = [0; BLOCK_AREA];
    });
    made.unwrap();
    drop(h);
    for group in 0..low {
        fs.groups.lock(Group::new(group)).unwrap().give_up();
    }
    fs.alloc.core.count_lost();
    assert!(!fs.alloc.counts.available_to_users().is_zero());
    let wrote = write(&fs, &file, None, WriteAt::Pos(0), &[7; 4096], &cred);
    assert!(matches!(wrote, Err(Error::NoSpace)), "{wrote:?}");
    file::writeback_all_files(&fs).unwrap();
    assert_eq!(map::reserved_blocks(&file), 0);
}
