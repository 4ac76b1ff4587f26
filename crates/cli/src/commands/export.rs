//! `extant export`: [`super::tar`] by another name, with the archive as an operand.

use crate::args::{Export, Tar};
use crate::failure::Outcome;

pub(crate) fn run(args: &Export) -> Outcome {
    let tar = Tar {
        file: Some(args.to.clone()),
        quiet: args.quiet,
        from: args.from.clone(),
    };
    super::tar::pack_as("export", &tar)
}
