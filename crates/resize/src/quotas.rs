//! Usage of quotas: a map that takes more or fewer blocks than before changes that of its owner.

use std::collections::BTreeMap;
use std::fmt::Display;

use extant_disk::features::RoCompat;
use extant_disk::inode::{InodeCore, InodeFlags};
use extant_disk::quota::{
    BLOCK, QuotaBlock, QuotaBlocks, QuotaError, QuotaHeader, QuotaKind, QuotaUsage, find, set_usage,
};
use extant_units::{Ino, index};

use crate::error::{Error, Result};
use crate::volume::Volume;

/// The inode that has the quotas of `kind`, as the volume becomes.
fn file_of(volume: &Volume, kind: QuotaKind) -> Option<Ino> {
    let has_quotas = volume.old.features.has_ro_compat(RoCompat::QUOTA);
    kind.named_in(&volume.raw).filter(|_| has_quotas)
}

impl Volume {
    /// Takes in that inode `ino`, which had `before` sectors, is `core` now.
    pub(crate) fn charge(&mut self, ino: Ino, before: u64, core: &InodeCore) {
        let named = file_of(self, QuotaKind::Project) == Some(ino) || self.is_orphan_file(ino);
        let counts = ino == Ino::ROOT || ino.get() >= self.raw.first_ino.get();
        if named || !counts || core.flags.contains(InodeFlags::EA_INODE) {
            return;
        }
        let more = (i128::from(core.sectors) - i128::from(before)) * 512;
        if more == 0 {
            return;
        }
        for kind in QuotaKind::ALL {
            if file_of(self, kind).is_some() {
                let id = match kind {
                    QuotaKind::User => core.uid,
                    QuotaKind::Group => core.gid,
                    QuotaKind::Project => core.projid,
                };
                *self.usage_changes.entry((kind.index(), id)).or_insert(0) += more;
            }
        }
    }

    /// Moves the number of the file of projects with its inode.
    pub(crate) fn follow_quotas(&mut self, moved: &BTreeMap<Ino, Ino>) {
        if let Some(ino) = file_of(self, QuotaKind::Project)
            && let Some(to) = moved.get(&ino)
        {
            QuotaKind::Project.set_file(&mut self.raw, to.get());
        }
    }

    /// Stores what has changed in the files of quotas.
    pub(crate) fn store_usage(&mut self) -> Result<()> {
        for ((kind, id), more) in std::mem::take(&mut self.usage_changes) {
            let kind = QuotaKind::ALL[kind];
            let Some(ino) = file_of(self, kind).filter(|_| more != 0) else {
                continue;
            };
            let bad = |why: &dyn Display| Error::unreadable(format_args!("{kind} {id}: {why}"));
            let core = self.inode(ino)?;
            let mut file = File {
                volume: self,
                blocks: self.data_of(ino, &core)?,
            };
            let header = QuotaHeader::decode(kind, core.disk_size, &file.read(0)?);
            let header = header.map_err(|error| bad(&error))?;
            let found = find(&mut file, &header, id)?;
            let (place, entry) = found.ok_or_else(|| bad(&"no entry"))?;
            let bytes = i128::from(entry.usage.bytes) + more;
            let usage = QuotaUsage {
                bytes: u64::try_from(bytes).map_err(|_| bad(&"more than is counted"))?,
                ..entry.usage
            };
            let bs = self.block_bytes();
            let (nth, inside) = (index(place.byte()) / bs, index(place.byte()) % bs);
            let block = file.blocks.get(nth).copied();
            let block = block.ok_or_else(|| bad(&"an entry behind the end"))?;
            let mut bytes = self.block(block)?;
            let set = bytes
                .get_mut(inside..)
                .is_some_and(|entry| set_usage(entry, id, usage));
            assert!(set, "the entry that was found");
            self.put(block, &bytes)?;
        }
        Ok(())
    }
}

/// A file of quotas, which the check has found whole.
struct File<'a> {
    volume: &'a Volume,
    blocks: Vec<u64>,
}

impl QuotaBlocks for File<'_> {
    type Error = Error;

    fn read(&mut self, block: u32) -> Result<QuotaBlock> {
        let per_block = self.volume.block_bytes() / BLOCK;
        let (nth, piece) = (block as usize / per_block, block as usize % per_block);
        let end = || Error::from(QuotaError::Short { block });
        let bytes = self.volume.block(*self.blocks.get(nth).ok_or_else(end)?)?;
        let (pieces, _) = bytes.as_chunks::<BLOCK>();
        pieces.get(piece).copied().ok_or_else(end)
    }
}

impl From<QuotaError> for Error {
    fn from(error: QuotaError) -> Self {
        Self::unreadable(error)
    }
}
