//! Commands that make images: mkfs.

use std::path::PathBuf;

use clap::Args;
use extant::mkfs::{FeatureEdit, QuotaKinds, Usage, parse_features, parse_quota_kinds};

use crate::size;

/// Make an ext4 file system in a file or on a block device
///
/// Block for block what mke2fs -t ext4 makes of the same options. A file that is not there is made,
/// as long as SIZE says, and is sparse: it takes space for metadata only. Without SIZE the file
/// system takes all of what is there.
///
/// A target that holds something of value already (a file system, swap space, an encrypted volume,
/// a partition table ...) is refused unless --force is given; what is in use is refused in any
/// case. A power cut before the end leaves no file system, never half of one.
///
/// The same options, UUID, hash seed and time give the same bytes. Where no --time is given,
/// SOURCE_DATE_EPOCH stands for now.
#[derive(Args, Debug)]
pub(crate) struct Mkfs {
    /// The use of the volume: values that other options do not give follow from it.
    #[arg(
        short = 'T',
        long = "type",
        value_enum,
        value_name = "TYPE",
        default_value = "default"
    )]
    pub(crate) usage: UsageName,
    /// Bytes of a block: 1024 to 65536, by powers of two. By default 1024 below 512 MiB, else 4096
    #[arg(short, long, value_name = "BYTES")]
    pub(crate) block_size: Option<u32>,
    /// With -O bigalloc: bytes of a cluster, the unit in which space is given to files: a power of
    /// two from the block size (and 2048) to 512 MiB; 16 blocks by default
    #[arg(short = 'C', long, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) cluster_size: Option<u64>,
    /// Bytes of an inode: a power of two from 128 to the block size, at most 32768; 256 by default
    #[arg(short = 'I', long, value_name = "BYTES")]
    pub(crate) inode_size: Option<u32>,
    /// One inode for so many bytes of the volume
    #[arg(short = 'i', long, value_name = "BYTES", conflicts_with = "inodes")]
    #[arg(value_parser = size::parse)]
    pub(crate) bytes_per_inode: Option<u64>,
    /// How many inodes; rounded up to fill whole blocks in each group
    #[arg(short = 'N', long, value_name = "COUNT")]
    pub(crate) inodes: Option<u64>,
    /// The volume's label: at most 16 bytes
    #[arg(short = 'L', long, value_name = "LABEL")]
    pub(crate) label: Option<String>,
    /// The volume's UUID, "random" (the default) or "clear" (zeros)
    #[arg(short = 'U', long, value_name = "UUID", value_parser = parse_uuid)]
    pub(crate) uuid: Option<UuidChoice>,
    /// Share of the blocks that only root may take: 0 to 50; 5 by default
    #[arg(short = 'm', long, value_name = "PERCENT")]
    pub(crate) reserved_percent: Option<f64>,
    /// The journal: size=MIB sets its size, which otherwise follows from the volume's, and
    /// fast_commit_size=KIB that of the area for fast commits at its end, with -O fast_commit;
    /// device=PATH has it on another device, or in another file, that -O journal_dev has made
    #[arg(short = 'J', long, value_name = "size=MIB|device=PATH", value_parser = parse_journal)]
    pub(crate) journal: Option<JournalChoice>,
    /// Features to add, or with a ^ in front to take away; "none" takes all away.
    ///
    /// Those there are: has_journal ext_attr resize_inode dir_index sparse_super2 orphan_file
    /// fast_commit filetype extent 64bit mmp flex_bg metadata_csum_seed sparse_super large_file
    /// huge_file uninit_bg dir_nlink extra_isize metadata_csum casefold large_dir ea_inode
    /// inline_data meta_bg (which needs ^resize_inode) quota project bigalloc (clusters, see -C)
    /// verity encrypt stable_inodes; and journal_dev, which makes a journal for a volume elsewhere
    /// (see -J)
    #[arg(short = 'O', long, value_name = "FEATURE,^FEATURE", value_parser = parse_feature_list)]
    pub(crate) features: Vec<FeatureList>,
    /// More: hash_seed=UUID (of directory hashes), stride=BLOCKS and stripe_width=BLOCKS (of a
    /// RAID), root_owner=UID:GID (of the root directory; without a value those of the caller),
    /// lazy_itable_init=0|1 (whether unused inode tables of a block device are left to the first
    /// mount), encoding=utf8 (the same as -O casefold), encoding_flags=strict (folded directories
    /// take names in UTF-8 only), quotatype=usrquota:grpquota:prjquota (the kinds of -O quota;
    /// users and groups by default), discard, nodiscard (whether the device is first discarded as
    /// a whole)
    #[arg(short = 'E', long, value_name = "KEY=VALUE,...", value_parser = parse_extended_list)]
    pub(crate) extended: Vec<ExtendedList>,
    /// Seconds since 1970 to write as the time of making
    #[arg(long, value_name = "SECONDS")]
    pub(crate) time: Option<u64>,
    /// Say what would be made, and write nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Overwrite what is there
    #[arg(short = 'F', long)]
    pub(crate) force: bool,
    /// Print nothing
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Image file, block device or NBD address
    pub(crate) image: PathBuf,
    /// Bytes of the volume; K, M, G ... stand for KiB, MiB, GiB ..., KB, MB, GB ... for powers of
    /// 1000
    #[arg(value_parser = size::parse)]
    pub(crate) size: Option<u64>,
}

/// The use of a volume.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UsageName {
    /// Anything: sizes follow from the volume's, as with mke2fs
    Default,
    /// Many small files: blocks of 1 KiB, an inode for 4 KiB
    Small,
    /// Few large files: an inode for 1 MiB
    Largefile,
    /// An image that is made once: no journal, no room for growth, no reserved blocks
    Minimal,
    /// The drive of a micro VM: nothing left for the guest to initialise, nothing reserved
    Firecracker,
    /// A partition of Android: without 64bit, flex_bg, metadata_csum and resize_inode; 1 % reserved
    Android,
    /// A boot volume that every GRUB 2 reads: without 64bit and metadata_csum
    Grub,
}

impl From<UsageName> for Usage {
    fn from(name: UsageName) -> Usage {
        match name {
            UsageName::Default => Usage::Default,
            UsageName::Small => Usage::Small,
            UsageName::Largefile => Usage::LargeFile,
            UsageName::Minimal => Usage::Minimal,
            UsageName::Firecracker => Usage::Firecracker,
            UsageName::Android => Usage::Android,
            UsageName::Grub => Usage::Grub,
        }
    }
}

/// The journal of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum JournalChoice {
    /// Inside of it: MiB of the log, and KiB of the area for fast commits.
    Inside {
        mib: Option<u32>,
        fast_commit_kib: Option<u32>,
    },
    /// On this device, or in this file.
    Device(PathBuf),
}

/// A UUID that was asked for; `None` is a random one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UuidChoice(pub(crate) Option<[u8; 16]>);

/// The list of one `-O`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FeatureList(pub(crate) Vec<FeatureEdit>);

/// The list of one `-E`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExtendedList(pub(crate) Vec<Extended>);

/// One word of `-E`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extended {
    HashSeed([u8; 16]),
    Stride(u32),
    StripeWidth(u32),
    /// Without a value, the caller's.
    RootOwner(Option<(u32, u32)>),
    LazyItableInit(bool),
    Discard(bool),
    /// A feature that a value goes with.
    Feature(FeatureEdit),
    StrictNames(bool),
    Quotas(QuotaKinds),
}

pub(super) fn parse_uuid(text: &str) -> Result<UuidChoice, String> {
    match text {
        "random" => Ok(UuidChoice(None)),
        "clear" => Ok(UuidChoice(Some([0; 16]))),
        text => Ok(UuidChoice(Some(uuid(text)?))),
    }
}

/// A UUID in its usual form.
fn uuid(text: &str) -> Result<[u8; 16], String> {
    let bad = || format!("{text:?} is no UUID");
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    if groups != [8, 4, 4, 4, 12] {
        return Err(bad());
    }
    let digits = text
        .bytes()
        .filter_map(|byte| char::from(byte).to_digit(16));
    let digits: Vec<u8> = digits
        .filter_map(|digit| u8::try_from(digit).ok())
        .collect();
    let bytes = digits
        .as_chunks::<2>()
        .0
        .iter()
        .map(|[high, low]| high << 4 | low);
    bytes.collect::<Vec<u8>>().try_into().map_err(|_| bad())
}

fn parse_journal(text: &str) -> Result<JournalChoice, String> {
    if let Some(path) = text.strip_prefix("device=").filter(|path| !path.is_empty()) {
        return Ok(JournalChoice::Device(path.into()));
    }
    let (mut mib, mut fast_commit_kib) = (None, None);
    for word in text.split(',') {
        match word.split_once('=') {
            Some(("size", size)) => mib = Some(number(size)?),
            Some(("fast_commit_size", size)) => fast_commit_kib = Some(number(size)?),
            _ => {
                return Err("only size=MIB, fast_commit_size=KIB and device=PATH are known".into());
            }
        }
    }
    Ok(JournalChoice::Inside {
        mib,
        fast_commit_kib,
    })
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

pub(super) fn parse_feature_list(text: &str) -> Result<FeatureList, String> {
    let edits = parse_features(text).map_err(|error| error.to_string())?;
    Ok(FeatureList(edits))
}

pub(super) fn parse_extended_list(text: &str) -> Result<ExtendedList, String> {
    let words = text.split(',').filter(|word| !word.is_empty());
    words
        .map(parse_extended)
        .collect::<Result<_, _>>()
        .map(ExtendedList)
}

fn feature(name: &str) -> Result<Extended, String> {
    let edits = parse_features(name).map_err(|error| error.to_string())?;
    let edit = edits.first().copied().ok_or("no feature")?;
    Ok(Extended::Feature(edit))
}

fn parse_extended(word: &str) -> Result<Extended, String> {
    let (key, value) = match word.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (word, None),
    };
    match (key, value) {
        ("hash_seed", Some(value)) => Ok(Extended::HashSeed(uuid(value)?)),
        ("stride", Some(value)) => Ok(Extended::Stride(number(value)?)),
        ("stripe_width" | "stripe-width", Some(value)) => Ok(Extended::StripeWidth(number(value)?)),
        ("root_owner", None) => Ok(Extended::RootOwner(None)),
        ("root_owner", Some(value)) => {
            let ids = value.split_once(':').ok_or("root_owner is UID:GID")?;
            Ok(Extended::RootOwner(Some((number(ids.0)?, number(ids.1)?))))
        }
        ("lazy_itable_init", None | Some("1")) => Ok(Extended::LazyItableInit(true)),
        ("lazy_itable_init", Some("0")) => Ok(Extended::LazyItableInit(false)),
        ("encoding", Some("utf8" | "utf8-12.1")) => feature("casefold"),
        ("encoding_flags", Some("strict")) => Ok(Extended::StrictNames(true)),
        ("encoding_flags", Some("nostrict")) => Ok(Extended::StrictNames(false)),
        ("quotatype", Some(list)) => parse_quota_kinds(list)
            .map(Extended::Quotas)
            .map_err(|error| error.to_string()),
        ("discard", None) => Ok(Extended::Discard(true)),
        ("nodiscard", None) => Ok(Extended::Discard(false)),
        _ => Err(format!("{word:?} is not known")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_have_their_usual_form() {
        let bytes = uuid("00112233-4455-6677-8899-aabbccddeeFF").unwrap();
        assert_eq!(bytes[..4], [0, 0x11, 0x22, 0x33]);
        assert_eq!(bytes[15], 0xFF);
        for bad in [
            "",
            "00112233445566778899aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddeeg0",
            "00112233-4455-6677-8899-aabbccddeeff-",
            "0011223-34455-6677-8899-aabbccddeeff",
        ] {
            assert!(uuid(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn extended_options_are_read_and_unknown_ones_refused() {
        let list = parse_extended_list("stride=16,root_owner=5:6,lazy_itable_init=0").unwrap();
        let known = [
            Extended::Stride(16),
            Extended::RootOwner(Some((5, 6))),
            Extended::LazyItableInit(false),
        ];
        assert_eq!(list.0, known);
        for bad in [
            "stride",
            "stride=x",
            "root_owner=5",
            "lazy_itable_init=2",
            "encoding=utf16",
            "encoding_flags=lax",
            "quotatype=bogus",
            "bogus",
        ] {
            assert!(parse_extended_list(bad).is_err(), "{bad}");
        }
        assert!(parse_journal("4").is_err() && parse_journal("device=").is_err());
        let inside = |mib, fast_commit_kib| {
            Ok(JournalChoice::Inside {
                mib,
                fast_commit_kib,
            })
        };
        assert_eq!(parse_journal("size=4"), inside(Some(4), None));
        let both = parse_journal("fast_commit_size=256,size=8");
        assert_eq!(both, inside(Some(8), Some(256)));
        assert!(parse_journal("size=4,device=/dev/x").is_err());
        let device = JournalChoice::Device("/dev/x=y".into());
        assert_eq!(parse_journal("device=/dev/x=y"), Ok(device));
    }
}
