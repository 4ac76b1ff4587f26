//! The command line.

use std::path::PathBuf;

/// A round's part of the source, and its limits.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// The copy of the workspace that is changed.
    pub(crate) root: PathBuf,
    /// The folder of what cargo builds.
    pub(crate) built: PathBuf,
    /// The folder of the lists.
    pub(crate) out: PathBuf,
    pub(crate) package: String,
    /// The folders that are changed, from `root`, separated by commas.
    pub(crate) files: String,
    /// Cargo test's arguments that choose what is built, and behind each `-p` another package and
    /// its own.
    pub(crate) suites: Vec<String>,
    /// Seconds for trying; what is left then stays untried.
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
    /// Tests that take more seconds are left out.
    pub(crate) longest: f64,
    /// Seconds of tests that a change gets, the quickest first.
    pub(crate) budget: f64,
    /// Files of names: only these changes are tried.
    pub(crate) only: Vec<PathBuf>,
    /// The names of all changes are printed, and nothing is built.
    pub(crate) lists: bool,
    /// Changes that are tried at a time.
    pub(crate) jobs: usize,
}

pub(crate) const USAGE: &str = "usage: extant-mutate --root DIR --built DIR --out DIR \
    --package NAME --files DIR,.. [--seconds N] [--seed N] [--longest N] [--budget N] \
    [--list] [--only FILE] [--jobs N] SUITES..";

impl Options {
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            seconds: u64::MAX,
            longest: 10.0,
            budget: 20.0,
            jobs: 2,
            ..Self::default()
        };
        while let Some(name) = args.next() {
            if name == "--list" {
                options.lists = true;
                continue;
            }
            let mut value = || args.next().ok_or_else(|| format!("{name}: no value"));
            match name.as_str() {
                "--root" => options.root = value()?.into(),
                "--built" => options.built = value()?.into(),
                "--out" => options.out = value()?.into(),
                "--package" => options.package = value()?,
                "--files" => options.files = value()?,
                "--seconds" => options.seconds = number(&value()?)?,
                "--seed" => options.seed = number(&value()?)?,
                "--longest" => options.longest = number(&value()?)?,
                "--budget" => options.budget = number(&value()?)?,
                "--jobs" => options.jobs = number(&value()?)?,
                "--only" => options.only.push(value()?.into()),
                _ => {
                    options.suites.push(name);
                    options.suites.extend(args.by_ref());
                }
            }
        }
        if options.files.is_empty() || !options.lists && options.suites.is_empty() {
            return Err(USAGE.to_owned());
        }
        Ok(options)
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text}: not a number"))
}
