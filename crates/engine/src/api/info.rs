//! The description of an image that is not mounted.
//!
//! The image is only read and nothing is locked: one that is mounted elsewhere can be described, as
//! of some moment.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use extant_blockdev::{BlockDevice, FileIo};
use extant_disk::extent::Node;
use extant_disk::features::{FeatureName, Incompat};
use extant_disk::group_desc::{GroupChecksum, GroupDesc, GroupFlags};
use extant_disk::jbd2::Checksums;
use extant_disk::jbd2::superblock::JournalSuperblock;
use extant_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock};
use extant_units::{DevOff, Group, exact_u32};

use super::options::open_to_look;
use crate::Error;
use crate::Location;
use crate::Result;
use crate::state::volume::Layout;
use crate::types::Timestamp;
use crate::types::error::NO_DEVICE;

/// The fields of the superblock, of the group descriptors and of the journal's superblock.
#[derive(Clone, Debug)]
pub struct ImageInfo {
    /// Label; bytes, usually UTF-8.
    pub label: Vec<u8>,
    /// UUID.
    pub uuid: [u8; 16],
    /// Block size in bytes.
    pub block_size: u32,
    /// Bytes that are allocated at once: a block, or with `bigalloc` a cluster of several.
    pub cluster_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Blocks for root only.
    pub reserved_blocks: u64,
    /// Bytes of an inode.
    pub inode_size: u32,
    /// Inodes.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Number of groups.
    pub group_count: u32,
    /// Blocks of a group.
    pub blocks_per_group: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Time of its creation.
    pub made: Timestamp,
    /// Time of the last mount.
    pub mounted: Timestamp,
    /// Time of the last write.
    pub written: Timestamp,
    /// Mount point of the last mount.
    pub last_mounted_on: Vec<u8>,
    /// The last unmount was in order.
    pub clean: bool,
    /// Errors were found in it.
    pub has_errors: bool,
    /// The journal must be replayed.
    pub needs_replay: bool,
    /// Names of compatible features.
    pub compat: Vec<String>,
    /// Names of incompatible features.
    pub incompat: Vec<String>,
    /// Names of read-only-compatible features.
    pub ro_compat: Vec<String>,
    /// The internal journal.
    pub journal: Option<JournalInfo>,
    /// The journal is on another device.
    pub external_journal: bool,
    /// The groups.
    pub groups: Vec<GroupInfo>,
}

/// The internal journal.
#[derive(Clone, Debug)]
pub struct JournalInfo {
    /// Its inode.
    pub inode: u32,
    /// Its blocks.
    pub blocks: u64,
    /// Its checksums: `none`, `v1`, `v2`, `v3`, or `unknown` if its superblock cannot be read.
    pub checksum: &'static str,
    /// The log is empty.
    pub empty: bool,
}

/// One group.
#[derive(Clone, Debug)]
pub struct GroupInfo {
    /// Its number.
    pub number: u32,
    /// Free blocks.
    pub free_blocks: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories.
    pub directories: u32,
    /// Inodes at the end of its table that were never used.
    pub unused_inodes: u32,
    /// Names of its flags.
    pub flags: Vec<&'static str>,
}

/// Reads bytes at an offset.
type ReadAt<'a> = &'a dyn Fn(u64, &mut [u8]) -> io::Result<()>;

impl ImageInfo {
    /// Reads an image file or block device, even one that is in use.
    ///
    /// # Errors
    /// [`Error::NotExt4`] and damage to the superblock, by name. A group descriptor with a wrong
    /// checksum is logged.
    pub fn read(path: impl AsRef<Path>) -> Result<ImageInfo> {
        let path = path.as_ref();
        // Before it is opened: opening a pipe would wait for a writer.
        let kind = fs::metadata(path).map_err(Error::of_host)?.file_type();
        if kind.is_dir() {
            return Err(Error::IsDir);
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Err(Error::NotExt4(NO_DEVICE.into()));
        }
        if let Err(error @ Error::InUse { .. }) = open_to_look(path, FileIo::SYSCALLS) {
            let image = path.display();
            tracing::warn!("{image}: {error}: what is seen may be out of date");
        }
        let file = File::open(path).map_err(Error::of_host)?;
        ImageInfo::gather(&|at, buf| file.read_exact_at(buf, at))
    }

    /// Reads any block device.
    ///
    /// # Errors
    /// As [`ImageInfo::read`].
    pub fn of(device: &dyn BlockDevice) -> Result<ImageInfo> {
        ImageInfo::gather(&|at, buf| device.read_at(DevOff::new(at), buf))
    }

    fn gather(read_at: ReadAt<'_>) -> Result<ImageInfo> {
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        match read_at(SUPERBLOCK_OFFSET, &mut bytes) {
            Err(error)
                if error.kind() == io::ErrorKind::UnexpectedEof
                    || error.kind() == io::ErrorKind::InvalidInput =>
            {
                return Err(Error::NotExt4("it is too short for a superblock".into()));
            }
            other => other?,
        }
        let sb = Superblock::parse(&bytes)?;
        let raw = sb.raw();
        let state = raw.state();
        let features = sb.features();
        let names = |names: &mut dyn Iterator<Item = FeatureName>| {
            names.map(|name| name.to_string()).collect::<Vec<_>>()
        };
        let time = |secs: u64| Timestamp {
            secs: i64::try_from(secs).unwrap_or(i64::MAX),
            nanos: 0,
        };
        let internal = sb.journal_inode();
        Ok(ImageInfo {
            label: sb.label().to_vec(),
            uuid: raw.uuid,
            block_size: exact_u32(sb.block_size().bytes_u64()),
            cluster_size: exact_u32(sb.block_size().bytes_u64() << sb.cluster_bits()),
            blocks: sb.blocks_count().get(),
            free_blocks: raw.free_blocks_count().get(),
            reserved_blocks: sb.reserved_blocks().get(),
            inode_size: exact_u32(sb.inode_size() as u64),
            inodes: sb.inodes_count(),
            free_inodes: raw.free_inodes_count.get(),
            group_count: sb.group_count(),
            blocks_per_group: sb.blocks_per_group(),
            inodes_per_group: sb.inodes_per_group(),
            made: time(sb.made_at()),
            mounted: time(raw.mount_time()),
            written: time(raw.write_time()),
            last_mounted_on: sb.last_mounted().to_vec(),
            clean: state.contains(State::VALID),
            has_errors: state.contains(State::ERROR),
            needs_replay: features.has_incompat(Incompat::RECOVER),
            compat: names(&mut features.compat.names()),
            incompat: names(&mut features.incompat.names()),
            ro_compat: names(&mut features.ro_compat.names()),
            journal: internal.map(|ino| journal(&sb, ino.get(), read_at)),
            external_journal: internal.is_none()
                && features.has_compat(extant_disk::features::Compat::HAS_JOURNAL),
            groups: groups(&sb, read_at)?,
        })
    }
}

/// The groups, by their descriptors.
fn groups(sb: &Superblock, read_at: ReadAt<'_>) -> Result<Vec<GroupInfo>> {
    let layout = Layout::new(sb);
    let checksum = GroupChecksum::of(sb);
    let mut desc = vec![0; sb.desc_size()];
    let mut groups = Vec::new();
    for number in 0..sb.group_count() {
        let (block, offset) = layout.desc_location(Group::new(number));
        let at = block.get().saturating_mul(sb.block_size().bytes_u64());
        read_at(at.saturating_add(offset as u64), &mut desc)?;
        let group = Group::new(number);
        let unsealed = |error| {
            tracing::warn!("{}", Error::corrupt(Location::GroupDesc(group), error));
            GroupDesc::parse(&desc, group, &GroupChecksum::None)
        };
        let desc = GroupDesc::parse(&desc, group, &checksum)
            .or_else(unsealed)
            .map_err(|error| Error::corrupt(Location::GroupDesc(group), error))?;
        let flags = [
            (GroupFlags::INODE_UNINIT, "inode_uninit"),
            (GroupFlags::BLOCK_UNINIT, "block_uninit"),
            (GroupFlags::ITABLE_ZEROED, "itable_zeroed"),
        ];
        groups.push(GroupInfo {
            number,
            free_blocks: desc.free_blocks.saturating_mul(1 << sb.cluster_bits()),
            free_inodes: desc.free_inodes,
            directories: desc.used_dirs,
            unused_inodes: desc.itable_unused,
            flags: flags
                .iter()
                .filter(|(bit, _)| desc.flags.contains(*bit))
                .map(|f| f.1)
                .collect(),
        });
    }
    Ok(groups)
}

/// The journal, found by the copy of its inode's map that the superblock keeps.
fn journal(sb: &Superblock, inode: u32, read_at: ReadAt<'_>) -> JournalInfo {
    /// Bytes of an inode's map; behind it follow the halves of its size.
    const MAP: usize = 60;
    let words = sb.raw().jnl_blocks;
    let size = u64::from(words[15].get()) << 32 | u64::from(words[16].get());
    let blocks = size / sb.block_size().bytes() as u64;
    let map: Vec<u8> = words
        .iter()
        .flat_map(|word| word.get().to_le_bytes())
        .collect();
    let first = map
        .get(..MAP)
        .and_then(|map| Node::open(map).ok())
        .filter(|node| node.depth() == 0)
        .and_then(|node| node.extent(0))
        .and_then(|extent| sb.block_size().dev_off(extent.pblk));
    let mut block = vec![0; sb.block_size().bytes()];
    let log = first
        .and_then(|at| read_at(at.get(), &mut block).ok())
        .and_then(|()| JournalSuperblock::parse(&block, sb.block_size(), blocks).ok());
    let checksum = log
        .as_ref()
        .map_or("unknown", |log| match log.format().checksums {
            Checksums::None => "none",
            Checksums::V1 => "v1",
            Checksums::V2 => "v2",
            Checksums::V3 => "v3",
        });
    JournalInfo {
        inode,
        blocks,
        checksum,
        empty: log.is_some_and(|log| log.start() == 0),
    }
}
