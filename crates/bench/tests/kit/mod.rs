//! Tiny plans, and rows of their reports.

use std::path::PathBuf;

use extant_bench::Plan;
use serde_json::Value;

/// Everything once, of these variants.
pub(crate) fn plan(variants: &[&str], extant: PathBuf) -> Plan {
    Plan {
        variants: variants.iter().map(|v| (*v).to_owned()).collect(),
        ..Plan::tiny(extant)
    }
}

pub(crate) fn row<'a>(rows: &'a [Value], case: &str, variant: &str) -> &'a Value {
    rows.iter()
        .find(|r| r["case"] == case && r["variant"] == variant)
        .unwrap_or_else(|| panic!("no row {case} of {variant}"))
}

pub(crate) fn counted(row: &Value, name: &str) -> u64 {
    row["counters"][name].as_u64().unwrap_or(0)
}
