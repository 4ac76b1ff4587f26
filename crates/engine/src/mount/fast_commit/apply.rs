//! Doing the records of fast commits again, on a mounted private copy.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use extant_disk::damage::JournalDamage;
use extant_disk::extent::{Extent, MAX_END};
use extant_disk::jbd2::fast_commit::{EntryChange, Operation, Operations};
use extant_jbd2::FastCommits;
use extant_units::{Blocks, Ino, Lblk};

use super::claimed_blocks::ClaimedBlocks;
use crate::inode::{InodeFlags, LoggedIdentity, check_logged, store_logged, store_new_logged};
use crate::namei::{FirstName, enter_logged, remove_logged};
use crate::state::alloc::Run;
use crate::state::inode::InodeRef;
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::{Fs, credits};
use crate::{alloc, dir, inline_data, map, orphan};

/// Does all records of `commits` again. Orphans that the transactions left are left for the mount:
/// one may have more blocks than fit the log. Returns the number of inodes that have a record.
///
/// # Errors
/// Damage of a record; what the engine cannot change; no space.
pub(super) fn apply(fs: &Arc<Fs>, commits: &FastCommits) -> Result<u64> {
    orphan::open(fs)?;
    let mut replay = Replay {
        fs,
        orphans: orphan::adopt_all(fs)?,
        claimed: ClaimedBlocks::default(),
        stored: HashSet::new(),
        nameless: HashSet::new(),
        removed: Vec::new(),
        pieces: map::PieceBudget::default(),
    };
    check(commits)?;
    replay.claim(commits)?;
    for commit in commits.records() {
        replay.commit(commit)?;
    }
    replay.finish()
}

/// Fails for a record that is damaged.
fn check(commits: &FastCommits) -> Result<()> {
    match commits
        .records()
        .flat_map(Operations::of)
        .find_map(Result::err)
    {
        Some(error) => Err(damaged(JournalDamage::FastCommit { error })),
        None => Ok(()),
    }
}

/// The records of a commit, which [`check`] found sound. They are read anew for each pass: as a
/// list they take several times the memory of the log.
fn operations(records: &[u8]) -> impl Iterator<Item = Operation<'_>> {
    Operations::of(records).map_while(Result::ok)
}

fn damaged(damage: JournalDamage) -> Error {
    Error::corrupt(Location::Journal, damage)
}

/// The last record of an inode in one fast commit, and its position.
type LastRecord<'a> = (usize, &'a [u8]);

/// Those of all inodes.
type LastRecords<'a> = HashMap<Ino, LastRecord<'a>>;

struct Replay<'a> {
    fs: &'a Arc<Fs>,
    /// Those that the transactions left, and new inodes without links.
    orphans: Vec<InodeRef>,
    claimed: ClaimedBlocks,
    /// Inodes of which a record was stored.
    stored: HashSet<Ino>,
    /// New inodes that have no name yet.
    nameless: HashSet<Ino>,
    /// Inodes that lost their last name in this fast commit.
    removed: Vec<InodeRef>,
    pieces: map::PieceBudget,
}

impl Replay<'_> {
    /// Claims the blocks of all records. Those of directories count for nothing.
    fn claim(&mut self, commits: &FastCommits) -> Result<()> {
        let all = || commits.records().flat_map(operations);
        let dirs: HashSet<Ino> = all()
            .filter_map(|operation| match operation {
                Operation::Inode(ino, record) => {
                    let identity = LoggedIdentity::of(self.fs, ino, record).ok()?;
                    (identity.kind == FileKind::Directory).then_some(ino)
                }
                _ => None,
            })
            .collect();
        for operation in all() {
            let Operation::AddRange(ino, extent) = operation else {
                continue;
            };
            let run = run_of(&extent);
            let usable = extent.end() <= MAX_END
                && self.fs.layout.contains(run.start, run.len)
                && self.fs.zones.may_map(Some(ino), run.start, run.len);
            if !usable {
                return Err(taken(ino, &extent));
            }
            if !dirs.contains(&ino) {
                self.claimed.claim(self.fs, run)?;
            }
        }
        Ok(())
    }

    /// Does the records of one fast commit. Its entries are in order, and in front of the records
    /// of inodes that were there before. Blocks may have moved between files: all of them are
    /// removed where they were before any is entered.
    fn commit(&mut self, commit: &[u8]) -> Result<()> {
        let mut last: LastRecords<'_> = HashMap::new();
        for (at, operation) in operations(commit).enumerate() {
            if let Operation::Inode(ino, record) = operation {
                last.insert(ino, (at, record));
            }
        }
        for (at, operation) in operations(commit).enumerate() {
            match operation {
                Operation::Nothing => {}
                Operation::Create(change) => self.create(&change)?,
                Operation::Link(change) => self.link(&change, at, &last)?,
                Operation::Unlink(change) => self.unlink(&change)?,
                Operation::Inode(ino, record) => self.store(ino, record)?,
                Operation::AddRange(ino, extent) => {
                    if let Some(inode) = self.find_or_make(ino, at, &last)? {
                        self.move_out(&inode, last.get(&ino))?;
                        if takes_ranges(&inode)? {
                            map::remove_unlike(self.fs, (&inode, &mut self.pieces), &extent)?;
                        }
                    }
                }
                Operation::DelRange { ino, lblk, len } => {
                    self.delete_range((ino, last.get(&ino)), lblk, len)?;
                }
            }
        }
        self.evict_removed(&last)?;
        // What was freed can be given from now on, but to nothing that is not in the log.
        self.fs.journal.force_commit()?;
        self.claim_again(commit)?;
        for operation in operations(commit) {
            if let Operation::AddRange(ino, extent) = operation {
                self.add_range(ino, &extent)?;
            }
        }
        Ok(())
    }

    /// Inode `ino`, if it is in use.
    fn find(&self, ino: Ino) -> Result<Option<InodeRef>> {
        let fs = self.fs;
        {
            let mut h = fs.start(credits::INODE_ALLOC)?;
            if !alloc::is_inode_used(fs, &mut h, ino)? {
                return Ok(None);
            }
        }
        match fs.iget_orphan(ino) {
            Ok(inode) => Ok(Some(inode)),
            Err(Error::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Inode `ino`, if it is in use, or if the commit has its record behind the operation `at`: one
    /// that was made without a name has its record behind its first one.
    fn find_or_make(
        &mut self,
        ino: Ino,
        at: usize,
        last: &LastRecords<'_>,
    ) -> Result<Option<InodeRef>> {
        if let Some(inode) = self.find(ino)? {
            return Ok(Some(inode));
        }
        match last.get(&ino) {
            Some(&(behind, record)) if behind > at => {
                self.store(ino, record)?;
                self.find(ino)
            }
            _ => Ok(None),
        }
    }

    /// The directory `ino`, if it is in use and has a name.
    fn directory(&self, ino: Ino) -> Result<Option<InodeRef>> {
        Ok(self.find(ino)?.filter(|dir| !dir.is_unlinked()))
    }

    fn create(&mut self, change: &EntryChange<'_>) -> Result<()> {
        let (Some(dir), Some(inode)) = (self.directory(change.parent)?, self.find(change.ino)?)
        else {
            return Ok(());
        };
        if !self.nameless.contains(&change.ino) {
            // It has a name, or was made without one: a directory gets no second one.
            return self.enter(change, (&dir, &inode), FirstName::No);
        }
        let fs = self.fs;
        if inode.kind == FileKind::Directory && inode.disk_size() == 0 {
            let mut h = fs.start(credits::sum([credits::allocate(fs), 2]))?;
            dir::init_new(fs, &mut h, &inode, dir.ino, true)?;
        }
        self.enter(change, (&dir, &inode), FirstName::Yes)
    }

    fn link(&mut self, change: &EntryChange<'_>, at: usize, last: &LastRecords<'_>) -> Result<()> {
        let Some(dir) = self.directory(change.parent)? else {
            return Ok(());
        };
        let Some(inode) = self.find_linked(change.ino, at, last)? else {
            return Ok(());
        };
        // The record that made it counts names that are not there yet.
        let nameless = self.nameless.contains(&change.ino);
        let first = match nameless && inode.kind != FileKind::Directory {
            true => FirstName::Yes,
            false => FirstName::No,
        };
        self.enter(change, (&dir, &inode), first)
    }

    /// The inode `ino` that the operation `at` gives one more name. Its number may have had other
    /// owners: one without links is that inode only if the record behind `at` says so. `None` if
    /// the inode is gone by the end of the commit. Directories have no second name, so one that
    /// the record makes is a later owner.
    fn find_linked(
        &mut self,
        ino: Ino,
        at: usize,
        last: &LastRecords<'_>,
    ) -> Result<Option<InodeRef>> {
        let found = self.find(ino)?;
        if found.as_ref().is_some_and(|inode| !inode.is_unlinked()) {
            return Ok(found);
        }
        let Some(&(_, record)) = last.get(&ino).filter(|&&(behind, _)| behind > at) else {
            return Ok(None);
        };
        let logged = LoggedIdentity::of(self.fs, ino, record)?;
        if logged.kind == FileKind::Directory {
            return Ok(None);
        }
        if found.as_ref().is_some_and(|inode| is_of(inode, &logged)) {
            return Ok(found);
        }
        drop(found);
        self.store(ino, record)?;
        self.find(ino)
    }

    fn enter(
        &mut self,
        change: &EntryChange<'_>,
        (dir, inode): (&InodeRef, &InodeRef),
        first: FirstName,
    ) -> Result<()> {
        let entered = enter_logged(self.fs, dir, change.name, inode, first);
        self.nameless.remove(&change.ino);
        entered.map_err(|error| entry_error(change, error))
    }

    fn unlink(&mut self, change: &EntryChange<'_>) -> Result<()> {
        let (Some(dir), Some(victim)) = (self.directory(change.parent)?, self.find(change.ino)?)
        else {
            return Ok(());
        };
        let removed = remove_logged(self.fs, &dir, change.name, &victim);
        removed.map_err(|error| entry_error(change, error))?;
        if victim.is_unlinked() {
            // It may be open: `evict_removed` knows.
            self.removed.push(victim);
        }
        Ok(())
    }

    /// Evicts what lost its last name, now that the entries of a commit are done. A file that was
    /// open has a record without links; such a one stays to the end, as other records may follow.
    fn evict_removed(&mut self, last: &LastRecords<'_>) -> Result<()> {
        for inode in std::mem::take(&mut self.removed) {
            let Some(&(_, record)) = last.get(&inode.ino).filter(|_| inode.is_unlinked()) else {
                continue;
            };
            if is_of(&inode, &LoggedIdentity::of(self.fs, inode.ino, record)?) {
                self.orphans.push(inode);
            }
        }
        self.fs.reap_all();
        Ok(())
    }

    /// Claims what became free of the blocks of a commit, before a node of a map gets it.
    fn claim_again(&mut self, commit: &[u8]) -> Result<()> {
        for operation in operations(commit) {
            if let Operation::AddRange(ino, extent) = operation
                && let Some(inode) = self.find(ino)?
                && takes_ranges(&inode)?
            {
                self.claimed.claim(self.fs, run_of(&extent))?;
            }
        }
        Ok(())
    }

    /// Stores a record of an inode. One without links that is not in use was made without a name,
    /// and may get one; else it is gone by the end of the log.
    fn store(&mut self, ino: Ino, record: &[u8]) -> Result<()> {
        let fs = self.fs;
        let logged = LoggedIdentity::of(fs, ino, record)?;
        if let Some(inode) = self.find(ino)? {
            if is_of(&inode, &logged) {
                if logged.links == 0 && !inode.is_unlinked() {
                    return Ok(());
                }
                self.stored.insert(ino);
                self.move_out(&inode, Some(&(0, record)))?;
                return store_logged(fs, &inode, record);
            }
            if !inode.is_unlinked() {
                return Err(damaged(JournalDamage::FastCommitInode { ino }));
            }
            // An orphan whose number has a new owner.
            self.orphans.retain(|orphan| orphan.ino != ino);
            self.removed.retain(|removed| removed.ino != ino);
            drop(inode);
            fs.reap_all();
        }
        let is_dir = logged.kind == FileKind::Directory;
        if is_dir && logged.links == 0 {
            return Ok(());
        }
        let table = fs.layout.itable_blocks;
        let inode = [credits::INODE_ALLOC, credits::INODE_UPDATE, table];
        let mut h = fs.start(credits::sum(inode))?;
        alloc::take_inode(fs, &mut h, ino, is_dir)?;
        let inode = store_new_logged(fs, &mut h, &logged, record, map::empty_root())?;
        self.stored.insert(ino);
        if inode.is_unlinked() {
            self.orphans.push(inode);
        } else {
            self.nameless.insert(ino);
        }
        Ok(())
    }

    /// Gives extents to a file that has its data inside, and does not any more by the last record
    /// of the commit. The ranges stand in front of that record.
    ///
    /// # Errors
    /// [`Error::NotSupported`]: it got a block map.
    fn move_out(&self, inode: &InodeRef, last: Option<&LastRecord<'_>>) -> Result<()> {
        let fs = self.fs;
        let (Some(&(_, record)), true) = (last, inline_data::is_inline(inode)) else {
            return Ok(());
        };
        let logged = LoggedIdentity::of(fs, inode.ino, record)?;
        let is_inside = logged.flags.contains(InodeFlags::INLINE_DATA);
        if is_inside || inode.kind != FileKind::Regular || !is_of(inode, &logged) {
            return Ok(());
        }
        if !logged.flags.contains(InodeFlags::EXTENTS) {
            return Err(Error::NotSupported(
                "fast commits of a file without extents",
            ));
        }
        let mut h = fs.start(credits::INODE_UPDATE)?;
        inline_data::leave(fs, &mut h, inode, None, inode.disk_size())
    }

    fn delete_range(
        &mut self,
        (ino, last): (Ino, Option<&LastRecord<'_>>),
        lblk: Lblk,
        len: u32,
    ) -> Result<()> {
        let fs = self.fs;
        let Some(inode) = self.find(ino)? else {
            return Ok(());
        };
        self.move_out(&inode, last)?;
        let end = u64::from(lblk.get()) + u64::from(len);
        if len == 0 || !takes_ranges(&inode)? {
            return Ok(());
        }
        if !inode.flags().contains(InodeFlags::EXTENTS) {
            return Err(Error::NotSupported(
                "fast commits of a file without extents",
            ));
        }
        let mut h = fs.start_with_revokes(credits::remove(fs), credits::REVOKES)?;
        map::remove(fs, &mut h, &inode, lblk, end.min(MAX_END))
    }

    fn add_range(&mut self, ino: Ino, extent: &Extent) -> Result<()> {
        let fs = self.fs;
        let Some(inode) = self.find(ino)? else {
            return Ok(());
        };
        if !takes_ranges(&inode)? {
            return Ok(());
        }
        let (claimed, pieces) = (&mut self.claimed, &mut self.pieces);
        map::enter_logged(fs, (&inode, pieces), extent, |h, run| {
            match claimed.give(fs, h, run)? {
                true => Ok(()),
                false => Err(taken(ino, extent)),
            }
        })
    }

    /// The rest, after the last record.
    fn finish(mut self) -> Result<u64> {
        let fs = self.fs;
        std::mem::take(&mut self.claimed).release(fs)?;
        for &ino in &self.nameless {
            if let Some(inode) = self.find_named(ino)? {
                if inode.kind == FileKind::Directory {
                    return Err(damaged(JournalDamage::FastCommitInode { ino }));
                }
                tracing::warn!(ino = ino.get(), "fast commits have a file without a name");
            }
        }
        orphan::leave_all(fs, self.orphans);
        fs.check_writable()?;
        for &ino in &self.stored {
            match fs.iget(ino) {
                Ok(inode) => check_logged(fs, &inode)?,
                Err(Error::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.stored.len() as u64)
    }

    fn find_named(&self, ino: Ino) -> Result<Option<InodeRef>> {
        Ok(self.find(ino)?.filter(|inode| !inode.is_unlinked()))
    }
}

/// Returns whether `inode` is the one of a record, and no other owner of its number.
fn is_of(inode: &InodeRef, logged: &LoggedIdentity) -> bool {
    (inode.generation, inode.kind) == (logged.generation, logged.kind)
}

/// Returns whether records of ranges change the map of `inode`. Those of a directory count for
/// nothing.
fn takes_ranges(inode: &InodeRef) -> Result<bool> {
    match inode.kind {
        FileKind::Directory => Ok(false),
        FileKind::Regular | FileKind::Symlink
            if !inode.flags().contains(InodeFlags::INLINE_DATA) =>
        {
            Ok(true)
        }
        _ => {
            let ino = inode.ino;
            Err(damaged(JournalDamage::FastCommitInode { ino }))
        }
    }
}

fn run_of(extent: &Extent) -> Run {
    Run {
        start: extent.pblk,
        len: Blocks::new(u64::from(extent.len)),
    }
}

fn taken(ino: Ino, extent: &Extent) -> Error {
    damaged(JournalDamage::FastCommitBlocks {
        ino,
        start: extent.pblk,
        blocks: extent.len,
    })
}

/// The error of an entry: one that a caller of the engine would get is damage of the record.
fn entry_error(change: &EntryChange<'_>, error: Error) -> Error {
    match error {
        Error::Exists
        | Error::Invalid
        | Error::NameTooLong
        | Error::NotDir
        | Error::IsDir
        | Error::NotEmpty
        | Error::TooManyLinks => damaged(JournalDamage::FastCommitEntry {
            parent: change.parent,
            ino: change.ino,
        }),
        error => error,
    }
}
