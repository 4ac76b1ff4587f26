//! Where a file's blocks are: extent trees and block maps, every block of them claimed.

use std::mem::offset_of;

use extant_disk::csum::Crc32c;
use extant_disk::extent::{self, Expect, Extent, ExtentError, Index, Node, RawHeader};
use extant_disk::inode::{InodeCore, InodeFlags};
use extant_units::{BlockSize, Ino, Lblk, Pblk};

use super::report::Findings;
use super::usage::Usage;
use super::volume::Volume;
use crate::error::Result;
use extant_disk::location::Location;

/// Entries fewer than fit that a node may be made for.
const SPARE: u16 = 2;

/// What a map holds.
#[derive(Default)]
pub(super) struct Map {
    /// Runs of blocks in file order.
    pub(super) runs: Vec<Extent>,
    /// Blocks claimed: data and the map's own.
    pub(super) claimed: u64,
}

/// Walks the map of one inode. Only one at a time runs for an inode; several inodes run at once.
pub(super) struct Walker<'a> {
    pub(super) volume: &'a Volume,
    pub(super) usage: &'a Usage,
    pub(super) findings: &'a Findings,
    pub(super) ino: Ino,
    pub(super) generation: u32,
}

impl Walker<'_> {
    /// The whole map of an inode that has one.
    pub(super) fn walk(&self, core: &InodeCore) -> Result<Map> {
        let mut map = Map::default();
        if core.flags.contains(InodeFlags::EXTENTS) {
            self.extents(&core.i_block, &mut map)?;
        } else {
            self.pointers(&core.i_block, &mut map)?;
        }
        Ok(map)
    }

    /// Claims blocks for the inode; false, after a finding, if they do not lie in the file system or belong to another.
    pub(super) fn claim(&self, first: Pblk, count: u32, map: &mut Map) -> bool {
        if !self.volume.holds(first, u64::from(count)) {
            let what = format_args!("{count} blocks at {first} lie outside of the file system");
            self.findings.add(Location::Inode(self.ino), what);
            return false;
        }
        map.claimed += u64::from(count);
        if let Some(taken) = self.usage.claim(first, u64::from(count)) {
            let what = format_args!("block {taken} has another owner as well");
            self.findings.add(Location::Inode(self.ino), what);
            return false;
        }
        true
    }

    /// Walks an extent tree with a stack of its own. A node is descended into only if its block was claimed by
    /// nobody before, which bounds the walk on any image.
    fn extents(&self, root: &[u8; 60], map: &mut Map) -> Result<()> {
        let anywhere = |_: Pblk, _: u32| true;
        let root = match Node::check_root(root, anywhere) {
            Ok(root) => root,
            Err(error) => {
                self.findings.add(Location::Inode(self.ino), error);
                return Ok(());
            }
        };
        if root.max() + SPARE < extent::ROOT_CAPACITY {
            let max = root.max();
            let what = format_args!("extent root for {max} entries only");
            self.findings.add(Location::Inode(self.ino), what);
        }
        let mut pending = Vec::new();
        self.node(&root, Expect::ROOT.end, map, &mut pending);
        let bs = self.volume.sb.block_size();
        let seed = self.volume.owner_seed(self.ino, self.generation);
        while let Some((index, expect)) = pending.pop() {
            if !self.claim(index.child, 1, map) {
                continue;
            }
            let place = Location::ExtentNode(self.ino, index.child);
            let mut block = self.volume.block(index.child)?;
            let seed = match self.wrong_depth(place, &mut block, &expect, seed) {
                true => None,
                false => seed,
            };
            match Node::check_block(&block, bs, seed, anywhere) {
                Ok(node) if node.max() + SPARE < extent::block_capacity(bs) => {
                    let max = node.max();
                    self.findings
                        .add(place, format_args!("extent node for {max} entries only"));
                }
                Ok(node) => match node.agrees(&expect) {
                    Ok(()) => self.node(&node, expect.end, map, &mut pending),
                    Err(error) => self.findings.add(place, error),
                },
                Err(error) => self.findings.add(place, error),
            }
        }
        Ok(())
    }

    /// Reports a node of another depth than its parent's place in the tree implies, which says what its entries are; gives it
    /// the right one then and returns true: its checksum was looked at.
    fn wrong_depth(
        &self,
        place: Location,
        block: &mut [u8],
        expect: &Expect,
        seed: Option<Crc32c>,
    ) -> bool {
        let depth = offset_of!(RawHeader, depth);
        let stored = block.get(depth..).and_then(|rest| rest.first_chunk::<2>());
        let (Some(expected), Some(stored)) = (expect.depth, stored) else {
            return false;
        };
        let found = u16::from_le_bytes(*stored);
        if found == expected {
            return false;
        }
        self.findings
            .add(place, ExtentError::BadDepth { found, expected });
        if let Some(Err(error)) = seed.map(|seed| extent::verify_checksum(block, seed)) {
            self.findings.add(place, error);
        }
        if let Some(stored) = block.get_mut(depth..depth + 2) {
            stored.copy_from_slice(&expected.to_le_bytes());
        }
        true
    }

    /// Takes over a leaf's extents, or queues an index node's children so that they come in file order.
    fn node(&self, node: &Node<'_>, end: u64, map: &mut Map, pending: &mut Vec<(Index, Expect)>) {
        if node.depth() == 0 {
            for extent in node.extents() {
                // Blocks of another owner are reported, not walked again: that bounds the work on any image.
                if self.claim(extent.pblk, extent.len, map) {
                    map.runs.push(extent);
                }
            }
            return;
        }
        for at in (0..node.len()).rev() {
            let Some(index) = node.index(at) else {
                continue;
            };
            let expect = Expect {
                depth: Some(node.depth().saturating_sub(1)),
                first: Some(index.lblk),
                end: node.next_start(at, end),
            };
            pending.push((index, expect));
        }
    }

    /// The map of ext2 and ext3: twelve blocks, then one, two and three levels of pointers.
    fn pointers(&self, area: &[u8; 60], map: &mut Map) -> Result<()> {
        let per_block = (self.volume.sb.block_size().bytes() / 4) as u64;
        let mut lblk = 0;
        for (at, pointer) in words(area).enumerate() {
            let level = u32::try_from(at.saturating_sub(11)).unwrap_or(0);
            self.pointer(pointer, level, lblk, map)?;
            lblk += per_block.pow(level);
        }
        Ok(())
    }

    /// One pointer with `level` levels of pointers below it (at most three).
    fn pointer(&self, pointer: u32, level: u32, lblk: u64, map: &mut Map) -> Result<()> {
        if pointer == 0 {
            return Ok(());
        }
        let pblk = Pblk::new(u64::from(pointer));
        let Ok(start) = u32::try_from(lblk) else {
            self.findings.add(
                Location::Inode(self.ino),
                "the block map reaches past the largest file",
            );
            return Ok(());
        };
        if !self.claim(pblk, 1, map) {
            return Ok(());
        }
        if level == 0 {
            push(&mut map.runs, Lblk::new(start), pblk);
            return Ok(());
        }
        let block = self.volume.block(pblk)?;
        let span = ((block.len() / 4) as u64).pow(level - 1);
        for (at, below) in words(&block).enumerate() {
            self.pointer(below, level - 1, lblk + at as u64 * span, map)?;
        }
        Ok(())
    }
}

/// Bytes of the largest file that a map of this kind can hold.
pub(super) fn largest_file(bs: BlockSize, extents: bool) -> u64 {
    if extents {
        return (bs.bytes_u64() << 32) - 1;
    }
    let per_block = bs.bytes_u64() / 4;
    let blocks = 12 + per_block + per_block.pow(2) + per_block.pow(3);
    blocks * bs.bytes_u64()
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u32::from_le_bytes(*word))
}

/// Adds one block to the runs, lengthening the last if it continues.
fn push(runs: &mut Vec<Extent>, lblk: Lblk, pblk: Pblk) {
    if let Some(last) = runs.last_mut()
        && last.end() == u64::from(lblk.get())
        && last.pblk.checked_add(u64::from(last.len)) == Some(pblk)
    {
        last.len += 1;
        return;
    }
    runs.push(Extent {
        lblk,
        len: 1,
        pblk,
        unwritten: false,
    });
}
