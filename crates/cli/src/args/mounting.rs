//! Commands about a mounted file system: mount, umount, stats.

use std::path::PathBuf;

use clap::Args;

/// Mount an image on a directory
///
/// Returns once the mount answers; the file system is then served by a process in the background.
///
/// The process that serves the mount confines itself: once it has the image it opens no file,
/// starts no program and has no privileges (-o nosandbox: it does not). -o memory=SIZE bounds its
/// caches.
///
/// Root mounts directly, other users through fusermount3. The image stays locked until it is
/// unmounted. If the image is in use, the command waits up to 2 seconds for it. A mount of the same
/// image that has died is taken off the directory. A volume with multiple mount protection (mmp)
/// that was not unmounted, or that another host uses, is watched first: usually 2 times 11 seconds,
/// at most 2 times 6 minutes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Mount {
    /// Mount options, separated by commas: ext4's by Linux's names, and FUSE's (allow_other,
    /// fsname=NAME, subtype=NAME, suid, dev, ...). Set-id bits and device nodes are without effect
    /// unless suid and dev are given.
    ///
    /// transport=auto|uring|dev says how requests come from the kernel: by io_uring, by /dev/fuse,
    /// or, with auto, the default, by io_uring where that can be had. Linux 6.14 and later have
    /// it, once root has written Y to /sys/module/fuse/parameters/enable_uring.
    #[arg(short = 'o', value_name = "OPTS")]
    pub(crate) options: Vec<String>,
    /// Mount read-only, as -o ro
    #[arg(short = 'r', long)]
    pub(crate) read_only: bool,
    /// Stay in the foreground
    #[arg(short = 'f', long)]
    pub(crate) foreground: bool,
    /// Image file, block device, NBD address, or image in an object store
    #[arg(required_unless_present = "image_fd")]
    pub(crate) image: Option<PathBuf>,
    /// Directory to mount on
    #[arg(required_unless_present_any = ["image_fd", "fetcher"])]
    pub(crate) dir: Option<PathBuf>,
    /// Open descriptor of the image, from the calling process, in place of IMAGE
    #[arg(long, value_name = "N", requires = "fuse_fd", conflicts_with = "image")]
    pub(crate) image_fd: Option<i32>,
    /// Open descriptor of /dev/fuse, which the calling process has mounted, in place of DIR. That
    /// process unmounts it
    #[arg(long, value_name = "N", requires = "image_fd")]
    pub(crate) fuse_fd: Option<i32>,
    /// Started by another `extant mount`, which waits for a line on standard output
    #[arg(long, hide = true)]
    pub(crate) daemon: bool,
    /// Started by a daemon that confines itself
    #[arg(long, hide = true, conflicts_with_all = ["daemon", "image_fd"])]
    pub(crate) keeper: bool,
    /// Started by a daemon that confines itself and mounts an image in an object store
    #[arg(long, hide = true, conflicts_with_all = ["daemon", "image_fd", "keeper"])]
    pub(crate) fetcher: bool,
    /// Started by a daemon whose image is to be recovered before it is mounted read-only
    #[arg(long, hide = true, conflicts_with_all = ["daemon", "image_fd", "keeper"])]
    pub(crate) recover: bool,
    /// Started by a daemon that is to mount read-only: does its image have to be recovered before?
    #[arg(long, hide = true, conflicts_with_all = ["daemon", "image_fd", "keeper", "recover"])]
    pub(crate) look: bool,
}

/// Unmount, and wait until the image is closed
///
/// Returns once everything is written, the journal is empty and the image is closed. Reports what
/// failed.
#[derive(Args, Debug)]
pub(crate) struct Umount {
    /// Detach now, even if the mount is in use, without waiting
    #[arg(short, long)]
    pub(crate) lazy: bool,
    /// Mount points; after one that fails the others are still unmounted
    #[arg(required = true, value_name = "DIR")]
    pub(crate) dirs: Vec<PathBuf>,
    /// Called by umount(8), which says nothing of other mount points.
    #[arg(skip)]
    pub(crate) as_helper: bool,
}

/// Show the counters of a mount
///
/// They say what was done since it was mounted, and what is held now. For root and the user of the
/// mount.
#[derive(Args, Debug)]
pub(crate) struct Stats {
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// Show requests, latencies, cache, journal and waits, again every SECONDS: 1 unless set
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "1", value_parser = clap::value_parser!(u32).range(1..=3600))]
    #[arg(conflicts_with = "json")]
    pub(crate) watch: Option<u32>,
    /// With --watch: end when it was shown so often
    #[arg(long, value_name = "N", requires = "watch")]
    pub(crate) count: Option<u32>,
    /// Directory that it is mounted on
    pub(crate) dir: PathBuf,
}
