//! Images on which `check` and `e2fsck -fn` (1.47) differ, clean or not, and why. Each is shown by
//! a damage of its own in `check_agreement.rs`; a disagreement that none explains is a failure.

use extant_disk::damage::{
    AttributeDamage, CorruptKind, ExtentError, GroupDamage, GroupDescError, IndexDamage,
    InodeDamage, JournalDamage, JournalSuperblockError, MapDamage, OrphanDamage, QuotaDamage,
    QuotaError, ReservedDamage, SuperblockDamage, SuperblockError, XattrError,
};

use super::{Expected, Verdict, kind};

/// A cause of disagreement.
pub(crate) struct Exception {
    /// For the totals.
    pub(crate) name: &'static str,
    /// The report of the side that sees it.
    pub(crate) says: Says,
    /// Why the other side does not see it.
    pub(crate) why: &'static str,
    /// A damage that shows it: a base, by its index in
    /// [`super::BASES`] and behind them [`super::READ_ONLY`] and [`super::CLUSTERS`], and requests
    /// of debugfs.
    pub(crate) shown_by: (usize, &'static str),
}

/// The words of one side.
pub(crate) enum Says {
    /// Findings of `check`, by their kinds.
    Kinds(&'static [Expected]),
    /// A part of a line of e2fsck, or of an error of `check` that is no damage.
    Text(&'static str),
}

impl Says {
    fn explains(&self, line: &str, kind: Option<&CorruptKind>) -> bool {
        match self {
            Self::Kinds(kinds) => kinds.iter().any(|expected| expected.is_in(kind)),
            Self::Text(text) => line.contains(text),
        }
    }
}

/// Seen by `check` alone.
pub(crate) const OURS: &[Exception] = &[
    Exception {
        name: "descriptor checksum",
        says: Says::Kinds(&[kind!(GroupDesc(GroupDescError::BadChecksum { .. }))]),
        why: "e2fsck -n says so and IGNORED, and exits with 0",
        shown_by: (0, "zap_block -o 30 -l 2 -p 0x55 2"),
    },
    Exception {
        name: "orphan list head",
        says: Says::Kinds(&[kind!(Orphan(
            OrphanDamage::ListTarget { .. } | OrphanDamage::ListCircle { .. }
        ))]),
        why: "e2fsck -n does not read the list; Linux follows it at the next mount",
        shown_by: (0, "ssv last_orphan 5"),
    },
    Exception {
        name: "depth of an extent node",
        says: Says::Kinds(&[kind!(ExtentNode(
            ExtentError::BadDepth { .. } | ExtentError::BadCount { entries: 0, .. }
        ))]),
        why: "e2fsck does not compare the depth of a node with its place, nor looks at that of a \
              root without entries; Linux refuses to read the file",
        shown_by: (
            0,
            "sif big/a_rather_long_file_name_to_fill_blocks_1 block[1] 0x10004",
        ),
    },
    Exception {
        name: "impossible attribute name",
        says: Says::Kinds(&[kind!(AttributeTable(XattrError::Name { .. }))]),
        why: "e2fsck does not look into names; Linux refuses all attributes of the inode for a NUL",
        shown_by: (2, "zap_block {name tiny}"),
    },
    Exception {
        name: "size of data inside of an inode",
        says: Says::Kinds(&[kind!(Inode(InodeDamage::PastInlineData))]),
        why: "e2fsck does not compare it with what is inside; Linux shows no more than that",
        shown_by: (9, "sif tiny size 5000"),
    },
    Exception {
        name: "size of a value in an inode of its own",
        says: Says::Kinds(&[kind!(AttributeTable(XattrError::ValueInode { .. }))]),
        why: "e2fsck does not compare it with the inode's; Linux refuses the value",
        shown_by: (10, "zap_block {value sub}"),
    },
    Exception {
        name: "hash of a value in an inode of its own",
        says: Says::Kinds(&[kind!(Attribute(AttributeDamage::ValueHash))]),
        why: "e2fsck compares the stored hashes, not the value's; Linux refuses the value",
        shown_by: (10, "ssv uuid 00000000-0000-0000-0000-000000000001"),
    },
    Exception {
        name: "blocks that files share with what is no file's data",
        says: Says::Kinds(&[kind!(Map(MapDamage::Shared { .. }))]),
        why: "with shared_blocks e2fsck lets any two owners have a block, an inode table too",
        shown_by: (14, "sif tiny block[5] {block 3}"),
    },
    Exception {
        name: "resize inode",
        says: Says::Kinds(&[kind!(Reserved(
            ReservedDamage::ResizeMode
                | ReservedDamage::ResizePointer { .. }
                | ReservedDamage::ResizeCopies { .. }
        ))]),
        why: "e2fsck -n says that the resize inode is not valid, and exits with 0 if it owns the \
              right number of blocks",
        shown_by: (0, "sif <7> links_count 0"),
    },
    Exception {
        name: "meta_bg with resize_inode",
        says: Says::Kinds(&[kind!(SuperblockField(SuperblockDamage::SpreadWithReserve))]),
        why: "e2fsck -n says that they are incompatible, and exits with 0",
        shown_by: (8, "feature resize_inode"),
    },
    Exception {
        name: "log checksum",
        says: Says::Kinds(&[kind!(Journal(
            JournalDamage::Checksum { .. }
                | JournalDamage::Copies { .. }
                | JournalDamage::TargetPastEnd { .. }
                | JournalDamage::TargetInLog { .. }
        ))]),
        why: "e2fsck replays up to a damaged transaction, which check refuses to do, as mounting \
              does; a damaged copy it skips and says so, but finds nothing then if the block's \
              old content does as well",
        shown_by: (6, "zap_block -o 100 -l 4 -p 0x11 {block 1}"),
    },
    Exception {
        name: "journal superblock",
        says: Says::Kinds(&[kind!(JournalSuperblock(
            JournalSuperblockError::Start { .. } | JournalSuperblockError::Geometry { .. }
        ))]),
        why: "e2fsck -n passes over a log that waits for no recovery, and takes any first block of \
              one that does; Linux refuses both",
        shown_by: (0, "zap_block -o 28 -l 4 -p 0x11 {block 0}"),
    },
    Exception {
        name: "first inode",
        says: Says::Kinds(&[kind!(Superblock(
            SuperblockError::BadField {
                field: "first_ino",
                ..
            },
            _
        ))]),
        why: "debugfs, which replays for e2fsck here, does not mind the superblock, and the log \
              has a good copy of it; Linux refuses to mount",
        shown_by: (6, "ssv first_ino 10"),
    },
    Exception {
        name: "size of descriptors with 64bit",
        says: Says::Kinds(&[kind!(Superblock(
            SuperblockError::BadField {
                field: "desc_size",
                ..
            },
            _
        ))]),
        why: "e2fsck -n says so, goes on and exits with 0; Linux refuses to mount",
        shown_by: (9, "ssv desc_size 32"),
    },
    Exception {
        name: "features of revision 0",
        says: Says::Kinds(&[kind!(Superblock(
            SuperblockError::BadField {
                field: "rev_level",
                ..
            },
            _
        ))]),
        why: "e2fsck -n passes over it where inodes have the size of revision 0; Linux warns",
        shown_by: (1, "ssv rev_level 0"),
    },
    Exception {
        name: "no journal to replay",
        says: Says::Kinds(&[kind!(Journal(JournalDamage::ReplayWithoutJournal))]),
        why: "debugfs, which replays for e2fsck here, clears the mark",
        shown_by: (6, "ssv feature_compat 0x38"),
    },
    Exception {
        name: "device of the journal",
        says: Says::Kinds(&[kind!(SuperblockField(SuperblockDamage::ExternalJournal))]),
        why: "e2fsck looks at the journal's UUID and inode, not at its device number; Linux \
              refuses to mount",
        shown_by: (0, "ssv journal_dev 5"),
    },
    Exception {
        name: "journal without the feature",
        says: Says::Kinds(&[kind!(SuperblockField(
            SuperblockDamage::JournalWithoutFeature
        ))]),
        why: "e2fsck -n says so, of an inode, and exits with 0 as for all that its passes do not \
              find",
        shown_by: (1, "ssv feature_compat 0x38"),
    },
    Exception {
        name: "inode of a feature that is missing",
        says: Says::Kinds(&[kind!(SuperblockField(
            SuperblockDamage::QuotaWithoutFeature { .. }
                | SuperblockDamage::OrphanFileWithoutFeature { .. }
        ))]),
        why: "e2fsck minds such a number only where it takes the inode for reserved; Linux refuses \
              the inode once it is a file, and e2fsck without -n clears numbers of reserved ones",
        shown_by: (0, "ssv usr_quota_inum 140"),
    },
    Exception {
        name: "protected special file",
        says: Says::Kinds(&[kind!(Inode(InodeDamage::Protected))]),
        why: "e2fsck -n says so, and exits with 0",
        shown_by: (1, "sif fifo flags 0x10"),
    },
    Exception {
        name: "NUL in a target inside of an inode",
        says: Says::Kinds(&[kind!(Inode(InodeDamage::SymlinkTargetNul { .. }))]),
        why: "e2fsck compares the size alone; Linux ends the target there",
        shown_by: (9, "sif slow block[9] 0x62"),
    },
    Exception {
        name: "attribute block of an inode without a name",
        says: Says::Kinds(&[kind!(Inode(InodeDamage::AttributesOutside { .. }))]),
        why: "e2fsck tells of a bad inode where a name leads to it; Linux refuses the inode, and \
              so to mount",
        shown_by: (0, "sif <8> file_acl 0x700000"),
    },
    Exception {
        name: "cluster with two parts of a file",
        says: Says::Kinds(&[kind!(Map(MapDamage::ClusterTwice { .. }))]),
        why: "e2fsck takes an extent in the cluster of the one before it for more of that cluster, \
              wherever it is in the file; in Linux one part overwrites the other, and frees it",
        shown_by: (
            15,
            "sif tiny size 5000\nsif tiny block[0] 0x2f30a\nsif tiny block[6] 4\n\
             sif tiny block[7] 1\nsif tiny block[8] {data tiny}",
        ),
    },
    Exception {
        name: "hash of a name that is no UTF-8",
        says: Says::Kinds(&[kind!(Index(IndexDamage::WrongLeaf { name, .. })
            if std::str::from_utf8(&name.0).is_err())]),
        why: "e2fsck takes the hash of the entry before it, as it folds no such name; Linux hashes \
              its bytes as they are",
        shown_by: (13, "zap_block -f big -o 60 -l 1 -p 0xf6 1\nseal"),
    },
    Exception {
        name: "never written without the feature",
        says: Says::Kinds(&[kind!(Group(GroupDamage::NeverWritten))]),
        why: "e2fsck -n says so, and exits with 0 if nothing else is wrong",
        shown_by: (1, "set_bg 0 flags 2"),
    },
    Exception {
        name: "never used inodes of an empty group",
        says: Says::Kinds(&[kind!(Group(GroupDamage::TooManyUnused { .. }))]),
        why: "e2fsck -n says so, and exits with 0 if the group is empty",
        shown_by: (3, "set_bg 5 itable_unused 999\nset_bg 5 checksum calc"),
    },
    Exception {
        name: "superblock mended by the replay",
        says: Says::Kinds(&[
            kind!(Superblock(
                SuperblockError::BadField {
                    field: "reserved_gdt_blocks",
                    ..
                },
                _
            )),
            kind!(Superblock(SuperblockError::Truncated { .. }, _)),
        ]),
        why: "the journal has a good copy, but the bad one must be read to find the journal",
        shown_by: (6, "ssv blocks_count 8000"),
    },
    Exception {
        name: "tree and lists of quotas",
        says: Says::Kinds(&[kind!(Quota(QuotaDamage::File {
            error: QuotaError::Repeated { .. }
                | QuotaError::Count { .. }
                | QuotaError::NoEntry { .. }
                | QuotaError::Unreached { .. }
                | QuotaError::List { .. }
                | QuotaError::Reference { .. },
            ..
        }))]),
        why: "e2fsck takes entries as it finds them, whatever ids lead there, and does not look at \
              counts and lists; Linux finds no entry, or writes over another one",
        shown_by: (11, "zap_block -o 28 -l 1 -p 2 {quota 0}"),
    },
    Exception {
        name: "links of a file of quotas",
        says: Says::Kinds(&[kind!(Quota(QuotaDamage::Unlinked { .. }))]),
        why: "e2fsck does not look at the links of an inode without a name; Linux refuses it, and \
              so to mount",
        shown_by: (11, "sif <3> links_count 0"),
    },
    Exception {
        name: "magic of quotas",
        says: Says::Kinds(&[kind!(Quota(QuotaDamage::File {
            error: QuotaError::Magic { .. },
            ..
        }))]),
        why: "e2fsck reads the file nevertheless; Linux refuses it",
        shown_by: (11, "zap_block -o 0 -l 1 -p 9 {quota 0}"),
    },
    Exception {
        name: "high half of the block count",
        says: Says::Kinds(&[kind!(Superblock(
            SuperblockError::BadField {
                field: "blocks_count",
                ..
            },
            _
        ))]),
        why: "without 64bit e2fsck ignores the high half; Linux adds it",
        shown_by: (1, "zap_block -o 336 -l 1 -p 1 1"),
    },
];

/// Seen by e2fsck alone.
pub(crate) const THEIRS: &[Exception] = &[
    Exception {
        name: "place of an empty value",
        says: Says::Text("has INLINE_DATA_FL flag but extended attribute not found"),
        why: "a value of no bytes has no place, for Linux too",
        shown_by: (
            9,
            "zap_block {place big/a_rather_long_file_name_to_fill_blocks_1}",
        ),
    },
    Exception {
        name: "unknown compat feature",
        says: Says::Text("has unsupported feature(s)"),
        why: "the format lets readers and writers ignore such a bit, as Linux and check do; \
              e2fsck refuses",
        shown_by: (2, "ssv feature_compat 0x20028"),
    },
    Exception {
        name: "fast-commit area of no size",
        says: Says::Text("incorrect fast commit blocks"),
        why: "Linux and check take the default size for zero; e2fsck 1.47 refuses",
        shown_by: (0, "zap_block -o 43 -l 1 -p 0x20 {block 0}"),
    },
    Exception {
        name: "error that the journal remembers",
        says: Says::Text("(Bad file descriptor)"),
        why: "e2fsck -n writes when it moves the error to the superblock, and may end there; check \
              notes the error",
        shown_by: (15, "zap_block -o 32 -l 4 -p 0x11 {block 0}"),
    },
];

/// The exception that explains a disagreement; `None` if nothing does.
pub(crate) fn explain(verdict: &Verdict) -> Option<&'static Exception> {
    if verdict.e2fsck_is_clean() {
        // Every finding needs its own explanation.
        let mut causes = verdict.found.iter().map(|found| {
            let kind = found.kind.as_ref();
            let mut all = OURS.iter();
            all.find(|exception| exception.says.explains(&found.text, kind))
        });
        let first = causes.next()??;
        causes.all(|cause| cause.is_some()).then_some(first)
    } else {
        let explains = |exception: &Exception, line: &str| exception.says.explains(line, None);
        THEIRS
            .iter()
            .find(|exception| verdict.said.lines().any(|line| explains(exception, line)))
    }
}
