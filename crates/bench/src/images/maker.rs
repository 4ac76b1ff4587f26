//! Programs that make an image of a tree.

use std::path::Path;
use std::time::Duration;

use extant_host::{Cmd, Need};

use super::made_tree::MadeTree;
use crate::plan::Plan;

/// The longest that a program may take: one that takes longer is left out.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A program that makes images.
#[derive(Clone, Copy)]
pub(super) struct Maker {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) needs: &'static [Need],
    /// Preparation that is not measured.
    pub(super) prepare: Option<fn(&MadeTree, &Path) -> Cmd>,
    /// The command that is measured.
    pub(super) command: fn(&Plan, &MadeTree, &Path) -> Cmd,
    /// It is another project's: the others go on without it.
    pub(super) is_peer: bool,
    /// Its memory is the kernel's.
    pub(super) is_kernel: bool,
}

/// The programs, in the order of their columns.
pub(super) const ALL: &[Maker] = &[
    Maker {
        name: "build",
        about: "extant build of the folder",
        needs: &[],
        prepare: None,
        command: |plan, source, image| ours(plan, &source.folder(), image),
        is_peer: false,
        is_kernel: false,
    },
    Maker {
        name: "build-tar",
        about: "extant build of an archive of the folder",
        needs: &[],
        prepare: None,
        command: |plan, source, image| ours(plan, &source.archive(), image),
        is_peer: false,
        is_kernel: false,
    },
    Maker {
        name: "mke2fs",
        about: "mke2fs -d of the folder, with room for it",
        needs: &[Need::Tool("mke2fs")],
        prepare: None,
        command: |_, source, image| {
            let folder = source.folder();
            ext4(source, image)
                .arg("-d")
                .arg(folder)
                .arg(image)
                .arg(source.size())
        },
        is_peer: true,
        is_kernel: false,
    },
    Maker {
        name: "genext2fs",
        about: "genext2fs of the folder: ext2, without journal, checksums and indexes",
        needs: &[Need::Tool("genext2fs")],
        prepare: None,
        command: |_, source, image| {
            let cmd = Cmd::new("genext2fs").args(["-B", "4096", "-m", "0", "-b"]);
            let cmd = cmd.arg((source.mib() * 256).to_string()).arg("-N");
            let cmd = cmd.arg(source.inodes().to_string()).arg("-d");
            cmd.arg(source.folder()).arg(image)
        },
        is_peer: true,
        is_kernel: false,
    },
    Maker {
        name: "tar2ext4",
        about: "hcsshim's tar2ext4 of the archive: no journal, no checksums",
        needs: &[Need::Tool("tar2ext4")],
        prepare: None,
        command: |_, source, image| {
            let cmd = Cmd::new("tar2ext4").arg("-i").arg(source.archive());
            cmd.arg("-o").arg(image)
        },
        is_peer: true,
        is_kernel: false,
    },
    Maker {
        name: "kernel-ext4",
        about: "tar x and umount on a loop mount of a new ext4",
        needs: &[Need::Loop, Need::Tool("mke2fs"), Need::Tool("unshare")],
        prepare: Some(|source, image| ext4(source, image).arg(image).arg(source.size())),
        command: |_, source, image| {
            const SCRIPT: &str = "set -e; mkdir \"$1.mnt\"
                mount -o loop,noinit_itable \"$1\" \"$1.mnt\"
                tar -C \"$1.mnt\" -xf \"$2\"; umount \"$1.mnt\"";
            // The mount ends with its name space, whatever ends the script.
            let cmd = Cmd::new("unshare").args(["--mount", "sh", "-c", SCRIPT, "sh"]);
            cmd.arg(image).arg(source.archive())
        },
        is_peer: true,
        is_kernel: true,
    },
];

fn ours(plan: &Plan, source: &Path, image: &Path) -> Cmd {
    let cmd = Cmd::new(&plan.extant).args(["build", "--quiet"]);
    cmd.arg(source).arg(image)
}

/// A new file system by mke2fs, as `extant build` makes them.
fn ext4(source: &MadeTree, _: &Path) -> Cmd {
    let inodes = source.inodes().to_string();
    Cmd::new("mke2fs").args([
        "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-N", &inodes,
    ])
}
