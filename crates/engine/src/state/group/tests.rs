//! Descriptors and bitmaps of real images, against `dumpe2fs`; hostile ones, against plain errors.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use extant_blockdev::MemoryDevice;
use extant_disk::bitmap;
use extant_disk::group_desc::{GroupDesc, GroupFlags};
use extant_testkit::Image;
use extant_units::{Blocks, Group, Ino, Pblk};

use super::*;
use crate::state::volume::Layout;
use crate::test_support::test_rig::{Rig, dump};
use crate::types::error::Result;

/// Shapes of file systems: size in MiB and arguments of mke2fs.
const SHAPES: &[(u64, &str)] = &[
    (64, "-b 1024"),
    (64, "-b 2048"),
    (200, "-b 4096"),
    (67, "-b 1024 -O ^64bit"),
    (33, "-b 1024 -O ^metadata_csum,uninit_bg"),
    (150, "-b 1024 -O ^metadata_csum,uninit_bg,^64bit -I 128"),
    (64, "-b 1024 -O ^metadata_csum,^uninit_bg,^flex_bg -g 1024"),
    (64, "-b 4096 -I 1024 -O ^has_journal"),
    (40, "-b 1024 -O ^resize_inode,^sparse_super -N 100"),
    (70, "-b 1024 -O sparse_super2 -G 4"),
    (96, "-b 2048 -O metadata_csum_seed,orphan_file -i 4096"),
    (31, "-b 1024 -g 8184 -I 512"),
    (16, "-b 1024 -r 0 -O none"),
    (12, "-b 1024 -g 256 -O meta_bg,^resize_inode -N 640"),
    (
        20,
        "-b 1024 -g 512 -O meta_bg,^resize_inode,^64bit,^flex_bg,sparse_super2",
    ),
    // The last group has three blocks past its backup of the superblock.
    (1, "-b 1024"),
];

fn images() -> impl Iterator<Item = (String, Image)> {
    SHAPES.iter().map(|(mib, args)| {
        let image = Image::of_mib(*mib).args(args).make().unwrap();
        (format!("{mib} MiB {args}"), image)
    })
}

fn disk(rig: &Rig) -> Bitmaps<'_> {
    Bitmaps {
        failpoint: extant_failpoint::ActiveFailpoint::default(),
        layout: &rig.layout,
        cache: &rig.cache,
        zones: &rig.zones,
        stats: &rig.stats,
    }
}

#[test]
fn groups_are_what_dumpe2fs_says() {
    for (name, image) in images() {
        let rig = Rig::open(&image).unwrap_or_else(|error| panic!("{name}: {error}"));
        let dumped = dump(&image);
        assert_eq!(dumped.len(), rig.layout.groups() as usize, "{name}");
        for (group, dumped) in rig.layout.all_groups().zip(&dumped) {
            let layout = &rig.layout;
            let mut locked = rig.groups.lock(group).unwrap();
            let desc = locked.state.desc;
            let start = layout.group_start(group).get();
            let end = start + u64::from(layout.group_blocks(group));
            assert_eq!(start..end, dumped.blocks, "{name}");
            assert_eq!(desc.block_bitmap.get(), dumped.block_bitmap, "{name}");
            assert_eq!(desc.inode_bitmap.get(), dumped.inode_bitmap, "{name}");
            assert_eq!(desc.inode_table.get(), dumped.inode_table.start, "{name}");
            let table_end = desc.inode_table.get() + u64::from(layout.itable_blocks);
            assert_eq!(table_end, dumped.inode_table.end, "{name}");
            assert_eq!(
                (
                    desc.free_blocks,
                    desc.free_inodes,
                    desc.used_dirs,
                    desc.itable_unused
                ),
                (
                    dumped.free_blocks,
                    dumped.free_inodes,
                    dumped.dirs,
                    dumped.unused_inodes
                ),
                "{name} {group}"
            );
            if layout.uninit_groups() {
                let flags = &dumped.flags;
                let has = |flag| desc.flags.contains(flag);
                assert_eq!(
                    has(GroupFlags::INODE_UNINIT),
                    flags.contains("INODE_UNINIT")
                );
                assert_eq!(
                    has(GroupFlags::BLOCK_UNINIT),
                    flags.contains("BLOCK_UNINIT")
                );
                assert_eq!(
                    has(GroupFlags::ITABLE_ZEROED),
                    flags.contains("ITABLE_ZEROED")
                );
            }
            assert_eq!(
                layout.has_superblock(group),
                dumped.backup,
                "{name} {group}"
            );
            let usable = locked
                .map(&disk(&rig))
                .unwrap_or_else(|e| panic!("{name}: {e}"))
                .usable();
            assert_eq!(usable, dumped.free_blocks, "{name} {group}");
            let mut map = locked.state.map.take().unwrap();
            let mut free = Vec::new();
            while let Some(run) = map.find(0, 1, u32::MAX, 1).run {
                free.push(start + u64::from(run.start)..start + u64::from(run.end));
                map.take(run);
            }
            free.sort_by_key(|run| run.start);
            assert_eq!(free, dumped.free, "{name} {group}");
        }
    }
}

#[test]
fn what_is_told_of_groups_is_what_dumpe2fs_says() {
    for (name, image) in images() {
        let told = crate::ImageInfo::read(image.path()).unwrap().groups;
        let counts = |group: &crate::GroupInfo| (group.free_blocks, group.free_inodes);
        let told: Vec<_> = told.iter().map(counts).collect();
        let dumped = dump(&image);
        let dumped = dumped.iter().map(|one| (one.free_blocks, one.free_inodes));
        assert!(dumped.eq(told), "{name}");
    }
}

#[test]
fn inodes_lie_where_debugfs_finds_them() {
    for (name, image) in images().take(7) {
        let rig = Rig::open(&image).unwrap();
        for ino in [
            1,
            2,
            8,
            rig.layout.inodes_per_group + 1,
            rig.layout.inodes_count(),
        ] {
            let ino = Ino::new(ino.min(rig.layout.inodes_count())).unwrap();
            let location = rig.groups.inode_location(&rig.layout, ino).unwrap();
            let said = image.debugfs(&format!("imap <{ino}>")).unwrap();
            let expected = format!(
                "located at block {}, offset 0x{:04x}",
                location.block, location.offset
            );
            assert!(said.contains(&expected), "{name}: {expected} not in {said}");
        }
        let past = Ino::new(rig.layout.inodes_count() + 1).unwrap();
        assert!(rig.groups.inode_location(&rig.layout, past).is_err());
    }
}

#[test]
fn the_largest_volumes_mount_in_bounded_memory() {
    // 8 TiB in a sparse file: 65,536 groups.
    let image = Image::of_mib(8 << 20)
        .args("-b 4096 -O ^has_journal -E lazy_itable_init=1 -i 1048576")
        .make()
        .unwrap();
    let rig = Rig::open(&image).unwrap();
    assert_eq!(rig.layout.groups(), 65536);
    let last = Group::new(65535);
    let mut locked = rig.groups.lock(last).unwrap();
    assert!(locked.map(&disk(&rig)).unwrap().usable() > 32_000);
}

/// The image's bytes, its layout, and a way to replace one descriptor, sealed again.
struct Forge {
    bytes: Vec<u8>,
    layout: Layout,
}

impl Forge {
    fn new(args: &str) -> Self {
        let image = Image::of_mib(32).args(args).make().unwrap();
        let layout = Rig::open(&image).unwrap().layout;
        let bytes = std::fs::read(image.path()).unwrap();
        Self { bytes, layout }
    }

    fn with_desc(&self, group: u32, change: impl FnOnce(&mut GroupDesc)) -> Result<Rig> {
        let mut bytes = self.bytes.clone();
        let group = Group::new(group);
        let (block, offset) = self.layout.desc_location(group);
        let at = usize::try_from(block.get()).unwrap() * self.layout.block_size.bytes() + offset;
        let slot = &mut bytes[at..at + self.layout.desc_size];
        let mut desc = GroupDesc::parse(slot, group, &self.layout.group_checksum).unwrap();
        change(&mut desc);
        desc.store(slot, group, &self.layout.group_checksum);
        Rig::over(Arc::new(MemoryDevice::from_bytes(&bytes)))
    }

    fn refusal(&self, group: u32, change: impl FnOnce(&mut GroupDesc)) -> String {
        match self.with_desc(group, change) {
            Ok(_) => panic!("accepted"),
            Err(error) => error.to_string(),
        }
    }
}

#[test]
fn hostile_descriptors_are_plain_errors_that_name_the_group() {
    let forge = Forge::new("-b 1024");
    assert!(forge.with_desc(2, |_| {}).is_ok());
    let changes: [fn(&mut GroupDesc); 9] = [
        |desc| desc.block_bitmap = Pblk::ZERO,
        |desc| desc.block_bitmap = Pblk::new(1 << 40),
        |desc| desc.inode_bitmap = Pblk::MAX,
        |desc| desc.inode_table = Pblk::new(32 * 1024 - 1),
        |desc| desc.inode_table = desc.block_bitmap,
        |desc| desc.free_blocks = 8193,
        |desc| desc.free_inodes = u32::MAX,
        |desc| desc.used_dirs = 40_000,
        |desc| desc.itable_unused = 40_000,
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let text = forge.refusal(2, change);
        assert!(
            text.starts_with("corrupt descriptor of group "),
            "{i}: {text}"
        );
    }
    assert!(
        forge
            .refusal(2, |desc| desc.free_blocks = 8193)
            .contains("group 2: 8193 of 8192 blocks free")
    );
}

#[test]
fn a_damaged_bitmap_takes_its_group_out_of_use() {
    let forge = Forge::new("-b 1024");
    let mut bytes = forge.bytes.clone();
    let rig = forge.with_desc(0, |_| {}).unwrap();
    let desc = rig.groups.lock(Group::new(0)).unwrap().state.desc;
    let at = usize::try_from(desc.block_bitmap.get()).unwrap() * 1024;
    bytes[at + 900] ^= 1;
    let rig = Rig::over(Arc::new(MemoryDevice::from_bytes(&bytes))).unwrap();
    let mut locked = rig.groups.lock(Group::new(0)).unwrap();
    let error = locked.map(&disk(&rig)).unwrap_err().to_string();
    assert!(
        error.starts_with("corrupt block bitmap of group 0: bad checksum"),
        "{error}"
    );
    assert!(locked.state.broken);
    assert_eq!(locked.hints.usable.load(Relaxed), 0);
}

#[test]
fn a_bitmap_that_frees_the_formats_own_blocks_is_refused() {
    let forge = Forge::new("-b 1024 -O ^metadata_csum,^uninit_bg");
    let mut bytes = forge.bytes.clone();
    let rig = forge.with_desc(0, |_| {}).unwrap();
    let desc = rig.groups.lock(Group::new(0)).unwrap().state.desc;
    let at = usize::try_from(desc.block_bitmap.get()).unwrap() * 1024;
    bitmap::clear(&mut bytes[at..at + 1024], 3);
    let rig = Rig::over(Arc::new(MemoryDevice::from_bytes(&bytes))).unwrap();
    let error = rig
        .groups
        .lock(Group::new(0))
        .unwrap()
        .map(&disk(&rig))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("of the format itself are marked free"),
        "{error}"
    );
}

#[test]
fn maps_beyond_the_budget_are_dropped_and_come_back() {
    let image = Image::of_mib(64)
        .args("-b 1024 -g 256 -O ^has_journal,^resize_inode")
        .make()
        .unwrap();
    let rig = Rig::open(&image).unwrap();
    let (mut table, _, totals) =
        GroupTable::load(&rig.cache, &rig.layout, Vec::new(), false).unwrap();
    table.map_budget = 10;
    let free_of = |group| {
        let usable = table
            .lock(group)
            .unwrap()
            .map(&disk(&rig))
            .unwrap()
            .usable();
        table.shrink_maps();
        u64::from(usable)
    };
    let held = Group::new(3);
    table
        .lock(held)
        .unwrap()
        .map(&disk(&rig))
        .unwrap()
        .hold(200..201);
    for _ in 0..2 {
        let sum: u64 = rig.layout.all_groups().map(free_of).sum();
        assert_eq!(sum, totals.free_blocks - 1);
        assert!(table.loaded.load(Relaxed) <= 10);
        assert!(
            table.lock(held).unwrap().state.map.is_some(),
            "it holds a block back"
        );
    }
}

#[test]
fn zones_cover_everything_that_mke2fs_put_there() {
    let image = Image::of_mib(64)
        .args("-b 1024 -O ^has_journal")
        .make()
        .unwrap();
    let rig = Rig::open(&image).unwrap();
    // Root, lost+found and the resize inode's map are all that a fresh image holds beside its
    // zones; block 0 is in no group.
    let used = rig.layout.end().get() - 1 - rig.totals.free_blocks;
    let files = used - rig.zones.total(0).get();
    assert_eq!(files, 1 + 12 + 1);
    assert!(!rig.zones.may_map(None, Pblk::new(1), Blocks::ONE));
}
