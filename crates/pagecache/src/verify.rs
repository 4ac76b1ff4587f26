//! A walk over an address space that checks the invariants of its folios (J2 to J7, J31): for tests
//! and for debugging.
//!
//! # Locks
//! Takes the index and then, one at a time, the folios, shared. The caller excludes writers,
//! truncation, fills (by the invalidate lock) and writeback (by the pass) away: only readers may
//! run meanwhile.

use std::ops::Range;
use std::sync::Arc;

use extant_units::Pos;

use crate::address_space::AddressSpace;
use crate::folio::Folio;
use crate::folio_guard::FolioRef;
use crate::folio_tree::Tag;

/// A run of a folio's blocks, as [`AddressSpace::verify`] shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CachedRun {
    /// The bytes: whole blocks.
    pub bytes: Range<Pos>,
    /// All of them are dirty, or none.
    pub dirty: bool,
    /// All of them are known to have space, or none.
    pub backed: bool,
}

impl AddressSpace {
    /// Checks every folio and the accounts of a file of `size` bytes, and calls `each` with all of
    /// their blocks, ascending. `each` may return an error of its own.
    ///
    /// # Errors
    /// The first broken invariant, in words.
    pub fn verify(
        &self,
        size: Pos,
        mut each: impl FnMut(CachedRun) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut at = Pos::ZERO;
        let mut dirty = 0;
        let mut count = 0;
        while let Some(folio) = self.next(at) {
            let name =
                |what: String| format!("folio {}+{}: {what}", folio.index().get(), folio.order());
            if folio.start() < at {
                return Err(name("overlaps the one before (J2)".into()));
            }
            let guard = self
                .read(&folio)
                .ok_or_else(|| name("in the index, but detached".into()))?;
            dirty += self.verify_folio(&guard, size, &mut each).map_err(name)?;
            count += 1;
            at = folio.end();
        }
        if count != self.folio_count() {
            let found = self.folio_count();
            return Err(format!("{count} folios, but the index counts {found}"));
        }
        let counted = self.dirty_bytes();
        if dirty != counted {
            return Err(format!(
                "{dirty} dirty bytes, but {counted} are accounted for"
            ));
        }
        let listed = self.dirty_state().is_listed();
        if dirty != 0 && !listed && self.dirty_state().has_owner() {
            return Err("dirty, but not in the list of dirty files".into());
        }
        Ok(())
    }

    /// The dirty bytes of one folio, if its invariants hold.
    fn verify_folio(
        &self,
        guard: &FolioRef<'_>,
        size: Pos,
        each: &mut impl FnMut(CachedRun) -> Result<(), String>,
    ) -> Result<u64, String> {
        let folio = guard.folio();
        let pages = 1u64 << folio.order();
        if !folio.index().get().is_multiple_of(pages) || folio.order() > self.max_order() {
            return Err(format!(
                "misaligned, or of an order above {} (J2)",
                self.max_order()
            ));
        }
        guard.verify_bits()?;
        if folio.is_under_writeback() {
            return Err("under writeback outside of a pass (J6)".into());
        }
        let has_dirty = guard.next_dirty(0, true).is_some();
        let tagged = |tag| {
            self.next_tagged(folio.start(), tag)
                .is_some_and(|found| found.index() == folio.index())
        };
        if tagged(Tag::Dirty) != has_dirty || (tagged(Tag::ToWrite) && !has_dirty) {
            return Err(format!("dirty: {has_dirty}, its tags say otherwise (J4)"));
        }
        self.verify_tail(guard, size)?;
        let mut dirty = 0;
        let mut from = 0;
        while from < folio.len() {
            let is_dirty = guard.next_dirty(from, true) == Some(from);
            let is_backed = guard.next_backed(from, true) == Some(from);
            let end = |next: Option<usize>| next.unwrap_or(folio.len());
            let to = end(guard.next_dirty(from, !is_dirty))
                .min(end(guard.next_backed(from, !is_backed)));
            if is_dirty {
                dirty += (to - from) as u64;
                if folio.pos_of(from) >= size || !guard.is_uptodate(from..to) {
                    return Err(format!(
                        "bytes {from}..{to} are dirty, but not uptodate or past the end of the file"
                    ));
                }
            }
            each(CachedRun {
                bytes: folio.pos_of(from)..folio.pos_of(to),
                dirty: is_dirty,
                backed: is_backed,
            })?;
            from = to;
        }
        Ok(dirty)
    }

    /// Uptodate bytes past the end of the file are zero (J31).
    fn verify_tail(&self, guard: &FolioRef<'_>, size: Pos) -> Result<(), String> {
        let folio = guard.folio();
        let mut from = folio.offset_of(size);
        while let Some(known) = guard.next_uptodate(from, true) {
            let to = guard.next_uptodate(known, false).unwrap_or(folio.len());
            let tail = &guard.bytes()[known..to];
            if let Some(at) = tail.iter().position(|&byte| byte != 0) {
                let at = folio.pos_of(known + at).get();
                return Err(format!(
                    "byte {at} is not zero, past the end of the file at {} (J31)",
                    size.get()
                ));
            }
            from = to;
        }
        Ok(())
    }

    fn next_tagged(&self, from: Pos, tag: Tag) -> Option<Arc<Folio>> {
        self.tagged(from, Pos::MAX, tag, 1).pop()
    }
}
