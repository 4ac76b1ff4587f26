//! Commands that copy trees into and out of images: cp, export, tar, untar.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use super::given::Given;
use crate::operand::{ImagePath, Operand};

/// Copy files and trees into, out of and between images
///
/// At least one of source and destination is in an image. With several sources the destination is a
/// directory. As a source, IMAGE:/ and DIR/. stand for the contents of the directory. Holes stay
/// holes.
///
/// Without -r and -a, devices and pipes of the host are read and written as cp(1) does. A symbolic
/// link that is named as the destination is followed; one that is met below it is replaced. On the
/// host none is followed there: an untrusted image cannot direct the copy elsewhere. A file whose
/// owner cannot be kept (only root can) loses its set-id bits.
///
/// Memory: 64 MiB for file data and 32 MiB for metadata, which the images of the command share, and
/// what waits in their journals, however many files there are.
#[derive(Args, Debug)]
#[command(override_usage = "extant cp [OPTIONS] <SOURCE>... <DESTINATION>")]
pub(crate) struct Cp {
    /// Copy directories and what is in them; symbolic links are copied as links
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// As -r, and keep owners, permissions, times, extended attributes and hard links
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Keep owners, permissions and times
    #[arg(short)]
    pub(crate) preserve: bool,
    /// Skip files that exist
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// Holes: auto keeps those of the source, always makes holes of zeros too, never writes them as
    /// zeros
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub(crate) sparse: SparseWhen,
    #[command(flatten)]
    pub(crate) given: Given,
    /// Never show a progress bar. It shows on a terminal only, for copies that take long
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Output for programs: how many files were copied, directories aside, and the bytes of their
    /// content with its holes
    #[arg(long)]
    pub(crate) json: bool,
    /// Sources: IMAGE:/path, a path of the host, or - for standard input. Then the destination:
    /// IMAGE:/path, or a path of the host
    #[arg(required = true, num_args = 1.., value_names = ["SOURCE", "DESTINATION"])]
    pub(crate) operands: Vec<Operand>,
}

/// The use of holes in a copy, as an argument of the command.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SparseWhen {
    /// The holes of the source are holes of the copy.
    Auto,
    /// Zeros become holes too.
    Always,
    /// Holes are written as zeros.
    Never,
}

impl From<SparseWhen> for extant::Sparse {
    fn from(when: SparseWhen) -> extant::Sparse {
        match when {
            SparseWhen::Auto => extant::Sparse::Auto,
            SparseWhen::Always => extant::Sparse::Always,
            SparseWhen::Never => extant::Sparse::Never,
        }
    }
}

/// Write an image, or a directory of it, to an archive
///
/// Does the same as extant tar, with the archive as an operand: extant export IMAGE:/DIR FILE is
/// extant tar -f FILE IMAGE:/DIR.
#[derive(Args, Debug)]
pub(crate) struct Export {
    /// The directory; an image alone stands for its root
    #[arg(value_name = "IMAGE[:/DIR]")]
    #[arg(value_parser = OsStringValueParser::new().map(ImagePath::or_root))]
    pub(crate) from: ImagePath,
    /// The archive; - is standard output
    #[arg(value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// Output for programs: how many regular files the archive has, and the bytes of their content
    /// with its holes
    #[arg(long)]
    pub(crate) json: bool,
    /// Never show a progress bar. It shows on a terminal only, for archives that take long
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Write a directory and what is in it to standard output, as an archive
///
/// The archive is what tar(1) makes of a mount with --format=pax --sort=name --xattrs
/// --numeric-owner: owners, permissions, times with nanoseconds, extended attributes, hard links
/// and device nodes. As with --acls and --sparse, ACLs also have a text form and holes stay holes.
/// Equal trees give equal archives. Sockets are left out. A file gets its name when the archive is
/// complete: until then, what was there stays. extant export is the same with the archive as an
/// operand.
#[derive(Args, Debug)]
pub(crate) struct Tar {
    /// Write to a file instead
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Never show a progress bar. It shows on a terminal only, for archives that take long
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// With -f: output for programs, as of extant export
    #[arg(long, requires = "file")]
    pub(crate) json: bool,
    /// The directory; names in the archive begin below it
    #[arg(value_name = "IMAGE:/DIR")]
    pub(crate) from: ImagePath,
}

/// Unpack an archive from standard input
///
/// Reads what tar(1), docker export and similar programs write: ustar, pax and GNU's format, not
/// compressed, also with --sparse, --xattrs and --acls. Owners, permissions, times, extended
/// attributes, ACLs, hard links and device nodes are those of the archive, without root. Names in
/// ACLs are looked up on this machine. Existing files are replaced, existing directories are
/// filled. If the image is full, the command ends with one error; complete entries stay. Names with
/// ".." in them are refused. Links in the image are followed, those from the archive too: they
/// never lead out of the image, but an untrusted archive may reach outside of the named directory.
/// Blocks of zeros become holes.
///
/// Memory: 64 MiB for file data, 32 MiB for metadata, and what waits in the journal, however many
/// files there are.
#[derive(Args, Debug)]
pub(crate) struct Untar {
    /// Read from a file instead
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) given: Given,
    /// Never show a progress bar. It shows on a terminal only, for archives that take long
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// The directory to unpack in
    #[arg(value_name = "IMAGE:/DIR")]
    pub(crate) to: ImagePath,
}
