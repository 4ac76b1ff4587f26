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
#[derive(Debug)]
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

    pub(crate) fn base(&self) -> &D {
        &self.base
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

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.base.counters();
        counters.push(("blocks_in_layer", self.layer.blocks()));
        counters
    }
}
