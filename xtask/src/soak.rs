//! Soaking: the suites whose length is a parameter, for a given time.
//!
//! A soak is a table of stages. The time is shared out among those chosen by their weights. A stage
//! learns its part from `EXTANT_SECONDS` and its seed from `EXTANT_SEED`, and either uses the time
//! up by itself or is repeated with fresh seeds until it is over. What suites report is printed at
//! the end.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use crate::mutations;
use crate::outcome::Outcome;
use crate::suite::{INTERLEAVINGS, Logs, MODELLED, Run, SCHEDULES};

/// A part of a soak.
struct Stage {
    /// Its name on the command line.
    name: &'static str,
    /// Its part of the time, against the other stages' weights.
    weight: u64,
    /// Which suites: arguments for cargo test.
    suites: &'static str,
    /// Which tests of them: arguments for the test binaries.
    tests: &'static [&'static str],
    /// More of the environment.
    env: &'static [(&'static str, &'static str)],
    /// The longest time in seconds that one run is to take. A stage with a bound is repeated with
    /// fresh seeds.
    round: Option<u64>,
    /// A program of `scripts` with its arguments, instead of suites. It takes what time it takes.
    script: &'static str,
    /// Changes the source instead of running suites of it.
    changes_source: bool,
}

impl Stage {
    /// Returns whether it runs only if it is named: it takes tools that a soak need not have.
    fn is_apart(&self) -> bool {
        self.changes_source || !self.script.is_empty()
    }
}

/// The values that most stages have.
const PLAIN: Stage = Stage {
    name: "",
    weight: 1,
    suites: "",
    tests: &[],
    env: &[],
    round: None,
    script: "",
    changes_source: false,
};

/// The stages, in the order in which they run.
const STAGES: &[Stage] = &[
    Stage {
        name: "behaviour",
        suites: "-p extant-tests --test kill --test threads --test exerciser --test replay",
        env: &[("EXTANT_KILLS", "300")],
        round: Some(60),
        ..PLAIN
    },
    Stage {
        name: "rings",
        suites: "-p extant-tests --test kill --test threads --test exerciser --test consistency \
                 --test direct --test ranges --test full --test no_space --test unmount \
                 --test daemon --test directories --test posix --test transport \
                 --test sandbox --test attributes --test requests",
        env: &[("EXTANT_TRANSPORT", "uring"), ("EXTANT_KILLS", "200")],
        round: Some(300),
        ..PLAIN
    },
    Stage {
        name: "simulated-kernel",
        suites: "-p extant-fuse --lib",
        tests: &["--nocapture", "simulated_kernel"],
        ..PLAIN
    },
    Stage {
        name: "network",
        suites: "-p extant-tests --test nbd",
        tests: &["--nocapture", "a_storm"],
        env: &[("EXTANT_KILLS", "20")],
        round: Some(120),
        ..PLAIN
    },
    Stage {
        name: "consistency",
        suites: "-p extant -p extant-tests --test consistency",
        tests: &["--nocapture"],
        round: Some(60),
        ..PLAIN
    },
    Stage {
        name: "model",
        suites: "--profile soak -p extant-engine --test model",
        tests: &["j43", "--nocapture"],
        env: &[("EXTANT_OPS", "1000000")],
        round: Some(300),
        ..PLAIN
    },
    Stage {
        name: "store",
        suites: "--profile soak -p extant-store --lib",
        tests: &["soak", "--nocapture"],
        ..PLAIN
    },
    Stage {
        name: "io-tree",
        suites: "--profile soak -p extant-extent-io-tree --test model",
        env: &[("EXTANT_OPS", "10000000")],
        round: Some(60),
        ..PLAIN
    },
    Stage {
        name: "interleavings",
        suites: INTERLEAVINGS,
        env: &[MODELLED, ("EXTANT_SCHEDULES", "20000")],
        round: Some(300),
        ..PLAIN
    },
    Stage {
        name: "schedules",
        weight: 2,
        suites: SCHEDULES,
        tests: &["--nocapture", "every_schedule"],
        env: &[MODELLED],
        ..PLAIN
    },
    Stage {
        name: "full-and-stale",
        suites: "--profile soak -p extant-engine --test iomap_rows",
        tests: &["--nocapture", "soak_"],
        ..PLAIN
    },
    Stage {
        name: "device-faults",
        suites: "--profile soak -p extant --test faults",
        tests: &["--exact", "soak"],
        ..PLAIN
    },
    Stage {
        name: "failing-hosts",
        suites: "--profile soak -p extant --test failing_host",
        tests: &["--nocapture", "--test-threads=1", "a_host"],
        round: Some(120),
        ..PLAIN
    },
    Stage {
        name: "range-races",
        suites: "--profile soak -p extant-engine --test range_stress",
        tests: &["--nocapture"],
        env: &[("EXTANT_OPS", "4000")],
        round: Some(120),
        ..PLAIN
    },
    Stage {
        name: "defragmentation",
        suites: "--profile soak -p extant-engine --test defragmentation",
        tests: &["--nocapture"],
        env: &[("EXTANT_DEFRAG_MIB", "1024")],
        round: Some(120),
        ..PLAIN
    },
    Stage {
        name: "volumes",
        suites: "-p extant-mkfs --test mke2fs",
        tests: &["--nocapture", "random"],
        env: &[("EXTANT_CASES", "200")],
        round: Some(120),
        ..PLAIN
    },
    Stage {
        name: "combinations",
        suites: "-p extant-tests --test combinations",
        tests: &["--nocapture", "random_combinations_of_features"],
        env: &[("EXTANT_COMBINATIONS", "20")],
        round: Some(300),
        ..PLAIN
    },
    Stage {
        name: "combinations-of-debian",
        suites: "-p extant-tests --test combinations",
        tests: &["--nocapture", "random_combinations_for_debian"],
        env: &[("EXTANT_COMBINATIONS", "20"), ("EXTANT_GUEST", "1")],
        round: Some(300),
        ..PLAIN
    },
    Stage {
        name: "hostile-images",
        suites: "--profile soak -p extant-tests --test hostile",
        tests: &["--nocapture"],
        env: &[("EXTANT_HOSTILE", "1000")],
        round: Some(120),
        ..PLAIN
    },
    Stage {
        name: "mutants",
        suites: "-p extant-check --test check_agreement",
        env: &[("EXTANT_MUTANTS", "3000")],
        round: Some(120),
        ..PLAIN
    },
    Stage {
        name: "repairs",
        suites: "--profile soak -p extant-fix --test fix_mutants",
        env: &[("EXTANT_MUTANTS", "2000")],
        round: Some(120),
        ..PLAIN
    },
    Stage {
        name: "repair-cuts",
        suites: "--profile soak -p extant-fix --test fix_power_cuts",
        env: &[("EXTANT_CUT_BUDGET", "long")],
        round: Some(300),
        ..PLAIN
    },
    Stage {
        name: "resizes",
        suites: "--profile soak -p extant-resize --test resize_random",
        env: &[("EXTANT_RESIZES", "500")],
        round: Some(120),
        ..PLAIN
    },
    Stage {
        name: "resize-cuts",
        suites: "--profile soak -p extant-resize --test resize_power_cuts",
        env: &[("EXTANT_CUT_BUDGET", "long")],
        round: Some(300),
        ..PLAIN
    },
    Stage {
        name: "power-cuts",
        suites: "--profile soak -p extant-engine --test power_loss",
        tests: &["--exact", "soak"],
        ..PLAIN
    },
    Stage {
        name: "fast-commits",
        suites: "-p extant-engine --test fast_commits",
        tests: &["--nocapture", "--test-threads=1"],
        round: Some(120),
        ..PLAIN
    },
    Stage {
        name: "short-workloads",
        suites: "--profile soak -p extant-engine --test short_workloads",
        tests: &["--nocapture", "--test-threads=1", "soak", "what_linux"],
        ..PLAIN
    },
    Stage {
        name: "c-interface",
        suites: "-p extant-capi --test interface",
        tests: &["--nocapture", "--test-threads=1", "storm"],
        round: Some(120),
        ..PLAIN
    },
    Stage {
        name: "packages",
        suites: "-p extant-tests -p extant-python --test packages --test installed --test module",
        // Release builds, once for each way to install.
        env: &[("EXTANT_PACKAGES", "1"), ("EXTANT_TEST_LIMIT", "3600")],
        ..PLAIN
    },
    Stage {
        name: "root-file-systems",
        suites: "-p extant-tests --test rootfs",
        env: &[("EXTANT_ROOTFS", "1")],
        ..PLAIN
    },
    Stage {
        name: "long-archives",
        suites: "--profile soak -p extant-build --test memory",
        tests: &["a_long_archive"],
        env: &[("EXTANT_MEMBERS", "10000000")],
        ..PLAIN
    },
    Stage {
        name: "postgres",
        suites: "-p extant-tests --test postgres",
        tests: &["--nocapture"],
        env: &[("EXTANT_POSTGRES", "1")],
        round: Some(120),
        ..PLAIN
    },
    Stage {
        name: "machines",
        script: "machines",
        ..PLAIN
    },
    Stage {
        name: "guest-devices",
        suites: "-p extant-tests --test vms",
        tests: &["--nocapture", "soak"],
        env: &[("EXTANT_GUEST", "1")],
        round: Some(300),
        ..PLAIN
    },
    Stage {
        name: "guest",
        script: "guest-suites",
        ..PLAIN
    },
    Stage {
        name: "sanitizers",
        script: "sanitize all",
        ..PLAIN
    },
    Stage {
        name: "fsstress",
        suites: "-p extant-tests --test fsstress",
        tests: &["--nocapture"],
        env: &[("EXTANT_SUITES", "1")],
        round: Some(120),
        ..PLAIN
    },
    Stage {
        name: "other-suites",
        suites: "-p extant-tests --test suites",
        tests: &["--nocapture", "--test-threads=1"],
        env: &[("EXTANT_SUITES", "1"), ("EXTANT_TEST_LIMIT", "14400")],
        ..PLAIN
    },
    Stage {
        name: "stores",
        script: "stores",
        ..PLAIN
    },
    Stage {
        name: "mutations",
        changes_source: true,
        ..PLAIN
    },
];

/// Soaks for the minutes in `args` (60), with the stages named there (all).
pub(crate) fn run_all(root: &Path, args: &[String]) -> ExitCode {
    let (minutes, names) = match args.first().map(|first| first.parse::<u64>()) {
        Some(Ok(minutes)) => (minutes, args.get(1..).unwrap_or_default()),
        _ => (60, args),
    };
    if let Some(unknown) = names.iter().find(|n| !STAGES.iter().any(|s| s.name == **n)) {
        let known: Vec<&str> = STAGES.iter().map(|s| s.name).collect();
        eprintln!("no stage {unknown}; there are: {}", known.join(" "));
        return ExitCode::from(2);
    }
    let stages = STAGES.iter().filter(|s| match names {
        [] => !s.is_apart(),
        names => names.iter().any(|n| n == s.name),
    });
    let weights: u64 = stages.clone().map(|s| s.weight).sum();
    let logs = Logs::fresh(root);
    for stage in stages {
        let seconds = minutes * 60 * stage.weight / weights.max(1);
        stage.run(root, seconds, &logs);
        if !logs.is_fine() {
            break;
        }
    }
    logs.conclude()
}

impl Stage {
    /// Runs the stage for about `seconds`.
    fn run(&self, root: &Path, seconds: u64, logs: &Logs) {
        let end = Instant::now() + Duration::from_secs(seconds);
        if self.changes_source {
            logs.add(Outcome::counted(mutations::run(
                root,
                seconds,
                fresh_seed(),
            )));
            return;
        }
        if !self.script.is_empty() {
            logs.run_script(root, self.script);
            return;
        }
        for seed in fresh_seed().. {
            let left = end.saturating_duration_since(Instant::now()).as_secs();
            let part = self.round.map_or(left, |round| round.min(left)).max(1);
            println!("soak: {}, {part} s, EXTANT_SEED={seed}", self.name);
            // Whatever a stage does with its time, it is over long before that.
            let limit = (600 + 3 * part).to_string();
            let (seed, part) = (seed.to_string(), part.to_string());
            let mut run = Run::of(self.suites);
            run.env.extend([
                ("EXTANT_SEED", seed.as_str()),
                ("EXTANT_SECONDS", part.as_str()),
                ("EXTANT_TEST_LIMIT", limit.as_str()),
            ]);
            run.env.extend_from_slice(self.env);
            run.tests
                .extend(self.tests.iter().map(|test| (*test).to_owned()));
            logs.run(root, &run);
            if self.round.is_none() || !logs.is_fine() || Instant::now() >= end {
                break;
            }
        }
    }
}

/// A seed that no earlier soak had, unless `EXTANT_SEED` names one.
fn fresh_seed() -> u64 {
    let given = std::env::var("EXTANT_SEED")
        .ok()
        .and_then(|s| s.parse().ok());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    given.unwrap_or_else(|| now.map_or(1000, |now| now.as_secs() % 1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_with_a_script_run_it_when_they_are_named() {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts");
        let with_one = STAGES.iter().filter(|stage| !stage.script.is_empty());
        let checked = with_one.map(|stage| {
            let program = stage.script.split(' ').next().unwrap();
            assert!(scripts.join(program).is_file(), "{}", stage.name);
            assert!(
                stage.suites.is_empty() && stage.is_apart(),
                "{}",
                stage.name
            );
        });
        assert_eq!(checked.count(), 4);
    }
}
