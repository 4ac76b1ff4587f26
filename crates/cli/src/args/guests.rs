//! Commands for virtual machines: vhost.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

/// Give an image to a virtual machine, as a disk or as a file system
///
/// Serves a device of virtio to the monitor of a virtual machine (qemu, cloud-hypervisor, crosvm)
/// that connects to SOCKET, by the protocol vhost-user. The guest's memory must be shared with this
/// process: for qemu -object memory-backend-memfd,share=on. Ends when the monitor has ended, or at
/// SIGTERM. The image is closed then.
///
/// With --blk the guest has the image as a disk, whatever is in it. With --fs its volume is served
/// to the guest's virtiofs, by the engine that serves extant mount: the guest needs no ext4, and
/// the image is never parsed by a kernel.
///
/// The process confines itself as that of a mount does (-o nosandbox: it does not, which exports of
/// NBD servers need).
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("device").required(true).args(["blk", "fs"]))]
pub(crate) struct Vhost {
    /// Serve a disk (virtio-blk) at this socket
    #[arg(long, value_name = "SOCKET")]
    pub(crate) blk: Option<PathBuf>,
    /// Serve a file system (virtio-fs) at this socket
    #[arg(long, value_name = "SOCKET")]
    pub(crate) fs: Option<PathBuf>,
    /// Queues of requests: as many as there are processors, and at least 4, unless set
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=32))]
    pub(crate) queues: Option<u16>,
    /// Name by which the guest mounts the file system, where the monitor does not choose one
    #[arg(long, value_name = "NAME", default_value = "extant", requires = "fs")]
    pub(crate) tag: String,
    /// Wait for the next monitor when one has ended
    #[arg(long)]
    pub(crate) keep: bool,
    /// The guest only reads, as with -o ro
    #[arg(short = 'r', long)]
    pub(crate) read_only: bool,
    /// Mount options, separated by commas, as of extant mount. Of --blk only ro, nosandbox and
    /// those of stores mean something
    #[arg(short = 'o', value_name = "OPTS")]
    pub(crate) options: Vec<String>,
    /// Image file, block device, NBD address or version in a store
    pub(crate) image: PathBuf,
}
