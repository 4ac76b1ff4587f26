//! Journals on devices of their own, and volumes that use one.

use std::fs::File;
use std::path::Path;

use extant_mkfs::{ExternalJournal, Options, make, make_journal, parse_features};
use extant_testkit::{
    Cmd, Context, LoopDevice, Need, Result, Subject, TempDir, bail, ensure, need,
};

use crate::case::Case;
use crate::{MIB, difference};

/// Sizes and arguments of journals.
const JOURNALS: &[(u64, &str)] = &[
    (8 * MIB, "-O journal_dev"),
    (8 * MIB, "-O journal_dev -b 1024"),
    (8 * MIB, "-O journal_dev -b 4096 -L log"),
    (16 * MIB, "-O journal_dev,^metadata_csum -b 2048"),
    (64 * MIB, "-O journal_dev -b 16384 -I 512"),
    (128 * MIB, "-O journal_dev -b 65536"),
    (1024 * MIB, "-O journal_dev"),
    // Too short for 1024 blocks.
    (MIB - 4096, "-O journal_dev -b 1024"),
    (2 * MIB, "-O journal_dev -b 4096"),
];

#[test]
fn journals_on_devices_of_their_own() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let dir = TempDir::new("mkfs")?;
    let mut made = 0;
    for &(size, args) in JOURNALS {
        let case = Case::new(size, args);
        let (ours, theirs) = (dir.join("ours.img"), dir.join("theirs.img"));
        for path in [&ours, &theirs] {
            let _ = std::fs::remove_file(path);
        }
        let refused = case.by_mke2fs(&theirs)?.is_some();
        let done = make_journal(&ours, Some(size), &case.options()?);
        ensure!(done.is_err() == refused, "{case}: {done:?}");
        if refused {
            ensure!(!ours.exists(), "{case}: a file was left behind");
            continue;
        }
        let found = difference::find(&ours, &theirs)?;
        ensure!(found.is_empty(), "{case}: {}", found.join("\n"));
        made += 1;
    }
    ensure!(made == JOURNALS.len() - 2, "{made} were made");
    Ok(())
}

/// A journal that mke2fs has made, twice, on loop devices.
fn journals(dir: &TempDir, args: &str) -> Result<[std::path::PathBuf; 2]> {
    let paths = ["one.log", "two.log"].map(|name| dir.join(name));
    for path in &paths {
        let _ = std::fs::remove_file(path);
        let refused = Case::new(16 * MIB, args).by_mke2fs(path)?;
        ensure!(refused.is_none(), "{refused:?}");
    }
    Ok(paths)
}

/// Volume and journal are the same as by mke2fs, but for the number of the device.
#[test]
fn volumes_with_such_a_journal() -> Result<()> {
    if !need(&[Need::Tool("mke2fs"), Need::Root, Need::Loop]) {
        return Ok(());
    }
    let dir = TempDir::new("mkfs")?;
    for (journal, args) in [
        ("-O journal_dev -b 4096", "-N 500"),
        ("-O journal_dev -b 1024", "-O orphan_file,^metadata_csum"),
        ("-O journal_dev -b 2048,", "-b 2048 -O ^extent,^64bit"),
    ] {
        let journal = journal.trim_end_matches(',');
        let [one, two] = journals(&dir, journal)?;
        let (ours, theirs) = (dir.join("ours.img"), dir.join("theirs.img"));
        for path in [&ours, &theirs] {
            let _ = std::fs::remove_file(path);
        }
        // The number of the device is in the volume: the same device for both, all the time.
        let shared = dir.join("journal");
        std::fs::copy(&two, &shared)?;
        let device = LoopDevice::over(&shared, 512)?;
        let name = format!("{args} -J device={}", device.path().display());
        let refused = Case::new(64 * MIB, &name).by_mke2fs(&theirs)?;
        ensure!(refused.is_none(), "{refused:?}");
        let number = ExternalJournal::open(device.path()).map(drop);
        ensure!(number.is_err(), "{args}: a journal with a user was taken");
        std::fs::write(&two, std::fs::read(device.path())?)?;
        std::fs::write(device.path(), std::fs::read(&one)?)?;
        let mut options = Case::new(64 * MIB, args).options()?;
        options.external_journal = Some(ExternalJournal::open(device.path())?);
        make(&ours, Some(64 * MIB), &options)?;
        std::fs::write(&one, std::fs::read(device.path())?)?;
        for (what, ours, theirs) in [("volume", &ours, &theirs), ("journal", &one, &two)] {
            let found = difference::find(ours, theirs)?;
            ensure!(found.is_empty(), "{args}, {what}: {}", found.join("\n"));
        }
        is_good(&ours, device.path()).context(|| args.to_owned())?;
    }
    Ok(())
}

/// e2fsck finds nothing, and Linux writes the volume by the number of the device alone.
fn is_good(volume: &Path, journal: &Path) -> Result<()> {
    let e2fsck = Cmd::new("e2fsck").args(["-f", "-n", "-j"]);
    e2fsck.arg(journal).arg(volume).ok()?;
    let mount = Subject::Ext4.mount(volume, "")?;
    std::fs::write(mount.join("file"), b"written")?;
    mount.unmount()?;
    let e2fsck = Cmd::new("e2fsck").args(["-f", "-n", "-j"]);
    e2fsck.arg(journal).arg(volume).ok()?;
    Ok(())
}

/// Nothing is written where a journal cannot be used, or where options go against each other.
#[test]
fn journals_that_cannot_be_used() -> Result<()> {
    let dir = TempDir::new("mkfs")?;
    let (log, other) = (dir.join("log"), dir.join("other"));
    let journal_dev = parse_features("journal_dev")?;
    let options = Options {
        features: journal_dev.clone(),
        block_size: Some(1024),
        ..Options::default()
    };
    make_journal(&log, Some(4 * MIB), &options)?;
    File::create(&other)?.set_len(4 * MIB)?;
    let refused = ExternalJournal::open(&other)
        .err()
        .map(|error| error.to_string());
    ensure!(
        refused
            .as_ref()
            .is_some_and(|why| why.contains("it holds no journal")),
        "{refused:?}"
    );
    let journal = Some(ExternalJournal::open(&log)?);
    let volume = dir.join("volume");
    let of = |change: &dyn Fn(&mut Options)| {
        let mut options = Options {
            external_journal: journal.clone(),
            ..Options::default()
        };
        change(&mut options);
        let made = make(&volume, Some(16 * MIB), &options);
        made.err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    let before = std::fs::read(&log)?;
    for (why, change) in [
        (
            "its blocks have 1024",
            &(|o: &mut Options| o.block_size = Some(4096)) as &dyn Fn(&mut Options),
        ),
        ("has the size of that", &|o| o.journal_mib = Some(4)),
        ("needs has_journal", &|o| {
            o.features = parse_features("^has_journal").unwrap()
        }),
        ("and no file system", &|o| {
            o.features = parse_features("journal_dev").unwrap()
        }),
    ] {
        let said = of(change);
        ensure!(said.contains(why), "{why}: {said}");
        ensure!(!volume.exists(), "{why}: a file was left behind");
        ensure!(
            std::fs::read(&log)? == before,
            "{why}: the journal was written"
        );
    }
    ensure!(of(&|_| {}).is_empty(), "not made");
    // It has a user now: another one is refused, also if the journal was looked at before.
    std::fs::remove_file(&volume)?;
    let said = of(&|_| {});
    ensure!(said.contains("another volume"), "{said}");
    if volume.exists() {
        bail!("a volume without a journal was left behind");
    }
    Ok(())
}
