//! Structures of fixed shape: superblock, descriptor, inode, bitmap, orphan block.

use extant_disk::bitmap;
use extant_disk::features::Incompat;
use extant_disk::group_desc::{GroupChecksum, GroupDesc};
use extant_disk::inode::{InodeCore, InodeFormat, InodeTime};
use extant_disk::orphan;
use extant_disk::superblock::{RawSuperblock, SUPERBLOCK_SIZE, Superblock};
use extant_units::{Group, Ino, Pblk};
use zerocopy::IntoBytes;

use super::parts::{SEED, block_size, padded};
use crate::feed::Feed;

pub(super) fn superblock(how: u8, feed: &mut Feed<'_>) {
    let bytes = padded(feed, SUPERBLOCK_SIZE);
    let Some(mut raw) = RawSuperblock::copy_from(&bytes) else {
        return;
    };
    if how & 1 != 0 {
        raw.magic.set(extant_disk::superblock::MAGIC);
    }
    if how & 2 != 0 {
        raw.seal();
    }
    let Ok(sb) = Superblock::parse(raw.as_bytes()) else {
        return;
    };
    let features = sb.features();
    if features.has_incompat(Incompat::JOURNAL_DEV) {
        // It can be read; the documentation says no more of it.
        assert!(sb.desc_size() >= 32 && !format!("{sb:?}").is_empty());
        return;
    }
    // What its documentation says.
    let (groups, per_group) = (sb.group_count(), sb.blocks_per_group());
    let bits = sb.block_size().bytes() * 8;
    assert!(groups > 0 && per_group > 0);
    assert!((per_group >> sb.cluster_bits()) as usize <= bits);
    assert!(sb.inodes_per_group() > 0 && sb.inodes_per_group() as usize <= bits);
    assert_eq!(
        u64::from(groups) * u64::from(sb.inodes_per_group()),
        u64::from(sb.inodes_count())
    );
    assert!(sb.inode_size().is_power_of_two() && sb.inode_size() <= sb.block_size().bytes());
    assert!(usize::from(sb.want_extra_isize()) + 128 <= sb.inode_size().max(128));
    assert!(sb.desc_size() >= 32 && sb.desc_size() <= 1024);
    assert!(sb.first_inode() >= 11);
    assert!(u64::from(sb.desc_blocks()) < sb.blocks_count().get());
    assert!(sb.reserved_blocks() <= sb.blocks_count());
    assert!(sb.first_data_block().get() < sb.blocks_count().get());
    for group in [0, 1, 7, groups / 2, groups - 1] {
        let _ = sb.has_backup(Group::new(group));
    }
    let _ = sb.check_device_len(feed.u64());
    let _ = (sb.journal_inode(), sb.orphan_file_inode(), sb.last_orphan());
    let _ = (sb.label(), sb.last_mounted(), sb.made_at(), sb.hash_seed());
    let _ = (
        sb.flags(),
        sb.default_mount_opts(),
        sb.log_groups_per_flex(),
    );
    let _ = (sb.reserved_gdt_blocks(), sb.checksum_seed());
    let names = features.names().map(|name| name.to_string().len());
    assert!(names.sum::<usize>() < 2000 && !format!("{sb:?}").is_empty());
}

pub(super) fn descriptor(how: u8, feed: &mut Feed<'_>) {
    let checksum = match how & 3 {
        0 => GroupChecksum::None,
        1 => GroupChecksum::Crc16 { uuid: [3; 16] },
        _ => GroupChecksum::Crc32c { seed: SEED },
    };
    let group = Group::new(feed.u32());
    let len = [31, 32, 64, 128][usize::from(how >> 2 & 3)];
    let mut bytes = padded(feed, len);
    let _ = GroupDesc::parse(&bytes, group, &checksum);
    let Ok(desc) = GroupDesc::parse(&bytes, group, &GroupChecksum::None) else {
        return;
    };
    desc.store(&mut bytes, group, &checksum);
    assert_eq!(GroupDesc::parse(&bytes, group, &checksum), Ok(desc));
}

pub(super) fn inode(how: u8, feed: &mut Feed<'_>) {
    let format = |csum_seed| InodeFormat {
        inode_size: [128, 160, 256, 1024][usize::from(how & 3)],
        block_size: block_size(how >> 2),
        huge_file: how & 16 != 0,
        wide_blocks: how & 32 != 0,
        large_dir: how & 64 != 0,
        csum_seed,
    };
    let (plain, sealed) = (format(None), format(Some(SEED)));
    let ino = Ino::new(feed.u32()).unwrap_or(Ino::ROOT);
    let record = padded(feed, plain.record_size());
    let _ = InodeCore::decode(&sealed, ino, &record);
    let Ok(core) = InodeCore::decode(&plain, ino, &record) else {
        return;
    };
    let mut again = record.clone();
    if core.encode(&sealed, ino, &mut again).is_ok() {
        let read = InodeCore::decode(&sealed, ino, &again);
        assert!(read.is_ok(), "{core:?} came back as {read:?}");
        if let Ok(read) = read {
            let mut third = again.clone();
            assert_eq!(read.encode(&sealed, ino, &mut third), Ok(()));
            assert!(third == again, "{core:?} changes from writing to writing");
        }
    }
    let time = InodeTime::decode(feed.u32(), (how & 64 != 0).then(|| feed.u32()));
    let (secs, extra) = time.encode(true);
    let clamped = time.clamped(true);
    assert_eq!(InodeTime::decode(secs, Some(extra)), clamped);
}

pub(super) fn bitmap(how: u8, feed: &mut Feed<'_>) {
    let (len, from, to) = (u32::from(feed.u16()), feed.u16(), feed.u16());
    let range = u32::from(from.min(to))..u32::from(from.max(to));
    let mut bytes = feed.rest().to_vec();
    let free: u32 = bitmap::clear_runs(&bytes, len)
        .map(|run| run.end - run.start)
        .sum();
    assert_eq!(free, bitmap::count_clear(&bytes, len));
    match how % 4 {
        0 => bitmap::set_range(&mut bytes, range.clone()),
        1 => bitmap::clear_range(&mut bytes, range.clone()),
        2 => drop(bitmap::set(&mut bytes, range.start)),
        _ => drop(bitmap::clear(&mut bytes, range.start)),
    }
    let first = bitmap::next_set(&bytes, range.start, range.end);
    assert!((range.start..=range.end).contains(&first));
}

pub(super) fn orphans(how: u8, feed: &mut Feed<'_>) {
    let pblk = Pblk::new(feed.u64());
    let (slot, ino) = (usize::from(feed.u16()), Ino::new(feed.u32()));
    let seed = (how & 1 != 0).then_some(SEED);
    let mut block = if how & 2 != 0 {
        padded(feed, block_size(how >> 2).bytes())
    } else {
        feed.rest().to_vec()
    };
    let _ = orphan::check(seed, pblk, &block);
    let count = orphan::orphans(&block).map_or(0, Iterator::count);
    assert!(count * 4 <= block.len());
    let _ = (orphan::free_slot(&block, slot), orphan::slot(&block, slot));
    if orphan::set_slot(seed, pblk, &mut block, slot, ino) {
        assert_eq!(orphan::slot(&block, slot), Some(ino));
    }
    orphan::init(seed, pblk, &mut block);
    if block.len() >= 8 && block.len().is_multiple_of(4) {
        assert_eq!(orphan::check(seed, pblk, &block), Ok(()));
    }
}
