//! Cases and rounds: which workload runs on which setup with which seed, and what becomes of its
//! states.
//!
//! The environment chooses:
//!
//! | variable | meaning |
//! |---|---|
//! | `EXTANT_WORKLOAD` | `workload`, `workload/setup` or `/setup`, of which the beginning will do |
//! | `EXTANT_SEED` | the seed of workload and samples |
//! | `EXTANT_CUT` | one state only, as a failure names it |
//! | `EXTANT_RECORDING` | the run in this file, instead of a fresh one |
//! | `EXTANT_FAILPOINT` | the failpoint to switch on |
//! | `EXTANT_LOST` | `F:N`: the run's flush number F fails, and N chooses what it loses |
//! | `EXTANT_THREADS` | threads |
//! | `EXTANT_SECONDS` | how long a soak takes |
//! | `EXTANT_KEEP_STATE` | where to write the device of a failing state |

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use extant_failpoint::{ActiveFailpoint, Failpoint};
use extant_testkit::Event;
use extant_testkit::crash::{Budget, CrashState, Cut, Explorer, Recording, Totals};

use crate::judge::Judge;
use crate::ledger::Ledger;
use crate::notes;
use crate::run::{Habits, Run};
use crate::setups::{SETUPS, Setup};
use crate::workloads::{WORKLOADS, Workload};

/// A variable of the environment, parsed; a bad value is an error.
fn knob<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    let parsed = text.parse().ok();
    Some(parsed.unwrap_or_else(|| panic!("{name}={text} is not understood")))
}

/// The seed of this run of the tests.
pub(crate) fn seed() -> u64 {
    knob("EXTANT_SEED").unwrap_or(1)
}

/// How thoroughly the states of a case are judged.
#[derive(Clone, Copy)]
pub(crate) struct Depth {
    pub(crate) budget: Budget,
    /// Every how many states e2fsck judges as well, Linux mounts a copy, and the checker looks
    /// before the replay. Zero is never.
    pub(crate) e2fsck: u64,
    pub(crate) linux: u64,
    pub(crate) unreplayed: u64,
}

impl Depth {
    pub(crate) const SHORT: Self = Self {
        budget: Budget::SHORT,
        e2fsck: 150,
        linux: 0,
        unreplayed: 10,
    };
    pub(crate) const LONG: Self = Self {
        budget: Budget::LONG,
        e2fsck: 400,
        linux: 1000,
        unreplayed: 10,
    };
}

/// A workload on a setup with a seed.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) workload: &'static Workload,
    pub(crate) setup: &'static Setup,
    pub(crate) seed: u64,
    pub(crate) failpoint: Option<Failpoint>,
    /// A flush that fails, by number, and what chooses the writes that it loses.
    pub(crate) lost: Option<(u64, u64)>,
}

impl Case {
    pub(crate) fn new(workload: &str, setup: &str, seed: u64) -> Self {
        Self {
            workload: Workload::named(workload).expect("a workload of this name"),
            setup: Setup::named(setup).expect("a setup of this name"),
            seed,
            failpoint: knob::<String>("EXTANT_FAILPOINT")
                .map(|name| Failpoint::named(&name).expect("the name of a failpoint")),
            lost: knob::<String>("EXTANT_LOST").map(|lost| {
                let (flush, loss) = lost.split_once(':').expect("two numbers");
                let number = |text: &str| text.parse().expect("a number");
                (number(flush), number(loss))
            }),
        }
    }

    /// Its name on the command line.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.workload.name, self.setup.name)
    }

    /// Returns whether `EXTANT_WORKLOAD` lets it run.
    fn is_wanted(&self) -> bool {
        knob::<String>("EXTANT_WORKLOAD").is_none_or(|only| match only.strip_prefix('/') {
            Some(setups) => self.setup.name.starts_with(setups),
            None => only == self.workload.name || only == self.name(),
        })
    }

    /// Runs the workload, or reads the recording that the environment names.
    fn record(&self, extra_mount_options: &str) -> (Recording, Ledger) {
        if let Some(path) = knob::<PathBuf>("EXTANT_RECORDING") {
            let recording = Recording::load(&path).unwrap();
            let ledger = notes::read(&recording.notes).unwrap();
            return (recording, ledger);
        }
        let mut options = self.setup.options();
        options.mount_options(extra_mount_options);
        let mut tuning = self.setup.tuning();
        tuning.commit_each_handle = self.setup.commit_each_handle;
        tuning.failpoint = self
            .failpoint
            .map_or(ActiveFailpoint::default(), ActiveFailpoint::only);
        options.tuning(tuning);
        let habits = Habits {
            slow: self.workload.slow,
            fails: self.lost.map(|(flush, _)| flush),
        };
        let (mut run, base) = Run::new(self.setup, options, self.seed, habits);
        let work = AssertUnwindSafe(|| (self.workload.run)(&mut run));
        if let Err(panic) = catch_unwind(work)
            && !run.failed()
        {
            resume_unwind(panic);
        }
        run.finish(base)
    }

    /// Records the case and judges its states.
    ///
    /// # Errors
    /// The first state that is not recovered: why, and the line that reproduces it.
    pub(crate) fn explore(&self, depth: Depth) -> Result<Totals, String> {
        self.explore_mounted(depth, "").map_err(|failed| failed.0)
    }

    /// The same with mount options besides the setup's; a failure says after how many states as
    /// well.
    pub(crate) fn explore_mounted(
        &self,
        depth: Depth,
        extra_mount_options: &str,
    ) -> Result<Totals, (String, u64)> {
        let (recording, ledger) = self.record(extra_mount_options);
        let judge = Judge::new(self.setup, &ledger);
        let (base, events) = (recording.base.clone(), recording.events.clone());
        if self.lost.is_some() && !events.iter().any(Event::is_failed_flush) {
            // The run has fewer flushes.
            return Ok(Totals::default());
        }
        let mut explorer = Explorer::new(base, events, self.seed, depth.budget);
        if let Some((_, loss)) = self.lost {
            explorer = explorer.losing(loss);
        }
        let only = knob::<Cut>("EXTANT_CUT");
        if let Some(cut) = only {
            explorer = explorer.only(cut);
        }
        let mut visited = 0;
        let depth = self.possible(depth);
        let result = explorer.run(|state| {
            visited += 1;
            let due = |every: u64| every != 0 && (visited % every == every / 2 || only.is_some());
            let result = judge_all(&judge, &state, depth, due);
            if result.is_err()
                && let Some(path) = knob::<PathBuf>("EXTANT_KEEP_STATE")
            {
                let bytes = state.bytes().map_err(|error| error.to_string())?;
                std::fs::write(path, bytes).map_err(|error| error.to_string())?;
            }
            result
        });
        assert!(only.is_none() || visited > 0, "there is no such cut");
        assert!(
            result.is_err() || only.is_some() || self.lost.is_some() || visited > 5,
            "{}: only {visited} states",
            self.name()
        );
        result.map_err(|failure| {
            let line = self.reproduce(failure.cut, &recording);
            let why = format!("{}: {}\nreproduce: {line}", self.name(), failure.why);
            (why, failure.visited)
        })
    }

    /// `depth` without the judges that cannot judge the case.
    fn possible(&self, mut depth: Depth) -> Depth {
        let fast = self.setup.has_fast_commits();
        // A recorded fault is a finding to others, and makes e2fsck leave orphans alone. Only
        // mounts replay fast commits as they are.
        if self.lost.is_some() || fast {
            (depth.e2fsck, depth.unreplayed) = (0, 0);
        }
        if self.lost.is_some() || !self.setup.is_for_linux() {
            depth.linux = 0;
        }
        depth
    }

    /// The number of fast commits that a run of the case writes in its last mount.
    pub(crate) fn fast_commits(&self) -> u64 {
        let mut options = self.setup.options();
        let (mut run, base) = Run::new(
            self.setup,
            options.tuning(self.setup.tuning()).clone(),
            self.seed,
            Habits::default(),
        );
        (self.workload.run)(&mut run);
        let stats = run.volume().stats();
        let count = stats.iter().find(|(name, _)| *name == "fast_commits");
        let count = count.map_or(0, |(_, count)| *count);
        run.finish(base);
        count
    }

    /// The line that leads back to a state. Where threads may have made a difference, through a
    /// recording.
    fn reproduce(&self, cut: Cut, recording: &Recording) -> String {
        let (name, seed) = (self.name(), self.seed);
        let mut line = format!("EXTANT_WORKLOAD={name} EXTANT_SEED={seed} EXTANT_CUT={cut}");
        if let Some((flush, loss)) = self.lost {
            line = format!("{line} EXTANT_LOST={flush}:{loss}");
        }
        if let Some(failpoint) = self.failpoint {
            // It is found in any run: no need to keep this one.
            line = format!("{line} EXTANT_FAILPOINT={}", failpoint.name());
        } else {
            let file = format!("power-cut-{}-{seed}.rec", name.replace('/', "-"));
            let path = std::env::temp_dir().join(file);
            let kept = match knob::<PathBuf>("EXTANT_RECORDING") {
                Some(path) => Ok(path),
                None => recording.save(&path).map(|()| path),
            };
            line = match kept {
                Ok(path) => format!("{line} EXTANT_RECORDING={}", path.display()),
                Err(error) => format!("{line} # not recorded: {error}"),
            };
        }
        format!("{line} cargo test -p extant-engine --test power_loss every_cut")
    }
}

fn judge_all(
    judge: &Judge<'_>,
    state: &CrashState,
    depth: Depth,
    due: impl Fn(u64) -> bool,
) -> Result<(), String> {
    // The superblock's few direct writes are not journalled: torn, its checksum is wrong. Extant
    // reads it again from a replayed copy or a backup; e2fsck and Linux want a repair.
    if !state.cut.tears() {
        if due(depth.e2fsck) {
            judge.by_e2fsck(state)?;
        }
        if due(depth.linux) {
            judge.by_linux(state)?;
        }
        if due(depth.unreplayed) {
            let checked = judge.by_checker(state, false);
            checked.map_err(|why| format!("before the replay: {why}"))?;
        }
    }
    judge.by_extant(state)
}

/// The cases of a short round.
pub(crate) fn short_round(seed: u64) -> Vec<Case> {
    let cases = WORKLOADS.iter().flat_map(|workload| {
        let setups = workload.setups.iter();
        setups.map(move |setup| Case::new(workload.name, setup, seed))
    });
    // What was asked for by name need not be part of a short round.
    let named = knob::<String>("EXTANT_WORKLOAD").and_then(|name| {
        let (workload, setup) = name.split_once('/').filter(|(work, _)| !work.is_empty())?;
        Some(Case::new(workload, setup, seed))
    });
    let wanted = cases.filter(|case| case.is_wanted() && case.setup.is_possible());
    named.map_or_else(|| wanted.collect(), |named| vec![named])
}

/// Cases of a short round in which a flush fails and loses writes, early and late in the run.
pub(crate) fn losing_round(seed: u64) -> impl Iterator<Item = Case> {
    const CASES: [(&str, &str); 8] = [
        ("metadata_storm", "tiny_journal"),
        ("journal_wraps", "tiny_journal"),
        ("appends", "ordered"),
        ("overwrites", "journalled"),
        ("direct_overwrites", "4k"),
        ("defragmented", "1k"),
        ("grouped_fsyncs", "2k"),
        ("whole_sync", "1k"),
    ];
    CASES.into_iter().flat_map(move |(workload, setup)| {
        [0, 3, 8, 17, 34].map(|flush| Case {
            lost: Some((flush + seed % 3, seed + flush)),
            ..Case::new(workload, setup, seed)
        })
    })
}

/// All cases for ever, with seeds from `first` on: each workload comes round before a setup
/// changes.
pub(crate) fn endless(first: u64) -> impl Iterator<Item = Case> {
    (first..).flat_map(|seed| {
        let setups = SETUPS.iter();
        let cases = setups.flat_map(move |setup| {
            let workloads = WORKLOADS.iter();
            workloads.flat_map(move |workload| {
                let case = Case::new(workload.name, setup.name, seed);
                // Each flush fails in one run.
                let lost = Some((seed.wrapping_mul(31) % 90, seed));
                [case, Case { lost, ..case }]
            })
        });
        cases.filter(|case| case.is_wanted() && case.setup.is_possible())
    })
}

/// Outcomes of each workload.
#[derive(Default)]
pub(crate) struct Tally {
    workloads: Mutex<BTreeMap<&'static str, (Totals, u64, Duration)>>,
}

impl Tally {
    fn add(&self, case: &Case, totals: Totals, took: Duration) {
        let mut workloads = self.workloads.lock().unwrap();
        let (all, runs, time) = workloads.entry(case.workload.name).or_default();
        *all += totals;
        *runs += 1;
        *time += took;
    }

    /// A line per workload, and one for all; returns the number of states.
    pub(crate) fn report(&self) -> u64 {
        let workloads = self.workloads.lock().unwrap();
        let mut sum = (Totals::default(), 0, Duration::ZERO);
        for (name, (totals, runs, took)) in &*workloads {
            line(name, *totals, *runs, *took);
            sum.0 += *totals;
            sum.1 += runs;
            sum.2 += *took;
        }
        line("all", sum.0, sum.1, sum.2);
        sum.0.all()
    }
}

fn line(name: &str, totals: Totals, runs: u64, took: Duration) {
    let rate = totals.all() * 1000 / u64::try_from(took.as_millis()).unwrap_or(1).max(1);
    let text = format!("power cuts, {name}: {totals} of {runs} runs, {rate} states/s per thread");
    extant_testkit::report(&text);
}

/// Explores cases on all cores until there are none left or the time is up.
///
/// # Panics
/// If a state of any of them is not recovered.
pub(crate) fn explore_all(
    cases: impl Iterator<Item = Case> + Send,
    depth: Depth,
    limit: Option<Duration>,
) -> Tally {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = knob("EXTANT_THREADS").unwrap_or(cores);
    let end = limit.map(|limit| Instant::now() + limit);
    let (cases, tally) = (Mutex::new(cases), Tally::default());
    let failures = Mutex::new(Vec::new());
    let (failed, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end)
                {
                    let Some(case) = cases.lock().unwrap().next() else {
                        break;
                    };
                    let begun = Instant::now();
                    let _named = Named(case.name(), case.seed);
                    match case.explore(depth) {
                        Ok(totals) => {
                            tally.add(&case, totals, begun.elapsed());
                            if limit.is_some() {
                                // A soak that is killed has said how far it got.
                                let (name, seed) = (case.name(), case.seed);
                                println!("{name}, seed {seed}: {totals}");
                            }
                        }
                        Err(why) => {
                            failed.store(true, Ordering::Relaxed);
                            failures.lock().unwrap().push(why);
                        }
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    if !failures.is_empty() {
        tally.report();
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    tally
}

/// Names the case when the thread that runs it panics.
struct Named(String, u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in EXTANT_WORKLOAD={} EXTANT_SEED={}", self.0, self.1);
        }
    }
}

/// How long a soak takes: a moment by default.
pub(crate) fn soak_time() -> Duration {
    Duration::from_secs(knob("EXTANT_SECONDS").unwrap_or(1))
}
