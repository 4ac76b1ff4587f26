//! The first inodes as bytes, and the blocks that belong to them.

use extant_disk::csum::Crc32c;
use extant_disk::dir_edit::NewEntry;
use extant_disk::dirent::FileType;
use extant_disk::features::Incompat;
use extant_disk::inode::{InodeCore, InodeFlags, InodeFormat, InodeTime, RawInode};
use extant_disk::jbd2::superblock::JournalSuperblock;
use extant_disk::mmp::Mmp;
use extant_disk::orphan;
use extant_disk::xattr::XATTR_MAGIC;
use extant_units::{Ino, Pblk, exact_u16, exact_u32};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::Result;
use crate::file_map::Map;
use crate::files::{JOURNAL_INO, LOST_FOUND_INO, RESIZE_INO, ROOT_INO};
use crate::geometry::RESERVED_INODES;
use crate::identity::Identity;
use crate::layout::Layout;
use crate::maps::{self, Block};
use crate::population::Formats;

const DIRECTORY: u16 = 0o040_000;
const REGULAR: u16 = 0o100_000;
/// Bytes behind byte 128 that the first inodes use: all fields that the format defines.
const EXTRA: u16 = 32;
/// Seconds between two signs of life of a host, unless it says otherwise.
pub(crate) const MMP_SECONDS: u16 = 5;

/// The first inodes and their blocks.
pub(crate) struct Contents {
    /// The records of inodes 1 to the last in use.
    pub(crate) records: Vec<u8>,
    /// Directories, maps, the journal's superblock, the orphan file.
    pub(crate) blocks: Vec<Block>,
    /// `i_block` and size of the journal's inode.
    pub(crate) journal: Option<([u8; 60], u64)>,
}

/// A builder that turns inodes into bytes.
struct Encoder<'a> {
    layout: &'a Layout,
    identity: &'a Identity,
    format: InodeFormat,
    contents: Contents,
}

impl Contents {
    /// The contents of `layout`.
    pub(crate) fn of(layout: &Layout, identity: &Identity) -> Result<Self> {
        let geometry = &layout.geometry;
        let count = layout.files.last_inode() as usize;
        let mut encoder = Encoder {
            layout,
            identity,
            format: Formats::of(layout, identity).inode,
            contents: Contents {
                records: vec![0; count * usize::from(geometry.inode_size)],
                blocks: Vec::new(),
                journal: None,
            },
        };
        encoder.reserved();
        encoder.directories()?;
        encoder.resize_inode()?;
        encoder.journal()?;
        encoder.mmp();
        encoder.orphan_file()?;
        encoder.quotas()?;
        Ok(encoder.contents)
    }
}

impl Encoder<'_> {
    fn ino(number: u32) -> Ino {
        Ino::new(number).expect("inodes are numbered from 1")
    }

    fn seed(&self, ino: u32) -> Option<Crc32c> {
        self.format.inode_seed(Self::ino(ino), 0)
    }

    fn record(&mut self, ino: u32) -> &mut [u8] {
        let range = self.record_of(ino);
        &mut self.contents.records[range]
    }

    /// An inode without contents.
    fn blank(&self, mode: u16, links: u16) -> InodeCore {
        let time = InodeTime {
            // A time that an option gives stops at the largest.
            secs: i64::try_from(self.identity.time).unwrap_or(i64::MAX),
            nanos: 0,
        };
        let mut core = InodeCore::blank(&self.format, EXTRA);
        (core.mode, core.links) = (mode, links);
        (core.atime, core.ctime, core.mtime) = (time, time, time);
        core.crtime = core.crtime.map(|_| time);
        core
    }

    fn put(&mut self, ino: u32, core: &InodeCore) -> Result<()> {
        let format = self.format;
        self.record(ino).fill(0);
        let stored = core.encode(&format, Self::ino(ino), self.record(ino));
        stored.map_err(|error| std::io::Error::other(error).into())
    }

    /// An inode with `map`, of `size` bytes.
    fn put_mapped(&mut self, ino: u32, mut core: InodeCore, map: &Map, size: u64) -> Result<()> {
        let geometry = &self.layout.geometry;
        let stored = maps::store(geometry, map, self.seed(ino))?;
        core.disk_size = size;
        core.sectors = map.blocks(geometry) << (geometry.block_size.log2() - 9);
        core.i_block = stored.i_block;
        if geometry.features.has_incompat(Incompat::EXTENTS) {
            core.flags |= InodeFlags::EXTENTS;
        }
        if ino == JOURNAL_INO {
            self.contents.journal = Some((core.i_block, size));
        }
        self.contents.blocks.extend(stored.blocks);
        self.put(ino, &core)
    }

    /// The inodes that are the format's own. Those without contents have nothing but a checksum;
    /// inode 1, which would own bad blocks, has times and, by tradition, none of the later fields.
    fn reserved(&mut self) {
        let time = exact_u32(self.identity.time & 0xFFFF_FFFF);
        if let Ok((raw, _)) = RawInode::mut_from_prefix(self.record(1)) {
            (raw.atime, raw.ctime, raw.mtime) = (time.into(), time.into(), time.into());
        }
        for ino in 1..=RESERVED_INODES {
            let seed = self.seed(ino);
            let record = self.record(ino);
            let sum = seed.map(|seed| seed.feed(record).raw() & 0xFFFF);
            if let (Some(sum), Ok((raw, _))) = (sum, RawInode::mut_from_prefix(record)) {
                raw.checksum_lo.set(exact_u16(sum.into()));
            }
        }
    }

    fn record_of(&self, ino: u32) -> std::ops::Range<usize> {
        let size = self.format.record_size();
        let at = (ino as usize - 1) * size;
        at..at + size
    }

    fn directories(&mut self) -> Result<()> {
        let bs = self.layout.geometry.block_size.bytes();
        let formats = Formats::of(self.layout, self.identity);
        let files = &self.layout.files;
        let (root, lost_found) = (&files.root, &files.lost_found);
        let (root_ino, lost_found_ino) = (Ino::ROOT, Self::ino(LOST_FOUND_INO));
        let mut first = vec![0; bs];
        let format = formats.directory(Ino::ROOT);
        format.init_first(&mut first, root_ino, root_ino);
        let entry = NewEntry {
            name: b"lost+found",
            ino: lost_found_ino,
            file_type: FileType::Directory,
            hash: None,
        };
        let put = format.insert(&mut first, &entry);
        put.map_err(std::io::Error::other)?;
        self.contents
            .blocks
            .extend(root.data().map(|at| (at, first.clone())));

        let format = formats.directory(lost_found_ino);
        let mut block = vec![0; bs];
        format.init_first(&mut block, lost_found_ino, root_ino);
        let mut of_lost_found = self.blank(DIRECTORY | 0o700, 2);
        let features = &self.layout.geometry.features;
        if features.has_incompat(Incompat::INLINE_DATA) {
            // As mke2fs leaves it, which makes it inside of its inode and has it grow from there.
            let parent = Ino::ROOT.get().to_le_bytes();
            if let Some(moved) = format.block_of_inside(lost_found_ino, &parent) {
                block.copy_from_slice(&moved);
            }
            if let Some(magic) = of_lost_found.xattrs.first_chunk_mut() {
                *magic = XATTR_MAGIC.to_le_bytes();
            }
        }
        for at in lost_found.data() {
            self.contents.blocks.push((at, block.clone()));
            format.init_leaf(&mut block);
        }
        let mut core = self.blank(DIRECTORY | 0o755, 3);
        (core.uid, core.gid) = self.identity.root_owner;
        self.put_mapped(ROOT_INO, core, root, root.data_blocks() * bs as u64)?;
        let size = lost_found.data_blocks() * bs as u64;
        self.put_mapped(LOST_FOUND_INO, of_lost_found, lost_found, size)
    }

    /// The inode that owns the blocks behind the descriptors: one double indirect block, which has
    /// those of group 0 as indirect blocks, each of which has its likes in the backups.
    fn resize_inode(&mut self) -> Result<()> {
        let Some(double) = self.layout.files.resize else {
            return Ok(());
        };
        let geometry = &self.layout.geometry;
        let bs = geometry.block_size;
        let blocks = &mut self.contents.blocks;
        for block in geometry.reserved_descriptors() {
            let copies = geometry.copies_of_reserved(block);
            blocks.push((block, maps::numbers(&copies, bs.bytes())));
        }
        let leads_to = geometry.resize_inode_map();
        blocks.push((double, maps::numbers(&leads_to, bs.bytes())));
        let mut core = self.blank(REGULAR | 0o600, 1);
        let mut root = [0; 15];
        root[13] = double;
        core.i_block.copy_from_slice(&maps::numbers(&root, 60));
        core.disk_size = geometry.resize_inode_size();
        core.sectors = geometry.resize_inode_blocks() << (bs.log2() - 9);
        self.put(RESIZE_INO, &core)
    }

    fn journal(&mut self) -> Result<()> {
        let Some(map) = &self.layout.files.journal else {
            return Ok(());
        };
        let bs = self.layout.geometry.block_size;
        let blocks = map.data_blocks();
        let len = exact_u32(blocks);
        let mut log = JournalSuperblock::new_empty(bs, len, self.identity.uuid);
        log.set_fast_commit_blocks(self.layout.fast_commits);
        let mut first = log.to_bytes().to_vec();
        first.resize(bs.bytes(), 0);
        self.contents
            .blocks
            .extend(map.data().next().map(|at| (at, first)));
        let core = self.blank(REGULAR | 0o600, 1);
        self.put_mapped(JOURNAL_INO, core, map, blocks * bs.bytes_u64())
    }

    fn mmp(&mut self) {
        let Some(at) = self.layout.files.mmp else {
            return;
        };
        let mut mmp = Mmp::new_clean(MMP_SECONDS);
        mmp.time.set(self.identity.time);
        mmp.seal(self.format.csum_seed);
        let mut block = mmp.as_bytes().to_vec();
        block.resize(self.layout.geometry.block_size.bytes(), 0);
        self.contents.blocks.push((at, block));
    }

    fn orphan_file(&mut self) -> Result<()> {
        let Some(map) = &self.layout.files.orphans else {
            return Ok(());
        };
        let bs = self.layout.geometry.block_size;
        let ino = self.layout.files.orphan_ino();
        let seed = self.seed(ino);
        for at in map.data() {
            let mut block = vec![0; bs.bytes()];
            orphan::init(seed, Pblk::new(at), &mut block);
            self.contents.blocks.push((at, block));
        }
        let core = self.blank(REGULAR | 0o600, 1);
        self.put_mapped(ino, core, map, map.data_blocks() * bs.bytes_u64())
    }
    fn quotas(&mut self) -> Result<()> {
        let layout = self.layout;
        let bs = layout.geometry.block_size.bytes();
        for file in &layout.files.quotas {
            for (at, content) in file.map.data().zip(file.bytes.chunks(bs)) {
                let mut block = content.to_vec();
                block.resize(bs, 0);
                self.contents.blocks.push((at, block));
            }
            let mut core = self.blank(REGULAR | 0o600, 1);
            core.flags |= InodeFlags::IMMUTABLE;
            self.put_mapped(file.ino, core, &file.map, file.bytes.len() as u64)?;
        }
        Ok(())
    }
}
