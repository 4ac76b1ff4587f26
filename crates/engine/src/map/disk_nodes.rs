//! Extent tree nodes and indirect blocks in the block cache, for reading and, under a handle, for
//! changing.
//!
//! A node read here stays in the cache while its bytes are held, so a change that starts by reading
//! all it needs does not read again. Changes of the root and of the inode's block count are
//! collected and stored once, by [`HandleNodes::finish`].

use std::ops::{Deref, Range};

use extant_disk::csum::Crc32c;
use extant_disk::extent::{
    ExtentError, Node, NodeMut, ROOT_BYTES, Slot, block_capacity, owner_seed, set_checksum,
};
use extant_jbd2::{Block, BlockCache, BlockData, Handle};
use extant_units::{BlockSize, Blocks, Ino, Pblk, index};

use super::extent_tree::{Nodes, NodesMut};
use super::locked_map::{ExclusiveMap, LockedMap};
use crate::alloc;
use crate::inode::{HeldRecord, InodeFlags};
use crate::state::alloc::{AllocRequest, Run};
use crate::state::inode::Inode;
use crate::state::quota::SpaceClaim;
use crate::state::volume::{CheckKind, Layout, SystemZones};
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::{Fs, all_or_abort};

/// Read access to the nodes of one inode's tree. Needs no mounted file system.
pub(super) struct DiskNodes<'a> {
    pub(super) cache: &'a BlockCache,
    pub(super) layout: &'a Layout,
    pub(super) zones: &'a SystemZones,
    pub(super) ino: Ino,
    /// The start of every node's checksum; `None` without metadata_csum.
    seed: Option<Crc32c>,
    root: [u8; ROOT_BYTES],
}

/// A node's bytes; pins the block.
pub(super) struct NodeData {
    _block: Block,
    data: BlockData,
}

impl Deref for NodeData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.data
    }
}

impl<'a> DiskNodes<'a> {
    /// The tree with this root.
    pub(super) fn new(
        cache: &'a BlockCache,
        layout: &'a Layout,
        zones: &'a SystemZones,
        (ino, generation): (Ino, u32),
        root: [u8; ROOT_BYTES],
    ) -> Self {
        let seed = layout
            .csum_seed
            .map(|seed| owner_seed(seed, ino, generation));
        Self {
            cache,
            layout,
            zones,
            ino,
            seed,
            root,
        }
    }

    /// The tree of a locked map.
    pub(super) fn of<G>(fs: &'a Fs, map: &LockedMap<'_, G>, root: [u8; ROOT_BYTES]) -> Self {
        let inode = map.inode();
        let owner = (inode.ino, inode.generation);
        Self::new(&fs.cache, &fs.layout, &fs.zones, owner, root)
    }

    fn block(&self, at: Pblk) -> Result<Block> {
        let key = CheckKind::ExtentNode.of_inode(self.ino);
        self.cache.read(at, key, |bytes| {
            let usable = |start, len| self.usable(start, len);
            Node::check_block(bytes, self.layout.block_size, self.seed, usable)
                .map(drop)
                .map_err(|why| self.damaged(Some(at), why))
        })
    }
}

impl Nodes for DiskNodes<'_> {
    type Bytes = NodeData;

    fn block_size(&self) -> BlockSize {
        self.layout.block_size
    }

    fn root(&self) -> [u8; ROOT_BYTES] {
        self.root
    }

    fn node(&self, at: Pblk) -> Result<NodeData> {
        let block = self.block(at)?;
        let data = block.data();
        Ok(NodeData {
            _block: block,
            data,
        })
    }

    fn usable(&self, start: Pblk, len: u32) -> bool {
        let len = Blocks::new(u64::from(len));
        self.layout.contains(start, len) && self.zones.may_map(Some(self.ino), start, len)
    }

    fn damaged(&self, at: Option<Pblk>, why: ExtentError) -> Error {
        let location = at.map_or(Location::Inode(self.ino), |at| {
            Location::ExtentNode(self.ino, at)
        });
        Error::corrupt(location, why)
    }
}

/// Write access to the nodes of one inode's tree, under a handle.
pub(super) struct HandleNodes<'a> {
    disk: DiskNodes<'a>,
    fs: &'a Fs,
    inode: &'a Inode,
    h: &'a mut Handle,
    /// Node blocks may come from the pool: the change uses a reservation or frees space.
    pool: bool,
    /// Node blocks may come from root's reserve.
    privileged: bool,
    /// Node blocks must have numbers of 32 bits.
    narrow: bool,
    changed: bool,
    root_changed: bool,
    /// Blocks that the inode gained (positive) or lost.
    blocks: i64,
    /// Node blocks in the quotas of the inode, until they are counted.
    claims: Vec<SpaceClaim>,
}

impl<'a> HandleNodes<'a> {
    pub(super) fn new(
        fs: &'a Fs,
        h: &'a mut Handle,
        map: &ExclusiveMap<'a>,
        root: [u8; ROOT_BYTES],
        pool: bool,
    ) -> Self {
        let inode = map.inode();
        Self {
            disk: DiskNodes::of(fs, map, root),
            fs,
            inode,
            h,
            pool,
            privileged: pool,
            narrow: !has_extents(inode),
            changed: false,
            root_changed: false,
            blocks: 0,
            claims: Vec::new(),
        }
    }

    /// Read access to the same nodes.
    pub(super) fn disk(&self) -> &DiskNodes<'a> {
        &self.disk
    }

    /// Lets node blocks come from root's reserve.
    pub(super) fn allow_reserve(&mut self, privileged: bool) {
        self.privileged |= privileged;
    }

    /// Makes the block `at`, from [`NodesMut::allocate`], an indirect block: zeros, then `fill`
    /// runs on it.
    pub(super) fn create_numbers(&mut self, at: Pblk, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        let key = CheckKind::Indirect.of_inode(self.disk.ino);
        let block = self.h.create(at, key)?;
        self.changed = true;
        Ok(self.h.modify(&block, fill)?)
    }

    /// Changes an indirect block.
    pub(super) fn edit_numbers(
        &mut self,
        block: &Block,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        self.changed = true;
        Ok(self.h.modify(block, change)?)
    }

    /// Counts `count` blocks as added to the inode.
    pub(super) fn add_blocks(&mut self, count: Blocks) {
        self.blocks = self.blocks.saturating_add_unsigned(count.get());
    }

    /// Counts `count` blocks as removed from the inode.
    pub(super) fn sub_blocks(&mut self, count: Blocks) {
        self.blocks = self.blocks.saturating_sub_unsigned(count.get());
    }

    /// Stores what changed in the inode, whose record is `record`.
    pub(super) fn finish(self, record: &HeldRecord) -> Result<()> {
        if self.changed || self.root_changed {
            self.inode.note_change(self.h);
        }
        if !self.root_changed && self.blocks == 0 {
            return Ok(());
        }
        let sectors = self.blocks << (self.disk.layout.block_size.log2() - 9);
        self.inode.update_held(self.fs, self.h, record, |core| {
            core.i_block = self.disk.root;
            // Saturates, as the count of a damaged inode may be anything.
            core.sectors = core.sectors.saturating_add_signed(sectors);
        })
    }
}

impl Nodes for HandleNodes<'_> {
    type Bytes = NodeData;

    fn block_size(&self) -> BlockSize {
        self.disk.block_size()
    }

    fn root(&self) -> [u8; ROOT_BYTES] {
        self.disk.root
    }

    fn node(&self, at: Pblk) -> Result<NodeData> {
        self.disk.node(at)
    }

    fn usable(&self, start: Pblk, len: u32) -> bool {
        self.disk.usable(start, len)
    }

    fn damaged(&self, at: Option<Pblk>, why: ExtentError) -> Error {
        self.disk.damaged(at, why)
    }
}

impl NodesMut for HandleNodes<'_> {
    fn set_root(&mut self, root: &[u8; ROOT_BYTES]) -> Result<()> {
        self.disk.root = *root;
        self.root_changed = true;
        Ok(())
    }

    fn edit(
        &mut self,
        at: Pblk,
        change: impl FnOnce(&mut NodeMut<'_>) -> Result<(), ExtentError>,
    ) -> Result<()> {
        let block = self.disk.block(at)?;
        let seed = self.disk.seed;
        self.changed = true;
        self.h
            .modify(&block, |bytes| {
                change(&mut NodeMut::open(bytes)?)?;
                seed.map_or(Ok(()), |seed| set_checksum(bytes, seed))
            })?
            .map_err(|why| self.damaged(Some(at), why))
    }

    fn create(&mut self, at: Pblk, depth: u16, entries: &[Slot]) -> Result<()> {
        let key = CheckKind::ExtentNode.of_inode(self.disk.ino);
        let block = self.h.create(at, key)?;
        let max = block_capacity(self.disk.layout.block_size);
        debug_assert!(!entries.is_empty() && entries.len() <= usize::from(max));
        let seed = self.disk.seed;
        self.changed = true;
        self.h
            .modify(&block, |bytes| {
                NodeMut::init(bytes, depth, max)?.insert(0, entries)?;
                seed.map_or(Ok(()), |seed| set_checksum(bytes, seed))
            })?
            .map_err(|why| self.damaged(Some(at), why))
    }

    fn allocate(&mut self, goal: Option<Pblk>, count: usize) -> Result<Vec<Pblk>> {
        let goal = goal.unwrap_or_else(|| alloc::goal_for_nodes(self.fs, self.inode));
        if !self.pool && count > 0 {
            let bytes = count as u64 * self.disk.layout.cluster_bytes();
            let quota = self.inode.quota.as_ref();
            self.claims
                .push(SpaceClaim::take(quota, bytes, self.privileged)?);
        }
        let cluster = self.disk.layout.cluster_blocks();
        let mut nodes = Vec::with_capacity(count);
        while nodes.len() < count {
            let missing = (count - nodes.len()) as u64;
            let request = AllocRequest {
                metadata: true,
                privileged: self.privileged,
                narrow: self.narrow,
                pool: self.pool,
                ..AllocRequest::new(goal, Blocks::new(missing * cluster.get()))
            };
            match alloc::allocate_blocks(self.fs, self.h, &request) {
                // Each node has a cluster for itself.
                Ok(run) => nodes.extend(
                    (0..run.len.get())
                        .step_by(index(cluster.get()))
                        .map(|i| run.start.plus(i)),
                ),
                Err(error) => {
                    let undoes = !nodes.is_empty();
                    // None of them was used: freed without a revoke. A failure here loses space
                    // only.
                    for at in nodes {
                        let run = Run {
                            start: at,
                            len: Blocks::ONE,
                        };
                        let freed = alloc::free_blocks(self.fs, self.h, run, false);
                        freed.unwrap_or_else(|error| self.fs.fault.report(self.fs, &error));
                    }
                    if undoes && matches!(error, Error::Corrupt { .. }) {
                        // All is as before, which the journal need not stop for. The damaged group
                        // is out of use: there is no space in it.
                        self.fs.fault.report(self.fs, &error);
                        return Err(Error::NoSpace);
                    }
                    return Err(error);
                }
            }
        }
        debug_assert_eq!(nodes.len(), count, "no more blocks than were asked for");
        self.add_blocks(Blocks::new(count as u64 * cluster.get()));
        Ok(nodes)
    }

    fn release(&mut self, at: Pblk) {
        self.sub_blocks(self.disk.layout.cluster_blocks());
        let run = Run {
            start: at,
            len: Blocks::ONE,
        };
        let freed = alloc::free_blocks(self.fs, self.h, run, true);
        freed.unwrap_or_else(|error| self.fs.fault.report(self.fs, &error));
    }
}

/// Runs `f` on the nodes of the locked tree and stores what it changed in the inode, also after an
/// error: a step that fails has changed nothing, the steps before it count.
pub(super) fn with_nodes<R>(
    fs: &Fs,
    h: &mut Handle,
    map: &ExclusiveMap<'_>,
    pool: bool,
    f: impl FnOnce(&mut HandleNodes<'_>) -> Result<R>,
) -> Result<R> {
    let record = map.inode().hold_record(fs)?;
    let root = map.inode().core.read().i_block;
    let result = all_or_abort(h, |h| {
        let mut nodes = HandleNodes::new(fs, h, map, root, pool);
        let result = f(&mut nodes);
        let stored = nodes.finish(&record);
        result.and_then(|result| stored.map(|()| result))
    });
    result.inspect_err(|error| fs.fault.report(fs, error))
}

/// A change of a map that a fast commit tells.
pub(super) struct ToldChange<'a, 'b> {
    pub(super) map: &'a ExclusiveMap<'b>,
    /// As for [`with_nodes`].
    pub(super) pool: bool,
    /// The file blocks that may get another place or state: the fast commit says what they are
    /// then. Empty for a change of nodes alone.
    pub(super) blocks: Range<u64>,
}

/// As [`with_nodes`], for changes of a map that a fast commit tells.
pub(super) fn with_told_nodes<R>(
    fs: &Fs,
    h: &mut Handle,
    change: ToldChange<'_, '_>,
    f: impl FnOnce(&mut HandleNodes<'_>) -> Result<R>,
) -> Result<R> {
    let ToldChange { map, pool, blocks } = change;
    let inode = map.inode();
    if inode.kind == FileKind::Regular && has_extents(inode) {
        note_range(fs, h, inode, blocks);
        return h.telling(|h| with_nodes(fs, h, map, pool, f));
    }
    with_nodes(fs, h, map, pool, f)
}

/// Notes that the file blocks `range` of `inode` get another place or state under `h`.
pub(super) fn note_range(fs: &Fs, h: &mut Handle, inode: &Inode, range: Range<u64>) {
    if let Some(operations) = &fs.operations
        && inode.kind == FileKind::Regular
    {
        operations.change_range(h, inode.ino, range);
    }
}

/// Returns whether the map of `inode` is an extent tree.
pub(super) fn has_extents(inode: &Inode) -> bool {
    inode.flags().contains(InodeFlags::EXTENTS)
}
