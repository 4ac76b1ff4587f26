//! The command line's grammar: a file for each group of commands.

mod blocks;
mod building;
mod comparing;
mod examples;
mod given;
mod guests;
mod keys;
mod listing;
mod making;
mod measuring;
mod mounting;
mod namespace;
mod quotas;
mod sealing;
mod serving;
mod storing;
mod transfer;
mod volume;

use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};

use crate::key_files::KeyArgument;

pub(crate) use blocks::{Convert, Defrag, Fallocate, Map};
pub(crate) use building::{Build, BuildOptions, Free};
pub(crate) use comparing::Diff;
pub(crate) use examples::{examples_of, see_also};
pub(crate) use given::Given;
pub(crate) use guests::Vhost;
pub(crate) use keys::{
    Key, KeyAction, KeyAdd, KeyEncrypt, KeyOfMount, KeyPolicy, names_of as policy_names,
};
pub(crate) use listing::{Cat, Df, Du, Find, KindLetter, Ls, Stat, Tree};
pub(crate) use making::{Extended, ExtendedList, JournalChoice, Mkfs};
pub(crate) use measuring::{Bench, BenchName};
pub(crate) use mounting::{Mount, Stats, Umount};
pub(crate) use namespace::{Chmod, Chown, Ln, Mkdir, Mv, Rm, Setfattr, Touch};
pub(crate) use quotas::{
    Quota, QuotaAction, QuotaEdit, QuotaKinds, QuotaOwner, QuotaProject, QuotaReport,
};
pub(crate) use sealing::{SealedFiles, Verity, VerityAction, VerityEnable};
pub(crate) use serving::Nbd;
pub(crate) use storing::{Gc, Pull, Push, Versions};
pub(crate) use transfer::{Cp, Export, Tar, Untar};
pub(crate) use volume::{Check, Fix, Info, Resize, Trim};

/// The part of the help that is about all commands.
const AFTER_HELP: &str = "\
Exit status: 0 success, 1 failure, 2 wrong usage; check, diff and fix have their own. \
When a command ends with 0, its changes to an image are durable. A command that is killed leaves \
an image that is consistent once its journal is replayed. Every command that opens the image \
replays it: in memory, where the image may not be written. An image can be opened by many \
readers or by one writer; others are told that it is in use.

Failures go to standard error, a line each: extant: COMMAND: WHERE: WHAT. Output for programs \
(--json) is one JSON value on standard output, of diff one for each difference. A name that is \
not UTF-8 is also there as hexadecimal digits, under its key followed by \"_hex\".

EXTANT_LOG sets how much is logged: error, warn (the default), info, debug or trace. The log goes \
to standard error; that of a mount in the background goes to the system's log.

IMAGE may be an export of an NBD server: nbd://HOST[:PORT]/EXPORT, nbds:// with TLS, \
nbd+unix:///EXPORT?socket=PATH or nbds+unix://. Behind a ?, joined by &: connections=N (at most \
so many, 4), timeout=SECONDS (for a reply, 60), reconnect=SECONDS (to a server that was lost, \
30), tls-certificates=DIR, tls-hostname=NAME.

Commands that only read take an image in an object store as well, as extant push stores it: \
s3://BUCKET/PREFIX/NAME[@VERSION], gs://, az:// or file:///FOLDER/NAME.

Examples:
  extant mkfs disk.img 10G
  extant cp -r ./site disk.img:/site
  docker export CONTAINER | extant untar disk.img:/
  extant ls -lh disk.img:/site
  extant mount disk.img ./mnt && extant umount ./mnt
  extant check --json disk.img";

/// Read, write and mount ext4 images without the kernel's ext4.
///
/// Paths inside of an image are written IMAGE:/path, where IMAGE is an image file, a block device
/// or the address of an export of an NBD server. Symbolic links in an image lead to files of the
/// same image, never out of it. No command needs root, and only mount needs FUSE.
#[derive(Parser, Debug)]
#[command(
    name = "extant",
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_long_help = AFTER_HELP
)]
pub(crate) struct Cli {
    /// Read images by the copies of their superblocks that lie so many KiB from the start
    ///
    /// For images whose first superblock cannot be used: commands that only read take the copy in
    /// its place, and write nothing. fix stores it there. The message about such an image says
    /// where a copy lies.
    #[arg(long, global = true, value_name = "KIB", hide_short_help = true)]
    pub(crate) superblock: Option<u64>,
    /// A file with a master key of encrypted files (16 to 64 bytes; - is standard input), for the
    /// images of this command
    ///
    /// May be given several times. For policies of version 1 the descriptor stands before it:
    /// --key 0011223344556677=FILE. extant key adds keys to mounts.
    #[arg(
        long = "key",
        global = true,
        value_name = "[DESCRIPTOR=]FILE",
        hide_short_help = true
    )]
    pub(crate) key_files: Vec<KeyArgument>,
    /// Write what changes images in an object store to this file, and read them with it
    ///
    /// The file is made by the first command that writes: it is a layer over the version of then.
    /// extant push makes the two the next version. Mounts take -o layer=FILE.
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub(crate) layer: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The grammar, with the examples of each command.
pub(crate) fn grammar() -> clap::Command {
    Cli::command().mut_subcommands(examples::with_examples)
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Mount(Mount),
    Umount(Umount),
    Ls(Ls),
    Tree(Tree),
    Find(Find),
    Stat(Stat),
    Cat(Cat),
    Du(Du),
    Df(Df),
    Cp(Cp),
    Export(Export),
    Tar(Tar),
    Untar(Untar),
    Mv(Mv),
    Rm(Rm),
    Mkdir(Mkdir),
    Ln(Ln),
    Touch(Touch),
    Chmod(Chmod),
    Chown(Chown),
    Setfattr(Setfattr),
    Fallocate(Fallocate),
    Convert(Convert),
    Defrag(Defrag),
    Mkfs(Mkfs),
    Build(Box<Build>),
    Info(Info),
    Check(Check),
    Fix(Fix),
    Resize(Resize),
    Quota(Quota),
    Verity(Verity),
    Key(Key),
    Diff(Diff),
    Map(Map),
    Trim(Trim),
    Push(Push),
    Pull(Pull),
    Versions(Versions),
    Vhost(Vhost),
    Gc(Gc),
    Nbd(Box<Nbd>),
    Stats(Stats),
    Bench(Bench),
    /// Print the help of a command or of a topic: images, durability, journal or options
    Help {
        /// The command or the topic
        #[arg(value_name = "COMMAND|TOPIC")]
        words: Vec<String>,
    },
    /// Write the manual pages
    #[command(name = "manual", hide = true)]
    Manual {
        dir: PathBuf,
    },
    /// Print what a shell needs to complete command lines
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// Returns whether it can only read images, or is the one that repairs a superblock.
    pub(crate) fn reads(&self) -> bool {
        matches!(
            self,
            Command::Ls(_)
                | Command::Tree(_)
                | Command::Find(_)
                | Command::Du(_)
                | Command::Df(_)
                | Command::Stat(_)
                | Command::Cat(_)
                | Command::Export(_)
                | Command::Tar(_)
                | Command::Diff(_)
                | Command::Map(_)
                | Command::Info(_)
                | Command::Check(_)
                | Command::Fix(_)
                | Command::Cp(_)
        )
    }

    /// The word as it was typed.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Command::Mount(_) => "mount",
            Command::Umount(_) => "umount",
            Command::Ls(_) => "ls",
            Command::Tree(_) => "tree",
            Command::Find(_) => "find",
            Command::Du(_) => "du",
            Command::Df(_) => "df",
            Command::Touch(_) => "touch",
            Command::Setfattr(_) => "setfattr",
            Command::Stat(_) => "stat",
            Command::Cat(_) => "cat",
            Command::Cp(_) => "cp",
            Command::Export(_) => "export",
            Command::Tar(_) => "tar",
            Command::Untar(_) => "untar",
            Command::Mv(_) => "mv",
            Command::Rm(_) => "rm",
            Command::Mkdir(_) => "mkdir",
            Command::Ln(_) => "ln",
            Command::Chmod(_) => "chmod",
            Command::Chown(_) => "chown",
            Command::Fallocate(_) => "fallocate",
            Command::Convert(_) => "convert",
            Command::Defrag(_) => "defrag",
            Command::Mkfs(_) => "mkfs",
            Command::Build(_) => "build",
            Command::Info(_) => "info",
            Command::Check(_) => "check",
            Command::Fix(_) => "fix",
            Command::Resize(_) => "resize",
            Command::Quota(_) => "quota",
            Command::Verity(_) => "verity",
            Command::Key(_) => "key",
            Command::Diff(_) => "diff",
            Command::Map(_) => "map",
            Command::Trim(_) => "trim",
            Command::Push(_) => "push",
            Command::Pull(_) => "pull",
            Command::Versions(_) => "versions",
            Command::Nbd(_) => "nbd",
            Command::Vhost(_) => "vhost",
            Command::Gc(_) => "gc",
            Command::Stats(_) => "stats",
            Command::Bench(_) => "bench",
            Command::Help { .. } => "help",
            Command::Manual { .. } => "manual",
            Command::Completions { .. } => "completions",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        grammar().debug_assert();
    }
}
