//! A run of a workload by Linux's own ext4, on a recorded device: the control of the generator, of
//! the model and of the recovery.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::PathBuf;

use extant_testkit::{Event, RecordedLinux, Result};
use rustix::fs::{
    CWD, FallocateFlags, FileType, IFlags, Mode, OFlags, RenameFlags, XattrFlags, copy_file_range,
    fallocate, ioctl_getflags, ioctl_setflags, mknodat, removexattr, renameat_with, setxattr,
    syncfs,
};

use crate::content::Change;
use crate::model::{LARGE, SMALL, TARGET, attr_value};
use crate::ops::{Name, Object, Op, Pair, Persist, Step, Verb, Workload};
use crate::run::Subject;
use crate::setups::Setup;

/// Alignment of memory that passes the cache.
const ALIGNMENT: usize = 4096;

/// A volume that Linux has mounted.
pub(crate) struct ByLinux(RecordedLinux);

impl ByLinux {
    pub(crate) fn new(setup: &Setup, base: &[u8]) -> Result<Self> {
        RecordedLinux::new(base, setup.habits.block as u64, setup.mount).map(Self)
    }

    /// Returns whether this can run the workload. Stores to a mapping take `unsafe` code, which
    /// these tests have none of.
    pub(crate) fn can_run(workload: &Workload) -> bool {
        let is_map = |step: &Step| matches!(step, Step::Do(Op::One(Verb::Map, _)));
        !workload.0.iter().any(is_map)
    }

    fn path(&self, object: Object) -> PathBuf {
        self.0.dir().join(object.path())
    }

    fn one(&self, verb: Verb, name: Name, nth: usize, change: Option<&Change>) -> io::Result<()> {
        let path = self.path(Object::At(name));
        match verb {
            Verb::Creat => File::create_new(path).map(drop),
            Verb::Mkdir => std::fs::create_dir(path),
            Verb::Mknod => {
                let mode = Mode::from_raw_mode(0o644);
                Ok(mknodat(CWD, path, FileType::Fifo, mode, 0)?)
            }
            Verb::Symlink => symlink(TARGET, path),
            Verb::Unlink => std::fs::remove_file(path),
            Verb::Rmdir => std::fs::remove_dir(path),
            Verb::SetAttr | Verb::SetLargeAttr => {
                let key = if verb == Verb::SetAttr { SMALL } else { LARGE };
                let value = attr_value(key, 10 + nth as u64);
                Ok(setxattr(path, key, &value, XattrFlags::empty())?)
            }
            Verb::RemoveAttr => Ok(removexattr(path, SMALL)?),
            Verb::Chattr => {
                let file = File::open(path)?;
                let flags = ioctl_getflags(&file)?;
                Ok(ioctl_setflags(&file, flags ^ IFlags::NODUMP)?)
            }
            _ => self.data(verb, name, change.expect("it changes bytes")),
        }
    }

    fn data(&self, verb: Verb, name: Name, change: &Change) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if verb == Verb::Direct {
            options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        }
        let file = options.open(self.path(Object::At(name)))?;
        let keep = |grow: bool| match grow {
            true => FallocateFlags::empty(),
            false => FallocateFlags::KEEP_SIZE,
        };
        let (flags, range) = match change {
            Change::Write { pos, bytes } if verb == Verb::Direct => {
                let room = vec![0; bytes.len() + ALIGNMENT];
                let lead = room.as_ptr().align_offset(ALIGNMENT);
                let mut room = room;
                room[lead..lead + bytes.len()].copy_from_slice(bytes);
                return file.write_all_at(&room[lead..lead + bytes.len()], *pos as u64);
            }
            Change::Write { pos, bytes } => return file.write_all_at(bytes, *pos as u64),
            Change::Resize { len } => return file.set_len(*len as u64),
            Change::Copy { .. } => unreachable!("a copy has two names"),
            Change::Allocate { range, grow } => (keep(*grow), range),
            Change::Punch { range } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                (flags, range)
            }
            Change::Zero { range, grow } => (FallocateFlags::ZERO_RANGE | keep(*grow), range),
            Change::Collapse { range } => (FallocateFlags::COLLAPSE_RANGE, range),
            Change::Insert { range } => (FallocateFlags::INSERT_RANGE, range),
        };
        let (at, len) = (range.start as u64, (range.end - range.start) as u64);
        Ok(fallocate(&file, flags, at, len)?)
    }

    fn two(
        &self,
        pair: Pair,
        (first, second): (Name, Name),
        change: Option<&Change>,
    ) -> io::Result<()> {
        let (old, new) = (self.path(Object::At(first)), self.path(Object::At(second)));
        let flags = match pair {
            Pair::Link => return std::fs::hard_link(old, new),
            Pair::Copy => {
                let Some(Change::Copy { pos, bytes }) = change else {
                    unreachable!("a copy has bytes");
                };
                let (from, to) = (File::open(old)?, OpenOptions::new().write(true).open(new)?);
                let (mut at, mut to_at) = (0, *pos as u64);
                let done = copy_file_range(from, Some(&mut at), to, Some(&mut to_at), bytes.len())?;
                assert_eq!(done, bytes.len(), "a copy");
                return Ok(());
            }
            Pair::Rename => RenameFlags::empty(),
            Pair::NoReplace => RenameFlags::NOREPLACE,
            Pair::Exchange => RenameFlags::EXCHANGE,
        };
        Ok(renameat_with(CWD, old, CWD, new, flags)?)
    }
}

impl Subject for ByLinux {
    fn position(&self) -> usize {
        self.0.position()
    }

    fn perform(
        &mut self,
        op: Op,
        nth: usize,
        change: Option<&Change>,
    ) -> std::result::Result<(), String> {
        let done = match op {
            Op::One(verb, name) => self.one(verb, name, nth, change),
            Op::Two(pair, first, second) => self.two(pair, (first, second), change),
        };
        done.map_err(|error| error.to_string())
    }

    fn persist(&mut self, persist: Persist) -> std::result::Result<(), String> {
        let done = match persist {
            Persist::Sync => File::open(self.0.dir()).and_then(|dir| Ok(syncfs(dir)?)),
            Persist::Fsync(object) => File::open(self.path(object)).and_then(|f| f.sync_all()),
            Persist::Fdatasync(object) => File::open(self.path(object)).and_then(|f| f.sync_data()),
        };
        done.map_err(|error| error.to_string())
    }

    fn finish(mut self, unmount: bool) -> std::result::Result<Vec<Event>, String> {
        let events = self.0.events();
        self.0.unmount().map_err(|error| error.to_string())?;
        Ok(match unmount {
            true => self.0.events(),
            false => events,
        })
    }
}
