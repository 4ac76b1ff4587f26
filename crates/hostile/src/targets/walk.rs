//! `info` of an image, a read-only mount, and every read operation on it.

use extant::Volume;

use super::world::{self, World};
use super::{Cost, Hostile};
use crate::{recipe, seeds};

pub(super) fn run(data: &[u8]) -> Cost {
    let all: Vec<_> = seeds::all().iter().collect();
    let Some(prepared) = recipe::prepare(data, &all, &[]) else {
        return Cost::default();
    };
    let hostile = Hostile::new(prepared);
    let info = extant::ImageInfo::of(&*hostile.disk);
    assert!(
        info.is_ok() || !hostile.is_sound(),
        "{}: {info:?}",
        hostile.seed.name
    );
    if let Some(volume) = hostile.mount(false) {
        everything(&hostile, &volume);
        let ended = volume.unmount();
        assert!(
            ended.is_ok() || !hostile.is_sound(),
            "{}: unmount: {ended:?}",
            hostile.seed.name
        );
    }
    hostile.cost()
}

/// Walks the tree and asks everything of every node.
fn everything(hostile: &Hostile<'_>, volume: &Volume) {
    let mut failed = None;
    let mut world = World::new(volume);
    world.walk();
    for node in world.nodes() {
        failed = failed.or(world::ask_all(volume, node).err());
    }
    failed = failed.or(world.failed.take()).or(volume.statfs().err());
    let _ = volume.stats();
    if let (Some(error), true) = (failed, hostile.is_sound()) {
        panic!("{}: {error}", hostile.seed.name);
    }
}
