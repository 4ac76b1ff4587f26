//! The inodes with fixed numbers that are no files: bad blocks, the resize inode, and those without
//! a use.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use extant_disk::damage::ReservedDamage;
use extant_disk::extent::Extent;
use extant_disk::file_kind::FileKind;
use extant_disk::inode::{InodeCore, RawInode};
use extant_disk::location::Location;
use extant_units::{Ino, Lblk, Pblk, exact_u32, index};

use crate::error::Result;
use crate::findings::Findings;
use crate::maps::{DIRECT, Map, MapWalker};
use crate::role::Role;
use crate::volume::Volume;

/// The slot of `i_block` that leads to the resize inode's blocks, with two levels of pointers.
const DOUBLE_INDIRECT: usize = 13;

/// One reserved inode.
pub(crate) struct Reserved<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) findings: &'a Findings,
    pub(crate) ino: Ino,
    pub(crate) raw: &'a RawInode,
    pub(crate) core: &'a InodeCore,
}

impl Reserved<'_> {
    fn add(&self, damage: ReservedDamage) {
        self.findings.add(Location::Inode(self.ino), damage);
    }

    /// Checks the rules for inodes of `role`, beside those for all maps.
    pub(crate) fn check(&self, role: Role, kind: Option<FileKind>) {
        let mode = self.core.mode;
        match role {
            Role::Absent => {
                let empty = self.core.links == 0
                    && self.core.sectors == 0
                    && self.core.i_block[..4] == [0; 4];
                if !empty {
                    self.add(ReservedDamage::NotEmpty);
                }
            }
            Role::Reserved if mode != 0 => {
                self.add(ReservedDamage::Mode { mode });
            }
            Role::BootLoader if kind == Some(FileKind::Directory) => {
                self.add(ReservedDamage::BootLoader);
            }
            Role::BadBlocks => {
                let plain = matches!(kind, Some(FileKind::Regular)) || mode == 0;
                let core = self.core;
                let raw = self.raw;
                let unowned = raw.uid_lo.get() | raw.gid_lo.get() | core.links == 0;
                if !plain || !unowned || core.file_acl != Pblk::ZERO {
                    self.add(ReservedDamage::BadBlocks);
                }
            }
            Role::Journal if kind != Some(FileKind::Regular) => {
                self.add(ReservedDamage::JournalMode { mode });
            }
            Role::Quota if kind != Some(FileKind::Regular) => {
                self.add(ReservedDamage::QuotaMode { mode });
            }
            Role::OrphanFile if kind != Some(FileKind::Regular) => {
                self.add(ReservedDamage::OrphanFileMode { mode });
            }
            _ => {}
        }
    }

    /// Checks the map of the resize inode: a hole up to the double indirect block. That leads to
    /// every block reserved for descriptors in group 0, and each of these to the blocks reserved
    /// for the same descriptors in the other groups. The groups have claimed all of them; the
    /// double indirect block belongs to the inode.
    pub(crate) fn resize(&self, walker: &MapWalker<'_>) -> Result<Map> {
        let mut map = Map::default();
        let sb = &self.volume.sb;
        if self.core.mode >> 12 != 0o10 || self.core.links == 0 {
            self.add(ReservedDamage::ResizeMode);
        }
        if self.core.file_acl != Pblk::ZERO {
            self.add(ReservedDamage::ResizeAttributes);
        }
        let (words, _) = self.core.i_block.as_chunks::<4>();
        let pointer = |at: usize| words.get(at).map_or(0, |word| u32::from_le_bytes(*word));
        if (0..words.len()).any(|at| at != DOUBLE_INDIRECT && pointer(at) != 0) {
            self.add(ReservedDamage::ResizeMap);
        }
        let dind = Pblk::new(u64::from(pointer(DOUBLE_INDIRECT)));
        if !walker.claim(dind, 1, &mut map) {
            return Ok(map);
        }
        let reserved = u64::from(sb.reserved_gdt_blocks());
        let first = sb.descriptor_start().get() + u64::from(sb.desc_blocks());
        let dind = self.volume.block(dind)?;
        let per_block = dind.len() / 4;
        // A counterpart is whole groups further on. With `bigalloc` and blocks of 1 KiB that is one
        // block past it, as group 0 alone begins with the boot block; e2fsprogs counts so as well.
        let backups: Vec<u64> = (self.volume.group_numbers().skip(1))
            .filter(|group| sb.has_backup(*group))
            .map(|group| self.volume.group_start(group) - sb.first_data_block().get())
            .take(per_block)
            .collect();
        let mut leads_to = vec![0; per_block];
        for at in 0..reserved {
            let slot = index(u64::from(sb.desc_blocks()) + at);
            leads_to[slot % per_block] = first + at;
        }
        // Blocks that damage leads to may be the same for all slots: each is read once.
        let mut known = HashMap::new();
        for (slot, expected) in leads_to.into_iter().enumerate() {
            let found = word(&dind, slot);
            if found != expected {
                self.add(ReservedDamage::ResizePointer { expected, found });
            }
            if expected != 0 && !self.leads_to_copies(expected, &backups)? {
                self.add(ReservedDamage::ResizeCopies { block: expected });
            }
            let pblk = Pblk::new(found);
            if !self.volume.holds(pblk, 1) {
                continue;
            }
            let copies = match known.entry(found) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => *entry.insert(self.copies_at(pblk)?),
            };
            // With `bigalloc` each counts as a cluster.
            map.claimed += 1 + copies.count;
            if let Some((nth, pblk)) = copies.last {
                // A block leads to at most 2^14 others.
                let lblk = exact_u32((DIRECT + per_block * (1 + slot) + nth) as u64);
                // The counterparts are its data, which the size reaches.
                map.runs = vec![Extent {
                    lblk: Lblk::new(lblk),
                    len: 1,
                    pblk,
                    unwritten: false,
                }];
            }
        }
        Ok(map)
    }

    /// Returns whether the reserved block `pblk` leads to its counterparts, at the distances
    /// `backups`, and nowhere else.
    fn leads_to_copies(&self, pblk: u64, backups: &[u64]) -> Result<bool> {
        let block = self.volume.block(Pblk::new(pblk))?;
        let expected = backups.iter().map(|offset| pblk + offset);
        let mut expected = expected.chain(std::iter::repeat(0));
        Ok((0..block.len() / 4).all(|nth| Some(word(&block, nth)) == expected.next()))
    }

    /// The blocks of the volume that the block `pblk` leads to.
    fn copies_at(&self, pblk: Pblk) -> Result<Copies> {
        let block = self.volume.block(pblk)?;
        let pointers = (0..block.len() / 4).map(|nth| (nth, Pblk::new(word(&block, nth))));
        let held = pointers.filter(|(_, pblk)| self.volume.holds(*pblk, 1));
        let none = Copies {
            count: 0,
            last: None,
        };
        Ok(held.fold(none, |copies, at| Copies {
            count: copies.count + 1,
            last: Some(at),
        }))
    }
}

/// The blocks that a block of pointers leads to.
#[derive(Clone, Copy)]
struct Copies {
    count: u64,
    /// The last pointer, by its number in the block.
    last: Option<(usize, Pblk)>,
}

/// The pointer `at` of a block.
fn word(block: &[u8], at: usize) -> u64 {
    let (words, _) = block.as_chunks::<4>();
    u64::from(words.get(at).map_or(0, |word| u32::from_le_bytes(*word)))
}
