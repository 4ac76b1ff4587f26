//! A damaged journal: replayed by a mount, by a read-only mount, and in memory by the checker.

use extant::CheckOptions;
use extant_testkit::mutate::Kind;

use super::world::{self, World};
use super::{Cost, Hostile, is_clean};
use crate::{recipe, seeds};

const FOCUS: &[Kind] = &[
    Kind::JournalSuper,
    Kind::JournalDescriptor,
    Kind::JournalRevoke,
    Kind::JournalCommit,
    Kind::JournalCopy,
    Kind::OrphanBlock,
    Kind::FastCommit,
];

pub(super) fn run(data: &[u8]) -> Cost {
    let all = seeds::all().iter();
    let all: Vec<_> = all.filter(|seed| seed.has(Kind::JournalSuper)).collect();
    let Some(prepared) = recipe::prepare(data, &all, FOCUS) else {
        return Cost::default();
    };
    let hostile = Hostile::new(prepared);
    let how = hostile.rest.first().copied().unwrap_or(0);
    if how & 1 != 0 {
        let options = CheckOptions {
            threads: 1,
            max_findings: 100,
            ..CheckOptions::default()
        };
        let report = extant::check(hostile.disk.clone(), &options);
        assert!(is_clean(&report) || !hostile.is_sound(), "{report:?}");
    }
    if let Some(volume) = hostile.mount(how & 2 != 0) {
        let mut world = World::new(&volume);
        world.walk();
        for node in world.nodes().iter().take(20) {
            let _ = world::ask_all(&volume, node);
        }
        drop(world);
        let ended = volume.unmount();
        assert!(ended.is_ok() || !hostile.is_sound(), "{ended:?}");
        hostile.assert_clean("after a replay");
    }
    hostile.cost()
}
