//! A volume on a step device, and the calls of a program on it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_engine::{
    BufferedPath, Cred, Error, FallocateMode, Node, SetAttr, Volume, VolumeOptions,
};
use extant_mkfs::Options;
use extant_units::DevOff;

use crate::cells::{bytes, cells, decode, values};
use crate::crash::{Found, Survivors};
use crate::data::read_view;
use crate::device::{Pieces, StepDevice};
use crate::model::{CELL, PAGE, Part};
use crate::names::attr_of;
use crate::program::{FILES, NAMES, Op, Setup};
use crate::protection::{NOT_PERMITTED, protected};

/// Effects of a call, as steps of the model.
pub(crate) struct Done {
    pub(crate) parts: Vec<Part>,
    pub(crate) ordered: bool,
    /// The call failed: it promises nothing.
    pub(crate) failed: bool,
    pub(crate) text: String,
}

/// The words for a call that tells of a write of the device that failed, and for one that is
/// refused after that.
pub(crate) const FAILED_WRITE: &str = "a failed write";
pub(crate) const STOPPED: &str = "the journal has stopped";

/// An event that must not happen at all.
pub(crate) type Outcome<T> = Result<T, String>;

/// A mounted volume with its files open.
pub(crate) struct World {
    pub(crate) volume: Volume,
    pub(crate) device: Arc<StepDevice>,
    /// Cells of a block.
    pub(crate) block: usize,
    /// Space may run out.
    pub(crate) is_tight: bool,
    pub(crate) root: Node,
    pub(crate) files: Vec<Node>,
    pub(crate) cred: Cred,
}

/// Bytes of the device behind a fresh volume.
const ROOM: usize = 256 << 10;
/// Bytes that a volume grows by.
const GROWTH: u64 = 64 << 10;

/// The bytes of a fresh volume, made once for each block size.
fn fresh(block: u32) -> Arc<Vec<u8>> {
    static MADE: Mutex<BTreeMap<u32, Arc<Vec<u8>>>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = made.entry(block).or_insert_with(|| {
        let mib = if block == 1024 { 3 } else { 10 };
        let device = MemoryDevice::new((mib as u64) << 20);
        // What no call wrote must never be seen: free blocks hold something else than zeros.
        let stale = vec![0xee; mib << 20];
        device.write_at(DevOff::new(0), &stale).unwrap();
        let options = Options {
            block_size: Some(block),
            inodes: Some(32),
            uuid: Some([7; 16]),
            hash_seed: Some([9; 16]),
            journal_mib: Some(block / 1024),
            reserved_percent: Some(0.0),
            lazy_itable_init: Some(false),
            time: Some(1_600_000_000),
            ..Options::default()
        };
        extant_mkfs::make_on(&device, None, &options).unwrap();
        let mut bytes = device.to_bytes();
        bytes.resize(bytes.len() + ROOM, 0xee);
        Arc::new(bytes)
    });
    Arc::clone(bytes)
}

pub(crate) fn name(number: usize) -> Vec<u8> {
    vec![b'a' + u8::try_from(number).unwrap()]
}

pub(crate) fn done(parts: Vec<Part>, text: impl Into<String>) -> Outcome<Done> {
    Ok(Done {
        parts,
        ordered: true,
        failed: false,
        text: text.into(),
    })
}

impl World {
    /// Mounts a fresh volume and makes its files.
    pub(crate) fn new(setup: &Setup) -> Outcome<Self> {
        let base = fresh(setup.block);
        let device = StepDevice::new(&base, Pieces::new(), setup.threads);
        let mut world = Self::mount(setup, Arc::new(device))?;
        for file in 0..FILES {
            let made = world
                .volume
                .create(&world.root, &name(file), 0o644, &world.cred);
            world.files.push(made.map_err(|error| error.to_string())?);
        }
        if setup.synced {
            world
                .volume
                .sync()
                .map_err(|error| format!("the first sync: {error}"))?;
        }
        if let Some(left) = setup.left.filter(|_| !setup.fills_late()) {
            world
                .fill(left)
                .and_then(|()| world.volume.sync())
                .map_err(|error| format!("filling: {error}"))?;
        }
        Ok(world)
    }

    /// Takes all blocks but some.
    fn fill(&self, left: u64) -> extant_engine::Result<()> {
        let filler = self
            .volume
            .create(&self.root, b"filler", 0o644, &self.cred)?;
        let free = self.volume.statfs()?.blocks_available.saturating_sub(left);
        let len = free * u64::from(self.volume.block_size());
        let mode = FallocateMode::Allocate { keep_size: false };
        self.volume
            .fallocate(&filler, mode, 0, len.max(1), &self.cred)
    }

    /// Takes all blocks but some after the first calls, on a volume that is to be filled then.
    pub(crate) fn fill_late(&self, setup: &Setup) -> Outcome<()> {
        let left = setup.left.filter(|_| setup.fills_late());
        match left.map_or(Ok(()), |left| self.fill(left)) {
            // As many as there were.
            Ok(()) | Err(Error::NoSpace) => Ok(()),
            Err(error) => Err(format!("filling: {error}")),
        }
    }

    /// Meaning of an error: without space, or if the device could not read, nothing happened.
    pub(crate) fn refused(&self, error: &Error) -> Outcome<Done> {
        let text = match error {
            Error::NoSpace if self.is_tight => "no space",
            Error::Io(_) if self.device.has_failed() => "a failed read",
            Error::Io(_) if self.device.write_failed().is_some() => FAILED_WRITE,
            Error::ReadOnly | Error::Shutdown(_) if self.device.write_failed().is_some() => STOPPED,
            Error::NotPermitted => NOT_PERMITTED,
            _ => return Err(format!("unexpected error: {error}")),
        };
        Ok(Done {
            failed: true,
            ..done(Vec::new(), text)?
        })
    }

    /// Meaning of the end of a call that makes data durable. All data that was accepted has its
    /// space.
    fn durable(&self, ended: extant_engine::Result<()>) -> Outcome<Done> {
        match ended {
            Ok(()) => done(Vec::new(), ""),
            Err(Error::NoSpace) => Err("accepted data has no space".to_owned()),
            Err(error) => self.refused(&error),
        }
    }

    /// Returns whether a call that ended early found the end of the file, not a failure.
    pub(crate) fn ends_at_end(&self) -> bool {
        !self.is_tight && !self.has_fault()
    }

    /// Returns whether a request of the device has failed.
    pub(crate) fn has_fault(&self) -> bool {
        self.device.has_failed() || self.device.write_failed().is_some()
    }

    /// Meaning of an error of a call that may have done any of `parts`, if the device failed.
    pub(crate) fn refused_after(&self, error: &Error, parts: Vec<Part>) -> Outcome<Done> {
        let refused = self.refused(error)?;
        let parts = if self.device.write_failed().is_some() {
            parts
        } else {
            refused.parts
        };
        Ok(Done { parts, ..refused })
    }

    /// Mounts what is on a device; opens nothing.
    fn mount(setup: &Setup, device: Arc<StepDevice>) -> Outcome<Self> {
        let below: Arc<dyn BlockDevice> = device.clone();
        let volume = VolumeOptions::new()
            .write(true)
            .mount_options(&setup.options())
            .tuning(setup.tuning())
            .open_on(below)
            .map_err(|error| format!("mount: {error}"))?;
        let root = volume.root().map_err(|error| format!("root: {error}"))?;
        Ok(Self {
            volume,
            device,
            block: setup.block_cells(),
            is_tight: setup.left.is_some(),
            root,
            files: Vec::new(),
            cred: Cred::root(),
        })
    }

    /// Makes a call; `number` is of no other one.
    pub(crate) fn call(&self, op: Op, number: usize) -> Outcome<Done> {
        Ok(protected(op, self.call_data(op, number)?))
    }

    fn call_data(&self, op: Op, number: usize) -> Outcome<Done> {
        match op {
            Op::Write(file, at, len) => self.write(file, at, &values(number, len)),
            Op::Direct(file, at, len) => self.write_direct(file, at, &values(number, len)),
            Op::Queued(file, at, len) => self.write_queued(file, at, &values(number, len)),
            Op::Vectored(file, at, len) => self.write_vectored(file, at, &values(number, len)),
            Op::Edit(file, at, len) => self.edit(file, at, &values(number, len)),
            Op::Append(file, len) => self.append(file, &values(number, len)),
            Op::Read(file, at, len) => self.read(file, at, len, Volume::read),
            Op::ReadPast(file, at, len) => self.read(file, at, len, Volume::read_uncached),
            Op::ReadDirect(file, at, len) => self.read(file, at, len, Volume::read_direct),
            Op::View(file, at, len) => self.read(file, at, len, read_view),
            Op::Truncate(file, to) => {
                let to_size = SetAttr {
                    size: Some(bytes(to)),
                    ..SetAttr::default()
                };
                match self.volume.setattr(&self.files[file], &to_size, &self.cred) {
                    // The rest of the last block becomes zeros before the size moves.
                    Ok(_) => {
                        let rest = to.next_multiple_of(self.block) - to;
                        done(vec![Part::Fade(file, to, rest), Part::Resize(file, to)], "")
                    }
                    // The rest of the block may be zeros, although the size has not moved.
                    Err(error) => {
                        let rest = to.next_multiple_of(self.block) - to;
                        let mut parts = vec![Part::Fade(file, to, rest)];
                        if self.device.write_failed().is_some() {
                            parts.push(Part::Resize(file, to));
                        }
                        let refused = self.refused(&error)?;
                        Ok(Done { parts, ..refused })
                    }
                }
            }
            Op::Size(file) => match self.volume.getattr(&self.files[file]) {
                Ok(attr) => done(
                    vec![Part::Size(file, cells(attr.size)?)],
                    format!("{}", attr.size),
                ),
                Err(error) => self.refused(&error),
            },
            Op::Seek(file, at) => self.seek(file, at),
            Op::Fsync(file, data) => self.durable(self.volume.fsync(&self.files[file], data)),
            Op::Sync => self.durable(self.volume.sync()),
            Op::Drop(file) => {
                self.volume.drop_cached(&self.files[file]);
                done(Vec::new(), "")
            }
            Op::DropAll => {
                self.volume.drop_caches();
                done(Vec::new(), "")
            }
            Op::Evict(file) => {
                let done = self.durable(self.volume.fsync(&self.files[file], true));
                self.volume.drop_cached(&self.files[file]);
                done
            }
            Op::Copy(..) => self.copy(number, op),
            Op::Protect(file, to) => self.protect(file, to),
            Op::Defragment(..) | Op::Switch(..) | Op::Trim | Op::Grow => self.call_unseen(op),
            Op::Punch(..) | Op::Zero(..) | Op::Allocate(..) | Op::Collapse(..) | Op::Insert(..) => {
                self.call_range(op)
            }
            named => self.call_named(named, number),
        }
    }

    /// Calls that change nothing that is seen.
    fn call_unseen(&self, op: Op) -> Outcome<Done> {
        let made = match op {
            Op::Defragment(file) => {
                let node = &self.files[file];
                let moved = self.volume.defragment(node, &self.cred, |_, _| ());
                moved.map(|_| ())
            }
            Op::Switch(file, to_iomap) => {
                let path = if to_iomap {
                    BufferedPath::Iomap
                } else {
                    BufferedPath::BufferHead
                };
                self.volume.set_buffered_path(&self.files[file], path)
            }
            Op::Grow => self.volume.grow(self.volume.size() + GROWTH),
            _ => self.volume.trim(0..u64::MAX, 0).map(|_| ()),
        };
        match made {
            Ok(()) => done(Vec::new(), ""),
            // Journalled data cannot be moved, and has one path. The device has an end.
            Err(Error::NotSupported(_) | Error::Busy) => done(Vec::new(), "not supported"),
            Err(error) => self.refused(&error),
        }
    }
    /// Content that a mount of a device after a power cut shows, of the files that this world has.
    pub(crate) fn survivors(&self, setup: &Setup, device: &Arc<StepDevice>) -> Outcome<Survivors> {
        let after = Self::mount(setup, Arc::clone(device));
        let mut after = after.map_err(|why| format!("after the power cut: {why}"))?;
        let mut found = Survivors {
            files: (0..FILES).map(|_| None).collect(),
            names: Vec::new(),
        };
        let mut nodes = Vec::new();
        for number in 0..NAMES {
            let node = match after.volume.lookup(&after.root, &name(number)) {
                Ok(node) => node,
                Err(Error::NotFound) => {
                    found.names.push(None);
                    continue;
                }
                Err(error) => return Err(format!("lookup after the power cut: {error}")),
            };
            let file = self.files.iter().position(|file| file.ino() == node.ino());
            let file = file.ok_or("a name leads to no file after the power cut")?;
            found.names.push(Some(file));
            nodes.push((file, node));
        }
        for (file, node) in nodes {
            after.files = vec![node];
            let attr = after.volume.getattr(&after.files[0]);
            let size = cells(attr.map_err(|error| error.to_string())?.size)?;
            let mut buf = vec![0; size * CELL];
            let read = after.volume.read(&after.files[0], 0, &mut buf);
            read.map_err(|error| format!("a read after the power cut: {error}"))?;
            let attr = attr_of(&after.volume, &after.files[0])?;
            let attr = attr.map_err(|error| format!("after the power cut: {error}"))?;
            found.files[file] = Some(Found {
                values: decode(&buf)?,
                attr,
            });
        }
        after.files.clear();
        let unmounted = after.volume.unmount();
        unmounted.map_err(|error| format!("unmount after the power cut: {error}"))?;
        Ok(found)
    }

    /// All that can be seen, by one thread, as calls.
    pub(crate) fn look(&self, number: usize) -> Outcome<Vec<Done>> {
        let mut seen = Vec::new();
        for file in 0..FILES {
            seen.push(self.call(Op::Size(file), number)?);
            seen.push(self.call(Op::Read(file, 0, 12 * PAGE), number)?);
            seen.push(self.call(Op::Links(file), number)?);
            seen.push(self.call(Op::GetAttr(file), number)?);
        }
        for name in 0..NAMES {
            seen.push(self.call(Op::Lookup(name), number)?);
        }
        Ok(seen)
    }
}
