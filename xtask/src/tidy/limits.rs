//! Rules that not every crate keeps yet: the number of findings that each may still have. Numbers
//! go down only; a rule without a row here holds everywhere.

use std::collections::BTreeMap;

use super::finding::Finding;

/// A rule, a crate (`crates/NAME`, `tests` or `xtask`), and its findings so far.
const LIMITS: &[(&str, &str, usize)] = &[
    ("names", "crates/check", 2),
    ("names", "crates/engine", 11),
    ("names", "crates/iomap", 2),
    ("names", "crates/jbd2", 1),
    ("names", "crates/pagecache", 2),
    ("names", "tests", 2),
    ("openers", "crates/bufferhead", 22),
    ("openers", "crates/check", 36),
    ("openers", "crates/disk", 106),
    ("openers", "crates/engine", 308),
    ("openers", "crates/extent-io-tree", 45),
    ("openers", "crates/fuse", 85),
    ("openers", "crates/iomap", 36),
    ("openers", "crates/jbd2", 16),
    ("openers", "crates/name-cache", 10),
    ("openers", "crates/pagecache", 34),
    ("openers", "crates/range-lock", 21),
    ("parameters", "crates/bufferhead", 1),
    ("parameters", "crates/cli", 3),
    ("parameters", "crates/engine", 42),
    ("parameters", "crates/extant", 2),
    ("parameters", "crates/fuse", 9),
    ("parameters", "crates/iomap", 1),
];

/// The findings of a rule that are in crates with more of them than they may have.
pub(super) fn beyond(rule: &str, found: Vec<Finding>) -> Vec<Finding> {
    let mut by_crate: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
    for finding in found {
        by_crate.entry(owner(&finding)).or_default().push(finding);
    }
    let limit = |name: &str| {
        let mut rows = LIMITS.iter();
        let row = rows.find(|(of, owner, _)| *of == rule && *owner == name);
        row.map_or(0, |(.., limit)| *limit)
    };
    by_crate.retain(|name, found| found.len() > limit(name));
    by_crate.into_values().flatten().collect()
}

/// The crate that a finding is in.
fn owner(finding: &Finding) -> String {
    let depth = if finding.file.starts_with("crates") {
        2
    } else {
        1
    };
    let parts = finding.file.iter().take(depth);
    let parts: Vec<_> = parts.map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}
