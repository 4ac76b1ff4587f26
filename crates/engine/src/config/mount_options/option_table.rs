//! Every mount option by name, and its effect.

use std::time::Duration;

use super::{AtimeMode, Backend, DataMode, ErrorsPolicy, MountOptions};
use crate::config::BufferedPath;

/// Why an option was refused.
type Why = String;

/// Puts an option into effect.
type Set = fn(&mut MountOptions);

/// The effect of an option.
enum Effect {
    /// A word on its own.
    Word(Set),
    /// `name=number`.
    Number(fn(&mut MountOptions, u32)),
    /// `name=text`.
    Text(fn(&mut MountOptions, &str)),
    /// `name=word` with these choices.
    Choice(&'static [(&'static str, Set)]),
    /// Accepted without effect, on its own or with any value.
    Ignored,
    /// Refused, on its own or with any value, for this reason.
    Refused(&'static str),
}
use Effect::{Choice, Ignored, Number, Refused, Text, Word};

const QUOTA: &str = "quotas in files with names are not supported (mke2fs -O quota makes others)";
const DAX: &str = "there is no direct access to storage in user space";

/// Every option. A name may occur twice: as a word and with a value.
const OPTIONS: &[(&str, Effect)] = &[
    ("defaults", Ignored),
    (
        "ro",
        Word(|o| (o.read_only, o.asks_to_write) = (true, false)),
    ),
    (
        "rw",
        Word(|o| (o.read_only, o.asks_to_write) = (false, true)),
    ),
    ("noload", Word(|o| o.noload = true)),
    ("norecovery", Word(|o| o.noload = true)),
    ("sb", Number(|o, n| o.sb = u64::from(n))),
    (
        "data",
        Choice(&[
            ("ordered", |o| o.data = Some(DataMode::Ordered)),
            ("writeback", |o| o.data = Some(DataMode::Writeback)),
            ("journal", |o| o.data = Some(DataMode::Journal)),
        ]),
    ),
    (
        "commit",
        Number(|o, n| o.commit = Duration::from_secs(if n == 0 { 5 } else { u64::from(n) })),
    ),
    ("barrier", Word(|o| o.barrier = Some(true))),
    ("barrier", Number(|o, n| o.barrier = Some(n != 0))),
    ("nobarrier", Word(|o| o.barrier = Some(false))),
    (
        "errors",
        Choice(&[
            ("continue", |o| o.errors = Some(ErrorsPolicy::Continue)),
            ("remount-ro", |o| {
                o.errors = Some(ErrorsPolicy::RemountReadOnly);
            }),
            ("panic", |o| o.errors = Some(ErrorsPolicy::Panic)),
        ]),
    ),
    (
        "data_err",
        Choice(&[
            ("ignore", |o| o.data_err_abort = false),
            ("abort", |o| o.data_err_abort = true),
        ]),
    ),
    ("grpid", Word(|o| o.grpid = Some(true))),
    ("bsdgroups", Word(|o| o.grpid = Some(true))),
    ("nogrpid", Word(|o| o.grpid = Some(false))),
    ("sysvgroups", Word(|o| o.grpid = Some(false))),
    ("resuid", Number(|o, n| o.resuid = Some(n))),
    ("resgid", Number(|o, n| o.resgid = Some(n))),
    ("bsddf", Word(|o| o.minixdf = false)),
    ("minixdf", Word(|o| o.minixdf = true)),
    ("delalloc", Word(|o| o.delalloc = Some(true))),
    ("nodelalloc", Word(|o| o.delalloc = Some(false))),
    ("discard", Word(|o| o.discard = Some(true))),
    ("nodiscard", Word(|o| o.discard = Some(false))),
    ("auto_da_alloc", Word(|o| o.auto_da_alloc = true)),
    ("auto_da_alloc", Number(|o, n| o.auto_da_alloc = n != 0)),
    ("noauto_da_alloc", Word(|o| o.auto_da_alloc = false)),
    ("user_xattr", Word(|o| o.user_xattr = Some(true))),
    ("nouser_xattr", Word(|o| o.user_xattr = Some(false))),
    ("acl", Word(|o| o.acl = Some(true))),
    ("noacl", Word(|o| o.acl = Some(false))),
    ("relatime", Word(|o| o.atime = AtimeMode::Relatime)),
    ("strictatime", Word(|o| o.atime = AtimeMode::Strictatime)),
    ("noatime", Word(|o| o.atime = AtimeMode::Noatime)),
    ("atime", Word(|o| o.atime = AtimeMode::Relatime)),
    ("norelatime", Word(|o| o.atime = AtimeMode::Strictatime)),
    ("nostrictatime", Word(|o| o.atime = AtimeMode::Relatime)),
    ("nodiratime", Word(|o| o.nodiratime = true)),
    ("diratime", Word(|o| o.nodiratime = false)),
    ("lazytime", Word(|o| o.lazytime = true)),
    ("nolazytime", Word(|o| o.lazytime = false)),
    ("sync", Word(|o| o.sync = true)),
    ("async", Word(|o| o.sync = false)),
    ("dirsync", Word(|o| o.dirsync = true)),
    (
        "max_dir_size_kb",
        Number(|o, n| o.max_dir_size = (n != 0).then(|| u64::from(n) * 1024)),
    ),
    (
        "buffered_iomap",
        Word(|o| o.buffered_path = Some(BufferedPath::Iomap)),
    ),
    (
        "nobuffered_iomap",
        Word(|o| o.buffered_path = Some(BufferedPath::BufferHead)),
    ),
    (
        "backend",
        Choice(&[
            ("auto", |o| o.backend = Backend::Auto),
            ("syscalls", |o| o.backend = Backend::Syscalls),
            ("io_uring", |o| o.backend = Backend::IoUring),
        ]),
    ),
    // Names that ask for what is done anyway, or that tune machinery which does not exist here.
    ("block_validity", Ignored),
    ("noblock_validity", Ignored),
    ("dioread_nolock", Word(|o| o.dioread_nolock = true)),
    ("dioread_lock", Word(|o| o.dioread_nolock = false)),
    ("init_itable", Ignored),
    ("noinit_itable", Ignored),
    ("inode_readahead_blks", Ignored),
    ("min_batch_time", Ignored),
    ("max_batch_time", Ignored),
    ("journal_ioprio", Ignored),
    ("journal_checksum", Ignored),
    ("nojournal_checksum", Ignored),
    ("mb_optimize_scan", Ignored),
    ("prefetch_block_bitmaps", Ignored),
    ("no_prefetch_block_bitmaps", Ignored),
    ("mblk_io_submit", Ignored),
    ("nomblk_io_submit", Ignored),
    ("i_version", Ignored),
    ("no_mbcache", Ignored),
    ("nombcache", Ignored),
    ("oldalloc", Ignored),
    ("orlov", Ignored),
    ("bh", Ignored),
    ("nobh", Ignored),
    ("nocheck", Ignored),
    ("check", Ignored),
    ("reservation", Ignored),
    ("noreservation", Ignored),
    ("extents", Ignored),
    ("debug", Ignored),
    ("stripe", Ignored),
    ("journal_async_commit", Ignored),
    (
        "journal_dev",
        Number(|o, number| (o.journal_number, o.journal_path) = (Some(number), None)),
    ),
    (
        "journal_path",
        Text(|o, path| (o.journal_path, o.journal_number) = (Some(path.into()), None)),
    ),
    ("nouid32", Word(|o| o.narrow_ids = true)),
    // Names of things this build does not do.
    (
        "abort",
        Refused("shut the file system down through its interface instead"),
    ),
    ("quota", Word(|o| o.quotas[0] = true)),
    ("usrquota", Word(|o| o.quotas[0] = true)),
    ("grpquota", Word(|o| o.quotas[1] = true)),
    ("prjquota", Word(|o| o.quotas[2] = true)),
    ("noquota", Word(|o| o.quotas = [false; 3])),
    ("usrjquota", Refused(QUOTA)),
    ("grpjquota", Refused(QUOTA)),
    ("jqfmt", Refused(QUOTA)),
    ("dax", Refused(DAX)),
    ("inlinecrypt", Refused("encryption is not supported")),
    (
        "test_dummy_encryption",
        Refused("encryption is not supported"),
    ),
    ("fc_debug_force", Refused("for debugging Linux only")),
    ("fc_debug_max_replay", Refused("for debugging Linux only")),
    ("warn_on_error", Refused("for debugging Linux only")),
    ("nowarn_on_error", Ignored),
];

/// Returns whether `name` is in the table.
pub(super) fn is_known(name: &str) -> bool {
    OPTIONS.iter().any(|(known, _)| *known == name)
}

/// The names in the table, for tests.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|(name, _)| *name)
}

/// Applies `item`, `name` or `name=value`.
pub(super) fn apply(options: &mut MountOptions, item: &str) -> Result<(), Why> {
    let (name, value) = match item.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (item, None),
    };
    let mut wrong = None;
    for (_, effect) in OPTIONS.iter().filter(|(known, _)| *known == name) {
        match (effect, value) {
            (Ignored, _) => return Ok(()),
            (Refused(why), _) => return Err((*why).into()),
            (Word(set), None) => {
                set(options);
                return Ok(());
            }
            (Number(set), Some(text)) => {
                let number = text
                    .parse()
                    .map_err(|_| "needs a number from 0 to 4294967295")?;
                set(options, number);
                return Ok(());
            }
            (Text(set), Some(text)) if !text.is_empty() => {
                set(options, text);
                return Ok(());
            }
            (Choice(choices), Some(text)) => {
                let Some((_, set)) = choices.iter().find(|(word, _)| *word == text) else {
                    let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
                    return Err(format!("knows {}", words.join(", ")));
                };
                set(options);
                return Ok(());
            }
            (Word(_), Some(_)) => wrong = Some("takes no value"),
            (Number(_) | Choice(_), None) | (Text(_), _) => wrong = Some("needs a value"),
        }
    }
    Err(wrong.unwrap_or("unknown").into())
}
