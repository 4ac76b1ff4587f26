//! Finds the structures of an image, sound or already mutated.
//!
//! The walk is of its own: it shares no code with the engine, so that a misunderstanding is not
//! shared either. Whatever an image says, every block is found once at most and the walk ends.

use super::bytes::{be32, index, le16, le32, part};
use super::geometry::{Geometry, LogFormat, MAX_INODES, SUPERBLOCK};
use std::collections::BTreeMap;
use std::fmt;

/// Kind of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the structures of the format, by their names")]
pub enum Kind {
    Superblock,
    Backup,
    Descriptor,
    BlockBitmap,
    InodeBitmap,
    Inode,
    ExtentRoot,
    ExtentNode,
    Indirect,
    DirLeaf,
    DirRoot,
    DirNode,
    XattrArea,
    XattrBlock,
    OrphanBlock,
    QuotaHeader,
    QuotaNode,
    QuotaEntries,
    JournalSuper,
    JournalDescriptor,
    JournalRevoke,
    JournalCommit,
    JournalCopy,
    FastCommit,
}

/// Location of a structure. `owner` is its inode or group; `place` its file block, log block or
/// level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Kind of the structure.
    pub kind: Kind,
    /// Its first byte in the image.
    pub at: usize,
    /// Its bytes.
    pub len: usize,
    /// The inode or group that it belongs to.
    pub owner: u32,
    /// Which one of its owner.
    pub place: u64,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, place) = (self.owner, self.place);
        match self.kind {
            Kind::Superblock => f.write_str("superblock"),
            Kind::Backup => write!(f, "superblock of group {owner}"),
            Kind::Descriptor => write!(f, "group {owner}: descriptor"),
            Kind::BlockBitmap => write!(f, "group {owner}: block bitmap"),
            Kind::InodeBitmap => write!(f, "group {owner}: inode bitmap"),
            Kind::Inode => write!(f, "inode {owner}"),
            Kind::ExtentRoot => write!(f, "inode {owner}: extent root"),
            Kind::ExtentNode => write!(f, "inode {owner}: extent node in block {place}"),
            Kind::Indirect => write!(f, "inode {owner}: indirect block {place}"),
            Kind::DirLeaf => write!(f, "inode {owner}: directory block {place}"),
            Kind::DirRoot => write!(f, "inode {owner}: index root"),
            Kind::DirNode => write!(f, "inode {owner}: index node {place}"),
            Kind::XattrArea => write!(f, "inode {owner}: attributes in the inode"),
            Kind::XattrBlock => write!(f, "inode {owner}: attribute block {place}"),
            Kind::OrphanBlock => write!(f, "orphan file: block {place}"),
            Kind::QuotaHeader => write!(f, "quotas of inode {owner}: header"),
            Kind::QuotaNode => write!(f, "quotas of inode {owner}: node {place}"),
            Kind::QuotaEntries => write!(f, "quotas of inode {owner}: entries in block {place}"),
            Kind::JournalSuper => f.write_str("journal superblock"),
            Kind::JournalDescriptor => write!(f, "log block {place}: descriptor"),
            Kind::JournalRevoke => write!(f, "log block {place}: revoke block"),
            Kind::JournalCommit => write!(f, "log block {place}: commit block"),
            Kind::JournalCopy => write!(f, "log block {place}: copy"),
            Kind::FastCommit => write!(f, "log block {place}: fast commits"),
        }
    }
}

const S_IFMT: u64 = 0o170_000;
const S_IFDIR: u64 = 0o040_000;
const S_IFREG: u64 = 0o100_000;
const S_IFLNK: u64 = 0o120_000;
const FLAG_EXTENTS: u64 = 0x8_0000;
const FLAG_INDEX: u64 = 0x1000;
const FLAG_INLINE: u64 = 0x1000_0000;
const EXTENT_MAGIC: u64 = 0xf30a;
pub(super) const XATTR_MAGIC: u64 = 0xea02_0000;
/// Bytes of a block of a file of quotas, and the levels of nodes of its tree.
const QUOTA_BLOCK: usize = 1024;
const QUOTA_LEVELS: u32 = 4;
const JOURNAL_MAGIC: u64 = 0xc03b_3998;
/// The deepest tree followed.
const MAX_DEPTH: u32 = 6;
/// The most runs of one file, and the most structures of an image.
const MAX_RUNS: usize = 4096;
const MAX_FOUND: usize = 1 << 16;

/// A run of a file's blocks.
#[derive(Clone, Copy)]
struct Run {
    lblk: u64,
    pblk: u64,
    len: u64,
}

/// Every structure of `image`, in no promised order; none if it has no superblock to speak of.
pub(super) fn walk(image: &[u8]) -> (Option<Geometry>, Vec<Found>) {
    let Some(geometry) = Geometry::of(image) else {
        return (None, superblock(image).into_iter().collect());
    };
    let seen = vec![false; index(geometry.blocks)];
    let mut walk = Walk {
        image,
        g: &geometry,
        found: superblock(image).into_iter().collect(),
        seen,
    };
    walk.groups();
    walk.inodes();
    walk.journal();
    let found = walk.found;
    (Some(geometry), found)
}

fn superblock(image: &[u8]) -> Option<Found> {
    (image.len() >= SUPERBLOCK + 1024).then_some(Found {
        kind: Kind::Superblock,
        at: SUPERBLOCK,
        len: 1024,
        owner: 0,
        place: 0,
    })
}

struct Walk<'a> {
    image: &'a [u8],
    g: &'a Geometry,
    found: Vec<Found>,
    seen: Vec<bool>,
}

impl Walk<'_> {
    fn push(&mut self, kind: Kind, at: usize, len: usize, owner: u32, place: u64) {
        let fits = at
            .checked_add(len)
            .is_some_and(|end| end <= self.image.len());
        if fits && len > 0 && self.found.len() < MAX_FOUND {
            self.found.push(Found {
                kind,
                at,
                len,
                owner,
                place,
            });
        }
    }

    /// A whole block, unless it was found before.
    fn push_block(&mut self, kind: Kind, block: u64, owner: u32, place: u64) -> bool {
        let fresh = match self.seen.get_mut(index(block)) {
            Some(seen) if self.g.holds(block) => !std::mem::replace(seen, true),
            _ => false,
        };
        if fresh {
            self.push(kind, self.g.byte(block), self.g.block_size, owner, place);
        }
        fresh
    }

    fn block(&self, block: u64) -> &[u8] {
        part(self.image, self.g.byte(block), self.g.block_size)
    }

    fn groups(&mut self) {
        for group in 0..self.g.groups {
            if group > 0 && self.g.has_backup(group) {
                let at = self.g.byte(self.g.group_start(group));
                self.push(Kind::Backup, at, 1024, group, 0);
            }
            let at = self.g.descriptor(group);
            self.push(Kind::Descriptor, at, self.g.desc_size, group, 0);
            let blocks = self.g.desc_block(self.image, group, 0x00);
            self.push_block(Kind::BlockBitmap, blocks, group, blocks);
            let inodes = self.g.desc_block(self.image, group, 0x04);
            self.push_block(Kind::InodeBitmap, inodes, group, inodes);
        }
    }

    fn inodes(&mut self) {
        let all = self
            .g
            .inodes_per_group
            .saturating_mul(self.g.groups)
            .min(MAX_INODES);
        for ino in 1..=all {
            let Some(at) = self.g.record(self.image, ino) else {
                continue;
            };
            if le16(self.image, at) != 0 {
                self.inode(ino, at);
            }
        }
    }

    fn inode(&mut self, ino: u32, at: usize) {
        let record = part(self.image, at, self.g.inode_size);
        self.push(Kind::Inode, at, self.g.inode_size, ino, 0);
        let (mode, size) = (le16(record, 0) & S_IFMT, le32(record, 4));
        let flags = le32(record, 0x20);
        let acl = le16(record, 0x76) << 32 | le32(record, 0x68);
        let area = 128 + index(le16(record, 128));
        if self.g.inode_size > area && le32(record, area) == XATTR_MAGIC {
            self.push(Kind::XattrArea, at + area, self.g.inode_size - area, ino, 0);
        }
        if acl != 0 {
            self.push_block(Kind::XattrBlock, acl, ino, acl);
        }
        let mapped = matches!(mode, S_IFDIR | S_IFREG) || (mode == S_IFLNK && size >= 60);
        if !mapped || flags & FLAG_INLINE != 0 {
            return;
        }
        let mut runs = Vec::new();
        if flags & FLAG_EXTENTS != 0 {
            self.push(Kind::ExtentRoot, at + 0x28, 60, ino, 0);
            self.extents(ino, at + 0x28, 60, MAX_DEPTH, &mut runs);
        } else {
            self.indirect(ino, at + 0x28, &mut runs);
        }
        if mode == S_IFDIR {
            self.directory(ino, flags & FLAG_INDEX != 0, &runs);
        } else if Some(ino) == self.g.orphan_file {
            for (lblk, pblk) in blocks(&runs) {
                self.push_block(Kind::OrphanBlock, pblk, ino, lblk);
            }
        } else if self.g.quotas.contains(&Some(ino)) {
            self.quotas(ino, &runs);
        }
    }

    /// A file of quotas, of blocks of 1 KiB: a header, and a tree whose leaves have entries.
    fn quotas(&mut self, ino: u32, runs: &[Run]) {
        let per_block = self.g.block_size / QUOTA_BLOCK;
        let mut places: BTreeMap<u64, usize> = BTreeMap::new();
        for (lblk, pblk) in blocks(runs) {
            let fresh = self.seen.get(index(pblk)).is_some_and(|seen| !seen);
            if !fresh || !self.g.holds(pblk) {
                continue;
            }
            self.seen[index(pblk)] = true;
            for piece in 0..per_block {
                let at = self.g.byte(pblk) + piece * QUOTA_BLOCK;
                places.insert(lblk * per_block as u64 + piece as u64, at);
            }
        }
        let mut level = vec![1];
        let header = places.remove(&0);
        let header = header.map(|at| (at, 0, Kind::QuotaHeader));
        let mut found: Vec<_> = header.into_iter().collect();
        for depth in 0..=QUOTA_LEVELS {
            let mut next = Vec::new();
            for place in level {
                let Some(at) = places.remove(&place) else {
                    continue;
                };
                if depth == QUOTA_LEVELS {
                    found.push((at, place, Kind::QuotaEntries));
                    continue;
                }
                found.push((at, place, Kind::QuotaNode));
                next.extend((0..256).map(|slot| le32(self.image, at + 4 * slot)));
            }
            next.sort_unstable();
            next.dedup();
            level = next;
        }
        for (at, place, kind) in found {
            self.push(kind, at, QUOTA_BLOCK, ino, place);
        }
    }

    fn extents(&mut self, ino: u32, at: usize, len: usize, depth: u32, runs: &mut Vec<Run>) {
        let node = part(self.image, at, len);
        if le16(node, 0) != EXTENT_MAGIC || depth == 0 {
            return;
        }
        let entries = index(le16(node, 2)).min(len.saturating_sub(12) / 12);
        let leaf = le16(node, 6) == 0;
        for entry in 0..entries {
            let e = part(self.image, at + 12 + 12 * entry, 12);
            if leaf {
                let len = match le16(e, 4) {
                    unwritten @ 0x8001.. => unwritten - 0x8000,
                    written => written,
                };
                if runs.len() < MAX_RUNS {
                    runs.push(Run {
                        lblk: le32(e, 0),
                        pblk: le16(e, 6) << 32 | le32(e, 8),
                        len,
                    });
                }
            } else {
                let child = le16(e, 8) << 32 | le32(e, 4);
                if self.push_block(Kind::ExtentNode, child, ino, child) {
                    let (at, len) = (self.g.byte(child), self.g.block_size);
                    self.extents(ino, at, len, depth - 1, runs);
                }
            }
        }
    }

    fn indirect(&mut self, ino: u32, at: usize, runs: &mut Vec<Run>) {
        for slot in 0..15usize {
            let block = le32(self.image, at + 4 * slot);
            if !self.g.holds(block) {
                continue;
            }
            match slot {
                0..12 => runs.push(Run {
                    lblk: slot as u64,
                    pblk: block,
                    len: 1,
                }),
                _ => self.pointers(ino, block, slot - 11, runs),
            }
        }
    }

    /// A block of pointers, `levels` above the data. File blocks are counted on, holes not seen:
    /// good enough to find blocks by.
    fn pointers(&mut self, ino: u32, block: u64, levels: usize, runs: &mut Vec<Run>) {
        if levels == 0 || !self.push_block(Kind::Indirect, block, ino, block) {
            return;
        }
        let at = self.g.byte(block);
        for slot in 0..self.g.block_size / 4 {
            let child = le32(self.image, at + 4 * slot);
            if !self.g.holds(child) || runs.len() >= MAX_RUNS {
                continue;
            }
            if levels == 1 {
                let lblk = runs.last().map_or(12, |run| run.lblk + run.len);
                runs.push(Run {
                    lblk,
                    pblk: child,
                    len: 1,
                });
            } else {
                self.pointers(ino, child, levels - 1, runs);
            }
        }
    }

    fn directory(&mut self, ino: u32, indexed: bool, runs: &[Run]) {
        for (lblk, pblk) in blocks(runs) {
            let block = self.block(pblk);
            let hides_all = le32(block, 0) == 0
                && index(le16(block, 4)) == self.g.block_size.min(0xffff)
                && le16(block, 6) == 0;
            let kind = match indexed {
                true if lblk == 0 => Kind::DirRoot,
                true if hides_all => Kind::DirNode,
                _ => Kind::DirLeaf,
            };
            self.push_block(kind, pblk, ino, lblk);
        }
    }

    fn journal(&mut self) {
        let Some((ino, at)) = self
            .g
            .journal
            .and_then(|ino| Some((ino, self.g.record(self.image, ino)?)))
        else {
            return;
        };
        let mut runs = Vec::new();
        // Blocks of its map were found with the inode; they are walked once more here.
        let seen = std::mem::replace(&mut self.seen, vec![false; index(self.g.blocks)]);
        let before = self.found.len();
        if le32(self.image, at + 0x20) & FLAG_EXTENTS != 0 {
            self.extents(ino, at + 0x28, 60, MAX_DEPTH, &mut runs);
        } else {
            self.indirect(ino, at + 0x28, &mut runs);
        }
        self.found.truncate(before);
        self.seen = seen;
        let log: Vec<u64> = blocks(&runs)
            .map(|(_, pblk)| pblk)
            .filter(|&pblk| self.g.holds(pblk))
            .collect();
        let Some(&first) = log.first() else { return };
        self.push_block(Kind::JournalSuper, first, ino, 0);
        let format = LogFormat::of(self.image, self.g.byte(first));
        for (number, &pblk) in log.iter().enumerate().skip(1) {
            let block = self.block(pblk);
            if number as u64 >= format.end && (number as u64) < format.end + format.fast_commit {
                if le32(block, 0) != 0 {
                    self.push_block(Kind::FastCommit, pblk, ino, number as u64);
                }
                continue;
            }
            if be32(block, 0) != JOURNAL_MAGIC {
                continue;
            }
            let kind = match be32(block, 4) {
                1 => Kind::JournalDescriptor,
                2 => Kind::JournalCommit,
                5 => Kind::JournalRevoke,
                _ => continue,
            };
            let tags = format.tags(block).len();
            if self.push_block(kind, pblk, ino, number as u64) && kind == Kind::JournalDescriptor {
                for copy in copies(&format, number, tags) {
                    if let Some(&pblk) = log.get(copy) {
                        self.push_block(Kind::JournalCopy, pblk, ino, copy as u64);
                    }
                }
            }
        }
    }
}

/// The log blocks of the `tags` copies behind the descriptor in log block `number`.
pub(super) fn copies(
    format: &LogFormat,
    number: usize,
    tags: usize,
) -> impl Iterator<Item = usize> {
    let (first, end) = (index(format.first), index(format.end));
    (1..=tags).map(move |step| {
        let at = number + step;
        if at >= end {
            first.saturating_add(at - end)
        } else {
            at
        }
    })
}

/// File block and device block of each block of some runs, at most as many as a walk may look at.
fn blocks(runs: &[Run]) -> impl Iterator<Item = (u64, u64)> {
    runs.iter()
        .flat_map(|run| (0..run.len).map(|i| (run.lblk + i, run.pblk.saturating_add(i))))
        .take(MAX_FOUND)
}
