//! One copy: a file, or a tree.
//!
//! # Invariants
//! - A tree is walked without recursion and by open directories on both sides, see
//!   [`super::sides`].
//! - Attributes of a directory are set when everything in it is copied, so that neither its
//!   permissions nor its times are in the way.
//! - A directory of an image is entered once: a second name of one is damage, and a graph of such
//!   names has more paths than a walk could end.
//!
//! # Errors
//! Failures are noted, and the copy goes on with the next name.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extant::{DataBudget, Error, FileKind};
use tracing::warn;

use super::content::{self, Content, Trouble};
use super::host::STDIN;
use super::rules::CopyRules;
use super::sides::{
    Attributes, Change, Dir, FileTree, First, Found, Id, Names, Target, UNKNOWN, Xattr,
};
use crate::failure::{At, Failure, Failures};
use crate::progress::Progress;
use crate::visited::Visited;

/// A copy from one side to another.
pub(crate) struct Job<'j, 'a> {
    from: &'j dyn FileTree<'a>,
    to: &'j dyn FileTree<'a>,
    /// Both are the same file system: a copy could be its own source.
    same: bool,
    rules: CopyRules,
    progress: &'j Progress,
    failures: &'j mut Failures,
    buf: Vec<u8>,
    /// Data that may still be read.
    budget: DataBudget,
    /// Where the copy is, on both sides.
    from_path: PathBuf,
    to_path: PathBuf,
    /// The same below the directory where it began.
    below: PathBuf,
    /// Files with several names, and where their first copy is.
    links: HashMap<Id, First>,
    /// Directories that this copy made or fills.
    filled: HashSet<Id>,
    /// Directories that are being copied, and all that were.
    above: HashSet<Id>,
    visited: Visited<Id>,
}

/// A directory being copied.
struct CopiedDir<'a> {
    from: Rc<dyn Dir<'a> + 'a>,
    to: Rc<dyn Dir<'a> + 'a>,
    attributes: Attributes,
    made: bool,
    names: Names,
}

/// Where a copy goes.
struct Slot<'a> {
    /// The directory, but for what is one itself and was named.
    dir: Option<Rc<dyn Dir<'a> + 'a>>,
    name: OsString,
    existing: Option<Found<'a>>,
    /// The path is what the caller wrote, so that a link there is followed. Links at names that the
    /// source gave could lead anywhere.
    named: bool,
}

impl<'a> Slot<'a> {
    fn dir(&self) -> Result<&(dyn Dir<'a> + 'a), Failure> {
        let dir = self.dir.as_deref();
        dir.ok_or_else(|| Failure::new(Error::Exists))
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
    pub(crate) fn new(
        from: &'j dyn FileTree<'a>,
        to: &'j dyn FileTree<'a>,
        same: bool,
        rules: CopyRules,
        progress: &'j Progress,
        failures: &'j mut Failures,
    ) -> Self {
        Self {
            from,
            to,
            same,
            rules,
            progress,
            failures,
            buf: vec![0; content::CHUNK],
            budget: DataBudget::default(),
            from_path: PathBuf::new(),
            to_path: PathBuf::new(),
            below: PathBuf::new(),
            links: HashMap::new(),
            filled: HashSet::new(),
            above: HashSet::new(),
            visited: Visited::default(),
        }
    }

    /// Copies `from` and what is in it to `to`. `named` says that `to` is what the caller wrote.
    pub(crate) fn copy(&mut self, from: &Path, to: &Path, named: bool) {
        (self.from_path, self.to_path) = (from.to_owned(), to.to_owned());
        let mut stack = Vec::new();
        let budget = self.there(self.from.budget());
        let Some(budget) = self.note(budget) else {
            return;
        };
        self.budget = budget;
        let top = self.top(named);
        self.push(&mut stack, top);
        while let Some(level) = stack.last_mut() {
            let Some(name) = level.names.next() else {
                self.pop(&mut stack);
                continue;
            };
            let listed = self.there(name);
            let Some(name) = self.note(listed) else {
                continue;
            };
            self.step(&name);
            let copied = self.next(level, &name);
            if !self.push(&mut stack, copied) {
                self.step_back();
            }
        }
    }

    /// Enters a directory that was begun, if one was.
    fn push(
        &mut self,
        stack: &mut Vec<CopiedDir<'a>>,
        begun: Result<Option<CopiedDir<'a>>, Failure>,
    ) -> bool {
        let Some(level) = self.note(begun).flatten() else {
            return false;
        };
        self.above.insert(level.from.id());
        stack.push(level);
        let outer = stack.len().checked_sub(OPEN_LEVELS + 1);
        if let Some(level) = outer.and_then(|outer| stack.get(outer)) {
            level.from.park();
            level.to.park();
        }
        true
    }

    /// Leaves the innermost directory.
    fn pop(&mut self, stack: &mut Vec<CopiedDir<'a>>) {
        let Some(level) = stack.pop() else {
            return;
        };
        let left = self.leave(&level);
        self.note(left);
        self.above.remove(&level.from.id());
        let from = level.from.restore_parent();
        let restored = from.at(self.from.show(&self.from_path));
        let to = level.to.restore_parent();
        let restored = restored.and(to.at(self.to.show(&self.to_path)));
        if self.note(restored).is_none() {
            // No directory above is at hand any more. The innermost goes first: each holds the one
            // above.
            while stack.pop().is_some() {}
        }
        self.step_back();
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

    fn note<T>(&mut self, result: Result<T, Failure>) -> Option<T> {
        let failures = &mut *self.failures;
        match result {
            Ok(value) => Some(value),
            failed => self.progress.pause(|| failures.note(failed)),
        }
    }

    /// Adds that it happened at the source.
    fn there<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        result.map_err(|failure| Failure::at(self.from.show(&self.from_path), failure))
    }

    /// Adds that it happened at the copy.
    fn here<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        result.map_err(|failure| Failure::at(self.to.show(&self.to_path), failure))
    }

    fn refuse_there<T>(&self, what: &str) -> Result<T, Failure> {
        self.there(Err(Failure::new(what)))
    }

    fn refuse_here<T>(&self, what: &str) -> Result<T, Failure> {
        self.here(Err(Failure::new(what)))
    }

    /// A copy of single files follows links; a copy of trees keeps them.
    fn follows(&self) -> bool {
        !self.rules.recursive
    }

    /// Copies what the operands name.
    fn top(&mut self, named: bool) -> Result<Option<CopiedDir<'a>>, Failure> {
        let missing = || Failure::new(Error::NotFound);
        let from = self.from.item(&self.from_path, self.follows());
        let from = self.there(from.and_then(|from| from.ok_or_else(missing)))?;
        let existing = self.here(self.to.item(&self.to_path, false))?;
        let mut slot = Slot {
            dir: None,
            name: OsString::new(),
            existing,
            named,
        };
        if slot.kind() != Some(FileKind::Directory) {
            let (dir, name) = self.here(self.to.parent(&self.to_path))?;
            self.below.push(&name);
            (slot.dir, slot.name) = (Some(dir), name);
        }
        self.one(&*from, slot)
    }

    /// Copies the next thing of a directory.
    fn next(
        &mut self,
        level: &CopiedDir<'a>,
        name: &OsStr,
    ) -> Result<Option<CopiedDir<'a>>, Failure> {
        let missing = || Failure::new(Error::NotFound);
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

    /// Copies one thing; a directory is only begun, and returned.
    fn one(
        &mut self,
        from: &AnyItem<'a>,
        mut slot: Slot<'a>,
    ) -> Result<Option<CopiedDir<'a>>, Failure> {
        let attributes = from.attributes();
        if slot.named && self.has_content(attributes) && slot.kind() == Some(FileKind::Symlink) {
            let leads = self.here(self.to.item(&self.to_path, true))?;
            if leads.is_none() {
                return self.refuse_here("a symbolic link that leads nowhere");
            }
            slot.existing = leads;
        }
        if let Some(existing) = &slot.existing {
            let existing = existing.attributes();
            if self.same && existing.id == attributes.id {
                return self.refuse_here("the same file as its source");
            }
            match (attributes.kind, existing.kind) {
                (FileKind::Directory, FileKind::Directory) => {}
                (FileKind::Directory, _) => {
                    // A link to a directory will do for one, if it leads nowhere else.
                    let leads = match slot.named || !self.to.live() {
                        true => self.here(self.to.item(&self.to_path, true))?,
                        false => None,
                    };
                    slot.existing = leads;
                    if slot.kind() != Some(FileKind::Directory) {
                        return self.refuse_here("in the way of a directory");
                    }
                }
                (_, FileKind::Directory) => {
                    return self.refuse_here("a directory, in the way of what is not one");
                }
                _ if self.rules.no_clobber => return Ok(None),
                _ => {}
            }
        }
        if attributes.kind == FileKind::Directory {
            return self.enter(from, &slot).map(Some);
        }
        self.progress.begin(|| self.from.show(&self.from_path));
        self.leaf(from, &slot)?;
        Ok(None)
    }

    /// Whether bytes are copied: of regular files, and of devices and pipes of the host if no tree
    /// is.
    fn has_content(&self, attributes: &Attributes) -> bool {
        match attributes.kind {
            FileKind::Regular => true,
            FileKind::Directory | FileKind::Symlink => false,
            _ => !self.rules.recursive,
        }
    }

    fn enter(&mut self, from: &AnyItem<'a>, slot: &Slot<'a>) -> Result<CopiedDir<'a>, Failure> {
        let attributes = from.attributes().clone();
        if !self.rules.recursive {
            return self.refuse_there("a directory (copy it with -r)");
        }
        if self.same && self.filled.contains(&attributes.id) {
            return self.refuse_there("copying a directory into itself");
        }
        if self.above.contains(&attributes.id) {
            return self.refuse_there("a directory that contains itself");
        }
        // On the host, a directory may be mounted at several places.
        if !self.from.live() && !self.visited.enter(attributes.id) {
            return self
                .refuse_there("a directory with a second name, copied by its first: damage");
        }
        let source = self.there(from.enter())?;
        let to = self.here(match &slot.existing {
            Some(existing) => existing.enter(),
            // The owner's to fill first, whatever its permissions will be.
            None => slot
                .dir()
                .and_then(|dir| dir.mkdir(&slot.name, attributes.perm | 0o700)),
        })?;
        if self.same {
            self.filled.insert(to.id());
        }
        // Only now: a copy of a directory into itself meets itself, and says so.
        let names = self.there(source.names())?;
        Ok(CopiedDir {
            from: source,
            to,
            attributes,
            made: slot.existing.is_none(),
            names,
        })
    }

    fn leave(&mut self, level: &CopiedDir<'a>) -> Result<(), Failure> {
        if !self.rules.preserve && !level.made {
            return Ok(());
        }
        let xattrs = || self.there(level.from.xattrs());
        self.keep(xattrs, &*level.to, &level.attributes)
    }

    fn leaf(&mut self, from: &AnyItem<'a>, slot: &Slot<'a>) -> Result<(), Failure> {
        let attributes = from.attributes();
        let linked = self.rules.archive && attributes.links > 1;
        if linked && let Some(first) = self.links.get(&attributes.id) {
            return self.here(link(slot, first));
        }
        let special = slot.kind().is_some_and(is_special);
        let copied = match attributes.kind {
            _ if self.has_content(attributes) => {
                if special && self.to.live() && !slot.named {
                    // Replacing /dev/null is not what was meant.
                    return self.refuse_here("a device, pipe or socket, in the way of a file");
                }
                self.content(from, slot)?
            }
            FileKind::Symlink => {
                let says = self.there(from.read_link())?;
                let made = clear(slot).and_then(|dir| dir.symlink(&slot.name, &says));
                self.finish(from, &*self.here(made)?)?
            }
            _ => {
                let perm = self.first_perm(attributes);
                let made = clear(slot).and_then(|dir| dir.make_node(&slot.name, attributes, perm));
                self.finish(from, &*self.here(made)?)?
            }
        };
        if linked && let Some(id) = copied {
            let path = self.below.clone();
            self.links.insert(attributes.id, First { path, id });
        }
        Ok(())
    }

    /// Whether a copy gets other attributes than those that a new file has.
    fn sets_attributes(&self) -> bool {
        let given = &self.rules.given;
        self.rules.preserve || given.owner.is_some() || given.mode.is_some()
    }

    /// Keeps the attributes of what is no regular file; returns what the copy is.
    fn finish(&self, from: &AnyItem<'a>, made: &AnyItem<'a>) -> Result<Option<Id>, Failure> {
        if self.sets_attributes() {
            let xattrs = || self.there(from.xattrs());
            self.keep(xattrs, made.change(), from.attributes())?;
        }
        Ok(Some(made.change().id()))
    }

    /// The permissions that a copy begins with. What is kept may be secret until its owner is
    /// right.
    fn first_perm(&self, attributes: &Attributes) -> u16 {
        attributes.perm & if self.rules.preserve { 0o700 } else { 0o777 }
    }

    /// Copies the bytes, and keeps the attributes; returns what the copy is, unless that was there
    /// before.
    fn content(&mut self, from: &AnyItem<'a>, slot: &Slot<'a>) -> Result<Option<Id>, Failure> {
        let attributes = from.attributes();
        let len = match attributes.kind {
            // A file of the host may have content without a length: `/proc` has such.
            FileKind::Regular if self.from.live() && attributes.size == 0 => UNKNOWN,
            FileKind::Regular if self.from_path != Path::new(STDIN) => attributes.size,
            _ if self.from.live() => UNKNOWN,
            _ => {
                let what = "a device node, pipe or socket (copy it with -r)";
                return self.refuse_there(what);
            }
        };
        let source = self.there(from.open())?;
        // Nothing is removed before there is something to put in its place.
        let target = self.here(self.target(attributes, slot))?;
        let content = Content {
            from: &*source,
            to: &*target,
            sparse: self.rules.sparse,
            progress: self.progress,
        };
        self.budget.begin(attributes.id.inode, attributes.links);
        match content.copy(len, &mut self.budget, &mut self.buf) {
            Ok(()) => {}
            Err(Trouble::Source(failure)) => return self.there(Err(failure)),
            Err(Trouble::Target(failure)) => return self.here(Err(failure)),
        }
        let Some(made) = target.change() else {
            return Ok(None);
        };
        if self.sets_attributes() {
            self.keep(|| self.there(from.xattrs()), made, attributes)?;
        }
        Ok(Some(made.id()))
    }

    fn target(
        &self,
        attributes: &Attributes,
        slot: &Slot<'a>,
    ) -> Result<Box<dyn Target + 'a>, Failure> {
        if let Some(existing) = &slot.existing {
            match existing.attributes().kind {
                FileKind::Regular => return existing.rewrite(),
                kind if is_special(kind) && self.to.live() => return existing.open_device(),
                _ => {}
            }
        }
        let dir = clear(slot)?;
        dir.create(&slot.name, self.first_perm(attributes))
    }

    /// Sets the owner; returns whether the caller may. An owner that it names is one that it needs.
    fn set_owner(&self, to: &(impl Change + ?Sized), owner: &Attributes) -> Result<bool, Failure> {
        let owned = to.set_owner(owner)?;
        match owned || self.rules.given.owner.is_none() {
            true => Ok(owned),
            false => Err(Failure::at("--owner", Error::NotPermitted)),
        }
    }

    /// Gives a copy the attributes that the rules keep. The order matters: a new owner clears
    /// set-id bits and capabilities.
    fn keep(
        &self,
        xattrs: impl FnOnce() -> Result<Vec<Xattr>, Failure>,
        to: &(impl Change + ?Sized),
        attributes: &Attributes,
    ) -> Result<(), Failure> {
        let CopyRules { given, umask, .. } = &self.rules;
        let link = attributes.kind == FileKind::Symlink;
        let perm = |perm| given.perm(perm, attributes.kind == FileKind::Directory, *umask);
        let mut owner = attributes.clone();
        (owner.uid, owner.gid) = given.owner(owner.uid, owner.gid);
        if !self.rules.preserve {
            if given.owner.is_some() {
                self.here(self.set_owner(to, &owner))?;
            }
            if link {
                return Ok(());
            }
            let perm = perm(attributes.perm & 0o777 & !umask);
            return self.here(to.set_perm(perm));
        }
        let another = attributes.kind != FileKind::Directory
            && (owner.uid, owner.gid) != (attributes.uid, attributes.gid);
        let owned = self.here(self.set_owner(to, &owner))?;
        if !link {
            // Set-id bits would be another owner's.
            let bits = if owned { 0o7777 } else { 0o777 };
            let kept = attributes.perm & !if another { SET_ID } else { 0 };
            self.here(to.set_perm(perm(kept) & bits))?;
        }
        if self.rules.archive {
            let mut xattrs = xattrs()?;
            if another {
                xattrs.retain(|(name, _)| name != CAPABILITY);
            }
            if !link {
                for acl in ACLS {
                    if !xattrs.iter().any(|(name, _)| name == acl.as_bytes()) {
                        to.drop_xattr(acl);
                    }
                }
            }
            for xattr in &xattrs {
                if let Some(why) = self.here(to.set_xattr(xattr))? {
                    let name = String::from_utf8_lossy(&xattr.0);
                    warn!("{}: {name} is left out: {why}", self.to.show(&self.to_path));
                }
            }
        }
        self.here(to.set_times(attributes))
    }
}

/// What was found on either side.
type AnyItem<'a> = dyn super::sides::Item<'a> + 'a;

/// Removes what is in the way; returns the directory.
fn clear<'s, 'a>(slot: &'s Slot<'a>) -> Result<&'s (dyn Dir<'a> + 'a), Failure> {
    let dir = slot.dir()?;
    if slot.existing.is_some() {
        dir.remove(&slot.name)?;
    }
    Ok(dir)
}

/// Makes another name of a file that is copied already.
fn link(slot: &Slot<'_>, first: &First) -> Result<(), Failure> {
    let existing = slot.existing.as_ref();
    if existing.is_some_and(|existing| existing.attributes().id == first.id) {
        return Ok(());
    }
    clear(slot)?.hard_link(&slot.name, first)
}
