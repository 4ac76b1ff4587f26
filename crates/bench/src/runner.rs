//! Runs cases and variants in rounds.
//!
//! Families run one after the other. All variants of a case run one after the other, in one round
//! forwards and in the next backwards, and cases within rounds: whatever else the machine does
//! falls on all of them. Each sample of the first round is taken twice and the first one thrown
//! away.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use extant_figures::Report;
use extant_host::{Context, Result, ensure};

use crate::bed::TestBed;
use crate::case::{Case, Outcome};
use crate::plan::{Bench, Plan};
use crate::report::Run;
use crate::rows::Rows;
use crate::variant::{Setup, Variant};
use crate::variants::ALL;
use crate::{
    append, buffered, clears, direct, features, follow, fragments, images, meta, overwrite,
    parallel, peers, psync, queue, randwrite, remote, scale, small_files, trims,
};

/// One measurement at a time in a process: two would measure each other.
static MEASURING: Mutex<()> = Mutex::new(());

/// Called before each step of a run.
type Progress<'a> = &'a mut dyn FnMut(&str);

/// Runs `plan`, after every other run of this process; `progress` gets what comes next.
///
/// # Errors
/// A name that nothing has. What cannot run here is no error, and a family that meets one ends
/// while the others go on: the report says why, and [`Report::check`] fails for the latter.
pub fn run(plan: &Plan, progress: Progress<'_>) -> Result<Report> {
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    known(plan)?;
    let mut report = Run::new(plan);
    let variants = usable(plan, &mut report)?;
    for bench in &plan.benches {
        let done = match bench {
            Bench::Peers => peers::run(plan, &variants, &mut report, progress),
            Bench::Build => images::run(plan, &mut report, progress),
            Bench::Mount => peers::everyday::run(plan, &variants, &mut report, progress),
            Bench::Remote => remote::run(plan, &mut report, progress),
            Bench::Scale => scale::run(plan, &variants, &mut report, progress),
            Bench::Large => {
                let plan = plan.large();
                family(&plan, *bench, variants.clone(), &mut report, progress)
            }
            bench => family(plan, *bench, variants.clone(), &mut report, progress),
        };
        if let Err(error) = done {
            progress(&format!("{} ended early: {error}", bench.name()));
            report.failed(*bench, &error);
        }
    }
    Ok(report.end())
}

/// Fails if a name of the plan is none of a case.
fn known(plan: &Plan) -> Result<()> {
    let mut names = Vec::new();
    for bench in &plan.benches {
        match bench {
            Bench::Peers => names.extend(peers::names().map(str::to_owned)),
            Bench::Build => names.extend(images::names()),
            Bench::Mount => names.extend(peers::everyday::names()),
            Bench::Remote => names.extend(remote::names()),
            Bench::Scale => names.extend(scale::names(plan)),
            bench => names.extend(cases(plan, *bench).into_iter().map(|case| case.name)),
        }
    }
    for only in &plan.only {
        ensure!(
            names.iter().any(|name| name.starts_with(only.as_str())),
            "no case is or begins with {only}; there are: {}",
            names.join(" ")
        );
    }
    Ok(())
}

/// The cases of a family.
fn cases(plan: &Plan, bench: Bench) -> Vec<Case> {
    match bench {
        Bench::Overwrite => overwrite::cases(),
        Bench::Append => append::cases(),
        Bench::Parallel => parallel::cases(),
        Bench::Randwrite => [
            clears::cases(),
            randwrite::cases(),
            trims::cases(),
            buffered::cases(),
            fragments::cases(),
            follow::cases(),
        ]
        .into_iter()
        .flatten()
        .collect(),
        Bench::Psync => psync::cases(),
        Bench::Meta => [meta::cases(plan), small_files::cases()]
            .into_iter()
            .flatten()
            .collect(),
        Bench::Direct => direct::cases(),
        Bench::Features => features::cases(plan),
        Bench::Disk => psync::disk_cases(),
        Bench::Device => queue::cases(),
        Bench::Large => [psync::large_cases(), append::large_cases()]
            .into_iter()
            .flatten()
            .collect(),
        Bench::Peers | Bench::Build | Bench::Scale | Bench::Mount | Bench::Remote => Vec::new(),
    }
}

/// Runs a family in rounds.
fn family(
    plan: &Plan,
    bench: Bench,
    variants: Vec<Variant>,
    report: &mut Run,
    progress: Progress<'_>,
) -> Result<()> {
    let mut cases = cases(plan, bench);
    cases.retain(|case| plan.wants(&case.name));
    let mut running = Running {
        plan,
        bench,
        cases: &cases,
        variants,
        beds: Beds::default(),
    };
    let done = running.rounds(report, progress);
    let Running { variants, beds, .. } = running;
    // All are unmounted, also after an error; the first failure is the one to report. A peer that
    // has failed need not end well.
    let closed = beds.0.into_iter().map(|((name, _), bed)| {
        let closed = bed.close();
        if variants.iter().any(|v| v.name == name) {
            closed
        } else {
            Ok(())
        }
    });
    let closed = closed.fold(Ok(()), Result::and);
    done.and(closed)
}

/// A family that runs, with the variants that have not failed.
struct Running<'a> {
    plan: &'a Plan,
    bench: Bench,
    cases: &'a [Case],
    variants: Vec<Variant>,
    beds: Beds,
}

impl Running<'_> {
    fn rounds(&mut self, report: &mut Run, progress: Progress<'_>) -> Result<()> {
        let (plan, bench, cases) = (self.plan, self.bench, self.cases);
        let start = Instant::now();
        let limit = plan.limit_of(bench);
        // What fills memory is gone before the next variant is measured, so its rounds follow at
        // once.
        let samples = if bench == Bench::Large { 3 } else { 1 };
        for round in 0..plan.runs {
            let late = limit.is_some_and(|limit| start.elapsed() > limit);
            if late && round >= plan.least_runs {
                break;
            }
            if !cases.is_empty() {
                progress(&format!(
                    "{}, round {} of {}",
                    bench.name(),
                    round + 1,
                    plan.runs
                ));
            }
            for case in cases {
                let mut order: Vec<Variant> = self.variants.clone();
                order.retain(|v| (case.fits)(v.kind) && v.differs_in(case.bench, &case.name));
                if round % 2 == 1 {
                    order.reverse();
                }
                for variant in &order {
                    for again in 0..samples {
                        match self.beds.sample(plan, case, variant, round + again == 0) {
                            Err(error) if variant.is_peer() => {
                                // The others go on without it.
                                let (name, case) = (variant.name, &case.name);
                                report.missing(format!("{name} from {case} on: {error}"));
                                self.variants.retain(|v| v.name != name);
                                break;
                            }
                            Ok(Some(outcome)) => add(report.rows(bench), case, variant, &outcome),
                            done => {
                                let done = done.map(drop);
                                done.context(|| format!("{} of {}", case.name, variant.name))?;
                            }
                        }
                    }
                    if bench == Bench::Large {
                        self.beds.close(variant)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn add(rows: &mut Rows, case: &Case, variant: &Variant, outcome: &Outcome) {
    rows.add(&case.name, case.unit, variant.name, outcome.value);
    rows.count(&case.name, variant.name, outcome.counters.clone());
    if let Some(times) = &outcome.times {
        rows.time(&case.name, variant.name, times);
    }
    for (what, unit, figure) in &outcome.beside {
        rows.add(
            &format!("{}/{what}", case.name),
            *unit,
            variant.name,
            *figure,
        );
    }
}

/// Targets that are open at present, by variant and setup.
#[derive(Default)]
struct Beds(BTreeMap<(&'static str, Setup), TestBed>);

impl Beds {
    /// A sample; `None` where the case means nothing for the variant.
    fn sample(
        &mut self,
        plan: &Plan,
        case: &Case,
        variant: &Variant,
        warm_up: bool,
    ) -> Result<Option<Outcome>> {
        let Some(setup) = variant.setup(case.setup) else {
            return Ok(None);
        };
        let bed = match self.0.entry((variant.name, setup)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(TestBed::new(variant.target(plan, setup)?)),
        };
        if warm_up && setup.is_warmed_up() {
            (case.sample)(bed, plan)?;
        }
        Ok(Some((case.sample)(bed, plan)?))
    }
}

impl Beds {
    /// Closes what there is of a variant.
    fn close(&mut self, variant: &Variant) -> Result<()> {
        let mut mine = std::mem::take(&mut self.0);
        self.0 = mine
            .extract_if(.., |(name, _), _| *name != variant.name)
            .collect();
        mine.into_values()
            .map(TestBed::close)
            .fold(Ok(()), Result::and)
    }
}

/// The variants of the plan that can run here; of the others the report says why not.
fn usable(plan: &Plan, report: &mut Run) -> Result<Vec<Variant>> {
    let known: Vec<&str> = crate::variants()
        .chain(images::makers())
        .chain(remote::variants())
        .collect();
    for name in &plan.variants {
        ensure!(
            known.contains(&name.as_str()),
            "no variant {name}; there are: {}",
            known.join(" ")
        );
    }
    let wanted =
        |v: &&Variant| plan.variants.is_empty() || plan.variants.iter().any(|n| n == v.name);
    let mut all = Vec::new();
    for variant in ALL.iter().filter(wanted) {
        match variant.missing(plan) {
            None => {
                report.variant(variant.name, variant.about);
                all.push(*variant);
            }
            Some(why) => report.missing(format!("{}: {why}", variant.name)),
        }
    }
    Ok(all)
}
