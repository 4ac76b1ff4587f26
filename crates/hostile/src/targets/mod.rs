//! The targets. Each is one file, and one function from bytes to what it cost.

mod census;
mod check;
mod crash;
mod cut_repair;
mod extents;
mod fast_commit;
mod hostile;
mod htree;
mod names;
mod operations;
mod power_cut;
mod replay;
mod requests;
mod structures;
mod walk;
mod wire;
mod world;
mod xattrs;

pub(crate) use self::crash::e2fsck_every;
use self::hostile::{Cost, Hostile, change, is_clean};
use crate::target::Target;

pub(crate) fn run(target: Target, data: &[u8]) -> Cost {
    match target {
        Target::Structures => structures::run(data),
        Target::Walk => walk::run(data),
        Target::Operations => operations::run(data),
        Target::Replay => replay::run(data),
        Target::Htree => htree::run(data),
        Target::Xattrs => xattrs::run(data),
        Target::Extents => extents::run(data),
        Target::FastCommit => fast_commit::run(data),
        Target::Check => check::run(data),
        Target::Names => names::run(data),
        Target::Requests => requests::run(data),
        Target::Crash => crash::run(data),
        Target::CutRepair => cut_repair::run(data),
        Target::Wire => wire::run(data),
    }
}
