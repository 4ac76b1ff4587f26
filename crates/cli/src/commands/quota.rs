//! `extant quota`: usage and limits of users, groups and projects.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use extant::{Error, FileKind, QuotaEntry, QuotaKind, QuotaLimits, QuotaTimes};
use extant_fuse::QuotaChange;
use rustix::io::Errno;
use serde_json::{Map, Value, json};

use crate::args::{
    Quota, QuotaAction, QuotaEdit, QuotaKinds, QuotaOwner, QuotaProject, QuotaReport,
};
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::output::Output;
use crate::walk::walk;

/// `FS_XFLAG_PROJINHERIT`.
const INHERIT: u32 = 0x200;

pub(crate) fn run(args: &Quota) -> Outcome {
    match &args.action {
        QuotaAction::Report(args) => report(args).into(),
        QuotaAction::Edit(args) if !args.changes_something() => {
            Outcome::Usage("a limit or a grace time is needed".to_owned())
        }
        QuotaAction::Edit(args) => edit(args).into(),
        QuotaAction::Project(args) => project(args),
    }
}

/// The quotas of one kind.
type Found = (QuotaKind, QuotaTimes, Vec<QuotaEntry>);

fn report(args: &QuotaReport) -> Result<(), Failure> {
    let found = quotas_of(&args.image, &args.kinds)?;
    let mut out = Output::new();
    if args.json {
        let kinds: Map<String, Value> = found
            .iter()
            .map(|(kind, times, entries)| {
                let entries: Vec<Value> = entries.iter().map(object).collect();
                let kind_value = json!({
                    "space_grace": times.bytes,
                    "inodes_grace": times.inodes,
                    "entries": entries,
                });
                (kind.name().to_owned(), kind_value)
            })
            .collect();
        out.json(&Value::Object(kinds))?;
        return out.finish();
    }
    for (kind, _, entries) in &found {
        out.text(format!(
            "{:<12}    {:>11} {:>11} {:>11} {:>8} {:>9} {:>9} {:>9} {:>8}\n",
            kind.name(),
            "KiB",
            "soft",
            "hard",
            "grace",
            "inodes",
            "soft",
            "hard",
            "grace"
        ))?;
        for entry in entries {
            out.text(format!("{}\n", line(entry).trim_end()))?;
        }
    }
    out.finish()
}

/// The kinds that are asked for, as far as the volume counts them.
fn quotas_of(image: &Path, asked: &QuotaKinds) -> Result<Vec<Found>, Failure> {
    let named = [asked.users, asked.groups, asked.projects];
    let any = named.contains(&true);
    let kinds = QuotaKind::ALL.into_iter().zip(named);
    let kinds = kinds.filter(|(_, named)| *named || !any);
    let mut found = Vec::new();
    let mut refused = None;
    let mut images = Images::read();
    for (kind, named) in kinds {
        let result = read(&mut images, image, kind);
        match result {
            Ok((times, entries)) => found.push((kind, times, entries)),
            // The others may be counted.
            Err(Refusal::NotCounted(error)) if !named => refused = Some(error),
            Err(Refusal::NotCounted(error) | Refusal::Other(error)) => return Err(error),
        }
    }
    match refused {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// Why quotas of a kind cannot be shown.
enum Refusal {
    /// The volume does not count them.
    NotCounted(Failure),
    Other(Failure),
}

fn read(
    images: &mut Images,
    image: &Path,
    kind: QuotaKind,
) -> Result<(QuotaTimes, Vec<QuotaEntry>), Refusal> {
    let location = image.display();
    if image.is_dir() {
        return extant_fuse::quotas(image, kind).map_err(|error| {
            let not_counted = error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error());
            let failure = Failure::at(location, error);
            match not_counted {
                true => Refusal::NotCounted(failure),
                false => Refusal::Other(failure),
            }
        });
    }
    let fs = images.open(image).map_err(Refusal::Other)?;
    fs.volume().quotas(kind).map_err(|error| match error {
        Error::NotSupported(_) => Refusal::NotCounted(Failure::at(location, error)),
        error => Refusal::Other(Failure::at(location, error)),
    })
}

fn object(entry: &QuotaEntry) -> Value {
    json!({
        "id": entry.id,
        "space": entry.usage.bytes,
        "space_soft": entry.limits.bytes_soft,
        "space_hard": entry.limits.bytes_hard,
        "space_until": entry.bytes_until,
        "inodes": entry.usage.inodes,
        "inodes_soft": entry.limits.inodes_soft,
        "inodes_hard": entry.limits.inodes_hard,
        "inodes_until": entry.inodes_until,
    })
}

fn line(entry: &QuotaEntry) -> String {
    let (usage, limits) = (entry.usage, entry.limits);
    let mark = |used: u64, soft: u64| if soft != 0 && used > soft { '+' } else { '-' };
    let kib = |bytes: u64| bytes.div_ceil(1024);
    format!(
        "{:<12} {}{} {:>11} {:>11} {:>11} {:>8} {:>9} {:>9} {:>9} {:>8}",
        entry.id,
        mark(usage.bytes, limits.bytes_soft),
        mark(usage.inodes, limits.inodes_soft),
        kib(usage.bytes),
        kib(limits.bytes_soft),
        kib(limits.bytes_hard),
        left(entry.bytes_until),
        usage.inodes,
        limits.inodes_soft,
        limits.inodes_hard,
        left(entry.inodes_until),
    )
}

/// The part of a grace time that is left: days, hours or minutes.
fn left(until: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs());
    match (until, until.saturating_sub(now)) {
        (0, _) => String::new(),
        (_, 0) => "none".to_owned(),
        (_, secs) if secs >= 2 * 86_400 => format!("{}days", secs / 86_400),
        (_, secs) => format!("{:02}:{:02}", secs / 3600, secs / 60 % 60),
    }
}

fn owner(of: &QuotaOwner) -> Option<(QuotaKind, u32)> {
    let ids = [of.user, of.group, of.project];
    let mut kinds = QuotaKind::ALL.into_iter().zip(ids);
    kinds.find_map(|(kind, id)| Some((kind, id?)))
}

fn edit(args: &QuotaEdit) -> Result<(), Failure> {
    let (kind, id) = owner(&args.of).ok_or_else(|| Failure::new("no id is named".to_owned()))?;
    let image = args.image.as_path();
    let only = QuotaKinds {
        users: kind == QuotaKind::User,
        groups: kind == QuotaKind::Group,
        projects: kind == QuotaKind::Project,
    };
    let found = quotas_of(image, &only)?;
    let Some((_, times, entries)) = found.first() else {
        return Err(Failure::at(image.display(), "no quotas".to_owned()));
    };
    let known = entries.iter().find(|entry| entry.id == id);
    let old = known.map_or(QuotaLimits::default(), |entry| entry.limits);
    let limits = QuotaLimits {
        bytes_hard: args.space_hard.unwrap_or(old.bytes_hard),
        bytes_soft: args.space_soft.unwrap_or(old.bytes_soft),
        inodes_hard: args.inodes_hard.unwrap_or(old.inodes_hard),
        inodes_soft: args.inodes_soft.unwrap_or(old.inodes_soft),
    };
    let new_times = QuotaTimes {
        bytes: args.space_grace.unwrap_or(times.bytes),
        inodes: args.inodes_grace.unwrap_or(times.inodes),
    };
    let mut changes = Vec::new();
    if limits != old {
        changes.push(QuotaChange::Limits(id, limits));
    }
    if new_times != *times {
        changes.push(QuotaChange::Times(new_times));
    }
    if image.is_dir() {
        for change in changes {
            extant_fuse::set_quota(image, kind, change).at(image.display())?;
        }
        return Ok(());
    }
    let mut images = Images::write();
    let fs = images.open(image)?;
    for change in changes {
        let changed = match change {
            QuotaChange::Limits(id, limits) => fs.volume().set_quota_limits(kind, id, limits),
            QuotaChange::Times(times) => fs.volume().set_quota_times(kind, times),
        };
        changed.at(image.display())?;
    }
    drop(fs);
    images.close()
}

fn project(args: &QuotaProject) -> Outcome {
    let mut failures = Failures::of("quota");
    let mut images = Images::write().shared_by(&args.paths);
    for at in &args.paths {
        let changed = put(args, &mut images, at, &mut failures);
        failures.note(changed);
    }
    super::finish(images, failures)
}

fn put(
    args: &QuotaProject,
    images: &mut Images,
    at: &ImagePath,
    failures: &mut Failures,
) -> Result<(), Failure> {
    let fs = images.of(at)?;
    walk(&fs, at, |step| {
        let Some(step) = failures.note(step) else {
            return false;
        };
        let changed = fs.volume().xflags(step.node).and_then(|(flags, _)| {
            let inherits = step.attr.kind == FileKind::Directory && !args.no_inherit;
            let flags = if inherits {
                flags | INHERIT
            } else {
                flags & !INHERIT
            };
            fs.volume()
                .set_xflags(step.node, flags, args.project, fs.cred())
        });
        failures.note(changed.at(at.with_path(step.path)));
        args.recursive
    });
    Ok(())
}
