//! Damaged maps of files: read, written, cut, deleted.

use extant::{Cred, FileKind, SetAttr, Volume};
use extant_testkit::content;
use extant_testkit::mutate::Kind;

use super::operations::finish;
use super::world::{self, World};
use super::{Cost, Hostile};
use crate::feed::Feed;
use crate::{recipe, seeds};

const FOCUS: &[Kind] = &[Kind::ExtentRoot, Kind::ExtentNode, Kind::Indirect];
/// The most operations of a run.
const OPERATIONS: usize = 32;

pub(super) fn run(data: &[u8]) -> Cost {
    let all: Vec<_> = seeds::all().iter().filter(|seed| seed.mounts).collect();
    let Some(prepared) = recipe::prepare(data, &all, FOCUS) else {
        return Cost::default();
    };
    let hostile = Hostile::new(prepared);
    if let Some(volume) = hostile.mount(true) {
        change(&volume, &mut Feed::new(hostile.rest));
        finish(&hostile, &volume, false);
    }
    hostile.cost()
}

fn change(volume: &Volume, feed: &mut Feed<'_>) {
    let mut world = World::new(volume);
    world.walk();
    let files: Vec<_> = world
        .nodes()
        .iter()
        .filter(|node| node.kind() == FileKind::Regular)
        .cloned()
        .collect();
    let names = world.names().to_vec();
    drop(world);
    let cred = Cred::root();
    for _ in 0..OPERATIONS {
        let Some(file) = feed.choose(&files).filter(|_| !feed.is_empty()) else {
            return;
        };
        let at = feed.position();
        let _ = match feed.u8() % 8 {
            0 => volume
                .getattr(file)
                .and_then(|attr| world::content(volume, file, attr.size)),
            1..=3 => {
                let data = content::fill(6, 0, usize::from(feed.u16() % 9000));
                volume.write(file, at, &data, &cred).map(drop)
            }
            4 | 5 => {
                let cut = SetAttr {
                    size: Some(at),
                    ..SetAttr::default()
                };
                volume.setattr(file, &cut, &cred).map(drop)
            }
            6 => volume.fsync(file, false),
            _ => match feed.choose(&names) {
                Some((dir, name)) => volume.unlink(dir, name, &cred),
                None => volume.sync(),
            },
        };
    }
}
