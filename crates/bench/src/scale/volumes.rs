//! By the size of a volume that is empty: mounting it, the first write, unmounting, a check.

use extant::CheckOptions;
use extant_host::{Cmd, Result, ensure};

use super::figure::{Figure, Step, milliseconds};
use super::opened::{Closed, medium};
use crate::peak::{Peak, peak_of};
use crate::plan::Plan;
use crate::rows::Unit;
use crate::variant::{Kind, Variant};

/// Figures of a volume. The first write makes a file of 4 KiB durable.
pub(super) const CALLS: &[(&str, Unit)] = &[
    ("mount", Unit::Milliseconds),
    ("first-write", Unit::Milliseconds),
    ("unmount", Unit::Milliseconds),
    ("memory", Unit::Mebibytes),
    ("check", Unit::Milliseconds),
    ("check-memory", Unit::Mebibytes),
];

/// The largest volume that e2fsck sees after its mount: beyond, that takes longer than all else.
const CHECKED_GIB: u32 = 16;
const BLOCK: [u8; 4096] = [3; 4096];

pub(super) fn measure(variant: &Variant, plan: &Plan, step: Step) -> Result<Vec<Figure>> {
    let mib = u64::from(step.1) << 10;
    let mut figures = Vec::new();
    if let Kind::Library(_) = variant.kind {
        check(mib, &mut figures)?;
    }
    let closed = Closed::make(variant, plan, &medium(mib, ""))?;
    let (mut opened, took) = milliseconds(|| closed.open())?;
    figures.push(Figure::of("mount", took));
    let ((), took) = milliseconds(|| {
        let file = opened.bed.fresh("first")?;
        file.pwrite(&BLOCK, 0)?;
        file.sync()
    })?;
    figures.push(Figure::of("first-write", took));
    if let Some(memory) = opened.memory.take() {
        figures.push(Figure::of("memory", memory.mib()?));
    }
    let (left, took) = milliseconds(|| opened.bed.unmount())?;
    figures.push(Figure::of("unmount", took));
    if let Some(fresh) = left.filter(|_| step.1 <= CHECKED_GIB) {
        fresh.check()?;
    }
    Ok(figures)
}

/// Checks an image of this size by the library, and by e2fsck.
fn check(mib: u64, figures: &mut Vec<Figure>) -> Result<()> {
    let image = medium(mib, "").image()?;
    let memory = Peak::of_this_process();
    let options = CheckOptions::default();
    let check = || Ok(extant::check_image(image.path(), &options)?);
    let (found, took) = milliseconds(check)?;
    ensure!(found.is_clean(), "an image of {mib} MiB is not clean");
    figures.push(Figure::of("check", took));
    if let Some(memory) = memory {
        figures.push(Figure::of("check-memory", memory.mib()?));
    }
    let e2fsck = Cmd::new("e2fsck").arg("-fn").arg(image.path());
    let limit = std::time::Duration::from_secs(600);
    let (most, took) = milliseconds(|| peak_of(e2fsck, limit))?;
    for (call, value) in [("check", took), ("check-memory", most)] {
        let column = Some("e2fsck");
        figures.push(Figure {
            call,
            column,
            value,
        });
    }
    Ok(())
}
