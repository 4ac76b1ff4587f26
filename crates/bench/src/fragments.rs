//! A stream into free space that is in pieces of 16 KiB: what is delayed is one long range, and
//! each allocation clears the front of it.
//!
//! A file takes all of the volume's space, and loses every other piece of its beginning. Then a new
//! file is written by one call and by an fsync, which allocates piece by piece. `fragments/16K` is
//! the throughput of that, `fragments/16K/clear` the time of each clear in an I/O tree meanwhile.

use std::time::Instant;

use extant::{Cred, Error as FsError, FallocateMode, Node, Volume};
use extant_host::{Result, ensure};

use crate::bed::TestBed;
use crate::case::{Case, Outcome, counted};
use crate::plan::Plan;
use crate::randwrite::BLOCK;
use crate::rows::Unit;
use crate::times;
use crate::variant::{Setup, is_about_trims};

const PIECE: u64 = 16 << 10;
/// Free pieces for each that is written: with less, writes would not be delayed.
const PIECES: u64 = 3;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, unit, setup| Case::randwrite(name, unit, setup, is_about_trims, sample);
    vec![
        case("fragments/16K", Unit::MibPerSecond, Setup::Cache),
        case("fragments/16K/clear", Unit::Nanoseconds, Setup::CacheTimed),
    ]
}

fn sample(setup: Setup, bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    let (ballast, name) = ("ballast", "fragments");
    bed.fresh(ballast)?;
    let (volume, node) = bed.node(ballast)?;
    let whole = take_all(&volume, &node)?;
    let bytes = vec![7; usize::try_from((plan.stream_bytes / 4).max(2 * whole))?];
    let len = bytes.len() as u64;
    for piece in 0..PIECES * len / PIECE {
        let (mode, pos) = (FallocateMode::PunchHole, 2 * piece * PIECE);
        volume.fallocate(&node, mode, pos, PIECE, &Cred::root())?;
    }
    bed.fresh(name)?;
    let (volume, node) = bed.node(name)?;
    // What was freed can be used once that is durable.
    volume.sync()?;
    times::take();
    let outcome = counted(bed, |_| {
        let begun = Instant::now();
        let done = volume.write(&node, 0, &bytes, &Cred::root())?;
        ensure!(done == bytes.len(), "{done} bytes");
        volume.fsync(&node, false)?;
        let took = begun.elapsed();
        let times = (setup == Setup::CacheTimed).then(times::take);
        Ok(Outcome::throughput(1, len, took).or_mean_of(times))
    })?;
    bed.clear(name)?;
    bed.clear(ballast)?;
    volume.sync()?;
    Ok(outcome)
}

/// Gives `node` all space that a file can get. Returns how many bytes are free all the same.
pub(crate) fn take_all(volume: &Volume, node: &Node) -> Result<u64> {
    let mode = FallocateMode::Allocate { keep_size: false };
    let mut at = 0;
    let mut len = volume.statfs()?.blocks_free * BLOCK;
    while len >= BLOCK {
        match volume.fallocate(node, mode, at, len, &Cred::root()) {
            Ok(()) => at += len,
            Err(FsError::NoSpace) => len = len / 2 / BLOCK * BLOCK,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(volume.statfs()?.blocks_free * BLOCK)
}
