//! Commands that show what an image holds: ls, tree, find, stat, cat, du, df.

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args};
use extant::FileKind;
use extant::build::Pattern;

use crate::operand::ImagePath;

/// An image alone stands for its root.
fn or_root() -> impl TypedValueParser<Value = ImagePath> {
    OsStringValueParser::new().map(ImagePath::or_root)
}

/// List directories
///
/// Names are sorted. A directory whose names exceed a few MiB is read several times, and never held
/// in memory as a whole.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Ls {
    /// Show names that begin with a dot
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Show attributes
    #[arg(short)]
    pub(crate) long: bool,
    /// With -l: show sizes as 1.5K, 20M
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Show the directories themselves, not what is in them
    #[arg(short, long)]
    pub(crate) directory: bool,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Print help
    #[arg(long, action = ArgAction::HelpLong)]
    pub(crate) help: Option<bool>,
    /// A directory, or anything else; an image alone stands for its root
    #[arg(required = true, value_name = "IMAGE[:/PATH]", value_parser = or_root())]
    pub(crate) paths: Vec<ImagePath>,
}

/// Show a directory and everything below it
///
/// Each directory is entered once. A second name of a directory is damage, and reported.
#[derive(Args, Debug)]
pub(crate) struct Tree {
    /// Show names that begin with a dot
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Descend at most N levels
    #[arg(short = 'L', long, value_name = "N")]
    pub(crate) level: Option<usize>,
    /// Output for programs: an array of all, each with its path and its depth
    #[arg(long)]
    pub(crate) json: bool,
    /// The directory to begin at; an image alone stands for its root
    #[arg(required = true, value_name = "IMAGE[:/PATH]", value_parser = or_root())]
    pub(crate) paths: Vec<ImagePath>,
}

/// Find paths by their names and kinds
///
/// Prints the path of everything below a directory, the directory first, each on a line. With
/// several conditions, all have to hold.
#[derive(Args, Debug)]
pub(crate) struct Find {
    /// Only names like this: * is anything, ? one byte. With a slash, the whole path below the
    /// directory is meant
    #[arg(short, long, value_name = "PATTERN")]
    #[arg(value_parser = OsStringValueParser::new().map(Pattern::from))]
    pub(crate) name: Option<Pattern>,
    /// Only this kind: f file, d directory, l link, b block device, c character device, p pipe, s
    /// socket; several, separated by commas
    #[arg(short = 't', long = "type", value_name = "KIND", value_delimiter = ',')]
    #[arg(value_parser = KindLetter::parse)]
    pub(crate) kinds: Vec<KindLetter>,
    /// Descend at most N levels
    #[arg(short = 'L', long, value_name = "N")]
    pub(crate) max_depth: Option<usize>,
    /// End each path with a zero byte instead of a new line
    #[arg(short = '0', long, conflicts_with = "json")]
    pub(crate) null: bool,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// The directory to begin at; an image alone stands for its root
    #[arg(required = true, value_name = "IMAGE[:/PATH]", value_parser = or_root())]
    pub(crate) paths: Vec<ImagePath>,
}

/// The kind of a file, by the letter that find(1) has for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KindLetter(pub(crate) FileKind);

impl KindLetter {
    fn parse(letter: &str) -> Result<KindLetter, &'static str> {
        Ok(KindLetter(match letter {
            "f" => FileKind::Regular,
            "d" => FileKind::Directory,
            "l" => FileKind::Symlink,
            "b" => FileKind::BlockDevice,
            "c" => FileKind::CharDevice,
            "p" => FileKind::Fifo,
            "s" => FileKind::Socket,
            _ => return Err("a kind is one of f, d, l, b, c, p and s"),
        }))
    }
}

/// Show the space that directories take
///
/// Prints the allocated space of each directory and of what is in it, in KiB, and the path. A file
/// with several names counts once.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Du {
    /// Show what is named only, not the directories in it
    #[arg(short, long)]
    pub(crate) summarize: bool,
    /// Show sizes as 1.5K, 20M
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Print help
    #[arg(long, action = ArgAction::HelpLong)]
    pub(crate) help: Option<bool>,
    /// The directory to begin at; an image alone stands for its root
    #[arg(required = true, value_name = "IMAGE[:/PATH]", value_parser = or_root())]
    pub(crate) paths: Vec<ImagePath>,
}

/// Show the free space of images
///
/// As df(1) would of a mount: the format's own blocks do not count, and what is reserved for root
/// is neither used nor available.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Df {
    /// Show sizes as 1.5K, 20M
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Print help
    #[arg(long, action = ArgAction::HelpLong)]
    pub(crate) help: Option<bool>,
    /// Image file, block device or NBD address
    #[arg(required = true, value_name = "IMAGE", value_parser = or_root())]
    pub(crate) images: Vec<ImagePath>,
}

/// Show attributes
#[derive(Args, Debug)]
pub(crate) struct Stat {
    /// Show what symbolic links lead to
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// The files to show
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Write files to standard output
///
/// Holes are written as zeros, unless --sparse says otherwise.
#[derive(Args, Debug)]
pub(crate) struct Cat {
    /// Leave holes where standard output is a regular file and nothing is there yet
    #[arg(short = 'S', long)]
    pub(crate) sparse: bool,
    /// A file
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}
