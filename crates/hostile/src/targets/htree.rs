//! Damaged directories: looked up in, listed from any position, changed.

use extant::{Cred, Node, RenameFlags, Volume};
use extant_testkit::mutate::Kind;

use super::world::World;
use super::{Cost, change};
use crate::feed::Feed;

const FOCUS: &[Kind] = &[Kind::DirRoot, Kind::DirNode, Kind::DirLeaf];
/// The most operations of a run.
const OPERATIONS: usize = 40;

pub(super) fn run(data: &[u8]) -> Cost {
    change(
        data,
        FOCUS,
        |seed| seed.mounts && seed.has(Kind::DirLeaf),
        |volume, feed| {
            change_all(volume, feed);
            false
        },
    )
}

fn change_all(volume: &Volume, feed: &mut Feed<'_>) {
    let mut world = World::new(volume);
    world.walk();
    let (dirs, names) = (world.directories(), world.names().to_vec());
    let cred = Cred::root();
    let target = volume
        .root()
        .and_then(|root| volume.lookup(&root, b"small"));
    for _ in 0..OPERATIONS {
        let Some(dir) = feed.choose(&dirs).filter(|_| !feed.is_empty()) else {
            return;
        };
        let name = name(feed, &names);
        let _ = match feed.u8() % 8 {
            0 | 1 => match &target {
                Ok(target) => volume.link(target, dir, &name, &cred),
                Err(_) => volume.create(dir, &name, 0o644, &cred).map(drop),
            },
            2 => volume.mkdir(dir, &name, 0o755, &cred).map(drop),
            3 | 4 => volume.unlink(dir, &name),
            5 => {
                let to = (feed.choose(&dirs).unwrap_or(dir), long_name(feed));
                volume.rename(dir, &name, to.0, &to.1, RenameFlags::empty(), &cred)
            }
            6 => list(volume, dir, feed.position()),
            _ => volume.lookup(dir, &name).map(drop),
        };
    }
}

/// Lists a directory in pieces; positions must not fall, or a listing would not end.
fn list(volume: &Volume, dir: &Node, from: u64) -> extant::Result<()> {
    let mut pos = from;
    for _ in 0..50 {
        let (mut count, mut next) = (0, pos);
        volume.readdir(dir, pos, &mut |entry| {
            count += 1;
            next = entry.next_pos;
            count < 40
        })?;
        if count == 0 {
            break;
        }
        pos = next;
    }
    Ok(())
}

/// A name that is there, or a long one, of which few fit a block.
fn name(feed: &mut Feed<'_>, names: &[(Node, Vec<u8>)]) -> Vec<u8> {
    if feed.u8().is_multiple_of(2)
        && let Some((_, name)) = feed.choose(names)
    {
        return name.clone();
    }
    long_name(feed)
}

fn long_name(feed: &mut Feed<'_>) -> Vec<u8> {
    let number = feed.u16();
    format!("{number}-{}", "n".repeat(usize::from(number % 240))).into_bytes()
}
