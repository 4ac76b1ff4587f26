//! `extant info`: what an image is made of.

use extant::ImageInfo;
use extant::device::OpenMode;
use serde_json::{Value, json};

use crate::args::Info;
use crate::failure::{Failure, Failures, Outcome};
use crate::output::{Output, lossy, size_word, time_word};
use crate::{source, unreadable};

pub(crate) fn run(args: &Info) -> Outcome {
    let mut failures = Failures::of("info");
    failures.note(show(args));
    failures.outcome()
}

fn show(args: &Info) -> Result<(), Failure> {
    let info = match source::connect(&args.image, OpenMode::ReadOnly)? {
        Some(device) => ImageInfo::of(&*device),
        None => ImageInfo::read(&args.image),
    };
    let info = unreadable::advised(&args.image, info)?;
    let mut out = Output::new();
    if args.json {
        out.json(&json(&info))?;
    } else {
        text(&info, args.groups, &mut out)?;
    }
    out.finish()
}

/// Bytes of a cluster in words, if it has more than a block.
fn clusters(info: &ImageInfo) -> String {
    match info.cluster_size == info.block_size {
        true => String::new(),
        false => format!(", in clusters of {}", info.cluster_size),
    }
}

fn text(info: &ImageInfo, groups: bool, out: &mut Output) -> Result<(), Failure> {
    // For display: a volume has at most 2^64 bytes.
    let size = info.blocks.saturating_mul(u64::from(info.block_size));
    let free = info.free_blocks.saturating_mul(u64::from(info.block_size));
    let lines = [
        ("label", lossy(&info.label).into_owned()),
        ("uuid", uuid(&info.uuid)),
        (
            "size",
            format!(
                "{} ({} blocks of {}{})",
                size_word(size),
                info.blocks,
                info.block_size,
                clusters(info)
            ),
        ),
        (
            "free",
            format!("{} ({} blocks)", size_word(free), info.free_blocks),
        ),
        ("reserved", format!("{} blocks", info.reserved_blocks)),
        (
            "inodes",
            format!(
                "{} of {} bytes, {} free",
                info.inodes, info.inode_size, info.free_inodes
            ),
        ),
        (
            "groups",
            format!(
                "{} of {} blocks and {} inodes",
                info.group_count, info.blocks_per_group, info.inodes_per_group
            ),
        ),
        ("made", time_word(info.made)),
        ("mounted", time_word(info.mounted)),
        ("written", time_word(info.written)),
        ("last on", lossy(&info.last_mounted_on).into_owned()),
        ("state", state(info)),
        ("compatible", info.compat.join(" ")),
        ("incompatible", info.incompat.join(" ")),
        ("read-only", info.ro_compat.join(" ")),
        ("journal", journal(info)),
    ];
    for (word, value) in lines {
        out.text(format!("{word:<13} "))?;
        out.name(std::ffi::OsStr::new(&value))?;
        out.text("\n")?;
    }
    if groups {
        out.text("\n group  free blocks  free inodes  directories  unused inodes  flags\n")?;
        for group in &info.groups {
            out.text(format!(
                "{:>6} {:>12} {:>12} {:>12} {:>14}  {}\n",
                group.number,
                group.free_blocks,
                group.free_inodes,
                group.directories,
                group.unused_inodes,
                group.flags.join(" ")
            ))?;
        }
    }
    Ok(())
}

fn state(info: &ImageInfo) -> String {
    let mut words = vec![if info.clean { "clean" } else { "not clean" }];
    words.extend(info.has_errors.then_some("with errors"));
    words.extend(info.needs_replay.then_some("journal to replay"));
    words.join(", ")
}

fn journal(info: &ImageInfo) -> String {
    match (&info.journal, info.external_journal) {
        (Some(journal), _) => format!(
            "inode {}, {} blocks, checksum {}, {}",
            journal.inode,
            journal.blocks,
            journal.checksum,
            if journal.empty { "empty" } else { "not empty" }
        ),
        (None, true) => "on another device".into(),
        (None, false) => "none".into(),
    }
}

fn uuid(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from, to| &hex[from..to];
    [
        part(0, 8),
        part(8, 12),
        part(12, 16),
        part(16, 20),
        part(20, 32),
    ]
    .join("-")
}

fn json(info: &ImageInfo) -> Value {
    let groups = info.groups.iter().map(|group| {
        json!({
            "group": group.number,
            "free_blocks": group.free_blocks,
            "free_inodes": group.free_inodes,
            "directories": group.directories,
            "unused_inodes": group.unused_inodes,
            "flags": group.flags,
        })
    });
    let journal = info.journal.as_ref().map(|journal| {
        json!({
            "inode": journal.inode,
            "blocks": journal.blocks,
            "checksum": journal.checksum,
            "empty": journal.empty,
        })
    });
    json!({
        "label": lossy(&info.label),
        "uuid": uuid(&info.uuid),
        "block_size": info.block_size,
        "cluster_size": info.cluster_size,
        "blocks": info.blocks,
        "free_blocks": info.free_blocks,
        "reserved_blocks": info.reserved_blocks,
        "inode_size": info.inode_size,
        "inodes": info.inodes,
        "free_inodes": info.free_inodes,
        "group_count": info.group_count,
        "blocks_per_group": info.blocks_per_group,
        "inodes_per_group": info.inodes_per_group,
        "made": info.made.secs,
        "mounted": info.mounted.secs,
        "written": info.written.secs,
        "last_mounted_on": lossy(&info.last_mounted_on),
        "clean": info.clean,
        "has_errors": info.has_errors,
        "needs_replay": info.needs_replay,
        "features": {
            "compat": info.compat,
            "incompat": info.incompat,
            "ro_compat": info.ro_compat,
        },
        "journal": journal,
        "external_journal": info.external_journal,
        "groups": groups.collect::<Vec<_>>(),
    })
}
