//! The command that builds images: build.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Command, FromArgMatches};
use extant::build::{IdRange, Pattern};

use super::making::{ExtendedList, FeatureList, UsageName, UuidChoice};
use super::making::{parse_extended_list, parse_feature_list, parse_uuid};
use crate::size;

/// Build an ext4 image from folders, archives, container images and other ext4 images
///
/// The same sources and options give the same bytes, on every machine. UUID and hash seed follow
/// from the contents, the time of making is that of the newest file. It needs neither root nor FUSE
/// nor loop devices. Later sources lie over earlier ones; the whiteouts of layers remove.
///
/// The image is as small as can be, plus --free, or as large as --size says. It gets its name when
/// it is complete and durable: a build that fails leaves nothing behind, and what was there stays.
/// An IMAGE that holds something of value already is refused unless --force is given.
///
/// Memory: 250 to 400 bytes for an entry, beside what attributes take: 10^6 files take
/// less than 400 MiB. At most 2^24 entries are taken.
#[derive(Args, Debug)]
#[command(override_usage = "extant build [OPTIONS] <SOURCE>... <IMAGE>")]
pub(crate) struct Build {
    #[command(flatten)]
    pub(crate) options: BuildOptions,
    /// Threads that copy data, instead of one for each processor
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Overwrite what is there
    #[arg(short = 'F', long)]
    pub(crate) force: bool,
    /// Print nothing but failures
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Sources, later ones over earlier ones: folders; archives (tar, plain or by gzip, zstd or xz,
    /// standard input as -); OCI layouts; what docker save writes; ext4 images, IMAGE or
    /// IMAGE:/DIR. Then the image: a file or a block device
    #[arg(required = true, num_args = 1.., value_names = ["SOURCE", "IMAGE"])]
    pub(crate) paths: Vec<PathBuf>,
}

// The options of a volume that is built of sources. It has no documentation: the commands that
// have these options would show it as theirs.
#[derive(Args, Debug)]
pub(crate) struct BuildOptions {
    /// Bytes of the image, instead of the fewest that do
    #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with = "free")]
    pub(crate) size: Option<u64>,
    /// Bytes that stay free on the smallest image, or with % the share of the space for files that
    /// does: 50% for as much again
    #[arg(long, value_name = "SIZE|PERCENT%", value_parser = parse_free, default_value = "0")]
    pub(crate) free: Free,
    /// Leave files out, and what is below them: a name (*.pyc) or, with a slash, a path
    /// (/var/cache)
    #[arg(long, value_name = "PATTERN")]
    #[arg(value_parser = OsStringValueParser::new().map(Pattern::from))]
    pub(crate) exclude: Vec<Pattern>,
    /// Keep attributes trusted.* of folders, which the host shows to root alone. Without this, the
    /// image does not depend on the user
    #[arg(long)]
    pub(crate) trusted: bool,
    /// Owner and group of all files, in numbers or by names of this machine: USER, USER:GROUP or
    /// :GROUP. A file that gets another owner loses set-id bits and capabilities, as by chown(2)
    #[arg(long, value_name = "USER:GROUP")]
    pub(crate) owner: Option<String>,
    /// Owners that become others: FROM:TO, or FROM:TO:COUNT for so many in a row. Set-id bits stay,
    /// but for those of files that become root's; capabilities go
    #[arg(long, value_name = "FROM:TO[:COUNT]", value_parser = parse_range)]
    pub(crate) map_uid: Vec<IdRange>,
    /// The same for groups
    #[arg(long, value_name = "FROM:TO[:COUNT]", value_parser = parse_range)]
    pub(crate) map_gid: Vec<IdRange>,
    /// Modification time of all files, in seconds since 1970. Without it, SOURCE_DATE_EPOCH is the
    /// time of files that are newer
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) mtime: Option<i64>,
    /// Attributes for paths and nodes to add, as mtree(5) has them: lines of a path and words
    /// (type, uid, gid, mode, time, link, device, contents, xattr.NAME), /set and /unset
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// Paths whose data lie first, in this order, a line each: those that a boot reads, for one
    #[arg(long, value_name = "FILE")]
    pub(crate) order: Option<PathBuf>,
    /// Which image of an OCI layout or a docker save archive that has several, by its name
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,
    /// Which platform of an image that has several: OS/ARCHITECTURE, or with /VARIANT
    #[arg(long, value_name = "OS/ARCH")]
    pub(crate) platform: Option<String>,
    /// Bytes that compressed sources may unpack to: 256 GiB unless set, 4 times --size with it
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) limit: Option<u64>,
    /// The use of the volume: as in mkfs. Blocks have 4096 bytes unless --block-size is given
    #[arg(
        short = 'T',
        long = "type",
        value_enum,
        value_name = "TYPE",
        default_value = "default"
    )]
    pub(crate) usage: UsageName,
    /// Bytes of a block: a power of two from 1024 to 65536; 4096 by default
    #[arg(short, long, value_name = "BYTES")]
    pub(crate) block_size: Option<u32>,
    /// With -O bigalloc: bytes of a cluster, as in mkfs
    #[arg(short = 'C', long, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) cluster_size: Option<u64>,
    /// Bytes of an inode: a power of two from 128 to the block size, at most 32768; 256 by default
    #[arg(short = 'I', long, value_name = "BYTES")]
    pub(crate) inode_size: Option<u32>,
    /// How many inodes, instead of those that are needed (and one for 16 KiB of --free)
    #[arg(short = 'N', long, value_name = "COUNT")]
    pub(crate) inodes: Option<u64>,
    /// The volume's label: at most 16 bytes
    #[arg(short = 'L', long, value_name = "LABEL")]
    pub(crate) label: Option<String>,
    /// The volume's UUID, instead of one that follows from the contents
    #[arg(short = 'U', long, value_name = "UUID", value_parser = parse_uuid)]
    pub(crate) uuid: Option<UuidChoice>,
    /// Share of the blocks that only root may take: 0 (the default) to 50
    #[arg(short = 'm', long, value_name = "PERCENT")]
    pub(crate) reserved_percent: Option<f64>,
    /// Features to add, or with a ^ in front to take away: as in mkfs
    #[arg(short = 'O', long, value_name = "FEATURE,^FEATURE", value_parser = parse_feature_list)]
    pub(crate) features: Vec<FeatureList>,
    /// More: as in mkfs; hash_seed=UUID replaces the seed that follows from the contents
    #[arg(short = 'E', long, value_name = "KEY=VALUE,...", value_parser = parse_extended_list)]
    pub(crate) extended: Vec<ExtendedList>,
}

impl BuildOptions {
    /// Returns whether one of them was given.
    pub(crate) fn is_given(&self) -> bool {
        let grammar = BuildOptions::augment_args(Command::new("none").no_binary_name(true));
        let none = grammar.try_get_matches_from([] as [&str; 0]);
        let none = none.and_then(|matches| BuildOptions::from_arg_matches(&matches));
        // Their values can be shown, not all compared.
        none.map_or(true, |none| format!("{none:?}") != format!("{self:?}"))
    }
}

/// Space that stays free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Free {
    Bytes(u64),
    Percent(u8),
}

fn parse_free(text: &str) -> Result<Free, String> {
    let Some(percent) = text.strip_suffix('%') else {
        return size::parse(text).map(Free::Bytes);
    };
    let percent = percent.parse().ok().filter(|percent| *percent < 100);
    let percent = percent.ok_or("a percentage is a whole number below 100")?;
    Ok(Free::Percent(percent))
}

fn parse_range(text: &str) -> Result<IdRange, String> {
    let numbers: Result<Vec<u32>, _> = text.split(':').map(str::parse).collect();
    match numbers.as_deref() {
        Ok([from, to]) => Ok(range(*from, *to, 1)),
        Ok([from, to, count]) => Ok(range(*from, *to, *count)),
        _ => Err("it is FROM:TO or FROM:TO:COUNT, in numbers".to_owned()),
    }
}

fn range(from: u32, to: u32, count: u32) -> IdRange {
    IdRange { from, to, count }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_were_given_are_known() {
        let given = |arguments: &[&str]| {
            let grammar = BuildOptions::augment_args(Command::new("x").no_binary_name(true));
            let matches = grammar.get_matches_from(arguments);
            BuildOptions::from_arg_matches(&matches).unwrap().is_given()
        };
        assert!(!given(&[]));
        for one in [
            &["--free", "1K"][..],
            &["-L", "x"],
            &["-T", "largefile"],
            &["--trusted"],
            &["-O", "bigalloc"],
            &["--exclude", "x"],
        ] {
            assert!(given(one), "{one:?}");
        }
    }

    #[test]
    fn what_stays_free_is_bytes_or_a_share() {
        assert_eq!(parse_free("1K"), Ok(Free::Bytes(1024)));
        assert_eq!(parse_free("50%"), Ok(Free::Percent(50)));
        for bad in ["", "%", "100%", "-1%", "1.5%"] {
            assert!(parse_free(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges_of_ids_are_read() {
        assert_eq!(parse_range("1000:0"), Ok(range(1000, 0, 1)));
        assert_eq!(parse_range("1:100000:65536"), Ok(range(1, 100_000, 65536)));
        for bad in ["", "1", "1:x", "1:2:3:4", "-1:0"] {
            assert!(parse_range(bad).is_err(), "{bad}");
        }
    }
}
