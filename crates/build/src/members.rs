//! An archive as a source: its headers are read, the contents stay where they are.

use std::fs::File;
use std::io;
use std::ops::Range;

use extant_archive::{Member, Piece, Reader, Window, acl, kind};
use extant_disk::file_kind::FileKind;
use extant_units::exact_u16;

use crate::attrs::Named;
use crate::entry_rules::{Entry, EntryRules, device};
use crate::error::{Error, Result};
use crate::parts::Part;
use crate::placer::{Placer, shown};
use crate::tree::Node;

/// An archive that is being read.
pub(crate) struct MemberScan<'a, 'b> {
    pub(crate) placer: &'a mut Placer<'b>,
    pub(crate) rules: &'a EntryRules<'a>,
    /// The source's number.
    pub(crate) origin: u16,
    /// For messages.
    pub(crate) name: &'a str,
}

/// No user is known by name: the names of one machine mean nothing on another.
struct NoNames;

impl acl::Names for NoNames {
    fn user(&self, _: &str) -> Option<u32> {
        None
    }

    fn group(&self, _: &str) -> Option<u32> {
        None
    }
}

impl MemberScan<'_, '_> {
    /// Reads all headers in `range` of `file`.
    ///
    /// # Errors
    /// Input that is no archive; members that no volume can have.
    pub(crate) fn all(mut self, file: &File, range: Range<u64>) -> Result<()> {
        let mut archive = Reader::new(Window::new(file, range));
        loop {
            match archive.next_member() {
                Ok(None) => break,
                Ok(Some(member)) => {
                    let at = archive.input().position();
                    self.member(&member, at)?;
                }
                Err(error) => return Err(self.broken(&error)),
            }
        }
        if !archive.marked() {
            let what = format!("{}: no mark at its end: it may be cut short", self.name);
            self.rules.watch.warn(what);
        }
        Ok(())
    }

    fn broken(&self, error: &io::Error) -> Error {
        Error::at(
            self.name,
            format!("not an archive that can be read: {error}"),
        )
    }

    fn member(&mut self, member: &Member, at: u64) -> Result<()> {
        let path = shown(&member.name);
        if member.kind == kind::VOLUME || self.rules.is_excluded(&member.name) {
            return Ok(());
        }
        if let Some(damage) = member.damage {
            return Err(Error::at(path, damage));
        }
        if member.kind == kind::LINK {
            if member.link.is_empty() {
                return Err(Error::at(path, "a link to nothing"));
            }
            if self.rules.is_excluded(&member.link) && self.placer.find(&member.link)?.is_none() {
                let what = format!(
                    "a hard link to {}, which is excluded: exclude the link as well, or neither",
                    shown(&member.link)
                );
                return Err(Error::at(path, what));
            }
            return self.placer.hard_link(&member.name, &member.link);
        }
        let mut node = self.described(member, &path)?;
        node.origin = self.origin;
        let mut parts = None;
        match node.kind() {
            FileKind::Regular => {
                node.data = at;
                parts = member.pieces.as_deref().map(stored_parts);
            }
            FileKind::Symlink => {
                let tree = &mut *self.placer.tree;
                self.rules.target(tree, &mut node, &member.link, &path)?;
            }
            FileKind::CharDevice | FileKind::BlockDevice => {
                node.data = device(member.major, member.minor, &path)?;
            }
            _ => {}
        }
        let named = attributes(member, node.kind(), &path)?;
        let entry = Entry { node, named, parts };
        let made = self.rules.put(self.placer, &member.name, entry, &path);
        made.map(drop)
    }

    fn described(&self, member: &Member, path: &str) -> Result<Node> {
        let kind = match member.kind {
            kind::REGULAR => FileKind::Regular,
            kind::SYMLINK => FileKind::Symlink,
            kind::CHAR => FileKind::CharDevice,
            kind::BLOCK => FileKind::BlockDevice,
            kind::DIRECTORY => FileKind::Directory,
            kind::FIFO => FileKind::Fifo,
            other => {
                let what = format!("of type {:?}, not known", char::from(other));
                return Err(Error::at(path, what));
            }
        };
        let mode = exact_u16(u64::from(member.mode & 0o7777));
        Ok(Node {
            mode: kind.mode_bits()
                | if kind == FileKind::Symlink {
                    0o777
                } else {
                    mode
                },
            uid: member.uid,
            gid: member.gid,
            size: if kind == FileKind::Regular {
                member.size
            } else {
                0
            },
            mtime: member.mtime,
            atime: member.atime.unwrap_or(member.mtime),
            ..Node::default()
        })
    }
}

/// A member's attributes, and its ACLs in words where it has no attributes for them.
fn attributes(member: &Member, kind: FileKind, path: &str) -> Result<Named> {
    let mut named = member.xattrs.clone();
    if kind != FileKind::Symlink {
        acl::add_missing(member, &mut named, &NoNames).map_err(|what| {
            let advice = "an archive made with --numeric-owner has numbers";
            Error::at(path, format!("{what}: {advice}"))
        })?;
    }
    Ok(named)
}

/// Pieces as they lie behind each other in the archive.
fn stored_parts(pieces: &[Piece]) -> Vec<Part> {
    let mut stored = 0;
    let whole = pieces.iter().filter(|piece| piece.len > 0);
    whole
        .map(|piece| {
            let part = Part {
                start: piece.start,
                len: piece.len,
                stored,
            };
            stored += piece.len;
            part
        })
        .collect()
}
