//! Rules for dependencies between our crates: only downwards, as `docs/ARCHITECTURE.md` draws it.

use std::path::Path;

use super::finding::Finding;

/// For each package of ours, the packages of ours it may depend on.
const MAY_USE: &[(&str, &[&str])] = &[
    ("extant-units", &[]),
    ("extant-failpoint", &[]),
    ("extant-lock-order", &[]),
    ("extant-sync", &[]),
    ("extant-counter", &[]),
    ("extant-archive", &[]),
    ("extant-figures", &[]),
    ("extant-sandbox", &[]),
    ("extant-store-proxy", &[]),
    ("extant-casefold", &[]),
    ("extant-crypt", &[]),
    ("extant-disk", &["extant-casefold", "extant-units"]),
    ("extant-ring", &["extant-units"]),
    (
        "extant-blockdev",
        &["extant-units", "extant-ring", "extant-sync"],
    ),
    ("extant-nbd", &["extant-units", "extant-blockdev"]),
    ("extant-store", &["extant-units", "extant-blockdev"]),
    (
        "extant-extent-io-tree",
        &["extant-failpoint", "extant-sync"],
    ),
    (
        "extant-range-lock",
        &["extant-failpoint", "extant-sync", "extant-extent-io-tree"],
    ),
    (
        "extant-name-cache",
        &["extant-failpoint", "extant-sync", "extant-units"],
    ),
    (
        "extant-pagecache",
        &["extant-units", "extant-sync", "extant-lock-order"],
    ),
    (
        "extant-iomap",
        &[
            "extant-units",
            "extant-counter",
            "extant-blockdev",
            "extant-pagecache",
        ],
    ),
    (
        "extant-bufferhead",
        &[
            "extant-units",
            "extant-counter",
            "extant-blockdev",
            "extant-pagecache",
            "extant-iomap",
        ],
    ),
    (
        "extant-jbd2",
        &[
            "extant-sync",
            "extant-units",
            "extant-failpoint",
            "extant-counter",
            "extant-lock-order",
            "extant-disk",
            "extant-blockdev",
        ],
    ),
    (
        "extant-mkfs",
        &["extant-units", "extant-disk", "extant-blockdev"],
    ),
    (
        "extant-build",
        &[
            "extant-archive",
            "extant-units",
            "extant-disk",
            "extant-blockdev",
            "extant-mkfs",
            "extant-engine",
        ],
    ),
    (
        "extant-check",
        &[
            "extant-casefold",
            "extant-crypt",
            "extant-units",
            "extant-disk",
            "extant-blockdev",
            "extant-jbd2",
        ],
    ),
    (
        "extant-engine",
        &[
            "extant-casefold",
            "extant-sync",
            "extant-units",
            "extant-counter",
            "extant-crypt",
            "extant-failpoint",
            "extant-lock-order",
            "extant-disk",
            "extant-blockdev",
            "extant-extent-io-tree",
            "extant-range-lock",
            "extant-name-cache",
            "extant-pagecache",
            "extant-iomap",
            "extant-bufferhead",
            "extant-jbd2",
        ],
    ),
    (
        "extant-fix",
        &[
            "extant-units",
            "extant-disk",
            "extant-blockdev",
            "extant-jbd2",
            "extant-mkfs",
            "extant-check",
            "extant-engine",
        ],
    ),
    (
        "extant-resize",
        &[
            "extant-units",
            "extant-disk",
            "extant-blockdev",
            "extant-jbd2",
            "extant-check",
            "extant-engine",
        ],
    ),
    (
        "extant",
        &[
            "extant-units",
            "extant-blockdev",
            "extant-build",
            "extant-check",
            "extant-fix",
            "extant-mkfs",
            "extant-resize",
            "extant-engine",
        ],
    ),
    ("extant-capi", &["extant"]),
    ("extant-python", &["extant"]),
    (
        "extant-fuse",
        &[
            "extant-units",
            "extant-counter",
            "extant-ring",
            "extant-engine",
        ],
    ),
    (
        "extant-vhost",
        &["extant-units", "extant-blockdev", "extant-fuse"],
    ),
    (
        "extant-cli",
        &[
            "extant",
            "extant-archive",
            "extant-fuse",
            "extant-bench",
            "extant-nbd",
            "extant-sandbox",
            "extant-store",
            "extant-vhost",
        ],
    ),
    ("extant-host", &["extant-blockdev"]),
    (
        "extant-testkit",
        &["extant-units", "extant-blockdev", "extant-host"],
    ),
    (
        "extant-bench",
        &[
            "extant",
            "extant-figures",
            "extant-crypt",
            "extant-units",
            "extant-fuse",
            "extant-blockdev",
            "extant-extent-io-tree",
            "extant-host",
            "extant-store-proxy",
        ],
    ),
    (
        "extant-hostile",
        &[
            "extant",
            "extant-crypt",
            "extant-units",
            "extant-disk",
            "extant-fuse",
            "extant-blockdev",
            "extant-testkit",
        ],
    ),
    ("extant-fuzz", &["extant", "extant-capi", "extant-hostile"]),
    ("extant-mutate", &[]),
    ("extant-tests", &[]),
    ("xtask", &["extant-figures"]),
];

pub(super) fn check(file: &Path, text: &str) -> Vec<Finding> {
    let Some(name) = package_name(text) else {
        return Vec::new();
    };
    let Some((_, allowed)) = MAY_USE.iter().find(|(n, _)| *n == name) else {
        return vec![Finding::new(
            file,
            format!("package {name} is not on the map (xtask's layers)"),
        )];
    };
    // Tests may use anything: a crate's dev-dependencies are not part of its layer.
    let used = dependencies(text).filter(|d| d.starts_with("extant"));
    let upwards = used
        .filter(|d| !allowed.contains(d))
        .map(|d| Finding::new(file, format!("{name} may not depend on {d}")));
    let declared: Vec<&str> = dependencies(text).collect();
    let unused = allowed.iter().filter(|d| !declared.contains(*d));
    let unused = unused.map(|d| {
        Finding::new(
            file,
            format!("{name} does not depend on {d} (xtask's layers)"),
        )
    });
    let failpoints = section(text, "[dependencies]")
        .filter(|l| l.contains("\"failpoints\""))
        .map(|_| Finding::new(file, "only dev-dependencies may switch failpoints on"));
    upwards.chain(unused).chain(failpoints).collect()
}

fn package_name(text: &str) -> Option<&str> {
    section(text, "[package]").find_map(|l| l.strip_prefix("name = \"")?.strip_suffix('"'))
}

fn dependencies(text: &str) -> impl Iterator<Item = &str> {
    section(text, "[dependencies]")
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| l.split(['.', ' ', '=']).next())
}

fn section<'a>(text: &'a str, header: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = text.lines().map(str::trim);
    lines
        .skip_while(move |l| *l != header)
        .skip(1)
        .take_while(|l| !l.starts_with('['))
}

#[cfg(test)]
mod tests {
    use super::check;
    use std::path::Path;

    fn findings(text: &str) -> usize {
        check(Path::new("Cargo.toml"), text).len()
    }

    #[test]
    fn upward_and_unknown_are_found() {
        let name = "[package]\nname = \"extant-ring\"\n";
        let down = "[dependencies]\nextant-units.workspace = true\n";
        let up = "extant-jbd2.workspace = true\n";
        assert_eq!(findings(&format!("{name}{down}")), 0);
        assert_eq!(findings(&format!("{name}{down}{up}")), 1);
        let tests = format!("{name}{down}[dev-dependencies]\n{up}");
        assert_eq!(findings(&tests), 0);
        // An arrow that is not there any more.
        assert_eq!(findings(&format!("{name}[dependencies]\n")), 1);
        let failpoints = "extant-units = { workspace = true, features = [\"failpoints\"] }\n";
        assert_eq!(findings(&format!("{name}[dependencies]\n{failpoints}")), 1);
        assert_eq!(findings(&format!("{tests}{failpoints}")), 0);
        assert_eq!(findings("[package]\nname = \"new\"\n"), 1);
        assert_eq!(findings("[workspace]\n"), 0);
    }
}
