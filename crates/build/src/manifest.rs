//! A list of attributes for paths, and of nodes to add, in the habits of mtree(5).
//!
//! A line is a path and words `KEY=VALUE`; `/set` gives words to all lines that follow, `/unset`
//! takes them back, `#` begins a comment. A backslash and three octal digits stand for a byte.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use extant_archive::timestamp;
use extant_disk::file_kind::FileKind;

use crate::attrs::{CAPABILITY, Named};
use crate::entry_rules::{EntryRules, device};
use crate::error::{At, Error, Result};
use crate::placer::Placer;
use crate::tree::{Node, NodeId};

/// Words of mtree(5) that say nothing here: what they check or name is not of this list.
const IGNORED: [&str; 17] = [
    "cksum",
    "flags",
    "gname",
    "ignore",
    "inode",
    "md5",
    "md5digest",
    "nlink",
    "nochange",
    "optional",
    "resdevice",
    "sha1",
    "sha256",
    "sha512",
    "size",
    "tags",
    "uname",
];

/// Words that name the content of a node.
const CONTENTS: [&str; 3] = ["contents", "device", "link"];

/// Words of a line, by their keys.
type Words = BTreeMap<String, Vec<u8>>;

/// A list that is being applied.
pub(crate) struct Manifest<'a, 'b> {
    pub(crate) placer: &'a mut Placer<'b>,
    pub(crate) rules: &'a EntryRules<'a>,
    /// The source's number.
    pub(crate) origin: u16,
    /// Files of the host that have contents.
    pub(crate) files: Vec<PathBuf>,
}

impl Manifest<'_, '_> {
    /// Applies the list in `path`. Returns the files that have contents.
    ///
    /// # Errors
    /// Those of the host; a line that says nothing sensible, with its number.
    pub(crate) fn apply(mut self, path: &Path) -> Result<Vec<PathBuf>> {
        let text = fs::read(path).at(path)?;
        let mut common = Words::new();
        for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            let location = format!("{}:{number}", path.display());
            let mut words = line
                .split(|byte| byte.is_ascii_whitespace())
                .filter(|word| !word.is_empty());
            let Some(first) = words.next().filter(|word| !word.starts_with(b"#")) else {
                continue;
            };
            let rest = words.take_while(|word| !word.starts_with(b"#"));
            if first == b"/unset" {
                for word in rest {
                    common.remove(String::from_utf8_lossy(word).as_ref());
                }
                continue;
            }
            let mut own = if first == b"/set" {
                Words::new()
            } else {
                common.clone()
            };
            for word in rest {
                let (key, value) = split(word).ok_or_else(|| {
                    Error::at(&location, format!("{:?}", String::from_utf8_lossy(word)))
                })?;
                own.insert(key, value);
            }
            if first == b"/set" {
                common.extend(own);
                continue;
            }
            let name = unescaped(first).ok_or_else(|| Error::at(&location, "a bad path"))?;
            self.line(&name, &own, &location)?;
        }
        Ok(self.files)
    }

    fn line(&mut self, name: &[u8], words: &Words, location: &str) -> Result<()> {
        let known = self.placer.find(name)?;
        let kind = match words.get("type") {
            Some(kind) => {
                Some(kind_of(kind).ok_or_else(|| Error::at(location, "an unknown type"))?)
            }
            None => None,
        };
        let id = match (known, kind) {
            (Some(id), kind) => {
                let was = self.placer.tree.node(id).kind();
                if kind.is_some_and(|kind| kind != was) {
                    let what = "the path is there, and of another type";
                    return Err(Error::at(location, what));
                }
                self.change(id, words, location)?;
                id
            }
            (None, Some(kind)) => self.add(name, kind, words, location)?,
            (None, None) => {
                let what = "the path is not there: type= adds it";
                return Err(Error::at(location, what));
            }
        };
        self.describe(id, words, location)
    }

    /// Adds a node that no source has.
    fn add(
        &mut self,
        name: &[u8],
        kind: FileKind,
        words: &Words,
        location: &str,
    ) -> Result<NodeId> {
        let bad = |what: &str| Error::at(location, what);
        let mode = match kind {
            FileKind::Directory => 0o755,
            FileKind::Symlink => 0o777,
            _ => 0o644,
        };
        let mut node = Node {
            mode: kind.mode_bits() | mode,
            origin: self.origin,
            mtime: self.placer.implied.mtime,
            atime: self.placer.implied.atime,
            ..Node::default()
        };
        if !self.content(&mut node, words, location)? {
            match kind {
                FileKind::Symlink => return Err(bad("link= is missing")),
                FileKind::CharDevice | FileKind::BlockDevice => {
                    return Err(bad("device=MAJOR,MINOR is missing"));
                }
                _ => {}
            }
        }
        let tree = &mut *self.placer.tree;
        self.rules
            .store_attrs(tree, &mut node, &Named::new(), location)?;
        node.implied = !words.contains_key("time");
        let made = self.placer.put(name, node)?;
        made.ok_or_else(|| bad("the path removes something"))
    }

    /// Gives a node that is there the content that the words name, if they name one.
    fn change(&mut self, id: NodeId, words: &Words, location: &str) -> Result<()> {
        let mut node = self.placer.tree.node(id).clone();
        if self.content(&mut node, words, location)? {
            node.origin = self.origin;
            self.rules.check_size(&node, location)?;
            self.placer.tree.parts.remove(id);
            *self.placer.tree.node_mut(id) = node;
        }
        Ok(())
    }

    /// Gives `node` the content that the words name. Returns whether they name one.
    fn content(&mut self, node: &mut Node, words: &Words, location: &str) -> Result<bool> {
        let kind = node.kind();
        let key = match kind {
            FileKind::Symlink => "link",
            FileKind::CharDevice | FileKind::BlockDevice => "device",
            FileKind::Regular => "contents",
            _ => "",
        };
        let mut others = CONTENTS.into_iter().filter(|other| *other != key);
        if let Some(other) = others.find(|other| words.contains_key(*other)) {
            return Err(Error::at(location, format!("{other}= is of another type")));
        }
        let Some(value) = words.get(key) else {
            return Ok(false);
        };
        match kind {
            FileKind::Symlink => {
                self.rules.target(self.placer.tree, node, value, location)?;
            }
            FileKind::Regular => {
                let path = PathBuf::from(OsStr::from_bytes(value));
                let metadata = fs::metadata(&path).at(&path)?;
                if !metadata.is_file() {
                    return Err(Error::at(location, "contents= is not a file"));
                }
                node.size = metadata.len();
                node.data = self.files.len() as u64;
                self.files.push(path);
            }
            _ => {
                let missing = || Error::at(location, "device= is MAJOR,MINOR");
                let (major, minor) = numbers(value).ok_or_else(missing)?;
                node.data = device(major, minor, location)?;
            }
        }
        Ok(true)
    }

    /// Gives a node what the words say. Permissions come last: an ACL follows them. What a file may
    /// is not given to another owner, unless the same words say so.
    fn describe(&mut self, id: NodeId, words: &Words, location: &str) -> Result<()> {
        let mut named = Named::new();
        let mut mode = None;
        let before = owner_of(self.placer.tree.node(id));
        for (key, value) in words {
            let text = String::from_utf8_lossy(value);
            let bad = || Error::at(location, format!("{key}: {text:?}"));
            let node = self.placer.tree.node_mut(id);
            let number = || {
                let number = text.parse().ok();
                number.filter(|&id| id != u32::MAX).ok_or_else(bad)
            };
            match key.as_str() {
                "type" | "link" | "device" | "contents" => {}
                "uid" => node.uid = number()?,
                "gid" => node.gid = number()?,
                "mode" => {
                    let bits = u16::from_str_radix(&text, 8).ok();
                    mode = Some(bits.filter(|bits| *bits <= 0o7777).ok_or_else(bad)?);
                }
                "time" => {
                    let time = timestamp(value).ok_or_else(bad)?;
                    (node.mtime, node.atime, node.implied) = (time, time, false);
                }
                key if key.starts_with("xattr.") => {
                    let name = key.strip_prefix("xattr.").unwrap_or(key);
                    named.push((name.as_bytes().to_vec(), value.clone()));
                }
                key if IGNORED.contains(&key) => {}
                _ => return Err(Error::at(location, format!("{key:?} is not known"))),
            }
        }
        let tree = &mut *self.placer.tree;
        let Node {
            attrs, mode: old, ..
        } = *tree.node(id);
        if owner_of(tree.node(id)) != before && !tree.node(id).is_dir() {
            let without = tree.attrs.without(attrs, CAPABILITY);
            tree.node_mut(id).attrs = without.map_err(|what| Error::at(location, what))?;
            mode = mode.or(Some(old & 0o1777));
        }
        self.attributes(id, &named, mode, location)
    }

    /// Gives a node attributes, then permissions.
    fn attributes(
        &mut self,
        id: NodeId,
        named: &Named,
        bits: Option<u16>,
        location: &str,
    ) -> Result<()> {
        let tree = &mut *self.placer.tree;
        let Node { attrs, mode, .. } = *tree.node(id);
        let stored = tree.attrs.store(attrs, named, mode);
        let stored = stored.map_err(|what| Error::at(location, what))?;
        if let Some(name) = stored.left_out.first() {
            let what = format!("ext4 has no {}", String::from_utf8_lossy(name));
            return Err(Error::at(location, what));
        }
        let (mut set, mut mode) = (stored.set, stored.mode);
        if let Some(bits) = bits {
            mode = mode & FileKind::MASK | bits;
            let changed = tree.attrs.chmod(set, mode);
            set = changed.map_err(|what| Error::at(location, what))?;
        }
        let node = tree.node_mut(id);
        (node.attrs, node.mode) = (set, mode);
        Ok(())
    }
}

fn owner_of(node: &Node) -> (u32, u32) {
    (node.uid, node.gid)
}

/// A word's key and value; a word without a value has an empty one.
fn split(word: &[u8]) -> Option<(String, Vec<u8>)> {
    let at = word.iter().position(|&byte| byte == b'=');
    let (key, value) = word.split_at(at.unwrap_or(word.len()));
    let key = String::from_utf8(unescaped(key)?).ok()?;
    Some((key, unescaped(value.strip_prefix(b"=").unwrap_or(value))?))
}

/// Bytes in which a backslash and three octal digits stand for one.
fn unescaped(word: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'\\' {
            bytes.push(first);
        } else if let Some(after) = rest.strip_prefix(b"\\") {
            bytes.push(b'\\');
            rest = after;
        } else {
            let digits = str::from_utf8(rest.get(..3)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 8).ok()?);
            rest = rest.get(3..)?;
        }
    }
    Some(bytes)
}

fn kind_of(word: &[u8]) -> Option<FileKind> {
    Some(match word {
        b"file" => FileKind::Regular,
        b"dir" => FileKind::Directory,
        b"link" => FileKind::Symlink,
        b"char" => FileKind::CharDevice,
        b"block" => FileKind::BlockDevice,
        b"fifo" => FileKind::Fifo,
        b"socket" => FileKind::Socket,
        _ => return None,
    })
}

/// `MAJOR,MINOR`, or with the name of a system before it.
fn numbers(value: &[u8]) -> Option<(u32, u32)> {
    let text = str::from_utf8(value).ok()?;
    let mut words: Vec<&str> = text.split(',').collect();
    if words.len() == 3 {
        words.remove(0);
    }
    match words.as_slice() {
        [major, minor] => Some((major.parse().ok()?, minor.parse().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        let word = split(b"xattr.user.a\\040b=\\101\\\\=").unwrap();
        assert_eq!(word, ("xattr.user.a b".to_owned(), b"A\\=".to_vec()));
        assert_eq!(split(b"optional"), Some(("optional".to_owned(), vec![])));
        for bad in [&b"a=\\"[..], b"a=\\08", b"a=\\777", b"\\xff=1"] {
            assert_eq!(split(bad), None, "{bad:?}");
        }
        assert_eq!(numbers(b"linux,8,1"), Some((8, 1)));
        assert_eq!(numbers(b"8"), None);
    }
}
