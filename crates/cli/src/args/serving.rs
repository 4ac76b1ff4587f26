//! The command that serves images to other programs: nbd.

use std::path::PathBuf;

use clap::Args;

use super::building::BuildOptions;

/// Serve an image, or a folder or archive as an image, to other programs over NBD
///
/// Any client of NBD can use it: qemu, nbd-client, nbdcopy, and extant itself, by the address that
/// is printed once the server answers. Several clients may be connected at a time; only one of them
/// may mount the image for writing. An image file or block device is claimed for as long as it is
/// served. An image in an object store is served read-only.
///
/// Of folders and archives an image is made as it is read: clients get the bytes that extant build
/// writes with the same options, and nothing is written. It is read-only. Metadata are in memory,
/// contents are read from the sources when they are asked for; a file that has changed since is an
/// error to read. The contents are read once before, for the UUID that follows from them, unless -U
/// names one. Compressed archives are unpacked to a temporary file.
///
/// The server has no passwords: with --socket only this user can connect, with --listen each
/// program that reaches the port can. SIGINT and SIGTERM end it, after a flush.
#[derive(Args, Debug)]
pub(crate) struct Nbd {
    /// Listen at a Unix socket, which only this user can connect to
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    pub(crate) socket: Option<PathBuf>,
    /// Listen at a TCP port; 0 stands for a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "localhost:10809")]
    pub(crate) listen: String,
    /// Clients only read
    #[arg(short, long)]
    pub(crate) read_only: bool,
    /// End when the last client has left
    #[arg(long)]
    pub(crate) once: bool,
    /// The name of the export; clients may leave it out
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) export: String,
    /// Requests of one client that are carried out at a time
    #[arg(long, value_name = "N", default_value = "4")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) threads: u8,
    #[command(flatten)]
    pub(crate) options: BuildOptions,
    /// Image file, block device, NBD address or image in an object store; or sources as of extant
    /// build, later ones over earlier ones
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) sources: Vec<PathBuf>,
}
