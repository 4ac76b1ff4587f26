//! A volume on a recorded device in memory, its files, and what they should hold.

use std::sync::{Arc, Mutex};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_check::{CheckOptions, check};
use extant_engine::{
    BufferedPath, Cred, Error, Node, SeekTarget, SetAttr, Verifier, Volume, VolumeOptions,
};
use extant_testkit::{Image, Recorder, Rng, content};

use crate::config::{Config, Size};
use crate::crash;
use crate::files::Model;
use crate::ops::{FILES, Op};

/// Operations between two walks over everything.
const VERIFY_EVERY: u64 = 16;

pub(super) type Outcome<T = ()> = Result<T, String>;
/// A way to write.
type Put = fn(&Volume, &Node, u64, &[u8], &Cred) -> extant_engine::Result<usize>;

pub(crate) struct World {
    pub(super) config: Config,
    /// The device as it was when it was mounted.
    base: Vec<u8>,
    dev: Arc<Recorder<MemoryDevice>>,
    pub(super) volume: Volume,
    pub(super) files: Vec<(Node, Model)>,
    verifier: Verifier,
    done: u64,
    /// A file has been on another path than the mount's since the mount.
    mixed: bool,
    pub(super) cred: Cred,
}

pub(super) fn text(error: &Error) -> String {
    error.to_string()
}

fn name(file: usize) -> Vec<u8> {
    format!("file{file}").into_bytes()
}

/// A fresh volume's bytes: made once for each kind, over junk.
fn fresh(config: Config) -> Outcome<Vec<u8>> {
    type Made = Vec<((u32, Size, bool, bool, bool, bool, u32, bool), Vec<u8>)>;
    static MADE: Mutex<Made> = Mutex::new(Vec::new());
    let mut made = MADE.lock().unwrap();
    let key = (
        config.block,
        config.size,
        config.block_maps,
        config.spread(),
        config.inside,
        config.counted(),
        config.cluster(),
        config.fast(),
    );
    if let Some((_, bytes)) = made.iter().find(|(of, _)| *of == key) {
        return Ok(bytes.clone());
    }
    let mib = match config.size {
        Size::Roomy => 28,
        Size::Tight => 5,
    };
    // Volumes of more groups have their descriptors in them.
    let spread = !config.block_maps && config.spread() && config.cluster() == 1;
    let features = match (spread, config.inside) {
        (true, true) => "-g 256 -O meta_bg,^resize_inode,inline_data -I 512",
        (true, false) => "-g 256 -O meta_bg,^resize_inode",
        (false, true) => "-O inline_data -I 512",
        (false, false) => "",
    };
    let counted = if config.counted() { "-O quota" } else { "" };
    let fast = if config.fast() {
        "-O fast_commit -J fast_commit_size=64"
    } else {
        ""
    };
    let clusters = match config.cluster() {
        1 => String::new(),
        ratio => format!("-O bigalloc -C {}", ratio * config.block),
    };
    let kind = if config.block_maps { "-t ext3" } else { "" };
    let maker = Image::beside_journal(config.block.into(), mib);
    let maker = maker
        .args("-N 64")
        .args(kind)
        .args(features)
        .args(counted)
        .args(fast)
        .args(&clusters)
        .junk();
    let image = maker.make().map_err(|error| error.to_string())?;
    let bytes = std::fs::read(image.path()).map_err(|error| error.to_string())?;
    made.push((key, bytes.clone()));
    Ok(bytes)
}

fn mount(config: Config, base: &[u8]) -> Outcome<(Arc<Recorder<MemoryDevice>>, Volume)> {
    let dev = Arc::new(Recorder::new(MemoryDevice::from_bytes(base)));
    let below: Arc<dyn BlockDevice> = dev.clone();
    let volume = VolumeOptions::new()
        .write(true)
        .mount_options(&config.options())
        .tuning(config.tuning())
        .open_on(below);
    Ok((dev, volume.map_err(|error| text(&error))?))
}

impl World {
    pub(crate) fn new(config: Config) -> Outcome<World> {
        let base = fresh(config)?;
        let (dev, volume) = mount(config, &base)?;
        let mut world = World {
            config,
            base,
            dev,
            volume,
            files: Vec::new(),
            verifier: Verifier::default(),
            done: 0,
            mixed: false,
            cred: Cred::root(),
        };
        for file in 0..FILES {
            let node = world.create(file)?;
            world.files.push((node, Model::new(config.block)));
        }
        world.sync()?;
        Ok(world)
    }

    fn create(&self, file: usize) -> Outcome<Node> {
        let root = self.volume.root().map_err(|error| text(&error))?;
        let made = self.volume.create(&root, &name(file), 0o644, &self.cred);
        made.map_err(|error| text(&error))
    }

    /// Does one operation, checks what it answers, and now and then everything.
    pub(crate) fn apply(&mut self, op: &Op) -> Outcome {
        self.done += 1;
        self.step(op).map_err(|why| format!("{op:?}: {why}"))?;
        if self.done.is_multiple_of(VERIFY_EVERY) {
            self.verify(false).map_err(|why| format!("{op:?}: {why}"))?;
        }
        Ok(())
    }

    fn step(&mut self, op: &Op) -> Outcome {
        match *op {
            Op::Write {
                file,
                pos,
                len,
                seed,
            } => self.write(file, (pos, len), seed, Volume::write),
            Op::Append { file, len, seed } => self.append(file, len, seed),
            Op::Read { file, pos, len } => self.read(file, pos, len, Volume::read),
            Op::ReadPast { file, pos, len } => self.read(file, pos, len, Volume::read_uncached),
            Op::WriteDirect {
                file,
                pos,
                len,
                seed,
            } => self.write(file, (pos, len), seed, Volume::write_direct),
            Op::ReadDirect { file, pos, len } => self.read(file, pos, len, Volume::read_direct),
            Op::Queue { file, pos, seed } => self.queue(file, pos, seed),
            Op::View {
                file,
                pos,
                len,
                ref then,
            } => self.view(file, pos, len, then),
            Op::Edit {
                file,
                pos,
                len,
                seed,
            } => self.edit(file, pos, len, seed),
            Op::Truncate { file, size } => self.truncate(file, size),
            Op::Fallocate {
                file,
                mode,
                pos,
                len,
            } => self.fallocate(file, mode, (pos, len)),
            Op::Copy {
                file,
                pos,
                to,
                to_pos,
                len,
            } => self.copy((file, pos), (to, to_pos), len),
            Op::Fsync { file, datasync } => self.fsync(file, datasync),
            Op::Sync => self.sync(),
            Op::Seek { file, pos } => self.seek(file, pos),
            Op::DropCaches => {
                self.volume.drop_caches();
                Ok(())
            }
            Op::Defragment { file } => self.defragment(file),
            Op::Recreate { file } => self.recreate(file),
            Op::Remount => self.remount(),
            Op::Switch => {
                self.config = self.config.switched();
                self.remount()
            }
            Op::SwitchFile { file } => self.switch_file(file),
            Op::Crash { seed } => self.crash(self.dev.position(), seed),
            Op::CrashDuring { ref op, seed } => self.crash_during(op, seed),
            Op::Verify => self.verify(false),
            Op::Lie(ref op) => self.lie(op),
        }
    }

    fn fsync(&mut self, file: usize, datasync: bool) -> Outcome {
        let (node, model) = &mut self.files[file];
        let synced = self.volume.fsync(node, datasync);
        synced.map_err(|error| text(&error))?;
        model.make_durable();
        Ok(())
    }

    fn write(&mut self, file: usize, at: (u64, u64), seed: u64, how: Put) -> Outcome {
        let (node, model) = &mut self.files[file];
        let (pos, len) = at;
        let data = content::fill(seed, pos, usize::try_from(len).unwrap());
        let done = how(&self.volume, node, pos, &data, &self.cred);
        let done = written(self.config.size, done, data.len())?;
        model.write(pos, &data[..done]);
        Ok(())
    }

    /// Writes, and does not tell the model.
    fn lie(&mut self, op: &Op) -> Outcome {
        let Op::Write {
            file,
            pos,
            len,
            seed,
        } = *op
        else {
            return Ok(());
        };
        let data = content::fill(seed, pos, usize::try_from(len).unwrap());
        let node = &self.files[file].0;
        let done = self.volume.write(node, pos, &data, &self.cred);
        written(self.config.size, done, data.len()).map(drop)
    }

    fn append(&mut self, file: usize, len: u64, seed: u64) -> Outcome {
        let (node, model) = &mut self.files[file];
        let end = model.bytes.len() as u64;
        if end > 2 * self.config.span {
            return Ok(());
        }
        let data = content::fill(seed, end, usize::try_from(len).unwrap());
        let (pos, done) = match self.volume.append(node, &data, &self.cred) {
            Ok(done) => done,
            Err(Error::NoSpace) if self.config.size == Size::Tight => (end, 0),
            Err(error) => return Err(text(&error)),
        };
        if pos != end || (done < data.len() && self.config.size == Size::Roomy) {
            return Err(format!("{done} bytes at {pos}, not at {end}"));
        }
        model.write(pos, &data[..done]);
        Ok(())
    }

    pub(super) fn read(
        &self,
        file: usize,
        pos: u64,
        len: u64,
        how: fn(&Volume, &Node, u64, &mut [u8]) -> extant_engine::Result<usize>,
    ) -> Outcome {
        let (node, model) = &self.files[file];
        let mut buf = vec![0x55; usize::try_from(len).unwrap()];
        let done = how(&self.volume, node, pos, &mut buf).map_err(|error| text(&error))?;
        same(pos, &buf[..done], model.slice(pos, len))
    }

    fn view(&mut self, file: usize, pos: u64, len: u64, then: &Op) -> Outcome {
        let (node, model) = &self.files[file];
        let view = self.volume.view(node, pos, usize::try_from(len).unwrap());
        let view = view.map_err(|error| text(&error))?;
        let expected = model.slice(pos, len).to_vec();
        self.step(then)?;
        let shown: Vec<u8> = view.chunks().flatten().copied().collect();
        same(pos, &shown, &expected)
    }

    /// Every other byte changes; each is seen as it was.
    fn edit(&mut self, file: usize, pos: u64, len: u64, seed: u64) -> Outcome {
        let (node, model) = &mut self.files[file];
        let data = content::fill(seed, pos, usize::try_from(len).unwrap());
        let mut edited = model.slice(pos, len).to_vec();
        let mut seen = Vec::new();
        let change = |at: u64, bytes: &mut [u8]| {
            seen.extend_from_slice(bytes);
            let from = usize::try_from(at - pos).unwrap();
            let odd = bytes.iter_mut().zip(&data[from..]).skip(1).step_by(2);
            odd.for_each(|(byte, new)| *byte = *new);
            edited[from..from + bytes.len()].copy_from_slice(bytes);
        };
        let done = match self.volume.edit(node, pos, data.len(), &self.cred, change) {
            Ok(done) => done,
            Err(Error::NoSpace) if self.config.size == Size::Tight => 0,
            Err(error) => return Err(text(&error)),
        };
        if done < edited.len() && self.config.size == Size::Roomy {
            return Err(format!("{done} bytes, not {}", edited.len()));
        }
        // On the buffer-head path pieces are copies, and may be shown before space is found
        // wanting.
        let seen = seen.get(..done).ok_or("not all was shown")?;
        same(pos, seen, &model.slice(pos, len)[..done])?;
        model.write(pos, &edited[..done]);
        Ok(())
    }

    fn truncate(&mut self, file: usize, size: u64) -> Outcome {
        let (node, model) = &mut self.files[file];
        let to = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        let attr = self.volume.setattr(node, &to, &self.cred);
        let attr = attr.map_err(|error| text(&error))?;
        if attr.size != size {
            return Err(format!("{} bytes", attr.size));
        }
        model.truncate(size);
        Ok(())
    }

    fn sync(&mut self) -> Outcome {
        self.volume.sync().map_err(|error| text(&error))?;
        self.files
            .iter_mut()
            .for_each(|(_, model)| model.make_durable());
        self.verify(true)
    }

    fn verify(&mut self, synced: bool) -> Outcome {
        self.volume.verify(&mut self.verifier, synced)
    }

    /// Nothing but zeros lies before data, and a hole comes at the end at the latest.
    fn seek(&self, file: usize, pos: u64) -> Outcome {
        let (node, model) = &self.files[file];
        let size = model.bytes.len() as u64;
        let ask = |target| match self.volume.seek(node, target) {
            Ok(at) => Ok(Some(at)),
            Err(Error::NoSuchAddress) => Ok(None),
            Err(error) => Err(text(&error)),
        };
        let (data, hole) = (ask(SeekTarget::Data(pos))?, ask(SeekTarget::Hole(pos))?);
        if pos >= size {
            return match (data, hole) {
                (None, None) => Ok(()),
                found => Err(format!("{found:?} past the end at {size}")),
            };
        }
        let next = data.unwrap_or(size);
        let skipped = model.slice(pos, next.saturating_sub(pos));
        if next < pos || next > size || skipped.iter().any(|&byte| byte != 0) {
            return Err(format!("data at {data:?} skips data, or is past {size}"));
        }
        match hole {
            Some(at) if (pos..=size).contains(&at) => Ok(()),
            _ => Err(format!("a hole at {hole:?} of {size} bytes")),
        }
    }

    fn recreate(&mut self, file: usize) -> Outcome {
        let root = self.volume.root().map_err(|error| text(&error))?;
        let gone = self.volume.unlink(&root, &name(file));
        gone.map_err(|error| text(&error))?;
        self.files[file] = (self.create(file)?, Model::new(self.config.block));
        // So that a cut finds the new one.
        self.sync()
    }

    fn switch_file(&mut self, file: usize) -> Outcome {
        let node = &self.files[file].0;
        let path = self.volume.buffered_path(node);
        let other = match path.map_err(|error| text(&error))? {
            BufferedPath::Iomap => BufferedPath::BufferHead,
            BufferedPath::BufferHead => BufferedPath::Iomap,
        };
        self.mixed = true;
        match self.volume.set_buffered_path(node, other) {
            // With data=journal there is one path only.
            Ok(()) | Err(Error::NotSupported(_)) => Ok(()),
            Err(error) => Err(text(&error)),
        }
    }

    fn defragment(&mut self, file: usize) -> Outcome {
        let (node, model) = &self.files[file];
        match self.volume.defragment(node, &self.cred, |_, _| {}) {
            Ok(done) if done.runs_after > done.runs_before => {
                return Err(format!("more runs: {done:?}"));
            }
            // Block maps and journalled data.
            Ok(_) | Err(Error::NotSupported(_)) => {}
            Err(Error::NoSpace) if self.config.size == Size::Tight => {}
            Err(error) => return Err(text(&error)),
        }
        self.read(file, 0, model.bytes.len() as u64, Volume::read)
    }

    fn remount(&mut self) -> Outcome {
        self.volume.unmount().map_err(|error| text(&error))?;
        self.files
            .iter_mut()
            .for_each(|(_, model)| model.make_durable());
        self.base = self.dev.inner().to_bytes();
        self.check("after unmount")?;
        self.open_again(|model, found| same(0, found, &model.bytes))
    }

    fn crash_during(&mut self, op: &Op, seed: u64) -> Outcome {
        let from = self.dev.position();
        let before: Vec<Model> = self.files.iter().map(|file| file.1.clone()).collect();
        self.step(op)?;
        if let Op::Fsync { .. } | Op::Sync = op {
            // The promise came after the cut.
            let files = self.files.iter_mut().zip(before);
            files.for_each(|(file, before)| file.1 = before);
        }
        let at = Rng::new(seed).between(from as u64, self.dev.position() as u64);
        self.crash(usize::try_from(at).unwrap(), seed)
    }

    /// The power goes after the first `at` events.
    fn crash(&mut self, at: usize, seed: u64) -> Outcome {
        let mut events = self.dev.events();
        events.truncate(at);
        // What the old mount still writes goes to a device that is not read any more.
        let _ = self.volume.shutdown(false);
        let base = std::mem::take(&mut self.base);
        self.base = crash::left_over(base, &events, seed);
        let block = usize::try_from(self.config.block).unwrap();
        let strict = self.config.sizes_move_last() && !self.mixed;
        self.open_again(|model, found| model.allows(found, block, strict))
    }

    /// Mounts `base`, and compares the files with the model, which believes what it finds from then
    /// on.
    fn open_again(&mut self, judge: impl Fn(&Model, &[u8]) -> Outcome) -> Outcome {
        (self.dev, self.volume) = mount(self.config, &self.base)?;
        self.verifier = Verifier::default();
        self.mixed = false;
        let root = self.volume.root().map_err(|error| text(&error))?;
        for file in 0..FILES {
            let node = self.volume.lookup(&root, &name(file));
            let node = node.map_err(|error| text(&error))?;
            let size = self
                .volume
                .getattr(&node)
                .map_err(|error| text(&error))?
                .size;
            let mut found = vec![0x55; usize::try_from(size).unwrap()];
            let done = self.volume.read(&node, 0, &mut found);
            if done.map_err(|error| text(&error))? != found.len() {
                return Err("the file reads short of its size".into());
            }
            judge(&self.files[file].1, &found).map_err(|why| format!("file {file}: {why}"))?;
            let model = self.files[file].1.after_cut(found);
            self.files[file] = (node, model);
        }
        self.verify(false)
    }

    /// Checks the image in `base`.
    fn check(&self, when: &str) -> Outcome {
        let dev = Arc::new(MemoryDevice::from_bytes(&self.base));
        let report = check(dev, &CheckOptions::default()).map_err(|error| error.to_string())?;
        match report.findings.first() {
            None => Ok(()),
            Some(finding) => Err(format!("{when}: {finding}")),
        }
    }

    /// The end: everything is there after a clean unmount, and Linux's checker agrees now and then.
    pub(crate) fn finish(&mut self) -> Outcome {
        self.sync()?;
        self.remount()?;
        if self.config.seed.is_multiple_of(8) {
            let image = Image::of_bytes(&self.base).map_err(|error| error.to_string())?;
            image.fsck_clean().map_err(|error| error.to_string())?;
        }
        self.volume.unmount().map_err(|error| text(&error))
    }
}

/// The number of bytes that a write of `len` has written: all, unless space may run out.
pub(super) fn written(
    size: Size,
    done: extant_engine::Result<usize>,
    len: usize,
) -> Outcome<usize> {
    match done {
        Ok(done) if done == len || size == Size::Tight => Ok(done),
        Ok(done) => Err(format!("{done} of {len} bytes")),
        Err(Error::NoSpace) if size == Size::Tight => Ok(0),
        Err(error) => Err(text(&error)),
    }
}

/// Fails with the first byte that differs.
pub(super) fn same(pos: u64, found: &[u8], expected: &[u8]) -> Outcome {
    if found.len() != expected.len() {
        let (found, expected) = (found.len(), expected.len());
        return Err(format!("{found} bytes, not {expected}"));
    }
    match found.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => {
            let byte = pos + at as u64;
            let (found, expected) = (found[at], expected[at]);
            Err(format!("byte {byte} is {found:#x}, not {expected:#x}"))
        }
    }
}
