//! Metadata that has to move, and what earlier users of the blocks and resizes that were cut have
//! left.

mod resize_kit;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_disk::superblock::SUPERBLOCK_SIZE;
use extant_resize::{Target, resize};
use extant_testkit::{
    Context, Fault, FaultyDevice, Image, Request, RequestKind, Result, Rng, ensure, need,
};
use extant_units::DevOff;
use resize_kit::{NEEDS, content, content_of, fill, options, resized, run, same};

const MIB: u64 = 1 << 20;

/// Without a reserve more descriptors need blocks of the first group's bitmaps and inode tables.
#[test]
fn bitmaps_and_tables_make_room_for_descriptors() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for args in [
        "-b 1024 -N 800 -O ^resize_inode",
        "-b 1024 -N 800 -O ^resize_inode,^flex_bg",
        "-b 1024 -N 800 -O ^resize_inode,^flex_bg,^metadata_csum,^uninit_bg",
    ] {
        let image = Image::of_mib(24).args(args).make()?;
        fill(&image, &mut Rng::new(7), 30)?;
        // A block has the descriptors of sixteen groups, or of 32.
        let report = resized(&image, Target::Bytes(270 * MIB)).context(|| args)?;
        ensure!(report.blocks == 270 << 10, "{args}: {report:?}");
    }
    Ok(())
}

/// The device behind the end may hold anything: inodes of new groups are none, all the same.
#[test]
fn new_groups_have_no_inodes_of_earlier_users() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for args in ["", "-O ^metadata_csum,^uninit_bg"] {
        let image = Image::of_mib(8).args("-b 1024 -N 400").args(args).make()?;
        fill(&image, &mut Rng::new(8), 20)?;
        let mut bytes = std::fs::read(image.path())?;
        bytes.resize(20 << 20, 0xa5);
        let dev: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&bytes));
        let before = content_of(&image)?;
        resize(Arc::clone(&dev), Target::Bytes(20 * MIB), &options())?;
        same(&content(Arc::clone(&dev))?, &before).context(|| args)?;
        let mut bytes = vec![0; bytes.len()];
        dev.read_at(DevOff::new(0), &mut bytes)?;
        std::fs::write(image.path(), bytes)?;
        image.fsck_clean().context(|| args)?;
    }
    Ok(())
}

/// The copies of the superblock that a resize was cut before are written by the next one, which
/// finds the size that it asks for.
#[test]
fn copies_of_the_size_before_are_written_later() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(24).args("-b 1024 -N 400").make()?;
    // In the second group.
    const COPY: u64 = 8193 * 1024;
    let old = image.bytes(COPY, SUPERBLOCK_SIZE)?;
    resized(&image, Target::Bytes(40 * MIB))?;
    let new = image.bytes(COPY, SUPERBLOCK_SIZE)?;
    ensure!(old != new, "the copy has the old size");
    image.patch(COPY, SUPERBLOCK_SIZE, |bytes| bytes.copy_from_slice(&old))?;
    run(&image, Target::Bytes(40 * MIB))?;
    let after = image.bytes(COPY, SUPERBLOCK_SIZE)?;
    ensure!(
        u32_at(&after, 4) == u32_at(&new, 4),
        "the copy is as it was"
    );
    image.fsck_clean()
}

/// Blocks that a replay has brought home when the power goes are no reason to leave the others: the
/// superblock of the log asks for a recovery, too.
#[test]
fn a_replay_that_is_cut_begins_again() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(6).args("-b 1024 -N 200").make()?;
    fill(&image, &mut Rng::new(10), 40)?;
    let bytes = std::fs::read(image.path())?;
    let mut grown = bytes.clone();
    grown.resize(19 << 20, 0);
    let until = |bytes: &[u8], first: u64| {
        let count = AtomicU64::new(0);
        let plan = move |request: Request<'_>| match request.kind {
            RequestKind::Write if count.fetch_add(1, Ordering::Relaxed) >= first => {
                Fault::Fail(std::io::ErrorKind::Other)
            }
            _ => Fault::Pass,
        };
        Arc::new(FaultyDevice::new(MemoryDevice::from_bytes(bytes), plan))
    };
    // From the commit on the log waits, until its blocks are home.
    let mut waiting = Vec::new();
    for first in 0.. {
        let dev = until(&grown, first);
        let done = resize(Arc::clone(&dev) as _, Target::Bytes(19 * MIB), &options());
        let left = dev.inner().to_bytes();
        if u32_at(&left, 1024 + 0x60) & 4 != 0 {
            waiting.push(left);
        }
        if done.is_ok() {
            break;
        }
    }
    let mut cut = 0;
    for (nth, committed) in waiting.iter().enumerate() {
        for first in [1, 3] {
            let dev = until(committed, first);
            let mut mount = extant::Options::new();
            let mount = mount.write(true).open_device(Arc::clone(&dev) as _);
            cut += u32::from(mount.is_err());
            drop(mount);
            let left = MemoryDevice::from_bytes(&dev.inner().to_bytes());
            let checked = extant_check::check(Arc::new(left), &options().check)?;
            ensure!(checked.is_clean(), "{nth}, {first}: {checked:?}");
        }
    }
    ensure!(cut > 3, "no replay was cut: {cut} of {}", waiting.len());
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes[at..at + 4].first_chunk();
    u32::from_le_bytes(*four.expect("four bytes"))
}
