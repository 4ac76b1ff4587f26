//! The oracle: what a recovered volume must and must not show.

use std::path::Path;
use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_check::{CheckOptions, check};
use extant_testkit::crash::{CrashState, Window};
use extant_testkit::{Image, LoopDevice, Subject};
use extant_units::DevOff;

use crate::ledger::{Claim, Ledger, SECTOR, Sector, index};
use crate::run::{FILLER, SEALED, attr_value};
use crate::setups::Setup;
use crate::view::{ByExtant, ByLinux, View};

/// Judges the states of one run.
pub(crate) struct Judge<'a> {
    setup: &'a Setup,
    ledger: &'a Ledger,
    /// How each file may begin, unless its size outran its data.
    beginnings: Vec<([u8; 8], u64)>,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(setup: &'a Setup, ledger: &'a Ledger) -> Self {
        let mut beginnings = Vec::new();
        for (id, file) in &ledger.files {
            for version in file.ever.first().into_iter().flatten() {
                let first = file.bytes(*id, *version, 0, 8);
                beginnings.push((first.try_into().unwrap_or_default(), *id));
            }
        }
        Self {
            setup,
            ledger,
            beginnings,
        }
    }

    /// Recovered by Extant, a state holds what was promised, shows nothing that was not written,
    /// and checks clean.
    pub(crate) fn by_extant(&self, state: &CrashState) -> Result<(), String> {
        let (device, journal) = self.devices(state);
        let mut options = self.setup.options();
        if let Some(journal) = journal {
            options.journal_device(journal);
        }
        let volume = options.open_on(device);
        let volume = volume.map_err(|error| format!("mount: {error}"))?;
        let root = self.setup.top(&volume);
        let root = root.map_err(|error| format!("root: {error}"))?;
        let view = ByExtant {
            volume: &volume,
            root,
        };
        self.contents(&view, state.completed)?;
        for path in view.files()?.iter().filter(|path| path.starts_with(SEALED)) {
            view.is_sealed_or_plain(path)?;
        }
        drop(view);
        let unmounted = volume.unmount();
        unmounted.map_err(|error| format!("unmount: {error}"))?;
        self.by_checker(state, true)
    }

    /// The device of the volume, and that of a journal that is not in it.
    fn devices(&self, state: &CrashState) -> (Arc<dyn BlockDevice>, Option<Arc<dyn BlockDevice>>) {
        let Some(border) = self.setup.border().map(DevOff::new) else {
            return (state.device.clone(), None);
        };
        let end = DevOff::new(state.device.len());
        let window = |part| Arc::new(Window::new(state.device.clone(), part));
        (window(DevOff::ZERO..border), Some(window(border..end)))
    }

    /// The same as files.
    fn images(&self, state: &CrashState) -> extant_testkit::Result<(Image, Option<Image>)> {
        let Some(border) = self.setup.border() else {
            return Ok((state.image()?, None));
        };
        let bytes = state.bytes()?;
        let (volume, journal) = bytes.split_at(index(border));
        let journal = Image::of_bytes(journal)?;
        let volume = Image::of_bytes(volume)?.with_journal(journal.path());
        Ok((volume, Some(journal)))
    }

    /// `extant check` finds nothing, with or without a journal to replay. Of a volume that was
    /// unmounted, the totals in the superblock are right as well.
    pub(crate) fn by_checker(&self, state: &CrashState, unmounted: bool) -> Result<(), String> {
        let (device, journal) = self.devices(state);
        // Not by default, which asks how many cores there are: that takes longer than some states.
        let options = CheckOptions {
            threads: 1,
            max_findings: 10,
            replay_bytes: None,
            journal: journal.as_ref(),
            progress: None,
        };
        let report = check(device, &options);
        let report = report.map_err(|error| format!("check: {error}"))?;
        let notes = report.notes.first().filter(|_| unmounted);
        match report.findings.first().or(notes) {
            Some(finding) => Err(format!("check: {finding}")),
            None => Ok(()),
        }
    }

    /// After e2fsck's own replay e2fsck finds nothing.
    pub(crate) fn by_e2fsck(&self, state: &CrashState) -> Result<(), String> {
        let images = self.images(state).map_err(|error| error.to_string())?;
        let (image, _journal) = images;
        match image.fsck_replay().map_err(|error| error.to_string()) {
            // It frees an orphan's block of attributes, and forgets the values that the entries in
            // there have in inodes of their own (1.47).
            Err(said)
                if said.contains("Clearing orphaned") && said.contains("Unattached inode") =>
            {
                return Ok(());
            }
            // It takes a block for each cluster of an orphan off the usage of its owner (1.47).
            Err(said)
                if said.contains("Clearing orphaned")
                    && said.contains("Update quota info")
                    && has_clusters(image.path()) => {}
            replayed => replayed?,
        }
        image.fsck_clean().map_err(|error| error.to_string())
    }

    /// Recovered by Linux, a state holds the same, and e2fsck finds nothing.
    pub(crate) fn by_linux(&self, state: &CrashState) -> Result<(), String> {
        let why = |error: extant_testkit::Error| format!("Linux: {error}");
        let (image, journal) = self.images(state).map_err(why)?;
        let device = journal.as_ref().map(|of| LoopDevice::over(of.path(), 512));
        let device = device.transpose().map_err(why)?;
        let options = device.as_ref().map_or(String::new(), |device| {
            format!("journal_path={}", device.path().display())
        });
        let mount = Subject::Ext4.mount(image.path(), &options);
        let mount = mount.map_err(why)?;
        let view = ByLinux {
            root: self.setup.top_by_linux(mount.dir()).map_err(why)?,
        };
        let contents = self.contents(&view, state.completed);
        contents.map_err(|error| format!("Linux: {error}"))?;
        mount.unmount().map_err(why)?;
        drop(device);
        image.fsck_clean().map_err(why)
    }

    fn contents(&self, view: &dyn View, completed: usize) -> Result<(), String> {
        for promise in self.ledger.due(completed) {
            let mut broken = Vec::new();
            for claim in &promise.any {
                match self.holds(view, claim) {
                    Ok(()) => {
                        broken.clear();
                        break;
                    }
                    Err(why) => broken.push(format!("{claim}: {why}")),
                }
            }
            if !broken.is_empty() {
                let from = promise.from;
                return Err(format!("promised at {from}: {}", broken.join("; or ")));
            }
        }
        for path in view.files()?.iter().filter(|path| *path != FILLER) {
            self.nothing_stale(view, path)?;
        }
        Ok(())
    }

    /// Every byte of the file is one that was written to it.
    fn nothing_stale(&self, view: &dyn View, path: &str) -> Result<(), String> {
        let content = view.read(path)?;
        let content = content.ok_or_else(|| format!("{path} is listed, but not there"))?;
        if content.is_empty() || self.setup.old_contents {
            return Ok(());
        }
        let known = content.len().min(8);
        let zeros = content[..known].iter().all(|b| *b == 0);
        let likely: Vec<u64> = self
            .beginnings
            .iter()
            .filter(|(first, id)| {
                // What a truncation is about to cut off is zero before the size says so.
                let cut_at = |cut: &u64| {
                    let kept = index(*cut).min(known);
                    first[..kept] == content[..kept]
                        && content[kept..known].iter().all(|byte| *byte == 0)
                };
                first[..known] == content[..known]
                    || self.ledger.file(*id).ever_cut.iter().any(cut_at)
                    || (self.setup.early_sizes && zeros)
            })
            .map(|(_, id)| *id)
            .collect();
        let fits = |id: u64| {
            let file = self.ledger.file(id);
            content.len() as u64 <= file.longest
                && self
                    .compare(id, &file.ever, &file.ever_cut, 0, &content)
                    .is_ok()
        };
        if likely.iter().any(|id| fits(*id)) {
            return Ok(());
        }
        // Say what is wrong with each of them.
        let differences = likely.iter().map(|id| {
            let file = self.ledger.file(*id);
            let differs = self.compare(*id, &file.ever, &file.ever_cut, 0, &content);
            let why = differs.err().unwrap_or_else(|| "its length".into());
            format!("as file {id}, {why}")
        });
        let why = match likely.is_empty() {
            true => format!("it begins with {:02x?}", &content[..known]),
            false => differences.collect::<Vec<_>>().join("; "),
        };
        Err(format!(
            "{path} of {} bytes shows what was never written: {why}",
            content.len()
        ))
    }

    /// Returns whether a claim holds.
    fn holds(&self, view: &dyn View, claim: &Claim) -> Result<(), String> {
        match claim {
            Claim::Holds {
                path,
                file,
                min,
                max,
                cuts,
                allowed,
            } => {
                let content = view.read(path)?.ok_or("it is not there")?;
                if !(*min..=*max).contains(&(content.len() as u64)) {
                    return Err(format!("it has {} bytes", content.len()));
                }
                self.compare(*file, allowed, cuts, *min, &content)
            }
            Claim::Attr {
                path, key, allowed, ..
            } => {
                let value = view.attr(path, key)?;
                let fits = |seed: &Option<u64>| seed.map(attr_value) == value;
                if allowed.iter().any(fits) {
                    return Ok(());
                }
                Err(format!("it is {:?}", value.map(|value| value.len())))
            }
            Claim::Space { path, least, .. } => match view.space(path)? {
                Some(space) if space >= *least => Ok(()),
                space => Err(format!("it has {space:?}")),
            },
            Claim::Gone { path } => match view.read(path)? {
                None => Ok(()),
                Some(_) => Err("it is there".into()),
            },
        }
    }

    /// Returns whether each sector of `content` has one of its versions, or is zeroed from a cut
    /// on. Where sizes may outrun data, bytes behind the `durable` ones may be zero as well.
    fn compare(
        &self,
        file: u64,
        allowed: &[Vec<Sector>],
        cuts: &[u64],
        durable: u64,
        content: &[u8],
    ) -> Result<(), String> {
        let unit = self.setup.zeroed_unit();
        for (at, sector) in (0..).zip(content.chunks(index(SECTOR))) {
            let pos = at * SECTOR;
            let versions = allowed.get(index(at)).map_or(&[][..], Vec::as_slice);
            let end = pos + sector.len() as u64;
            let fits = |version: Sector| {
                let whole = self.ledger.file(file).bytes(file, version, pos, end - pos);
                let cut_at = |cut: &u64| {
                    let near = *cut < end && pos / unit == cut / unit;
                    let kept = index(cut.saturating_sub(pos)).min(sector.len());
                    near && whole[..kept] == sector[..kept]
                        && sector[kept..].iter().all(|b| *b == 0)
                };
                let behind = || {
                    let kept = index(durable.saturating_sub(pos)).min(sector.len());
                    let mut rest = whole[kept..].iter().zip(&sector[kept..]);
                    whole[..kept] == sector[..kept]
                        && (self.setup.old_contents
                            || rest.all(|(want, got)| got == want || *got == 0))
                };
                whole == sector || cuts.iter().any(cut_at) || (self.setup.early_sizes && behind())
            };
            // A hole beside a write that shares its block: it may have been allocated, and show
            // what was there.
            let hole = self.setup.old_contents && versions.contains(&0);
            if !hole && !versions.iter().any(|version| fits(*version)) {
                let begin = &sector[..sector.len().min(4)];
                return Err(format!(
                    "bytes {pos}..{end} are {begin:02x?}.., not of version {versions:?}"
                ));
            }
        }
        Ok(())
    }
}

/// Returns whether the volume at `path` allocates in clusters.
fn has_clusters(path: &Path) -> bool {
    let info = extant_engine::ImageInfo::read(path);
    info.is_ok_and(|info| info.cluster_size > info.block_size)
}
