//! The plan of a run.

use std::path::PathBuf;
use std::time::Duration;

/// A family of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bench {
    /// Small overwrites of a cached file: libMicro's `write`, `pwrite` and `writev`.
    Overwrite,
    /// Many threads that append to one file.
    Append,
    /// Threads that overwrite disjoint parts of one file.
    Parallel,
    /// Random direct writes, many in flight, and the clears in an I/O tree that they end with.
    Randwrite,
    /// Sequential reads and writes: fio's `psync`.
    Psync,
    /// Names: create, write, stat, open, list, rename, unlink.
    Meta,
    /// Calls past every cache (`O_DIRECT`), through the library and the mount.
    Direct,
    /// Calls on volumes with one feature more than plain ones.
    Features,
    /// Sequential reads and writes of an image on a disk, past the host's cache and through it.
    Disk,
    /// Requests to a file of the host as a device, with no file system.
    Device,
    /// Costs of a file system as it grows: files, volumes, extents.
    Scale,
    /// The seeds' sizes: files of 2 GiB, millions of appends.
    Large,
    /// The everyday work of a mount, from untar to unmount.
    Peers,
    /// Images made of trees.
    Build,
    /// Seconds that users wait at a mount. Not one of [`Bench::ALL`], whose time is bounded.
    Mount,
    /// Images in an object store over a line with a round trip. Not one of [`Bench::ALL`].
    Remote,
}

impl Bench {
    /// Those of a run of all, in the order of the tables in `docs/BENCHMARKS.md`.
    pub const ALL: [Bench; 14] = [
        Bench::Overwrite,
        Bench::Append,
        Bench::Parallel,
        Bench::Randwrite,
        Bench::Psync,
        Bench::Meta,
        Bench::Direct,
        Bench::Features,
        Bench::Disk,
        Bench::Device,
        Bench::Peers,
        Bench::Build,
        Bench::Scale,
        Bench::Large,
    ];

    /// Its name on the command line and in rows.
    pub fn name(self) -> &'static str {
        match self {
            Bench::Overwrite => "overwrite",
            Bench::Append => "append",
            Bench::Parallel => "parallel",
            Bench::Randwrite => "randwrite",
            Bench::Psync => "psync",
            Bench::Meta => "meta",
            Bench::Direct => "direct",
            Bench::Features => "features",
            Bench::Disk => "disk",
            Bench::Device => "device",
            Bench::Peers => "peers",
            Bench::Build => "build",
            Bench::Scale => "scale",
            Bench::Large => "large",
            Bench::Mount => "mount",
            Bench::Remote => "remote",
        }
    }

    /// The heading of its table.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Bench::Overwrite => "Small overwrites",
            Bench::Append => "Appends by many threads to one file",
            Bench::Parallel => "Overwrites of disjoint quarters of one file",
            Bench::Randwrite => "Random direct writes, and the clears of an I/O tree",
            Bench::Psync => "Sequential reads and writes",
            Bench::Meta => "Names",
            Bench::Direct => "O_DIRECT",
            Bench::Features => "What features cost",
            Bench::Disk => "An image on a disk",
            Bench::Device => "The ways to an image",
            Bench::Peers => "The everyday work of a mount",
            Bench::Build => "Images made of trees",
            Bench::Scale => "What growth costs",
            Bench::Large => "The seeds' sizes",
            Bench::Mount => "Seconds at a mount",
            Bench::Remote => "Images in an object store",
        }
    }

    /// Returns what its figures are.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Bench::Overwrite => "nanoseconds of a call over the same bytes of a cached file.",
            Bench::Append => "milliseconds of all appends of all threads.",
            Bench::Parallel => "throughput of all threads, each with the file open for itself.",
            Bench::Randwrite => {
                "fio's `randwrite` in process, four jobs with 16 requests of 4 KiB each; \
                 `randwrite/4K/unlock` is the time in which a request gives back its range; \
                 `randwrite/sparse` are the seed's 12 jobs with 64 requests each and its sparse \
                 file, `randwrite/shared` 12 jobs whose calls of 4 MiB unlock their range piece by \
                 piece; \
                 `clear` and `lock` are the I/O tree alone; `buffered` are 64 threads that write \
                 the blocks of a sparse file in random order, and an fsync; `fragments` is a \
                 stream into free space of small pieces; `follow` are two threads that write one \
                 file, one behind the other."
            }
            Bench::Psync => "fio's `psync` on an image in RAM.",
            Bench::Meta => "nanoseconds of a call by path, in directories of two sizes.",
            Bench::Direct => "calls past every cache, by one thread, and by four (`/4`).",
            Bench::Features => {
                "the same calls on a plain volume and on volumes with one feature more; `cipher` \
                 is a copy and AES-256-XTS in memory."
            }
            Bench::Disk => {
                "fio's `psync` on an image in a file of a disk, past the host's cache (`disk`) and \
                 through it (`disk-cached`)."
            }
            Bench::Device => {
                "requests of 4 KiB anywhere in a file, waited for (`calls`) or in flight; `cpu` is \
                 the processor time of one."
            }
            Bench::Peers => {
                "nanoseconds are those of a file; `requests` counts what the kernel asks a daemon."
            }
            Bench::Build => {
                "`cpu` is the processor time of the program, `memory` its peak, `image` what the \
                 image takes on the host."
            }
            Bench::Scale => {
                "by files of a directory, by GiB of an empty volume, by extents of a file; \
                 `memory` is the growth of the process that serves it, without what its \
                 allocator had."
            }
            Bench::Large => "sequential files and appends at the sizes that the seeds used.",
            Bench::Mount => {
                "20,000 files created, each with 100 bytes, listed and removed; an archive of \
                 8,900 files unpacked, a repository of the same cloned. `daemon` is the processor \
                 time of the process that serves the mount, `requests` are those of each file \
                 that callers waited for."
            }
            Bench::Remote => {
                "`start` reads a listed set of files with empty caches, by the round trip of the \
                 line (`lossy`: one request of a hundred fails); `requests`, `bytes` and `chunks` \
                 are what crossed the line. `chunks` and `bytes` alone are those that the pushes \
                 of two versions had to send, which differ in one listed file of twenty."
            }
        }
    }

    /// Its part of the time of a run, in hundredths of a run of all.
    fn share(self) -> u32 {
        match self {
            Bench::Overwrite => 20,
            Bench::Append | Bench::Parallel | Bench::Device | Bench::Direct => 5,
            Bench::Features => 5,
            Bench::Build => 15,
            Bench::Randwrite | Bench::Meta | Bench::Peers => 10,
            Bench::Psync => 20,
            Bench::Disk | Bench::Scale => 10,
            // One round is all that there is time for; the other is not one of all.
            Bench::Large | Bench::Mount | Bench::Remote => 0,
        }
    }
}

/// The longest that a stream of [`Bench::Large`] lasts: the seeds' minute.
const LARGE_SAMPLE: Duration = Duration::from_secs(60);

/// The sparse file of the seed of the trims.
const SPARSE_BYTES: u64 = 8 << 30;

/// A third of that seed's minute: a full run has three rounds.
const SPARSE_SAMPLE: Duration = Duration::from_secs(20);

/// How much a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// Everything once: that it is measured counts, not what.
    Tiny,
    /// Some minutes.
    Quick,
    /// Files of some hundred MiB, nine rounds.
    Usual,
    /// The same with the seeds' sizes, in some 25 minutes: the run whose tables are published.
    Full,
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How much of everything.
    pub size: Size,
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
    /// Bytes of the files of [`Bench::Large`].
    pub large_bytes: u64,
    /// Appends of each of 32 threads in [`Bench::Large`].
    pub appends: u32,
    /// The most files in a directory.
    pub most_names: u32,
    /// The longest that a sample of a stream lasts.
    pub sample: Duration,
    /// The time that a sample of small calls is to take.
    pub calls: Duration,
    /// No round of a family begins after its part of this, but for the first
    /// [`least_runs`](Self::least_runs).
    pub limit: Option<Duration>,
    /// Rounds of calls and streams that run however long they take.
    pub least_runs: u32,
    /// It is about what is counted, not about times: the library does nothing beside what is
    /// measured, and streams end early only where each call is synced.
    pub counting: bool,
    /// The `extant` command, for the variant that mounts.
    pub extant: PathBuf,
    /// Folder for files of the disk.
    pub dir: PathBuf,
    /// Address of a store, for [`Bench::Remote`]: `s3://BUCKET/PREFIX`. One in memory, if none.
    pub store: Option<String>,
    /// The tree of the image of [`Bench::Remote`]; one is made, if none.
    pub tree: Option<PathBuf>,
}

impl Plan {
    /// Everything, at length: some hundred MiB per file, nine rounds.
    pub fn usual(extant: PathBuf) -> Plan {
        Plan {
            size: Size::Usual,
            benches: Bench::ALL.to_vec(),
            only: Vec::new(),
            variants: Vec::new(),
            runs: 9,
            stream_bytes: 256 << 20,
            large_bytes: 512 << 20,
            appends: 10_000,
            most_names: 100_000,
            sample: Duration::from_millis(1500),
            calls: Duration::from_millis(20),
            limit: None,
            least_runs: 1,
            counting: false,
            extant,
            dir: std::env::temp_dir(),
            store: None,
            tree: None,
        }
    }

    /// The run whose tables are published, in some 25 minutes on two processors. Its samples are
    /// short, but for the seeds' sizes: three rounds say more than one.
    pub fn full(extant: PathBuf) -> Plan {
        Plan {
            size: Size::Full,
            runs: 7,
            least_runs: 3,
            stream_bytes: 64 << 20,
            large_bytes: 2 << 30,
            appends: 100_000,
            sample: Duration::from_millis(400),
            limit: Some(Duration::from_secs(13 * 60)),
            ..Plan::usual(extant)
        }
    }

    /// Everything within some minutes.
    pub fn quick(extant: PathBuf) -> Plan {
        Plan {
            size: Size::Quick,
            runs: 7,
            stream_bytes: 32 << 20,
            large_bytes: 64 << 20,
            appends: 1000,
            most_names: 1000,
            sample: Duration::from_millis(50),
            calls: Duration::from_millis(3),
            limit: Some(Duration::from_secs(75)),
            ..Plan::usual(extant)
        }
    }

    /// Everything once and tiny: what is measured means nothing, that it is measured does.
    pub fn tiny(extant: PathBuf) -> Plan {
        Plan {
            size: Size::Tiny,
            runs: 1,
            stream_bytes: 4 << 20,
            large_bytes: 4 << 20,
            appends: 20,
            most_names: 20,
            sample: Duration::from_millis(5),
            calls: Duration::from_micros(50),
            counting: true,
            ..Plan::usual(extant)
        }
    }

    /// The same for the files of [`Bench::Large`].
    pub(crate) fn large(&self) -> Plan {
        Plan {
            stream_bytes: self.large_bytes,
            sample: LARGE_SAMPLE,
            runs: 1,
            ..self.clone()
        }
    }

    /// The length of the sparse file for random direct writes.
    pub(crate) fn sparse_bytes(&self) -> u64 {
        match self.size {
            Size::Full => SPARSE_BYTES,
            _ => 4 * self.stream_bytes,
        }
    }

    /// The longest that a sample of random direct writes to it lasts.
    pub(crate) fn sparse_sample(&self) -> Duration {
        match self.size {
            Size::Full => SPARSE_SAMPLE,
            _ => self.sample,
        }
    }

    /// The longest that a stream lasts.
    pub(crate) fn stream_limit(&self, synced: bool) -> Duration {
        match self.counting && !synced {
            true => Duration::MAX,
            false => self.sample,
        }
    }

    /// The part of the limit that a family has.
    pub(crate) fn limit_of(&self, bench: Bench) -> Option<Duration> {
        let all: u32 = self.benches.iter().map(|b| b.share()).sum();
        Some(self.limit? * bench.share() / all.max(1))
    }

    /// The command line that this is.
    pub(crate) fn command(&self) -> String {
        let name = match &self.benches[..] {
            [one] => one.name(),
            _ => "all",
        };
        let mut line = format!("extant bench {name}");
        match self.size {
            Size::Quick => line += " --quick",
            Size::Full => line += " --full",
            Size::Tiny | Size::Usual => {}
        }
        for (option, names) in [("--only", &self.only), ("--variant", &self.variants)] {
            if !names.is_empty() {
                line += &format!(" {option} {}", names.join(","));
            }
        }
        line
    }

    /// Returns whether a case is wanted.
    pub(crate) fn wants(&self, case: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| case.starts_with(only.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_limit_are_the_whole() {
        let plan = Plan::quick("extant".into());
        let parts = plan.benches.iter().map(|b| plan.limit_of(*b));
        let sum: Option<Duration> = parts.sum::<Option<Duration>>();
        let whole = plan.limit.unwrap_or_default();
        let sum = sum.unwrap_or_default();
        assert!(
            sum <= whole && sum + Duration::from_millis(1) > whole,
            "{sum:?}"
        );
        assert_eq!(Plan::usual("extant".into()).limit_of(Bench::Meta), None);
    }
}
