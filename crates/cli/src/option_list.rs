//! The mount options in words, for their manual page. The pages COMPATIBILITY and MOUNT have more
//! to say of some; a test holds the names here to theirs.

/// The names of options that belong together, and what they do.
pub(crate) type OptionText = (&'static str, &'static str);

/// Options of ext4, by Linux's names.
pub(crate) const LINUX: &[OptionText] = &[
    ("defaults", "No effect."),
    (
        "ro, rw",
        "Refuse changes, or allow them. A journal that waits is still replayed on a device that \
         can be written, as by Linux; with noload it is left.",
    ),
    ("noload, norecovery", "Do not replay the journal. Needs ro."),
    (
        "sb=N",
        "The superblock to use, in units of 1 KiB from the start of the device.",
    ),
    (
        "data=ordered|writeback|journal",
        "When file data is written: before the transaction that makes it visible (ordered, the \
         default), at any time (writeback), or through the journal (journal).",
    ),
    (
        "commit=SECONDS",
        "Commit what is not synced after so long: 5, also for 0.",
    ),
    (
        "barrier, barrier=0|1, nobarrier",
        "Flush the device's cache where order matters; the default. Without it a power cut may \
         damage the volume.",
    ),
    (
        "errors=remount-ro|continue|panic",
        "What follows damage: later changes are refused (remount-ro, the default), it is recorded \
         alone (continue), or the file system shuts down (panic).",
    ),
    (
        "data_err=ignore|abort",
        "A failed write of file data is no fault (ignore, the default).",
    ),
    (
        "grpid, bsdgroups, nogrpid, sysvgroups",
        "New files take the group of their directory, or that of their maker.",
    ),
    (
        "resuid=N, resgid=N",
        "The user and the group that may use reserved blocks, beside root.",
    ),
    (
        "journal_path=PATH",
        "The device or file with the journal, for a volume that has it on another device.",
    ),
    (
        "journal_dev=N",
        "The same by the number of a block device, as Linux encodes it in 32 bits.",
    ),
    (
        "nouid32",
        "Owners and groups are read and stored as 16 bits; larger ones become 65534.",
    ),
    (
        "bsddf, minixdf",
        "Leave the format's own blocks out of statfs(2) (bsddf, the default).",
    ),
    (
        "delalloc, nodelalloc",
        "Choose blocks when data is written back (the default), or at once.",
    ),
    (
        "discard, nodiscard",
        "Tell the device of freed blocks after the commit. Off; extant-trim(1) does it now and \
         then.",
    ),
    (
        "auto_da_alloc, auto_da_alloc=0|1, noauto_da_alloc",
        "Write a file that replaces another by rename before the rename. On.",
    ),
    ("user_xattr, nouser_xattr", "Attributes of users. On."),
    ("acl, noacl", "POSIX ACLs. On."),
    (
        "relatime, norelatime, strictatime, nostrictatime, noatime, atime",
        "When reading updates times of access. relatime.",
    ),
    ("nodiratime, diratime", "The same for directories."),
    (
        "lazytime, nolazytime",
        "Times alone need not be durable soon. Off.",
    ),
    (
        "sync, async, dirsync",
        "Make changes, or those of directories, durable before a call returns.",
    ),
    (
        "max_dir_size_kb=N",
        "A directory does not grow past this size.",
    ),
    (
        "usrquota, quota, grpquota, prjquota, noquota",
        "Keep limits of users, groups or projects, which extant-quota(1) sets. None.",
    ),
    (
        "dioread_nolock, dioread_lock",
        "Files on the buffer-head path: new space is unwritten until its data has arrived (the \
         default), or written at once.",
    ),
    (
        "buffered_iomap, nobuffered_iomap",
        "The data path of buffered files; buffered_iomap.",
    ),
    (
        "backend=auto|syscalls|io_uring",
        "How the image is read and written; auto.",
    ),
];

/// Options of the mount itself.
pub(crate) const FRONT_END: &[OptionText] = &[
    ("allow_other", "Other users may use the mount."),
    (
        "default_permissions, nodefault_permissions",
        "Let the kernel check permissions (the default), or the file system, with fewer requests; \
         not together with allow_other.",
    ),
    (
        "suid, nosuid, dev, nodev, exec, noexec",
        "Set-id bits, device nodes and programs have effect or not; nosuid and nodev unless asked \
         otherwise.",
    ),
    (
        "fsname=NAME, subtype=NAME",
        "What the table of mounts shows: the image, and extant.",
    ),
    ("max_read=BYTES", "The largest request to read."),
    (
        "sandbox, nosandbox",
        "Confine the process that serves the mount. On.",
    ),
    (
        "memory=SIZE",
        "Bound the caches of data and metadata together: 64M, 1G.",
    ),
    (
        "layer=FILE",
        "Write what changes an image in an object store to this file.",
    ),
    (
        "record=FILE, prefetch=FILE",
        "Write the order in which parts of an image in an object store are first read to this \
         file; read ahead in the order of such a file.",
    ),
    (
        "writeback_cache, nowriteback_cache",
        "Let the kernel collect writes (the default), or not.",
    ),
    (
        "strict_open, nostrict_open",
        "Tell the file system of each open(2) (the default), or not.",
    ),
    (
        "transport=auto|uring|dev",
        "How requests come from the kernel: by io_uring, by /dev/fuse, or by io_uring where that \
         can be had (auto, the default).",
    ),
    (
        "auto, noauto, user, nouser, users, nousers, owner, noowner, group, nogroup, _netdev, \
         nofail, nonempty, silent, loud, comment=, x-...",
        "For mount(8), fstab(5) and systemd; without effect here.",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// The names in the rows of the table below a heading of a page, as far as they are options.
    fn of_page(page: &str, heading: &str) -> BTreeSet<String> {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let text = std::fs::read_to_string(docs.join(page)).unwrap();
        let section = text.split(&format!("\n## {heading}\n")).nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        let cells = rows.map(|row| row.split(" |").next().unwrap());
        let words = cells.flat_map(|cell| cell.split('`'));
        let names = words.filter(|word| word.len() > 1 && !word.contains([' ', ',']));
        names
            .map(|name| name.split('=').next().unwrap().to_owned())
            .collect()
    }

    fn of_list(list: &[OptionText]) -> BTreeSet<String> {
        let words = list.iter().flat_map(|(names, _)| names.split(", "));
        words
            .map(|name| name.split('=').next().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn the_manual_has_the_options_of_the_pages() {
        let mut listed = of_list(LINUX);
        assert_eq!(listed, of_page("COMPATIBILITY.md", "Mount options"));
        listed.extend(of_list(FRONT_END));
        let refused = ["allow_root", "auto_unmount", "remount", "x-*"];
        let pages = of_page("MOUNT.md", "Options of the front end");
        let missing = pages.iter().filter(|name| !listed.contains(*name));
        let missing: Vec<&str> = missing.map(String::as_str).collect();
        assert_eq!(missing, refused);
    }
}
