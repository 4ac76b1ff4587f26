//! Commands that change names and attributes: mv, rm, mkdir, ln, chmod, chown.

use std::ffi::OsString;

use clap::Args;

use crate::operand::ImagePath;
use crate::owner::{self, Owner};

/// Rename and move within an image
///
/// All operands are in the same image. With several sources the destination is a directory.
#[derive(Args, Debug)]
pub(crate) struct Mv {
    /// Skip what exists
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// What is moved
    #[arg(required = true, value_name = "IMAGE:/SOURCE")]
    pub(crate) sources: Vec<ImagePath>,
    /// Its new name, or the directory that it goes to
    #[arg(value_name = "IMAGE:/DESTINATION")]
    pub(crate) destination: ImagePath,
}

/// Remove files and trees
#[derive(Args, Debug)]
pub(crate) struct Rm {
    /// Remove directories and what is in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Remove empty directories
    #[arg(short, long)]
    pub(crate) dir: bool,
    /// Ignore what does not exist
    #[arg(short, long)]
    pub(crate) force: bool,
    /// What to remove
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Make directories
#[derive(Args, Debug)]
pub(crate) struct Mkdir {
    /// Make missing parents too, and accept directories that exist
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Permissions, as for chmod
    #[arg(short, long)]
    pub(crate) mode: Option<String>,
    /// The owner of what is made: USER, USER:GROUP or :GROUP, as for chown
    #[arg(long, value_name = "OWNER", value_parser = owner::parse)]
    pub(crate) owner: Option<Owner>,
    /// The new directory
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Make hard and symbolic links
#[derive(Args, Debug)]
pub(crate) struct Ln {
    /// Make a symbolic link; TARGET is then what the link says
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// Replace what exists
    #[arg(short, long)]
    pub(crate) force: bool,
    /// The owner of the symbolic link: USER, USER:GROUP or :GROUP, as for chown
    #[arg(long, value_name = "OWNER", value_parser = owner::parse, requires = "symbolic")]
    pub(crate) owner: Option<Owner>,
    /// What the link leads to
    pub(crate) target: OsString,
    /// The link
    #[arg(value_name = "IMAGE:/LINK")]
    pub(crate) link: ImagePath,
}

/// Change permissions
#[derive(Args, Debug)]
pub(crate) struct Chmod {
    /// Change what is in directories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Octal (644), or words as u=rwx,go-w,+X
    #[arg(allow_hyphen_values = true)]
    pub(crate) mode: String,
    /// What to change
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}

/// Change owner and group
#[derive(Args, Debug)]
pub(crate) struct Chown {
    /// Change what is in directories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Change symbolic links, not what they lead to
    #[arg(short = 'n', long)]
    pub(crate) no_dereference: bool,
    /// USER, USER:GROUP or :GROUP; numbers, or names that this machine knows
    pub(crate) owner: String,
    /// What to change
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) paths: Vec<ImagePath>,
}
