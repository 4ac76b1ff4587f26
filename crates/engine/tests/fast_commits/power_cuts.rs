//! A power cut at any write of a replay: the next replay comes to the same tree.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_testkit::crash::{Budget, CrashState, Explorer, Failure};
use extant_testkit::mount::Subject;
use extant_testkit::tree::Tree;
use extant_testkit::{Context, Error, Image, Recorder, Result, ensure, need, report};
use extant_units::DevOff;

use crate::kit::{ALIKE, NEEDS, check_clean, fast_commits, replay, tree_of};
use crate::storm::Storm;
use crate::{number, volume};

/// States of which Linux shows the tree: one in so many.
const SHOWN: u64 = 24;

fn explore(args: &str, seed: u64, budget: Budget) -> Result<u64> {
    let image = volume(args)?;
    let mount = Subject::Ext4.mount(image.path(), "commit=300")?;
    let mut storm = Storm::begin(mount.dir(), seed, true)?;
    for _ in 0..14 {
        storm.step()?;
    }
    let copy = image.copy()?;
    let live = Tree::take(mount.dir())?;
    ensure!(fast_commits(&copy)? > 5, "few fast commits");
    mount.unmount()?;
    let before = std::fs::read(copy.path())?;
    let recorder = Arc::new(Recorder::new(MemoryDevice::from_bytes(&before)));
    replay(Arc::clone(&recorder) as _).map_err(|error| Error::new(error.to_string()))?;
    let len = before.len();
    let mut seen = 0_u64;
    let mut judge = |state: &CrashState| -> Result<()> {
        seen += 1;
        let dev: Arc<dyn BlockDevice> = Arc::clone(&state.device) as _;
        replay(Arc::clone(&dev)).map_err(|error| Error::new(error.to_string()))?;
        check_clean(Arc::clone(&dev))?;
        if seen % SHOWN != 1 {
            return Ok(());
        }
        let mut bytes = vec![0; len];
        dev.read_at(DevOff::ZERO, &mut bytes)?;
        let image = Image::of_bytes(&bytes)?;
        image.fsck_clean()?;
        tree_of(&image, "ro,noload")?.expect_equal(&live, ALIKE)
    };
    let explorer = Explorer::new(before, recorder.events(), seed, budget);
    let explored = explorer.run(|state| judge(&state).map_err(|error| error.to_string()));
    let told = |failure: Failure| Error::new(format!("{}: {}", failure.cut, failure.why));
    Ok(explored.map_err(told)?.all())
}

#[test]
fn a_power_cut_of_the_replay_changes_nothing() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let budget = match number("EXTANT_SECONDS") {
        None => Budget::SHORT,
        Some(_) => Budget {
            exhaustive_below: 5,
            samples: 10,
            torn: 2,
            cut_stride: 1,
        },
    };
    let seed = number("EXTANT_SEED").unwrap_or(1);
    let mut states = 0;
    for args in ["-b 4096", "-b 1024 -O ^metadata_csum"] {
        states += explore(args, seed, budget).context(|| format!("{args}, seed {seed}"))?;
    }
    report(&format!("{states} states of cut replays replayed"));
    ensure!(states > 60, "only {states} states");
    Ok(())
}
