//! The counters of a volume, and the page that says what each of them counts.

use std::collections::BTreeSet;

use extant_engine::{Cred, VolumeOptions};
use extant_testkit::Image;

/// The names in the first column of the tables of `page`; `a_0` to `a_9` stands for ten.
fn documented(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let first = rows.filter_map(|row| row.split(" |").next());
    first
        .flat_map(|names| match names.split_once("_0` to `") {
            Some((stem, _)) => (0..10).map(|n| format!("{stem}_{n}")).collect(),
            None => vec![names.trim_end_matches('`').to_owned()],
        })
        .collect()
}

#[test]
fn every_counter_is_documented() {
    let image = Image::of_mib(16).make().unwrap();
    let volume = VolumeOptions::new().write(true).open(image.path()).unwrap();
    let counted: BTreeSet<String> = volume
        .stats()
        .into_iter()
        .map(|(name, _)| name.to_owned())
        .collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/COUNTERS.md");
    let documented = documented(&std::fs::read_to_string(path).unwrap());
    let undocumented: Vec<_> = counted.difference(&documented).collect();
    // Only a volume on a network device has counters of one, and only a mount those of its requests
    // and its confinement; the suites `nbd`, `transport`, `requests` and `sandbox` read those.
    let mut gone: Vec<_> = documented.difference(&counted).collect();
    let elsewhere = [
        "nbd_",
        "requests_",
        "latency_",
        "transport_",
        "sandbox_",
        "read_only",
        "space_drains",
    ];
    gone.retain(|name| !elsewhere.iter().any(|prefix| name.starts_with(prefix)));
    assert!(
        undocumented.is_empty(),
        "not in COUNTERS.md: {undocumented:?}"
    );
    assert!(gone.is_empty(), "in COUNTERS.md alone: {gone:?}");
    volume.unmount().unwrap();
}

/// An fsync waits for no other thread: it makes the commit that it needs, and none that it does not
/// need.
#[test]
fn an_fsync_commits_by_itself() {
    let image = Image::of_mib(16).make().unwrap();
    let volume = VolumeOptions::new().write(true).open(image.path()).unwrap();
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let file = volume.create(&root, b"f", 0o600, &cred).unwrap();
    let counters = || {
        let all = volume.stats();
        ["commits", "own_commits", "commit_waits"]
            .map(|name| all.iter().find(|(one, _)| *one == name).unwrap().1)
    };
    let before = counters();
    for round in 1..=3 {
        let end = (round - 1) * 8192;
        volume.write(&file, end, &[7; 8192], &cred).unwrap();
        volume.fsync(&file, true).unwrap();
        volume.fsync(&file, true).unwrap();
        let now = counters();
        for (now, before) in now.into_iter().zip(before) {
            assert_eq!(now - before, round, "{now:?}");
        }
    }
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}
