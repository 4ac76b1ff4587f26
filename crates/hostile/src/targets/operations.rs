//! A mount for reading and writing, and operations that the bytes choose.

use extant::{Cred, FileKind, Node, RenameFlags, SeekTarget, SetAttr, SetTime, Volume, XattrMode};
use extant_testkit::content;
use extant_units::Ino;

use super::world::World;
use super::{Cost, change};
use crate::feed::Feed;

/// The most operations of one run, nodes held at once, and bytes written by one operation.
const OPERATIONS: usize = 48;
const HELD: usize = 24;
const WRITE: usize = 20_000;

pub(super) fn run(data: &[u8]) -> Cost {
    change(data, &[], |seed| seed.mounts, operate)
}

/// Operations until the bytes run out; whether the file system was shut down by one of them.
pub(super) fn operate(volume: &Volume, feed: &mut Feed<'_>) -> bool {
    let mut world = World::new(volume);
    world.walk();
    let Some(root) = world.nodes().first().cloned() else {
        return false;
    };
    let mut actor = Actor {
        volume,
        names: world.names().to_vec(),
        held: vec![root],
        stopped: false,
    };
    actor
        .held
        .extend(world.nodes().iter().skip(1).take(8).cloned());
    drop(world);
    for _ in 0..OPERATIONS {
        if feed.is_empty() {
            break;
        }
        actor.step(feed);
    }
    actor.stopped
}

struct Actor<'a> {
    volume: &'a Volume,
    names: Vec<(Node, Vec<u8>)>,
    held: Vec<Node>,
    stopped: bool,
}

/// Names that nothing has yet.
const NEW: [&[u8]; 6] = [b"n", b"new", b"another", b"x.y", &[b'w'; 255], b"d2"];

impl Actor<'_> {
    fn node(&self, feed: &mut Feed<'_>) -> Option<Node> {
        feed.choose(&self.held).cloned()
    }

    /// A directory and a name in it: one that was there, or a new one.
    fn dir_and_name(&self, feed: &mut Feed<'_>) -> Option<(Node, Vec<u8>)> {
        match feed.u8() % 4 {
            0 | 1 => feed.choose(&self.names).cloned(),
            2 => Some((self.node(feed)?, feed.choose(&NEW)?.to_vec())),
            _ => {
                let dir = self.node(feed)?;
                let len = usize::from(feed.u8());
                Some((dir, feed.take(len).to_vec()))
            }
        }
    }

    fn hold(&mut self, feed: &mut Feed<'_>, made: extant::Result<Node>) {
        let Ok(node) = made else { return };
        if self.held.len() < HELD {
            self.held.push(node);
        } else {
            let at = usize::from(feed.u8()) % HELD;
            if let Some(slot) = self.held.get_mut(at) {
                *slot = node;
            }
        }
    }

    fn step(&mut self, feed: &mut Feed<'_>) {
        // What an operation answers is its affair; it must answer.
        if self.try_step(feed).is_none() {
            let _ = self.volume.statfs();
        }
    }

    fn try_step(&mut self, feed: &mut Feed<'_>) -> Option<()> {
        let v = self.volume;
        let step = feed.u8() % 32;
        match step {
            0..=13 | 23 => return self.try_name_step(step, feed),
            14..=20 | 22 | 27 => return self.try_data_step(step, feed),
            21 | 24..=26 | 28 => return self.try_attribute_step(step, feed),
            29 => {
                let at = usize::from(feed.u8()) % self.held.len().max(1);
                if self.held.len() > 1 {
                    self.held.swap_remove(at);
                }
            }
            30 => {
                let _ = v.sync();
            }
            _ => {
                if feed.u8() > 250 {
                    self.stopped = true;
                    let _ = v.shutdown(feed.u8().is_multiple_of(2));
                } else {
                    let _ = v.readlink(&self.node(feed)?);
                }
            }
        }
        Some(())
    }

    /// Creates, removes or finds a name. The numbers are those of [`Self::try_step`].
    fn try_name_step(&mut self, step: u8, feed: &mut Feed<'_>) -> Option<()> {
        let (v, cred) = (self.volume, Cred::root());
        match step {
            0 => {
                let (dir, name) = self.dir_and_name(feed)?;
                self.hold(feed, v.create(&dir, &name, 0o644, &cred));
                self.names.push((dir, name));
            }
            1 => {
                let (dir, name) = self.dir_and_name(feed)?;
                self.hold(feed, v.mkdir(&dir, &name, 0o755, &cred));
                self.names.push((dir, name));
            }
            2 => {
                let (dir, name) = self.dir_and_name(feed)?;
                let kind =
                    feed.choose(&[FileKind::Fifo, FileKind::BlockDevice, FileKind::Socket])?;
                let rdev = feed.u32();
                self.hold(feed, v.mknod(&dir, &name, *kind, 0o600, rdev, &cred));
            }
            3 => {
                let (dir, name) = self.dir_and_name(feed)?;
                let len = usize::from(feed.u16() % 1100);
                let target = content::fill(3, 0, len);
                self.hold(feed, v.symlink(&dir, &name, &target, &cred));
            }
            4 => {
                let dir = self.node(feed)?;
                self.hold(feed, v.tmpfile(&dir, 0o600, &cred));
            }
            5 => {
                let node = self.node(feed)?;
                let (dir, name) = self.dir_and_name(feed)?;
                let _ = v.link(&node, &dir, &name, &cred);
            }
            6 | 7 => {
                let (dir, name) = self.dir_and_name(feed)?;
                let _ = v.unlink(&dir, &name);
            }
            8 => {
                let (dir, name) = self.dir_and_name(feed)?;
                let _ = v.rmdir(&dir, &name);
            }
            9 | 10 => {
                let (old_dir, old) = self.dir_and_name(feed)?;
                let (new_dir, new) = self.dir_and_name(feed)?;
                let flags = RenameFlags::from_bits_truncate(u32::from(feed.u8() % 8));
                let _ = v.rename(&old_dir, &old, &new_dir, &new, flags, &cred);
            }
            11 | 12 => {
                let (dir, name) = self.dir_and_name(feed)?;
                self.hold(feed, v.lookup(&dir, &name));
            }
            13 => {
                let ino = Ino::new(u32::from(feed.u16()))?;
                self.hold(feed, v.node(ino));
            }
            23 => {
                let (dir, from) = (self.node(feed)?, feed.position());
                let mut count = 0;
                let _ = v.readdir(&dir, from, &mut |_| {
                    count += 1;
                    count < 500
                });
            }
            _ => unreachable!("step {step} is of another kind"),
        }
        Some(())
    }

    /// Reads or writes data. The numbers are those of [`Self::try_step`].
    fn try_data_step(&mut self, step: u8, feed: &mut Feed<'_>) -> Option<()> {
        let (v, cred) = (self.volume, Cred::root());
        match step {
            14..=16 => {
                let (node, at) = (self.node(feed)?, feed.position());
                let data = content::fill(9, 0, usize::from(feed.u16()) % WRITE);
                let _ = v.write(&node, at, &data, &cred);
            }
            17 => {
                let node = self.node(feed)?;
                let data = content::fill(4, 0, usize::from(feed.u16()) % WRITE);
                let _ = v.append(&node, &data, &cred);
            }
            18 => {
                let (node, at) = (self.node(feed)?, feed.position());
                let mut buf = vec![0; usize::from(feed.u16())];
                let _ = v.read(&node, at, &mut buf);
                let _ = v.read_uncached(&node, at, &mut buf);
            }
            19 | 20 => {
                let node = self.node(feed)?;
                let changes = SetAttr {
                    size: Some(feed.position()),
                    ..SetAttr::default()
                };
                let _ = v.setattr(&node, &changes, &cred);
            }
            22 => {
                let node = self.node(feed)?;
                let _ = v.fsync(&node, feed.u8().is_multiple_of(2));
            }
            27 => {
                let (node, at) = (self.node(feed)?, feed.position());
                let _ = v.seek(&node, SeekTarget::Data(at));
                let _ = v.seek(&node, SeekTarget::Hole(at));
            }
            _ => unreachable!("step {step} is of another kind"),
        }
        Some(())
    }

    /// Changes attributes. The numbers are those of [`Self::try_step`].
    fn try_attribute_step(&mut self, step: u8, feed: &mut Feed<'_>) -> Option<()> {
        let (v, cred) = (self.volume, Cred::root());
        match step {
            21 => {
                let node = self.node(feed)?;
                let which = feed.u8();
                let changes = SetAttr {
                    perm: (which & 1 != 0).then(|| feed.u16()),
                    uid: (which & 2 != 0).then(|| feed.u32()),
                    gid: (which & 4 != 0).then(|| feed.u32()),
                    mtime: (which & 8 != 0).then_some(SetTime::Now),
                    kill_priv: which & 16 != 0,
                    ..SetAttr::default()
                };
                let _ = v.setattr(&node, &changes, &cred);
            }
            24 | 25 => {
                let node = self.node(feed)?;
                let name = feed.choose(&XATTRS)?;
                let value = content::fill(2, 0, usize::from(feed.u16() % 5000));
                let mode =
                    *feed.choose(&[XattrMode::Either, XattrMode::Create, XattrMode::Replace])?;
                let _ = v.setxattr(&node, name, &value, mode, &cred);
            }
            26 => {
                let node = self.node(feed)?;
                let name = feed.choose(&XATTRS)?;
                let _ = v.getxattr(&node, name);
                let _ = v.removexattr(&node, name, &cred);
                let _ = v.listxattr(&node);
            }
            28 => {
                let node = self.node(feed)?;
                let flags = feed.u32();
                let _ = v.set_flags(&node, flags, &cred);
                let _ = v.set_flags(&node, 0, &cred);
            }
            _ => unreachable!("step {step} is of another kind"),
        }
        Some(())
    }
}

/// Names of attributes: some that are there, one of each namespace, some that are none.
pub(super) const XATTRS: [&[u8]; 8] = [
    b"user.one",
    b"trusted.two",
    b"user.three",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"security.selinux",
    b"user.",
    b"nonsense",
];
