//! The command that measures: bench.

use std::path::PathBuf;

use clap::Args;

/// Measure the library, its mount and their peers, in one run
///
/// All variants are measured alternately, in one run: the library, the same through its mount,
/// Linux's file systems on a loop device, fuse2fs, a pass-through, and plain copying. What cannot
/// run here (some need root) is listed with the reason.
///
/// In memory: overwrite: small writes to the same range of a cached file. append: threads that
/// append to one file. parallel: threads that overwrite parts of one file. randwrite: random direct
/// writes, many in flight, buffered ones with writeback under way, and the time of each clear in
/// the file's I/O trees. psync: sequential reads and writes. meta: names in directories of a
/// thousand and of a hundred thousand files. direct: calls with O_DIRECT. features: what quotas,
/// folded and encrypted names, sealed files and fast commits cost. peers: the everyday work of a
/// mount, from untar to unmount. build: images made of trees, beside mke2fs -d, genext2fs, tar2ext4
/// and Linux's mount.
///
/// On a disk (--dir): disk: sequential reads and writes of an image. device: requests to a file as
/// a block device, by threads and by io_uring.
///
/// In seconds: mount: many small files, ls -l, an archive, git clone, with the daemon's processor
/// time and the requests of each file. It is not one of all.
///
/// Over a line: remote: images in an object store at some round trips: a start on a cold host
/// beside a pull and NBD, pushes, pulls, and what two versions share. The store is one in memory,
/// or that of --store at the http:// endpoint in AWS_ENDPOINT, where the images stay. It is not one
/// of all.
///
/// A signal that ends it leaves no mount, no loop device and no image behind.
///
/// With growth: scale: what calls, mounts and checks cost by files, by GiB and by extents. large:
/// the sizes that the seeds used, with --full; smaller without.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// A few minutes, on smaller files
    #[arg(long)]
    pub(crate) quick: bool,
    /// The run whose tables are published: at the seeds' sizes, some 25 minutes for all
    #[arg(long, conflicts_with = "quick")]
    pub(crate) full: bool,
    /// Rounds, 9 unless set; 7 with --quick and --full
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: Option<u32>,
    /// Only cases whose name begins with CASE
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Only these variants
    #[arg(long = "variant", value_name = "V", num_args = 1.., value_delimiter = ',')]
    pub(crate) variants: Vec<String>,
    /// The directory where images on a disk are made; the system's temporary directory unless set
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The store of remote, as s3://BUCKET/PREFIX; one in memory unless set
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) store: Option<String>,
    /// The folder whose image remote measures, as the root of a system; one is made unless set
    #[arg(long, value_name = "FOLDER")]
    pub(crate) tree: Option<PathBuf>,
    /// Write every row to a file
    #[arg(long, value_name = "F")]
    pub(crate) json: Option<PathBuf>,
    /// Draw each group of cases into a directory, as SVG and PNG, and write report.html with all of
    /// them and the tables
    #[arg(long, value_name = "DIR")]
    pub(crate) plot: Option<PathBuf>,
    /// Write Markdown to a file: between the marks of a page that has them, or as a new one
    #[arg(long, value_name = "F")]
    pub(crate) write: Option<PathBuf>,
    /// Print Markdown, with the counters that explain the figures
    #[arg(long)]
    pub(crate) markdown: bool,
    /// The rows to measure
    pub(crate) name: BenchName,
}

/// A family of measurements.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BenchName {
    Overwrite,
    Append,
    Parallel,
    Randwrite,
    Psync,
    Meta,
    Direct,
    Features,
    Disk,
    Device,
    Peers,
    Build,
    Scale,
    Large,
    Mount,
    Remote,
    All,
}
