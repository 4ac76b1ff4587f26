//! Entries inside of a directory's inode (`inline_data`): changes of them, and the block that they
//! would fill.
//!
//! The data of such a directory begins with the number of its parent. The rest of `i_block` is one
//! part, and the value of the attribute `system.data` another. Each part is a chain of records that
//! fills it exactly, so that no record lies in both.
//!
//! ```text
//!   0        4                        60
//!   | parent | records of i_block     | records of system.data      |
//! ```
//!
//! Records do not move when others come or go. A walk sees them behind "." and "..", as a block
//! would have them ([`DirFormat::block_of_inside`]): an offset there is 20 more than the offset
//! here.

use core::ops::Range;

use extant_units::{BlockSize, Ino};

use crate::dir_edit::NewEntry;
use crate::dirent::{DOT_LEN, DirFormat, DirentError, FileType, Record};
use crate::inode::BLOCK_AREA;

/// Bytes of the parent's number.
const PARENT: usize = 4;
/// Bytes of "." and ".." in a block, less those of the parent's number.
const BLOCK_SHIFT: usize = 2 * DOT_LEN - PARENT;

impl DirFormat {
    /// The layout of the block that the entries of an inode would fill: without a checksum, and
    /// with room for all that an inode holds.
    #[must_use]
    pub fn inside(&self) -> Self {
        let larger = BlockSize::from_log2(self.block_size.log2() + 1);
        Self {
            seed: None,
            block_size: larger.unwrap_or(self.block_size),
            ..*self
        }
    }

    /// A block with ".", ".." and the entries of `data`, that of the directory `own`, each where
    /// its offset says. `None` if there is no parent, or no room.
    pub fn block_of_inside(&self, own: Ino, data: &[u8]) -> Option<Box<[u8]>> {
        let (parent, entries) = data.split_first_chunk::<PARENT>()?;
        let parent = Ino::new(u32::from_le_bytes(*parent))?;
        let mut block = vec![0; self.block_size.bytes()];
        self.init_first(&mut block, own, parent);
        let fits = self.follow_dots(&mut block, entries);
        fits.then(|| block.into_boxed_slice())
    }

    /// The data of a new directory in `parent`: no entries.
    pub fn init_inside(&self, parent: Ino) -> [u8; BLOCK_AREA] {
        let mut data = [0; BLOCK_AREA];
        Self::set_parent_inside(&mut data, parent);
        self.put_free(&mut data, PARENT, BLOCK_AREA - PARENT);
        data
    }

    /// Makes `parent` the parent of a directory with `data`.
    pub fn set_parent_inside(data: &mut [u8], parent: Ino) {
        if let Some(number) = data.first_chunk_mut::<PARENT>() {
            *number = parent.get().to_le_bytes();
        }
    }

    /// Puts `entry` into the first free space of `data` that holds it; false if none does.
    ///
    /// # Errors
    /// A broken record, or a name that is empty or too long.
    pub fn insert_inside(
        &self,
        data: &mut [u8],
        entry: &NewEntry<'_>,
    ) -> Result<bool, DirentError> {
        let need = self.needed_for(entry.name.len())?;
        for part in parts(data.len()) {
            for record in self.records_in(data, part) {
                let record = record?;
                let (at, used, free) = (record.offset, record.used(), record.rec_len);
                if free >= used + need {
                    if used > 0 {
                        self.set_rec_len(data, at, used);
                    }
                    self.put(data, at + used, free - used, entry);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Removes the entry at `offset` of the block of the entries. Its space goes to the record
    /// before it in its part, or becomes a free record.
    ///
    /// # Errors
    /// As [`DirFormat::retarget_inside`].
    pub fn remove_inside(&self, data: &mut [u8], offset: usize) -> Result<(), DirentError> {
        let (before, at, len) = {
            let (before, entry) = self.entry_inside(data, offset)?;
            let before = before.map(|record| (record.offset, record.rec_len));
            (before, entry.offset, entry.rec_len)
        };
        data[at..at + len].fill(0); // a removed name does not linger on the disk
        match before {
            Some((start, before)) => self.set_rec_len(data, start, before + len),
            None => self.put_free(data, at, len),
        }
        Ok(())
    }

    /// Lets the entry at `offset` of the block of the entries lead to another inode.
    ///
    /// # Errors
    /// A broken record before it; [`DirentError::NoEntry`] if no entry starts there.
    pub fn retarget_inside(
        &self,
        data: &mut [u8],
        offset: usize,
        ino: Ino,
        file_type: FileType,
    ) -> Result<(), DirentError> {
        let at = self.entry_inside(data, offset)?.1.offset;
        self.set_target(data, at, ino, file_type);
        Ok(())
    }

    /// Makes `data` `len` bytes long, a multiple of four: what is added is free. Returns false,
    /// with nothing changed, if that is not enough for a record.
    ///
    /// # Errors
    /// A broken record.
    pub fn grow_inside(&self, data: &mut Vec<u8>, len: usize) -> Result<bool, DirentError> {
        let old = data.len();
        let added = len.saturating_sub(old);
        if added < DOT_LEN || !len.is_multiple_of(4) {
            return Ok(false);
        }
        let last = self.records_in(data, BLOCK_AREA..old).last().transpose()?;
        let last = last.map(|record| (record.offset, record.rec_len));
        data.resize(len, 0);
        match last {
            Some((at, before)) => self.set_rec_len(data, at, before + added),
            None => self.put_free(data, old, added),
        }
        Ok(true)
    }

    /// Lets the parent and each entry lead to the inode that `to` names for theirs, if it does.
    ///
    /// # Errors
    /// A broken record: those in front of it have changed.
    pub fn renumber_inside(
        &self,
        data: &mut [u8],
        to: impl Fn(Ino) -> Option<Ino>,
    ) -> Result<(), DirentError> {
        let parent = data
            .first_chunk::<PARENT>()
            .map(|raw| u32::from_le_bytes(*raw));
        if let Some(new) = parent.and_then(Ino::new).and_then(&to) {
            Self::set_parent_inside(data, new);
        }
        for part in parts(data.len()) {
            let mut at = part.start;
            while at < part.end {
                let Some(record) = self.records_in(data, at..part.end).next().transpose()? else {
                    break;
                };
                let (next, kind) = (at + record.rec_len, record.file_type);
                if let Some(new) = record.ino.and_then(&to) {
                    self.set_target(data, at, new, kind);
                }
                at = next;
            }
        }
        Ok(())
    }

    /// The entry at `offset` of the block of the entries, and the record before it in its part.
    fn entry_inside<'a>(
        &self,
        data: &'a [u8],
        offset: usize,
    ) -> Result<(Option<Record<'a>>, Record<'a>), DirentError> {
        for part in parts(data.len()) {
            let mut before = None;
            for record in self.records_in(data, part) {
                let record = record?;
                if record.offset + BLOCK_SHIFT == offset && record.ino.is_some() {
                    return Ok((before, record));
                }
                before = Some(record);
            }
        }
        Err(DirentError::NoEntry { offset })
    }
}

/// The parts of `len` bytes of data that have records.
fn parts(len: usize) -> [Range<usize>; 2] {
    let first = BLOCK_AREA.min(len);
    [PARENT.min(first)..first, first..len]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format() -> DirFormat {
        DirFormat {
            block_size: BlockSize::KIB1,
            file_type: true,
            max_ino: 100,
            seed: None,
            folded: false,
            hashes: false,
        }
        .inside()
    }

    fn ino(number: u32) -> Ino {
        Ino::new(number).unwrap()
    }

    fn entry(name: &[u8]) -> NewEntry<'_> {
        NewEntry {
            name,
            ino: ino(9),
            file_type: FileType::Regular,
            hash: None,
        }
    }

    fn names(data: &[u8]) -> Vec<Vec<u8>> {
        let format = format();
        let block = format.block_of_inside(ino(5), data).unwrap();
        format.check_leaf(&block).unwrap();
        let names = format.records(&block).map(Result::unwrap);
        let names = names.filter(|record| record.ino.is_some()).skip(2);
        names.map(|record| record.name.to_vec()).collect()
    }

    /// The offset of `name` in the block.
    fn offset(data: &[u8], name: &[u8]) -> usize {
        let block = format().block_of_inside(ino(5), data).unwrap();
        format().find(&block, name).unwrap().unwrap().offset
    }

    #[test]
    fn entries_fill_the_parts_one_after_the_other() {
        let mut data = format().init_inside(ino(2)).to_vec();
        // 56 bytes: three records of 16, and 8 bytes that hold none.
        for name in [b"first--", b"second-", b"third--"] {
            assert!(format().insert_inside(&mut data, &entry(name)).unwrap());
        }
        assert!(!format().insert_inside(&mut data, &entry(b"x")).unwrap());
        assert!(
            !format().grow_inside(&mut data, 68).unwrap(),
            "no record fits"
        );
        assert!(
            !format().grow_inside(&mut data, 75).unwrap(),
            "not a multiple"
        );
        assert!(format().grow_inside(&mut data, 76).unwrap());
        assert!(
            format()
                .insert_inside(&mut data, &entry(b"fourth-"))
                .unwrap()
        );
        assert!(format().grow_inside(&mut data, 92).unwrap());
        assert!(
            format()
                .insert_inside(&mut data, &entry(b"fifth--"))
                .unwrap()
        );
        let all = [b"first--", b"second-", b"third--", b"fourth-", b"fifth--"];
        assert_eq!(names(&data), all);
        let remove = |data: &mut Vec<u8>, name: &[u8]| {
            let at = offset(data, name);
            format().remove_inside(data, at).unwrap();
        };
        // The first of the second part leaves a record of its own: none crosses the border.
        remove(&mut data, b"fourth-");
        assert_eq!(data[60..64], [0; 4]);
        remove(&mut data, b"second-");
        remove(&mut data, b"first--");
        assert_eq!(names(&data), [b"third--", b"fifth--"]);
        assert!(
            !data.windows(5).any(|bytes| bytes == b"first"),
            "it lingers"
        );
        assert!(
            format()
                .insert_inside(&mut data, &entry(b"a-longer-name"))
                .unwrap()
        );
        assert_eq!(names(&data)[0], b"a-longer-name");
    }

    #[test]
    fn an_entry_is_led_elsewhere_and_the_parent_too() {
        let mut data = format().init_inside(ino(2)).to_vec();
        assert!(format().insert_inside(&mut data, &entry(b"name")).unwrap());
        let at = offset(&data, b"name");
        let kind = FileType::Directory;
        format()
            .retarget_inside(&mut data, at, ino(11), kind)
            .unwrap();
        DirFormat::set_parent_inside(&mut data, ino(7));
        let block = format().block_of_inside(ino(5), &data).unwrap();
        let record = format().find(&block, b"name").unwrap().unwrap();
        assert_eq!((record.ino, record.file_type), (Some(ino(11)), kind));
        assert_eq!(format().dots(&block), Ok((ino(5), ino(7))));
        let swap = |old: Ino| (old == ino(11)).then(|| ino(12));
        format().renumber_inside(&mut data, swap).unwrap();
        let swap = |old: Ino| (old == ino(7)).then(|| ino(8));
        format().renumber_inside(&mut data, swap).unwrap();
        let block = format().block_of_inside(ino(5), &data).unwrap();
        let record = format().find(&block, b"name").unwrap().unwrap();
        assert_eq!((record.ino, record.file_type), (Some(ino(12)), kind));
        assert_eq!(format().dots(&block), Ok((ino(5), ino(8))));
        let none = format().retarget_inside(&mut data, at + 4, ino(11), kind);
        assert_eq!(none, Err(DirentError::NoEntry { offset: at + 4 }));
    }
}
