//! The metadata of the planned files as bytes: inodes, directories, maps, attributes.

use std::io;

use extant_disk::extent::{Extent, store_tree};
use extant_disk::file_kind::FileKind;
use extant_disk::inode::{BLOCK_AREA, InodeCore, InodeFlags, InodeTime};
use extant_disk::xattr::{BlockHeader, Fit, seal_block};
use extant_mkfs::{Formats, Population};
use extant_units::{Ino, Pblk, exact_u16, exact_u32};

use crate::directory::LOST_FOUND;
use crate::extents::logical;
use crate::sizing::Planned;
use crate::tree::{Node, NodeId, Tree};

/// Bytes behind byte 128 that inodes use: all fields that the format defines.
const EXTRA: u16 = 32;

/// Planned files on their way to a volume.
pub(crate) struct Image<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) planned: &'a Planned,
    pub(crate) formats: Formats,
    /// The files with data.
    pub(crate) files: &'a [NodeId],
}

type Put<'a> = dyn FnMut(u64, &[u8]) -> io::Result<()> + 'a;

impl Image<'_> {
    fn block_size(&self) -> u64 {
        self.formats.inode.block_size.bytes_u64()
    }

    fn extents(&self, id: NodeId) -> Vec<Extent> {
        let placement = &self.planned.placement;
        placement.extents(self.tree, id, self.block_size())
    }

    /// The extent tree of a node: what the inode holds; its blocks go to `put`.
    fn map(&self, id: NodeId, put: Option<&mut Put<'_>>) -> io::Result<[u8; BLOCK_AREA]> {
        let seed = self.formats.inode.inode_seed(self.tree.ino(id), 0);
        let nodes = self.planned.placement.map(id);
        let nodes: Vec<Pblk> = nodes.iter().copied().map(Pblk::new).collect();
        let bs = self.formats.inode.block_size;
        let stored = store_tree(&self.extents(id), &nodes, bs, seed);
        let (root, blocks) = stored.map_err(io::Error::other)?;
        if let Some(put) = put {
            assert_eq!(
                blocks.len(),
                nodes.len(),
                "each block of the map is written"
            );
            for (block, bytes) in blocks {
                put(block.get(), &bytes)?;
            }
        }
        Ok(root)
    }

    fn directory(&self, id: NodeId, put: &mut Put<'_>) -> io::Result<()> {
        let format = self.formats.directory(self.tree.ino(id));
        let blocks = self.tree.node(id).size / self.block_size();
        let runs = self.planned.placement.runs(self.tree, id, blocks);
        let dirs = &self.planned.dirs;
        dirs.write(self.tree, id, &format, blocks, &mut |at, bytes| {
            let mut past = at;
            for run in &runs {
                let len = run.end - run.start;
                if past < len {
                    return put(run.start + past, bytes);
                }
                past -= len;
            }
            Err(io::Error::other(
                "a directory without a block for its names",
            ))
        })
    }

    fn attributes(&self, put: &mut Put<'_>) -> io::Result<()> {
        let mut all: Vec<_> = self.planned.placement.attrs.iter().collect();
        all.sort_unstable_by_key(|(_, blocks)| blocks.first().map(|block| block.block));
        let mut bytes = vec![0; self.formats.inode.block_size.bytes()];
        for (set, blocks) in all {
            for block in blocks {
                let written = self.tree.attrs.get(*set).block.write_block(&mut bytes);
                debug_assert_eq!(written, Fit::Fits, "the store divided them so");
                if let Some(header) = BlockHeader::of_mut(&mut bytes) {
                    header.refcount.set(block.users);
                }
                seal_block(self.formats.seed(), Pblk::new(block.block), &mut bytes);
                put(block.block, &bytes)?;
            }
        }
        Ok(())
    }

    /// The target of a link that does not fit the inode.
    fn long_link(&self, id: NodeId, put: &mut Put<'_>) -> io::Result<()> {
        let node = self.tree.node(id);
        let mut block = self.tree.link_target(node).to_vec();
        assert!(
            block.len() <= self.formats.inode.block_size.bytes(),
            "a target fits a block"
        );
        block.resize(self.formats.inode.block_size.bytes(), 0);
        put(node.start, &block)
    }

    /// Fills `i_block`, and sets the flags that say what it holds.
    fn content(&self, id: NodeId, core: &mut InodeCore) -> io::Result<()> {
        let node = self.tree.node(id);
        match node.kind() {
            FileKind::CharDevice | FileKind::BlockDevice => core.i_block = numbers(node.data),
            FileKind::Fifo | FileKind::Socket => {}
            FileKind::Symlink if !self.has_blocks(id) => {
                let target = self.tree.link_target(node);
                core.i_block[..target.len()].copy_from_slice(target);
            }
            _ => {
                core.i_block = self.map(id, None)?;
                core.flags |= InodeFlags::EXTENTS;
            }
        }
        Ok(())
    }

    /// Returns whether a directory has an index: all that have more than a block, where there are
    /// indexes.
    fn is_indexed(&self, dir: &Node) -> bool {
        let is_long = dir.size > self.block_size();
        is_long && self.planned.dirs.indexed && dir.ino != LOST_FOUND
    }

    fn has_blocks(&self, id: NodeId) -> bool {
        !logical(self.tree, id, self.block_size()).is_empty()
    }
}

impl Population for Image<'_> {
    fn blocks(&self, put: &mut Put<'_>) -> io::Result<()> {
        let numbering = &self.planned.numbering;
        for &id in &numbering.dirs {
            self.directory(id, put)?;
        }
        for &id in &numbering.nodes {
            if self.tree.node(id).kind() == FileKind::Symlink && self.has_blocks(id) {
                self.long_link(id, put)?;
            }
        }
        self.attributes(put)?;
        for &id in self.files.iter().chain(&numbering.dirs) {
            if !self.planned.placement.map(id).is_empty() {
                self.map(id, Some(put))?;
            }
        }
        Ok(())
    }

    fn inode(&self, ino: Ino, record: &mut [u8]) -> io::Result<()> {
        let Some(id) = self.planned.numbering.node(ino.get()) else {
            return Ok(());
        };
        let node = self.tree.node(id);
        let format = &self.formats.inode;
        let mut core = InodeCore::blank(format, EXTRA);
        core.mode = node.mode;
        core.links = exact_u16(node.links.into());
        (core.uid, core.gid) = (node.uid, node.gid);
        let time = |time: extant_archive::Timestamp| InodeTime {
            secs: time.secs,
            nanos: time.nanos,
        };
        (core.mtime, core.ctime) = (time(node.mtime), time(node.mtime));
        core.atime = time(node.atime);
        core.crtime = core.crtime.map(|_| time(node.mtime));
        core.disk_size = node.size;
        if node.is_dir() && self.is_indexed(node) {
            core.flags |= InodeFlags::INDEX;
        }
        self.content(id, &mut core)?;
        let placement = &self.planned.placement;
        let data = placement.data_blocks(self.tree, id, self.block_size());
        let mut single = placement.map(id).len() as u64;
        let attrs = self.tree.attrs.get(node.attrs);
        let written = attrs.area.write_area(&mut core.xattrs);
        debug_assert_eq!(written, Fit::Fits, "the store divided them so");
        if let Some(block) = placement.attr_block(node.attrs, ino.get()) {
            core.file_acl = Pblk::new(block);
            single += 1;
        }
        let blocks = data + placement.single_blocks(single);
        core.sectors = blocks << (format.block_size.log2() - 9);
        record.fill(0);
        let encoded = core.encode(format, ino, record);
        encoded.map_err(|error| io::Error::other(format!("{}: {error}", self.tree.path(id))))
    }
}

/// The numbers of a device as Linux keeps them: small ones in the first word, others in the second.
fn numbers(data: u64) -> [u8; BLOCK_AREA] {
    let (major, minor) = (exact_u32(data >> 32), exact_u32(data & 0xFFFF_FFFF));
    let (at, word) = if major < 256 && minor < 256 {
        (0, major << 8 | minor)
    } else {
        (4, minor & 0xFF | major << 8 | (minor & 0xF_FF00) << 12)
    };
    let mut area = [0; BLOCK_AREA];
    area[at..at + 4].copy_from_slice(&word.to_le_bytes());
    area
}
