//! One copy: a file, or a tree.
//!
//! A tree is walked without recursion. Attributes of a directory are set when everything in it is copied, so that neither its
//! permissions nor its times are in the way. Failures are noted and the copy goes on.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use extant::FileKind;

use super::content;
use super::host::STDIN;
use super::tree::{Attributes, Id, Target, Tree, UNKNOWN};
use crate::failure::{Failure, Failures};
use crate::progress::Progress;

/// What is copied, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) recursive: bool,
    /// Keep owners, permissions and times.
    pub(crate) preserve: bool,
    /// Keep extended attributes and hard links too.
    pub(crate) archive: bool,
    pub(crate) no_clobber: bool,
    /// Bits that new files do not get.
    pub(crate) umask: u16,
}

/// A copy from one place to another.
pub(crate) struct Job<'a> {
    from: &'a dyn Tree,
    to: &'a dyn Tree,
    /// Both are the same file system: a copy could be its own source.
    same: bool,
    rules: Rules,
    progress: &'a Progress,
    failures: &'a mut Failures,
    buf: Vec<u8>,
    /// Files with several names, and where their first copy is.
    links: HashMap<Id, PathBuf>,
    /// Directories that this copy made or fills.
    filled: HashSet<Id>,
}

/// A directory being copied.
struct Level {
    from: PathBuf,
    to: PathBuf,
    attributes: Attributes,
    made: bool,
    names: std::vec::IntoIter<OsString>,
}

/// The access ACL and the default ACL: a new file may have inherited them.
const ACLS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// As many symbolic links are followed in a row as Linux does.
const LINKS_MAX: usize = 40;

fn is_link(existing: Option<&Attributes>) -> bool {
    existing.is_some_and(|existing| existing.kind == FileKind::Symlink)
}

fn is_special(kind: FileKind) -> bool {
    !matches!(
        kind,
        FileKind::Regular | FileKind::Directory | FileKind::Symlink
    )
}

impl<'a> Job<'a> {
    pub(crate) fn new(
        from: &'a dyn Tree,
        to: &'a dyn Tree,
        same: bool,
        rules: Rules,
        progress: &'a Progress,
        failures: &'a mut Failures,
    ) -> Self {
        Self {
            from,
            to,
            same,
            rules,
            progress,
            failures,
            buf: vec![0; content::CHUNK],
            links: HashMap::new(),
            filled: HashSet::new(),
        }
    }

    /// Copies `from` and what is in it to `to`. `named` says that `to` is what the person wrote, so that a link there is followed. Links at
    /// names that the source gave could lead anywhere.
    pub(crate) fn copy(&mut self, from: &Path, to: &Path, named: bool) {
        let mut stack = Vec::new();
        let top = self.one(from, to, named, &stack);
        stack.extend(self.note(top).flatten());
        while let Some(level) = stack.last_mut() {
            let Some(name) = level.names.next() else {
                if let Some(level) = stack.pop() {
                    let left = self.leave(&level);
                    self.note(left);
                }
                continue;
            };
            let (from, to) = (level.from.join(&name), level.to.join(&name));
            let copied = self.one(&from, &to, false, &stack);
            stack.extend(self.note(copied).flatten());
        }
    }

    /// Bytes in the files of a tree, as far as they can be found out.
    pub(crate) fn size(&self, top: &Path) -> u64 {
        let (mut total, mut seen) = (0u64, HashSet::new());
        let mut stack = vec![top.to_owned()];
        while let Some(path) = stack.pop() {
            let Ok(Some(attributes)) = self.from.attributes(&path, self.follows()) else {
                continue;
            };
            if attributes.links > 1 && !seen.insert(attributes.id) && self.rules.archive {
                continue;
            }
            match attributes.kind {
                FileKind::Regular => total = total.saturating_add(attributes.size),
                FileKind::Directory if self.rules.recursive && seen.insert(attributes.id) => {
                    let names = self.from.names(&path).unwrap_or_default();
                    stack.extend(names.into_iter().map(|name| path.join(name)));
                }
                _ => {}
            }
        }
        total
    }

    fn note<T>(&mut self, result: Result<T, Failure>) -> Option<T> {
        let failures = &mut *self.failures;
        match result {
            Ok(value) => Some(value),
            failed => self.progress.pause(|| failures.note(failed)),
        }
    }

    /// A copy of single files follows links; a copy of trees keeps them.
    fn follows(&self) -> bool {
        !self.rules.recursive
    }

    /// Copies one thing; a directory is only begun, and returned.
    fn one(
        &mut self,
        from: &Path,
        to: &Path,
        named: bool,
        above: &[Level],
    ) -> Result<Option<Level>, Failure> {
        let missing = || Failure::at(self.from.show(from), extant::Error::NotFound);
        let attributes = self
            .from
            .attributes(from, self.follows())?
            .ok_or_else(missing)?;
        let mut existing = self.to.attributes(to, false)?;
        let mut to = Cow::Borrowed(to);
        if named && self.has_content(&attributes) && is_link(existing.as_ref()) {
            let leads = self.to.attributes(&to, true)?.ok_or_else(|| {
                Failure::at(self.to.show(&to), "a symbolic link that leads nowhere")
            })?;
            if leads.kind == FileKind::Regular {
                to = Cow::Owned(self.led(&to, leads.id)?);
            }
            existing = Some(leads);
        }
        if let Some(existing) = &existing {
            if self.same && existing.id == attributes.id {
                return Err(Failure::at(
                    self.to.show(&to),
                    "the same file as its source",
                ));
            }
            match (attributes.kind, existing.kind) {
                (FileKind::Directory, FileKind::Directory) => {}
                (FileKind::Directory, _) => {
                    // A link to a directory will do for one, if it leads nowhere else.
                    let leads = if named || !self.to.live() {
                        self.to.attributes(&to, true)?
                    } else {
                        None
                    };
                    let Some(leads) = leads.filter(|leads| leads.kind == FileKind::Directory)
                    else {
                        let what = "in the way of a directory";
                        return Err(Failure::at(self.to.show(&to), what));
                    };
                    to = Cow::Owned(self.led(&to, leads.id)?);
                }
                (_, FileKind::Directory) => {
                    let what = "a directory, in the way of what is not one";
                    return Err(Failure::at(self.to.show(&to), what));
                }
                _ if self.rules.no_clobber => return Ok(None),
                _ => {}
            }
        }
        if attributes.kind == FileKind::Directory {
            return self
                .enter(from, &to, attributes, existing.is_some(), above)
                .map(Some);
        }
        self.progress.begin(&self.from.show(from));
        self.leaf(from, &to, named, &attributes, existing.as_ref())?;
        Ok(None)
    }

    /// The path of what the symbolic link `to` leads to, which is `id`: no step of a copy may meet the link, and another the file.
    fn led(&self, to: &Path, id: Id) -> Result<PathBuf, Failure> {
        let mut path = to.to_owned();
        for _ in 0..LINKS_MAX {
            let found = self.to.attributes(&path, false)?;
            if is_link(found.as_ref()) {
                let says = self.to.read_link(&path)?;
                path = path.parent().unwrap_or(Path::new("")).join(says);
            } else if found.is_some_and(|found| found.id == id) {
                return Ok(path);
            } else {
                break;
            }
        }
        let what = "a symbolic link to what has no name";
        Err(Failure::at(self.to.show(to), what))
    }

    /// Whether bytes are copied: of regular files, and of devices and pipes of the host if no tree is.
    fn has_content(&self, attributes: &Attributes) -> bool {
        match attributes.kind {
            FileKind::Regular => true,
            FileKind::Directory | FileKind::Symlink => false,
            _ => !self.rules.recursive,
        }
    }

    fn enter(
        &mut self,
        from: &Path,
        to: &Path,
        attributes: Attributes,
        existed: bool,
        above: &[Level],
    ) -> Result<Level, Failure> {
        if !self.rules.recursive {
            return Err(Failure::at(
                self.from.show(from),
                "a directory (copy it with -r)",
            ));
        }
        if self.same && self.filled.contains(&attributes.id) {
            return Err(Failure::at(
                self.from.show(from),
                "copying a directory into itself",
            ));
        }
        if above
            .iter()
            .any(|level| level.attributes.id == attributes.id)
        {
            return Err(Failure::at(
                self.from.show(from),
                "a directory that contains itself",
            ));
        }
        if !existed {
            // Ours to fill first, whatever its permissions will be.
            self.to.mkdir(to, attributes.perm | 0o700)?;
        }
        if self.same {
            self.filled
                .extend(self.to.attributes(to, true)?.map(|made| made.id));
        }
        let names = self.from.names(from)?.into_iter();
        Ok(Level {
            from: from.to_owned(),
            to: to.to_owned(),
            attributes,
            made: !existed,
            names,
        })
    }

    fn leave(&mut self, level: &Level) -> Result<(), Failure> {
        if self.rules.preserve || level.made {
            self.keep(&level.from, &level.to, &level.attributes)?;
        }
        Ok(())
    }

    fn leaf(
        &mut self,
        from: &Path,
        to: &Path,
        named: bool,
        attributes: &Attributes,
        existing: Option<&Attributes>,
    ) -> Result<(), Failure> {
        let linked = self.rules.archive && attributes.links > 1;
        if linked && let Some(first) = self.links.get(&attributes.id) {
            let original = self
                .to
                .attributes(first, false)?
                .ok_or_else(|| Failure::at(self.to.show(first), extant::Error::NotFound))?;
            match existing {
                Some(existing) if existing.id == original.id => return Ok(()),
                Some(_) => self.to.remove(to)?,
                None => {}
            }
            return self.to.hard_link(first, to);
        }
        let content = self.has_content(attributes);
        let special = existing.is_some_and(|existing| is_special(existing.kind));
        if content && special && self.to.live() {
            // Replacing /dev/null is not what anybody meant.
            if !named {
                let what = "a device, pipe or socket, in the way of a file";
                return Err(Failure::at(self.to.show(to), what));
            }
            return self.content(from, attributes, |tree| tree.open_device(to));
        }
        let replaces =
            existing.is_some_and(|existing| !content || existing.kind != FileKind::Regular);
        // Only once there is something to put in its place.
        let clear = |tree: &dyn Tree| if replaces { tree.remove(to) } else { Ok(()) };
        // What is kept may be secret until its owner is right.
        let perm = if self.rules.preserve {
            attributes.perm & 0o700
        } else {
            attributes.perm & 0o777
        };
        match attributes.kind {
            _ if content => {
                self.content(from, attributes, |tree| {
                    clear(tree)?;
                    tree.create(to, perm)
                })?;
            }
            FileKind::Symlink => {
                let says = self.from.read_link(from)?;
                clear(self.to)?;
                self.to.symlink(to, &says)?;
            }
            _ => {
                clear(self.to)?;
                self.to.make_node(to, attributes, perm)?;
            }
        }
        if self.rules.preserve {
            self.keep(from, to, attributes)?;
        }
        if linked {
            self.links.insert(attributes.id, to.to_owned());
        }
        Ok(())
    }

    fn content(
        &mut self,
        from: &Path,
        attributes: &Attributes,
        target: impl FnOnce(&'a dyn Tree) -> Result<Box<dyn Target + 'a>, Failure>,
    ) -> Result<(), Failure> {
        let len = match attributes.kind {
            FileKind::Regular if from != Path::new(STDIN) => attributes.size,
            _ if self.from.live() => UNKNOWN,
            _ => {
                let what = "a device node, pipe or socket (copy it with -r)";
                return Err(Failure::at(self.from.show(from), what));
            }
        };
        let source = self.from.open(from)?;
        let target = target(self.to)?;
        content::copy(&*source, &*target, len, &mut self.buf, self.progress)
    }

    /// Gives a copy the attributes that the rules keep. The order matters: a new owner clears set-id bits and capabilities.
    fn keep(&self, from: &Path, to: &Path, attributes: &Attributes) -> Result<(), Failure> {
        let link = attributes.kind == FileKind::Symlink;
        if !self.rules.preserve {
            return self
                .to
                .set_perm(to, attributes.perm & 0o777 & !self.rules.umask);
        }
        let owned = self.to.set_owner(to, attributes)?;
        if !link {
            // Set-id bits would be another owner's.
            let bits = if owned { 0o7777 } else { 0o777 };
            self.to.set_perm(to, attributes.perm & bits)?;
        }
        if self.rules.archive {
            let xattrs = self.from.xattrs(from)?;
            if !link {
                for acl in ACLS {
                    if !xattrs.iter().any(|(name, _)| name == acl.as_bytes()) {
                        self.to.drop_xattr(to, acl);
                    }
                }
            }
            for xattr in &xattrs {
                self.to.set_xattr(to, xattr)?;
            }
        }
        self.to.set_times(to, attributes)
    }
}
