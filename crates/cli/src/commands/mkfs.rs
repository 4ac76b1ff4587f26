//! `extant mkfs`: makes a file system.

use std::path::Path;

use extant::device::{BlockDevice, OpenMode};
use extant::mkfs::{self, ExternalJournal, JournalPlan, Made, MadeJournal, Options};
use rustix::process::{getegid, geteuid};
use serde_json::{Value, json};

use crate::args::{Extended, ExtendedList, JournalChoice, Mkfs};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::source;

pub(crate) fn run(args: &Mkfs) -> Outcome {
    let mut options = options(args);
    if let Some(JournalChoice::Device(path)) = &args.journal {
        options.external_journal = match ExternalJournal::open(path) {
            Ok(journal) => Some(journal),
            Err(error) => return Outcome::Failed(failure(&args.image, error)),
        };
    }
    let mode = if args.dry_run {
        OpenMode::ReadOnly
    } else {
        OpenMode::ReadWrite
    };
    let device = match source::connect(&args.image, mode) {
        Ok(device) => device,
        Err(failure) => return Outcome::Failed(failure),
    };
    if JournalPlan::is_asked_for(&options) {
        return make_journal(args, device.as_deref(), &options).into();
    }
    let done = match (device, args.dry_run) {
        (Some(device), true) => mkfs::plan_on(&*device, args.size, &options),
        (Some(device), false) => mkfs::make_on(&*device, args.size, &options),
        (None, true) => mkfs::plan(&args.image, args.size, &options),
        (None, false) => mkfs::make(&args.image, args.size, &options),
    };
    let shown = match done {
        Ok(made) => show(args, &made),
        Err(error) => Err(failure(&args.image, error)),
    };
    shown.into()
}

/// Makes a journal for a volume elsewhere.
fn make_journal(
    args: &Mkfs,
    device: Option<&dyn BlockDevice>,
    options: &Options,
) -> Result<(), Failure> {
    let (image, size) = (&args.image, args.size);
    let done = match (device, args.dry_run) {
        (Some(device), true) => mkfs::plan_journal_on(device, size, options),
        (Some(device), false) => mkfs::make_journal_on(device, size, options),
        (None, true) => mkfs::plan_journal(image, size, options),
        (None, false) => mkfs::make_journal(image, size, options),
    };
    let MadeJournal { plan, overwritten } = done.map_err(|error| failure(image, error))?;
    let overwritten: Vec<&str> = overwritten.iter().map(|one| one.what).collect();
    let mut out = Output::new();
    if args.json {
        out.json(&json!({
            "image": image.to_string_lossy(),
            "made": !args.dry_run,
            "bytes": plan.bytes(),
            "block_size": plan.block_size,
            "blocks": plan.blocks,
            "features": ["journal_dev"],
            "uuid": uuid(&plan.identity.uuid),
            "time": plan.identity.time,
            "overwritten": overwritten,
        }))?;
    } else if !args.quiet {
        let would = if args.dry_run { "would be " } else { "" };
        let (blocks, size) = (plan.blocks, plan.block_size);
        let image = image.display();
        out.text(format!(
            "{image}: {would}a journal of {blocks} blocks of {size} bytes\nUUID: {}\n",
            uuid(&plan.identity.uuid)
        ))?;
    }
    out.finish()
}

/// Why nothing was made on `image`.
pub(super) fn failure(image: &Path, error: mkfs::Error) -> Failure {
    let image = image.display();
    match error {
        mkfs::Error::Open(error) => Failure::new(error),
        mkfs::Error::Io(error) => Failure::at(image, error),
        mkfs::Error::Occupied { .. } => {
            Failure::at(image, format!("{error}; --force overwrites it"))
        }
        other => Failure::at(image, other),
    }
}

fn options(args: &Mkfs) -> Options {
    let mut options = Options {
        usage: args.usage.into(),
        block_size: args.block_size,
        cluster_size: args.cluster_size,
        inode_size: args.inode_size,
        bytes_per_inode: args.bytes_per_inode,
        inodes: args.inodes,
        label: args.label.clone().unwrap_or_default().into_bytes(),
        uuid: args.uuid.and_then(|choice| choice.0),
        reserved_percent: args.reserved_percent,
        time: args.time,
        force: args.force,
        ..Options::default()
    };
    if let Some(JournalChoice::Inside {
        mib,
        fast_commit_kib,
    }) = args.journal
    {
        (options.journal_mib, options.fast_commit_kib) = (mib, fast_commit_kib);
    }
    let lists = args.features.iter();
    options.features = lists.flat_map(|list| list.0.iter().copied()).collect();
    extend(&mut options, &args.extended);
    options
}

/// Applies the lists of `-E`.
pub(super) fn extend(options: &mut Options, lists: &[ExtendedList]) {
    for extended in lists.iter().flat_map(|list| &list.0) {
        match *extended {
            Extended::HashSeed(seed) => options.hash_seed = Some(seed),
            Extended::Stride(blocks) => options.stride = blocks,
            Extended::StripeWidth(blocks) => options.stripe_width = blocks,
            Extended::RootOwner(owner) => {
                let caller = || (geteuid().as_raw(), getegid().as_raw());
                options.root_owner = owner.unwrap_or_else(caller);
            }
            Extended::LazyItableInit(lazy) => options.lazy_itable_init = Some(lazy),
            Extended::Discard(discard) => options.discard = discard,
            Extended::Feature(edit) => options.features.push(edit),
            Extended::StrictNames(strict) => options.strict_names = strict,
            Extended::Quotas(kinds) => options.quotas = kinds,
        }
    }
}

fn show(args: &Mkfs, made: &Made) -> Result<(), Failure> {
    let mut out = Output::new();
    if args.json {
        out.json(&as_json(args, made))?;
    } else if !args.quiet {
        out.text(as_text(args, made))?;
    }
    out.finish()
}

fn as_text(args: &Mkfs, made: &Made) -> String {
    let (layout, geometry) = (&made.layout, made.layout.geometry());
    let clusters = match geometry.cluster_blocks() {
        1 => String::new(),
        blocks => format!("clusters of {blocks}, "),
    };
    let mut text = format!(
        "{}: {}{} blocks of {} bytes in {}{} groups, {} inodes of {} bytes\n",
        args.image.display(),
        if args.dry_run { "would have " } else { "" },
        geometry.blocks,
        geometry.block_size.bytes(),
        clusters,
        geometry.groups,
        geometry.inodes(),
        geometry.inode_size,
    );
    let names: Vec<String> = geometry
        .features
        .names()
        .map(|name| name.to_string())
        .collect();
    text += &format!("features: {}\n", names.join(" "));
    text += &format!(
        "journal: {} blocks; free: {} blocks, {} of them reserved\n",
        layout.journal_blocks(),
        layout.free_blocks(),
        geometry.reserved_blocks,
    );
    text += &format!("UUID: {}\n", uuid(&made.identity.uuid));
    for signature in &made.overwritten {
        let tense = if args.dry_run { "would be" } else { "was" };
        text += &format!("overwritten {tense}: {}\n", signature.what);
    }
    text
}

fn as_json(args: &Mkfs, made: &Made) -> Value {
    let (layout, geometry) = (&made.layout, made.layout.geometry());
    let names: Vec<String> = geometry
        .features
        .names()
        .map(|name| name.to_string())
        .collect();
    let overwritten: Vec<&str> = made.overwritten.iter().map(|one| one.what).collect();
    json!({
        "image": args.image.to_string_lossy(),
        "made": !args.dry_run,
        "bytes": layout.bytes(),
        "block_size": geometry.block_size.bytes(),
        "cluster_size": geometry.block_size.bytes_u64() << geometry.cluster_bits,
        "blocks": geometry.blocks,
        "free_blocks": layout.free_blocks(),
        "reserved_blocks": geometry.reserved_blocks,
        "groups": geometry.groups,
        "inode_size": geometry.inode_size,
        "inodes": geometry.inodes(),
        "free_inodes": layout.free_inodes(),
        "journal_blocks": layout.journal_blocks(),
        "features": names,
        "uuid": uuid(&made.identity.uuid),
        "hash_seed": uuid(&made.identity.hash_seed),
        "time": made.identity.time,
        "overwritten": overwritten,
    })
}

/// A UUID in its usual form.
pub(super) fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}
