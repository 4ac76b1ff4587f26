//! Options of the caller.

use std::path::PathBuf;

use extant_archive::Timestamp;

use crate::pattern::Pattern;
use crate::tree::Node;

/// How a volume is built.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Options of the volume. Where they say nothing, blocks have 4096 bytes, nothing is reserved,
    /// UUID and hash seed follow from the contents, and the time is that of the newest file.
    pub volume: extant_mkfs::Options,
    /// Bytes of the volume, instead of the fewest that do.
    pub size: Option<u64>,
    /// Bytes that stay free on the smallest volume.
    pub free: u64,
    /// The same as a share of the space for files, in percent: at most 99. With `free`, the larger
    /// one counts.
    pub free_percent: u8,
    /// Owner of all files, instead of their own. A file that gets another owner or group loses its
    /// set-id bits and its capabilities, as by chown(2).
    pub uid: Option<u32>,
    /// Group of all files, instead of their own; as `uid`.
    pub gid: Option<u32>,
    /// Owners that become others. Set-id bits stay, but for those of files that become root's:
    /// the tree is the same one, with other numbers. Capabilities go, as they are about all owners.
    pub uid_map: Vec<IdRange>,
    /// Groups that become others.
    pub gid_map: Vec<IdRange>,
    /// Modification time of all files, instead of their own.
    pub mtime: Option<Timestamp>,
    /// Files that are newer get this time, in seconds since 1970 (`SOURCE_DATE_EPOCH`).
    pub newest: Option<i64>,
    /// A list of attributes for paths, and of nodes to add.
    pub manifest: Option<PathBuf>,
    /// A list of paths whose data lie first, in this order.
    pub order: Option<PathBuf>,
    /// Paths left out of the sources, with all that is below.
    pub exclude: Vec<Pattern>,
    /// Attributes `trusted.*` of folders too, which the host shows to root alone: without them, the
    /// image does not depend on the user.
    pub trusted: bool,
    /// Which image of an OCI layout or a `docker save` archive, by its name.
    pub image: Option<String>,
    /// Which of its platforms: `OS/ARCHITECTURE`, or with `/VARIANT`.
    pub platform: Option<String>,
    /// Threads that read and write data, instead of one for each processor.
    pub threads: Option<usize>,
    /// The most bytes that compressed sources may unpack to.
    pub limit: Option<u64>,
}

/// Ids that are counted on from another one: `from..from + count` become `to..to + count`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdRange {
    /// The first id of the source.
    pub from: u32,
    /// The number that it becomes.
    pub to: u32,
    /// How many there are.
    pub count: u32,
}

impl IdRange {
    fn map(&self, id: u32) -> Option<u32> {
        let past = id.checked_sub(self.from)?;
        (past < self.count).then(|| self.to.checked_add(past))?
    }
}

/// Set-user-ID and set-group-ID.
const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;

impl Options {
    /// Gives a node of a source the owner and the time that are asked for. Set-id bits that were
    /// not meant for the owner go. Returns whether a file has another owner now.
    pub(crate) fn adapt(&self, node: &mut Node) -> bool {
        let mapped = |ranges: &[IdRange], id| {
            let found = ranges.iter().find_map(|range| range.map(id));
            found.unwrap_or(id)
        };
        let before = (node.uid, node.gid);
        node.uid = self.uid.unwrap_or_else(|| mapped(&self.uid_map, node.uid));
        node.gid = self.gid.unwrap_or_else(|| mapped(&self.gid_map, node.gid));
        if let Some(mtime) = self.mtime {
            (node.mtime, node.atime) = (mtime, mtime);
        }
        if let Some(newest) = self.newest {
            for time in [&mut node.mtime, &mut node.atime] {
                let most = Timestamp {
                    secs: newest,
                    nanos: 0,
                };
                *time = (*time).min(most);
            }
        }
        let is_another = !node.is_dir() && (node.uid, node.gid) != before;
        if is_another {
            let named = self.uid.is_some() || self.gid.is_some();
            let lost = |was, is| named || (was != is && is == 0);
            if lost(before.0, node.uid) {
                node.mode &= !SET_UID;
            }
            if lost(before.1, node.gid) {
                node.mode &= !SET_GID;
            }
        }
        is_another
    }
}

/// Observer of a build. All methods may be called by several threads.
pub trait Watch: Sync {
    /// So many bytes of data will be copied.
    fn expect(&self, bytes: u64);
    /// So many more were copied.
    fn copied(&self, bytes: u64);
    /// Something was left out, or changed.
    fn warn(&self, what: String);
    /// Returns whether the build is still wanted. It is asked between two parts of the data and
    /// before the image gets its name; what was there stays then.
    fn goes_on(&self) -> bool {
        true
    }
}

/// Nothing is told.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Watch for Silent {
    fn expect(&self, _: u64) {}
    fn copied(&self, _: u64) {}
    fn warn(&self, _: String) {}
}
