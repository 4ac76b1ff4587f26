//! Damaged attributes: listed, read, set, removed, shared blocks among them.

use extant::{Cred, Volume, XattrMode};
use extant_testkit::content;
use extant_testkit::mutate::Kind;

use super::operations::XATTRS;
use super::world::{self, World};
use super::{Cost, change};
use crate::feed::Feed;

const FOCUS: &[Kind] = &[Kind::XattrArea, Kind::XattrBlock];
/// The most operations of a run.
const OPERATIONS: usize = 32;

pub(super) fn run(data: &[u8]) -> Cost {
    change(
        data,
        FOCUS,
        |seed| seed.mounts && (seed.has(Kind::XattrArea) || seed.has(Kind::XattrBlock)),
        |volume, feed| {
            change_all(volume, feed);
            false
        },
    )
}

fn change_all(volume: &Volume, feed: &mut Feed<'_>) {
    let mut world = World::new(volume);
    world.walk();
    let nodes = world.nodes();
    for node in nodes {
        let _ = world::attributes(volume, node);
    }
    let cred = Cred::root();
    for _ in 0..OPERATIONS {
        let Some(node) = feed.choose(nodes).filter(|_| !feed.is_empty()) else {
            return;
        };
        let Some(name) = feed.choose(&XATTRS) else {
            return;
        };
        let _ = match feed.u8() % 8 {
            0..=3 => {
                let value =
                    content::fill(u64::from(feed.u8() % 2), 0, usize::from(feed.u16() % 1200));
                volume.setxattr(node, name, &value, XattrMode::Either, &cred)
            }
            4 => volume.setxattr(node, name, feed.take(60), XattrMode::Replace, &cred),
            5 | 6 => volume.removexattr(node, name, &cred),
            _ => world::attributes(volume, node),
        };
    }
}
