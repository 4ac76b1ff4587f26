//! Damaged maps of files: read, written, cut, deleted; ranges of them allocated, punched, zeroed,
//! moved.

use extant::{Cred, FallocateMode, FileKind, SetAttr, Volume};
use extant_testkit::content;
use extant_testkit::mutate::Kind;

use super::world::{self, World};
use super::{Cost, change};
use crate::feed::Feed;

const FOCUS: &[Kind] = &[Kind::ExtentRoot, Kind::ExtentNode, Kind::Indirect];
/// The most operations of a run.
const OPERATIONS: usize = 32;

pub(super) fn run(data: &[u8]) -> Cost {
    change(
        data,
        FOCUS,
        |seed| seed.mounts,
        |volume, feed| {
            change_all(volume, feed);
            false
        },
    )
}

fn change_all(volume: &Volume, feed: &mut Feed<'_>) {
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
        let _ = match feed.u8() % 12 {
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
            7..=10 => {
                let (mode, at, len) = range(feed, at);
                volume.fallocate(file, mode, at, len, &cred)
            }
            _ => match feed.choose(&names) {
                Some((dir, name)) => volume.unlink(dir, name),
                None => volume.sync(),
            },
        };
    }
}

/// A range operation and its bytes, whole blocks more often than not: what is moved has to be.
fn range(feed: &mut Feed<'_>, at: u64) -> (FallocateMode, u64, u64) {
    let (mode, len) = (feed.u8(), feed.position());
    let keep_size = mode & 0x80 != 0;
    let (at, len) = if mode & 0x60 == 0 {
        (at, len)
    } else {
        (at & !4095, len & !4095)
    };
    let mode = match mode % 5 {
        0 => FallocateMode::Allocate { keep_size },
        1 => FallocateMode::PunchHole,
        2 => FallocateMode::ZeroRange { keep_size },
        3 => FallocateMode::CollapseRange,
        _ => FallocateMode::InsertRange,
    };
    (mode, at, len)
}
