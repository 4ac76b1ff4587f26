//! A volume on a step device, and the calls of a program on it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_engine::{
    Cred, Error, FallocateMode, Node, RenameFlags, SeekTarget, SetAttr, Volume, VolumeOptions,
    XattrMode,
};
use extant_mkfs::Options;

use crate::crash::{Found, Survivors};
use crate::device::{Pieces, StepDevice};
use crate::model::{CELL, PAGE, Part, Value};
use crate::program::{FILES, NAMES, Op, Setup};

/// The attribute that calls set.
const ATTR: &[u8] = b"user.a";

/// Effects of a call, as steps of the model.
pub(crate) struct Done {
    pub(crate) parts: Vec<Part>,
    pub(crate) ordered: bool,
    pub(crate) text: String,
}

/// An event that must not happen at all.
pub(crate) type Outcome<T> = Result<T, String>;

/// A mounted volume with its files open.
pub(crate) struct World {
    pub(crate) volume: Volume,
    pub(crate) device: Arc<StepDevice>,
    /// Cells of a block.
    block: usize,
    /// Space may run out.
    is_tight: bool,
    root: Node,
    files: Vec<Node>,
    cred: Cred,
}

/// The bytes of a fresh volume, made once for each block size.
fn fresh(block: u32) -> Arc<Vec<u8>> {
    static MADE: Mutex<BTreeMap<u32, Arc<Vec<u8>>>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = made.entry(block).or_insert_with(|| {
        let mib = if block == 1024 { 3 } else { 10 };
        let device = MemoryDevice::new(mib << 20);
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
        Arc::new(device.to_bytes())
    });
    Arc::clone(bytes)
}

fn name(number: usize) -> Vec<u8> {
    vec![b'a' + u8::try_from(number).unwrap()]
}

fn bytes(cells: usize) -> u64 {
    (cells * CELL) as u64
}

fn cells(bytes: u64) -> Outcome<usize> {
    let bytes = usize::try_from(bytes).unwrap();
    if bytes % CELL == 0 {
        Ok(bytes / CELL)
    } else {
        Err(format!("{bytes} bytes are not whole cells"))
    }
}

/// The values that the call with this number writes.
fn values(call: usize, len: usize) -> Vec<Value> {
    let value = |cell| Value::try_from(call * 64 + cell + 1).unwrap();
    (0..len).map(value).collect()
}

fn encode(values: &[Value]) -> Vec<u8> {
    let cell = |value: &Value| value.to_le_bytes().repeat(CELL / 2);
    values.iter().flat_map(cell).collect()
}

fn decode(bytes: &[u8]) -> Outcome<Vec<Value>> {
    let cell = |bytes: &[u8]| {
        let value = [bytes[0], bytes[1]];
        if bytes.len() == CELL && bytes.chunks(2).all(|pair| pair == value) {
            Ok(Value::from_le_bytes(value))
        } else {
            Err(format!(
                "a torn cell: {:?} .. {:?}",
                &bytes[..2],
                &bytes[bytes.len() - 2..]
            ))
        }
    };
    bytes.chunks(CELL).map(cell).collect()
}

/// Cuts a range of cells at multiples of `unit`: begins and lengths.
fn cut(at: usize, len: usize, unit: usize) -> Vec<(usize, usize)> {
    let mut pieces = Vec::new();
    let mut done = 0;
    while done < len {
        let piece = (unit - (at + done) % unit).min(len - done);
        pieces.push((at + done, piece));
        done += piece;
    }
    pieces
}

fn done(parts: Vec<Part>, text: impl Into<String>) -> Outcome<Done> {
    Ok(Done {
        parts,
        ordered: true,
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
        if let Some(left) = setup.left {
            world
                .fill(left)
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
            .fallocate(&filler, mode, 0, len.max(1), &self.cred)?;
        self.volume.sync()
    }

    /// Meaning of an error: without space nothing happened.
    fn refused(&self, error: &Error) -> Outcome<Done> {
        match error {
            Error::NoSpace if self.is_tight => done(Vec::new(), "no space"),
            _ => Err(format!("unexpected error: {error}")),
        }
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
        match op {
            Op::Write(file, at, len) => self.write(file, at, &values(number, len)),
            Op::Direct(file, at, len) => self.write_direct(file, at, &values(number, len)),
            Op::Append(file, len) => self.append(file, &values(number, len)),
            Op::Read(file, at, len) => self.read(file, at, len, Volume::read),
            Op::ReadPast(file, at, len) => self.read(file, at, len, Volume::read_uncached),
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
                    Err(error) => self.refused(&error),
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
            Op::Fsync(file, data) => match self.volume.fsync(&self.files[file], data) {
                Ok(()) => done(Vec::new(), ""),
                Err(error) => self.refused(&error),
            },
            Op::Sync => match self.volume.sync() {
                Ok(()) => done(Vec::new(), ""),
                Err(error) => self.refused(&error),
            },
            Op::Drop(file) => {
                self.volume.drop_cached(&self.files[file]);
                done(Vec::new(), "")
            }
            Op::DropAll => {
                self.volume.drop_caches();
                done(Vec::new(), "")
            }
            Op::Punch(..) | Op::Zero(..) | Op::Allocate(..) | Op::Collapse(..) | Op::Insert(..) => {
                self.call_range(op)
            }
            named => self.call_named(named, number),
        }
    }

    fn call_range(&self, op: Op) -> Outcome<Done> {
        match op {
            Op::Punch(file, at, len) => {
                let parts = vec![Part::Fade(file, at, len), Part::Zero(file, at, len)];
                self.fallocate(file, FallocateMode::PunchHole, (at, len), parts)
            }
            Op::Zero(file, at, len, keep_size) => {
                let mut parts = vec![Part::Fade(file, at, len), Part::Zero(file, at, len)];
                if !keep_size {
                    parts.push(Part::Extend(file, at + len));
                }
                self.fallocate(
                    file,
                    FallocateMode::ZeroRange { keep_size },
                    (at, len),
                    parts,
                )
            }
            Op::Allocate(file, at, len, keep_size) => {
                // The file grows as its blocks come.
                let pieces = cut(at, if keep_size { 0 } else { len }, self.block);
                let grows = pieces
                    .into_iter()
                    .map(|(at, len)| Part::Extend(file, at + len));
                let parts = grows.collect();
                self.fallocate(
                    file,
                    FallocateMode::Allocate { keep_size },
                    (at, len),
                    parts,
                )
            }
            Op::Collapse(file, at, len) => {
                let parts = vec![Part::Collapse(file, at, len)];
                self.fallocate(file, FallocateMode::CollapseRange, (at, len), parts)
            }
            Op::Insert(file, at, len) => {
                let parts = vec![Part::Insert(file, at, len)];
                self.fallocate(file, FallocateMode::InsertRange, (at, len), parts)
            }
            other => Err(format!("{other:?} is no call on ranges")),
        }
    }

    fn write(&self, file: usize, at: usize, values: &[Value]) -> Outcome<Done> {
        let (data, pos) = (encode(values), bytes(at));
        match self.volume.write(&self.files[file], pos, &data, &self.cred) {
            Ok(written) => {
                let written = cells(written as u64)?;
                let parts = cut(at, written, self.block).into_iter().map(|(from, len)| {
                    Part::Write(file, from, values[from - at..from - at + len].to_vec())
                });
                done(parts.collect(), format!("{written}"))
            }
            Err(error) => self.refused(&error),
        }
    }

    fn write_direct(&self, file: usize, at: usize, values: &[Value]) -> Outcome<Done> {
        let (data, pos) = (encode(values), bytes(at));
        match self
            .volume
            .write_direct(&self.files[file], pos, &data, &self.cred)
        {
            Ok(written) => {
                let values = values[..cells(written as u64)?].to_vec();
                let text = format!("{}", values.len());
                // A file that grows does so run by run, each of whole blocks.
                let runs = cut(at, values.len(), self.block)
                    .into_iter()
                    .map(|(from, len)| {
                        Part::Write(file, from, values[from - at..from - at + len].to_vec())
                    });
                let begin = Part::Change(file, at, values.clone());
                done(std::iter::once(begin).chain(runs).collect(), text)
            }
            Err(error) => self.refused(&error),
        }
    }

    fn append(&self, file: usize, values: &[Value]) -> Outcome<Done> {
        match self
            .volume
            .append(&self.files[file], &encode(values), &self.cred)
        {
            Ok((pos, written)) => {
                let (at, written) = (cells(pos)?, cells(written as u64)?);
                let parts = cut(at, written, self.block).into_iter().map(|(from, len)| {
                    let values = values[from - at..from - at + len].to_vec();
                    Part::Append(file, from, values)
                });
                done(parts.collect(), format!("{written} at {at}"))
            }
            Err(error) => self.refused(&error),
        }
    }

    fn read(
        &self,
        file: usize,
        at: usize,
        len: usize,
        how: fn(&Volume, &Node, u64, &mut [u8]) -> extant_engine::Result<usize>,
    ) -> Outcome<Done> {
        let mut buf = vec![0x55; len * CELL];
        match how(&self.volume, &self.files[file], bytes(at), &mut buf) {
            Ok(got) => {
                let values = decode(&buf[..got])?;
                // A page that the cache has in part is read block by block.
                let mut parts: Vec<_> = cut(at, values.len(), self.block)
                    .into_iter()
                    .map(|(from, len)| {
                        Part::Show(file, from, values[from - at..from - at + len].to_vec())
                    })
                    .collect();
                if values.len() < len {
                    parts.push(Part::End(file, at + values.len()));
                }
                Ok(Done {
                    parts,
                    ordered: false,
                    text: format!("{values:?}"),
                })
            }
            Err(error) => self.refused(&error),
        }
    }

    fn seek(&self, file: usize, at: usize) -> Outcome<Done> {
        match self
            .volume
            .seek(&self.files[file], SeekTarget::Data(bytes(at)))
        {
            Ok(found) => {
                // Data is found by blocks, of which the first cells may be zeros.
                let found = cells(found)?;
                done(vec![Part::Data(file, at, Some(found))], format!("{found}"))
            }
            Err(Error::NoSuchAddress) => done(vec![Part::Data(file, at, None)], "none"),
            Err(error) => self.refused(&error),
        }
    }

    fn fallocate(
        &self,
        file: usize,
        mode: FallocateMode,
        (at, len): (usize, usize),
        parts: Vec<Part>,
    ) -> Outcome<Done> {
        let node = &self.files[file];
        let shifts = matches!(
            mode,
            FallocateMode::CollapseRange | FallocateMode::InsertRange
        );
        match self
            .volume
            .fallocate(node, mode, bytes(at), bytes(len), &self.cred)
        {
            Ok(()) => done(parts, ""),
            // The range does not lie within the file, or leaves nothing of it.
            Err(Error::Invalid) if shifts => {
                let last = match mode {
                    FallocateMode::CollapseRange => at + len,
                    _ => at,
                };
                done(vec![Part::End(file, last)], "refused")
            }
            Err(error) => self.refused(&error),
        }
    }

    fn call_named(&self, op: Op, number: usize) -> Outcome<Done> {
        let none = |name| vec![Part::Name(name, None)];
        let (root, volume) = (&self.root, &self.volume);
        match op {
            Op::Lookup(from) => {
                let found = self.lookup(from)?;
                done(vec![Part::Name(from, found)], format!("{found:?}"))
            }
            Op::Rename(from, to) => self.rename(from, to, RenameFlags::empty()),
            Op::Exchange(from, to) => self.rename(from, to, RenameFlags::EXCHANGE),
            Op::Link(file, to) => {
                match volume.link(&self.files[file], root, &name(to), &self.cred) {
                    Ok(()) => done(vec![Part::Link(file, to)], ""),
                    Err(Error::Exists) => {
                        let taken = (0..FILES).map(|file| Part::Name(to, Some(file)));
                        Ok(Done {
                            parts: Vec::new(),
                            ordered: false,
                            text: format!("exists, one of {}", taken.count()),
                        })
                    }
                    Err(Error::NotFound) => done(vec![Part::Links(file, 0)], "no names"),
                    Err(error) => self.refused(&error),
                }
            }
            Op::Unlink(from) => match volume.unlink(root, &name(from)) {
                Ok(()) => done(vec![Part::Unlink(from)], ""),
                Err(Error::NotFound) => done(none(from), "not found"),
                Err(error) => self.refused(&error),
            },
            Op::Links(file) => match volume.getattr(&self.files[file]) {
                Ok(attr) => {
                    let links = usize::try_from(attr.nlink).unwrap();
                    done(vec![Part::Links(file, links)], format!("{links}"))
                }
                Err(error) => self.refused(&error),
            },
            Op::SetAttr(file) => {
                let value = Value::try_from(number).unwrap();
                let node = &self.files[file];
                let bytes = value.to_le_bytes();
                match volume.setxattr(node, ATTR, &bytes, XattrMode::Either, &self.cred) {
                    Ok(()) => done(vec![Part::SetAttr(file, value)], format!("{value}")),
                    Err(error) => self.refused(&error),
                }
            }
            Op::GetAttr(file) => {
                let value = match volume.getxattr(&self.files[file], ATTR) {
                    Ok(bytes) => Value::from_le_bytes(bytes.try_into().unwrap()),
                    Err(Error::NoAttribute) => 0,
                    Err(error) => return self.refused(&error),
                };
                done(vec![Part::Attr(file, value)], format!("{value}"))
            }
            other => Err(format!("{other:?} is no call on names")),
        }
    }

    /// The file that a name leads to.
    fn lookup(&self, from: usize) -> Outcome<Option<usize>> {
        match self.volume.lookup(&self.root, &name(from)) {
            Ok(node) => {
                let file = self.files.iter().position(|file| file.ino() == node.ino());
                Ok(Some(file.ok_or("a name leads to no file of the program")?))
            }
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(format!("lookup: {error}")),
        }
    }

    fn rename(&self, from: usize, to: usize, flags: RenameFlags) -> Outcome<Done> {
        let (old, new, root) = (name(from), name(to), &self.root);
        let exchanges = flags == RenameFlags::EXCHANGE;
        match self
            .volume
            .rename(root, &old, root, &new, flags, &self.cred)
        {
            Ok(()) if exchanges => done(vec![Part::Exchange(from, to)], ""),
            Ok(()) => done(vec![Part::Rename(from, to)], ""),
            // With an exchange any of both may be missing.
            Err(Error::NotFound) if exchanges => done(Vec::new(), "not found"),
            Err(Error::NotFound) => done(vec![Part::Name(from, None)], "not found"),
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
            let attr = match after.volume.getxattr(&after.files[0], ATTR) {
                Ok(bytes) => Value::from_le_bytes(bytes.try_into().unwrap()),
                Err(Error::NoAttribute) => 0,
                Err(error) => return Err(format!("after the power cut: {error}")),
            };
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
