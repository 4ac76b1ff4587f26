//! Space that is reserved in quotas for delayed data: all of it is used up or given back, which a
//! debug build asserts at the unmount (J49).

use extant_engine::{Cred, FallocateMode, VolumeOptions};
use extant_testkit::Image;

/// Delayed blocks close the holes between extents, so that the map needs its nodes no more: it
/// grows by less than was reserved.
#[test]
fn a_map_that_loses_its_nodes_leaves_nothing_reserved() {
    const BLOCK: u64 = 1024;
    let image = Image::of_mib(16).args("-b 1024 -O quota").make().unwrap();
    let mut options = VolumeOptions::new();
    let options = options.write(true).mount_options("usrquota,grpquota");
    let volume = options.open(image.path()).unwrap();
    let cred = Cred::root();
    let root = volume.root().unwrap();
    let file = volume.create(&root, b"file", 0o644, &cred).unwrap();
    // Unwritten, as delayed blocks are where they enter the map.
    let mode = FallocateMode::Allocate { keep_size: false };
    volume.fallocate(&file, mode, 0, 40 * BLOCK, &cred).unwrap();
    for at in (1..40).step_by(2) {
        let punched = volume.fallocate(&file, FallocateMode::PunchHole, at * BLOCK, BLOCK, &cred);
        punched.unwrap();
    }
    // The blocks are free once this is durable, and the nearest to the places in between.
    volume.sync().unwrap();
    for at in (1..40).step_by(2) {
        volume.write(&file, at * BLOCK, &[8; 1024], &cred).unwrap();
    }
    volume.fsync(&file, false).unwrap();
    drop((file, root));
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}
