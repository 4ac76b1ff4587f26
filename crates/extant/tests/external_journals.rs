//! Volumes whose journal is on another device: checked, repaired and resized with it.

use std::path::PathBuf;
use std::sync::Arc;

use extant::device::{BlockDevice, FileDevice, OpenMode};
use extant::mkfs::{self, ExternalJournal};
use extant::resize::{ResizeOptions, Target, resize_image};
use extant::{CheckOptions, FixOptions, Options, check_image, fix_image};
use extant_testkit::{Cmd, Error, Need, Result, TempDir, ensure, need};

fn told(error: impl std::fmt::Display) -> Error {
    Error::new(error.to_string())
}

/// A volume and its journal, in files.
struct Pair {
    _dir: TempDir,
    volume: PathBuf,
    journal: PathBuf,
}

impl Pair {
    fn make() -> Result<Self> {
        let dir = TempDir::new("pair")?;
        let (volume, journal) = (dir.join("volume"), dir.join("journal"));
        let of_journal = mkfs::Options {
            features: mkfs::parse_features("journal_dev")?,
            block_size: Some(4096),
            ..mkfs::Options::default()
        };
        mkfs::make_journal(&journal, Some(8 << 20), &of_journal)?;
        let of_volume = mkfs::Options {
            external_journal: Some(ExternalJournal::open(&journal)?),
            ..mkfs::Options::default()
        };
        mkfs::make(&volume, Some(32 << 20), &of_volume)?;
        Ok(Self {
            _dir: dir,
            volume,
            journal,
        })
    }

    fn device(&self, mode: OpenMode) -> Result<Arc<dyn BlockDevice>> {
        Ok(Arc::new(FileDevice::open(&self.journal, mode)?))
    }

    /// Writes files; the log holds what was done to names, behind a transaction as `fast_commit`
    /// has it, and an orphan waits.
    fn dirty(&self) -> Result<()> {
        let options = format!("journal_path={}", self.journal.display());
        let mut how = Options::new();
        how.write(true).mount_options(&options);
        let fs = how.open(&self.volume)?;
        for number in 0..40 {
            fs.write(format!("/file{number}"), vec![number; 9000])?;
        }
        let held = fs.open_file("/file7")?;
        fs.remove_file("/file7")?;
        fs.sync()?;
        for number in 0..3 {
            let late = fs.create(format!("/late{number}"))?;
            late.append(&[number; 3000])?;
            late.sync_all()?;
        }
        fs.volume().shutdown(false)?;
        drop(held);
        Ok(())
    }

    fn debugfs(&self, request: &str) -> Result<()> {
        let debugfs = Cmd::new("debugfs").args(["-w", "-R", request]);
        debugfs.arg(&self.volume).ok().map(drop)
    }

    fn bytes(&self) -> Result<[Vec<u8>; 2]> {
        Ok([std::fs::read(&self.volume)?, std::fs::read(&self.journal)?])
    }

    fn fsck(&self) -> Result<()> {
        let e2fsck = Cmd::new("e2fsck").args(["-f", "-n", "-j"]);
        e2fsck.arg(&self.journal).arg(&self.volume).ok()?;
        Ok(())
    }

    /// Names of the root, and the bytes of a file.
    fn content(&self) -> Result<(usize, Vec<u8>)> {
        let options = format!("journal_path={}", self.journal.display());
        let fs = Options::new().mount_options(&options).open(&self.volume)?;
        let names = fs.read_dir("/")?.count();
        Ok((names, fs.read("/file9")?))
    }
}

fn options(journal: Option<&Arc<dyn BlockDevice>>) -> CheckOptions<'_> {
    CheckOptions {
        journal,
        ..CheckOptions::default()
    }
}

#[test]
fn a_log_elsewhere_is_replayed_by_check_fix_and_resize() -> Result<()> {
    if !need(&[Need::Tool("e2fsck")]) {
        return Ok(());
    }
    replayed(&Pair::make()?)
}

#[test]
fn fast_commits_elsewhere_are_replayed_by_check_fix_and_resize() -> Result<()> {
    if !need(&[Need::Tool("e2fsck"), Need::Tool("debugfs")]) {
        return Ok(());
    }
    let pair = Pair::make()?;
    pair.debugfs("feature fast_commit")?;
    replayed(&pair)
}

fn replayed(pair: &Pair) -> Result<()> {
    pair.fsck()?;
    // Nothing waits: the journal is not needed.
    let clean = check_image(&pair.volume, &options(None))?;
    ensure!(clean.is_clean() && clean.notes.is_empty(), "{clean:?}");
    pair.dirty()?;
    let (right, before) = (pair.content()?, pair.bytes()?);
    ensure!(right.0 > 39 && right.1 == vec![9; 9000], "{}", right.0);

    let without = check_image(&pair.volume, &options(None))
        .map(drop)
        .map_err(told);
    let said = without
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    ensure!(said.contains("another device"), "{said}");
    let journal = pair.device(OpenMode::ReadOnly)?;
    let checked = check_image(&pair.volume, &options(Some(&journal)))?;
    ensure!(checked.is_clean() && checked.replayed > 0, "{checked:?}");
    let mut notes = checked.notes.iter().map(|note| note.to_string());
    ensure!(!notes.any(|note| note.contains("journal")), "{checked:?}");
    let dry = FixOptions {
        dry_run: true,
        check: options(Some(&journal)),
        ..FixOptions::default()
    };
    let report = fix_image(&pair.volume, &dry)?;
    ensure!(report.is_clean() && report.replayed > 0, "{report:?}");
    ensure!(pair.bytes()? == before, "a look has written");
    drop(journal);

    let journal = pair.device(OpenMode::ReadWrite)?;
    let fix = FixOptions {
        check: options(Some(&journal)),
        ..FixOptions::default()
    };
    let report = fix_image(&pair.volume, &fix)?;
    ensure!(report.is_clean() && report.replayed > 0, "{report:?}");
    drop(journal);
    pair.fsck()?;
    ensure!(pair.content()? == right, "another content after the repair");

    pair.dirty()?;
    let right = pair.content()?;
    let journal = pair.device(OpenMode::ReadWrite)?;
    for mib in [64, 24] {
        let mut options = ResizeOptions::default();
        options.check.journal = Some(&journal);
        let report = resize_image(&pair.volume, Target::Bytes(mib << 20), &options)?;
        ensure!(report.bytes() == mib << 20, "{report:?}");
    }
    drop(journal);
    pair.fsck()?;
    ensure!(pair.content()? == right, "another content after the resize");
    Ok(())
}

/// Repairs are written without the journal.
#[test]
fn damage_beside_a_journal_elsewhere_is_repaired() -> Result<()> {
    if !need(&[Need::Tool("e2fsck"), Need::Tool("debugfs")]) {
        return Ok(());
    }
    let pair = Pair::make()?;
    for request in ["write /dev/null one", "sif one links_count 4", "freeb 1 2"] {
        pair.debugfs(request)?;
    }
    let report = fix_image(&pair.volume, &FixOptions::default())?;
    ensure!(report.is_clean() && report.fixed.len() > 1, "{report:?}");
    pair.fsck()
}

#[test]
fn devices_that_are_not_its_journal_are_refused() -> Result<()> {
    let (one, other) = (Pair::make()?, Pair::make()?);
    let before = one.bytes()?;
    let zeros = one.volume.with_extension("zeros");
    std::fs::write(&zeros, vec![0; 1 << 20])?;
    let open = |path: &PathBuf| FileDevice::open(path, OpenMode::ReadWrite);
    for (path, why) in [
        (&other.journal, "the journal of another volume"),
        (&other.volume, "holds no journal"),
        (&zeros, "holds no journal"),
    ] {
        let journal: Arc<dyn BlockDevice> = Arc::new(open(path)?);
        let checked = check_image(&one.volume, &options(Some(&journal)));
        let said = checked
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        ensure!(said.contains(why), "{why}: {said}");
        let mut resize = ResizeOptions::default();
        resize.check.journal = Some(&journal);
        let resized = resize_image(&one.volume, Target::Bytes(64 << 20), &resize);
        let said = resized
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        ensure!(said.contains(why), "{why}: {said}");
    }
    ensure!(one.bytes()? == before, "something was written");
    Ok(())
}
