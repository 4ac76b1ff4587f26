//! A tree with one of everything that a copy of a file system must keep: every kind of entry, odd
//! modes and names, links, xattrs in the inode and outside, ACLs, times at the format's borders,
//! sparse files, large directories.

use crate::{Cmd, Context, Result, Rng, content};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, chownat, lsetxattr, makedev,
    mknodat, utimensat,
};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

/// Limits of the tree's file system.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest total size of a file's xattr values that must fit (one block, less its headers).
    pub xattr_bytes: usize,
    /// Longest symlink target.
    pub symlink: usize,
    /// Times at nanoseconds and beyond 2038 fit (inodes above 128 bytes).
    pub wide_times: bool,
    /// Owners and devices may be made (the caller is root).
    pub root: bool,
    /// Size of the largest file, a hole but for its end. Through a mount that cannot tell where
    /// holes are it is read in full.
    pub far: u64,
}

impl Limits {
    /// ext4 with blocks of `block` and inodes of `inode` bytes, for root.
    pub fn ext4(block: usize, inode: usize) -> Limits {
        let xattr_bytes = (block - 128).min(3000);
        Limits {
            xattr_bytes,
            symlink: block.min(4096) - 1,
            wide_times: inode > 128,
            root: true,
            far: (64 << 20) + 77,
        }
    }

    /// With a largest file past 4 GiB.
    #[must_use]
    pub fn with_large_file(self) -> Limits {
        Limits {
            far: (4 << 30) + 77,
            ..self
        }
    }
}

/// Makes the tree at `dir`, which must not exist yet; `many` entries in its largest directory.
pub fn make(dir: &Path, limits: Limits, many: u32) -> Result<()> {
    fs::create_dir(dir).context(|| dir.display())?;
    names(&dir.join("names")).context(|| "names")?;
    modes(&dir.join("modes"), limits).context(|| "modes")?;
    links(&dir.join("links"), limits).context(|| "links")?;
    sizes(&dir.join("sizes"), limits).context(|| "sizes")?;
    xattrs(&dir.join("xattrs"), limits).context(|| "xattrs")?;
    times(&dir.join("times"), limits).context(|| "times")?;
    if limits.root {
        nodes(&dir.join("nodes")).context(|| "nodes")?;
        acls(&dir.join("acls")).context(|| "acls")?;
    }
    crowd(&dir.join("crowd"), many).context(|| "crowd")
}

fn names(dir: &Path) -> Result<()> {
    fs::create_dir(dir)?;
    let longest = [b'n'; 255];
    let odd: [&[u8]; 9] = [
        b" ",
        b"...",
        b"\n",
        b"a\\b\tc",
        b"-rf",
        b"\xff\xfe not UTF-8",
        "ärger 🦀".as_bytes(),
        b"*",
        &longest,
    ];
    for (i, name) in odd.into_iter().enumerate() {
        let path = dir.join(OsStr::from_bytes(name));
        fs::write(&path, content::fill(i as u64, 0, 10 * i))?;
    }
    // A path far deeper than PATH_MAX would allow as one string is not portable to tools; 60 levels
    // are.
    let mut deep = dir.join("deep");
    for level in 0..60 {
        deep = deep.join(format!("level{level}"));
    }
    fs::create_dir_all(&deep)?;
    Ok(fs::write(deep.join("bottom"), b"down here")?)
}

fn modes(dir: &Path, limits: Limits) -> Result<()> {
    fs::create_dir(dir)?;
    let modes = [
        0o000, 0o001, 0o222, 0o444, 0o755, 0o1644, 0o2755, 0o2644, 0o4755, 0o6711, 0o7777,
    ];
    for mode in modes {
        let (f, d) = (
            dir.join(format!("f{mode:o}")),
            dir.join(format!("d{mode:o}")),
        );
        fs::write(&f, b"mode")?;
        fs::create_dir(&d)?;
        if limits.root {
            // 65534 and 100000 need more than 16 bits or touch their border.
            for (i, id) in [0u32, 1, 65_534, 65_535, 100_000, 4_000_000_000]
                .into_iter()
                .enumerate()
            {
                let path = dir.join(format!("f{mode:o}-owner{i}"));
                fs::write(&path, b"owner")?;
                let (uid, gid) = (
                    rustix::fs::Uid::from_raw(id),
                    rustix::fs::Gid::from_raw(id ^ 1),
                );
                chownat(CWD, &path, Some(uid), Some(gid), AtFlags::empty())?;
                fs::set_permissions(&path, Permissions::from_mode(mode))?;
            }
        }
        fs::set_permissions(&f, Permissions::from_mode(mode))?;
        fs::set_permissions(&d, Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn links(dir: &Path, limits: Limits) -> Result<()> {
    fs::create_dir(dir)?;
    // 59 bytes fit into the inode, 60 do not.
    for len in [1, 58, 59, 60, 61, 255, limits.symlink] {
        symlink("t".repeat(len), dir.join(format!("sym{len}")))?;
    }
    symlink("../names", dir.join("to-a-directory"))?;
    symlink("loop", dir.join("loop"))?;
    fs::create_dir(dir.join("other"))?;
    fs::write(dir.join("a"), b"three names")?;
    fs::hard_link(dir.join("a"), dir.join("b"))?;
    fs::hard_link(dir.join("a"), dir.join("other/c"))?;
    fs::hard_link(dir.join("sym61"), dir.join("hard-link-to-a-symlink"))?;
    Ok(())
}

fn sizes(dir: &Path, limits: Limits) -> Result<()> {
    fs::create_dir(dir)?;
    for size in [
        0usize, 1, 59, 60, 511, 512, 1023, 1024, 1025, 4095, 4096, 4097, 65_537, 1_000_003,
    ] {
        fs::write(
            dir.join(format!("s{size}")),
            content::fill(size as u64, 0, size),
        )?;
    }
    let holes = [
        ("hole-then-byte", 1u64 << 20, 1u64),
        ("only-hole", 5_000_000, 0),
        ("far", limits.far, 3),
    ];
    for (name, size, bytes) in holes {
        let f = File::create(dir.join(name))?;
        f.set_len(size)?;
        let data = content::fill(size, 0, usize::try_from(bytes)?);
        f.write_all_at(&data, size - bytes)?;
    }
    // Every other block: as many extents as blocks, a tree of more than one level.
    let f = File::create(dir.join("comb"))?;
    for i in 0..700u64 {
        f.write_all_at(&content::fill(i, 0, 1000), i * 8192)?;
    }
    f.sync_all()?;
    Ok(())
}

fn xattrs(dir: &Path, limits: Limits) -> Result<()> {
    fs::create_dir(dir)?;
    let set = |path: &Path, name: &str, value: &[u8]| -> Result<()> {
        lsetxattr(path, name, value, XattrFlags::empty())
            .context(|| format!("{name} on {}", path.display()))
    };
    for (i, size) in [0usize, 1, 30, 60, 200, limits.xattr_bytes]
        .into_iter()
        .enumerate()
    {
        let path = dir.join(format!("value{size}"));
        fs::write(&path, b"x")?;
        set(
            &path,
            &format!("user.n{i}"),
            &content::fill(i as u64, 0, size),
        )?;
    }
    let several = dir.join("several");
    fs::create_dir(&several)?;
    for i in 0..8 {
        set(
            &several,
            &format!("user.attribute-{i}"),
            &content::fill(i, 0, 40),
        )?;
    }
    // Equal sets on many inodes are stored once and counted.
    for i in 0..20 {
        let path = dir.join(format!("shared{i}"));
        fs::write(&path, b"")?;
        set(
            &path,
            "user.same",
            &content::fill(1, 0, limits.xattr_bytes / 2),
        )?;
    }
    if limits.root {
        let path = dir.join("root-only");
        fs::write(&path, b"")?;
        set(&path, "trusted.extant", b"\x00\xff binary")?;
        // security.capability: version 2, cap_net_raw permitted and effective.
        let caps = [
            1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        set(&path, "security.capability", &caps)?;
        symlink("target", dir.join("link"))?;
        set(&dir.join("link"), "trusted.on-a-symlink", b"yes")?;
    }
    Ok(())
}

fn times(dir: &Path, limits: Limits) -> Result<()> {
    fs::create_dir(dir)?;
    let mut cases = vec![
        (-2_147_483_648i64, 0i64),
        (-1, 0),
        (0, 0),
        (1_700_000_000, 0),
        (2_147_483_647, 0),
    ];
    if limits.wide_times {
        cases.extend([
            (-1, 999_999_999),
            (0, 1),
            (2_147_483_648, 5),
            (4_294_967_296, 123_456_789),
        ]);
        cases.extend([(6_442_450_944, 1), (15_032_385_535, 0)]);
    }
    for (i, (sec, nsec)) in cases.into_iter().enumerate() {
        let path = dir.join(format!("t{i}"));
        fs::write(&path, b"")?;
        let t = Timespec {
            tv_sec: sec,
            tv_nsec: nsec,
        };
        let both = Timestamps {
            last_access: t,
            last_modification: t,
        };
        utimensat(CWD, &path, &both, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

fn nodes(dir: &Path) -> Result<()> {
    fs::create_dir(dir)?;
    let mode = Mode::from_raw_mode(0o640);
    mknodat(CWD, dir.join("fifo"), FileType::Fifo, mode, 0)?;
    mknodat(CWD, dir.join("socket"), FileType::Socket, mode, 0)?;
    // The last two need the 32-bit encoding of device numbers.
    for (i, (major, minor)) in [(1, 3), (255, 255), (259, 70_000), (4095, 1_048_575)]
        .into_iter()
        .enumerate()
    {
        let dev = makedev(major, minor);
        mknodat(
            CWD,
            dir.join(format!("char{i}")),
            FileType::CharacterDevice,
            mode,
            dev,
        )?;
        mknodat(
            CWD,
            dir.join(format!("block{i}")),
            FileType::BlockDevice,
            mode,
            dev,
        )?;
    }
    Ok(())
}

fn acls(dir: &Path) -> Result<()> {
    fs::create_dir(dir)?;
    let setfacl = |acl: &str, path: &Path| Cmd::new("setfacl").args(["-m", acl]).arg(path).ok();
    fs::write(dir.join("file"), b"acl")?;
    setfacl("u:1:rwx,g:2:r-x,u:70000:---,m::rx", &dir.join("file"))?;
    fs::create_dir(dir.join("inherits"))?;
    setfacl("d:u:1:rwx,d:g:2:r-x", &dir.join("inherits"))?;
    // These take theirs from the directory's default ACL.
    fs::write(dir.join("inherits/file"), b"")?;
    fs::create_dir(dir.join("inherits/dir"))?;
    Ok(())
}

fn crowd(dir: &Path, many: u32) -> Result<()> {
    fs::create_dir(dir)?;
    let mut rng = Rng::new(0xc40d);
    for i in 0..many {
        let long = "x".repeat(rng.index(60));
        fs::write(
            dir.join(format!("{i}-{long}")),
            content::fill(u64::from(i), 0, rng.index(300)),
        )?;
    }
    Ok(())
}
