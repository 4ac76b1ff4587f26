//! The whole plan: what lies where on a new volume, and what is left.

use std::ops::Range;

use extant_disk::extent::MAX_WRITTEN;
use extant_disk::features::{Compat, Incompat, RoCompat};
use extant_disk::geometry::{Geometry, GroupTables};

use crate::error::{Error, Result};
use crate::external_journal::ExternalJournal;
use crate::file_map::Map;
use crate::files::{Files, JournalSize, LOST_FOUND_INO, ROOT_INO};
use crate::geometry;
use crate::options::Options;
use crate::profile::Profile;
use crate::quotas::Quotas;
use crate::space::Space;
use crate::tables::Ground;

/// The blocks of everything on a new volume. Computed from options and a size, without any I/O.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(crate) geometry: Geometry,
    pub(crate) tables: Vec<GroupTables>,
    pub(crate) files: Files,
    /// The journal, if it is on a device of its own.
    pub(crate) external_journal: Option<ExternalJournal>,
    /// Blocks at the journal's end that are an area for fast commits.
    pub(crate) fast_commits: u32,
    /// Owner and group of the root directory, which the files of quotas count.
    pub(crate) root_owner: (u32, u32),
    pub(crate) space: Space,
    /// By group: whether its block bitmap is written.
    pub(crate) touched: Vec<bool>,
    /// The last inode in use.
    last_inode: u32,
    /// By group: its directories.
    directories: Vec<u32>,
    /// Clusters of metadata and of the journal, as the superblock counts them.
    pub(crate) overhead: u64,
    pub(crate) stride: u32,
    /// Names in folded directories must be UTF-8 (`s_encoding_flags`).
    pub(crate) strict_names: bool,
    pub(crate) stripe_width: u32,
    /// Set if unused parts of inode tables are not zeroed.
    pub(crate) lazy_itable_init: bool,
}

impl Layout {
    /// Plans a volume of `bytes` bytes.
    ///
    /// # Errors
    /// Every refusal of [`Error`] that needs no device.
    pub fn plan(options: &Options, bytes: u64) -> Result<Self> {
        if u16::try_from(options.stride).is_err() {
            let why = "at most 65535 are possible";
            return Err(Error::bad("the stride", options.stride, why));
        }
        let profile = Profile::of(options.usage, bytes);
        let mut geometry = geometry::choose(options, &profile, bytes)?;
        let folds = geometry.features.has_incompat(Incompat::CASEFOLD);
        if options.strict_names && !folds {
            return Err(Error::Conflict("encoding_flags=strict needs casefold"));
        }
        let external_journal = external_journal(options, &geometry)?;
        let JournalSize {
            blocks: journal,
            fast_commits,
        } = match external_journal {
            Some(_) => JournalSize::NONE,
            None => JournalSize::of(&geometry, options)?,
        };
        choose_features(&mut geometry, journal, external_journal.is_some());
        let mut ground = Ground::new(&geometry);
        let volume = geometry.first_block()..geometry.blocks;
        let most = ground.free_for_a_journal() / 2;
        if options.journal_mib.is_some() && journal > most {
            let blocks = journal;
            return Err(Error::JournalTooLarge { blocks, most });
        }
        if journal > 0 && geometry.cluster_blocks() > MAX_WRITTEN.into() {
            let why = "clusters of more than 32768 blocks hold no journal: take ^has_journal";
            return Err(Error::Conflict(why));
        }
        let tables = ground.allocate_tables(options.stride, bytes)?;
        ground.fill_clusters();
        let taken = (volume.end - volume.start) - ground.space.free_in(volume);
        let clusters = geometry.clusters_for(taken) + geometry.clusters_for(journal);
        let overhead = geometry.first_block() + clusters;
        let free = ground
            .space
            .free_in(geometry.first_block()..geometry.blocks);
        let quotas = Quotas {
            kinds: options.quotas,
            owner: options.root_owner,
        };
        let files = Files::allocate(&mut ground, journal, &quotas, bytes)?;
        let (space, touched) = (ground.space, ground.touched);
        // A block that two files have counts once. No option leads here, nothing is written yet.
        assert_eq!(
            free - space.free_in(geometry.first_block()..geometry.blocks),
            files.blocks(&geometry),
            "each block of a file was free"
        );
        Ok(Self {
            last_inode: files.last_inode(),
            directories: directories_of(&geometry),
            tables,
            files,
            external_journal,
            fast_commits,
            root_owner: options.root_owner,
            space,
            touched,
            overhead,
            stride: options.stride,
            strict_names: options.strict_names,
            stripe_width: options.stripe_width,
            lazy_itable_init: options.lazy_itable_init.unwrap_or(profile.lazy_itable_init),
            geometry,
        })
    }

    /// The sizes and counts.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Blocks of the journal, zero without one.
    pub fn journal_blocks(&self) -> u64 {
        self.files.journal.as_ref().map_or(0, Map::data_blocks)
    }

    /// Blocks that are free, in whole clusters.
    pub fn free_blocks(&self) -> u64 {
        self.space
            .free_in(self.geometry.first_block()..self.geometry.blocks)
    }

    /// Inodes that are free.
    pub fn free_inodes(&self) -> u32 {
        self.geometry.inodes() - self.last_inode
    }

    /// Bytes that the volume takes of its device.
    pub fn bytes(&self) -> u64 {
        self.geometry.blocks * self.geometry.block_size.bytes_u64()
    }

    /// Inodes of `group` that are in use: the first ones of it.
    pub(crate) fn used_inodes(&self, group: u32) -> u32 {
        let before = group * self.geometry.inodes_per_group;
        let used = self.last_inode.saturating_sub(before);
        used.min(self.geometry.inodes_per_group)
    }

    /// Directories in `group`.
    pub(crate) fn directories(&self, group: u32) -> u32 {
        self.directories[group as usize]
    }

    /// The last inode that an empty volume uses.
    pub fn last_inode(&self) -> u32 {
        self.last_inode
    }

    /// The runs of free blocks, in order.
    pub fn free_runs(&self) -> Vec<Range<u64>> {
        let mut runs = Vec::new();
        let end = self.geometry.blocks;
        let mut at = self.geometry.first_block();
        for taken in self.space.taken_in(at..end) {
            if at < taken.start {
                runs.push(at..taken.start);
            }
            at = taken.end;
        }
        if at < end {
            runs.push(at..end);
        }
        runs
    }

    /// The blocks of the root directory.
    pub fn root_runs(&self) -> &[Range<u64>] {
        &self.files.root.runs
    }

    /// The blocks of lost+found.
    pub fn lost_found_runs(&self) -> &[Range<u64>] {
        &self.files.lost_found.runs
    }

    /// Takes free blocks for files and the inodes up to `last_inode`; `directories` has the inodes
    /// of the directories among them, those of an empty volume left out. What they hold is written
    /// by [`write_populated`](crate::write_populated).
    ///
    /// # Panics
    /// More inodes or blocks than there are.
    pub fn populate(
        &mut self,
        taken: &[Range<u64>],
        last_inode: u32,
        directories: impl Iterator<Item = u32>,
    ) {
        assert!(
            last_inode <= self.geometry.inodes(),
            "the plan has room for all inodes"
        );
        let (free, all) = (
            self.free_blocks(),
            taken.iter().map(|run| run.end - run.start),
        );
        let all: u64 = all.sum();
        for run in taken.iter().filter(|run| !run.is_empty()) {
            self.space.take(run.clone());
            for group in self.geometry.group_of(run.start)..=self.geometry.group_of(run.end - 1) {
                self.touched[group as usize] = true;
            }
        }
        assert_eq!(
            free - self.free_blocks(),
            all,
            "files get free blocks, each once"
        );
        self.last_inode = self.last_inode.max(last_inode);
        for ino in directories {
            debug_assert!(ino > LOST_FOUND_INO && ino <= self.last_inode);
            let group = (ino - 1) / self.geometry.inodes_per_group;
            self.directories[group as usize] += 1;
        }
    }

    /// Returns whether `group`'s block bitmap is left out: all that is used there follows from the
    /// format.
    pub(crate) fn is_block_uninit(&self, group: u32) -> bool {
        let touched = self.touched[group as usize];
        self.geometry.features.group_csum() && !touched && self.used_inodes(group) == 0
    }

    /// Returns whether `group`'s inode bitmap is left out.
    pub(crate) fn is_inode_uninit(&self, group: u32) -> bool {
        self.geometry.features.group_csum() && self.used_inodes(group) == 0
    }
}

/// The directories of an empty volume, by group.
fn directories_of(geometry: &Geometry) -> Vec<u32> {
    let mut counts = vec![0; geometry.groups as usize];
    for ino in [ROOT_INO, LOST_FOUND_INO] {
        counts[((ino - 1) / geometry.inodes_per_group) as usize] += 1;
    }
    counts
}

/// The journal on a device of its own that `options` ask for.
fn external_journal(options: &Options, geometry: &Geometry) -> Result<Option<ExternalJournal>> {
    let Some(journal) = &options.external_journal else {
        return Ok(None);
    };
    if !geometry.features.has_compat(Compat::HAS_JOURNAL) {
        return Err(Error::Conflict("a journal's device needs has_journal"));
    }
    if options.journal_mib.is_some() {
        let why = "a journal on a device of its own has the size of that";
        return Err(Error::Conflict(why));
    }
    if geometry.features.has_compat(Compat::FAST_COMMIT) {
        let why = "a journal on a device of its own is made without an area for fast commits";
        return Err(Error::Conflict(why));
    }
    if u64::from(journal.block_size) != geometry.block_size.bytes_u64() {
        return Err(Error::BadJournal {
            path: journal.path.clone(),
            why: format!("its blocks have {} bytes", journal.block_size),
        });
    }
    Ok(Some(journal.clone()))
}

/// Chooses the features that follow from the content of the volume.
fn choose_features(geometry: &mut Geometry, journal: u64, is_external: bool) {
    let bs = geometry.block_size.bytes_u64();
    if journal == 0 && !is_external {
        geometry.features.compat -= Compat::HAS_JOURNAL | Compat::ORPHAN_FILE | Compat::FAST_COMMIT;
    }
    let resize = geometry.features.has_compat(Compat::RESIZE_INODE);
    let mapped = geometry.resize_inode_size();
    if journal * bs > i32::MAX.unsigned_abs().into()
        || (resize && mapped > i32::MAX.unsigned_abs().into())
    {
        geometry.features.ro_compat |= RoCompat::LARGE_FILE;
    }
}
