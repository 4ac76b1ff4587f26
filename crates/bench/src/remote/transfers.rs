//! Pushes and pulls: how fast, beside programs that copy and compress, and what two versions share.

use std::time::Instant;

use extant_host::{Cmd, Need, Result, TempDir, ensure};
use serde_json::Value;

use super::amounts::{OTHERS, ROUNDS, mib};
use super::remote_store::RemoteStore;
use super::root_image::RootImage;
use crate::plan::{Bench, Plan};
use crate::report::Run;
use crate::rows::{Rows, Unit};

/// Columns of a push and a pull.
pub(super) const PROGRAMS: [(&str, &str); 3] = [
    ("extant", "extant push and pull, without a round trip"),
    ("cp", "cp of the image, as it is"),
    ("zstd", "zstd -1 -T0 of the image to a file, and back"),
];

/// Pushes the image in two versions, and measures.
pub(super) fn run(
    plan: &Plan,
    store: &RemoteStore,
    image: &RootImage,
    report: &mut Run,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    progress("remote: two versions");
    let first = store.push(&image.path())?;
    image.change(store.command())?;
    let second = store.push(&image.path())?;
    let rows = report.rows(Bench::Remote);
    for (prefix, said) in [("image", &first), ("changed", &second)] {
        figure(
            plan,
            rows,
            &format!("chunks/{prefix}"),
            chunks_of(said, prefix)?,
        );
        figure(
            plan,
            rows,
            &format!("bytes/{prefix}"),
            mib(number(said, "sent_bytes")?),
        );
    }
    let names: Vec<&str> = OTHERS.iter().map(|(name, _)| *name).collect();
    if !names.iter().any(|name| plan.wants(name)) {
        return Ok(());
    }
    for (name, about) in PROGRAMS {
        let wanted = plan.variants.is_empty() || plan.variants.iter().any(|one| one == name);
        let missing = (name == "zstd")
            .then(|| Need::Tool("zstd").missing())
            .flatten();
        match (wanted, missing) {
            (true, None) => report.variant(name, about),
            (true, Some(why)) => {
                report.missing(format!("{name} in remote: {why}"));
                continue;
            }
            (false, _) => continue,
        }
        for round in 0..plan.runs.min(ROUNDS) {
            progress(&format!(
                "remote, push and pull, round {}: {name}",
                round + 1
            ));
            let (push, pull) = both(name, store, image)?;
            let rows = report.rows(Bench::Remote);
            for (case, seconds) in [("push", push), ("pull", pull)] {
                let speed = mib(image.bytes()) / seconds.max(1e-9);
                if plan.wants(case) {
                    rows.add(case, Unit::MibPerSecond, name, speed);
                }
            }
        }
    }
    Ok(())
}

/// The chunks of the image that are not zeros, or those that a push sent.
fn chunks_of(said: &Value, of: &str) -> Result<f64> {
    let name = if of == "image" {
        "chunks"
    } else {
        "new_chunks"
    };
    #[expect(clippy::cast_precision_loss, reason = "some thousand chunks")]
    Ok(number(said, name)? as f64)
}

fn number(said: &Value, name: &str) -> Result<u64> {
    let found = said[name].as_u64();
    ensure!(found.is_some(), "a push says no {name}: {said}");
    Ok(found.unwrap_or_default())
}

fn figure(plan: &Plan, rows: &mut Rows, case: &str, value: f64) {
    let unit = OTHERS.iter().find(|(name, _)| *name == case);
    if let Some((_, unit)) = unit.filter(|_| plan.wants(case)) {
        rows.add(case, *unit, "extant", value);
    }
}

/// Seconds of a push and of a pull.
fn both(name: &str, store: &RemoteStore, image: &RootImage) -> Result<(f64, f64)> {
    let dir = TempDir::new("copies")?;
    let (there, back) = (dir.join("there"), dir.join("back"));
    let program = |args: &[&str]| Cmd::new(args[0]).args(&args[1..]);
    let (push, pull) = match name {
        "extant" => (
            // All chunks are sent, as for a store that has none.
            store
                .extant(None)
                .args(["push", "-q", "--resend"])
                .arg(image.path()),
            store.extant(None).args(["pull", "-q", store.image()]),
        ),
        "cp" => (
            program(&["cp", "--sparse=never"]).arg(image.path()),
            program(&["cp", "--sparse=never"]).arg(&there),
        ),
        _ => (
            program(&["zstd", "-q", "-1", "-T0"])
                .arg(image.path())
                .arg("-o"),
            program(&["zstd", "-q", "-d"]).arg(&there).arg("-o"),
        ),
    };
    let push = match name {
        "extant" => push.arg(store.image()),
        _ => push.arg(&there),
    };
    let start = Instant::now();
    push.ok()?;
    let pushed = start.elapsed().as_secs_f64();
    let start = Instant::now();
    pull.arg(&back).ok()?;
    Ok((pushed, start.elapsed().as_secs_f64()))
}
