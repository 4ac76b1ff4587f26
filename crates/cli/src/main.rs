//! The `extant` command: ext4 images without root and without loop devices.
//!
//! One file per command in `commands`, each a function that takes its arguments and returns a
//! [`failure::Outcome`]. `operand` reads `IMAGE:/path`, `images` opens images, `copy` moves trees
//! between hosts and images. `helper` is what mount(8) and umount(8) call, `compare` is behind
//! `diff`.
//!
//! Exit status: 0 success, 1 failure, 2 wrong usage; `check`, `diff` and `fix` have their own.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod address_space;
mod args;
mod commands;
mod compare;
mod descent;
mod failure;
mod fetcher;
mod helper;
mod images;
mod key_files;
mod logging;
mod manual;
mod mode;
mod mount_point;
mod mount_settings;
mod mount_source;
mod mount_users;
mod operand;
mod option_list;
mod output;
mod owner;
mod printable;
mod program;
mod progress;
mod recovery;
mod serve;
mod size;
mod source;
mod stored;
mod supervisor;
mod topics;
mod unfinished;
mod unreadable;
mod utab;
mod walk;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use clap::FromArgMatches;
use clap::error::ErrorKind;
use signal_hook::consts::SIGXFSZ;

use args::{Cli, Command};
use failure::Outcome;

fn main() -> ExitCode {
    program::name_process();
    logging::install();
    // A write past the limit on the sizes of files (`ulimit -f`) is an error then. Its signal would
    // end the process: a daemon with its mount.
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, Arc::default()) {
        tracing::warn!("a limit on the sizes of files will end this process: {error}");
    }
    let arguments: Vec<OsString> = env::args_os().collect();
    if let Some(exit) = helper::run(&arguments) {
        return exit;
    }
    let parsed = args::grammar().try_get_matches_from(arguments);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(told) => return answered(&told),
    };
    let name = cli.command.name();
    logging::set_command(name);
    if let Some(kib) = cli.superblock {
        if !cli.command.reads() {
            let what = "--superblock is for commands that only read, and for fix";
            return failure::exit(name, Outcome::Usage(what.into()));
        }
        source::read_by_copy(kib);
    }
    if let Some(layer) = cli.layer {
        if let Command::Mount(_) = cli.command {
            return failure::exit(name, Outcome::Usage("a mount takes -o layer=FILE".into()));
        }
        stored::use_layer(layer);
    }
    if let Err(failure) = key_files::read_all(&cli.key_files) {
        return failure::exit(name, Outcome::Failed(failure));
    }
    failure::exit(name, run(cli.command))
}

/// Prints what the grammar answers itself: the help, the version, what is wrong with the arguments.
fn answered(told: &clap::Error) -> ExitCode {
    let printed = output::printed(told.print());
    match told.kind() {
        ErrorKind::DisplayHelp => failure::exit("help", printed.into()),
        ErrorKind::DisplayVersion => failure::exit("version", printed.into()),
        // Standard error is not there to say that it could not be written.
        _ => ExitCode::from(2),
    }
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Mount(args) => commands::mount::run(&args),
        Command::Umount(args) => commands::umount::run(&args),
        Command::Ls(args) => commands::ls::run(&args),
        Command::Tree(args) => commands::tree::run(&args),
        Command::Find(args) => commands::find::run(&args),
        Command::Du(args) => commands::du::run(&args),
        Command::Df(args) => commands::df::run(&args),
        Command::Touch(args) => commands::touch::run(&args),
        Command::Setfattr(args) => commands::setfattr::run(&args),
        Command::Stat(args) => commands::stat::run(&args),
        Command::Cat(args) => commands::cat::run(&args),
        Command::Cp(args) => commands::cp::run(&args),
        Command::Mv(args) => commands::mv::run(&args),
        Command::Rm(args) => commands::rm::run(&args),
        Command::Mkdir(args) => commands::mkdir::run(&args),
        Command::Ln(args) => commands::ln::run(&args),
        Command::Chmod(args) => commands::chmod::run(&args),
        Command::Chown(args) => commands::chown::run(&args),
        Command::Export(args) => commands::export::run(&args),
        Command::Tar(args) => commands::tar::run(&args),
        Command::Untar(args) => commands::untar::run(&args),
        Command::Mkfs(args) => commands::mkfs::run(&args),
        Command::Build(args) => commands::build::run(&args),
        Command::Info(args) => commands::info::run(&args),
        Command::Help { words } => topics::run(&words),
        Command::Manual { dir } => manual::write(&dir),
        Command::Completions { shell } => manual::complete(shell),
        Command::Check(args) => commands::check::run(&args),
        Command::Fix(args) => commands::fix::run(&args),
        Command::Quota(args) => commands::quota::run(&args),
        Command::Verity(args) => commands::verity::run(&args),
        Command::Key(args) => commands::key::run(&args),
        Command::Resize(args) => commands::resize::run(&args).into(),
        Command::Fallocate(args) => commands::fallocate::run(&args),
        Command::Convert(args) => commands::convert::run(&args),
        Command::Defrag(args) => commands::defrag::run(&args),
        Command::Diff(args) => commands::diff::run(&args),
        Command::Map(args) => commands::map::run(&args),
        Command::Trim(args) => commands::trim::run(&args).into(),
        Command::Push(args) => commands::push::run(&args).into(),
        Command::Pull(args) => commands::pull::run(&args).into(),
        Command::Versions(args) => commands::versions::run(&args).into(),
        Command::Vhost(args) => commands::vhost::run(&args).into(),
        Command::Gc(args) => commands::gc::run(&args).into(),
        Command::Nbd(args) => commands::nbd::run(&args),
        Command::Stats(args) => commands::stats::run(&args).into(),
        Command::Bench(args) => commands::bench::run(&args),
    }
}
