//! One thing to measure: what a case is, what a sample of it says, and how samples are counted and
//! timed.

use std::time::Duration;

use extant_host::Result;

use crate::bed::TestBed;
use crate::pinned::Pinned;
use crate::plan::{Bench, Plan};
use crate::rows::Unit;
use crate::target::Counters;
use crate::times::Times;
use crate::variant::{Kind, Setup};

/// One thing to measure.
pub(crate) struct Case {
    pub(crate) bench: Bench,
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) setup: Setup,
    /// Returns whether the case means something for this kind.
    pub(crate) fits: fn(Kind) -> bool,
    #[allow(clippy::type_complexity, reason = "used once")]
    pub(crate) sample: Box<dyn Fn(&mut TestBed, &Plan) -> Result<Outcome>>,
}

/// A sample.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// In the case's unit.
    pub(crate) value: f64,
    /// Calls made.
    pub(crate) calls: u64,
    /// Bytes moved.
    pub(crate) bytes: u64,
    /// The counters of the sample.
    pub(crate) counters: Counters,
    /// The times of single steps, where they were taken.
    pub(crate) times: Option<Times>,
    /// Figures of rows beside the case's own: what follows its name, unit, figure.
    pub(crate) beside: Vec<(&'static str, Unit, f64)>,
}

impl Case {
    /// A case of `extant bench randwrite` whose samples differ by their setup.
    pub(crate) fn randwrite(
        name: &str,
        unit: Unit,
        setup: Setup,
        fits: fn(Kind) -> bool,
        sample: impl Fn(Setup, &mut TestBed, &Plan) -> Result<Outcome> + 'static,
    ) -> Case {
        Case {
            bench: Bench::Randwrite,
            name: name.to_owned(),
            unit,
            setup,
            fits,
            sample: Box::new(move |bed, plan| sample(setup, bed, plan)),
        }
    }
}

impl Outcome {
    /// The throughput of `calls` that moved `bytes` in `took`.
    pub(crate) fn throughput(calls: u64, bytes: u64, took: Duration) -> Outcome {
        #[allow(clippy::cast_precision_loss, reason = "some GiB at most")]
        let mib = bytes as f64 / f64::from(1 << 20);
        Outcome {
            value: mib / took.as_secs_f64().max(1e-9),
            calls,
            bytes,
            ..Outcome::default()
        }
    }

    /// Says the mean of the clears' times instead, where they were taken.
    pub(crate) fn or_mean_of(self, times: Option<Times>) -> Outcome {
        Outcome {
            value: times.as_ref().map_or(self.value, Times::mean),
            times,
            ..self
        }
    }
}

/// Counters that say what is, not what was done.
const GAUGES: [&str; 6] = [
    "page_cache_budget_bytes",
    "page_cache_used_bytes",
    "page_cache_held_bytes",
    "dirty_bytes",
    "writeback_bytes",
    "reserved",
];

/// Runs `work` on one processor, and counts.
pub(crate) fn timed(
    bed: &mut TestBed,
    work: impl FnOnce(&mut TestBed) -> Result<Outcome>,
) -> Result<Outcome> {
    counted(bed, |bed| {
        let pinned = Pinned::here();
        let outcome = work(bed);
        drop(pinned);
        outcome
    })
}

/// Runs `work`, and counts.
pub(crate) fn counted(
    bed: &mut TestBed,
    work: impl FnOnce(&mut TestBed) -> Result<Outcome>,
) -> Result<Outcome> {
    let before = bed.counters()?;
    let mut outcome = work(bed)?;
    for (name, after) in bed.counters()? {
        // Counters of a kind of request are there from the first one on; gauges may sink.
        let grown = after.saturating_sub(before.get(&name).copied().unwrap_or(0));
        // The look at the counters is a request, too.
        if grown > 0 && name != "requests_getxattr" && !GAUGES.contains(&name.as_str()) {
            outcome.counters.insert(name, grown);
        }
    }
    outcome.counters.insert("calls".into(), outcome.calls);
    outcome.counters.insert("bytes".into(), outcome.bytes);
    Ok(outcome)
}
