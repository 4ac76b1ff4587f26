//! By extents of a file: every other block of it is there, so that each is an extent of its own.

use extant_host::Result;

use super::figure::{Figure, Step, each, milliseconds};
use super::opened::{Closed, medium};
use crate::plan::Plan;
use crate::rows::Unit;
use crate::variant::Variant;

/// Figures: nanoseconds of a block, and the whole truncation.
pub(super) const CALLS: &[(&str, Unit)] = &[
    ("write", Unit::Nanoseconds),
    ("overwrite", Unit::Nanoseconds),
    ("read", Unit::Nanoseconds),
    ("truncate", Unit::Milliseconds),
    ("memory", Unit::Mebibytes),
];

const BLOCK: u64 = 4096;
const FILE: &str = "extents";

/// Returns the position of block `number` in a file of so many extents. From the last to the first:
/// each step is far enough from the last to be no readahead's.
fn offset(extents: u32, number: u32) -> u64 {
    u64::from(extents - 1 - number) * 2 * BLOCK
}

pub(super) fn measure(variant: &Variant, plan: &Plan, step: Step) -> Result<Vec<Figure>> {
    let (_, extents) = step;
    let mib = 256 + u64::from(extents) * 2 * BLOCK / (1 << 20);
    let mut opened = Closed::make(variant, plan, &medium(mib, ""))?.open()?;
    let file = opened.bed.fresh(FILE)?;
    let mut block = [5; 4096];
    let offset = |number: u32| offset(extents, number);
    let mut figures = Vec::new();
    for call in ["write", "overwrite"] {
        let took = each(extents, || {
            (0..extents).try_for_each(|number| file.pwrite(&block, offset(number)))?;
            file.sync()
        })?;
        figures.push(Figure::of(call, took));
    }
    file.cool()?;
    let read = each(extents, || {
        (0..extents).try_for_each(|number| file.pread(&mut block, offset(number)))
    })?;
    figures.push(Figure::of("read", read));
    let ((), took) = milliseconds(|| {
        file.set_len(0)?;
        file.sync()
    })?;
    figures.push(Figure::of("truncate", took));
    if let Some(memory) = opened.memory.take() {
        figures.push(Figure::of("memory", memory.mib()?));
    }
    opened.bed.close()?;
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_block_joins_another() {
        let mut blocks: Vec<u64> = (0..40).map(|number| offset(40, number) / BLOCK).collect();
        blocks.sort_unstable();
        assert!(
            blocks.windows(2).all(|two| two[1] - two[0] > 1),
            "{blocks:?}"
        );
        assert_eq!(blocks.first(), Some(&0));
    }
}
