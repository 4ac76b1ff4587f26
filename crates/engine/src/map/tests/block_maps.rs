//! Block maps (files without extents) that are removed, in part and as a whole.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

use extant_disk::extent::MAX_END;
use extant_testkit::need::{Need, need};
use extant_testkit::{Image, Subject};
use extant_units::{Blocks, Ino, Lblk};

use super::maps_of_linux::ino_of;
use super::mounted::MapMount;
use crate::map::{self, MapState};
use crate::test_support::test_rng::Rng;
use crate::volume::credits;

/// The mapped blocks of a file.
fn mapped(mounted: &MapMount, ino: Ino) -> BTreeSet<u64> {
    let inode = mounted.inode(ino);
    let mut all = BTreeSet::new();
    let (ranges, ended) = map::ranges(&mounted.fs, &inode);
    ended.unwrap();
    for range in ranges {
        if matches!(range.state, MapState::Written(_)) {
            all.extend(u64::from(range.lblk.get())..range.end());
        }
    }
    all
}

#[test]
fn any_part_of_a_block_map_can_be_removed() {
    if !need(&[Need::Loop]) {
        return;
    }
    let image = Image::of_mib(64)
        .args("-b 1024 -O ^extents,^64bit,^metadata_csum")
        .make()
        .unwrap();
    let free = image.header("Free blocks").unwrap();
    let mount = Subject::Ext4.mount(image.path(), "").unwrap();
    let file = File::create(mount.join("f")).unwrap();
    let mut rng = Rng::new(77);
    let triple = 12 + 256 + 65_536;
    let mut blocks: BTreeSet<u64> = (0..2000).collect();
    for _ in 0..600 {
        blocks.insert(u64::from(rng.below(triple + 200_000)));
    }
    blocks.insert(u64::from(triple) + (1 << 24) - 1);
    for &at in &blocks {
        file.write_all_at(&[9; 1024], at * 1024).unwrap();
    }
    drop(file);
    let ino = ino_of(&mount.join("f"));
    mount.unmount().unwrap();

    // Small journal or none: the same.
    let mounted = MapMount::new(&image, true);
    assert_eq!(mapped(&mounted, ino), blocks);
    let inode = mounted.inode(ino);
    let fs = &mounted.fs;
    for round in 0..60 {
        let from = rng.below(if round % 2 == 0 {
            2100
        } else {
            triple + 200_000
        });
        let to = u64::from(from) + 1 + u64::from(rng.below(if round % 2 == 0 { 40 } else { 9000 }));
        let mut h = mounted.start(credits::remove(fs));
        map::remove(fs, &mut h, &inode, Lblk::new(from), to).unwrap();
        drop(h);
        blocks.retain(|&at| at < u64::from(from) || at >= to);
        assert_eq!(mapped(&mounted, ino), blocks, "{from}..{to}");
        if round % 10 == 0 {
            map::evict(fs, &inode);
            assert_eq!(mapped(&mounted, ino), blocks, "{from}..{to}");
        }
    }
    drop(inode);
    mounted.close();
    image.fsck_clean().unwrap();

    let mounted = MapMount::new(&image, true);
    assert_eq!(mapped(&mounted, ino), blocks);
    let inode = mounted.inode(ino);
    let fs = &mounted.fs;
    let mut h = mounted.start(credits::remove(fs) + credits::INODE_UPDATE);
    map::remove(fs, &mut h, &inode, Lblk::ZERO, MAX_END).unwrap();
    inode.update(fs, &mut h, |core| core.disk_size = 0).unwrap();
    assert_eq!(inode.core.read().sectors, 0);
    assert_eq!(inode.core.read().i_block, [0; 60]);
    drop(h);
    drop(inode);
    let left = fs.alloc.counts.free_blocks();
    assert!(left > Blocks::new(50_000));
    mounted.close();
    image.fsck_clean().unwrap();
    assert_eq!(image.header("Free blocks").unwrap(), free);
}
