//! Steps that every entry of a source goes through: attributes, owners and times, limits of the
//! format.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use extant_disk::file_kind::FileKind;
use extant_units::index;

use crate::attrs::{CAPABILITY, Named};
use crate::error::{Error, Result};
use crate::options::{Options, Watch};
use crate::parts::Part;
use crate::placer::{MAX_PATH, Placer, parts};
use crate::tree::{Node, NodeId, Tree};

/// An entry as its source has it.
pub(crate) struct Entry {
    pub(crate) node: Node,
    /// Its extended attributes.
    pub(crate) named: Named,
    /// The parts of a file with holes.
    pub(crate) parts: Option<Vec<Part>>,
}

/// Adapts entries to the options and to the volume.
pub(crate) struct EntryRules<'a> {
    pub(crate) options: &'a Options,
    pub(crate) watch: &'a dyn Watch,
    pub(crate) block_size: u64,
    /// Files are remembered with the marks by which a later change shows.
    pub(crate) stamped: bool,
}

impl EntryRules<'_> {
    /// Gives `node` its attributes, and the owner and times that were asked for.
    ///
    /// # Errors
    /// The attributes are some that ext4 cannot store.
    pub(crate) fn store_attrs(
        &self,
        tree: &mut Tree,
        node: &mut Node,
        named: &Named,
        path: impl fmt::Display + Copy,
    ) -> Result<()> {
        let is_another = self.options.adapt(node);
        let mut named = Cow::Borrowed(named);
        if is_another {
            named.to_mut().retain(|(name, _)| name != CAPABILITY);
        }
        let stored = tree.attrs.store(node.attrs, &named, node.mode);
        let stored = stored.map_err(|what| Error::at(path, what))?;
        for name in &stored.left_out {
            let name = String::from_utf8_lossy(name);
            self.watch
                .warn(format!("{path}: {name} is left out: ext4 has no such kind"));
        }
        (node.attrs, node.mode) = (stored.set, stored.mode);
        if node.uid == u32::MAX || node.gid == u32::MAX {
            return Err(Error::at(path, "an owner that ext4 cannot store"));
        }
        self.check_size(node, path)
    }

    /// Returns whether a path in the volume, or a directory above it, is left out.
    pub(crate) fn is_excluded(&self, path: &[u8]) -> bool {
        if self.options.exclude.is_empty() {
            return false;
        }
        let mut below = PathBuf::new();
        parts(path).any(|name| {
            below.push(OsStr::from_bytes(name));
            let exclude = &self.options.exclude;
            exclude.iter().any(|pattern| pattern.means(&below))
        })
    }

    /// Checks that a file is not too long.
    ///
    /// # Errors
    /// It is.
    pub(crate) fn check_size(&self, node: &Node, path: impl fmt::Display) -> Result<()> {
        let most = self.block_size * u64::from(u32::MAX);
        if node.kind() == FileKind::Regular && node.size > most {
            let what = format!("{} bytes: files have at most {most}", node.size);
            return Err(Error::at(path, what));
        }
        Ok(())
    }

    /// Puts an entry at `path` in the volume, as the rules leave it. Returns its number; `None`
    /// where it removed another. `shown` is the path for messages.
    ///
    /// # Errors
    /// The entry is one that ext4 cannot store; its path is one that no volume can have.
    pub(crate) fn put(
        &self,
        placer: &mut Placer<'_>,
        path: &[u8],
        mut entry: Entry,
        shown: impl fmt::Display + Copy,
    ) -> Result<Option<NodeId>> {
        self.store_attrs(placer.tree, &mut entry.node, &entry.named, shown)?;
        let made = placer.put(path, entry.node)?;
        if let (Some(made), Some(parts)) = (made, entry.parts) {
            placer.tree.parts.set(made, parts, shown)?;
        }
        Ok(made)
    }

    /// Makes `node` a symbolic link that says `target`.
    ///
    /// # Errors
    /// A target that ext4 cannot store.
    pub(crate) fn target(
        &self,
        tree: &mut Tree,
        node: &mut Node,
        target: &[u8],
        path: impl fmt::Display,
    ) -> Result<()> {
        let room = index(self.block_size) - 1;
        if target.is_empty() || target.contains(&0) {
            return Err(Error::at(path, "a link to nothing"));
        }
        if target.len() > room.min(MAX_PATH) {
            let what = format!("a link of {} bytes, at most {room} fit", target.len());
            return Err(Error::at(path, what));
        }
        node.size = target.len() as u64;
        node.data = u64::from(tree.store_text(target)?.raw());
        Ok(())
    }
}

/// The numbers of a device, as a node has them.
///
/// # Errors
/// Numbers that ext4 cannot store.
pub(crate) fn device(major: u32, minor: u32, path: impl fmt::Display) -> Result<u64> {
    if major > 0xFFF || minor > 0xF_FFFF {
        let what = format!("device {major}:{minor} has numbers that ext4 cannot store");
        return Err(Error::at(path, what));
    }
    Ok(u64::from(major) << 32 | u64::from(minor))
}
