//! The parts of the heart that the stage of mutations changes, each with the short suites that are
//! to notice.

/// A part of the source, and the suites that look after it.
#[derive(Debug)]
pub(super) struct Subject {
    /// Its name in output and in `EXTANT_MUTATE`.
    pub(super) name: &'static str,
    pub(super) package: &'static str,
    /// The folder of its files.
    pub(super) files: &'static str,
    /// Cargo test's arguments that choose what is built: the less, the sooner. Behind `-p` stands
    /// another package whose suites are to notice, too.
    pub(super) suites: &'static [&'static str],
    /// Variables that make its suites short enough.
    pub(super) environment: &'static [(&'static str, &'static str)],
    /// The crate has models of its interleavings, which look at what the suites did not notice.
    pub(super) is_modelled: bool,
}

/// A crate whose whole short suite is run.
const fn whole(name: &'static str, package: &'static str, files: &'static str) -> Subject {
    Subject {
        name,
        package,
        files,
        suites: &["--tests"],
        environment: SHORT_MODEL,
        is_modelled: false,
    }
}

/// A second of the engine's model for each block size: all its configurations, each with fewer than
/// a hundred operations. A failure ends it, and is not cut down.
const SHORT_MODEL: &[(&str, &str)] = &[("EXTANT_OPS", "4000"), ("EXTANT_CUT_DOWN", "0")];

/// A module of the engine, with the engine's unit tests and the suites of seconds that are about
/// bytes, maps and space.
const fn module(name: &'static str, files: &'static str) -> Subject {
    Subject {
        suites: &[
            "--lib",
            "--test",
            "block_maps",
            "--test",
            "file_data",
            "--test",
            "iomap_rows",
            "--test",
            "model",
            "--test",
            "range_space",
            "--test",
            "unwritten_data",
            "--test",
            "whole_changes",
        ],
        ..whole(name, "extant-engine", files)
    }
}

pub(super) const SUBJECTS: &[Subject] = &[
    Subject {
        suites: &[
            "--lib", "--test", "lock", "--test", "rows", "--test", "model",
        ],
        is_modelled: true,
        ..whole(
            "extent-io-tree",
            "extant-extent-io-tree",
            "crates/extent-io-tree/src",
        )
    },
    Subject {
        suites: &["--lib", "--test", "eof", "--test", "slots"],
        is_modelled: true,
        ..whole("range-lock", "extant-range-lock", "crates/range-lock/src")
    },
    whole("jbd2", "extant-jbd2", "crates/jbd2/src"),
    whole("pagecache", "extant-pagecache", "crates/pagecache/src"),
    Subject {
        suites: &["--tests", "-p", "extant-engine", "--test", "model"],
        is_modelled: true,
        ..whole("iomap", "extant-iomap", "crates/iomap/src")
    },
    whole("bufferhead", "extant-bufferhead", "crates/bufferhead/src"),
    module("engine/file", "crates/engine/src/file"),
    module("engine/map", "crates/engine/src/map"),
    module("engine/alloc", "crates/engine/src/alloc"),
    module("engine/orphan", "crates/engine/src/orphan"),
    Subject {
        suites: &[
            "--test",
            "names_like_linux",
            "--test",
            "cached_names",
            "--test",
            "directories",
        ],
        ..module("engine/namei", "crates/engine/src/namei")
    },
    // Of these three the suites of seconds: the long ones are about power cuts and random damage.
    Subject {
        suites: &[
            "--lib",
            "--test",
            "check",
            "--test",
            "check_rules",
            "--test",
            "check_situations",
            "--test",
            "superblock_copies",
        ],
        ..whole("check", "extant-check", "crates/check/src")
    },
    Subject {
        suites: &[
            "--lib",
            "--test",
            "fix_doubts",
            "--test",
            "fix_faults",
            "--test",
            "fix_order",
            "--test",
            "fix_orphans",
            "--test",
            "fix_situations",
            "--test",
            "fix_superblock",
        ],
        ..whole("fix", "extant-fix", "crates/fix/src")
    },
    Subject {
        suites: &[
            "--lib",
            "--test",
            "resize_random",
            "--test",
            "resize_metadata",
            "--test",
            "resize_situations",
        ],
        ..whole("resize", "extant-resize", "crates/resize/src")
    },
];

/// Those that `names` (separated by commas) asks for; all of them without.
pub(super) fn chosen(names: Option<&str>) -> Result<Vec<&'static Subject>, String> {
    let Some(names) = names else {
        return Ok(SUBJECTS.iter().collect());
    };
    let find = |name: &str| {
        let found = SUBJECTS.iter().find(|subject| subject.name == name);
        found.ok_or_else(|| {
            let all: Vec<&str> = SUBJECTS.iter().map(|subject| subject.name).collect();
            format!("no part {name}; there are: {}", all.join(" "))
        })
    };
    names.split(',').map(find).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_suite_that_is_named_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for subject in SUBJECTS {
            let (package, _) = subject.files.split_once("/src").unwrap();
            let mut tests = root.join(package).join("tests");
            for two in subject.suites.windows(2) {
                let (word, name) = (two[0], two[1]);
                if word == "-p" {
                    let folder = name.strip_prefix("extant-").unwrap();
                    tests = root.join("crates").join(folder).join("tests");
                }
                let (file, dir) = (format!("{name}.rs"), format!("{name}/main.rs"));
                let exists = tests.join(file).exists() || tests.join(dir).exists();
                assert!(
                    word != "--test" || exists,
                    "{}: no suite {name}",
                    subject.name
                );
            }
        }
    }

    #[test]
    fn parts_are_chosen_by_name_and_unknown_ones_refused() {
        assert_eq!(chosen(None).unwrap().len(), SUBJECTS.len());
        let two = chosen(Some("jbd2,engine/map")).unwrap();
        let files: Vec<&str> = two.iter().map(|subject| subject.files).collect();
        assert_eq!(files, ["crates/jbd2/src", "crates/engine/src/map"]);
        assert!(chosen(Some("jbd3")).unwrap_err().contains("no part jbd3"));
    }
}
