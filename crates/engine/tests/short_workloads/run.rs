//! A run of a workload by the engine, on a recorded device in memory.

use std::sync::Arc;

use extant_blockdev::MemoryDevice;
use extant_engine::{
    Cred, Error, FallocateMode, FileKind, Node, RenameFlags, SetAttr, Volume, XattrMode,
};
use extant_failpoint::ActiveFailpoint;
use extant_testkit::{Event, Recorder};

use crate::content::Change;
use crate::model::{LARGE, SMALL, TARGET, attr_value};
use crate::ops::{Name, Object, Op, Pair, Persist, Verb};
use crate::setups::Setup;
use crate::view::NODUMP;

/// A file system that runs workloads on a recorded device.
pub(crate) trait Subject {
    /// Number of events so far.
    fn position(&self) -> usize;
    /// Does operation number `nth`; `change` are the bytes that it is about.
    fn perform(&mut self, op: Op, nth: usize, change: Option<&Change>) -> Result<(), String>;
    /// Makes something durable.
    fn persist(&mut self, persist: Persist) -> Result<(), String>;
    /// The events. With `unmount` those of an unmount are among them.
    fn finish(self, unmount: bool) -> Result<Vec<Event>, String>;
}

/// A volume in memory that the engine has mounted.
pub(crate) struct ByExtant {
    device: Arc<Recorder<MemoryDevice>>,
    volume: Volume,
    cred: Cred,
}

impl ByExtant {
    pub(crate) fn new(setup: &Setup, base: &[u8], failpoint: ActiveFailpoint) -> Self {
        let device = Arc::new(Recorder::in_pieces(
            MemoryDevice::from_bytes(base),
            setup.habits.block as u64,
        ));
        let mut options = setup.options();
        let mut tuning = setup.recorded_tuning();
        tuning.failpoint = failpoint;
        options.tuning(tuning);
        let volume = options.open_on(device.clone()).unwrap();
        if !setup.is_for_e2fsck() {
            // No fast commit tells what a mount changes by itself.
            volume.sync().unwrap();
        }
        Self {
            device,
            volume,
            cred: Cred::root(),
        }
    }

    fn node(&self, object: Object) -> Result<Node, Error> {
        let root = self.volume.root()?;
        let mut names = object.path().split('/');
        names.try_fold(root, |dir, name| self.volume.lookup(&dir, name.as_bytes()))
    }

    fn one(
        &self,
        (verb, name): (Verb, Name),
        nth: usize,
        change: Option<&Change>,
    ) -> Result<(), Error> {
        let (volume, cred) = (&self.volume, &self.cred);
        let (dir, last) = (self.node(name.dir())?, name.last().as_bytes());
        match verb {
            Verb::Creat => volume.create(&dir, last, 0o644, cred).map(drop),
            Verb::Mkdir => volume.mkdir(&dir, last, 0o755, cred).map(drop),
            Verb::Mknod => {
                let made = volume.mknod(&dir, last, FileKind::Fifo, 0o644, 0, cred);
                made.map(drop)
            }
            Verb::Symlink => {
                let made = volume.symlink(&dir, last, TARGET.as_bytes(), cred);
                made.map(drop)
            }
            Verb::Unlink => volume.unlink(&dir, last),
            Verb::Rmdir => volume.rmdir(&dir, last),
            Verb::SetAttr | Verb::SetLargeAttr => {
                let key = if verb == Verb::SetAttr { SMALL } else { LARGE };
                let value = attr_value(key, 10 + nth as u64);
                let node = self.node(Object::At(name))?;
                volume.setxattr(&node, key.as_bytes(), &value, XattrMode::Either, cred)
            }
            Verb::RemoveAttr => {
                let node = self.node(Object::At(name))?;
                volume.removexattr(&node, SMALL.as_bytes(), cred)
            }
            Verb::Chattr => {
                let node = self.node(Object::At(name))?;
                let flags = volume.flags(&node)? ^ NODUMP;
                volume.set_flags(&node, flags, cred)
            }
            _ => {
                let node = self.node(Object::At(name))?;
                self.data(verb, &node, change.expect("it changes bytes"))
            }
        }
    }

    fn data(&self, verb: Verb, node: &Node, change: &Change) -> Result<(), Error> {
        use FallocateMode::{Allocate, CollapseRange, InsertRange, PunchHole, ZeroRange};
        let (volume, cred) = (&self.volume, &self.cred);
        let (mode, range) = match change {
            Change::Write { pos, bytes } => {
                let at = *pos as u64;
                let done = match verb {
                    Verb::Append => volume.append(node, bytes, cred)?.1,
                    Verb::Direct => volume.write_direct(node, at, bytes, cred)?,
                    Verb::Map => {
                        let store = |at: u64, page: &mut [u8]| {
                            let from = usize::try_from(at).unwrap_or(0) - pos;
                            page.copy_from_slice(&bytes[from..from + page.len()]);
                        };
                        volume.edit(node, at, bytes.len(), cred, store)?
                    }
                    _ => volume.write(node, at, bytes, cred)?,
                };
                assert_eq!(done, bytes.len(), "{verb:?}");
                return Ok(());
            }
            Change::Resize { len } => {
                let changes = SetAttr {
                    size: Some(*len as u64),
                    ..SetAttr::default()
                };
                return volume.setattr(node, &changes, cred).map(drop);
            }
            Change::Copy { .. } => unreachable!("a copy has two names"),
            Change::Allocate { range, grow } => (Allocate { keep_size: !grow }, range),
            Change::Punch { range } => (PunchHole, range),
            Change::Zero { range, grow } => (ZeroRange { keep_size: !grow }, range),
            Change::Collapse { range } => (CollapseRange, range),
            Change::Insert { range } => (InsertRange, range),
        };
        let (at, len) = (range.start as u64, (range.end - range.start) as u64);
        volume.fallocate(node, mode, at, len, cred)
    }

    fn two(
        &self,
        (pair, first, second): (Pair, Name, Name),
        change: Option<&Change>,
    ) -> Result<(), Error> {
        let (volume, cred) = (&self.volume, &self.cred);
        let flags = match pair {
            Pair::Link => {
                let (node, dir) = (self.node(Object::At(first))?, self.node(second.dir())?);
                return volume.link(&node, &dir, second.last().as_bytes(), cred);
            }
            Pair::Copy => {
                let (from, to) = (
                    self.node(Object::At(first))?,
                    self.node(Object::At(second))?,
                );
                let Some(Change::Copy { pos, bytes }) = change else {
                    unreachable!("a copy has bytes");
                };
                let (at, len) = (*pos as u64, bytes.len() as u64);
                let done = volume.copy_range((&from, 0), (&to, at), len, cred)?;
                assert_eq!(done, len, "a copy");
                return Ok(());
            }
            Pair::Rename => RenameFlags::empty(),
            Pair::NoReplace => RenameFlags::NOREPLACE,
            Pair::Exchange => RenameFlags::EXCHANGE,
        };
        let (from, to) = (self.node(first.dir())?, self.node(second.dir())?);
        let (old, new) = (first.last().as_bytes(), second.last().as_bytes());
        volume.rename(&from, old, &to, new, flags, cred)
    }
}

impl Subject for ByExtant {
    fn position(&self) -> usize {
        self.device.position()
    }

    fn perform(&mut self, op: Op, nth: usize, change: Option<&Change>) -> Result<(), String> {
        let done = match op {
            Op::One(verb, name) => self.one((verb, name), nth, change),
            Op::Two(pair, first, second) => self.two((pair, first, second), change),
        };
        done.map_err(|error| error.to_string())
    }

    fn persist(&mut self, persist: Persist) -> Result<(), String> {
        let done = match persist {
            Persist::Sync => self.volume.sync(),
            Persist::Fsync(object) => {
                let node = self.node(object);
                node.and_then(|node| self.volume.fsync(&node, false))
            }
            Persist::Fdatasync(object) => {
                let node = self.node(object);
                node.and_then(|node| self.volume.fsync(&node, true))
            }
        };
        done.map_err(|error| error.to_string())
    }

    fn finish(self, unmount: bool) -> Result<Vec<Event>, String> {
        if unmount {
            self.volume.unmount().map_err(|error| error.to_string())?;
            return Ok(self.device.events());
        }
        let events = self.device.events();
        // Nothing that it would still write is looked at.
        self.volume
            .shutdown(false)
            .map_err(|error| error.to_string())?;
        Ok(events)
    }
}
