//! Files in many runs, and what is in them.

use extant_check::{CheckOptions, check_image};
use extant_engine::{Cred, FallocateMode, Node, SetAttr, Volume, VolumeOptions};
use extant_testkit::{Image, content};

/// Names of both paths in mount options.
pub(crate) const PATHS: &[&str] = &["", "nobuffered_iomap", "nobuffered_iomap,dioread_lock"];

pub(crate) fn options(mount: &str) -> VolumeOptions {
    let mut options = VolumeOptions::new();
    options.write(true).mount_options(mount);
    options
}

pub(crate) fn create(volume: &Volume, name: &str) -> Node {
    let root = volume.root().unwrap();
    volume
        .create(&root, name.as_bytes(), 0o644, &Cred::root())
        .unwrap()
}

pub(crate) fn find(volume: &Volume, name: &str) -> Node {
    let root = volume.root().unwrap();
    volume.lookup(&root, name.as_bytes()).unwrap()
}

/// Runs with a place.
pub(crate) fn runs(volume: &Volume, node: &Node) -> u64 {
    let all = volume.map(node, 0).map(Result::unwrap);
    all.filter(|extent| extent.physical.is_some()).count() as u64
}

/// The bytes of block `at`.
pub(crate) fn bytes(at: u64, block: u64) -> Vec<u8> {
    content::fill(at + 1, at * block, usize::try_from(block).unwrap())
}

/// A file of `blocks` blocks in as many runs: every other block of one twice as long was taken out.
pub(crate) fn scattered(volume: &Volume, name: &str, blocks: u64) -> Node {
    let cred = Cred::root();
    let block = u64::from(volume.block_size());
    let node = create(volume, name);
    let change = |mode, at: u64, count: u64| {
        let done = volume.fallocate(&node, mode, at * block, count * block, &cred);
        done.unwrap();
    };
    change(
        FallocateMode::Allocate { keep_size: false },
        0,
        2 * blocks + 1,
    );
    for at in (0..blocks).rev() {
        change(FallocateMode::CollapseRange, 2 * at + 1, 1);
    }
    let size = SetAttr {
        size: Some(blocks * block),
        ..SetAttr::default()
    };
    volume.setattr(&node, &size, &cred).unwrap();
    for at in 0..blocks {
        volume
            .write(&node, at * block, &bytes(at, block), &cred)
            .unwrap();
    }
    volume.sync().unwrap();
    node
}

/// Compares the first `blocks` blocks.
pub(crate) fn compare(volume: &Volume, node: &Node, blocks: u64) -> Result<(), String> {
    let block = u64::from(volume.block_size());
    let mut buf = vec![0; usize::try_from(block).unwrap()];
    for at in 0..blocks {
        let done = volume.read(node, at * block, &mut buf);
        let done = done.map_err(|error| format!("block {at}: {error}"))?;
        if done != buf.len() || buf != bytes(at, block) {
            return Err(format!("block {at} is not what was written"));
        }
    }
    Ok(())
}

/// No handle used more than it had asked for (J22).
fn no_overflow(volume: &Volume) {
    let counters = volume.stats();
    let overflow = counters.iter().find(|(name, _)| *name == "credit_overflow");
    assert_eq!(overflow, Some(&("credit_overflow", 0)));
}

pub(crate) fn close(image: &Image, volume: Volume) {
    volume.unmount().unwrap();
    no_overflow(&volume);
    drop(volume);
    image.fsck_clean().unwrap();
    let report = check_image(image.path(), &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}
