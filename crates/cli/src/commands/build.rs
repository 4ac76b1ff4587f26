//! `extant build`: an image from folders, archives and container images.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use extant::build::{self, Built, Error, Options, Source, Watch};
use extant::mkfs;
use extant_archive::Timestamp;
use serde_json::json;
use tracing::warn;

use super::mkfs::{extend, uuid};
use crate::args::{Build, BuildOptions, Free};
use crate::failure::{Failure, Outcome};
use crate::operand::ImagePath;
use crate::output::Output;
use crate::owner;
use crate::progress::Progress;
use crate::unfinished::remove_when_ended;

pub(crate) fn run(args: &Build) -> Outcome {
    match super::split_sources(&args.paths, "an image") {
        Ok((image, sources)) => built(args, image, sources).into(),
        Err(wrong) => wrong,
    }
}

fn built(args: &Build, image: &Path, sources: &[PathBuf]) -> Result<(), Failure> {
    let options = Options {
        threads: args.threads.map(usize::from),
        ..options(&args.options, args.force)?
    };
    let sources: Vec<Source> = sources.iter().map(|path| source(path)).collect();
    remove_when_ended().map_err(Failure::new)?;
    let progress = Progress::new(args.quiet || args.json);
    let shown = Shown::by(&progress);
    let built = build::build(&sources, image, &options, &shown);
    progress.finish();
    let built = built.map_err(|error| failure(image, error))?;
    show(args, image, &built)
}

/// The source that an operand names.
pub(super) fn source(operand: &Path) -> Source {
    if operand.as_os_str() == "-" {
        return Source::Stdin;
    }
    match ImagePath::parse(operand.as_os_str()).filter(|_| !operand.exists()) {
        Some(at) => Source::Inside {
            image: at.image,
            dir: at.path,
        },
        None => Source::Path(operand.to_owned()),
    }
}

/// Shows what is told on the way.
pub(super) struct Shown<'a> {
    progress: &'a Progress,
    warnings: AtomicU64,
}

impl<'a> Shown<'a> {
    /// Shows it beside `progress`.
    pub(super) fn by(progress: &'a Progress) -> Shown<'a> {
        let warnings = AtomicU64::new(0);
        Shown { progress, warnings }
    }
}

/// Warnings that are shown: a source may give cause for millions.
const MOST_WARNINGS: u64 = 100;

impl Watch for Shown<'_> {
    fn expect(&self, bytes: u64) {
        self.progress.expect(bytes);
    }

    fn copied(&self, bytes: u64) {
        self.progress.add(bytes);
    }

    fn warn(&self, what: String) {
        let before = self.warnings.fetch_add(1, Ordering::Relaxed);
        self.progress.pause(|| match before {
            0..MOST_WARNINGS => warn!("{what}"),
            MOST_WARNINGS => warn!("more warnings follow, which are not shown"),
            _ => {}
        });
    }
}

pub(super) fn options(args: &BuildOptions, force: bool) -> Result<Options, Failure> {
    let mut volume = mkfs::Options {
        usage: args.usage.into(),
        block_size: args.block_size,
        cluster_size: args.cluster_size,
        inode_size: args.inode_size,
        inodes: args.inodes,
        label: args.label.clone().unwrap_or_default().into_bytes(),
        uuid: args.uuid.and_then(|choice| choice.0),
        reserved_percent: args.reserved_percent,
        force,
        ..mkfs::Options::default()
    };
    let lists = args.features.iter();
    volume.features = lists.flat_map(|list| list.0.iter().copied()).collect();
    extend(&mut volume, &args.extended);
    let (uid, gid) = match &args.owner {
        Some(text) => owner::parse(text).map_err(|what| Failure::at("--owner", what))?,
        None => (None, None),
    };
    let newest = match env::var_os("SOURCE_DATE_EPOCH") {
        Some(text) => {
            let why = format!("SOURCE_DATE_EPOCH is {text:?}, no number of seconds since 1970");
            let secs = text.to_str().and_then(|text| text.parse().ok());
            Some(secs.ok_or_else(|| Failure::new(why))?)
        }
        None => None,
    };
    let (free, free_percent) = match args.free {
        Free::Bytes(bytes) => (bytes, 0),
        Free::Percent(percent) => (0, percent),
    };
    Ok(Options {
        volume,
        size: args.size,
        free,
        free_percent,
        exclude: args.exclude.clone(),
        trusted: args.trusted,
        uid,
        gid,
        uid_map: args.map_uid.clone(),
        gid_map: args.map_gid.clone(),
        mtime: args.mtime.map(|secs| Timestamp { secs, nanos: 0 }),
        newest,
        manifest: args.manifest.clone(),
        order: args.order.clone(),
        image: args.image.clone(),
        platform: args.platform.clone(),
        // A limit: four times a huge size is none.
        limit: args.limit.or(args.size.map(|size| size.saturating_mul(4))),
        threads: None,
    })
}

pub(super) fn failure(image: &Path, error: Error) -> Failure {
    match error {
        Error::Io { place, error } => Failure::at(place, error),
        Error::Mkfs(error) => super::mkfs::failure(image, error),
        Error::NoRoom { .. } => Failure::at(image.display(), error),
        Error::Occupied { .. } => Failure::new(format!("{error} (--force replaces it)")),
        other => Failure::new(other),
    }
}

fn show(args: &Build, image: &Path, built: &Built) -> Result<(), Failure> {
    let mut out = Output::new();
    let (layout, geometry) = (&built.layout, built.layout.geometry());
    if args.json {
        out.json(&json!({
            "image": image.to_string_lossy(),
            "bytes": layout.bytes(),
            "block_size": geometry.block_size.bytes(),
            "blocks": geometry.blocks,
            "free_blocks": layout.free_blocks(),
            "inodes": geometry.inodes(),
            "free_inodes": layout.free_inodes(),
            "journal_blocks": layout.journal_blocks(),
            "entries": built.entries,
            "data_bytes": built.data_bytes,
            "uuid": uuid(&built.identity.uuid),
            "hash_seed": uuid(&built.identity.hash_seed),
            "time": built.identity.time,
        }))?;
    } else if !args.quiet {
        out.text(format!(
            "{}: {} inodes in use, {} bytes of data, on {} blocks of {} bytes, {} of them free\n\
             UUID: {}\n",
            image.display(),
            built.entries,
            built.data_bytes,
            geometry.blocks,
            geometry.block_size.bytes(),
            layout.free_blocks(),
            uuid(&built.identity.uuid),
        ))?;
    }
    out.finish()
}
