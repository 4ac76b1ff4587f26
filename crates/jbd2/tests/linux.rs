//! Logs that Linux wrote, replayed here; logs written here, replayed by Linux and e2fsck.

use std::path::Path;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice, FileDevice, OpenMode};
use extant_disk::csum::Crc32c;
use extant_disk::jbd2::Checksums;
use extant_jbd2::{
    BlockCache, Config, Journal, JournalError, LogMap, Recovery, count_with_fast_commits, inspect,
    recover, recover_to_fast_commits, replace_fast_commits,
};
use extant_testkit::mount::Subject;
use extant_testkit::tree::{Compare, Tree};
use extant_testkit::{Cmd, Image, Need, Rng, need};
use extant_units::{BlockSize, Blocks, Pblk};

const ALL: &[Need] = &[Need::Loop, Need::Tool("mke2fs"), Need::Tool("debugfs")];

/// The runs of inode `spec`'s blocks, as debugfs prints them.
fn runs(image: &Image, spec: &str) -> Vec<(Pblk, u32)> {
    let text = image.debugfs_as_it_is(&format!("stat {spec}")).unwrap();
    let extents = text.split_once("EXTENTS:\n").unwrap().1;
    extents
        .split(", ")
        .map(str::trim)
        .filter(|extent| !extent.starts_with("(ETB"))
        .map(|extent| {
            let (logical, physical) = extent.split_once("):").unwrap();
            let start = physical.split('-').next().unwrap().parse().unwrap();
            let logical = logical.trim_start_matches('(');
            let len = match logical.split_once('-') {
                Some((first, last)) => {
                    last.parse::<u32>().unwrap() - first.parse::<u32>().unwrap() + 1
                }
                None => 1,
            };
            (Pblk::new(start), len)
        })
        .collect()
}

fn block_size(image: &Image) -> BlockSize {
    let bytes = u32::try_from(image.block_size().unwrap()).unwrap();
    BlockSize::from_bytes(bytes).unwrap()
}

fn device(image: &Image) -> Arc<FileDevice> {
    Arc::new(FileDevice::open(image.path(), OpenMode::ReadWrite).unwrap())
}

fn replay(image: &Image) -> Result<Recovery, JournalError> {
    let bs = block_size(image);
    let log = LogMap::new(runs(image, "<8>"));
    let dev = device(image);
    recover(&*dev, bs, &log, Blocks::new(dev.len() / bs.bytes_u64()))
}

/// Files, directories large enough to have blocks of their own freed again, links, synced in parts.
fn busy(root: &Path, seed: u64) {
    let mut rng = Rng::new(seed);
    let sync = || Cmd::new("sync").arg("-f").arg(root).ok().map(drop).unwrap();
    for d in 0..4 {
        let dir = root.join(format!("dir{d}"));
        std::fs::create_dir(&dir).unwrap();
        for f in 0..250 {
            let name = format!("{f:0>60}");
            std::fs::write(dir.join(name), vec![b'x'; rng.index(3000)]).unwrap();
        }
        sync();
    }
    std::fs::remove_dir_all(root.join("dir1")).unwrap();
    std::fs::write(root.join("data"), vec![7; 1 << 20]).unwrap();
    sync();
    std::fs::rename(root.join("dir2"), root.join("dir0/moved")).unwrap();
    for f in 0..100 {
        std::fs::remove_file(root.join(format!("dir3/{f:0>60}"))).unwrap();
    }
    std::fs::File::open(root.join("dir3"))
        .unwrap()
        .sync_all()
        .unwrap();
    // Not committed.
    std::fs::write(root.join("lost"), b"lost").unwrap();
}

/// A copy of an image that Linux had mounted and busy.
fn in_use(mke2fs: &str, options: &str, seed: u64) -> Image {
    let image = Image::of_mib(64).args(mke2fs).make().unwrap();
    let options = ["commit=300", options].join(",");
    let mount = Subject::Ext4
        .mount(image.path(), options.trim_end_matches(','))
        .unwrap();
    busy(mount.dir(), seed);
    let copy = image.copy().unwrap();
    mount.unmount().unwrap();
    copy
}

/// The complaints of `e2fsck -fn`, without the image's name.
fn complaints(image: &Image) -> Vec<String> {
    let output = Cmd::new("e2fsck")
        .arg("-fn")
        .arg(image.path())
        .run()
        .unwrap();
    assert!(!output.err.contains("skipping journal"), "{}", output.err);
    let path = image.path().display().to_string();
    output.out.lines().map(|l| l.replace(&path, "")).collect()
}

/// Everything but the superblock's block and the journal itself.
fn difference(a: &Image, b: &Image) -> Option<u64> {
    let bs = block_size(a);
    let log = LogMap::new(runs(a, "<8>"));
    let (a, b) = (device(a), device(b));
    let mut bytes = [vec![0; bs.bytes()], vec![0; bs.bytes()]];
    let superblock = 1024 / bs.bytes_u64();
    (0..a.len() / bs.bytes_u64())
        .filter(|&p| p != superblock && !log.contains(Pblk::new(p)))
        .find(|&p| {
            let at = bs.dev_off(Pblk::new(p)).unwrap();
            a.read_at(at, &mut bytes[0]).unwrap();
            b.read_at(at, &mut bytes[1]).unwrap();
            bytes[0] != bytes[1]
        })
}

#[test]
fn logs_of_linux_replay_as_e2fsck_and_linux_replay_them() {
    if !need(ALL) {
        return;
    }
    let variants = [
        ("-b 1024", "", Checksums::V3),
        ("-b 4096", "", Checksums::V3),
        ("-b 4096 -O ^64bit", "", Checksums::V3),
        ("-b 1024 -O ^metadata_csum", "", Checksums::None),
        ("-b 4096 -O ^metadata_csum,^64bit", "", Checksums::None),
        (
            "-b 1024 -O ^metadata_csum",
            "journal_checksum",
            Checksums::V1,
        ),
        ("-b 2048 -J size=2", "", Checksums::V3),
    ];
    for (i, (mke2fs, options, checksums)) in variants.into_iter().enumerate() {
        let ours = in_use(mke2fs, options, i as u64);
        let what = format!("{mke2fs} {options}");
        assert!(ours.needs_recovery().unwrap(), "{what}");
        let (theirs, linux) = (ours.copy().unwrap(), ours.copy().unwrap());
        let log = LogMap::new(runs(&ours, "<8>"));
        let superblock = inspect(&*device(&ours), block_size(&ours), &log).unwrap();
        assert_eq!(superblock.format().checksums, checksums, "{what}");

        let recovery = replay(&ours).unwrap();
        assert!(recovery.transactions > 1, "{what}: {recovery:?}");
        assert!(recovery.revoked > 0, "{what}: {recovery:?}");
        assert!(replay(&ours).unwrap().was_clean);
        Cmd::new("e2fsck")
            .args(["-y", "-E", "journal_only"])
            .arg(theirs.path())
            .run()
            .unwrap();
        assert_eq!(difference(&ours, &theirs), None, "{what}");
        // The counters in the superblock are not journalled: e2fsck complains of those, about
        // either.
        ours.debugfs_write("feature ^needs_recovery").unwrap();
        assert_eq!(complaints(&ours), complaints(&theirs), "{what}");

        let tree = |image: &Image| {
            let mount = Subject::Ext4.mount(image.path(), "").unwrap();
            Tree::take(mount.dir()).unwrap()
        };
        tree(&ours)
            .expect_equal(&tree(&linux), Compare::default())
            .unwrap();
    }
}

/// Damages some of the copies that the log holds of the file system's blocks; their numbers.
fn damage_copies(image: &Image) -> Vec<u64> {
    let dump = image.debugfs_as_it_is("logdump -a").unwrap();
    let copies: Vec<(u64, u64)> = dump
        .lines()
        .filter_map(|line| line.trim().strip_prefix("FS block "))
        .filter_map(|line| {
            let (block, rest) = line.split_once(" logged at journal block ")?;
            let at = rest.split(' ').next()?;
            Some((block.parse().ok()?, at.parse().ok()?))
        })
        .collect();
    assert!(copies.len() > 20, "{dump}");
    let log = LogMap::new(runs(image, "<8>"));
    let bs = block_size(image);
    let chosen = copies.iter().step_by(copies.len() / 7);
    chosen
        .map(|&(block, at)| {
            let place = log.block(u32::try_from(at).unwrap()).unwrap();
            image
                .patch(place.get() * bs.bytes_u64() + 40, 1, |byte| byte[0] ^= 0x10)
                .unwrap();
            block
        })
        .collect()
}

/// e2fsck and Linux leave such blocks as they are and replay the others; Linux then refuses to
/// mount.
#[test]
fn damaged_copies_are_skipped_as_e2fsck_and_linux_skip_them() {
    if !need(ALL) {
        return;
    }
    let v2 = Config {
        checksums: false,
        ..Config::default()
    };
    let images = [
        in_use("-b 1024", "", 77),
        in_use("-b 4096 -O ^64bit", "", 78),
        written_here("-b 1024 -O ^metadata_csum", true, &v2).0,
    ];
    for ours in images {
        let damaged = damage_copies(&ours);
        let (theirs, linux) = (ours.copy().unwrap(), ours.copy().unwrap());
        let recovery = replay(&ours).unwrap();
        // Some of the copies are superseded or revoked.
        assert!(recovery.skipped > 0 && recovery.skipped <= damaged.len() as u64);
        let first = recovery.first_skipped.unwrap();
        assert!(damaged.contains(&first.block.get()), "{first}");
        let said = Cmd::new("e2fsck")
            .args(["-y", "-E", "journal_only"])
            .arg(theirs.path())
            .run()
            .unwrap();
        // e2fsck also counts damaged copies that later ones make up for.
        let said = said.out + &said.err;
        let skipped = said.matches("Invalid checksum recovering data block");
        assert!(skipped.count() as u64 >= recovery.skipped, "{said}");
        let named = format!("Invalid checksum recovering data block {} ", first.block);
        assert!(said.contains(&named), "{said}");
        assert_eq!(difference(&ours, &theirs), None);
        assert!(Subject::Ext4.mount(linux.path(), "").is_err());
        assert_eq!(difference(&ours, &linux), None);
        assert!(linux.needs_recovery().unwrap());
        // The log is left for e2fsck here too, which goes on from there as if nothing had been
        // done.
        let again = ours.copy().unwrap();
        assert_eq!(replay(&again).unwrap(), recovery);
    }
}

#[test]
fn a_fast_commit_is_refused_by_name_and_nothing_is_written() {
    if !need(ALL) {
        return;
    }
    let image = Image::of_mib(64).args("-O fast_commit").make().unwrap();
    let mount = Subject::Ext4.mount(image.path(), "commit=300").unwrap();
    let path = mount.dir().join("file");
    // Fast commits begin after a full one.
    std::fs::write(&path, b"one").unwrap();
    Cmd::new("sync").arg("-f").arg(mount.dir()).ok().unwrap();
    let full = image.copy().unwrap();
    std::fs::write(&path, vec![b'2'; 9000]).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let fast = image.copy().unwrap();
    mount.unmount().unwrap();

    assert!(replay(&full).unwrap().transactions > 0);
    let before = fast.fingerprint().unwrap();
    let error = replay(&fast).unwrap_err();
    assert!(matches!(error, JournalError::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("fast_commit"), "{error}");
    assert_eq!(fast.fingerprint().unwrap(), before);
    one_transaction_replaces_them(&fast);
}

/// The fast commits stay until the commit record of a transaction of their number is there.
fn one_transaction_replaces_them(image: &Image) {
    let (bs, log, dev) = (
        block_size(image),
        LogMap::new(runs(image, "<8>")),
        device(image),
    );
    let blocks = Blocks::new(dev.len() / bs.bytes_u64());
    let collect = || recover_to_fast_commits(&*dev, bs, &log, blocks, 1 << 20).unwrap();
    let place = (&*dev as &dyn BlockDevice, bs, &log);
    let replace =
        |from: &dyn BlockDevice, changed: &[Pblk]| replace_fast_commits(place, from, changed);
    let count = || count_with_fast_commits(&*dev, bs, &log, 1 << 20).unwrap();
    let counted = count().unwrap();
    // Only behind a recovery, which leaves nothing else in the log.
    assert!(matches!(
        replace(&*dev, &[]),
        Err(JournalError::NeedsRecovery)
    ));
    let (first, commits) = collect();
    let commits = commits.unwrap();
    assert_eq!(
        counted,
        first.transactions + commits.records().count() as u64
    );
    let (again, same) = collect();
    assert_eq!((again.transactions, same), (0, Some(commits.clone())));
    let target = Pblk::new(blocks.get() - 1);
    let copy = CowDevice::new(Arc::clone(&dev));
    let at = bs.dev_off(target).unwrap();
    // It looks like a block of the log, and is escaped there.
    copy.write_at(at, &[0xc0, 0x3b, 0x39, 0x98, 7]).unwrap();
    let all: Vec<Pblk> = (0..blocks.get()).map(Pblk::new).collect();
    let refused = replace(&copy, &all);
    assert!(matches!(
        refused,
        Err(JournalError::TransactionTooLarge { .. })
    ));
    assert_eq!(collect().1, Some(commits));
    replace(&copy, &[target]).unwrap();
    assert_eq!(count(), None);
    let (last, none) = collect();
    assert_eq!((last.transactions, last.replayed, none), (1, 1, None));
    let mut bytes = [0; 5];
    dev.read_at(at, &mut bytes).unwrap();
    assert_eq!(bytes, [0xc0, 0x3b, 0x39, 0x98, 7]);
    assert!(collect().0.was_clean);
}

/// Gives the journal's superblock checksums of version 2, which no tool sets any more.
fn force_v2(image: &Image) {
    let bs = block_size(image);
    let start = LogMap::new(runs(image, "<8>")).block(0).unwrap();
    image
        .patch(start.get() * bs.bytes_u64(), 1024, |sb| {
            sb[0x2b] |= 8;
            sb[0x50] = 4;
            sb[0xfc..0x100].fill(0);
            let sum = Crc32c::START.feed(sb).raw();
            sb[0xfc..0x100].copy_from_slice(&sum.to_be_bytes());
        })
        .unwrap();
}

/// Journals the blocks of a file as if they were metadata, frees some and writes data there, then
/// "crashes".
fn written_here(mke2fs: &str, v2: bool, config: &Config) -> (Image, Vec<u8>) {
    let image = Image::of_mib(32).args(mke2fs).make().unwrap();
    if v2 {
        force_v2(&image);
    }
    let bs = block_size(&image);
    let blocks = 300;
    let zeroes = extant_testkit::TempDir::new("zeroes").unwrap();
    let source = zeroes.join("file");
    std::fs::write(&source, vec![1; blocks * bs.bytes()]).unwrap();
    image
        .debugfs_write(&format!("write {} file", source.display()))
        .unwrap();
    let home: Vec<Pblk> = runs(&image, "/file")
        .into_iter()
        .flat_map(|(start, len)| (0..u64::from(len)).map(move |i| start.checked_add(i).unwrap()))
        .collect();
    assert_eq!(home.len(), blocks);
    let log = LogMap::new(runs(&image, "<8>"));
    let dev = device(&image);
    // The log has room for all of it: no checkpoint runs before the crash.
    let cache = BlockCache::new(dev.clone(), bs, 4 << 20);
    let journal = Journal::open(cache.clone(), dev.clone(), log, config.clone()).unwrap();
    let mut wanted = vec![1; blocks * bs.bytes()];
    for round in 2u8..10 {
        let mut handle = journal.start_with_revokes(60, 50).unwrap();
        for (i, &p) in home.iter().enumerate().skip(usize::from(round)).step_by(6) {
            let block = cache.read_unchecked(p).unwrap();
            let content = &mut wanted[i * bs.bytes()..(i + 1) * bs.bytes()];
            content.fill(round);
            if i % 5 == 0 {
                // Begins like a header of the log.
                content[..4].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98]);
            }
            handle
                .modify(&block, |bytes| bytes.copy_from_slice(content))
                .unwrap();
        }
        let tid = handle.tid();
        drop(handle);
        journal.commit(tid).unwrap();
    }
    let mut handle = journal.start_with_revokes(1, 50).unwrap();
    for &p in home.iter().step_by(7) {
        handle.forget(p).unwrap();
    }
    let tid = handle.tid();
    drop(handle);
    journal.commit(tid).unwrap();
    for (i, &p) in home.iter().enumerate().step_by(7) {
        let content = &mut wanted[i * bs.bytes()..(i + 1) * bs.bytes()];
        content.fill(0xda);
        dev.write_at(bs.dev_off(p).unwrap(), content).unwrap();
    }
    assert!(journal.stats().revokes > 30, "{:?}", journal.stats());
    assert_eq!(journal.stats().blocks_checkpointed, 0);
    journal.abort("the test crashes here");
    drop(journal);
    drop(cache);
    drop(dev);
    image.debugfs_write("feature needs_recovery").unwrap();
    (image, wanted)
}

#[test]
fn logs_written_here_are_replayed_by_e2fsck_and_linux() {
    if !need(ALL) {
        return;
    }
    let plain = Config {
        checksums: false,
        ..Config::default()
    };
    let variants = [
        ("-b 1024", false, Config::default(), Checksums::V3),
        ("-b 4096", false, Config::default(), Checksums::V3),
        (
            "-b 4096 -O ^metadata_csum,^64bit",
            false,
            plain.clone(),
            Checksums::None,
        ),
        ("-b 1024 -O ^metadata_csum", true, plain, Checksums::V2),
    ];
    for (mke2fs, v2, config, checksums) in variants {
        let (image, wanted) = written_here(mke2fs, v2, &config);
        let what = format!("{mke2fs} {checksums:?}");
        let log = LogMap::new(runs(&image, "<8>"));
        let superblock = inspect(&*device(&image), block_size(&image), &log).unwrap();
        assert_eq!(superblock.format().checksums, checksums, "{what}");
        let (linux, e2fsck) = (image.copy().unwrap(), image.copy().unwrap());

        e2fsck.fsck_replay().unwrap();
        e2fsck.fsck_clean().unwrap();
        let dump = e2fsck.path().with_extension("dump");
        e2fsck
            .debugfs(&format!("dump /file {}", dump.display()))
            .unwrap();
        assert!(std::fs::read(&dump).unwrap() == wanted, "{what}: e2fsck");

        let mount = Subject::Ext4.mount(linux.path(), "").unwrap();
        assert!(
            std::fs::read(mount.dir().join("file")).unwrap() == wanted,
            "{what}: Linux"
        );
        mount.unmount().unwrap();

        let recovery = replay(&image).unwrap();
        assert_eq!(recovery.transactions, 9, "{what}");
        assert_eq!(difference(&image, &e2fsck), None, "{what}");
    }
}
