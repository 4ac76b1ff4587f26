//! A directory in memory.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use extant_crypt::{ContentsMode, Context, Ivs, MasterKey, NamesMode, Padding, Policy};
use extant_disk::csum::Crc32c;
use extant_disk::damage::CorruptKind;
use extant_disk::dir_edit::NewEntry;
use extant_disk::dir_hash::HashAlgorithm;
use extant_disk::dirent::{DirFormat, FileType};
use extant_units::{BlockSize, Ino, Lblk};

use crate::dir::dir_store::{Profile, Shape, Store};
use crate::dir::name_form::NameForm;
use crate::dir::room::{NameOrRoom, Room};
use crate::dir::sought_name::SoughtName;
use crate::dir::{entries, listing, position};
use crate::state::crypt::{Cipher, InodeKey};
use crate::types::error::{Error, Location, Result};

pub(super) struct MemoryDir {
    pub(super) profile: Profile,
    pub(super) blocks: RefCell<Vec<Vec<u8>>>,
    pub(super) index_flag: Cell<bool>,
    /// Appends that still succeed.
    pub(super) space: Cell<u32>,
    /// Blocks read since the last reset.
    pub(super) reads: Cell<u64>,
}

pub(super) const OWN: u32 = 12;

pub(super) fn ino(raw: u32) -> Ino {
    Ino::new(raw).unwrap()
}

pub(super) fn entry(name: &str, to: u32) -> NewEntry<'_> {
    NewEntry {
        name: name.as_bytes(),
        ino: ino(to),
        file_type: FileType::Regular,
        hash: None,
    }
}

impl MemoryDir {
    pub(super) fn new(log2: u32, csum: bool, new_index: HashAlgorithm) -> Self {
        let store = Self {
            profile: Profile {
                format: DirFormat {
                    block_size: BlockSize::from_log2(log2).unwrap(),
                    file_type: true,
                    max_ino: 10_000_000,
                    seed: csum.then_some(Crc32c::from_raw(77)),
                    folded: false,
                    hashes: false,
                },
                dir_index: true,
                max_levels: 1,
                names: NameForm::Plain,
                new_index,
                hash_unsigned: false,
                hash_seed: [1, 2, 3, 4],
            },
            blocks: RefCell::default(),
            index_flag: Cell::new(false),
            space: Cell::new(u32::MAX),
            reads: Cell::new(0),
        };
        entries::init(&store, &mut (), ino(OWN), Ino::ROOT).unwrap();
        store
    }

    fn sought<'n>(&self, name: &'n str) -> SoughtName<'n> {
        self.profile.names.stored(name.as_bytes()).unwrap()
    }

    /// Encrypts the names, of which there are none yet, and folds their case.
    pub(super) fn hide_and_fold(&mut self) {
        let master = MasterKey::new(b"a key of thirty-two bytes or more").unwrap();
        let policy = Policy {
            contents: ContentsMode::Aes256Xts,
            names: NamesMode::Aes256Cts,
            padding: Padding::Four,
            key: master.identifier(),
            ivs: Ivs::PerFileKey,
            log2_data_unit: 0,
        };
        let context = Context {
            policy,
            nonce: [3; 16],
        };
        let cipher = Cipher::Names(master.names(&context, OWN, &[0; 16]).unwrap());
        self.profile.names = NameForm::Folded(Arc::new(InodeKey { context, cipher }));
        self.profile.format.hashes = true;
    }

    pub(super) fn insert(&self, name: &str, to: u32) -> Result<()> {
        self.insert_into(name, to, None)
    }

    /// As [`MemoryDir::insert`], into the room that a search for the name met.
    pub(super) fn insert_into(
        &self,
        name: &str,
        to: u32,
        room: Option<&Room<usize>>,
    ) -> Result<()> {
        let name = self.sought(name);
        entries::insert(self, &mut (), &name.entry(ino(to), FileType::Regular), room)
    }

    pub(super) fn find_or_room(&self, name: &str) -> Result<NameOrRoom<usize>> {
        entries::find_or_room(self, &self.sought(name))
    }

    pub(super) fn find(&self, name: &str) -> Result<Option<u32>> {
        Ok(entries::find(self, &self.sought(name))?.map(|slot| slot.ino.get()))
    }

    pub(super) fn remove(&self, name: &str, to: u32) -> Result<()> {
        let slot = entries::expect(self, entries::find(self, &self.sought(name))?, ino(to))?;
        entries::remove(self, &mut (), &slot)
    }

    pub(super) fn retarget(&self, name: &str, old: u32, new: (Ino, FileType)) -> Result<()> {
        let slot = entries::expect(self, entries::find(self, &self.sought(name))?, ino(old))?;
        entries::retarget(self, &mut (), &slot, new)
    }

    /// Lists from `from` until `limit` entries were seen: names, inodes and where to go on.
    pub(super) fn list(&self, mut from: u64, limit: usize) -> Result<(Vec<(String, u32)>, u64)> {
        let mut seen = Vec::new();
        while from < position::END {
            let batch = listing::batch(self, from)?;
            for entry in batch.iter() {
                if seen.len() == limit {
                    return Ok((seen, from));
                }
                assert!(entry.next_pos > from, "positions rise");
                from = entry.next_pos;
                let name = String::from_utf8_lossy(entry.name).into_owned();
                seen.push((name, entry.ino.get()));
            }
            if seen.len() == limit {
                return Ok((seen, from));
            }
            let next = batch.next().unwrap_or(position::END);
            assert!(next >= from);
            from = next;
        }
        Ok((seen, from))
    }
}

impl Store for MemoryDir {
    type Handle = ();
    type Block = usize;
    type Data = Vec<u8>;

    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn blocks(&self) -> u32 {
        u32::try_from(self.blocks.borrow().len()).unwrap()
    }

    fn index_flag(&self) -> bool {
        self.index_flag.get()
    }

    fn set_index_flag(&self, (): &mut (), on: bool) -> Result<()> {
        self.index_flag.set(on);
        Ok(())
    }

    fn read(&self, lblk: Lblk, shape: Shape) -> Result<usize> {
        self.reads.set(self.reads.get() + 1);
        let at = lblk.get() as usize;
        let blocks = self.blocks.borrow();
        let bytes = blocks
            .get(at)
            .expect("the caller stays within the directory");
        let Profile {
            format, max_levels, ..
        } = &self.profile;
        let checked = shape.check(format, *max_levels, bytes);
        self.check(lblk, checked)?;
        Ok(at)
    }

    fn data(&self, block: &usize) -> Vec<u8> {
        self.blocks.borrow()[*block].clone()
    }

    fn modify<R>(&self, (): &mut (), at: &usize, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        Ok(change(&mut self.blocks.borrow_mut()[*at]))
    }

    fn append(&self, (): &mut (), _: Shape, bytes: &[u8]) -> Result<Lblk> {
        let left = self.space.get().checked_sub(1).ok_or(Error::NoSpace)?;
        self.space.set(left);
        let lblk = Lblk::new(self.blocks());
        self.blocks.borrow_mut().push(bytes.to_vec());
        Ok(lblk)
    }

    fn begin_walk(&self) -> Result<()> {
        Ok(())
    }

    fn readahead(&self, _: Lblk, _: u32) {}

    fn corrupt(&self, lblk: Lblk, kind: CorruptKind) -> Error {
        Error::corrupt(Location::DirBlock(ino(OWN), lblk), kind)
    }
}

/// A small deterministic generator (splitmix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    }
}
