//! fallocate(2) on the mount: what the kernel forwards, with its pages above the file system
//! agreeing with what is below.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};

use extant_testkit::{Cmd, Image, Mount, Need, Result, Rng, Subject, ensure, need, tools};
use rustix::fs::{FallocateFlags as Flags, fallocate};
use rustix::io::Errno;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Tool("mke2fs")];

const KEEP: Flags = Flags::KEEP_SIZE;
const PUNCH: Flags = Flags::PUNCH_HOLE.union(Flags::KEEP_SIZE);
const ZERO: Flags = Flags::ZERO_RANGE;

/// The longest that a file becomes.
const MOST: u64 = 600 << 10;

fn at(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// Applies the effect of `flags` to a file of `bytes`.
fn apply(bytes: &mut Vec<u8>, flags: Flags, offset: u64, len: u64) {
    if !flags.contains(KEEP) {
        bytes.resize(bytes.len().max(at(offset + len)), 0);
    }
    if flags.intersects(Flags::PUNCH_HOLE | ZERO) {
        let size = bytes.len();
        bytes[at(offset).min(size)..at(offset + len).min(size)].fill(0);
    }
}

fn open(mount: &Mount, name: &str) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    Ok(options.open(mount.join(name))?)
}

/// Random calls on a file of the mount and on a vector; the whole file is compared after each,
/// through pages that the kernel keeps.
fn walk(options: &str, seed: u64) -> Result<()> {
    let image = Image::of_mib(32).args("-b 1024").make()?;
    let mount = Subject::Extant.mount(image.path(), options)?;
    let file = open(&mount, "f")?;
    let mut model: Vec<u8> = Vec::new();
    let mut rng = Rng::new(seed);
    for step in 0..250 {
        let (mut offset, mut len) = (rng.below(MOST / 2), rng.between(1, MOST / 4));
        if rng.chance(50) {
            offset &= !1023;
            len = len.next_multiple_of(1024);
        }
        let keep = if rng.chance(50) { KEEP } else { Flags::empty() };
        let flags = match rng.below(8) {
            0..=2 => {
                let byte = |_| rng.next_u64().to_le_bytes()[0] | 1;
                let data: Vec<u8> = (0..len).map(byte).collect();
                file.write_all_at(&data, offset)?;
                model.resize(model.len().max(at(offset + len)), 0);
                model[at(offset)..at(offset + len)].copy_from_slice(&data);
                continue;
            }
            3 => {
                file.sync_all()?;
                continue;
            }
            4 => keep,
            5 => PUNCH,
            _ => ZERO | keep,
        };
        let what = format!("{options} {seed}/{step}: {flags:?} {offset}+{len}");
        fallocate(&file, flags, offset, len)?;
        apply(&mut model, flags, offset, len);
        ensure!(
            file.metadata()?.size() == model.len() as u64,
            "{what}: size"
        );
        ensure!(std::fs::read(mount.join("f"))? == model, "{what}: bytes");
    }
    drop(file);
    mount.unmount()?;
    image.fsck_clean()?;
    let operand = format!("{}:/f", image.path().display());
    let out = image.path().with_extension("f");
    let out = out.display().to_string();
    Cmd::new(tools::extant()?)
        .args(["cp", &operand, &out])
        .ok()?;
    ensure!(std::fs::read(&out)? == model, "{options} {seed}: after all");
    Ok(())
}

#[test]
fn the_kernels_pages_and_the_file_agree() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    walk("", 1)?;
    walk("nobuffered_iomap", 2)?;
    walk("nowriteback_cache", 3)
}

#[test]
fn what_the_mount_refuses() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(32).make()?;
    let mount = Subject::Extant.mount(image.path(), "")?;
    let file = open(&mount, "f")?;
    file.write_all_at(&[1; 100_000], 0)?;
    for (flags, offset, len, errno) in [
        // The kernel keeps these to itself.
        (Flags::COLLAPSE_RANGE, 4096, 4096, Errno::OPNOTSUPP),
        (Flags::INSERT_RANGE, 4096, 4096, Errno::OPNOTSUPP),
        (Flags::empty(), 0, 0, Errno::INVAL),
        (Flags::empty(), 0, 1 << 40, Errno::NOSPC),
        (PUNCH, (u32::MAX as u64) << 12, 4096, Errno::FBIG),
    ] {
        let got = fallocate(&file, flags, offset, len);
        ensure!(got == Err(errno), "{flags:?} {offset}+{len}: {got:?}");
    }
    // As much as there was stays allocated, as with Linux; it goes with the file.
    drop(file);
    std::fs::remove_file(mount.join("f"))?;
    let fixed = open(&mount, "fixed")?;
    fixed.set_len(10_000)?;
    Cmd::new("chattr").arg("+i").arg(mount.join("fixed")).ok()?;
    let got = fallocate(&fixed, PUNCH, 0, 4096);
    ensure!(got == Err(Errno::PERM), "immutable: {got:?}");
    Cmd::new("chattr").arg("-i").arg(mount.join("fixed")).ok()?;
    fallocate(&fixed, PUNCH, 0, 4096)?;
    drop(fixed);
    mount.unmount()?;
    image.fsck_clean()
}

/// A set-user-ID program of an ordinary user's: the bit goes with the first call, and the kernel,
/// which keeps attributes, hears of it.
#[test]
fn privileges_go_and_space_shows() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("setpriv"), Need::Tool("fallocate")]) {
        return Ok(());
    }
    let image = Image::of_mib(32).args("-b 4096").make()?;
    let mount = Subject::Extant.mount(image.path(), "allow_other")?;
    for (name, args) in [
        ("a", "-l 40960"),
        ("p", "-p -l 8192"),
        ("z", "-z -n -l 8192"),
    ] {
        let path = mount.join(name);
        std::fs::write(&path, vec![1; 20_000])?;
        chown(&path, Some(1000), Some(1000))?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o4755))?;
        ensure!(
            std::fs::metadata(&path)?.mode() & 0o7777 == 0o4755,
            "{name}"
        );
        File::open(&path)?.sync_all()?;
        Cmd::new("setpriv")
            .args([
                "--reuid=1000",
                "--regid=1000",
                "--clear-groups",
                "fallocate",
            ])
            .args(args.split(' '))
            .arg(&path)
            .ok()?;
        let after = std::fs::metadata(&path)?;
        ensure!(after.mode() & 0o7777 == 0o755, "{name}: {:o}", after.mode());
        let (size, blocks) = match name {
            "a" => (40_960, 80),
            "p" => (20_000, 24),
            _ => (20_000, 40),
        };
        ensure!(
            (after.size(), after.blocks()) == (size, blocks),
            "{name}: {} bytes, {} units",
            after.size(),
            after.blocks()
        );
    }
    mount.unmount()?;
    image.fsck_clean()
}
