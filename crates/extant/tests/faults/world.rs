//! A volume under a workload, and its expected state: content, and acknowledged durability.
//!
//! Each operation is a step. The [`Referee`] judges its result; its effect is entered only if it
//! succeeded. A step that needs an effect of a failed one is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use extant::{Error, FallocateMode, File, Filesystem, Options, Permissions, Result, Verifier};
use extant_testkit::RequestKind;

use crate::ranges::Either;
use crate::referee::{Referee, Role};
use crate::stage::{Cargo, Mode, Stage};
use crate::units::content;
use crate::workload::Setup;

/// A file as it should be.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) bytes: Vec<u8>,
    pub(crate) attrs: BTreeMap<String, Vec<u8>>,
    /// A part of it was lost: its content is not known any more.
    pub(crate) lost: bool,
}

/// The known state of the files, of an image or of a volume.
#[derive(Clone, Default)]
pub(crate) struct Known {
    pub(crate) objects: Vec<Object>,
    pub(crate) names: BTreeMap<String, usize>,
    pub(crate) dirs: BTreeSet<String>,
    /// Which file each write went to.
    pub(crate) writes: BTreeMap<u16, usize>,
}

impl Known {
    /// Enters a new file.
    pub(crate) fn add(&mut self, path: &str) -> usize {
        self.objects.push(Object::default());
        let object = self.objects.len() - 1;
        self.names.insert(path.to_owned(), object);
        object
    }

    /// The bytes of the next write, to this file.
    pub(crate) fn next_write(&mut self, object: usize, pos: usize, len: usize) -> Vec<u8> {
        let id = u16::try_from(self.writes.len() + 1).unwrap();
        self.writes.insert(id, object);
        content(id, pos, len)
    }

    /// The bytes are there.
    pub(crate) fn written(&mut self, object: usize, pos: usize, data: &[u8]) {
        let bytes = &mut self.objects[object].bytes;
        let end = pos + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[pos..end].copy_from_slice(data);
    }
}

/// An open file.
struct Open {
    file: File,
    object: usize,
}

/// The volume under the workload.
pub(crate) struct World {
    options: Options,
    scale: usize,
    pub(crate) stage: Arc<Stage>,
    fs: Option<Filesystem>,
    pub(crate) known: Known,
    open: BTreeMap<&'static str, Open>,
    /// The content of the volume when its durability was last acknowledged, if it was not touched
    /// since.
    pub(crate) promises: BTreeMap<String, Object>,
    /// The possible content after a range operation that failed, of files that were durable before
    /// and were not touched since.
    pub(crate) either: BTreeMap<String, Either>,
    /// Ranges were taken out of files, or put in.
    pub(crate) moved: bool,
    /// Names that were durably gone, and not made again since.
    pub(crate) gone: BTreeSet<String>,
    /// Names that are gone, durably or not.
    removed: BTreeSet<String>,
    pub(crate) referee: Referee,
}

impl World {
    pub(crate) fn new(setup: &Setup, stage: Arc<Stage>, known: Known) -> Self {
        let named = |(path, object): (&String, &usize)| {
            let object = known.objects[*object].clone();
            (path.clone(), object)
        };
        Self {
            promises: known.names.iter().map(named).collect(),
            either: BTreeMap::new(),
            moved: false,
            gone: BTreeSet::new(),
            removed: BTreeSet::new(),
            referee: Referee::new(stage.clone(), setup.mount.contains("sync")),
            options: setup.options(),
            scale: usize::try_from(setup.block_size() / 4096).unwrap().max(1),
            stage,
            fs: None,
            known,
            open: BTreeMap::new(),
        }
    }

    /// Pages of a block, one at least.
    pub(crate) fn scale(&self) -> usize {
        self.scale
    }

    fn fs(&self) -> &Filesystem {
        self.fs.as_ref().expect("mounted")
    }

    /// Does a step. `touches` are the paths that may be different afterwards.
    pub(crate) fn step(
        &mut self,
        what: String,
        role: Role,
        touches: &[&str],
        run: impl FnOnce(&mut Self) -> Result<()>,
    ) -> bool {
        if self.fs.is_none() && role != Role::Mount {
            return false;
        }
        self.referee.begin();
        let taken: Vec<(String, Object)> = touches
            .iter()
            .filter_map(|path| self.promises.remove_entry(*path))
            .collect();
        let were_open: Vec<(String, Either)> = touches
            .iter()
            .filter_map(|path| self.either.remove_entry(*path))
            .collect();
        let were_gone: Vec<String> = touches
            .iter()
            .filter_map(|path| self.gone.take(*path))
            .collect();
        let result = run(self);
        // Work that the step left to other threads is done before it is judged, and no request of
        // theirs is in the next one.
        if let Some(fs) = &self.fs {
            fs.volume().wait_for_background_work();
        }
        let faults = self.fs.as_ref().map_or(0, |fs| {
            let stats = fs.volume().stats();
            stats
                .iter()
                .find(|(name, _)| *name == "faults")
                .map_or(0, |(_, value)| *value)
        });
        self.referee
            .judge(&what, &role, &result, faults, &mut self.known);
        if let Err(Error::ReadOnly) = result {
            // Refused before anything was changed.
            self.promises.extend(taken);
            self.gone.extend(were_gone);
            self.either.extend(were_open);
        } else if result.is_err()
            && matches!(role, Role::Change(_) | Role::Write(..))
            && !self.stage_read_data()
        {
            for path in touches {
                if let Some(object) = self.known.names.remove(*path) {
                    self.known.objects[object].lost = true;
                }
            }
        }
        result.is_ok()
    }

    /// Returns whether a read of data failed: then the operation that needed it is not done, and
    /// nothing else differs.
    fn stage_read_data(&self) -> bool {
        self.stage.fired().is_some_and(|seen| {
            seen.kind == RequestKind::Read && matches!(seen.cargo, Cargo::Data(_))
        })
    }

    /// Everything named is durable.
    fn all_durable(&mut self) {
        self.promises.clear();
        self.gone.append(&mut self.removed);
        for (path, object) in &self.known.names {
            let object = &self.known.objects[*object];
            if !object.lost {
                self.promises.insert(path.clone(), object.clone());
            }
        }
    }

    pub(crate) fn mount(&mut self) {
        self.step("mount".into(), Role::Mount, &[], |w| {
            w.fs = Some(w.options.open_device(w.stage.device.clone())?);
            Ok(())
        });
    }

    pub(crate) fn unmount(&mut self) {
        self.open.clear();
        // The walk reads from the device.
        let reads = self
            .stage
            .order()
            .is_none_or(|order| order.mode != Mode::FailOn);
        if let Some(fs) = self.fs.as_ref().filter(|_| reads) {
            let state = fs.volume().verify(&mut Verifier::default(), false);
            if let Err(why) = state {
                self.referee
                    .complain(format!("before the unmount, in memory: {why}"));
            }
        }
        let volume = self.fs.as_ref().map(|fs| fs.volume().clone());
        let done = self.step("unmount".into(), Role::Unmount, &[], |w| {
            w.fs.take().expect("mounted").unmount()
        });
        self.fs = None;
        for (name, value) in volume.iter().flat_map(|volume| volume.stats()) {
            if ["reserved", "reservation_leaks"].contains(&name) && value != 0 {
                self.referee
                    .complain(format!("{name} is {value} after the unmount"));
            }
        }
        if done {
            self.all_durable();
        }
    }

    pub(crate) fn mkdir(&mut self, path: &str) {
        let run = |w: &mut Self| w.fs().create_dir(path);
        if self.step(format!("mkdir {path}"), Role::change(), &[], run) {
            self.known.dirs.insert(path.into());
        }
    }

    pub(crate) fn rmdir(&mut self, path: &str) {
        if self.known.dirs.contains(path) {
            let run = |w: &mut Self| w.fs().remove_dir(path);
            if self.step(format!("rmdir {path}"), Role::change(), &[], run) {
                self.known.dirs.remove(path);
            }
        }
    }

    /// Opens a file that may have to be made.
    pub(crate) fn open(&mut self, handle: &'static str, path: &str) {
        let found = self.known.names.get(path).copied();
        let in_dir = path
            .rsplit_once('/')
            .is_none_or(|(dir, _)| dir.is_empty() || self.known.dirs.contains(dir));
        if !in_dir {
            return;
        }
        let mut opened = None;
        let run = |w: &mut Self| {
            let mut options = w.fs().open_options();
            let file = options.read(true).write(true).create(found.is_none());
            opened = Some(file.open(path)?);
            Ok(())
        };
        let touches = if found.is_none() { vec![path] } else { vec![] };
        let role = Role::Change(found);
        if self.step(format!("open {path}"), role, &touches, run) {
            let object = found.unwrap_or_else(|| self.known.add(path));
            self.removed.remove(path);
            let file = opened.expect("opened");
            self.open.insert(handle, Open { file, object });
            self.referee.opened(handle, object);
        }
    }

    pub(crate) fn close(&mut self, handle: &'static str) {
        if self.open.contains_key(handle) {
            self.referee.closed(handle);
            let run = |w: &mut Self| {
                w.open.remove(handle);
                Ok(())
            };
            self.step(format!("close {handle}"), Role::Read, &[], run);
        }
    }

    /// The file behind a handle, if it is open.
    pub(crate) fn object_of(&self, handle: &str) -> Option<usize> {
        self.open.get(handle).map(|open| open.object)
    }

    /// A range operation of the file system under test.
    pub(crate) fn fallocate(
        &self,
        handle: &str,
        mode: FallocateMode,
        range: std::ops::Range<usize>,
    ) -> Result<()> {
        let file = &self.open[handle].file;
        let range = range.start as u64..range.end as u64;
        match mode {
            FallocateMode::Allocate { keep_size: false } => file.allocate(range),
            FallocateMode::Allocate { keep_size: true } => file.allocate_keep_size(range),
            FallocateMode::PunchHole => file.punch_hole(range),
            FallocateMode::ZeroRange { keep_size } => file.zero_range(range, keep_size),
            FallocateMode::CollapseRange => file.collapse_range(range),
            FallocateMode::InsertRange => file.insert_range(range),
        }
    }

    /// Copies to the same place of another file; how much there was, or could be copied.
    pub(crate) fn copy_range(&self, from: &str, to: &str, pos: usize, len: usize) -> Result<usize> {
        let (from, to) = (&self.open[from].file, &self.open[to].file);
        let done = from.copy_range(pos as u64, to, pos as u64, len as u64)?;
        Ok(usize::try_from(done).unwrap_or(usize::MAX))
    }

    /// The names of an object.
    pub(crate) fn paths_of(&self, object: usize) -> Vec<String> {
        let names = self.known.names.iter();
        let mine = names.filter(|(_, at)| **at == object);
        mine.map(|(path, _)| path.clone()).collect()
    }

    pub(crate) fn write(&mut self, handle: &'static str, pos: usize, len: usize) {
        let Some(object) = self.open.get(handle).map(|open| open.object) else {
            return;
        };
        self.either.retain(|_, either| either.object != object);
        let data = self.known.next_write(object, pos, len);
        let paths = self.paths_of(object);
        let touches: Vec<&str> = paths.iter().map(String::as_str).collect();
        let run = |w: &mut Self| {
            let done = w.open[handle].file.write_at(&data, pos as u64)?;
            assert_eq!(done, data.len(), "a short write");
            Ok(())
        };
        let what = format!("write {handle} {pos}+{len}");
        if self.step(what, Role::Write(handle, object), &touches, run) {
            self.known.written(object, pos, &data);
        }
    }

    pub(crate) fn truncate(&mut self, handle: &'static str, len: usize) {
        let Some(object) = self.open.get(handle).map(|open| open.object) else {
            return;
        };
        let paths = self.paths_of(object);
        let touches: Vec<&str> = paths.iter().map(String::as_str).collect();
        let run = |w: &mut Self| w.open[handle].file.set_len(len as u64);
        let what = format!("truncate {handle} to {len}");
        if self.step(what, Role::Change(Some(object)), &touches, run) {
            self.known.objects[object].bytes.resize(len, 0);
        }
    }

    pub(crate) fn fsync(&mut self, handle: &'static str) {
        let Some(object) = self.open.get(handle).map(|open| open.object) else {
            return;
        };
        let run = |w: &mut Self| w.open[handle].file.sync_all();
        if self.step(
            format!("fsync {handle}"),
            Role::Fsync(handle, object),
            &[],
            run,
        ) {
            let now = self.known.objects[object].clone();
            if !now.lost {
                for path in self.paths_of(object) {
                    self.promises.insert(path, now.clone());
                }
            }
        }
    }

    pub(crate) fn sync(&mut self) {
        let run = |w: &mut Self| w.fs().sync();
        if self.step("sync".into(), Role::Sync, &[], run) {
            self.all_durable();
        }
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        let Some(object) = self.known.names.get(from).copied() else {
            return;
        };
        let run = |w: &mut Self| w.fs().rename(from, to);
        let what = format!("rename {from} {to}");
        if self.step(what, Role::Change(Some(object)), &[from, to], run) {
            self.known.names.remove(from);
            self.removed.insert(from.into());
            self.removed.remove(to);
            self.known.names.insert(to.into(), object);
        }
    }

    pub(crate) fn link(&mut self, from: &str, to: &str) {
        let Some(object) = self.known.names.get(from).copied() else {
            return;
        };
        let run = |w: &mut Self| w.fs().hard_link(from, to);
        if self.step(format!("link {from} {to}"), Role::change(), &[to], run) {
            self.known.names.insert(to.into(), object);
            self.removed.remove(to);
        }
    }

    pub(crate) fn symlink(&mut self, target: &str, at: &str) {
        if !at.starts_with("/old") && !self.known.dirs.contains("/new") {
            return;
        }
        let run = |w: &mut Self| w.fs().symlink(target, at);
        self.step(format!("symlink {at}"), Role::change(), &[], run);
    }

    pub(crate) fn read_link(&mut self, path: &str, target: &str) {
        let run = |w: &mut Self| {
            assert_eq!(w.fs().read_link(path)?.to_str(), Some(target));
            Ok(())
        };
        self.step(format!("readlink {path}"), Role::Read, &[], run);
    }

    pub(crate) fn unlink(&mut self, path: &str) {
        if !self.known.names.contains_key(path) {
            return;
        }
        let run = |w: &mut Self| w.fs().remove_file(path);
        if self.step(format!("unlink {path}"), Role::change(), &[path], run) {
            self.known.names.remove(path);
            self.removed.insert(path.into());
        }
    }

    pub(crate) fn chmod(&mut self, path: &str, mode: u32) {
        if self.known.names.contains_key(path) {
            let run = |w: &mut Self| w.fs().set_permissions(path, Permissions::from_mode(mode));
            self.step(format!("chmod {path}"), Role::change(), &[], run);
        }
    }

    pub(crate) fn set_attr(&mut self, path: &str, key: &str, len: usize) {
        let Some(object) = self.known.names.get(path).copied() else {
            return;
        };
        let value: Vec<u8> = key.bytes().cycle().take(len).collect();
        let run = |w: &mut Self| w.fs().set_xattr(path, key, &value);
        if self.step(
            format!("setxattr {path} {key}"),
            Role::change(),
            &[path],
            run,
        ) {
            let attrs = &mut self.known.objects[object].attrs;
            attrs.insert(key.into(), value);
        }
    }

    pub(crate) fn remove_attr(&mut self, path: &str, key: &str) {
        let Some(object) = self.known.names.get(path).copied() else {
            return;
        };
        if !self.known.objects[object].attrs.contains_key(key) {
            return;
        }
        let run = |w: &mut Self| w.fs().remove_xattr(path, key);
        if self.step(
            format!("removexattr {path} {key}"),
            Role::change(),
            &[path],
            run,
        ) {
            self.known.objects[object].attrs.remove(key);
        }
    }

    /// Reads a whole file and its attributes, and compares.
    pub(crate) fn read(&mut self, path: &str) {
        let Some(object) = self.known.names.get(path).copied() else {
            return;
        };
        let want = self.known.objects[object].clone();
        let mut differs = false;
        let run = |w: &mut Self| {
            differs = w.fs().read(path)? != want.bytes;
            for (key, value) in &want.attrs {
                differs |= w.fs().xattr(path, key)? != *value;
            }
            Ok(())
        };
        if self.step(format!("read {path}"), Role::Read, &[], run) && differs && !want.lost {
            self.referee
                .complain(format!("{path} does not read as it should"));
        }
    }

    /// Lists a directory and counts its entries, without "." and "..".
    pub(crate) fn list(&mut self, path: &str, count: usize) {
        let mut found = 0;
        let run = |w: &mut Self| {
            for entry in w.fs().read_dir(path)? {
                entry?;
                found += 1;
            }
            Ok(())
        };
        if self.step(format!("list {path}"), Role::Read, &[], run) && found != count {
            self.referee
                .complain(format!("{path} lists {found} entries of {count}"));
        }
    }
}
