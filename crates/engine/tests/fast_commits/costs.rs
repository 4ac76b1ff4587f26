//! The price of an fsync: writes and flushes of the device, with fast commits and without, of ours
//! and of Linux's ext4 on the same volume.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::Arc;

use extant_blockdev::MemoryDevice;
use extant_engine::{Cred, Tuning, VolumeOptions};
use extant_testkit::{Event, Image, Need, RecordedLinux, Recorder, Result, ensure, need, report};

use crate::kit::told;

/// The operations of a run.
const ROUNDS: u64 = 32;
const BLOCK: usize = 4096;

/// The requests of a run, per operation.
#[derive(Clone, Copy, Default, Debug)]
struct Price {
    /// Blocks written, data included.
    blocks: f64,
    flushes: f64,
}

impl Price {
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    fn of(events: &[Event]) -> Self {
        let bytes = |event: &Event| match event {
            Event::Write { data, .. } => data.len(),
            _ => 0,
        };
        let blocks: usize = events.iter().map(bytes).sum::<usize>() / BLOCK;
        let flushes = events.iter().filter(|e| matches!(e, Event::Flush { .. }));
        Self {
            blocks: blocks as f64 / ROUNDS as f64,
            flushes: flushes.count() as f64 / ROUNDS as f64,
        }
    }
}

fn volume(fast: bool) -> Result<Vec<u8>> {
    let feature = if fast {
        ",fast_commit_size=256 -O fast_commit"
    } else {
        ""
    };
    let args = format!("-b 4096 -E lazy_itable_init=0,nodiscard -J size=8{feature}");
    Ok(std::fs::read(Image::of_mib(64).args(&args).make()?.path())?)
}

/// Appends of a block, and creations of empty files, each with an fsync.
fn ours(fast: bool) -> Result<[Price; 2]> {
    let dev = Arc::new(Recorder::in_pieces(
        MemoryDevice::from_bytes(&volume(fast)?),
        BLOCK as u64,
    ));
    let mut tuning = Tuning::default();
    tuning.flushers = 0;
    let mut options = VolumeOptions::new();
    let options = options.write(true).mount_options("commit=300");
    let volume = options.tuning(tuning).open_on(dev.clone()).map_err(told)?;
    let (root, cred) = (volume.root().map_err(told)?, Cred::root());
    let grows = volume.create(&root, b"grows", 0o644, &cred).map_err(told)?;
    volume.append(&grows, &[1; BLOCK], &cred).map_err(told)?;
    volume.sync().map_err(told)?;
    let begun = dev.position();
    for _ in 0..ROUNDS {
        volume.append(&grows, &[7; BLOCK], &cred).map_err(told)?;
        volume.fsync(&grows, false).map_err(told)?;
    }
    let middle = dev.position();
    for number in 0..ROUNDS {
        let name = format!("new{number}");
        let file = volume.create(&root, name.as_bytes(), 0o644, &cred);
        volume.fsync(&file.map_err(told)?, false).map_err(told)?;
    }
    let stats = volume.stats();
    let fast_commits = stats.iter().find(|(name, _)| *name == "fast_commits");
    let fast_commits = fast_commits.map_or(0, |(_, count)| *count);
    // A directory that grows is the exception.
    ensure!(fast == (fast_commits > 2 * ROUNDS - 8), "{stats:?}");
    let events = dev.events();
    let prices = [
        Price::of(&events[begun..middle]),
        Price::of(&events[middle..]),
    ];
    drop((root, grows));
    volume.unmount().map_err(told)?;
    Ok(prices)
}

fn linux(fast: bool) -> Result<[Price; 2]> {
    let mut linux = RecordedLinux::new(&volume(fast)?, BLOCK as u64, "commit=300")?;
    let path = |name: &str| linux.dir().join(name);
    let mut grows = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path("grows"))?;
    grows.write_all(&[1; BLOCK])?;
    grows.sync_all()?;
    // The first one is a full commit on either volume.
    grows.write_all(&[1; BLOCK])?;
    grows.sync_all()?;
    let begun = linux.position();
    for _ in 0..ROUNDS {
        grows.write_all(&[7; BLOCK])?;
        grows.sync_all()?;
    }
    let middle = linux.position();
    for number in 0..ROUNDS {
        File::create_new(path(&format!("new{number}")))?.sync_all()?;
    }
    let events = linux.events();
    let prices = [
        Price::of(&events[begun..middle]),
        Price::of(&events[middle..]),
    ];
    drop(grows);
    linux.unmount()?;
    Ok(prices)
}

fn show(subject: &str, prices: &[Price; 2]) {
    let [append, create] = prices;
    report(&format!(
        "{subject}: an append {:.2} blocks and {:.2} flushes, a creation {:.2} and {:.2}",
        append.blocks, append.flushes, create.blocks, create.flushes
    ));
}

#[test]
fn an_fsync_is_one_block_of_the_log() -> Result<()> {
    let (fast, whole) = (ours(true)?, ours(false)?);
    show("with fast commits", &fast);
    show("without", &whole);
    // A block of data, one of the log; the preflush and the block itself.
    ensure!(fast[0].blocks < 3.0, "{fast:?}");
    ensure!(fast[1].blocks < 2.0, "{fast:?}");
    ensure!(whole[1].blocks > 4.0, "{whole:?}");
    // What was committed before goes home in front of the first one.
    let flushes = whole[0].flushes + 0.25;
    ensure!(fast[0].flushes <= flushes, "{fast:?}, {whole:?}");
    if need(&[Need::Root, Need::Fuse, Need::Loop]) {
        show("Linux with fast commits", &linux(true)?);
        show("Linux without", &linux(false)?);
    }
    Ok(())
}
