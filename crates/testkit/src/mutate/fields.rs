//! The fields of each structure: what a mutation sets, and how it is called in a report.

use super::bytes::{index, le16, part};
use super::geometry::{Geometry, LogFormat};
use super::walk::{Found, Kind};
use std::fmt;

/// One field in the image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// Its first byte in the image.
    pub(super) at: usize,
    /// Its bytes: 1, 2, 4 or 8.
    pub(super) width: usize,
    /// True if it is big-endian (the journal).
    pub(super) big: bool,
    /// As the format calls it.
    pub(super) name: &'static str,
    /// The entry that it belongs to, where there are several.
    pub(super) entry: Option<usize>,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entry {
            Some(entry) => write!(f, "entry {entry} {}", self.name),
            None => f.write_str(self.name),
        }
    }
}

/// Offset, width and name.
type Row = (usize, usize, &'static str);

const SUPERBLOCK: &[Row] = &[
    (0x00, 4, "inodes_count"),
    (0x04, 4, "blocks_count"),
    (0x08, 4, "r_blocks_count"),
    (0x0c, 4, "free_blocks_count"),
    (0x10, 4, "free_inodes_count"),
    (0x14, 4, "first_data_block"),
    (0x18, 4, "log_block_size"),
    (0x1c, 4, "log_cluster_size"),
    (0x20, 4, "blocks_per_group"),
    (0x24, 4, "clusters_per_group"),
    (0x28, 4, "inodes_per_group"),
    (0x38, 2, "magic"),
    (0x3a, 2, "state"),
    (0x3c, 2, "errors"),
    (0x48, 4, "creator_os"),
    (0x4c, 4, "rev_level"),
    (0x54, 4, "first_ino"),
    (0x58, 2, "inode_size"),
    (0x5a, 2, "block_group_nr"),
    (0x5c, 4, "feature_compat"),
    (0x60, 4, "feature_incompat"),
    (0x64, 4, "feature_ro_compat"),
    (0x68, 4, "uuid"),
    (0xce, 2, "reserved_gdt_blocks"),
    (0xe0, 4, "journal_inum"),
    (0xe4, 4, "journal_dev"),
    (0xe8, 4, "last_orphan"),
    (0xec, 4, "hash_seed"),
    (0xfc, 1, "def_hash_version"),
    (0xfe, 2, "desc_size"),
    (0x100, 4, "default_mount_opts"),
    (0x104, 4, "first_meta_bg"),
    (0x10c, 4, "jnl_blocks"),
    (0x150, 4, "blocks_count_hi"),
    (0x154, 4, "r_blocks_count_hi"),
    (0x158, 4, "free_blocks_count_hi"),
    (0x15c, 2, "min_extra_isize"),
    (0x15e, 2, "want_extra_isize"),
    (0x160, 4, "flags"),
    (0x168, 8, "mmp_block"),
    (0x174, 1, "log_groups_per_flex"),
    (0x175, 1, "checksum_type"),
    (0x194, 4, "error_count"),
    (0x240, 4, "usr_quota_inum"),
    (0x244, 4, "grp_quota_inum"),
    (0x26c, 4, "prj_quota_inum"),
    (0x24c, 4, "backup_bgs[0]"),
    (0x250, 4, "backup_bgs[1]"),
    (0x248, 4, "overhead_clusters"),
    (0x270, 4, "checksum_seed"),
    (0x280, 4, "orphan_file_inum"),
    (0x3fc, 4, "checksum"),
];

const DESCRIPTOR: &[Row] = &[
    (0x00, 4, "block_bitmap"),
    (0x04, 4, "inode_bitmap"),
    (0x08, 4, "inode_table"),
    (0x0c, 2, "free_blocks_count"),
    (0x0e, 2, "free_inodes_count"),
    (0x10, 2, "used_dirs_count"),
    (0x12, 2, "flags"),
    (0x18, 2, "block_bitmap_csum"),
    (0x1a, 2, "inode_bitmap_csum"),
    (0x1c, 2, "itable_unused"),
    (0x1e, 2, "checksum"),
    (0x20, 4, "block_bitmap_hi"),
    (0x24, 4, "inode_bitmap_hi"),
    (0x28, 4, "inode_table_hi"),
    (0x2c, 2, "free_blocks_count_hi"),
    (0x2e, 2, "free_inodes_count_hi"),
    (0x30, 2, "used_dirs_count_hi"),
    (0x32, 2, "itable_unused_hi"),
];

const INODE: &[Row] = &[
    (0x00, 2, "mode"),
    (0x02, 2, "uid"),
    (0x04, 4, "size"),
    (0x08, 4, "atime"),
    (0x0c, 4, "ctime"),
    (0x10, 4, "mtime"),
    (0x14, 4, "dtime"),
    (0x1a, 2, "links_count"),
    (0x1c, 4, "blocks"),
    (0x20, 4, "flags"),
    (0x64, 4, "generation"),
    (0x68, 4, "file_acl"),
    (0x6c, 4, "size_high"),
    (0x74, 2, "blocks_high"),
    (0x76, 2, "file_acl_high"),
    (0x7c, 2, "checksum_lo"),
    (0x80, 2, "extra_isize"),
    (0x82, 2, "checksum_hi"),
    (0x84, 4, "ctime_extra"),
    (0x8c, 4, "atime_extra"),
    (0x90, 4, "crtime"),
    (0x9c, 4, "projid"),
];

const EXTENT_HEADER: &[Row] = &[
    (0, 2, "magic"),
    (2, 2, "entries"),
    (4, 2, "max"),
    (6, 2, "depth"),
    (8, 4, "generation"),
];
const EXTENT: &[Row] = &[
    (0, 4, "block"),
    (4, 2, "len"),
    (6, 2, "start_hi"),
    (8, 4, "start_lo"),
];
const EXTENT_INDEX: &[Row] = &[(0, 4, "block"), (4, 4, "leaf_lo"), (8, 2, "leaf_hi")];

const DIRENT: &[Row] = &[
    (0, 4, "inode"),
    (4, 2, "rec_len"),
    (6, 1, "name_len"),
    (7, 1, "file_type"),
    (8, 1, "name"),
];
const ROOT_INFO: &[Row] = &[
    (0x00, 4, "dot inode"),
    (0x04, 2, "dot rec_len"),
    (0x06, 1, "dot name_len"),
    (0x0c, 4, "dotdot inode"),
    (0x10, 2, "dotdot rec_len"),
    (0x18, 4, "reserved_zero"),
    (0x1c, 1, "hash_version"),
    (0x1d, 1, "info_length"),
    (0x1e, 1, "indirect_levels"),
    (0x1f, 1, "unused_flags"),
];
const COUNT_LIMIT: &[Row] = &[(0, 2, "limit"), (2, 2, "count")];
const INDEX_ENTRY: &[Row] = &[(0, 4, "hash"), (4, 4, "block")];

const XATTR_HEADER: &[Row] = &[
    (0, 4, "magic"),
    (4, 4, "refcount"),
    (8, 4, "blocks"),
    (12, 4, "hash"),
    (16, 4, "checksum"),
];
/// The index of names of contexts.
const ENCRYPTION: u8 = 9;

const XATTR_ENTRY: &[Row] = &[
    (0, 1, "name_len"),
    (1, 1, "name_index"),
    (2, 2, "value_offs"),
    (4, 4, "value_inum"),
    (8, 4, "value_size"),
    (12, 4, "hash"),
    (16, 1, "name"),
];

/// The value of an attribute of index 9.
const CONTEXT: &[Row] = &[
    (0, 1, "context version"),
    (1, 1, "context contents mode"),
    (2, 1, "context names mode"),
    (3, 1, "context flags"),
    (4, 1, "context data unit"),
    (5, 1, "context reserved"),
    (8, 8, "context key"),
    (24, 8, "context nonce"),
];

const QUOTA_HEADER: &[Row] = &[
    (0x00, 4, "magic"),
    (0x04, 4, "version"),
    (0x08, 4, "bgrace"),
    (0x0c, 4, "igrace"),
    (0x10, 4, "flags"),
    (0x14, 4, "blocks"),
    (0x18, 4, "free_blk"),
    (0x1c, 4, "free_entry"),
];
const QUOTA_LIST: &[Row] = &[(0, 4, "next_free"), (4, 4, "prev_free"), (8, 2, "entries")];
const QUOTA_ENTRY: &[Row] = &[
    (0x00, 4, "id"),
    (0x08, 8, "ihardlimit"),
    (0x18, 8, "curinodes"),
    (0x20, 8, "bhardlimit"),
    (0x30, 8, "curspace"),
    (0x38, 8, "btime"),
    (0x40, 8, "itime"),
];

const LOG_HEADER: &[Row] = &[(0, 4, "magic"), (4, 4, "blocktype"), (8, 4, "sequence")];
const JOURNAL_SUPER: &[Row] = &[
    (0x0c, 4, "blocksize"),
    (0x10, 4, "maxlen"),
    (0x14, 4, "first"),
    (0x18, 4, "sequence"),
    (0x1c, 4, "start"),
    (0x20, 4, "errno"),
    (0x24, 4, "feature_compat"),
    (0x28, 4, "feature_incompat"),
    (0x2c, 4, "feature_ro_compat"),
    (0x30, 4, "uuid"),
    (0x50, 1, "checksum_type"),
    (0x54, 4, "num_fc_blocks"),
    (0x58, 4, "head"),
    (0xfc, 4, "checksum"),
];
const COMMIT: &[Row] = &[
    (12, 1, "chksum_type"),
    (13, 1, "chksum_size"),
    (16, 4, "chksum"),
    (0x30, 8, "commit_sec"),
    (0x38, 4, "commit_nsec"),
];
const TAG3: &[Row] = &[
    (0, 4, "blocknr"),
    (4, 4, "flags"),
    (8, 4, "blocknr_high"),
    (12, 4, "checksum"),
];
const TAG: &[Row] = &[
    (0, 4, "blocknr"),
    (4, 2, "checksum"),
    (6, 2, "flags"),
    (8, 4, "blocknr_high"),
];
const FC_TAG: &[Row] = &[(0, 2, "tag"), (2, 2, "len"), (4, 4, "value")];

/// The most entries of one structure whose fields are offered.
const MAX_ENTRIES: usize = 512;

/// Fields being collected, cut at the end of their structure.
struct Fields {
    all: Vec<Field>,
    end: usize,
    big: bool,
}

impl Fields {
    fn add(&mut self, at: usize, rows: &[Row], entry: Option<usize>) {
        for &(offset, width, name) in rows {
            let at = at + offset;
            if at + width <= self.end {
                let big = self.big;
                self.all.push(Field {
                    at,
                    width,
                    big,
                    name,
                    entry,
                });
            }
        }
    }

    fn add_all(&mut self, at: usize, step: usize, count: usize, rows: &[Row]) {
        for entry in 0..count.min(MAX_ENTRIES) {
            self.add(at + entry * step, rows, Some(entry));
        }
    }

    /// The fields of directory entries and of extended attributes.
    fn entries(&mut self, kind: Kind, at: usize, bytes: &[u8]) {
        match kind {
            Kind::DirLeaf => {
                let mut offset = 0;
                for entry in 0..MAX_ENTRIES {
                    self.add(at + offset, DIRENT, Some(entry));
                    offset += index(le16(bytes, offset + 4)).max(12);
                    if offset + 8 > bytes.len() {
                        break;
                    }
                }
            }
            Kind::DirRoot | Kind::DirNode => {
                let table = if kind == Kind::DirRoot {
                    self.add(at, ROOT_INFO, None);
                    0x20
                } else {
                    self.add(at, DIRENT, None);
                    8
                };
                self.add(at + table, COUNT_LIMIT, None);
                let count = index(le16(bytes, table + 2)).min(bytes.len() / 8);
                self.add_all(at + table, 8, count, INDEX_ENTRY);
            }
            Kind::XattrArea | Kind::XattrBlock => {
                // Values are counted from the block, or from the first entry in an inode.
                let (mut offset, values) = if kind == Kind::XattrBlock {
                    self.add(at, XATTR_HEADER, None);
                    (32, 0)
                } else {
                    self.add(at, &[(0, 4, "magic")], None);
                    (4, 4)
                };
                for entry in 0..MAX_ENTRIES {
                    self.add(at + offset, XATTR_ENTRY, Some(entry));
                    if bytes.get(offset + 1) == Some(&ENCRYPTION) {
                        let value = values + index(le16(bytes, offset + 2));
                        self.add(at + value, CONTEXT, Some(entry));
                    }
                    let name = bytes.get(offset).map_or(0, |len| usize::from(*len));
                    offset += 16 + name.next_multiple_of(4);
                    if offset + 16 > bytes.len() || super::bytes::le32(bytes, offset) == 0 {
                        break;
                    }
                }
            }
            _ => unreachable!("{kind:?} has other fields"),
        }
    }

    /// The fields of blocks of the journal.
    fn log(&mut self, kind: Kind, at: usize, bytes: &[u8], log: Option<&LogFormat>) {
        match kind {
            Kind::JournalSuper => {
                self.add(at, LOG_HEADER, None);
                self.add(at, JOURNAL_SUPER, None);
            }
            Kind::JournalDescriptor => {
                self.add(at, LOG_HEADER, None);
                if let Some(log) = log {
                    let rows = if log.v3 { TAG3 } else { TAG };
                    for (entry, tag) in log.tags(bytes).into_iter().enumerate() {
                        self.add(at + tag, rows, Some(entry));
                    }
                }
                self.add(
                    at + bytes.len().saturating_sub(4),
                    &[(0, 4, "checksum")],
                    None,
                );
            }
            Kind::JournalRevoke => {
                self.add(at, LOG_HEADER, None);
                self.add(at + 12, &[(0, 4, "count")], None);
                let wide = log.is_some_and(|log| log.wide);
                let step = if wide { 8 } else { 4 };
                let used = index(super::bytes::be32(bytes, 12)).min(bytes.len());
                let count = used.saturating_sub(16) / step;
                self.add_all(at + 16, step, count.max(1), &[(0, step, "revoked")]);
            }
            Kind::JournalCommit => {
                self.add(at, LOG_HEADER, None);
                self.add(at, COMMIT, None);
            }
            Kind::FastCommit => {
                let mut offset = 0;
                for entry in 0..MAX_ENTRIES {
                    self.add(at + offset, FC_TAG, Some(entry));
                    offset += 4 + index(le16(bytes, offset + 2));
                    if offset + 4 > bytes.len() {
                        break;
                    }
                }
            }
            _ => unreachable!("{kind:?} has other fields"),
        }
    }
}

/// The fields of a structure as its bytes are now. `log` is what the journal's superblock says, if
/// there is one.
pub(super) fn fields(
    image: &[u8],
    g: &Geometry,
    log: Option<&LogFormat>,
    found: &Found,
) -> Vec<Field> {
    let (at, bytes) = (found.at, part(image, found.at, found.len));
    let mut f = Fields {
        all: Vec::new(),
        end: at + bytes.len(),
        big: found.kind >= Kind::JournalSuper && found.kind != Kind::FastCommit,
    };
    match found.kind {
        Kind::Superblock | Kind::Backup => f.add(at, SUPERBLOCK, None),
        Kind::Descriptor => f.add(at, DESCRIPTOR, None),
        Kind::Inode => {
            f.add(at, INODE, None);
            f.add_all(at + 0x28, 4, 15, &[(0, 4, "i_block")]);
        }
        Kind::ExtentRoot | Kind::ExtentNode => {
            f.add(at, EXTENT_HEADER, None);
            let count = index(le16(bytes, 2)).min(bytes.len() / 12);
            let leaf = le16(bytes, 6) == 0;
            f.add_all(at + 12, 12, count, if leaf { EXTENT } else { EXTENT_INDEX });
            let tail = 12 + 12 * index(le16(bytes, 4));
            f.add(at + tail, &[(0, 4, "checksum")], None);
        }
        Kind::Indirect => f.add_all(at, 4, g.block_size / 4, &[(0, 4, "pointer")]),
        Kind::OrphanBlock => {
            let slots = g.block_size / 4 - 2;
            f.add_all(at, 4, slots, &[(0, 4, "slot")]);
            f.add(at + 4 * slots, &[(0, 4, "magic"), (4, 4, "checksum")], None);
        }
        Kind::QuotaHeader => f.add(at, QUOTA_HEADER, None),
        Kind::QuotaNode => {
            // What leads somewhere, and the first that does not.
            let (words, _) = bytes.as_chunks::<4>();
            let used = words
                .iter()
                .enumerate()
                .filter(|(_, word)| **word != [0; 4]);
            for (slot, _) in used {
                f.add(at + 4 * slot, &[(0, 4, "reference")], Some(slot));
            }
            if let Some(slot) = words.iter().position(|word| *word == [0; 4]) {
                f.add(at + 4 * slot, &[(0, 4, "reference")], Some(slot));
            }
        }
        Kind::QuotaEntries => {
            f.add(at, QUOTA_LIST, None);
            // Those in use, and one more.
            let count = index(le16(bytes, 8)).min(13) + 1;
            f.add_all(at + 16, 72, count, QUOTA_ENTRY);
        }
        Kind::BlockBitmap | Kind::InodeBitmap | Kind::JournalCopy => {
            f.add_all(at, 4, bytes.len() / 4, &[(0, 4, "word")]);
        }
        Kind::DirLeaf | Kind::DirRoot | Kind::DirNode | Kind::XattrArea | Kind::XattrBlock => {
            f.entries(found.kind, at, bytes)
        }
        Kind::JournalSuper
        | Kind::JournalDescriptor
        | Kind::JournalRevoke
        | Kind::JournalCommit
        | Kind::FastCommit => f.log(found.kind, at, bytes, log),
    }
    f.all
}
