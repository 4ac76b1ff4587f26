//! What a second round of the tests need not run again: `cargo xtask rounds N --timed` leaves it
//! out.
//!
//! A round under load looks for results that depend on time: on the order of threads, on clocks, on
//! processes and mounts. A binary stands in [`STEADY`] only if it has none of these: its choices
//! follow from fixed seeds, and one thread makes them. Another run gives the same result. In
//! [`NARROWED`] stand binaries with both kinds of tests, or with many times the same kind. A
//! binary that stands in neither list is run as a whole, new ones among them.

use crate::binaries::Binary;

/// Binaries that are left out, and why.
const STEADY: &[(&[&str], &str)] = &[
    (
        &[
            "archive.extant_archive",
            "disk.extant_disk",
            "units.extant_units",
        ],
        "Functions of bytes and numbers.",
    ),
    (
        &[
            "bufferhead.faults",
            "bufferhead.large",
            "bufferhead.model",
            "bufferhead.visits",
            "iomap.contract",
            "iomap.faults",
            "iomap.model",
        ],
        "A file system in memory that starts no thread, used by one.",
    ),
    (
        &["extent-io-tree.model"],
        "A tree and a word per byte beside it; one thread, a fixed seed.",
    ),
    (
        &[
            "fix.fix_doubts",
            "fix.fix_mutants",
            "fix.fix_order",
            "fix.fix_power_cuts",
            "fix.fix_situations",
        ],
        "Images from fixed seeds are damaged and repaired in memory, one after the other.",
    ),
    (
        &["tests.packages"],
        "Cargo's lists and archives of the sources, one after the other.",
    ),
    (
        &[
            "resize.resize_mutants",
            "resize.resize_power_cuts",
            "resize.resize_random",
            "resize.resize_situations",
        ],
        "A resize is one thread and one transaction; cuts are of its recorded writes.",
    ),
];

/// A part of a binary's tests that stands for all of them.
struct Narrowed {
    binary: &'static str,
    env: &'static [&'static str],
    args: &'static [&'static str],
    /// What is left out, and why.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for readers, and checked not to be empty")
    )]
    why: &'static str,
}

const NARROWED: &[Narrowed] = &[
    Narrowed {
        binary: "engine.power_loss",
        env: &["EXTANT_WORKLOAD=grouped_fsyncs"],
        args: &["every_cut_of_every_workload"],
        why: "The other workloads have one thread; their cuts are of recorded runs.",
    },
    Narrowed {
        binary: "engine.model",
        env: &["EXTANT_OPS=9000"],
        args: &["j43"],
        why: "Fixed seeds; flusher threads alone differ, in each of the episodes.",
    },
    Narrowed {
        binary: "extant.faults",
        env: &[],
        args: &["--skip=of_other_volumes", "--skip=of_range_operations"],
        why: "The same run on six more volumes, and with other operations.",
    },
    Narrowed {
        binary: "tests.exerciser",
        env: &["EXTANT_OPS=10000"],
        args: &["a_tiny_file", "a_dense_file"],
        why: "The four files differ in shape and block size, not in what runs at once; more \
              operations of a run repeat its kinds.",
    },
    Narrowed {
        binary: "tests.directories",
        env: &[],
        args: &["a_listing_stays_true_while_others_create_and_remove"],
        why: "Of the large directories one process makes and removes the entries, in one order.",
    },
    Narrowed {
        binary: "mkfs.mke2fs",
        env: &[],
        args: &["--skip=random_combinations"],
        why: "Volumes of a fixed seed beside those of mke2fs, one after the other.",
    },
    Narrowed {
        binary: "check.check_agreement",
        env: &["EXTANT_MUTANTS=40"],
        args: &[],
        why: "Mutants of a fixed seed, judged one after the other.",
    },
];

/// Leaves out of `binaries` what another round need not run.
pub(crate) fn leave_out(binaries: &mut Vec<Binary>) {
    binaries.retain(|binary| {
        !STEADY
            .iter()
            .any(|(names, _)| names.contains(&&*binary.name))
    });
    for binary in binaries {
        if let Some(part) = NARROWED.iter().find(|part| part.binary == binary.name) {
            binary.narrow(part.env, part.args);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    /// What only code has whose result may depend on time.
    const TIMED: &[&str] = &[
        "thread::spawn",
        "thread::scope",
        "thread::sleep",
        "Instant::now",
        "SystemTime::now",
        "Subject::",
        "Watchdog",
    ];

    /// The sources of a test binary; none if there is no such binary.
    fn sources(name: &str) -> Vec<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let (package, target) = name.split_once('.').unwrap();
        let (dir, tests) = match package {
            "tests" => (root.join("tests"), root.join("tests")),
            _ => {
                let dir = root.join("crates").join(package);
                (dir.clone(), dir.join("tests"))
            }
        };
        let library = format!("extant_{}", package.replace('-', "_"));
        let mut open = if target == library {
            vec![dir.join("src")]
        } else {
            vec![tests.join(target), tests.join(format!("{target}.rs"))]
        };
        let mut files = Vec::new();
        while let Some(path) = open.pop() {
            if path.is_dir() {
                let entries = std::fs::read_dir(path).unwrap();
                open.extend(entries.map(|entry| entry.unwrap().path()));
            } else if path.extension().is_some_and(|it| it == "rs") && path.exists() {
                files.push(path);
            }
        }
        files
    }

    #[test]
    fn what_is_left_out_exists_and_has_neither_threads_nor_clocks_nor_mounts() {
        let mut seen = BTreeSet::new();
        for (names, why) in STEADY {
            assert!(why.ends_with('.'), "{names:?} without a reason");
            for name in *names {
                assert!(seen.insert(*name), "{name} twice");
                let files = sources(name);
                assert!(!files.is_empty(), "no binary {name}");
                for file in files {
                    let text = std::fs::read_to_string(&file).unwrap();
                    let timed = TIMED.iter().find(|word| text.contains(**word));
                    assert_eq!(timed, None, "{name}, in {}", file.display());
                }
            }
        }
        for part in NARROWED {
            assert!(seen.insert(part.binary), "{} twice", part.binary);
            assert!(part.why.ends_with('.'), "{} without a reason", part.binary);
            let files = sources(part.binary);
            assert!(!files.is_empty(), "no binary {}", part.binary);
            let text: String = files
                .iter()
                .map(|file| std::fs::read_to_string(file).unwrap())
                .collect();
            for arg in part.args {
                let test = arg.strip_prefix("--skip=").unwrap_or(arg);
                assert!(text.contains(test), "no test {test} in {}", part.binary);
            }
        }
    }

    #[test]
    fn the_rest_is_run_as_it_is() {
        let binary = |name: &str| Binary::parse(&format!("{name}\t/c\t/t/{name}-0a")).unwrap();
        let mut all = vec![
            binary("fix.fix_order"),
            binary("fix.new"),
            binary("engine.model"),
        ];
        leave_out(&mut all);
        let mut narrowed = binary("engine.model");
        narrowed.narrow(&["EXTANT_OPS=9000"], &["j43"]);
        assert_eq!(all, [binary("fix.new"), narrowed.clone()]);
        let run = "env\tEXTANT_OPS=9000\t/t/engine.model-0a\tj43\n";
        assert!(narrowed.line().ends_with(run), "{}", narrowed.line());
    }
}
