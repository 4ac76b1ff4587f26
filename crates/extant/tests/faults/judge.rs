//! Judging the content of the device after the faults.

use extant::{CheckOptions, FileKind, Filesystem, check};
use extant_testkit::Image;

use crate::stage::{Cargo, Stage};
use crate::units::first_foreign;
use crate::workload::Setup;
use crate::world::World;

/// Mounts the volume that the faults left, replays it, compares it with the acknowledged state, and
/// checks it.
pub(crate) fn judge(setup: &Setup, stage: &Stage, world: &World) -> Result<(), String> {
    let fs = setup
        .options()
        .open_device(stage.memory.clone())
        .map_err(|error| format!("mount: {error}"))?;
    for (path, want) in &world.promises {
        let got = fs.read(path).map_err(|error| format!("{path}: {error}"))?;
        if got != want.bytes {
            let at = got
                .iter()
                .zip(&want.bytes)
                .take_while(|(a, b)| a == b)
                .count();
            return Err(format!(
                "{path} was durable with {} bytes; {} are there, different from byte {at} on",
                want.bytes.len(),
                got.len()
            ));
        }
        for (key, value) in &want.attrs {
            let got = fs
                .xattr(path, key)
                .map_err(|error| format!("{path} {key}: {error}"))?;
            if got != *value {
                return Err(format!("{path}: {key} is different"));
            }
        }
    }
    for path in &world.gone {
        if fs
            .exists(path)
            .map_err(|error| format!("{path}: {error}"))?
        {
            return Err(format!("{path} was gone and is there again"));
        }
    }
    for (path, either) in &world.either {
        let got = fs.read(path).map_err(|error| format!("{path}: {error}"))?;
        either
            .allows(&got)
            .map_err(|why| format!("{path}, after an operation that failed: {why}"))?;
    }
    let known = |id| world.known.writes.contains_key(&id);
    // A block map has no unwritten blocks: after a failed write its blocks may hold the old content
    // of the device, as on Linux.
    let lost = stage
        .fired()
        .is_some_and(|seen| matches!(seen.cargo, Cargo::Data(_)));
    if !(lost && setup.mkfs.contains("ext3")) {
        nothing_foreign(&fs, "", &known, world.moved)?;
    }
    fs.unmount().map_err(|error| format!("unmount: {error}"))?;
    let options = CheckOptions {
        threads: 1,
        ..CheckOptions::default()
    };
    let report = check(stage.memory.clone(), &options);
    let report = report.map_err(|error| format!("check: {error}"))?;
    match report.findings.first() {
        Some(finding) => Err(format!("check: {finding}")),
        None => Ok(()),
    }
}

/// e2fsck replays the volume and finds nothing. Not for volumes that record an error: there it
/// leaves the orphans alone, and reports them as damage.
pub(crate) fn by_e2fsck(stage: &Stage) -> Result<(), String> {
    let why = |error: extant_testkit::Error| error.to_string();
    let image = Image::of_bytes(&stage.memory.to_bytes()).map_err(why)?;
    image.fsck_replay().map_err(why)?;
    image.fsck_clean().map_err(why)
}

/// No file shows bytes that no write of the workload put there.
fn nothing_foreign(
    fs: &Filesystem,
    dir: &str,
    known: &impl Fn(u16) -> bool,
    moved: bool,
) -> Result<(), String> {
    let entries = fs.read_dir(if dir.is_empty() { "/" } else { dir });
    for entry in entries.map_err(|error| format!("{dir}: {error}"))? {
        let entry = entry.map_err(|error| format!("{dir}: {error}"))?;
        let path = format!("{dir}/{}", entry.file_name().display());
        let kind = entry
            .file_type()
            .map_err(|error| format!("{path}: {error}"))?;
        match kind {
            FileKind::Directory if !path.ends_with("lost+found") => {
                nothing_foreign(fs, &path, known, moved)?;
            }
            FileKind::Regular => {
                let bytes = fs.read(&path).map_err(|error| format!("{path}: {error}"))?;
                if let Some(at) = first_foreign(&bytes, known, moved) {
                    return Err(format!("{path} shows at byte {at} bytes of no write"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}
