//! Seconds of what users wait for at a mount: many small files, a listing, an archive, a clone.
//!
//! Each round of a variant begins on a fresh file system, which e2fsck checks at its end; rounds go
//! there and back again. Beside the time of a piece of work stands the processor time of the daemon
//! that serves it, and for Extant the requests of each item that callers waited for.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use extant_host::{Cmd, Need, Result, TempDir, ensure};

use super::source::Source;
use super::work::{create, unlink};
use crate::plan::{Bench, Plan, Size};
use crate::report::Run;
use crate::rows::{Rows, Unit};
use crate::target::{Host, Target};
use crate::variant::Variant;

/// The longest that a program of the host may take.
const LIMIT: Duration = Duration::from_secs(600);
/// MiB of the file systems.
const MIB: u64 = 3072;
/// Requests that no caller waits for.
const UNAWAITED: [&str; 4] = [
    "requests_forget",
    "requests_batch_forget",
    "requests_release",
    "requests_interrupt",
];

/// The work, in its order.
const WORK: [&str; 5] = ["create+write", "ls -l", "rm", "untar", "git clone"];
/// Figures that are measured of each call.
const FIGURES: [(&str, Unit); 3] = [
    ("", Unit::Milliseconds),
    ("/daemon", Unit::Milliseconds),
    ("/requests", Unit::RoundTrips),
];

/// The names of all cases.
pub(crate) fn names() -> impl Iterator<Item = String> {
    let figures = |work| FIGURES.iter().map(move |(what, _)| format!("{work}{what}"));
    WORK.into_iter().flat_map(figures)
}

/// An archive of a tree, and a repository that has the same.
struct Given {
    source: Source,
    repository: Option<(TempDir, PathBuf)>,
    /// Files of the one directory.
    files: u32,
}

impl Given {
    fn make(plan: &Plan, report: &mut Run) -> Result<Given> {
        let (files, tree) = match plan.size {
            Size::Tiny => (40, 60),
            Size::Quick => (2_500, 2_000),
            Size::Usual | Size::Full => (20_000, 8_900),
        };
        let source = Source::make(tree)?;
        let repository = match Need::Tool("git").missing() {
            Some(why) => {
                report.missing(format!("git clone: {why}"));
                None
            }
            None => Some(repository(&source)?),
        };
        Ok(Given {
            source,
            repository,
            files,
        })
    }
}

/// A repository with one commit of the tree, in one pack.
fn repository(source: &Source) -> Result<(TempDir, PathBuf)> {
    let dir = TempDir::new("repository")?;
    let archive = source.archive();
    let tar = Cmd::new("tar").arg("-xf").arg(archive).arg("-C");
    tar.arg(dir.path()).ok()?;
    let tree = dir.join("tree");
    let git = |words: &[&str]| {
        let name = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
        let cmd = Cmd::new("git").arg("-C").arg(&tree).args(name);
        cmd.args(words).limit(LIMIT).ok()
    };
    git(&["init", "-q"])?;
    git(&["add", "."])?;
    git(&["commit", "-q", "-m", "tree"])?;
    git(&["repack", "-a", "-d", "-q"])?;
    Ok((dir, tree))
}

/// Measures `variants`, those of them that are mounts.
pub(crate) fn run(
    plan: &Plan,
    variants: &[Variant],
    report: &mut Run,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut mounts: Vec<Variant> = variants.to_vec();
    mounts.retain(|v| v.driver(plan).is_some());
    if mounts.is_empty() {
        return Ok(());
    }
    let given = Given::make(plan, report)?;
    for round in 1..=plan.runs {
        mounts.reverse();
        for variant in mounts.clone() {
            let name = variant.name;
            progress(&format!("mount, round {round} of {}: {name}", plan.runs));
            let done = all(&variant, &given, plan, report.rows(Bench::Mount));
            super::survive(&variant, done, &mut mounts, report)?;
        }
    }
    Ok(())
}

/// Does all work once.
fn all(variant: &Variant, given: &Given, plan: &Plan, rows: &mut Rows) -> Result<()> {
    let host = Host::over(variant.fresh(plan, MIB)?)?;
    let mut add = |work: &str, items: u32, run: &dyn Fn() -> Result<()>| {
        let before = Costs::of(&host)?;
        let begin = Instant::now();
        run()?;
        let time = begin.elapsed();
        let costs = before.until(&Costs::of(&host)?, items);
        let figures = [Some(time.as_secs_f64() * 1e3), costs.0, costs.1];
        for ((what, unit), figure) in FIGURES.into_iter().zip(figures) {
            let case = format!("{work}{what}");
            if let Some(figure) = figure.filter(|_| plan.wants(&case)) {
                rows.add(&case, unit, variant.name, figure);
            }
        }
        Ok::<_, extant_host::Error>(())
    };
    let (dir, files) = (host.mount().join("many"), given.files);
    std::fs::create_dir(&dir)?;
    add("create+write", files, &|| create(&dir, files))?;
    add("ls -l", files, &|| {
        let listed = Cmd::new("ls").arg("-l").arg(&dir).limit(LIMIT).ok()?.out;
        let lines = listed.lines().count();
        ensure!(lines == files as usize + 1, "{lines} lines of {files}");
        Ok(())
    })?;
    add("rm", files, &|| unlink(&dir, files))?;
    add("untar", given.source.files, &|| {
        let tar = Cmd::new("tar").arg("-xf").arg(given.source.archive());
        let tar = tar.arg("-C").arg(host.mount().dir());
        tar.limit(LIMIT).ok().map(drop)
    })?;
    if let Some((_, repository)) = &given.repository {
        add("git clone", given.source.files, &|| {
            let git = Cmd::new("git").args(["clone", "-q"]).arg(repository);
            git.arg(host.mount().join("clone")).limit(LIMIT).ok()?;
            Ok(())
        })?;
    }
    host.unmount()?.check()
}

/// Processor time and requests of a daemon so far.
struct Costs {
    /// Hundredths of a second of processor time.
    ticks: Option<u64>,
    /// Requests that callers waited for.
    requests: Option<u64>,
}

impl Costs {
    fn of(host: &Host) -> Result<Costs> {
        let counters = host.counters()?;
        let requests = counters.iter().filter(|(name, _)| {
            name.starts_with("requests_") && !UNAWAITED.contains(&name.as_str())
        });
        let requests = requests.map(|(_, count)| count).sum();
        Ok(Costs {
            ticks: host.mount().pid().map(ticks).transpose()?,
            requests: (!counters.is_empty()).then_some(requests),
        })
    }

    /// Milliseconds of the daemon, and requests of each of `items`.
    fn until(&self, after: &Costs, items: u32) -> (Option<f64>, Option<f64>) {
        let more = |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?));
        let float = |n: u64| u32::try_from(n).map(f64::from).ok();
        let ticks = more(self.ticks, after.ticks).and_then(float);
        let requests = more(self.requests, after.requests).and_then(float);
        (
            ticks.map(|ticks| ticks * 10.0),
            requests.map(|requests| requests / f64::from(items)),
        )
    }
}

/// Processor time of a process and its threads, in hundredths of a second.
fn ticks(pid: u32) -> Result<u64> {
    // Fields 14 and 15; the second one may have blanks in it.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut ticks = 0;
    for field in fields.split_whitespace().skip(11).take(2) {
        let field: u64 = field.parse()?;
        ticks += field;
    }
    Ok(ticks)
}
