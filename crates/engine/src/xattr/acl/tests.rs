#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use extant_disk::acl::{AclEntry, AclTag};
use extant_testkit::{Cmd, Image, Need, Rng, Subject, need};

use super::*;
use crate::attr::{getattr, setattr};
use crate::namei;
use crate::state::inode::InodeRef;
use crate::test_support::test_mount::TestFs;
use crate::types::{SetAttr, XattrMode};
use crate::xattr;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// One step, done to both sides.
#[derive(Debug)]
enum Step {
    Acl(usize, &'static str, Vec<u8>),
    Remove(usize, &'static str),
    Chmod(usize, u16),
    File(usize, u16),
    Dir(usize, u16),
}

/// The permissions and the ACLs, as both sides show them.
type Shown = (u32, BTreeMap<&'static str, Vec<u8>>);

/// Our side: inodes in the order of their creation.
struct Ours {
    fs: TestFs,
    inodes: Vec<InodeRef>,
}

impl Ours {
    fn apply(&mut self, step: &Step) -> i32 {
        let fs = &self.fs;
        let cred = Cred::root();
        let name = self.inodes.len().to_string();
        let made = |umask| Cred {
            umask,
            ..Cred::root()
        };
        let result = match step {
            Step::Acl(at, kind, value) => {
                let inode = &self.inodes[*at];
                xattr::set(fs, inode, kind.as_bytes(), value, XattrMode::Either, &cred)
            }
            Step::Remove(at, kind) => xattr::remove(fs, &self.inodes[*at], kind.as_bytes(), &cred),
            Step::Chmod(at, mode) => {
                let changes = SetAttr {
                    perm: Some(*mode),
                    ..SetAttr::default()
                };
                setattr(fs, &self.inodes[*at], &changes, &cred)
            }
            Step::File(at, umask) => {
                let dir = &self.inodes[*at];
                let new = namei::create(fs, dir, name.as_bytes(), 0o666, &made(*umask));
                new.map(|inode| self.inodes.push(inode))
            }
            Step::Dir(at, umask) => {
                let dir = &self.inodes[*at];
                let new = namei::mkdir(fs, dir, name.as_bytes(), 0o777, &made(*umask));
                new.map(|inode| self.inodes.push(inode))
            }
        };
        result.err().map_or(0, |e| e.errno())
    }

    fn show(&self, at: usize) -> Shown {
        let inode = &self.inodes[at];
        let acls = [ACCESS, DEFAULT]
            .into_iter()
            .filter_map(|name| {
                let value = xattr::get(&self.fs, inode, name.as_bytes()).ok()?;
                Some((name, value))
            })
            .collect();
        (getattr(&self.fs, inode).mode().into(), acls)
    }
}

/// Linux's side: paths in the order of their creation.
struct Linux {
    paths: Vec<std::path::PathBuf>,
}

impl Linux {
    fn apply(&mut self, step: &Step) -> i32 {
        let errno = |e: rustix::io::Errno| e.raw_os_error();
        let name = self.paths.len().to_string();
        let mut make = |dir: usize, umask: u16, how: &str| {
            let path = self.paths[dir].join(&name);
            let script = format!("umask {umask:o} && {how} '{}'", path.display());
            Cmd::new("sh").args(["-c", &script]).ok().unwrap();
            self.paths.push(path);
            0
        };
        match step {
            Step::Acl(at, kind, value) => {
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::setxattr(&self.paths[*at], *kind, value, flags)
                    .map_or_else(errno, |()| 0)
            }
            Step::Remove(at, kind) => {
                rustix::fs::removexattr(&self.paths[*at], *kind).map_or_else(errno, |()| 0)
            }
            Step::Chmod(at, mode) => {
                let mode = std::fs::Permissions::from_mode((*mode).into());
                std::fs::set_permissions(&self.paths[*at], mode).unwrap();
                0
            }
            Step::File(at, umask) => make(*at, *umask, ": >"),
            Step::Dir(at, umask) => make(*at, *umask, "mkdir"),
        }
    }

    fn show(&self, at: usize) -> Shown {
        show_path(&self.paths[at])
    }
}

fn show_path(path: &Path) -> Shown {
    let acls = [ACCESS, DEFAULT]
        .into_iter()
        .filter_map(|name| {
            let mut value = vec![0; 65536];
            let len = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
            value.truncate(len);
            Some((name, value))
        })
        .collect();
    (std::fs::metadata(path).unwrap().mode(), acls)
}

/// A random ACL, valid or (sometimes) not.
fn random_acl(rng: &mut Rng) -> Vec<u8> {
    let mut perm = || u16::try_from(rng.below(8)).unwrap();
    let mut entries = vec![AclEntry {
        tag: AclTag::UserObj,
        perm: perm(),
    }];
    let named = perm();
    if named & 1 != 0 {
        entries.push(AclEntry {
            tag: AclTag::User(1000 + u32::from(named)),
            perm: perm(),
        });
    }
    entries.push(AclEntry {
        tag: AclTag::GroupObj,
        perm: perm(),
    });
    if named & 2 != 0 {
        entries.push(AclEntry {
            tag: AclTag::Group(70_000),
            perm: perm(),
        });
    }
    if named & 7 != 0 {
        entries.push(AclEntry {
            tag: AclTag::Mask,
            perm: perm(),
        });
    }
    entries.push(AclEntry {
        tag: AclTag::Other,
        perm: perm(),
    });
    if rng.chance(10) {
        entries.remove(rng.index(entries.len()));
    }
    if rng.chance(5) {
        entries.clear();
    }
    let mut bytes = Acl::new(entries).to_posix();
    if rng.chance(5) {
        let at = rng.index(bytes.len());
        bytes[at] ^= 0x40;
    }
    bytes
}

fn random_step(rng: &mut Rng, dirs: &[usize], count: usize) -> Step {
    let kind = [ACCESS, DEFAULT][rng.index(2)];
    let any = rng.index(count);
    let dir = dirs[rng.index(dirs.len())];
    let umask = [0, 0o022, 0o077, 0o027][rng.index(4)];
    match rng.below(10) {
        0..4 => Step::Acl(any, kind, random_acl(rng)),
        4 => Step::Remove(any, kind),
        5 | 6 => Step::Chmod(any, u16::try_from(rng.below(0o10000)).unwrap()),
        7 | 8 => Step::File(dir, umask),
        _ => Step::Dir(dir, umask),
    }
}

/// Random ACLs, modes and children: we and Linux show the same after every step, errors included.
#[test]
fn linux_is_the_oracle() {
    if !need(&[Need::Loop]) {
        return;
    }
    for (seed, args) in ["-I 256", "-I 128 -b 1024"].into_iter().enumerate() {
        let theirs = Image::of_mib(16).args(args).make().unwrap();
        let image = Image::of_mib(16).args(args).make().unwrap();
        let mount = Subject::Ext4.mount(theirs.path(), "").unwrap();
        let fs = TestFs::mount(image.path(), "");
        let mut linux = Linux {
            paths: vec![mount.dir().to_owned()],
        };
        let mut ours = Ours {
            inodes: vec![fs.root()],
            fs,
        };
        let mut rng = Rng::new(40 + seed as u64);
        let mut dirs = vec![0];
        for number in 0..400 {
            let count = linux.paths.len();
            let step = random_step(&mut rng, &dirs, count);
            let results = (ours.apply(&step), linux.apply(&step));
            assert_eq!(results.0, results.1, "step {number}: {step:?}");
            let touched = match step {
                Step::Acl(at, ..) | Step::Remove(at, _) | Step::Chmod(at, _) => at,
                Step::File(..) => count,
                Step::Dir(..) => {
                    dirs.push(count);
                    count
                }
            };
            assert_eq!(
                ours.show(touched),
                linux.show(touched),
                "step {number}: {step:?}"
            );
        }
        let shown: Vec<_> = (0..linux.paths.len()).map(|at| ours.show(at)).collect();
        let Ours { fs, inodes } = ours;
        drop(inodes);
        fs.unmount();
        mount.unmount().unwrap();
        image.fsck_clean().unwrap();
        // And Linux reads from our image what we showed.
        let mount = Subject::Ext4.mount(image.path(), "ro").unwrap();
        for (path, shown) in linux.paths.iter().zip(&shown) {
            let inside = path.strip_prefix(&linux.paths[0]).unwrap();
            assert_eq!(&show_path(&mount.dir().join(inside)), shown, "{inside:?}");
        }
        mount.unmount().unwrap();
    }
}

#[test]
fn damaged_acls_are_named() {
    let image = Image::of_mib(8).args("-I 256").make().unwrap();
    let fs = TestFs::mount(image.path(), "errors=continue");
    let file = fs.create("f");
    let mut h = fs.start(20).unwrap();
    let bad = [1, 0, 0, 0, 0x40, 0, 7, 0];
    xattr::set_stored(
        &fs,
        &mut h,
        &file,
        &XattrName::ACL_ACCESS,
        Some(&bad),
        &Cred::root(),
    )
    .unwrap();
    drop(h);
    let error = xattr::get(&fs, &file, ACCESS.as_bytes()).unwrap_err();
    assert!(
        error.to_string().contains("ACL entry with tag 0x40"),
        "{error}"
    );
    let changes = SetAttr {
        perm: Some(0o600),
        ..SetAttr::default()
    };
    assert_eq!(
        setattr(&fs, &file, &changes, &Cred::root()).map_err(|e| e.errno()),
        Err(117)
    );
}
