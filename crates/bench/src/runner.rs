//! Running cases and variants in turns.
//!
//! All variants of a case run one after the other, in one round forwards and in the next backwards, and cases within
//! rounds: whatever else the machine does falls on all of them. Each sample of the first round is taken twice and the first
//! one thrown away.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use extant_testkit::{Result, ensure};

use crate::case::Case;
use crate::place::Site;
use crate::plan::{Bench, Plan};
use crate::report::Report;
use crate::rows::Rows;
use crate::variant::{ALL, Setup, Variant};
use crate::{append, clears, meta, overwrite, parallel, psync, randwrite};

/// One measurement at a time in a process: two would measure each other.
static MEASURING: Mutex<()> = Mutex::new(());

/// Runs `plan`, once nobody else in the process does; `progress` is told what comes next.
///
/// # Errors
/// A name that nothing has, or whatever a sample met. What cannot run here is no error: the report says why.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let start = Instant::now();
    let cases = cases(plan)?;
    let mut report = Report::new(&plan.benches);
    let mut variants = usable(plan, &mut report)?;
    let mut sites = BTreeMap::new();
    let mut work = || -> Result<()> {
        for round in 0..plan.runs {
            if round > 0 && plan.limit.is_some_and(|limit| start.elapsed() > limit) {
                break;
            }
            progress(&format!("round {} of {}", round + 1, plan.runs));
            for case in &cases {
                let mut order: Vec<Variant> = variants.clone();
                order.retain(|v| (case.fits)(v.kind) && v.differs_in(case.bench, &case.name));
                if round % 2 == 1 {
                    order.reverse();
                }
                for variant in &order {
                    let done = sample(plan, case, variant, &mut sites, round == 0, &mut report);
                    match done {
                        Err(error) if variant.is_peer() => {
                            // The others go on without it.
                            let (name, case) = (variant.name, &case.name);
                            report.missing(format!("{name} from {case} on: {error}"));
                            variants.retain(|v| v.name != name);
                        }
                        done => done?,
                    }
                }
            }
        }
        Ok(())
    };
    let done = work();
    // All are unmounted, whatever happened; the first failure is the one to tell. A peer that has failed need not end well.
    let closed = sites.into_iter().map(|((name, _), site)| {
        let closed = site.close();
        if variants.iter().any(|v| v.name == name) {
            closed
        } else {
            Ok(())
        }
    });
    let closed = closed.fold(Ok(()), Result::and);
    done.and(closed)?;
    report.order();
    Ok(report)
}

fn sample(
    plan: &Plan,
    case: &Case,
    variant: &Variant,
    sites: &mut BTreeMap<(&'static str, Setup), Site>,
    warm_up: bool,
    report: &mut Report,
) -> Result<()> {
    let Some(setup) = variant.setup(case.setup) else {
        return Ok(());
    };
    let site = match sites.entry((variant.name, setup)) {
        std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
        std::collections::btree_map::Entry::Vacant(new) => {
            new.insert(Site::new(variant.place(plan, setup)?))
        }
    };
    if warm_up {
        (case.sample)(site, plan)?;
    }
    let outcome = (case.sample)(site, plan)?;
    let rows: &mut Rows = report.rows(case.bench);
    rows.add(&case.name, case.unit, variant.name, outcome.value);
    rows.count(&case.name, variant.name, outcome.counters);
    if let Some(times) = &outcome.times {
        rows.time(&case.name, variant.name, times);
    }
    Ok(())
}

/// The cases of the plan.
fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let mut all = Vec::new();
    for bench in &plan.benches {
        all.extend(match bench {
            Bench::Overwrite => overwrite::cases(),
            Bench::Psync => psync::cases(),
            Bench::Append => append::cases(),
            Bench::Parallel => parallel::cases(),
            Bench::Meta => meta::cases(plan),
            Bench::Randwrite => clears::cases()
                .into_iter()
                .chain(randwrite::cases())
                .collect(),
        });
    }
    for only in &plan.only {
        ensure!(
            all.iter().any(|c| c.name.starts_with(only.as_str())),
            "no case is or begins with {only}; there are: {}",
            all.iter()
                .map(|c| c.name.as_str())
                .collect::<Vec<_>>()
                .join(" ")
        );
    }
    all.retain(|c| plan.wants(&c.name));
    Ok(all)
}

/// The variants of the plan that can run here; of the others the report tells why.
fn usable(plan: &Plan, report: &mut Report) -> Result<Vec<Variant>> {
    for name in &plan.variants {
        ensure!(
            ALL.iter().any(|v| v.name == name),
            "no variant {name}; there are: {}",
            crate::variants().collect::<Vec<_>>().join(" ")
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
