//! One copy: a file, or a tree.
//!
//! # Invariants
//! - A tree is walked without recursion and by open directories on both sides, see
//!   [`super::sides`].
//! - Attributes of a directory are set when everything in it is copied, so that neither its
//!   permissions nor its times are in the way.
//! - A directory of a volume is entered once: a second name of one is damage, and a graph of such
//!   names has more paths than a walk could end. One that was moved meanwhile was copied where it
//!   was.
//!
//! # Errors
//! The caller's [`CopyWatch`] gets each failure, and says whether the copy goes on with the next
//! name.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extant_engine::{DataBudget, FileKind};
use rustix::io::Errno;

use super::content::{self, Content};
use super::copy_error::{CopyError, CopyRefusal, CopySide};
use super::copy_options::{CopyOptions, CopyWatch, Existing, FileIdentity};
use super::sides::{
    AnyFile, Attributes, FileTree, FirstName, Found, Id, Names, Sink, UNKNOWN, Xattr,
};
use crate::walk_dir::Entered;

type Result<T> = std::result::Result<T, CopyError>;

/// A copy from one side to another.
pub(super) struct Job<'j, 'a> {
    from: &'j dyn FileTree<'a>,
    to: &'j dyn FileTree<'a>,
    /// Both are the same file system: a copy could be its own source.
    same: bool,
    options: &'j CopyOptions<'j>,
    watch: &'j mut dyn CopyWatch,
    buf: Vec<u8>,
    /// Bytes of content that were copied, with holes.
    bytes: u64,
    /// Data that may still be read.
    budget: DataBudget,
    /// The current file, on both sides.
    from_path: PathBuf,
    to_path: PathBuf,
    /// The same below the directory where the copy began.
    below: PathBuf,
    /// Files with several names, and their first copies.
    links: HashMap<Id, FirstName>,
    /// Directories that this copy made or fills.
    filled: HashSet<Id>,
    /// Directories that are being copied, and all that were.
    above: HashSet<Id>,
    entered: Entered,
}

/// A directory being copied.
struct CopiedDir<'a> {
    from: Found<'a>,
    to: Found<'a>,
    made: bool,
    names: Names,
}

/// The target of one file.
struct Slot<'a> {
    /// The directory, but for what is one itself and was named.
    dir: Option<Found<'a>>,
    name: OsString,
    existing: Option<Found<'a>>,
    /// The path is what the caller wrote. Links at names that the source gave could lead anywhere.
    named: bool,
}

impl<'a> Slot<'a> {
    fn dir(&self) -> io::Result<&AnyFile<'a>> {
        let dir = self.dir.as_deref();
        dir.ok_or_else(|| Errno::EXIST.into())
    }

    fn kind(&self) -> Option<FileKind> {
        let existing = self.existing.as_ref();
        existing.map(|existing| existing.attributes().kind)
    }
}

/// The access ACL and the default ACL: a new file may have inherited them.
const ACLS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// Set-user-ID and set-group-ID, and the attribute with a file's capabilities: a new owner gets
/// neither.
const SET_ID: u16 = 0o6000;
const CAPABILITY: &[u8] = b"security.capability";

/// Directories, from the innermost out, that stay open on each side: a process may have 1024
/// descriptors.
const OPEN_LEVELS: usize = 64;

fn is_special(kind: FileKind) -> bool {
    !matches!(
        kind,
        FileKind::Regular | FileKind::Directory | FileKind::Symlink
    )
}

impl<'j, 'a> Job<'j, 'a> {
    pub(super) fn new(
        from: &'j dyn FileTree<'a>,
        to: &'j dyn FileTree<'a>,
        same: bool,
        options: &'j CopyOptions<'j>,
        watch: &'j mut dyn CopyWatch,
    ) -> Self {
        Self {
            from,
            to,
            same,
            options,
            watch,
            buf: vec![0; content::CHUNK],
            bytes: 0,
            budget: DataBudget::default(),
            from_path: PathBuf::new(),
            to_path: PathBuf::new(),
            below: PathBuf::new(),
            links: HashMap::new(),
            filled: HashSet::new(),
            above: HashSet::new(),
            entered: Entered::default(),
        }
    }

    /// Copies `from` and what is in it to `to`. Returns the bytes of content.
    pub(super) fn copy(mut self, from: &Path, to: &Path) -> Result<u64> {
        (self.from_path, self.to_path) = (from.to_owned(), to.to_owned());
        let mut stack = Vec::new();
        let budget = self.there(self.from.budget());
        let Some(budget) = self.note(budget)? else {
            return Ok(0);
        };
        self.budget = budget;
        let top = self.top();
        self.push(&mut stack, top)?;
        while let Some(level) = stack.last_mut() {
            let Some(name) = level.names.next() else {
                self.pop(&mut stack)?;
                continue;
            };
            let listed = self.there(name);
            let Some(name) = self.note(listed)? else {
                continue;
            };
            self.step(&name);
            let copied = self.next(level, &name);
            if !self.push(&mut stack, copied)? {
                self.step_back();
            }
        }
        Ok(self.bytes)
    }

    /// Enters a directory that was begun, if one was.
    fn push(
        &mut self,
        stack: &mut Vec<CopiedDir<'a>>,
        begun: Result<Option<CopiedDir<'a>>>,
    ) -> Result<bool> {
        let Some(level) = self.note(begun)?.flatten() else {
            return Ok(false);
        };
        self.above.insert(level.from.attributes().id);
        stack.push(level);
        let outer = stack.len().checked_sub(OPEN_LEVELS + 1);
        if let Some(level) = outer.and_then(|outer| stack.get(outer)) {
            level.from.park();
            level.to.park();
        }
        Ok(true)
    }

    /// Leaves the innermost directory.
    fn pop(&mut self, stack: &mut Vec<CopiedDir<'a>>) -> Result<()> {
        let Some(level) = stack.pop() else {
            return Ok(());
        };
        let left = self.leave(&level);
        self.note(left)?;
        self.above.remove(&level.from.attributes().id);
        let from = self.there(level.from.restore_parent());
        let to = self.here(level.to.restore_parent());
        if self.note(from.and(to))?.is_none() {
            // No directory above is at hand any more. The innermost goes first: each holds the one
            // above.
            while stack.pop().is_some() {}
        }
        self.step_back();
        Ok(())
    }

    fn step(&mut self, name: &OsStr) {
        for path in [&mut self.from_path, &mut self.to_path, &mut self.below] {
            path.push(name);
        }
    }

    fn step_back(&mut self) {
        for path in [&mut self.from_path, &mut self.to_path, &mut self.below] {
            path.pop();
        }
    }

    /// Tells the caller of a failure, which ends the copy if the caller says so.
    fn note<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => self.watch.failed(error).map(|()| None),
        }
    }

    /// Adds that it happened at the source.
    fn there<T>(&self, result: io::Result<T>) -> Result<T> {
        result.map_err(|error| CopyError::new(CopySide::Source, &self.from_path, error))
    }

    /// Adds that it happened at the copy.
    fn here<T>(&self, result: io::Result<T>) -> Result<T> {
        result.map_err(|error| CopyError::new(CopySide::Target, &self.to_path, error))
    }

    fn refuse_there<T>(&self, why: CopyRefusal) -> Result<T> {
        self.there(Err(why.into()))
    }

    fn refuse_here<T>(&self, why: CopyRefusal) -> Result<T> {
        self.here(Err(why.into()))
    }

    /// Copies what the operands name.
    fn top(&mut self) -> Result<Option<CopiedDir<'a>>> {
        let missing = || Errno::NOENT.into();
        // A copy of single files follows links; a copy of trees copies them.
        let from = self.from.item(&self.from_path, !self.options.recursive);
        let from = self.there(from.and_then(|from| from.ok_or_else(missing)))?;
        let existing = self.here(self.to.item(&self.to_path, false))?;
        let mut slot = Slot {
            dir: None,
            name: OsString::new(),
            existing,
            named: self.options.is_named,
        };
        if slot.kind() != Some(FileKind::Directory) {
            let (dir, name) = self.here(self.to.parent(&self.to_path))?;
            self.below.push(&name);
            (slot.dir, slot.name) = (Some(dir), name);
        }
        self.one(&*from, slot)
    }

    /// Copies the next thing of a directory.
    fn next(&mut self, level: &CopiedDir<'a>, name: &OsStr) -> Result<Option<CopiedDir<'a>>> {
        let missing = || Errno::NOENT.into();
        let from = level.from.find(name);
        let from = self.there(from.and_then(|from| from.ok_or_else(missing)))?;
        // Nothing is replaced in a directory that was empty a moment ago.
        let existing = match level.made {
            true => None,
            false => self.here(level.to.find(name))?,
        };
        let slot = Slot {
            dir: Some(Rc::clone(&level.to)),
            name: name.to_owned(),
            existing,
            named: false,
        };
        self.one(&*from, slot)
    }

    /// Returns the file that a link in the way leads to, where the options have it followed.
    fn followed(&self, is_inside: bool) -> Result<Option<Found<'a>>> {
        match is_inside && self.options.existing != Existing::Replace {
            true => self.here(self.to.item(&self.to_path, true)),
            false => Ok(None),
        }
    }

    /// Copies one thing; a directory is only begun, and returned.
    fn one(&mut self, from: &AnyFile<'a>, mut slot: Slot<'a>) -> Result<Option<CopiedDir<'a>>> {
        let attributes = from.attributes();
        let is_link = slot.kind() == Some(FileKind::Symlink);
        if slot.named
            && self.has_content(attributes)
            && is_link
            && self.options.existing != Existing::Replace
        {
            let leads = self.followed(true)?;
            if leads.is_none() {
                return self.refuse_here(CopyRefusal::DanglingLink);
            }
            slot.existing = leads;
        }
        if let Some(existing) = &slot.existing {
            let existing = existing.attributes();
            if self.same && existing.id == attributes.id {
                return self.refuse_here(CopyRefusal::SameFile);
            }
            match (attributes.kind, existing.kind) {
                (FileKind::Directory, FileKind::Directory) => {}
                (FileKind::Directory, _) => {
                    // A link to a directory will do for one, if it leads nowhere else.
                    slot.existing = self.followed(slot.named || !self.to.is_live())?;
                    match slot.kind() {
                        Some(FileKind::Directory) => {}
                        _ if is_link => {
                            return self.refuse_here(CopyRefusal::LinkInWayOfDirectory);
                        }
                        _ => return self.refuse_here(CopyRefusal::InWayOfDirectory),
                    }
                }
                (_, FileKind::Directory) => return self.refuse_here(CopyRefusal::DirectoryInWay),
                _ if self.options.existing == Existing::Skip => return Ok(None),
                _ => {}
            }
        }
        if attributes.kind == FileKind::Directory {
            return self.enter(from, &slot);
        }
        self.watch.begin(&self.from_path);
        self.leaf(from, &slot)?;
        Ok(None)
    }

    /// Returns whether bytes are copied: of regular files, and of devices and pipes of the host if
    /// no tree is.
    fn has_content(&self, attributes: &Attributes) -> bool {
        match attributes.kind {
            FileKind::Regular => true,
            FileKind::Directory | FileKind::Symlink => false,
            _ => !self.options.recursive,
        }
    }

    fn enter(&mut self, from: &AnyFile<'a>, slot: &Slot<'a>) -> Result<Option<CopiedDir<'a>>> {
        let attributes = from.attributes();
        if !self.options.recursive {
            return self.refuse_there(CopyRefusal::Directory);
        }
        if self.same && self.filled.contains(&attributes.id) {
            return self.refuse_there(CopyRefusal::IntoItself);
        }
        // On the host, a directory may be mounted at several paths.
        let noted = match from.note(&mut self.entered) {
            Err(_) if self.above.contains(&attributes.id) => {
                Err(CopyRefusal::ContainsItself.into())
            }
            Ok(_) if self.from.is_live() && self.above.contains(&attributes.id) => {
                Err(CopyRefusal::ContainsItself.into())
            }
            noted => noted,
        };
        if !self.there(noted)? {
            return Ok(None);
        }
        let source = self.there(from.enter())?;
        // The owner's to fill first, whatever its permissions will be.
        let perm = match self.options.preserve {
            true => 0o700,
            false => attributes.perm | 0o700,
        };
        let to = self.here(match &slot.existing {
            Some(existing) => existing.enter(),
            None => slot.dir().and_then(|dir| dir.mkdir(&slot.name, perm)),
        })?;
        if self.same {
            self.filled.insert(to.attributes().id);
        }
        // Only now: a copy of a directory into itself meets itself, and says so.
        let names = self.there(source.names())?;
        Ok(Some(CopiedDir {
            from: source,
            to,
            made: slot.existing.is_none(),
            names,
        }))
    }

    fn leave(&mut self, level: &CopiedDir<'a>) -> Result<()> {
        let sets_existing = self.options.preserve && self.options.existing != Existing::Replace;
        if !level.made && !sets_existing {
            return Ok(());
        }
        self.preserve(&*level.from, &*level.to)
    }

    fn leaf(&mut self, from: &AnyFile<'a>, slot: &Slot<'a>) -> Result<()> {
        let attributes = from.attributes();
        let linked = self.options.hard_links && attributes.links > 1;
        if linked && let Some(first) = self.links.get(&attributes.id) {
            return self.here(self.link(slot, first));
        }
        let has_content = self.has_content(attributes);
        // Replacing /dev/null is not what was meant.
        let is_replaced = has_content || self.options.existing == Existing::Replace;
        if is_replaced && !slot.named && self.to.is_live() && slot.kind().is_some_and(is_special) {
            return self.refuse_here(CopyRefusal::SpecialInWay);
        }
        let copied = match attributes.kind {
            _ if has_content => self.content(from, slot)?,
            FileKind::Symlink => {
                let target = self.there(from.read_link())?;
                let made = self.clear(slot);
                let made = made.and_then(|dir| dir.symlink(&slot.name, &target));
                self.finish(from, &*self.here(made)?)?
            }
            _ if self.options.no_special => return self.refuse_there(CopyRefusal::Special),
            _ => {
                let perm = self.first_perm(attributes);
                let made = self.clear(slot);
                let made = made.and_then(|dir| dir.make_node(&slot.name, attributes, perm));
                self.finish(from, &*self.here(made)?)?
            }
        };
        if linked && let Some(id) = copied {
            let path = self.below.clone();
            self.links.insert(attributes.id, FirstName { path, id });
        }
        Ok(())
    }

    /// Refuses to write or remove a file that the caller spares.
    fn check_spared(&self, existing: &AnyFile<'a>) -> io::Result<()> {
        let identity = FileIdentity::of_attributes(existing.attributes());
        match self.to.is_live() && self.options.spared.contains(&identity) {
            true => Err(CopyRefusal::Spared.into()),
            false => Ok(()),
        }
    }

    /// Removes what is in the way; returns the directory.
    fn clear<'s>(&self, slot: &'s Slot<'a>) -> io::Result<&'s AnyFile<'a>> {
        let dir = slot.dir()?;
        if let Some(existing) = &slot.existing {
            self.check_spared(&**existing)?;
            dir.remove(&slot.name)?;
        }
        Ok(dir)
    }

    /// Makes another name of a file that is copied already.
    fn link(&self, slot: &Slot<'a>, first: &FirstName) -> io::Result<()> {
        let existing = slot.existing.as_ref();
        if existing.is_some_and(|existing| existing.attributes().id == first.id) {
            return Ok(());
        }
        self.clear(slot)?.hard_link(&slot.name, first)
    }

    fn names_owner(&self) -> bool {
        self.options.uid.is_some() || self.options.gid.is_some()
    }

    /// Preserves the attributes of what is no directory; returns the identity of the copy.
    fn finish(&self, from: &AnyFile<'a>, made: &AnyFile<'a>) -> Result<Option<Id>> {
        // Else it has those that a new file has.
        if self.options.preserve || self.names_owner() || self.options.permit.is_some() {
            self.preserve(from, made)?;
        }
        Ok(Some(made.attributes().id))
    }

    /// The permissions that a copy begins with. What is preserved may be secret until its owner is
    /// right.
    fn first_perm(&self, attributes: &Attributes) -> u16 {
        attributes.perm & if self.options.preserve { 0o700 } else { 0o777 }
    }

    /// Copies the bytes, and preserves the attributes; returns the identity of the copy, unless
    /// that was there before.
    fn content(&mut self, from: &AnyFile<'a>, slot: &Slot<'a>) -> Result<Option<Id>> {
        let attributes = from.attributes();
        let len = match attributes.kind {
            // A file of the host may have content without a length: `/proc` has such.
            FileKind::Regular if self.from.is_live() && attributes.size == 0 => UNKNOWN,
            FileKind::Regular => attributes.size,
            _ if self.from.is_live() => UNKNOWN,
            _ => return self.refuse_there(CopyRefusal::Special),
        };
        let source = self.there(from.open())?;
        // Nothing is removed before there is something to put in its place.
        let target = self.here(self.target(attributes, slot))?;
        self.budget.begin(attributes.id.inode, attributes.links);
        let Self {
            watch, from_path, ..
        } = self;
        let mut content = Content {
            from: &*source,
            to: &*target,
            sparse: self.options.sparse,
            copied: &mut |bytes| watch.copied(from_path, bytes),
        };
        let copied = content.copy(len, &mut self.budget, &mut self.buf);
        self.bytes += copied.or_else(|(side, error)| match side {
            CopySide::Source => self.there(Err(error)),
            CopySide::Target => self.here(Err(error)),
        })?;
        match target.file() {
            Some(made) => self.finish(from, made),
            None => Ok(None),
        }
    }

    fn target(
        &self,
        attributes: &Attributes,
        slot: &Slot<'a>,
    ) -> io::Result<Box<dyn Sink<'a> + 'a>> {
        if let Some(existing) = &slot.existing {
            let is_rewritten = self.options.existing != Existing::Replace;
            self.check_spared(&**existing)?;
            match existing.attributes().kind {
                FileKind::Regular if is_rewritten => return existing.rewrite(),
                kind if is_special(kind) && self.to.is_live() => return existing.open_device(),
                _ => {}
            }
        }
        let dir = self.clear(slot)?;
        dir.create(&slot.name, self.first_perm(attributes))
    }

    /// Sets the owner; returns whether the caller may. An owner that it names is one that it needs.
    fn set_owner(&self, to: &AnyFile<'a>, uid: u32, gid: u32) -> Result<bool> {
        let owned = self.here(to.set_owner(uid, gid))?;
        match owned || !self.names_owner() {
            true => Ok(owned),
            false => self.refuse_here(CopyRefusal::Owner),
        }
    }

    /// Gives a copy the attributes that the options preserve. The order matters: a new owner clears
    /// set-id bits and capabilities.
    fn preserve(&self, from: &AnyFile<'a>, to: &AnyFile<'a>) -> Result<()> {
        let (attributes, options) = (from.attributes(), self.options);
        let link = attributes.kind == FileKind::Symlink;
        let is_dir = attributes.kind == FileKind::Directory;
        let permit = |perm| options.permit.map_or(perm, |permit| permit(perm, is_dir));
        let (uid, gid) = (
            options.uid.unwrap_or(attributes.uid),
            options.gid.unwrap_or(attributes.gid),
        );
        if !options.preserve {
            if self.names_owner() {
                self.set_owner(to, uid, gid)?;
            }
            if link {
                return Ok(());
            }
            let perm = permit(attributes.perm & 0o777 & !options.umask);
            return self.here(to.set_perm(perm));
        }
        let another = !is_dir && (uid, gid) != (attributes.uid, attributes.gid);
        let owned = (options.owners || self.names_owner()) && self.set_owner(to, uid, gid)?;
        if !link {
            // Set-id bits would be another owner's.
            let bits = if owned { 0o7777 } else { 0o777 };
            let perm = attributes.perm & !if another { SET_ID } else { 0 };
            self.here(to.set_perm(permit(perm) & bits))?;
        }
        if options.xattrs {
            let mut xattrs = self.there(from.xattrs())?;
            if another {
                xattrs.retain(|(name, _)| name != CAPABILITY);
            }
            self.set_xattrs(&xattrs, to, link)?;
        }
        self.here(to.set_times(attributes))
    }

    fn set_xattrs(&self, xattrs: &[Xattr], to: &AnyFile<'a>, link: bool) -> Result<()> {
        for acl in ACLS.into_iter().filter(|_| !link) {
            if !xattrs.iter().any(|(name, _)| name == acl.as_bytes()) {
                to.drop_xattr(acl);
            }
        }
        for xattr in xattrs {
            let set = self.here(to.set_xattr(xattr));
            if let Some(why) = set.map_err(|error| error.of_xattr(&xattr.0))? {
                let name = String::from_utf8_lossy(&xattr.0);
                self.watch.left_out(&self.to_path, &name, &why);
            }
        }
        Ok(())
    }
}
