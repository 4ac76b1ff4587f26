//! Trying changes: which tests reach them, and whether one of those fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::package::Binary;
use crate::process::{self, End};

/// Seconds of tests up to the end of a change's first runs: most changes end there. A last run has
/// the rest.
const FIRST: [f64; 2] = [0.3, 2.0];
/// The shortest limit of a test.
const SHORTEST: Duration = Duration::from_secs(5);
/// The limit of a test, in times of what the longest of its run takes without a change.
const TIMES: f64 = 5.0;

/// A test, and what it takes without a change.
#[derive(Debug)]
pub(crate) struct Test {
    binary: usize,
    name: String,
    seconds: f64,
    /// The first numbers of the sites it comes by.
    reached: BTreeSet<u32>,
}

/// The tests of a part, the quickest first.
pub(crate) struct Tests {
    binaries: Vec<Binary>,
    all: Vec<Test>,
    /// Seconds of them that a change gets.
    budget: f64,
}

/// Runs every test once without a change.
pub(crate) fn observe(options: &Options, binaries: Vec<Binary>) -> Result<Tests, String> {
    let mut names = Vec::new();
    for (index, binary) in binaries.iter().enumerate() {
        let listed = Command::new(&binary.program)
            .args(["--list", "--format", "terse"])
            .current_dir(&binary.dir)
            .output();
        let listed = listed.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let tests = text.lines().filter_map(|line| line.strip_suffix(": test"));
        names.extend(tests.map(|name| (index, name.to_owned())));
    }
    let all = Mutex::new(Vec::new());
    in_parallel(options, names.len(), |at, dir| {
        let (index, name) = &names[at];
        let limit = Duration::from_secs_f64(options.longest);
        let reached = dir.join("reached");
        let _ = std::fs::remove_file(&reached);
        let begin = Instant::now();
        let end = process::run(&binaries[*index], &[name], "reached", dir, limit)?;
        if end != End::Passed {
            println!("mutate: left out, {end:?} without a change: {name}");
            return Ok(());
        }
        let bytes = std::fs::read(&reached).unwrap_or_default();
        let numbers = bytes.chunks_exact(4);
        let numbers = numbers.map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
        lock(&all).push(Test {
            binary: *index,
            name: name.clone(),
            seconds: begin.elapsed().as_secs_f64(),
            reached: numbers.collect(),
        });
        Ok(())
    })?;
    let mut all = all.into_inner().unwrap_or_default();
    all.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok(Tests {
        binaries,
        all,
        budget: options.budget,
    })
}

impl Tests {
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.all.iter().map(|test| test.seconds).sum()
    }

    /// The number of tests that come by the site whose first number is `first`.
    pub(crate) fn reaching(&self, first: u32) -> usize {
        self.all
            .iter()
            .filter(|test| test.reached.contains(&first))
            .count()
    }

    /// Runs the tests that reach `first` with change `number`, in the order of their times.
    pub(crate) fn attempt(&self, first: u32, number: u32, dir: &Path) -> Result<End, String> {
        let mut spent = 0.0;
        let mut runs: BTreeMap<(usize, usize), Vec<&Test>> = BTreeMap::new();
        for test in self.all.iter().filter(|test| test.reached.contains(&first)) {
            spent += test.seconds;
            if spent > self.budget {
                break;
            }
            let run = FIRST.iter().filter(|end| spent > **end).count();
            runs.entry((run, test.binary)).or_default().push(test);
        }
        for ((_, binary), tests) in runs {
            let longest = tests.last().map_or(0.0, |test| test.seconds);
            let limit = SHORTEST.max(Duration::from_secs_f64(longest * TIMES));
            let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
            let binary = &self.binaries[binary];
            let end = process::run(binary, &names, &number.to_string(), dir, limit)?;
            if end != End::Passed {
                return Ok(end);
            }
        }
        Ok(End::Passed)
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Calls `each` for 0 to `count` from a few threads, each with a folder of its own.
pub(crate) fn in_parallel(
    options: &Options,
    count: usize,
    each: impl Fn(usize, &Path) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for job in 0..options.jobs {
            let (next, failed, each) = (&next, &failed, &each);
            let dir: PathBuf = options.out.join(format!("job{job}"));
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    if at >= count || lock(failed).is_some() {
                        return;
                    }
                    if let Err(why) = each(at, &dir) {
                        *lock(failed) = Some(why);
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_default().map_or(Ok(()), Err)
}
