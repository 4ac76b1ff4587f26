//! Maps that Linux and mke2fs made, read here and compared with what debugfs says.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, FileDevice, OpenMode};
use extant_disk::extent::{Extent, MAX_END, Node};
use extant_disk::group_desc::GroupDesc;
use extant_disk::inode::{InodeCore, InodeFlags, InodeFormat};
use extant_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_jbd2::BlockCache;
use extant_testkit::need::{Need, need};
use extant_testkit::{Image, Subject};
use extant_units::{Ino, Lblk, Pblk};
use rustix::fs::FallocateFlags;

use crate::map::disk_nodes::DiskNodes;
use crate::map::extent_tree::{Nodes, walk};
use crate::map::{RawMap, indirect, raw_runs};
use crate::state::map::MapState;
use crate::state::volume::{Layout, SystemZones};

/// An image, read without a mount.
struct UnmountedImage {
    cache: Arc<BlockCache>,
    layout: Layout,
    zones: SystemZones,
}

impl UnmountedImage {
    fn open(image: &Image) -> Self {
        let dev: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::open(image.path(), OpenMode::ReadOnly).unwrap());
        let raw = image.bytes(SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE).unwrap();
        let sb = Superblock::parse(&raw).unwrap();
        let cache = BlockCache::new(dev, sb.block_size(), 16 << 20);
        Self {
            cache,
            layout: Layout::new(&sb),
            zones: SystemZones::default(),
        }
    }

    fn inode(&self, ino: Ino) -> InodeCore {
        let layout = &self.layout;
        let (group, index) = layout.group_of_inode(ino).unwrap();
        let (block, offset) = layout.desc_location(group);
        let data = self.cache.read_unchecked(block).unwrap().data();
        let desc = &data[offset..offset + layout.desc_size];
        let desc = GroupDesc::parse(desc, group, &layout.group_checksum).unwrap();
        let block = desc.inode_table.get() + u64::from(index / layout.inodes_per_block);
        let data = self.cache.read_unchecked(Pblk::new(block)).unwrap().data();
        let size = usize::from(layout.inode_size);
        let at = (index % layout.inodes_per_block) as usize * size;
        let format = InodeFormat {
            inode_size: layout.inode_size,
            block_size: layout.block_size,
            huge_file: layout.huge_file(),
            wide_blocks: true,
            large_dir: false,
            csum_seed: layout.csum_seed,
        };
        InodeCore::decode(&format, ino, &data[at..at + size]).unwrap()
    }

    fn nodes<'a>(&'a self, ino: Ino, core: &InodeCore) -> DiskNodes<'a> {
        let owner = (ino, core.generation);
        DiskNodes::new(&self.cache, &self.layout, &self.zones, owner, core.i_block)
    }

    fn extents(&self, ino: Ino) -> Vec<Extent> {
        let nodes = self.nodes(ino, &self.inode(ino));
        walk(&nodes, Lblk::ZERO)
            .collect::<crate::Result<_>>()
            .unwrap()
    }
}

/// The leaf entries by debugfs.
pub(super) fn debugfs_extents(image: &Image, ino: Ino) -> Vec<Extent> {
    let text = image.debugfs(&format!("dump_extents -l <{ino}>")).unwrap();
    let entry = |line: &str| {
        let clean = line.replace(['/', '-'], " ");
        let n: Vec<u64> = clean
            .split_whitespace()
            .map_while(|w| w.parse().ok())
            .collect();
        let &[_, _, _, _, lblk, _, pblk, _, len] = n.as_slice() else {
            return None;
        };
        Some(Extent {
            lblk: Lblk::new(u32::try_from(lblk).unwrap()),
            len: u32::try_from(len).unwrap(),
            pblk: Pblk::new(pblk),
            unwritten: line.contains("Uninit"),
        })
    };
    text.lines().filter_map(entry).collect()
}

pub(super) fn ino_of(path: &Path) -> Ino {
    Ino::new(u32::try_from(path.metadata().unwrap().ino()).unwrap()).unwrap()
}

/// A file of `len` bytes with a hole in every second block, partly written.
fn fragmented(path: &Path, block: u64, len: u64) -> Ino {
    let file = File::create(path).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len).unwrap();
    for at in (0..len / 3).step_by(usize::try_from(block * 2).unwrap()) {
        file.write_all_at(&[7; 100], at).unwrap();
    }
    file.sync_all().unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for at in (block..len).step_by(usize::try_from(block * 2).unwrap()) {
        rustix::fs::fallocate(&file, punch, at, block).unwrap();
    }
    ino_of(path)
}

#[test]
fn trees_that_linux_made_read_the_same() {
    if !need(&[Need::Loop]) {
        return;
    }
    for (args, block, depth) in [
        ("-b 1024", 1024, 2),
        ("-b 1024 -O ^metadata_csum,^64bit", 1024, 2),
        ("-b 2048", 2048, 2),
        ("-b 4096 -I 128", 4096, 2),
    ] {
        let image = Image::of_mib(64).args(args).make().unwrap();
        let mount = Subject::Ext4.mount(image.path(), "").unwrap();
        let deep = fragmented(&mount.join("deep"), block, 12_000 * block.min(2048));
        let sparse = File::create(mount.join("sparse")).unwrap();
        for shift in [12, 20, 30, 33, 40] {
            sparse.write_all_at(b"far", 1 << shift).unwrap();
        }
        drop(sparse);
        let sparse = ino_of(&mount.join("sparse"));
        let root = Ino::ROOT;
        mount.unmount().unwrap();

        let volume = UnmountedImage::open(&image);
        for ino in [deep, sparse, root] {
            let found = volume.extents(ino);
            assert_eq!(found, debugfs_extents(&image, ino), "{args}, inode {ino}");
            assert!(!found.is_empty());
        }
        let root = volume.nodes(deep, &volume.inode(deep)).root();
        assert_eq!(Node::open(&root).unwrap().depth(), depth, "{args}");
        let found = volume.extents(deep);
        assert!(found.iter().any(|e| e.unwritten) && found.iter().any(|e| !e.unwritten));
    }
}

/// The journal of mke2fs, in one run or several; a file with holes is refused.
#[test]
fn internal_files_are_mapped_before_a_mount() {
    for args in ["-b 1024", "-b 4096", "-b 1024 -O ^extents,^64bit"] {
        let image = Image::of_mib(64).args(args).make().unwrap();
        let volume = UnmountedImage::open(&image);
        let ino = Ino::new(8).unwrap();
        let core = volume.inode(ino);
        let map = |ino: Ino, core: &InodeCore| RawMap {
            cache: &volume.cache,
            layout: &volume.layout,
            zones: &volume.zones,
            ino,
            generation: core.generation,
            i_block: core.i_block,
            extents: core.flags.contains(InodeFlags::EXTENTS),
        };
        let blocks = u32::try_from(core.disk_size / volume.layout.block_size.bytes_u64()).unwrap();
        let runs = raw_runs(&map(ino, &core), blocks).unwrap();
        assert_eq!(runs.iter().map(|run| run.len).sum::<u32>(), blocks);
        for run in &runs {
            for skip in [0, run.len - 1] {
                let asked = format!("bmap <8> {}", run.lblk.get() + skip);
                let answer = image.debugfs(&asked).unwrap();
                let expected = run.pblk.get() + u64::from(skip);
                assert_eq!(answer.trim(), expected.to_string(), "{args}: {asked}");
            }
        }
        assert!(raw_runs(&map(ino, &core), blocks + 1).is_err());
    }
}

/// Block maps of one, two and three levels, with holes in all of them.
#[test]
fn block_maps_read_the_same() {
    if !need(&[Need::Loop]) {
        return;
    }
    let image = Image::of_mib(32)
        .args("-b 1024 -O ^extents,^64bit")
        .make()
        .unwrap();
    let mount = Subject::Ext4.mount(image.path(), "").unwrap();
    let file = File::create(mount.join("f")).unwrap();
    // Direct, single, double and triple, at their first and last blocks and in the middle.
    let (single, double, triple) = (12u64, 12 + 256, 12 + 256 + 65_536);
    let mut blocks = vec![0, 1, 5, 11, single, 13, 200];
    blocks.extend([double - 1, double, double + 300]);
    blocks.extend([triple - 1, triple, triple + 256 * 300]);
    blocks.push(triple + (1 << 24) - 1);
    for &at in &blocks {
        file.write_all_at(&[3; 1024], at * 1024).unwrap();
    }
    drop(file);
    let ino = ino_of(&mount.join("f"));
    mount.unmount().unwrap();

    let volume = UnmountedImage::open(&image);
    let core = volume.inode(ino);
    assert!(!core.flags.contains(InodeFlags::EXTENTS));
    let nodes = volume.nodes(ino, &core);
    let (mut at, mut found, mut steps) = (0u64, Vec::new(), 0);
    while at < MAX_END {
        let status = indirect::find(&nodes, Lblk::new(u32::try_from(at).unwrap())).unwrap();
        assert!(u64::from(status.lblk.get()) <= at && status.end() > at);
        if let MapState::Written(pblk) = status.state {
            for skip in 0..status.len {
                found.push((at + u64::from(skip), pblk.get() + u64::from(skip)));
            }
        }
        at = status.end();
        steps += 1;
    }
    assert!(
        steps < 1000,
        "holes are skipped in large steps, not in {steps}"
    );
    let expected: Vec<(u64, u64)> = blocks
        .iter()
        .map(|&at| {
            (
                at,
                image
                    .debugfs(&format!("bmap <{ino}> {at}"))
                    .unwrap()
                    .trim()
                    .parse()
                    .unwrap(),
            )
        })
        .collect();
    assert_eq!(found, expected);
}
