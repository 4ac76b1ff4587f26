//! `O_DIRECT` through the mount: what Linux's ext4 answers, and one file whether it is used past
//! the kernel's cache or through it.

use extant_testkit::{
    Cmd, Context, Error, Image, Mount, Need, Result, Rng, Subject, content, ensure, need,
};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")];
/// The kernel's ext4 wants memory like this.
const ALIGN: usize = 4096;

fn open(path: &Path, direct: bool) -> Result<File> {
    let flags = if direct {
        OFlags::DIRECT
    } else {
        OFlags::empty()
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    Ok(options
        .custom_flags(flags.bits().cast_signed())
        .open(path)?)
}

/// Memory that begins on a page border.
struct Aligned(Vec<u8>, usize, usize);

impl Aligned {
    fn new(len: usize) -> Self {
        let memory = vec![0xee; len + ALIGN];
        let skip = memory.as_ptr().align_offset(ALIGN);
        Self(memory, skip, len)
    }

    fn of(bytes: &[u8]) -> Self {
        let mut aligned = Self::new(bytes.len());
        aligned.bytes().copy_from_slice(bytes);
        aligned
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.0[self.1..self.1 + self.2]
    }
}

/// How many bytes, or which error.
fn outcome(result: std::io::Result<usize>) -> std::result::Result<usize, Option<i32>> {
    result.map_err(|error| error.raw_os_error())
}

/// The answers of a file system to a sequence of requests, and the file's bytes afterwards.
fn answers(file: &Path) -> Result<(Vec<String>, Vec<u8>)> {
    let direct = open(file, true)?;
    let mut all = Vec::new();
    for (pos, len) in [
        (0, 8192),
        (512, 512),
        (100, 4096),
        (4096, 100),
        (8192, 4096),
        (65_536, 1 << 20),
        (3 << 20, 2 << 20),
        (1 << 20, 1536),
        (7, 7),
        (9 << 20, 512),
    ] {
        let mut bytes = Aligned::of(&content::fill(7, pos, len));
        let wrote = outcome(direct.write_at(bytes.bytes(), pos));
        all.push(format!("write {len} at {pos}: {wrote:?}"));
    }
    for (pos, len) in [
        (0, 4096),
        (512, 1024),
        (100, 4096),
        (0, 100),
        (9 << 20, 4096),
        ((9 << 20) + 512, 4096),
        (10 << 20, 4096),
        (2 << 20, 2 << 20),
    ] {
        let mut bytes = Aligned::new(len);
        let read = outcome(direct.read_at(bytes.bytes(), pos));
        let done = read.unwrap_or(0);
        let sum: u64 = bytes.bytes()[..done].iter().map(|b| u64::from(*b)).sum();
        all.push(format!("read {len} at {pos}: {read:?}, {sum}"));
    }
    drop(direct);
    Ok((all, std::fs::read(file)?))
}

#[test]
fn the_answers_are_those_of_linux() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for options in ["", "nowriteback_cache", "nostrict_open"] {
        let image = Image::of_mib(64).junk().make()?;
        let linux = Subject::Ext4.mount(image.path(), "")?;
        let expected = answers(&linux.join("linux"))?;
        linux.unmount()?;
        let mount = Subject::under_test().mount(image.path(), options)?;
        let got = answers(&mount.join("extant"))?;
        ensure!(
            got.0 == expected.0,
            "{options}: {:#?} is not {:#?}",
            got.0,
            expected.0
        );
        ensure!(got.1 == expected.1, "{options}: the contents differ");
        mount.unmount()?;
        image.fsck_clean()?;
    }
    Ok(())
}

/// A counter of a mount's engine.
fn counter(mount: &Mount, name: &str) -> Result<u64> {
    let mut bytes = vec![0; 1 << 16];
    let len = rustix::fs::getxattr(mount.dir(), "extant.stats", &mut bytes[..])?;
    let text = String::from_utf8_lossy(&bytes[..len]);
    let value = text.lines().find_map(|line| {
        let (found, value) = line.split_once(char::is_whitespace)?;
        (found == name).then(|| value.trim().parse().ok())?
    });
    value.ok_or_else(|| Error::new(format!("no counter {name} in {text}")))
}

/// Direct writes leave nothing in the daemon's cache and are not read back from it.
#[test]
fn direct_requests_pass_both_caches() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(64).junk().make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    let path = mount.join("file");
    let direct = open(&path, true)?;
    let mut bytes = Aligned::of(&content::fill(3, 0, 1 << 20));
    for n in 0..4 {
        direct.write_at(bytes.bytes(), n << 20)?;
    }
    ensure!(
        counter(&mount, "direct_writes")? >= 4,
        "direct writes went elsewhere"
    );
    let cached = counter(&mount, "page_cache_used_bytes")?;
    ensure!(cached == 0, "{cached} bytes are cached");
    let mut back = Aligned::new(1 << 20);
    direct.read_at(back.bytes(), 1 << 20)?;
    ensure!(back.bytes() == bytes.bytes(), "other bytes came back");
    drop(direct);
    mount.unmount()?;
    image.fsck_clean()
}

/// A file of a mount with an opener through the cache and one past it, and its bytes.
struct Both {
    cached: File,
    direct: File,
    rng: Rng,
    model: Vec<u8>,
}

impl Both {
    fn any(&mut self) -> &File {
        if self.rng.chance(50) {
            &self.direct
        } else {
            &self.cached
        }
    }

    /// One operation, on the file and on the model.
    fn step(&mut self) -> Result<()> {
        let pos = self.rng.below(400_000);
        let len = 1 + self.rng.index(20_000);
        let (at, sectors) = (pos / 512 * 512, len.next_multiple_of(512));
        match self.rng.below(12) {
            0 | 1 => {
                let bytes = content::fill(self.rng.next_u64(), pos, len);
                self.cached.write_all_at(&bytes, pos)?;
                put(&mut self.model, index(pos), &bytes);
            }
            2..=4 => {
                let bytes = content::fill(self.rng.next_u64(), at, sectors);
                self.direct.write_all_at(Aligned::of(&bytes).bytes(), at)?;
                put(&mut self.model, index(at), &bytes);
            }
            5 => {
                let size = self.rng.below(400_000);
                self.cached.set_len(size)?;
                self.model.resize(index(size), 0);
            }
            6 => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(self.any(), mode, pos, len as u64)?;
                let (size, end) = (self.model.len(), index(pos) + len);
                self.model[index(pos).min(size)..end.min(size)].fill(0);
            }
            7 => {
                fallocate(self.any(), FallocateFlags::empty(), pos, len as u64)?;
                let len = self.model.len().max(index(pos) + len);
                self.model.resize(len, 0);
            }
            8 => self.any().sync_all()?,
            _ => {
                let mut bytes = Aligned::new(sectors);
                let done = self.any().read_at(bytes.bytes(), at)?;
                let model = &self.model;
                let from = index(at).min(model.len());
                let expected = &model[from..(from + sectors).min(model.len())];
                let size = model.len();
                ensure!(
                    &bytes.bytes()[..done] == expected,
                    "{done} bytes at {at} of {size} are wrong"
                );
            }
        }
        Ok(())
    }
}

fn index(pos: u64) -> usize {
    usize::try_from(pos).unwrap_or(usize::MAX)
}

/// The operations of the exerciser (`exerciser.rs`, which knows no `O_DIRECT`), with direct
/// requests among it. One thread uses the file buffered and directly, and checks each read: the
/// kernel's pages and the daemon's agree with the device.
#[test]
fn buffered_and_direct_see_one_file() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (seed, options) in (1..).zip(["", "nowriteback_cache", "nobuffered_iomap", "data=journal"])
    {
        let image = Image::of_mib(64).args("-b 1024").junk().make()?;
        let mount = Subject::under_test().mount(image.path(), options)?;
        let path = mount.join("file");
        let mut both = Both {
            cached: open(&path, false)?,
            direct: open(&path, true)?,
            rng: Rng::new(seed),
            model: Vec::new(),
        };
        for step in 0..150 {
            both.step().context(|| format!("{options}: step {step}"))?;
        }
        let model = std::mem::take(&mut both.model);
        drop(both);
        ensure!(
            std::fs::read(&path)? == model,
            "{options}: the end is wrong"
        );
        mount.unmount()?;
        image.fsck_clean()?;
        let linux = Subject::Ext4.mount(image.path(), "ro")?;
        ensure!(
            std::fs::read(linux.join("file"))? == model,
            "{options}: Linux sees another file"
        );
    }
    Ok(())
}

fn put(model: &mut Vec<u8>, pos: usize, bytes: &[u8]) {
    let size = model.len().max(pos + bytes.len());
    model.resize(size, 0);
    model[pos..pos + bytes.len()].copy_from_slice(bytes);
}

/// Runs `tests/aio.py`: what it printed.
fn asynchronously(what: &str, file: &Path) -> Result<String> {
    let script = Cmd::new("python3").args(["-c", include_str!("aio.py"), what]);
    Ok(script.arg(file).ok()?.out)
}

/// Buffered readers that run meanwhile leave no old pages behind for those that come afterwards.
#[test]
fn an_asynchronous_write_is_seen_by_buffered_readers() -> Result<()> {
    if !need(&[Need::Fuse, Need::Tool("mke2fs"), Need::Tool("python3")]) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    let said = asynchronously("stale", &mount.join("file"))?;
    ensure!(said.starts_with("stale 0 of"), "{said}");
    mount.unmount()?;
    image.fsck_clean()
}

/// The error is "no space", and what was written before it stays.
#[test]
fn asynchronous_writes_to_a_full_volume_find_no_space() -> Result<()> {
    if !need(&[Need::Fuse, Need::Tool("mke2fs"), Need::Tool("python3")]) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    let said = asynchronously("full", &mount.join("file"))?;
    let numbers: Vec<i64> = said
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    ensure!(numbers.len() == 3 && numbers[0] == -28, "{said}");
    ensure!(numbers[1] == numbers[2] && numbers[1] > 8 << 20, "{said}");
    mount.unmount()?;
    image.fsck_clean()
}
