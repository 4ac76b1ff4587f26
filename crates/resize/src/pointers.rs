//! Block maps of ext2 and ext3: pointers in the inode, and in blocks below it.

use extant_disk::inode::{BLOCK_AREA, InodeCore};
use extant_units::Pblk;

use crate::error::{Error, Result};
use crate::extents::one;
use crate::volume::Volume;

/// Pointers in an inode that lead to data; the three behind them lead to blocks of pointers.
const DIRECT: usize = 12;

/// Levels of pointers below each of the inode's.
pub(crate) fn level_of(slot: usize) -> u32 {
    match slot {
        0..DIRECT => 0,
        DIRECT => 1,
        13 => 2,
        _ => 3,
    }
}

/// Block numbers of 32 bits as they are stored.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u32::from_le_bytes(*word))
}

/// The bytes of block numbers, filled with zeros to `len`.
pub(crate) fn numbers(blocks: impl Iterator<Item = u64>, len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len);
    for block in blocks {
        let narrow = u32::try_from(block);
        let narrow = narrow.map_err(|_| Error::unreadable(format_args!("block {block}")))?;
        bytes.extend_from_slice(&narrow.to_le_bytes());
    }
    assert!(bytes.len() <= len, "the numbers have room");
    bytes.resize(len, 0);
    Ok(bytes)
}

impl Volume {
    /// Moves what of a block map must move. Returns whether the inode has changed.
    pub(crate) fn move_pointers(&mut self, core: &mut InodeCore) -> Result<bool> {
        let old: Vec<u32> = words(&core.i_block).collect();
        let mut new = Vec::with_capacity(old.len());
        for (slot, pointer) in old.iter().enumerate() {
            new.push(self.move_pointer(*pointer, level_of(slot))?);
        }
        if new == old {
            return Ok(false);
        }
        let bytes = numbers(new.into_iter().map(u64::from), BLOCK_AREA)?;
        core.i_block.copy_from_slice(&bytes);
        Ok(true)
    }

    /// Moves a block and what is below it. Returns where it is then.
    fn move_pointer(&mut self, pointer: u32, level: u32) -> Result<u32> {
        if pointer == 0 {
            return Ok(0);
        }
        let old = u64::from(pointer);
        let run = one(Pblk::new(old));
        let mut new = old;
        if self.must_move(&run) {
            if self.old.cluster_bits > 0 {
                return Err(Error::Unsupported(
                    "a file with a block map would have to move, and block maps have no clusters",
                ));
            }
            let within = self.anywhere(true);
            let block = self.take_whole(1, &within)?;
            new = block.ok_or(Error::NoRoom("the blocks of files"))?;
            self.copy(old, new, 1)?;
            self.give_up(run)?;
        }
        if level > 0 {
            let bytes = self.block(old)?;
            let mut moved = Vec::with_capacity(bytes.len() / 4);
            for below in words(&bytes) {
                moved.push(u64::from(self.move_pointer(below, level - 1)?));
            }
            let moved = numbers(moved.into_iter(), bytes.len())?;
            if moved != bytes {
                self.put(new, &moved)?;
            }
        }
        u32::try_from(new).map_err(|_| Error::unreadable(format_args!("block {new}")))
    }

    /// The blocks of data of a block map, in file order, holes left out.
    pub(crate) fn pointed(&self, core: &InodeCore) -> Result<Vec<u64>> {
        Ok(self.pointed_by(core)?.0)
    }

    /// The blocks of pointers of a block map.
    pub(crate) fn pointer_blocks(&self, core: &InodeCore) -> Result<Vec<u64>> {
        Ok(self.pointed_by(core)?.1)
    }

    /// The blocks of data of a block map, and those of pointers.
    fn pointed_by(&self, core: &InodeCore) -> Result<(Vec<u64>, Vec<u64>)> {
        let (mut data, mut pointers) = (Vec::new(), Vec::new());
        for (slot, pointer) in words(&core.i_block).enumerate() {
            self.pointed_below(pointer, level_of(slot), &mut data, &mut pointers)?;
        }
        Ok((data, pointers))
    }

    fn pointed_below(
        &self,
        pointer: u32,
        level: u32,
        data: &mut Vec<u64>,
        pointers: &mut Vec<u64>,
    ) -> Result<()> {
        if pointer == 0 {
            return Ok(());
        }
        if level == 0 {
            data.push(pointer.into());
            return Ok(());
        }
        pointers.push(pointer.into());
        for below in words(&self.block(pointer.into())?) {
            self.pointed_below(below, level - 1, data, pointers)?;
        }
        Ok(())
    }
}
