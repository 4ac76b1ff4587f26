//! Images on which `check` and `e2fsck -fn` (1.47) differ, clean or not, and why. Each is shown by
//! a damage of its own in `check_agreement.rs`; a disagreement that none explains is a failure.

use super::Verdict;

/// A cause of disagreement.
pub(crate) struct Exception {
    /// For the totals.
    pub(crate) name: &'static str,
    /// A part of the report of the side that sees it: findings of `check`, or lines of e2fsck.
    pub(crate) says: &'static [&'static str],
    /// Why the other side does not see it.
    pub(crate) why: &'static str,
    /// A damage that shows it: a base, by its index in [`super::BASES`], and requests of debugfs.
    pub(crate) shown_by: (usize, &'static str),
}

/// Seen by `check` alone.
pub(crate) const OURS: &[Exception] = &[
    Exception {
        name: "descriptor checksum",
        says: &["bad descriptor checksum"],
        why: "e2fsck -n says so and IGNORED, and exits with 0",
        shown_by: (0, "zap_block -o 30 -l 2 -p 0x55 2"),
    },
    Exception {
        name: "orphan list head",
        says: &[
            "orphan list: the list leads to",
            "orphan list: the list meets",
        ],
        why: "e2fsck -n does not read the list; Linux follows it at the next mount",
        shown_by: (0, "ssv last_orphan 5"),
    },
    Exception {
        name: "depth of an extent node",
        says: &["extent node of depth", "extent node with 0 of"],
        why: "e2fsck does not compare the depth of a node with its place, nor looks at that of a \
              root without entries; Linux refuses to read the file",
        shown_by: (
            0,
            "sif big/a_rather_long_file_name_to_fill_blocks_1 block[1] 0x10004",
        ),
    },
    Exception {
        name: "impossible attribute name",
        says: &["has an impossible name"],
        why: "e2fsck does not look into names; Linux refuses all attributes of the inode for a NUL",
        shown_by: (2, "zap_block {name tiny}"),
    },
    Exception {
        name: "resize inode",
        says: &[
            "the resize inode is no regular file",
            "the resize inode does not lead",
            "of the resize inode does not lead",
        ],
        why: "e2fsck -n says that the resize inode is not valid, and exits with 0 if it owns the \
              right number of blocks",
        shown_by: (0, "sif <7> links_count 0"),
    },
    Exception {
        name: "log checksum",
        says: &["corrupt journal: transaction", "wrong checksum of the copy"],
        why: "e2fsck replays up to a damaged transaction, which check refuses to do, as mounting \
              does; a damaged copy it skips and says so, but finds nothing then if the block's \
              old content does as well",
        shown_by: (6, "zap_block -o 100 -l 4 -p 0x11 {block 1}"),
    },
    Exception {
        name: "journal superblock",
        says: &[
            "corrupt journal: the journal's log starts",
            "corrupt journal: the journal claims",
        ],
        why: "e2fsck -n passes over a log that waits for no recovery",
        shown_by: (0, "zap_block -o 28 -l 4 -p 0x11 {block 0}"),
    },
    Exception {
        name: "first inode",
        says: &["ten inodes are reserved"],
        why: "debugfs, which replays for e2fsck here, does not mind the superblock, and the log \
              has a good copy of it; Linux refuses to mount",
        shown_by: (6, "ssv first_ino 10"),
    },
    Exception {
        name: "no journal to replay",
        says: &["it needs a replay, but there is none"],
        why: "debugfs, which replays for e2fsck here, clears the mark",
        shown_by: (6, "ssv feature_compat 0x38"),
    },
    Exception {
        name: "device of the journal",
        says: &[
            "names an external journal beside its own",
            "names a journal without the feature",
        ],
        why: "e2fsck looks at the journal's UUID and inode, not at its device number; Linux \
              refuses to mount",
        shown_by: (0, "ssv journal_dev 5"),
    },
    Exception {
        name: "never written without the feature",
        says: &["marked as never written, for which a feature is missing"],
        why: "e2fsck -n says so, and exits with 0 if nothing else is wrong",
        shown_by: (1, "set_bg 0 flags 2"),
    },
    Exception {
        name: "never used inodes of an empty group",
        says: &["inodes that were never used, of"],
        why: "e2fsck -n says so, and exits with 0 if the group is empty",
        shown_by: (3, "set_bg 5 itable_unused 999\nset_bg 5 checksum calc"),
    },
    Exception {
        name: "feature that check does not know",
        says: &["unsupported feature:"],
        why: "e2fsck knows some features that Extant does not mount; check answers that nothing \
              can be said",
        shown_by: (5, "ssv feature_ro_compat 0x446b"),
    },
    Exception {
        name: "superblock mended by the replay",
        says: &["reserved_gdt_blocks is", "reserved blocks, more than half"],
        why: "the journal has a good copy, but the bad one must be read to find the journal",
        shown_by: (6, "ssv r_blocks_count 3000"),
    },
    Exception {
        name: "high half of the block count",
        says: &["blocks_count is"],
        why: "without 64bit e2fsck ignores the high half; Linux adds it",
        shown_by: (1, "zap_block -o 336 -l 1 -p 1 1"),
    },
];

/// Seen by e2fsck alone.
pub(crate) const THEIRS: &[Exception] = &[
    Exception {
        name: "unknown compat feature",
        says: &["has unsupported feature(s)"],
        why: "the format lets readers and writers ignore such a bit, as Linux and check do; \
              e2fsck refuses",
        shown_by: (2, "ssv feature_compat 0x20028"),
    },
    Exception {
        name: "fast-commit area of no size",
        says: &["incorrect fast commit blocks"],
        why: "Linux and check take the default size for zero; e2fsck 1.47 refuses",
        shown_by: (0, "zap_block -o 43 -l 1 -p 0x20 {block 0}"),
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
