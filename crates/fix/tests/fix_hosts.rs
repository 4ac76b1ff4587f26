//! Another host that uses a volume beside a repair: multiple mount protection tells of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_disk::csum::Crc32c;
use extant_disk::mmp::{MMP_SIZE, Mmp, MmpState};
use extant_disk::superblock::Superblock;
use extant_fix::{Error, FixOptions, fix};
use extant_testkit::{Image, Need, Result, ensure, need};
use extant_units::DevOff;
use zerocopy::IntoBytes;

const NEEDS: &[Need] = &[Need::Tool("mke2fs")];

/// A device on which another host uses the volume for a moment: before a repair looks at the block
/// of the protection for the time of that number.
struct Visited {
    inner: MemoryDevice,
    block: u64,
    seed: Option<Crc32c>,
    comes_before: u64,
    reads: AtomicU64,
}

impl BlockDevice for Visited {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn read_fresh_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        if self.reads.fetch_add(1, Ordering::Relaxed) == self.comes_before {
            let mut bytes = [0; MMP_SIZE];
            self.inner.read_at(DevOff::new(self.block), &mut bytes)?;
            let mut mmp = Mmp::parse(&bytes, self.seed).map_err(io::Error::other)?;
            mmp.time.set(mmp.time.get() + 60);
            mmp.seal(self.seed);
            self.inner
                .write_at(DevOff::new(self.block), mmp.as_bytes())?;
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

/// A repair would undo the change of a host between the check and the first write. A host that
/// comes later is told of, and keeps what it wrote into the block.
#[test]
fn a_volume_that_another_host_has_used_meanwhile_is_not_written() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(8).args("-b 1024 -O mmp").make()?;
    let mut bytes = fs::read(image.path())?;
    let sb = Superblock::parse(&bytes[1024..2048])?;
    let block = usize::try_from(sb.raw().mmp_block.get())? * sb.block_size().bytes();
    let seed = Some(sb.checksum_seed());
    bytes[1024 + 1020] ^= 1;
    // The first look finds the volume free. The others are before and after the volume is taken,
    // and before it is released.
    for comes_before in 1..=3 {
        let device = Arc::new(Visited {
            inner: MemoryDevice::from_bytes(&bytes),
            block: block as u64,
            seed,
            comes_before,
            reads: AtomicU64::new(0),
        });
        let refused = fix(Arc::clone(&device) as _, &FixOptions::default());
        let what = || format!("before look {comes_before}: {refused:?}");
        ensure!(matches!(refused, Err(Error::InUse)), "{}", what());
        let mut after = device.inner.to_bytes();
        let here = block..block + MMP_SIZE;
        // The time is 60 seconds after the one that was there last: of mke2fs, or of the repair.
        let last = Mmp::parse(&after[here.clone()], seed)?;
        let first = Mmp::parse(&bytes[here.clone()], seed)?;
        let state = match comes_before {
            1 => MmpState::Clean,
            _ => MmpState::Fsck,
        };
        ensure!(last.state() == state, "{}, {last:?}", what());
        ensure!(last.time.get() >= first.time.get() + 60, "{}", what());
        after[here.clone()].copy_from_slice(&bytes[here]);
        ensure!((after == bytes) == (comes_before < 3), "{}", what());
    }
    Ok(())
}
