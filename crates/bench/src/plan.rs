//! What to run.

use std::path::PathBuf;
use std::time::Duration;

/// A family of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bench {
    /// Small overwrites of a cached file: libMicro's `write`, `pwrite` and `writev`.
    Overwrite,
    /// Sequential reads and writes: fio's `psync`.
    Psync,
    /// Many threads that append to one file.
    Append,
    /// Threads that overwrite disjoint parts of one file.
    Parallel,
    /// Random direct writes, many in flight, and the clears in an I/O tree that they end with.
    Randwrite,
    /// Names: create, write, stat, open, list, rename, unlink.
    Meta,
}

impl Bench {
    /// All of them.
    pub const ALL: [Bench; 6] = [
        Bench::Overwrite,
        Bench::Psync,
        Bench::Append,
        Bench::Parallel,
        Bench::Randwrite,
        Bench::Meta,
    ];

    /// Its name on the command line and in rows.
    pub fn name(self) -> &'static str {
        match self {
            Bench::Overwrite => "overwrite",
            Bench::Psync => "psync",
            Bench::Append => "append",
            Bench::Parallel => "parallel",
            Bench::Randwrite => "randwrite",
            Bench::Meta => "meta",
        }
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Families of cases.
    pub benches: Vec<Bench>,
    /// Names of cases, or how they begin; all if empty.
    pub only: Vec<String>,
    /// Names of variants; all if empty.
    pub variants: Vec<String>,
    /// Measured rounds.
    pub runs: u32,
    /// Bytes of the files that are streamed.
    pub stream_bytes: u64,
    /// The most files in a directory.
    pub most_names: u32,
    /// The longest that a sample of a stream lasts.
    pub sample: Duration,
    /// The time that a sample of small calls is to take.
    pub calls: Duration,
    /// No round begins after this long; the first always runs.
    pub limit: Option<Duration>,
    /// It is about what is counted, not about times: the library does nothing beside what is measured, and streams end early only
    /// where each call is synced.
    pub counting: bool,
    /// The `extant` command, for the variant that mounts.
    pub extant: PathBuf,
}

impl Plan {
    /// Everything, at length: some hundred MiB per file, nine rounds.
    pub fn full(extant: PathBuf) -> Plan {
        Plan {
            benches: Bench::ALL.to_vec(),
            only: Vec::new(),
            variants: Vec::new(),
            runs: 9,
            stream_bytes: 256 << 20,
            most_names: 100_000,
            sample: Duration::from_millis(1500),
            calls: Duration::from_millis(20),
            limit: None,
            counting: false,
            extant,
        }
    }

    /// Everything within two minutes.
    pub fn quick(extant: PathBuf) -> Plan {
        Plan {
            runs: 7,
            stream_bytes: 32 << 20,
            most_names: 1000,
            sample: Duration::from_millis(50),
            calls: Duration::from_millis(3),
            limit: Some(Duration::from_secs(75)),
            ..Plan::full(extant)
        }
    }

    /// Everything once and tiny: what is measured means nothing, that it is measured does.
    pub fn tiny(extant: PathBuf) -> Plan {
        Plan {
            runs: 1,
            stream_bytes: 4 << 20,
            most_names: 20,
            sample: Duration::from_millis(5),
            calls: Duration::from_micros(50),
            limit: None,
            counting: true,
            ..Plan::full(extant)
        }
    }

    /// The longest that a stream lasts.
    pub(crate) fn stream_limit(&self, synced: bool) -> Duration {
        match self.counting && !synced {
            true => Duration::MAX,
            false => self.sample,
        }
    }

    /// Whether a case is wanted.
    pub(crate) fn wants(&self, case: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| case.starts_with(only.as_str()))
    }
}
