//! A file of quotas in memory: made whole, or read whole.

use super::{
    BLOCK, QuotaBlock, QuotaBlocks, QuotaBlocksMut, QuotaEntry, QuotaError, QuotaHeader, QuotaKind,
    QuotaTimes, begin, insert, walk,
};

/// The bytes of a file of quotas.
#[derive(Clone, Debug)]
pub struct MemoryQuotas {
    bytes: Vec<u8>,
}

impl MemoryQuotas {
    /// The file that says `entries`, each id once.
    ///
    /// # Errors
    /// [`QuotaError::Full`]; an id that comes twice.
    pub fn new(
        kind: QuotaKind,
        times: QuotaTimes,
        entries: impl IntoIterator<Item = QuotaEntry>,
    ) -> Result<Self, QuotaError> {
        let mut file = Self { bytes: Vec::new() };
        let mut header = begin(&mut file, kind, times)?;
        for entry in entries {
            insert(&mut file, &mut header, &entry)?;
        }
        Ok(file)
    }

    /// A file with these bytes, whatever they are.
    pub fn of(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Its bytes: whole blocks of [`BLOCK`].
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The header and every entry, in the order of their ids.
    ///
    /// # Errors
    /// Damage of any of them.
    pub fn entries(
        &mut self,
        kind: QuotaKind,
    ) -> Result<(QuotaHeader, Vec<QuotaEntry>), QuotaError> {
        let first = self.read(0)?;
        let header = QuotaHeader::decode(kind, self.bytes.len() as u64, &first)?;
        let mut entries = Vec::new();
        walk(self, &header, &mut |_, entry| {
            entries.push(entry);
            Ok(())
        })?;
        Ok((header, entries))
    }
}

impl QuotaBlocks for MemoryQuotas {
    type Error = QuotaError;

    fn read(&mut self, block: u32) -> Result<QuotaBlock, QuotaError> {
        let (blocks, _) = self.bytes.as_chunks::<BLOCK>();
        let found = blocks.get(block as usize).copied();
        found.ok_or(QuotaError::Short { block })
    }
}

impl QuotaBlocksMut for MemoryQuotas {
    fn append(&mut self, block: u32, bytes: &QuotaBlock) -> Result<(), QuotaError> {
        self.bytes.truncate(block as usize * BLOCK);
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn change(
        &mut self,
        block: u32,
        _old: &QuotaBlock,
        new: &QuotaBlock,
    ) -> Result<(), QuotaError> {
        let at = block as usize * BLOCK;
        let part = self.bytes.get_mut(at..at + BLOCK);
        part.ok_or(QuotaError::Short { block })?
            .copy_from_slice(new);
        Ok(())
    }
}
