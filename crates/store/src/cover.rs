//! A device that is never written, with a layer over it.

use std::io;

use extant_blockdev::BlockDevice;
use extant_units::{DevOff, index};
use parking_lot::RwLock;

use crate::layer::{BLOCK, BLOCK_LEN, Layer};

/// A base and its layer, as one device.
///
/// # Concurrency
/// A part of a block that is not in the layer is written with the rest of the block from the base,
/// while no other write is under way: the rest may be what that one writes.
pub(crate) struct Cover<D> {
    base: D,
    layer: Layer,
    writes: RwLock<()>,
}

impl<D: BlockDevice> Cover<D> {
    /// `layer` over `base`, which has the length that the layer expects.
    pub(crate) fn new(base: D, layer: Layer) -> Self {
        debug_assert_eq!(base.len(), layer.base().image_bytes);
        Self {
            base,
            layer,
            writes: RwLock::default(),
        }
    }

    pub(crate) fn layer(&self) -> &Layer {
        &self.layer
    }

    fn check(&self, offset: DevOff, len: usize) -> io::Result<()> {
        let end = offset.get().checked_add(len as u64);
        match end.is_some_and(|end| end <= self.base.len()) {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// The content of block `block` in the base, behind its end with zeros.
    fn base_block(&self, block: u64) -> io::Result<[u8; BLOCK_LEN]> {
        let mut bytes = [0; BLOCK_LEN];
        let at = block * BLOCK;
        let len = index((self.base.len() - at).min(BLOCK));
        self.base.read_at(DevOff::new(at), &mut bytes[..len])?;
        Ok(bytes)
    }

    /// Writes a part of one block, from byte `at` of the image on.
    fn write_part(&self, at: u64, buf: &[u8]) -> io::Result<()> {
        let block = at / BLOCK;
        if !self.layer.has(block) {
            // The base may be far away.
            let mut bytes = self.base_block(block)?;
            let _alone = self.writes.write();
            if !self.layer.has(block) {
                let from = index(at % BLOCK);
                bytes[from..from + buf.len()].copy_from_slice(buf);
                return self.layer.write(block * BLOCK, &bytes);
            }
        }
        let _beside = self.writes.read();
        self.layer.write(at, buf)
    }
}

impl<D: BlockDevice> BlockDevice for Cover<D> {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn is_read_only(&self) -> bool {
        self.layer.is_read_only()
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        let (mut at, mut rest) = (offset.get(), buf);
        while !rest.is_empty() {
            // As far as the blocks are in one of the two.
            let end = at + rest.len() as u64;
            let here = self.layer.has(at / BLOCK);
            let mut next = (at / BLOCK + 1) * BLOCK;
            while next < end && self.layer.has(next / BLOCK) == here {
                next += BLOCK;
            }
            let (part, behind) = rest.split_at_mut(index(next.min(end) - at));
            match here {
                true => self.layer.read(at, part)?,
                false => self.base.read_at(DevOff::new(at), part)?,
            }
            (at, rest) = (next, behind);
        }
        Ok(())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        if self.is_read_only() {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        self.check(offset, buf.len())?;
        let (mut at, mut rest) = (offset.get(), buf);
        while !rest.is_empty() {
            let whole = rest.len() as u64 / BLOCK * BLOCK;
            let len = match at % BLOCK {
                0 if whole > 0 => index(whole),
                from => rest.len().min(BLOCK_LEN - index(from)),
            };
            let (part, behind) = rest.split_at(len);
            if len as u64 >= BLOCK {
                let _beside = self.writes.read();
                self.layer.write(at, part)?;
            } else {
                self.write_part(at, part)?;
            }
            (at, rest) = (at + len as u64, behind);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.layer.flush()
    }

    fn write_note(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        self.layer.write_note(offset.get(), buf)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.base.counters();
        counters.push(("blocks_in_layer", self.layer.blocks()));
        counters
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};
    use std::time::Duration;

    use extant_blockdev::MemoryDevice;
    use extant_testkit::crash::{Budget, CrashState, Explorer};
    use extant_testkit::recorder::Recorder;
    use extant_testkit::{Fault, FaultyDevice, Loss, LossyDevice, Rng};

    use super::*;
    use crate::hash::ObjectHash;
    use crate::layer::{self, Base};

    /// Bytes of the image: its last block is a part of one.
    const LEN: usize = 40 * BLOCK_LEN + 1536;
    const SECTOR: usize = 512;

    fn base(version: u64) -> Base {
        Base {
            image_bytes: LEN as u64,
            name: "root".to_owned(),
            version,
            manifest: ObjectHash::of(&[version.to_le_bytes()[0]]),
        }
    }

    fn content(rng: &mut Rng, len: usize) -> Vec<u8> {
        let bytes = |_| rng.next_u64().to_le_bytes();
        (0..len.div_ceil(8)).flat_map(bytes).take(len).collect()
    }

    /// A new layer over version 1.
    fn empty() -> Vec<u8> {
        let file = MemoryDevice::new(layer::file_bytes(LEN as u64).unwrap());
        layer::format(&file, &base(1)).unwrap();
        file.to_bytes()
    }

    fn cover(image: &[u8], file: Arc<dyn BlockDevice>) -> Cover<MemoryDevice> {
        Cover::new(
            MemoryDevice::from_bytes(image),
            Layer::open(file, "layer").unwrap(),
        )
    }

    fn all(device: &dyn BlockDevice) -> Vec<u8> {
        let mut bytes = vec![0; LEN];
        device.read_at(DevOff::ZERO, &mut bytes).unwrap();
        bytes
    }

    /// Sectors that a write begins at and ends before.
    fn extent(rng: &mut Rng) -> (usize, usize) {
        let from = index(rng.below((LEN / SECTOR) as u64));
        let most = (LEN / SECTOR - from).min(if rng.below(3) == 0 { 30 } else { 5 });
        (from, from + 1 + index(rng.below(most as u64)))
    }

    #[test]
    fn reads_and_writes_are_those_of_a_disk() {
        let mut rng = Rng::new(7);
        let image = content(&mut rng, LEN);
        let file = Arc::new(MemoryDevice::from_bytes(&empty()));
        let one = cover(&image, Arc::clone(&file) as _);
        let mut expected = image.clone();
        for round in 0..300 {
            let from = index(rng.below(LEN as u64));
            let len = index(rng.below(20_000)).min(LEN - from);
            let bytes = content(&mut rng, len);
            one.write_at(DevOff::new(from as u64), &bytes).unwrap();
            expected[from..from + len].copy_from_slice(&bytes);
            let from = index(rng.below(LEN as u64));
            let mut read = vec![0; index(rng.below(50_000)).min(LEN - from)];
            one.read_at(DevOff::new(from as u64), &mut read).unwrap();
            assert!(read == expected[from..from + read.len()], "round {round}");
        }
        one.flush().unwrap();
        assert!(all(&cover(&image, Arc::clone(&file) as _)) == expected);
        for (at, len) in [(LEN, 1), (LEN - 1, 2), (usize::MAX, 1)] {
            let at = DevOff::new(at as u64);
            assert!(one.write_at(at, &vec![0; len]).is_err());
            assert!(one.read_at(at, &mut vec![0; len]).is_err());
        }
        // The version behind has this content.
        one.layer().put_on(base(2)).unwrap();
        let next = cover(&expected, file);
        assert_eq!((next.layer().base(), next.layer().blocks()), (base(2), 0));
        assert!(all(&next) == expected);
    }

    #[test]
    fn parts_of_a_block_that_threads_write_at_once_are_all_there() {
        let image = vec![1; LEN];
        let file = MemoryDevice::from_bytes(&empty());
        let slow = FaultyDevice::new(file, |_| Fault::Delay(Duration::from_millis(1)));
        let one = cover(&image, Arc::new(slow));
        let quarter = BLOCK_LEN / 4;
        let together = Barrier::new(4);
        std::thread::scope(|scope| {
            for nth in 0..4u8 {
                let (one, together) = (&one, &together);
                scope.spawn(move || {
                    for block in 0..40 {
                        let at =
                            DevOff::new((block * BLOCK_LEN + usize::from(nth) * quarter) as u64);
                        together.wait();
                        one.write_at(at, &vec![2 + nth; quarter]).unwrap();
                    }
                });
            }
        });
        let bytes = all(&one);
        for (nth, part) in bytes[..40 * BLOCK_LEN].chunks(quarter).enumerate() {
            assert!(
                part.iter().all(|&byte| usize::from(byte) == 2 + nth % 4),
                "{nth}"
            );
        }
    }

    #[test]
    fn after_a_failed_flush_no_bit_is_written() {
        let mut rng = Rng::new(5);
        let image = content(&mut rng, LEN);
        let before = empty();
        // The host loses what was written, says so once, and goes on.
        let file = Arc::new(LossyDevice::new(MemoryDevice::from_bytes(&before)));
        let one = cover(&image, Arc::clone(&file) as _);
        let write = |block: u64| one.write_at(DevOff::new(block * BLOCK), &[1; 8192]);
        write(3).unwrap();
        one.flush().unwrap();
        write(20).unwrap();
        file.fail(Loss {
            after: 0,
            seed: 1,
            cached: true,
        });
        assert!(one.flush().is_err());
        assert!(one.flush().is_err(), "it was said once, and holds");
        assert!(one.write_note(DevOff::new(20 * BLOCK), &[2; 512]).is_err());
        one.write_note(DevOff::new(3 * BLOCK), &[2; 512]).unwrap();
        file.drop_cache().unwrap();
        let after = cover(
            &image,
            Arc::new(MemoryDevice::from_bytes(&all_of(file.inner()))),
        );
        let mut expected = image.clone();
        expected[3 * BLOCK_LEN..][..8192].fill(1);
        expected[3 * BLOCK_LEN..][..512].fill(2);
        assert!(
            all(&after) == expected,
            "the lost blocks are those of the base"
        );
    }

    /// A run of writes and flushes on a recorded file: the contents that each sector had, with the
    /// number of events when it was to get it, and the flushes that had ended by then.
    struct Run {
        image: Vec<u8>,
        last: Vec<u8>,
        sectors: Vec<Vec<(usize, Vec<u8>)>>,
        flushed: Vec<(usize, usize)>,
    }

    impl Run {
        /// Returns whether the content of a sector may be there after a cut at `event`.
        fn allows(&self, sector: usize, found: &[u8], event: usize) -> bool {
            let ended = self.flushed.iter().rev().find(|(_, end)| *end <= event);
            let durable = ended.map_or(0, |(begin, _)| *begin);
            let contents = &self.sectors[sector];
            let kept = contents.partition_point(|(at, _)| *at < durable);
            let first = kept.saturating_sub(1);
            let tried = contents[first..].iter().filter(|(at, _)| *at <= event);
            tried.into_iter().any(|(_, content)| content == found)
        }

        fn check(&self, state: &CrashState) -> Result<(), String> {
            let file = Arc::new(MemoryDevice::from_bytes(&all_of(&state.device)));
            let layer = Layer::open(file, "layer").map_err(|error| error.to_string())?;
            let image = match layer.base().version {
                1 => &self.image,
                _ => &self.last,
            };
            let bytes = all(&Cover::new(MemoryDevice::from_bytes(image), layer));
            let event = state.cut.event();
            for (sector, found) in bytes.chunks(SECTOR).enumerate() {
                if !self.allows(sector, found, event) {
                    return Err(format!("sector {sector} was never this"));
                }
            }
            Ok(())
        }
    }

    fn all_of(device: &dyn BlockDevice) -> Vec<u8> {
        let mut bytes = vec![0; index(device.len())];
        device.read_at(DevOff::ZERO, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_cut_leaves_what_a_disk_would_have() {
        let mut states = 0;
        for seed in 0..6 {
            let mut rng = Rng::new(seed);
            let image = content(&mut rng, LEN);
            let before = empty();
            let file = Arc::new(Recorder::new(MemoryDevice::from_bytes(&before)));
            let one = cover(&image, Arc::clone(&file) as _);
            let first = image.chunks(SECTOR).map(|bytes| vec![(0, bytes.to_vec())]);
            let mut run = Run {
                sectors: first.collect(),
                flushed: Vec::new(),
                last: Vec::new(),
                image,
            };
            for _ in 0..24 {
                let begin = file.position();
                if rng.below(4) == 0 {
                    one.flush().unwrap();
                    run.flushed.push((begin, file.position()));
                    continue;
                }
                let (from, end) = extent(&mut rng);
                let bytes = content(&mut rng, (end - from) * SECTOR);
                for (sector, bytes) in (from..end).zip(bytes.chunks(SECTOR)) {
                    run.sectors[sector].push((begin, bytes.to_vec()));
                }
                let at = DevOff::new((from * SECTOR) as u64);
                one.write_at(at, &bytes).unwrap();
            }
            run.last = all(&one);
            one.layer().put_on(base(2)).unwrap();
            let budget = Budget {
                exhaustive_below: 5,
                samples: 12,
                torn: 2,
                cut_stride: 1,
            };
            let explorer = Explorer::new(before, file.events(), seed, budget);
            let visited = explorer.run(|state| run.check(&state));
            states += visited
                .unwrap_or_else(|failed| panic!("seed {seed}: {failed:?}"))
                .all();
        }
        assert!(states > 500, "{states}");
    }
}
