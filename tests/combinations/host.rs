//! The host's kernel as Linux's side.

use extant_testkit::{Context, Result, Subject};

use crate::crash::{Crashed, Replay, fast_commits};
use crate::draw::{Combination, Kernel};
use crate::storm::storm;
use crate::volume::{Key, is_sound, is_sound_after, made};

/// How often something came about.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) volumes: u64,
    pub(super) crashes: u64,
    pub(super) replays: u64,
    /// Volumes that Linux left with a wrong count of blocks.
    pub(super) miscounted: u64,
    pub(super) refused: u64,
    pub(super) lost_by_linux: usize,
    pub(super) fast_commits: [u64; 2],
}

/// A storm by each side on the volume of a seed.
pub(super) fn one(seed: u64, key: &Key, counts: &mut Counts) -> Result<()> {
    let drawn = Combination::drawn(seed, Kernel::Host);
    let done = both_sides(&drawn, key, counts);
    done.context(|| drawn.to_string())
}

fn both_sides(drawn: &Combination, key: &Key, counts: &mut Counts) -> Result<()> {
    let Some(image) = made(drawn)? else {
        return Ok(());
    };
    counts.volumes += 1;
    is_sound(&image)?;
    let sides = [(Subject::Extant, "extant"), (Subject::Ext4, "linux")];
    for (at, (side, name)) in sides.into_iter().enumerate() {
        let other = sides[1 - at].0;
        let mut rng = drawn.rng(10 + at as u64);
        let mount = key.mount(side, image.path(), (drawn, ""))?;
        let files = storm(mount.dir(), name, drawn, at as u64)?;
        let crashed = match !drawn.has("^has_journal") && rng.chance(50) {
            true => Some(Crashed::after((side, &mount), &image, &files, &mut rng)?),
            false => None,
        };
        if drawn.has("fast_commit") {
            counts.fast_commits[at] += fast_commits(side, &mount)?;
        }
        mount.unmount()?;
        if !is_sound_after(side, &image, drawn)? {
            counts.miscounted += 1;
            break;
        }
        let shown = key.shown_by(side, image.path(), drawn)?;
        let by_other = key.shown_by(other, image.path(), drawn)?;
        shown.expect_equal(&by_other).context(|| name)?;
        if let Some(crashed) = crashed {
            counts.crashes += 1;
            match crashed.replayed_by(other, drawn, key)? {
                Replay::Empty => {}
                Replay::Refused => counts.refused += 1,
                Replay::Done { lost } => {
                    counts.replays += 1;
                    counts.lost_by_linux += lost;
                }
            }
        }
    }
    Ok(())
}
