//! Records that no Linux wrote: an error in words, the volume as it was, never a panic.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_disk::csum::Crc32c;
use extant_engine::Error;
use extant_testkit::mount::Subject;
use extant_testkit::{Cmd, Context, Result, Rng, bail, ensure, need, report};

use crate::kit::{Log, NEEDS, check_clean, device, replay, told};
use crate::storm::Storm;
use crate::volume;

const HEAD: u16 = 9;
const TAIL: u16 = 8;

fn record(tag: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(value.len()).unwrap_or(0);
    [&tag.to_le_bytes()[..], &len.to_le_bytes(), value].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn entry(tag: u16, parent: u32, ino: u32, name: &[u8]) -> Vec<u8> {
    record(tag, &[&words(&[parent, ino])[..], name].concat())
}

fn range(ino: u32, lblk: u32, len: u16, block: u32) -> Vec<u8> {
    let (ino, lblk) = (ino.to_le_bytes(), lblk.to_le_bytes());
    let [len, high] = [len, 0].map(u16::to_le_bytes);
    record(
        1,
        &[&ino[..], &lblk, &len, &high, &block.to_le_bytes()].concat(),
    )
}

/// A record of an inode: mode, links, generation, attribute block.
fn inode(ino: u32, mode: u16, links: u16, generation: u32, acl: u32) -> Vec<u8> {
    let mut raw = vec![0; 160];
    raw[..2].copy_from_slice(&mode.to_le_bytes());
    raw[26..28].copy_from_slice(&links.to_le_bytes());
    raw[32..36].copy_from_slice(&0x8_0000_u32.to_le_bytes());
    raw[100..104].copy_from_slice(&generation.to_le_bytes());
    raw[104..108].copy_from_slice(&acl.to_le_bytes());
    raw[128..130].copy_from_slice(&32_u16.to_le_bytes());
    record(6, &[&ino.to_le_bytes()[..], &raw].concat())
}

/// A volume whose log has fast commits.
struct Planted {
    before: Vec<u8>,
    log: Log,
    tid: u32,
    /// Inodes: the file "plain", the directory "full" and a device node.
    file: u32,
    generation: u32,
    full: u32,
    node: u32,
    /// A block of "plain".
    block: u32,
    /// The file "attributed": its inode, its generation, and its attribute block.
    attributed: [u32; 3],
}

impl Planted {
    fn make() -> Result<Self> {
        let image = volume("-b 1024")?;
        let mount = Subject::Ext4.mount(image.path(), "commit=300")?;
        std::fs::write(mount.join("plain"), [7; 5000])?;
        std::fs::create_dir(mount.join("full"))?;
        std::fs::write(mount.join("full/inside"), b"")?;
        Cmd::new("mknod")
            .arg(mount.join("node"))
            .args(["c", "1", "3"])
            .ok()?;
        std::fs::write(mount.join("attributed"), [8; 5000])?;
        Cmd::new("setfattr")
            .args(["-n", "user.long", "-v", &"x".repeat(300)])
            .arg(mount.join("attributed"))
            .ok()?;
        let mut storm = Storm::begin(mount.dir(), 5, true)?;
        storm.step()?;
        let copy = image.copy()?;
        mount.unmount()?;
        let dev = device(&copy)?;
        let log = Log::of(&copy, &dev)?;
        let mut head = [0; 12];
        dev.read_at(log.area[0], &mut head)?;
        ensure!(head[..4] == [9, 0, 8, 0], "no head: {head:?}");
        let tid = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let replayed = copy.copy()?;
        replayed.fsck_replay()?;
        let stat = |path: &str, field: &str| -> Result<u32> {
            let text = replayed.debugfs(&format!("stat {path}"))?;
            let after = text.split(field).nth(1).unwrap_or_default();
            let word = after.split_whitespace().next().unwrap_or_default();
            word.parse().map_err(told)
        };
        Ok(Self {
            file: stat("/plain", "Inode:")?,
            generation: stat("/plain", "Generation:")?,
            full: stat("/full", "Inode:")?,
            node: stat("/node", "Inode:")?,
            block: replayed
                .debugfs("bmap /plain 0")?
                .trim()
                .parse()
                .map_err(told)?,
            attributed: [
                stat("/attributed", "Inode:")?,
                stat("/attributed", "Generation:")?,
                stat("/attributed", "File ACL:")?,
            ],
            before: dev.to_bytes(),
            log,
            tid,
        })
    }

    /// The volume with `records` as its only fast commit.
    fn with(&self, records: &[u8]) -> Result<Arc<MemoryDevice>> {
        let dev = Arc::new(MemoryDevice::from_bytes(&self.before));
        let bs = self.log.bs.bytes();
        let mut block = record(HEAD, &words(&[0, self.tid]));
        block.extend(records);
        let value = bs - block.len() - 4;
        block.extend(TAIL.to_le_bytes());
        block.extend(u16::try_from(value).map_err(told)?.to_le_bytes());
        block.extend(self.tid.to_le_bytes());
        let sum = Crc32c::from_raw(0).feed(&block).raw();
        block.extend(sum.to_le_bytes());
        block.resize(bs, 0);
        dev.write_at(self.log.area[0], &block)?;
        dev.write_at(self.log.area[1], &vec![0; bs])?;
        Ok(dev)
    }

    /// Without its fast commits, the volume is sound.
    fn check_the_rest(&self, dev: &Arc<MemoryDevice>) -> Result<()> {
        for at in &self.log.area {
            dev.write_at(*at, &vec![0; self.log.bs.bytes()])?;
        }
        replay(Arc::clone(dev) as _).map_err(told)?;
        check_clean(Arc::clone(dev) as _)
    }
}

/// Records that are refused, with a name for each.
fn refused(p: &Planted) -> Vec<(&'static str, Vec<u8>)> {
    let new = 1000;
    let (regular, directory) = (0o100_644, 0o040_755);
    let made = |name: &[u8]| [inode(new, regular, 1, 5, 0), entry(3, 2, new, name)].concat();
    let end = u32::try_from(p.before.len() / 1024).unwrap_or(0);
    let first = u32::try_from(p.log.map.block(5).map_or(0, |b| b.get())).unwrap_or(0);
    vec![
        ("inode 1", inode(1, regular, 1, 5, 0)),
        ("the journal", inode(8, regular, 1, 5, 0)),
        ("an inode past the last", inode(1 << 30, regular, 1, 5, 0)),
        ("an inode of no kind", inode(new, 0, 1, 5, 0)),
        (
            "a long record",
            record(6, &[&words(&[new])[..], &[1; 300]].concat()),
        ),
        (
            "another generation",
            inode(p.file, regular, 1, p.generation ^ 1, 0),
        ),
        ("another kind", inode(p.file, 0o020_644, 1, p.generation, 0)),
        (
            "an attribute block",
            inode(p.file, regular, 1, p.generation, 700),
        ),
        ("a new one with attributes", inode(new, regular, 1, 5, 700)),
        ("a directory without a name", inode(new, directory, 2, 5, 0)),
        ("blocks past the end", range(p.file, 9, 4, end - 2)),
        ("the superblock", range(p.file, 9, 1, 1)),
        ("the log", range(p.file, 9, 1, first)),
        ("a block that is in use", range(p.file, 9, 1, p.block)),
        (
            "a block of a new file",
            [made(b"new"), range(new, 0, 1, p.block)].concat(),
        ),
        (
            "one block for two",
            [range(p.file, 90, 1, end - 9), range(p.file, 95, 1, end - 9)].concat(),
        ),
        ("blocks of a node", range(p.node, 0, 1, end - 9)),
        (
            "a range past all files",
            range(p.file, u32::MAX, 2, end - 9),
        ),
        ("a slash", made(b"a/b")),
        ("a NUL", made(b"a\0b")),
        ("a dot", made(b".")),
        ("two dots", made(b"..")),
        (
            "a name in a file",
            [inode(new, regular, 1, 5, 0), entry(3, p.file, new, b"x")].concat(),
        ),
        ("a name in itself", entry(4, p.full, p.full, b"x")),
        ("a link of a directory", entry(4, 2, p.full, b"again")),
        (
            "a directory that was there is new",
            entry(3, 2, p.full, b"again"),
        ),
        ("a name that is taken", made(b"plain")),
        (
            "a directory that is not empty",
            entry(5, 2, p.full, b"full"),
        ),
    ]
}

/// Records that count for nothing.
fn ignored(p: &Planted) -> Vec<(&'static str, Vec<u8>)> {
    let end = u32::try_from(p.before.len() / 1024).unwrap_or(0);
    vec![
        ("no record", vec![]),
        ("padding", record(7, &[3; 30])),
        ("a name that is not there", entry(5, 2, p.file, b"other")),
        ("a name of another inode", entry(5, 2, p.file, b"node")),
        ("an inode that is free", entry(5, 2, 1000, b"plain")),
        ("a directory that is free", entry(5, 1000, p.file, b"plain")),
        ("blocks of a free inode", range(1000, 0, 4, end - 9)),
        ("blocks of a directory", range(p.full, 7, 1, end - 9)),
        ("an inode without links", inode(1000, 0o100_644, 0, 5, 0)),
        ("a name that is there", entry(4, 2, p.file, b"plain")),
    ]
}

#[test]
fn records_that_no_system_wrote_change_nothing() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let planted = Planted::make()?;
    for (what, records) in refused(&planted) {
        let dev = planted.with(&records)?;
        for _ in 0..2 {
            match replay(Arc::clone(&dev) as _) {
                Err(Error::Corrupt { .. }) => {}
                other => bail!("{what}: {other:?}"),
            }
        }
        planted.check_the_rest(&dev).context(|| what)?;
    }
    for (what, records) in ignored(&planted) {
        let dev = planted.with(&records)?;
        replay(Arc::clone(&dev) as _)
            .map_err(told)
            .context(|| what)?;
        check_clean(Arc::clone(&dev) as _).context(|| what)?;
    }
    Ok(())
}

/// Histories in which a number has several owners, or an inode stays open without a name.
fn histories(p: &Planted) -> Vec<(&'static str, Vec<u8>)> {
    let (new, regular, directory) = (1000, 0o100_644, 0o040_755);
    let [ino, generation, acl] = p.attributed;
    let gone = entry(5, 2, ino, b"attributed");
    vec![
        (
            "a file with an attribute block is removed while it is open",
            [gone.clone(), inode(ino, regular, 0, generation, acl)].concat(),
        ),
        (
            "the number of a renamed file goes to a directory",
            [
                entry(4, 2, new, b"renamed"),
                entry(5, 2, new, b"made"),
                entry(5, 2, new, b"renamed"),
                inode(new, directory, 2, 5, 0),
                entry(3, 2, new, b"later"),
            ]
            .concat(),
        ),
        (
            "the number of a renamed file goes to a new one",
            [
                entry(4, 2, new, b"renamed"),
                entry(5, 2, new, b"renamed"),
                inode(new, regular, 1, 5, 0),
                entry(3, 2, new, b"later"),
            ]
            .concat(),
        ),
        (
            "the number of a removed file goes to one with a late name",
            [
                gone.clone(),
                entry(4, 2, ino, b"late"),
                inode(ino, regular, 1, generation ^ 1, 0),
            ]
            .concat(),
        ),
        (
            "the number of a removed file goes to a renamed one, then to a directory",
            [
                gone,
                entry(4, 2, ino, b"renamed"),
                entry(5, 2, ino, b"renamed"),
                inode(ino, directory, 2, generation ^ 1, 0),
                entry(3, 2, ino, b"later"),
            ]
            .concat(),
        ),
        (
            "a file that was there is new",
            entry(3, 2, p.file, b"again"),
        ),
    ]
}

#[test]
fn histories_of_numbers_are_replayed() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let planted = Planted::make()?;
    ensure!(planted.attributed[2] != 0, "no attribute block");
    let mut failed = Vec::new();
    for (what, records) in histories(&planted) {
        let dev = planted.with(&records)?;
        let replayed = replay(Arc::clone(&dev) as _).map_err(told);
        if let Err(error) = replayed.and_then(|()| check_clean(Arc::clone(&dev) as _)) {
            failed.push(format!("{what}: {error}"));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

/// Bytes of the area are changed and the checksums made right: an error, or a replay.
#[test]
fn mutated_records_never_panic() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = volume("-b 1024")?;
    let mount = Subject::Ext4.mount(image.path(), "commit=300")?;
    let mut storm = Storm::begin(mount.dir(), 6, true)?;
    for _ in 0..10 {
        storm.step()?;
    }
    let copy = image.copy()?;
    mount.unmount()?;
    let dev = device(&copy)?;
    let log = Log::of(&copy, &dev)?;
    let before = dev.to_bytes();
    let mut outcomes = (0, 0);
    for seed in 0..250 {
        let dev = Arc::new(MemoryDevice::from_bytes(&before));
        mutate(&dev, &log, &mut Rng::new(seed))?;
        match replay(Arc::clone(&dev) as _) {
            Ok(()) => outcomes.0 += 1,
            Err(_) => outcomes.1 += 1,
        }
    }
    report(&format!(
        "{} mutated logs replayed, {} refused",
        outcomes.0, outcomes.1
    ));
    ensure!(outcomes.0 > 20 && outcomes.1 > 10, "{outcomes:?}");
    Ok(())
}

/// Changes a few bytes of records, and makes the checksums of all tails right.
fn mutate(dev: &Arc<MemoryDevice>, log: &Log, rng: &mut Rng) -> Result<()> {
    let bs = log.bs.bytes();
    let mut blocks = Vec::new();
    for at in &log.area {
        let mut block = vec![0; bs];
        dev.read_at(*at, &mut block)?;
        if block[..2] == [0, 0] {
            break;
        }
        blocks.push(block);
    }
    let (mut sum, mut changes) = (Crc32c::from_raw(0), 1 + rng.below(3));
    let count = blocks.len();
    for (number, block) in blocks.iter_mut().enumerate() {
        let mut at = 0;
        while at + 4 <= bs {
            let half = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
            let (tag, len) = (half(at), usize::from(half(at + 2)));
            if tag == 0 || at + 4 + len > bs {
                break;
            }
            if tag == TAIL {
                sum = sum.feed(&block[at..at + 8]);
                block[at + 8..at + 12].copy_from_slice(&sum.raw().to_le_bytes());
                sum = Crc32c::from_raw(0);
                break;
            }
            if tag != HEAD && len > 0 && changes > 0 && rng.index(count * 2) == 0 {
                let most = if rng.chance(60) { 12 } else { 255 };
                let byte = at + 4 + rng.index(len.min(most));
                block[byte] = match rng.below(3) {
                    0 => 0,
                    1 => 0xff,
                    _ => block[byte] ^ (1 << rng.below(8)),
                };
                changes -= 1;
            }
            sum = sum.feed(&block[at..at + 4 + len]);
            at += 4 + len;
        }
        dev.write_at(log.area[number], block)?;
    }
    Ok(())
}
