//! `extant export`: [`super::tar`] by another name, with the archive as an operand.

use crate::args::{Export, Tar};
use crate::failure::Outcome;

pub(crate) fn run(args: &Export) -> Outcome {
    if args.json && args.to.as_os_str() == "-" {
        return Outcome::Usage("--json: standard output is the archive".into());
    }
    let tar = Tar {
        file: Some(args.to.clone()),
        quiet: args.quiet,
        json: args.json,
        from: args.from.clone(),
    };
    super::tar::pack_as("export", &tar)
}
