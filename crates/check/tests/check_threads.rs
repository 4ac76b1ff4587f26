//! The report on an image is the same whatever the number of threads, and whichever comes first.
//!
//! `EXTANT_MUTANTS` (25) is the number of mutated images, `EXTANT_SEED` (0) the first seed.

mod check_kit;

use std::io;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use check_kit::mutants::{Mutants, NEEDS};
use check_kit::{BASES, LARGE_BLOCKS, READ_ONLY, damage, kind};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_check::{CheckOptions, Report, check};
use extant_disk::damage::MapDamage;
use extant_testkit::{Image, Result, ensure, need};
use extant_units::DevOff;

/// The report, or the reason why there is none, as text.
fn run(
    device: Arc<dyn BlockDevice>,
    threads: usize,
    max_findings: usize,
) -> extant_check::Result<Report> {
    let options = CheckOptions {
        threads,
        max_findings,
        ..CheckOptions::default()
    };
    check(device, &options)
}

fn report(device: Arc<dyn BlockDevice>, threads: usize, max_findings: usize) -> String {
    format!("{:#?}", run(device, threads, max_findings))
}

#[test]
fn mutated_images_have_one_report() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    Mutants::new(25, 4, &[BASES, LARGE_BLOCKS, READ_ONLY].concat())?.each(|mutant| {
        let bytes = mutant.bytes;
        let plain: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&bytes));
        let slow: Arc<dyn BlockDevice> = Arc::new(Backwards {
            inner: MemoryDevice::from_bytes(&bytes),
            delay: Duration::from_micros(40),
        });
        // With a limit that some images exceed.
        for (limit, device, threads) in [
            (10_000, &plain, 2),
            (10_000, &plain, 4),
            (3, &slow, 2),
            (3, &plain, 4),
        ] {
            let one = report(Arc::clone(&plain), 1, limit);
            let many = report(Arc::clone(device), threads, limit);
            ensure!(many == one, "{threads} threads:\n{many}\none:\n{one}");
        }
        Ok(())
    })
}

/// A device on which what is read first comes last: a read takes longer the nearer it is to the
/// start.
struct Backwards {
    inner: MemoryDevice,
    /// For each MiB by which it is nearer.
    delay: Duration,
}

impl BlockDevice for Backwards {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        let mib = u32::try_from(offset.get() >> 20).unwrap_or(u32::MAX);
        let nearer = 4_u32.saturating_sub(mib);
        if nearer > 0 {
            sleep(self.delay * nearer);
        }
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Inodes of several groups with the same blocks, more of them than findings are kept: which is
/// told to be in the wrong does not depend on which thread comes first.
#[test]
fn blocks_with_two_owners_have_one_report() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let args = "-b 1024 -g 1024 -N 256 -O none";
    let image = Image::of_mib(4).args(args).make()?;
    // Two files in each of four groups of 64 inodes; every two have a block in common.
    let mut requests = String::new();
    for group in 0..4 {
        for file in 0..2 {
            let ino = group * 64 + 40 + file;
            requests += &format!("seti <{ino}>\n");
            for (field, value) in [
                ("mode", 0o100_644),
                ("size", 1024),
                ("blocks", 2),
                ("block[0]", 3500 + file),
                ("links_count", 1),
            ] {
                requests += &format!("sif <{ino}> {field} {value}\n");
            }
        }
    }
    damage(&image, &requests)?;
    let bytes = std::fs::read(image.path())?;
    for limit in [4, 10_000] {
        let plain = Arc::new(MemoryDevice::from_bytes(&bytes));
        let found = run(plain, 1, limit);
        let one = format!("{found:#?}");
        let shared = kind!(Map(MapDamage::Shared { .. }));
        let findings = found.iter().flat_map(|report| &report.findings);
        ensure!(shared.is_in(findings.map(|finding| &finding.kind)), "{one}");
        for threads in [2, 4] {
            let slow = Arc::new(Backwards {
                inner: MemoryDevice::from_bytes(&bytes),
                delay: Duration::from_millis(2),
            });
            let many = report(slow, threads, limit);
            ensure!(many == one, "{threads} threads:\n{many}\none:\n{one}");
        }
    }
    Ok(())
}
