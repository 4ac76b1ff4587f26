//! The checker on a hostile image: it must come to an end, with findings or an error.

use extant::CheckOptions;

use super::{Cost, Hostile, is_clean};
use crate::{recipe, seeds};

pub(super) fn run(data: &[u8]) -> Cost {
    let all: Vec<_> = seeds::all().iter().collect();
    let Some(prepared) = recipe::prepare(data, &all, &[]) else {
        return Cost::default();
    };
    let hostile = Hostile::new(prepared);
    let options = CheckOptions {
        threads: 1,
        max_findings: 1000,
        ..CheckOptions::default()
    };
    let report = extant::check(hostile.disk.clone(), &options);
    if let Ok(report) = &report {
        // Each finding can be shown.
        let described: usize = report
            .findings
            .iter()
            .map(|finding| finding.to_string().len())
            .sum();
        assert!(described > 0 || report.findings.is_empty());
    }
    if hostile.is_sound() {
        assert!(is_clean(&report), "{}: {report:?}", hostile.seed.name);
    }
    hostile.cost()
}
