//! Where `check` and `e2fsck -fn` (1.47) differ on clean or not, and why. Each is shown by a damage of its own in
//! `check_agreement.rs`; a disagreement that none explains is a failure.

use super::Verdict;

/// A cause of disagreement.
pub(crate) struct Exception {
    /// For the totals.
    pub(crate) name: &'static str,
    /// Part of what the one who sees it says: findings of `check`, or lines of e2fsck.
    pub(crate) says: &'static [&'static str],
    /// Why the other one does not.
    pub(crate) why: &'static str,
}

/// Seen by `check` alone.
pub(crate) const OURS: &[Exception] = &[
    Exception {
        name: "copies",
        says: &["copy of the superblock", "copy of the descriptors"],
        why: "e2fsck reads the copies only if the first superblock cannot be used, and writes them anew with every repair",
    },
    Exception {
        name: "descriptor checksum",
        says: &["bad descriptor checksum"],
        why: "e2fsck -n says so and IGNORED, and exits with 0",
    },
    Exception {
        name: "orphan list head",
        says: &[
            "orphan list: the list leads to",
            "orphan list: the list meets",
        ],
        why: "e2fsck -n does not read the list; Linux follows it at the next mount",
    },
    Exception {
        name: "depth of an extent node",
        says: &["extent node of depth", "extent node with 0 of"],
        why: "e2fsck does not compare the depth of a node with its place, nor looks at that of a root without entries; Linux \
              refuses to read the file",
    },
    Exception {
        name: "attribute name with a NUL",
        says: &["has a NUL in its name"],
        why: "e2fsck does not look into names; Linux refuses all attributes of the inode",
    },
    Exception {
        name: "resize inode",
        says: &[
            "the resize inode does not lead",
            "of the resize inode does not lead",
        ],
        why: "e2fsck -n says that the resize inode is not valid, and exits with 0 if it owns the right number of blocks",
    },
    Exception {
        name: "log checksum",
        says: &["corrupt journal: transaction"],
        why: "e2fsck replays up to a damaged transaction; check refuses to, as mounting does",
    },
    Exception {
        name: "journal superblock",
        says: &[
            "journal: corrupt journal: the journal's log starts",
            "journal: corrupt journal: the journal claims",
            "journal: it remembers error",
        ],
        why: "e2fsck -n passes over a log that waits for no recovery, and over an error that an aborted journal left",
    },
    Exception {
        name: "no journal to replay",
        says: &["it needs a replay, but there is none"],
        why: "debugfs, which replays for e2fsck here, clears the mark",
    },
    Exception {
        name: "device of the journal",
        says: &[
            "names an external journal beside its own",
            "names a journal without the feature",
        ],
        why: "e2fsck looks at the journal's UUID and inode, not at its device number; Linux refuses to mount",
    },
    Exception {
        name: "never written without the feature",
        says: &["marked as never written, for which a feature is missing"],
        why: "e2fsck -n says so, and exits with 0 if nothing else is wrong",
    },
    Exception {
        name: "never used inodes of an empty group",
        says: &["inodes that were never used, of"],
        why: "e2fsck -n says so, and exits with 0 if the group is empty",
    },
    Exception {
        name: "feature that check does not know",
        says: &["unsupported feature:"],
        why: "e2fsck knows some features that Extant does not mount; check answers that nothing can be said",
    },
    Exception {
        name: "superblock mended by the replay",
        says: &["reserved_gdt_blocks is"],
        why: "the journal has a good copy, but the bad one must be read to find the journal",
    },
    Exception {
        name: "high half of the block count",
        says: &["blocks_count is"],
        why: "without 64bit e2fsck ignores the high half; Linux adds it",
    },
];

/// Seen by e2fsck alone.
pub(crate) const THEIRS: &[Exception] = &[
    Exception {
        name: "unknown compat feature",
        says: &["has unsupported feature(s)"],
        why: "the format lets readers and writers ignore such a bit, as Linux and check do; e2fsck refuses",
    },
    Exception {
        name: "fast-commit area of no size",
        says: &["incorrect fast commit blocks"],
        why: "Linux and check take the default size for zero; e2fsck 1.47 refuses",
    },
];

/// The exception that explains a disagreement; `None` if nothing does.
pub(crate) fn explain(verdict: &Verdict) -> Option<&'static Exception> {
    let explains =
        |line: &str, exception: &Exception| exception.says.iter().any(|words| line.contains(words));
    if verdict.e2fsck_is_clean() {
        // Every finding needs its own explanation.
        let mut causes = verdict
            .found
            .iter()
            .map(|line| OURS.iter().find(|exception| explains(line, exception)));
        let first = causes.next()??;
        causes.all(|cause| cause.is_some()).then_some(first)
    } else {
        THEIRS
            .iter()
            .find(|exception| verdict.said.lines().any(|line| explains(line, exception)))
    }
}
