//! Copies of the superblock: where one is found, which are believed, and what a volume is by one.

use std::path::Path;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, FileDevice, OpenMode};
use extant_check::{
    CheckOptions, check, find_superblock_copy, superblock_from_copy, with_superblock_copy,
};
use extant_disk::features::Incompat;
use extant_disk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State};
use extant_engine::VolumeOptions;
use extant_testkit::{Image, Need, Result, ensure, need};

const NEEDS: &[Need] = &[Need::Tool("mke2fs")];

/// The byte of the copy in group `number`, of groups of 8192 blocks of 1 KiB.
const fn copy_in(number: u64) -> u64 {
    (number * 8192 + 1) * 1024
}

/// The number of a copy's group, in a superblock.
const GROUP: u64 = 0x5a;

fn device(path: &Path) -> Result<Arc<dyn BlockDevice>> {
    Ok(Arc::new(FileDevice::open(path, OpenMode::ReadOnly)?))
}

fn found(image: &Image) -> Result<Option<u64>> {
    Ok(find_superblock_copy(&*device(image.path())?))
}

#[test]
fn the_first_copy_is_found_for_every_block_size() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (args, mib, expected) in [
        ("-b 1024", 20, copy_in(1)),
        ("-b 2048", 40, 16_384 * 2048),
        ("-b 4096", 140, 32_768 * 4096),
        // Larger blocks have bits for larger groups than there are.
        ("-b 8192", 600, 65_528 * 8192),
        ("-b 65536", 4200, 65_528 * 65_536),
    ] {
        let image = Image::of_mib(mib).args(args).make()?;
        ensure!(found(&image)? == Some(expected), "{args}");
        // Another copy, with its checksum, where no group begins.
        let copy = image.bytes(expected, SUPERBLOCK_SIZE)?;
        let beside = expected + (1 << 20);
        image.patch(beside, copy.len(), |to| to.copy_from_slice(&copy))?;
        let device = device(image.path())?;
        let refused = superblock_from_copy(&device, beside).is_err();
        ensure!(refused, "{args}: a copy that lies elsewhere");
        let own = superblock_from_copy(&device, SUPERBLOCK_OFFSET).is_err();
        ensure!(own, "{args}: the first superblock is no copy");
    }
    // One group has no copy, and a file that ends before its volume none that can be used.
    let image = Image::of_mib(8).args("-b 1024").make()?;
    ensure!(found(&image)?.is_none(), "one group");
    let image = Image::of_mib(20).args("-b 1024").make()?;
    let file = std::fs::File::options().write(true).open(image.path())?;
    for len in [19 << 20, copy_in(1) + 1024, copy_in(1), 512] {
        file.set_len(len)?;
        ensure!(found(&image)?.is_none(), "{len} bytes");
    }
    Ok(())
}

/// Linux before 6.0 left the number of group 0 in all copies when it grew a volume.
#[test]
fn a_copy_of_group_0_is_believed_if_another_confirms_it() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let make = |mib: u64| {
        let image = Image::of_mib(mib)
            .args("-b 1024 -O ^metadata_csum")
            .make()?;
        image.patch(copy_in(1) + GROUP, 2, |group| group.fill(0))?;
        Ok::<_, extant_testkit::Error>(image)
    };
    // Groups 1 and 3 have copies.
    let image = make(40)?;
    ensure!(found(&image)? == Some(copy_in(1)), "group 3 has another");
    let other = make(40)?;
    other.patch(copy_in(3) + 0x68, 16, |uuid| uuid.fill(7))?;
    ensure!(found(&other)?.is_none(), "another volume's");
    ensure!(found(&make(20)?)?.is_none(), "the only copy");
    // Three groups: what lies where a fourth would have its copy is none of the volume's.
    let short = make(20)?;
    let copy = image.bytes(copy_in(3), SUPERBLOCK_SIZE)?;
    let file = std::fs::File::options().write(true).open(short.path())?;
    file.set_len(40 << 20)?;
    let uuid = short.bytes(copy_in(1) + 0x68, 16)?;
    short.patch(copy_in(3), copy.len(), |to| {
        to.copy_from_slice(&copy);
        to[0x68..0x78].copy_from_slice(&uuid);
    })?;
    ensure!(found(&short)?.is_none(), "behind the end");
    Ok(())
}

/// By a copy a volume is not clean, and waits for a replay if its log holds transactions.
#[test]
fn a_volume_by_its_copy_is_replayed() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(20).args("-b 1024").make()?;
    let volume = VolumeOptions::new().write(true).open(image.path())?;
    let root = volume.root()?;
    let cred = extant_engine::Cred::root();
    volume.mkdir(&root, b"made", 0o755, &cred)?;
    volume.sync()?;
    // As a power cut leaves it.
    let cut = image.copy()?;
    drop(root);
    volume.unmount()?;
    for (image, waits) in [(&image, false), (&cut, true)] {
        image.patch(SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, |bytes| bytes.fill(0))?;
        let device = device(image.path())?;
        let bytes = superblock_from_copy(&device, copy_in(1))?;
        let raw = RawSuperblock::copy_from(&bytes).expect("a superblock");
        ensure!(raw.block_group_nr.get() == 0, "of another group");
        ensure!(!raw.state().contains(State::VALID), "clean");
        let recovers = raw.features().incompat.contains(Incompat::RECOVER);
        ensure!(recovers == waits, "{recovers}, not {waits}");
        let volume = with_superblock_copy(device, copy_in(1))?;
        let report = check(volume, &CheckOptions::default())?;
        ensure!(
            report.directories == 3,
            "root, lost+found, made: {report:?}"
        );
        ensure!((report.replayed > 0) == waits, "{report:?}");
    }
    Ok(())
}
