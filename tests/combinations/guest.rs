//! Debian's kernel, in a virtual machine, as Linux's side: it knows features that few kernels know.
//!
//! This program is the one that runs there. It comes with the images of a batch on one volume, does
//! with each what a plan says, and leaves listings beside them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use extant_testkit::{Cmd, Context, Image, Result, Subject, bail, tools};

use crate::draw::{Combination, Kernel};
use crate::listing::Listing;
use crate::storm::storm;
use crate::volume::{Key, is_sound, is_sound_after, made};

/// The variable that tells this program it runs there, and the folder of its work.
pub(super) const SIDE: &str = "EXTANT_GUEST_SIDE";

/// Programs that storms and listings run.
const TOOLS: [&str; 4] = ["xfs_io", "chattr", "lsattr", "fsverity"];

/// Lines of the kernel's log that are shown with a failure.
const KERNEL_LINES: usize = 8;

/// How often something came about.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) volumes: u64,
    /// Volumes that Linux left with a wrong count of blocks.
    pub(super) miscounted: u64,
    pub(super) entries: usize,
    pub(super) folding: usize,
    pub(super) sealed: usize,
    pub(super) of_projects: usize,
}

/// A volume of the batch.
struct Row {
    drawn: Combination,
    image: Image,
    /// The tree as Extant shows it.
    shown: Listing,
}

/// Steps in the virtual machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Job {
    Storm,
    Show,
}

/// A listing of each of the job's two moments; the second is the first if no storm was between.
type Listings = [Listing; 2];

/// Storms by Extant, by Debian's kernel, and by Extant again on the volumes of the seeds. Failures
/// are added to `wrong`.
pub(super) fn batch(
    seeds: impl Iterator<Item = u64>,
    (key, counts): (&Key, &mut Counts),
    wrong: &mut Vec<String>,
) -> Result<()> {
    let mut rows = Vec::new();
    for seed in seeds {
        let drawn = Combination::drawn(seed, Kernel::Debian);
        let told = drawn.to_string();
        match first_storm(drawn, key).context(|| told) {
            Ok(None) => continue,
            Ok(Some(row)) => rows.push(row),
            Err(error) => wrong.push(error.to_string()),
        }
        counts.volumes += 1;
    }
    for job in [Job::Storm, Job::Show] {
        let answers = boot(&rows, job)?;
        let mut left = Vec::new();
        for (mut row, answer) in rows.into_iter().zip(answers) {
            let judged = answer.and_then(|answer| judge(&mut row, key, (job, answer)));
            match judged.context(|| row.drawn.to_string()) {
                Ok(true) => left.push(row),
                Ok(false) => counts.miscounted += 1,
                Err(error) => wrong.push(error.to_string()),
            }
        }
        rows = left;
    }
    for row in rows {
        counts.entries += row.shown.len();
        counts.folding += row.shown.count('F');
        counts.sealed += row.shown.count('V');
        counts.of_projects += row.shown.count('P');
    }
    Ok(())
}

fn first_storm(drawn: Combination, key: &Key) -> Result<Option<Row>> {
    let Some(image) = made(&drawn)? else {
        return Ok(None);
    };
    is_sound(&image)?;
    let shown = storm_here(&drawn, &image, key, ("extant", 0))?;
    Ok(Some(Row {
        drawn,
        image,
        shown,
    }))
}

/// A storm by Extant; the tree that it then shows.
fn storm_here(
    drawn: &Combination,
    image: &Image,
    key: &Key,
    (by, number): (&'static str, u64),
) -> Result<Listing> {
    let mount = key.mount(Subject::Extant, image.path(), (drawn, ""))?;
    storm(mount.dir(), by, drawn, number)?;
    mount.unmount()?;
    is_sound(image).context(|| format!("after the storm `{by}`"))?;
    key.shown_by(Subject::Extant, image.path(), drawn)
}

/// Judges what the virtual machine answered for a volume, and goes on with it. Returns false for
/// one that Linux left with a wrong count of blocks.
fn judge(row: &mut Row, key: &Key, (job, [before, after]): (Job, Listings)) -> Result<bool> {
    row.shown
        .expect_equal(&before)
        .context(|| "Extant's and Linux's view")?;
    if job == Job::Show {
        return Ok(true);
    }
    if !is_sound_after(Subject::Ext4, &row.image, &row.drawn)? {
        return Ok(false);
    }
    let shown = key.shown_by(Subject::Extant, row.image.path(), &row.drawn)?;
    after
        .expect_equal(&shown)
        .context(|| "Linux's and Extant's view")?;
    row.shown = storm_here(&row.drawn, &row.image, key, ("again", 2))?;
    Ok(true)
}

/// Has Debian's kernel do the job on all images in one boot. An answer for each.
fn boot(rows: &[Row], job: Job) -> Result<Vec<Result<Listings>>> {
    let carrier = Image::of_mib(4096).args("-O ^has_journal -m 0").make()?;
    let mount = Subject::Ext4.mount(carrier.path(), "")?;
    let work = mount.join("work");
    fs::create_dir(&work)?;
    let seeds = rows.iter().map(|row| format!("{}\n", row.drawn.seed));
    fs::write(work.join("seeds"), seeds.collect::<String>())?;
    if job == Job::Storm {
        fs::write(work.join("storm"), "")?;
    }
    let copy = |from: &Path, to: &Path| {
        let cp = Cmd::new("cp").arg("--sparse=always").arg(from).arg(to);
        cp.ok().map(drop)
    };
    for row in rows {
        copy(row.image.path(), &file_of(&work, &row.drawn, "image"))?;
    }
    let program = std::env::current_exe()?;
    let loader = bring(&program, &mount.join("tools"))?;
    mount.unmount()?;

    let name = program
        .file_name()
        .unwrap_or_default()
        .display()
        .to_string();
    let script = carrier.path().with_file_name("script");
    fs::write(&script, in_the_guest(&loader, &name))?;
    let guest = Cmd::new(tools::workspace().join("scripts/guest"));
    let guest = guest.arg(carrier.path()).arg(script);
    let guest = guest
        .env("GUEST_SECONDS", "1800")
        .limit(Duration::from_secs(1900));
    guest.ok()?;

    let mount = Subject::Ext4.mount(carrier.path(), "ro")?;
    let work = mount.join("work");
    let mut answers = Vec::new();
    for row in rows {
        copy(&file_of(&work, &row.drawn, "image"), row.image.path())?;
        answers.push(answer(&work, &row.drawn));
    }
    mount.unmount()?;
    Ok(answers)
}

/// A file that has to do with a volume.
fn file_of(work: &Path, drawn: &Combination, what: &str) -> PathBuf {
    work.join(format!("{}.{what}", drawn.seed))
}

fn answer(work: &Path, drawn: &Combination) -> Result<Listings> {
    let text = |what| fs::read_to_string(file_of(work, drawn, what)).context(|| what);
    if let Ok(error) = text("error") {
        bail!("in the virtual machine: {error}");
    }
    Ok([text("before")?, text("after")?].map(|text| Listing::of_text(&text)))
}

/// Copies this program and the tools to a folder, with the libraries that they need; the path of
/// their loader.
fn bring(program: &Path, to: &Path) -> Result<PathBuf> {
    let (bin, lib) = (to.join("bin"), to.join("lib"));
    for dir in [&bin, &lib] {
        fs::create_dir_all(dir)?;
    }
    let found = TOOLS.iter().filter_map(|tool| tools::find(tool));
    let mut loader = None;
    for program in found.chain([program.to_owned()]) {
        tools::copy_program(&program, &bin)?;
        let libraries = Cmd::new("ldd").arg(&program).ok()?.out;
        let paths = libraries
            .split_whitespace()
            .filter(|word| word.starts_with('/'));
        for path in paths.map(Path::new) {
            tools::copy_program(path, &lib)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("ld-") {
                loader = Some(path.to_owned());
            }
        }
    }
    match loader {
        Some(loader) => Ok(loader),
        None => bail!("no loader among the libraries"),
    }
}

/// The script that runs this program there.
fn in_the_guest(loader: &Path, program: &str) -> String {
    let dir = loader.parent().unwrap_or(Path::new("/")).display();
    let name = loader.file_name().unwrap_or_default().display();
    format!(
        "set -e\n\
         mkdir -p /tmp {dir} /carrier\n\
         mount -t ext4 /dev/vda /carrier\n\
         ln -s /carrier/tools/lib/{name} {dir}/{name}\n\
         export PATH=/carrier/tools/bin:/bin LD_LIBRARY_PATH=/carrier/tools/lib\n\
         export EXTANT_TMP=/tmp {SIDE}=/carrier/work\n\
         {program} --exact in_the_virtual_machine --nocapture\n\
         umount /carrier\n"
    )
}

/// Does what the plan in `work` says, there.
pub(super) fn linux_side(work: &Path) -> Result<()> {
    let storms = work.join("storm").exists();
    let key = Key::new()?;
    for seed in fs::read_to_string(work.join("seeds"))?.lines() {
        let drawn = Combination::drawn(seed.parse()?, Kernel::Debian);
        if let Err(error) = linux_side_of(&drawn, work, (&key, storms)) {
            let said = Cmd::new("dmesg").ok()?.out;
            let last = said.lines().rev().take(KERNEL_LINES).collect::<Vec<_>>();
            let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
            let text = format!("{error}\nthe kernel's last lines:\n{last}");
            fs::write(file_of(work, &drawn, "error"), text)?;
        }
    }
    Ok(())
}

fn linux_side_of(drawn: &Combination, work: &Path, (key, storms): (&Key, bool)) -> Result<()> {
    let image = file_of(work, drawn, "image");
    let look = |name| -> Result<()> {
        let shown = key.shown_by(Subject::Ext4, &image, drawn)?;
        fs::write(file_of(work, drawn, name), shown.text())?;
        Ok(())
    };
    look("before")?;
    if storms {
        let mount = key.mount(Subject::Ext4, &image, (drawn, ""))?;
        storm(mount.dir(), "linux", drawn, 1)?;
        mount.unmount()?;
    }
    look("after")
}
