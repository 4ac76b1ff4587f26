//! Calls that the bytes choose, on files that a model follows and on those that were there before.

use extant::{
    Cred, Error, FallocateMode, FileKind, Node, RenameFlags, Result, SetAttr, Volume, XattrMode,
};

use super::model::{Change, Model, Names, SLOTS};
use crate::feed::Feed;
use crate::targets::world::World;

/// The most calls of a program, bytes of a file, and bytes of one write.
const CALLS: usize = 24;
const SIZE: usize = 24 << 10;
const WRITE: usize = 5000;
/// A multiple of the blocks of each seed, which fallocate works with.
const ALIGNMENT: usize = 4096;
/// Names of the files that the model follows: half of them in a directory of their own.
const NAMES: [&str; SLOTS] = ["m0", "m1", "m2", "m3", "m4", "m5"];
const DIR: &[u8] = b"m";

/// A program and what it has done so far. `now` counts the events of the device.
pub(super) struct Program<'a> {
    volume: &'a Volume,
    now: &'a dyn Fn() -> usize,
    cred: Cred,
    dirs: [Node; 2],
    /// Files and names that the image has had from the beginning.
    others: Vec<Node>,
    names: Vec<(Node, Vec<u8>)>,
    calls: usize,
    pub(super) model: Model,
}

/// The directory and the name of a slot.
fn name_of(dirs: &[Node; 2], slot: usize) -> (&Node, &'static [u8]) {
    let dir = &dirs[usize::from(slot >= SLOTS / 2)];
    (dir, NAMES.get(slot).copied().unwrap_or("m").as_bytes())
}

/// The bytes of the files that the model knows by name, as they are on `volume`.
///
/// # Errors
/// A file that is there cannot be read.
pub(super) fn files(volume: &Volume) -> Result<[Option<Vec<u8>>; SLOTS]> {
    let root = volume.root()?;
    let dirs = [root.clone(), volume.lookup(&root, DIR)?];
    let mut found: [Option<Vec<u8>>; SLOTS] = Default::default();
    for (slot, found) in found.iter_mut().enumerate() {
        let (dir, name) = name_of(&dirs, slot);
        let node = match volume.lookup(dir, name) {
            Ok(node) => node,
            Err(Error::NotFound) => continue,
            Err(error) => return Err(error),
        };
        let size = volume.getattr(&node)?.size;
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        let mut at = 0;
        while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
            match volume.read(&node, at as u64, rest)? {
                0 => break,
                read => at += read,
            }
        }
        bytes.truncate(at);
        *found = Some(bytes);
    }
    Ok(found)
}

impl<'a> Program<'a> {
    /// Makes the directory of the files, and makes that durable.
    ///
    /// # Errors
    /// As an image that is damaged may have it.
    pub(super) fn new(
        volume: &'a Volume,
        now: &'a dyn Fn() -> usize,
        early_sizes: bool,
    ) -> Result<Program<'a>> {
        let cred = Cred::root();
        let root = volume.root()?;
        let mut world = World::new(volume);
        world.walk();
        let is_file = |node: &&Node| node.kind() == FileKind::Regular;
        let others = world.nodes().iter().filter(is_file).cloned().collect();
        let names = world.names().to_vec();
        drop(world);
        let dir = volume.mkdir(&root, DIR, 0o755, &cred)?;
        volume.sync()?;
        Ok(Program {
            volume,
            now,
            cred,
            dirs: [root, dir],
            others,
            names,
            calls: 0,
            model: Model::new(now(), early_sizes),
        })
    }

    /// Calls until the bytes run out.
    pub(super) fn run(&mut self, feed: &mut Feed<'_>) {
        while self.calls < CALLS && !feed.is_empty() {
            self.calls += 1;
            let (call, slot) = (feed.u8() % 24, usize::from(feed.u8()) % SLOTS);
            // What a call answers is its affair, but for what the model has to know.
            let _ = match call {
                0..=2 | 12..=15 => self.name(call, slot, feed),
                3..=8 => self.bytes(call, slot, feed),
                9..=11 => self.sync(call, slot),
                16 => self.attribute(slot, feed),
                _ => self.other(call, feed),
            };
        }
    }

    fn node(&self, slot: usize) -> Result<Node> {
        let (dir, name) = name_of(&self.dirs, slot);
        self.volume.lookup(dir, name)
    }

    /// Changes names, as `names` has them afterwards, by `call`.
    fn rename(
        &mut self,
        names: Names,
        touched: &[usize],
        call: impl FnOnce(&Program<'a>) -> Result<()>,
    ) -> Result<()> {
        self.model.rename((self.now)(), names, touched);
        let done = call(self);
        if done.is_err() {
            self.model.take_back((self.now)());
        }
        done
    }

    fn name(&mut self, call: u8, slot: usize, feed: &mut Feed<'_>) -> Result<()> {
        let to = usize::from(feed.u8()) % SLOTS;
        let mut names = self.model.names();
        let (file, over) = (names[slot], names[to]);
        match (call, file) {
            (0..=2, None) => {
                let file = self.model.next_file();
                names[slot] = Some(file);
                self.rename(names, &[file], |on| {
                    let (dir, name) = name_of(&on.dirs, slot);
                    on.volume.create(dir, name, 0o644, &on.cred).map(drop)
                })
            }
            (12, Some(file)) => {
                names[slot] = None;
                self.rename(names, &[file], |on| {
                    let (dir, name) = name_of(&on.dirs, slot);
                    on.volume.unlink(dir, name)
                })
            }
            (13 | 14, Some(file)) if over != Some(file) => {
                let is_exchange = call == 14 && over.is_some();
                names[slot] = if is_exchange { over } else { None };
                names[to] = Some(file);
                let flags = match is_exchange {
                    true => RenameFlags::EXCHANGE,
                    false => RenameFlags::empty(),
                };
                let touched: Vec<usize> = [Some(file), over].into_iter().flatten().collect();
                self.rename(names, &touched, |on| {
                    let (old_dir, old) = name_of(&on.dirs, slot);
                    let (new_dir, new) = name_of(&on.dirs, to);
                    on.volume
                        .rename(old_dir, old, new_dir, new, flags, &on.cred)
                })
            }
            (15, Some(file)) if over.is_none() => {
                names[to] = Some(file);
                self.rename(names, &[file], |on| {
                    let (dir, name) = name_of(&on.dirs, to);
                    on.volume.link(&on.node(slot)?, dir, name, &on.cred)
                })
            }
            _ => Ok(()),
        }
    }

    /// Changes the bytes of a file, to those of the model, by `call`.
    fn change(
        &mut self,
        file: usize,
        (how, bytes): (Change, Vec<u8>),
        call: impl FnOnce(&Program<'a>) -> Result<()>,
    ) -> Result<()> {
        self.model.change((self.now)(), file, how, bytes);
        let done = call(self);
        if done.is_err() {
            self.model.doubt((self.now)(), file);
        }
        done
    }

    fn bytes(&mut self, call: u8, slot: usize, feed: &mut Feed<'_>) -> Result<()> {
        let Some(file) = self.model.names()[slot] else {
            return Ok(());
        };
        let node = self.node(slot)?;
        let mut bytes = self.model.bytes(file);
        let at = match call {
            6 => bytes.len(),
            _ => usize::from(feed.u16()) % SIZE,
        };
        match call {
            3..=6 => {
                let len =
                    (1 + usize::from(feed.u16()) % WRITE).min((SIZE + WRITE).saturating_sub(at));
                // Never zero, and of this call alone.
                let byte = u8::try_from(self.calls * 10 + usize::from(feed.u8()) % 10 + 1);
                let data = vec![byte.unwrap_or(1); len];
                bytes.resize(bytes.len().max(at + len), 0);
                bytes.splice(at..at + len, data.iter().copied());
                self.change(file, (Change::Written, bytes), |on| {
                    let written = match call {
                        5 => on.volume.write_direct(&node, at as u64, &data, &on.cred)?,
                        6 => on.volume.append(&node, &data, &on.cred)?.1,
                        _ => on.volume.write(&node, at as u64, &data, &on.cred)?,
                    };
                    // The rest found no space.
                    (written == len).then_some(()).ok_or(Error::NoSpace)
                })
            }
            7 => {
                bytes.resize(at, 0);
                let changes = SetAttr {
                    size: Some(at as u64),
                    ..SetAttr::default()
                };
                self.change(file, (Change::Mapped, bytes), |on| {
                    on.volume.setattr(&node, &changes, &on.cred).map(drop)
                })
            }
            _ => self.allocate(file, &node, at, feed),
        }
    }

    fn allocate(&mut self, file: usize, node: &Node, at: usize, feed: &mut Feed<'_>) -> Result<()> {
        use FallocateMode::{Allocate, CollapseRange, InsertRange, PunchHole, ZeroRange};
        let mut bytes = self.model.bytes(file);
        let (mode, len) = (feed.u8(), 1 + usize::from(feed.u16()) % (SIZE / 2));
        let keep_size = mode & 0x80 != 0;
        let (at, len) = match mode % 8 {
            0..=3 => (at, len),
            _ => (at / ALIGNMENT * ALIGNMENT, len.next_multiple_of(ALIGNMENT)),
        };
        let (mode, how) = match mode % 8 {
            0 | 4 => (Allocate { keep_size }, Change::Mapped),
            1 | 5 => (PunchHole, Change::Mapped),
            2 | 3 => (ZeroRange { keep_size }, Change::Mapped),
            6 => (CollapseRange, Change::Shifted),
            _ => (InsertRange, Change::Shifted),
        };
        let old = bytes.len();
        match mode {
            CollapseRange if at + len < old => drop(bytes.drain(at..at + len)),
            InsertRange if at < old && old + len <= 2 * SIZE => {
                bytes.splice(at..at, std::iter::repeat_n(0, len));
            }
            CollapseRange | InsertRange => return Ok(()),
            Allocate { keep_size } | ZeroRange { keep_size } if !keep_size => {
                bytes.resize(old.max(at + len), 0);
            }
            _ => {}
        }
        if let PunchHole | ZeroRange { .. } = mode {
            let end = bytes.len();
            if let Some(range) = bytes.get_mut(at.min(end)..(at + len).min(end)) {
                range.fill(0);
            }
        }
        self.change(file, (how, bytes), |on| {
            on.volume
                .fallocate(node, mode, at as u64, len as u64, &on.cred)
        })
    }

    fn sync(&mut self, call: u8, slot: usize) -> Result<()> {
        if call == 11 {
            self.volume.sync()?;
            self.model.all_synced((self.now)());
        } else if let Some(file) = self.model.names()[slot] {
            self.volume.fsync(&self.node(slot)?, call == 10)?;
            self.model.synced((self.now)(), file, call == 9);
        }
        Ok(())
    }

    fn attribute(&mut self, slot: usize, feed: &mut Feed<'_>) -> Result<()> {
        let value = vec![b'v'; usize::from(feed.u16() % 3000)];
        let node = self.node(slot)?;
        let (name, either) = (b"user.crash", XattrMode::Either);
        self.volume
            .setxattr(&node, name, &value, either, &self.cred)
    }

    /// Calls on what the image has had from the beginning.
    fn other(&mut self, call: u8, feed: &mut Feed<'_>) -> Result<()> {
        let (volume, cred) = (self.volume, &self.cred);
        let (Some(node), Some((dir, name))) = (feed.choose(&self.others), feed.choose(&self.names))
        else {
            return Ok(());
        };
        match call {
            17 | 18 => {
                let (at, len) = (feed.position(), usize::from(feed.u16()) % WRITE);
                volume.write(node, at, &vec![b'o'; len], cred).map(drop)
            }
            19 => {
                let changes = SetAttr {
                    size: Some(feed.position()),
                    ..SetAttr::default()
                };
                volume.setattr(node, &changes, cred).map(drop)
            }
            20 => volume.unlink(dir, name),
            21 => volume.rmdir(dir, name),
            22 => {
                let Some((to, new)) = feed.choose(&self.names) else {
                    return Ok(());
                };
                let flags = RenameFlags::from_bits_truncate(u32::from(feed.u8() % 4));
                volume.rename(dir, name, to, new, flags, cred)
            }
            _ => volume.fsync(node, false),
        }
    }
}
