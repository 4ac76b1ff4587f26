//! Linux is the oracle: the same random operations on Linux's ext4 and on the mount must succeed or
//! fail alike, with the same errno, and leave the same tree.

use extant_testkit::tree::Compare;
use extant_testkit::{
    Cmd, Context, Image, Need, Result, Rng, Subject, Tree, bail, content, ensure, need, report,
};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, IFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid,
    XattrFlags, chmodat, chownat, ioctl_getflags, ioctl_setflags, linkat, lremovexattr, lsetxattr,
    makedev, mkdirat, mknodat, open, renameat_with, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")];
/// Result of a system call.
type Outcome = std::result::Result<u64, Errno>;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Operations per image.
const OPERATIONS: u64 = 6000;

#[test]
fn random_operations_end_as_on_linux() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let seed = std::env::var("EXTANT_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1u64);
    let images = [
        (4096, ""),
        (1024, ""),
        (1024, "-I 128"),
        (2048, "-O ^metadata_csum,^64bit"),
        (1024, "-g 256 -O meta_bg,^resize_inode"),
        (8192, ""),
        (65536, "-O ^metadata_csum"),
    ];
    let mut failed = 0;
    for (i, (block, args)) in images.into_iter().enumerate() {
        let what = || format!("-b {block} {args}, seed {seed}");
        failed += one(block, args, seed * 100 + i as u64).context(what)?;
    }
    let total = OPERATIONS * images.len() as u64;
    report(&format!(
        "{total} random operations as on Linux, {failed} of them refused alike"
    ));
    // All in vain, or nothing ever refused, would be a poor mixture.
    ensure!(
        failed > total / 50 && failed < total * 3 / 4,
        "{failed} of {total} refused"
    );
    Ok(())
}

/// Blocks larger than a page, which Linux mounts from 6.19 on only, are compared with those of a
/// page there, and at the end with what e2fsprogs' driver finds.
fn one(block: u64, args: &str, seed: u64) -> Result<u64> {
    let is_large = block > PAGE;
    let of = |block: u64| Image::with_args(64, &format!("-b {block} {args}")).make();
    let (a, b) = (of(block.min(PAGE))?, of(block)?);
    let linux = Subject::Ext4.mount(a.path(), "")?;
    let here = Subject::under_test().mount(b.path(), "suid,dev")?;
    let mut rng = Rng::new(seed);
    let mut refused = 0;
    for n in 0..OPERATIONS {
        if n % 150 == 0 {
            thaw(linux.dir())?;
            thaw(here.dir())?;
        }
        let op = match Op::random(&mut rng) {
            // The kernel keeps a FUSE file's times as they were set, whatever the inode can hold.
            Op::Times { path, seconds } if args.contains("-I 128") => Op::Times {
                path,
                seconds: seconds.min(7),
            },
            // Larger blocks have room for more attributes.
            Op::SetXattr {
                path,
                name,
                len,
                flags,
            } if is_large => Op::SetXattr {
                path,
                name,
                len: len.min(400),
                flags,
            },
            op => op,
        };
        let (want, got) = (op.run(linux.dir()), op.run(here.dir()));
        // The kernel does not know of a FUSE file's flags: what else is wrong it finds before we
        // can say EPERM.
        let alike = want == got || (want == Err(Errno::PERM) && got.is_err());
        if !alike {
            bail!(
                "operation {n}: {op:?}: Linux {}, here {}",
                show(want),
                show(got)
            );
        }
        refused += u64::from(want.is_err());
        if n % 1000 == 999 {
            same(linux.dir(), here.dir()).context(|| format!("after operation {n}"))?;
        }
    }
    same(linux.dir(), here.dir())?;
    let before = Tree::take(here.dir())?;
    here.unmount()?;
    b.fsck_clean()?;
    let again = Subject::other(block).mount(b.path(), "ro")?;
    let how = Compare {
        as_fuse2fs_shows: is_large,
        ..Compare::default()
    };
    before.expect_equal(&Tree::take(again.dir())?, how)?;
    Ok(refused)
}

/// Takes back what would make most operations fail: immutable and append-only things, lost
/// directories.
fn thaw(root: &Path) -> Result<()> {
    Cmd::new("chattr")
        .args(["-f", "-R", "-i", "-a"])
        .arg(root)
        .run()?;
    for d in ["d0/d0", "d0/d1", "d1/d0", "d1/d1"] {
        let mut at = root.to_path_buf();
        for part in Path::new(d) {
            at.push(part);
            if std::fs::symlink_metadata(&at).is_ok_and(|m| !m.is_dir()) {
                std::fs::remove_file(&at)?;
            }
        }
        std::fs::create_dir_all(at)?;
    }
    Ok(())
}

fn show(r: Outcome) -> String {
    match r {
        Ok(v) => format!("returns {v}"),
        Err(e) => format!("fails with {e:?}"),
    }
}

/// Equal but for modification times that were not set.
fn same(linux: &Path, here: &Path) -> Result<()> {
    let (a, b) = (Tree::take(linux)?, Tree::take(here)?);
    let differences = a.differences(
        &b,
        Compare {
            skip_dir_times: true,
            ..Compare::default()
        },
    );
    let real: Vec<&String> = differences
        .iter()
        .filter(|d| !d.contains(": mtime: "))
        .collect();
    ensure!(
        real.is_empty(),
        "trees differ: {:#?}",
        real.iter().take(20).collect::<Vec<_>>()
    );
    Ok(())
}

/// One operation on paths relative to the mount.
#[derive(Debug)]
enum Op {
    Create {
        path: PathBuf,
        mode: u32,
        exclusive: bool,
    },
    Write {
        path: PathBuf,
        at: u64,
        len: usize,
        append: bool,
    },
    Truncate {
        path: PathBuf,
        to: u64,
    },
    Read {
        path: PathBuf,
        at: u64,
    },
    Mkdir {
        path: PathBuf,
        mode: u32,
    },
    Mknod {
        path: PathBuf,
        kind: u8,
    },
    Symlink {
        path: PathBuf,
        len: usize,
    },
    Link {
        from: PathBuf,
        to: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        flags: u32,
    },
    Unlink {
        path: PathBuf,
    },
    Rmdir {
        path: PathBuf,
    },
    Chmod {
        path: PathBuf,
        mode: u32,
    },
    Chown {
        path: PathBuf,
        uid: u32,
        gid: u32,
    },
    SetXattr {
        path: PathBuf,
        name: &'static str,
        len: usize,
        flags: u32,
    },
    RemoveXattr {
        path: PathBuf,
        name: &'static str,
    },
    Times {
        path: PathBuf,
        seconds: i64,
    },
    Flags {
        path: PathBuf,
        flags: u32,
    },
    Stat {
        path: PathBuf,
    },
}

const XATTRS: &[&str] = &[
    "user.a",
    "user.b",
    "user.long-name-of-an-attribute",
    "trusted.t",
    "system.x",
    "user.",
    "security.s",
];

impl Op {
    fn random(rng: &mut Rng) -> Op {
        let (path, other) = (a_path(rng), a_path(rng));
        let mode = u32::try_from(rng.below(0o10000)).unwrap_or(0);
        match rng.below(100) {
            0..=11 => Op::Create {
                path,
                mode,
                exclusive: rng.chance(40),
            },
            12..=23 => Op::Write {
                path,
                at: rng.below(20_000),
                len: rng.index(9000),
                append: rng.chance(30),
            },
            24..=29 => Op::Truncate {
                path,
                to: rng.below(60_000),
            },
            30..=34 => Op::Read {
                path,
                at: rng.below(20_000),
            },
            35..=43 => Op::Mkdir { path, mode },
            44..=46 => Op::Mknod {
                path,
                kind: u8::try_from(rng.below(4)).unwrap_or(0),
            },
            47..=51 => Op::Symlink {
                path,
                len: a_length(rng, 80, 1000),
            },
            52..=58 => Op::Link {
                from: path,
                to: other,
            },
            59..=70 => Op::Rename {
                from: path,
                to: other,
                flags: [0, 0, 0, 1, 2, 4, 3][rng.index(7)],
            },
            71..=76 => Op::Unlink { path },
            77..=80 => Op::Rmdir { path },
            81..=84 => Op::Chmod { path, mode },
            85..=87 => Op::Chown {
                path,
                uid: u32::try_from(rng.below(3)).unwrap_or(0),
                gid: 7,
            },
            88..=91 => Op::SetXattr {
                path,
                name: XATTRS[rng.index(XATTRS.len())],
                len: a_length(rng, 100, 5000),
                flags: [0, 0, 1, 2][rng.index(4)],
            },
            92..=93 => Op::RemoveXattr {
                path,
                name: XATTRS[rng.index(XATTRS.len())],
            },
            94 | 95 => Op::Times {
                path,
                seconds: [0, -5, 1 << 31, 1 << 33][rng.index(4)],
            },
            96 | 97 => Op::Flags {
                path,
                flags: [0, 0, 0, 0, 0, 0x10, 0x20, 0x80, 0x40, 0x10000][rng.index(10)],
            },
            _ => Op::Stat { path },
        }
    }

    /// A value to compare, or the errno.
    fn run(&self, root: &Path) -> Outcome {
        let at = |p: &Path| root.join(p);
        let done = |r: std::result::Result<(), Errno>| r.map(|()| 0);
        match self {
            Op::Create { .. } | Op::Write { .. } | Op::Truncate { .. } | Op::Read { .. } => {
                self.run_on_data(root)
            }
            Op::Chmod { .. }
            | Op::Chown { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::Times { .. }
            | Op::Flags { .. }
            | Op::Stat { .. } => self.run_on_attributes(root),
            Op::Mkdir { path, mode } => done(mkdirat(CWD, at(path), Mode::from_raw_mode(*mode))),
            Op::Mknod { path, kind } => {
                let kinds = [
                    FileType::Fifo,
                    FileType::Socket,
                    FileType::CharacterDevice,
                    FileType::BlockDevice,
                ];
                let kind = kinds
                    .get(usize::from(*kind))
                    .copied()
                    .unwrap_or(FileType::Fifo);
                done(mknodat(
                    CWD,
                    at(path),
                    kind,
                    Mode::from_raw_mode(0o640),
                    makedev(3, 70_000),
                ))
            }
            Op::Symlink { path, len } => done(symlinkat("s".repeat(*len), CWD, at(path))),
            Op::Link { from, to } => done(linkat(CWD, at(from), CWD, at(to), AtFlags::empty())),
            Op::Rename { from, to, flags } => {
                let flags = RenameFlags::from_bits_retain(*flags);
                done(renameat_with(CWD, at(from), CWD, at(to), flags))
            }
            Op::Unlink { path } => done(unlinkat(CWD, at(path), AtFlags::empty())),
            Op::Rmdir { path } => done(unlinkat(CWD, at(path), AtFlags::REMOVEDIR)),
        }
    }

    /// Operations on contents.
    fn run_on_data(&self, root: &Path) -> Outcome {
        let at = |p: &Path| root.join(p);
        match self {
            Op::Create {
                path,
                mode,
                exclusive,
            } => {
                let mut flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NONBLOCK;
                flags.set(OFlags::EXCL, *exclusive);
                open(at(path), flags, Mode::from_raw_mode(*mode)).map(|_| 0)
            }
            Op::Write {
                path,
                at: pos,
                len,
                append,
            } => {
                let mut flags = OFlags::WRONLY | OFlags::NONBLOCK;
                flags.set(OFlags::APPEND, *append);
                let f = std::fs::File::from(open(at(path), flags, Mode::empty())?);
                let n = f
                    .write_at(&content::fill(*pos, 0, *len), *pos)
                    .map_err(|e| errno(&e))?;
                Ok(n as u64)
            }
            Op::Truncate { path, to } => {
                let f = std::fs::File::from(open(
                    at(path),
                    OFlags::WRONLY | OFlags::NONBLOCK,
                    Mode::empty(),
                )?);
                f.set_len(*to).map(|()| 0).map_err(|e| errno(&e))
            }
            Op::Read { path, at: pos } => {
                let f = std::fs::File::from(open(
                    at(path),
                    OFlags::RDONLY | OFlags::NONBLOCK,
                    Mode::empty(),
                )?);
                let mut buf = vec![0; 5000];
                let n = f.read_at(&mut buf, *pos).map_err(|e| errno(&e))?;
                let mut h = content::Hasher::default();
                h.add(buf.get(..n).unwrap_or(&[]));
                Ok(h.end())
            }
            _ => unreachable!("{self:?} is no operation on data"),
        }
    }

    /// Operations on attributes.
    fn run_on_attributes(&self, root: &Path) -> Outcome {
        let at = |p: &Path| root.join(p);
        let done = |r: std::result::Result<(), Errno>| r.map(|()| 0);
        match self {
            Op::Chmod { path, mode } => done(chmodat(
                CWD,
                at(path),
                Mode::from_raw_mode(*mode),
                AtFlags::empty(),
            )),
            Op::Chown { path, uid, gid } => {
                let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
                done(chownat(
                    CWD,
                    at(path),
                    Some(uid),
                    Some(gid),
                    AtFlags::SYMLINK_NOFOLLOW,
                ))
            }
            Op::SetXattr {
                path,
                name,
                len,
                flags,
            } => {
                let value = content::fill(*len as u64, 0, *len);
                done(lsetxattr(
                    at(path),
                    *name,
                    &value,
                    XattrFlags::from_bits_retain(*flags),
                ))
            }
            Op::RemoveXattr { path, name } => done(lremovexattr(at(path), *name)),
            Op::Times { path, seconds } => {
                let t = Timespec {
                    tv_sec: *seconds,
                    tv_nsec: 999_999_999,
                };
                let both = Timestamps {
                    last_access: t,
                    last_modification: t,
                };
                done(utimensat(CWD, at(path), &both, AtFlags::SYMLINK_NOFOLLOW))
            }
            Op::Flags { path, flags } => {
                // A device or pipe would block or answer for itself.
                let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
                let kind = std::fs::symlink_metadata(at(path)).map_err(|e| errno(&e))?;
                if !kind.is_file() && !kind.is_dir() {
                    return Ok(0);
                }
                let f = open(at(path), how, Mode::empty())?;
                // Bits the crate has no name for (extents) must be handed back as they are.
                let kept = ioctl_getflags(&f)?.bits() & !CHANGEABLE;
                ioctl_setflags(&f, IFlags::from_bits_retain(kept | flags))?;
                Ok(u64::from(ioctl_getflags(&f)?.bits() & CHANGEABLE))
            }
            Op::Stat { path } => {
                let m = std::fs::symlink_metadata(at(path)).map_err(|e| errno(&e))?;
                use std::os::unix::fs::MetadataExt;
                let size = if m.is_dir() { 0 } else { m.size() };
                Ok(size + u64::from(m.mode()) * 1_000_003 + m.nlink() * 7919)
            }
            _ => unreachable!("{self:?} is no operation on attributes"),
        }
    }
}

/// Immutable, append, noatime, nodump, dirsync.
const CHANGEABLE: u32 = 0x10 | 0x20 | 0x80 | 0x40 | 0x10000;

fn errno(e: &std::io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}

/// Mostly short, now and then long.
fn a_length(rng: &mut Rng, short: usize, long: usize) -> usize {
    let most = if rng.chance(80) { short } else { long };
    rng.index(most)
}

/// A path of one to three components from few names, so that operations meet.
fn a_path(rng: &mut Rng) -> PathBuf {
    let mut p = PathBuf::new();
    for _ in 0..[0, 1, 1, 1, 2][rng.index(5)] {
        p.push(format!("d{}", rng.below(2)));
    }
    p.push(match rng.below(80) {
        0 => "x".repeat(256),
        1 => ".".to_owned(),
        2 => "x".repeat(255),
        n if n < 12 => format!("d{}", n % 2),
        n => format!("n{}", n % 6),
    });
    p
}
