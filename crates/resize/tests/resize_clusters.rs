//! Volumes with clusters, filled by Linux, grown and shrunk: sound for e2fsck, with what they held,
//! and of use to Linux.
//!
//! `EXTANT_RESIZES` (40) is the number of random volumes, `EXTANT_SEED` (0) the first seed.

mod resize_kit;

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::Arc;

use extant_blockdev::MemoryDevice;
use extant_resize::{Error, Report, Target, resize};
use extant_testkit::crash::{Budget, CrashState, Explorer, Totals};
use extant_testkit::{
    Cmd, Context, Image, Need, Recorder, Result, Rng, Subject, bail, ensure, need, report,
};
use extant_units::index;
use resize_kit::cuts::{by_e2fsck, is_sound, text, told};
use resize_kit::{content, content_of, options, run, same};
use rustix::fs::{FallocateFlags, XattrFlags, fallocate};

const MIB: u64 = 1 << 20;

const NEEDS: &[Need] = &[Need::Tool("mke2fs"), Need::Tool("e2fsck"), Need::Loop];

fn from_env(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Files of many kinds in some of the free space, between others that were deleted.
fn fill(image: &Image, rng: &mut Rng, share: u64) -> Result<()> {
    let mount = Subject::Ext4.mount(image.path(), "")?;
    let stat = rustix::fs::statvfs(mount.join("."))?;
    let mut left = stat.f_bavail * stat.f_frsize / 100 * share;
    let mut gone = Vec::new();
    for number in 0..(stat.f_favail / 2).min(150) {
        let dir = mount.join(format!("d{}", number / 20));
        let path = dir.join(format!("f{number}"));
        let made = fs::create_dir_all(&dir).and_then(|()| one(&path, number, &mut left, rng));
        match made {
            // Each small file has a cluster.
            Err(error) if error.kind() == ErrorKind::StorageFull => break,
            made => made?,
        }
        if rng.chance(30) {
            gone.push(path);
        }
    }
    for path in gone {
        fs::remove_file(path)?;
    }
    mount.unmount()?;
    Ok(())
}

/// A file or a link, for which `left` bytes are left.
fn one(path: &Path, number: u64, left: &mut u64, rng: &mut Rng) -> io::Result<()> {
    let most = 1 << rng.between(3, 19);
    let len = rng.below(most).min(*left / 3);
    *left = left.saturating_sub(len.next_multiple_of(1 << 16));
    match rng.below(10) {
        0 => return symlink("x".repeat(rng.index(300) + 1), path),
        1 => pieces(path, rng)?,
        _ => fs::write(path, vec![number.to_le_bytes()[0] + 1; index(len)])?,
    }
    if rng.chance(10) {
        let value = vec![b'v'; rng.index(700) + 1];
        rustix::fs::setxattr(path, "user.name", &value, XattrFlags::empty())?;
    }
    Ok(())
}

/// A file with holes, and with blocks that were never written, inside of clusters too.
fn pieces(path: &Path, rng: &mut Rng) -> io::Result<()> {
    let file = File::create(path)?;
    for piece in 0..rng.below(30) {
        file.write_all_at(
            &[piece.to_le_bytes()[0] + 1; 3000],
            (piece * rng.between(1, 40)) << 11,
        )?;
    }
    let start = rng.below(1 << 18);
    let len = rng.below(1 << 17) + 1;
    Ok(fallocate(&file, FallocateFlags::KEEP_SIZE, start, len)?)
}

/// Resizes an image, and expects that it is sound, holds what it held, and that Linux writes to it.
fn resized(image: &Image, target: Target) -> Result<Report> {
    let before = content_of(image)?;
    let report = run(image, target)?;
    image.fsck_clean()?;
    same(&content_of(image)?, &before)?;
    let len = fs::metadata(image.path())?.len();
    ensure!(len == report.bytes(), "{len} bytes, {report:?}");
    let tried = image.copy()?;
    let mount = Subject::Ext4.mount(tried.path(), "")?;
    // A full volume has no room.
    let _ = fs::write(mount.join("probe"), vec![1; 300_000]);
    mount.unmount()?;
    tried.fsck_clean()?;
    Ok(report)
}

#[test]
fn volumes_with_clusters_grow_and_shrink() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (mib, args, sizes) in [
        (16, "-b 1024 -C 4096", [100, 24]),
        (16, "-b 1024 -C 16384 -O inline_data", [300, 40]),
        (64, "-b 4096 -C 65536", [600, 50]),
        (40, "-b 1024 -C 4096 -g 256 -O ^flex_bg", [90, 30]),
        (
            40,
            "-b 1024 -C 4096 -g 256 -O ^resize_inode,meta_bg",
            [120, 33],
        ),
        (
            40,
            "-b 1024 -C 4096 -g 256 -O ^resize_inode,^has_journal",
            [200, 20],
        ),
        (
            40,
            "-b 2048 -C 8192 -g 256 -O sparse_super2,^resize_inode,orphan_file",
            [70, 36],
        ),
        (
            64,
            "-b 1024 -C 2048 -g 512 -N 4000 -O ^metadata_csum,uninit_bg",
            [130, 50],
        ),
        (64, "-b 1024 -C 1048576 -O ^has_journal", [200, 40]),
    ] {
        let args = format!("{args} -O bigalloc");
        let image = Image::of_mib(mib).args(&args).make()?;
        fill(&image, &mut Rng::new(mib), 40).context(|| args.clone())?;
        for size in sizes {
            let report = resized(&image, Target::Bytes(size * MIB));
            let report = report.context(|| format!("{args}: to {size} MiB"))?;
            ensure!(report.bytes() <= size * MIB, "{report:?}");
        }
        let report = resized(&image, Target::Least).context(|| format!("{args}: to the least"))?;
        ensure!(report.blocks < report.blocks_before, "{args}: {report:?}");
    }
    Ok(())
}

/// The fields of the superblock that a size decides, as dumpe2fs shows them.
fn header(image: &Image) -> Result<Vec<String>> {
    let said = Cmd::new("dumpe2fs").arg("-h").arg(image.path()).ok()?.out;
    let known = [
        "Inode count",
        "Block count",
        "Reserved block count",
        "Free inodes",
        "First block",
        "Cluster size",
        "Reserved GDT blocks",
        "Blocks per group",
        "Clusters per group",
    ];
    let named = |line: &&str| known.iter().any(|name| line.starts_with(name));
    Ok(said.lines().filter(named).map(str::to_owned).collect())
}

#[test]
fn sizes_and_counts_are_resize2fs_s() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("resize2fs"), Need::Tool("dumpe2fs")]) {
        return Ok(());
    }
    for (mib, args, to) in [
        (16, "-b 1024 -C 4096", 100 * MIB),
        (16, "-b 1024 -C 4096", 100 * MIB + 3 * 1024),
        (64, "-b 4096 -C 65536", 700 * MIB),
        (64, "-b 4096 -C 65536", 40 * MIB),
        (64, "-b 1024 -C 4096 -g 256", 40 * MIB),
        (40, "-b 1024 -C 4096 -g 256 -O ^flex_bg", 90 * MIB),
        (40, "-b 1024 -C 2048 -g 1024 -O ^flex_bg", 20 * MIB),
        (40, "-b 1024 -C 16384 -O ^has_journal", 400 * MIB),
    ] {
        let what = || format!("{mib} MiB {args} to {to}");
        let image = Image::of_mib(mib).args(args).args("-O bigalloc").make()?;
        let other = image.copy()?;
        if to > mib * MIB {
            File::options()
                .write(true)
                .open(other.path())?
                .set_len(to)?;
        }
        Cmd::new("e2fsck").arg("-fy").arg(other.path()).run()?;
        let size = format!("{}K", to / 1024);
        let done = Cmd::new("resize2fs").arg("-f").arg(other.path()).arg(&size);
        done.ok().context(what)?;
        // It counts free blocks wrong.
        Cmd::new("e2fsck").arg("-fy").arg(other.path()).run()?;
        run(&image, Target::Bytes(to)).context(what)?;
        image.fsck_clean()?;
        let (ours, theirs) = (header(&image)?, header(&other)?);
        ensure!(
            ours == theirs,
            "{}: {ours:#?}\nresize2fs: {theirs:#?}",
            what()
        );
    }
    Ok(())
}

/// Each state that a power cut leaves is sound, has what the volume had, and one of both sizes.
fn explore(mib: u64, args: &str, target: Target) -> Result<Totals> {
    let image = Image::of_mib(mib).args(args).args("-O bigalloc").make()?;
    fill(&image, &mut Rng::new(mib), 40)?;
    let mut before = fs::read(image.path())?;
    if let Target::Bytes(bytes) = target {
        before.resize(before.len().max(index(bytes)), 0);
    }
    let recorder = Arc::new(Recorder::new(MemoryDevice::from_bytes(&before)));
    let right = content(Arc::clone(&recorder) as _)?;
    let report = resize(Arc::clone(&recorder) as _, target, &options())?;
    ensure!(report.blocks != report.blocks_before, "{report:?}");
    let mut seen = 0_u64;
    let judge = |state: CrashState| -> std::result::Result<(), String> {
        seen += 1;
        if !state.cut.tears() {
            is_sound(&state)?;
            // One state in twelve: it costs several processes.
            if seen % 12 == 1 {
                by_e2fsck(&state, before.len()).map_err(text)?;
            }
        }
        match content(Arc::clone(&state.device) as _).map_err(text)? == right {
            true => Ok(()),
            false => Err("the content has changed".to_owned()),
        }
    };
    let budget = Budget {
        samples: 1,
        cut_stride: 20,
        ..Budget::SHORT
    };
    let explorer = Explorer::new(before.clone(), recorder.events(), 1, budget);
    explorer.run(judge).map_err(|failure| told(args, failure))
}

#[test]
fn a_power_cut_leaves_the_old_volume_or_the_new_one() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let mut all = Totals::default();
    for (mib, args, target) in [
        (12, "-b 1024 -C 4096 -N 200", Target::Bytes(45 * MIB)),
        (
            40,
            "-b 1024 -C 4096 -g 1024 -N 400 -J size=1 -O ^flex_bg",
            Target::Bytes(20 * MIB),
        ),
        (24, "-b 1024 -C 8192 -g 256 -N 400", Target::Least),
    ] {
        all += explore(mib, args, target).context(|| args)?;
    }
    report(&format!("resizes of clusters with power cuts: {all}"));
    Ok(())
}

/// Arguments of mke2fs for a volume, with a size in MiB.
fn arguments(rng: &mut Rng) -> (u64, String) {
    let bs: u64 = 1024 << rng.below(3);
    let cluster = bs << rng.between(1, 6);
    let mut features = vec!["bigalloc"];
    for (feature, share) in [
        ("^flex_bg", 30),
        ("^64bit", 20),
        ("^has_journal", 30),
        ("orphan_file", 30),
        ("^metadata_csum", 20),
        ("uninit_bg", 20),
        ("^resize_inode", 30),
        ("inline_data", 20),
    ] {
        if rng.chance(share) {
            features.push(feature);
        }
    }
    if features.contains(&"^resize_inode") && rng.chance(50) {
        features.push("meta_bg");
    }
    let mut args = format!("-b {bs} -C {cluster} -O {}", features.join(","));
    if rng.chance(70) {
        args += &format!(" -g {}", rng.between(4, 16) * 64);
    }
    args += &format!(" -N {}", rng.between(100, 900));
    (rng.between(12, 80), args)
}

#[test]
fn random_volumes_with_clusters_are_resized() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let first = from_env("EXTANT_SEED", 0) << 20;
    let count = from_env("EXTANT_RESIZES", 40);
    let (mut done, mut refused) = (0, 0);
    for seed in first..first + count {
        let mut rng = Rng::new(seed);
        let (mib, args) = arguments(&mut rng);
        // Some combinations are none: mke2fs says so.
        let Ok(image) = Image::of_mib(mib).args(&args).make() else {
            continue;
        };
        let share = rng.between(5, 70);
        let context = || format!("seed {seed}, {mib} MiB, {args}");
        fill(&image, &mut rng, share).context(context)?;
        let mut now = mib * MIB;
        for step in 0..3 {
            let target = match rng.below(4) {
                0 => Target::Least,
                1 => Target::Bytes(now * rng.between(40, 99) / 100 + rng.below(5000)),
                _ => Target::Bytes(now * rng.between(101, 700) / 100 + rng.below(5000)),
            };
            let what = || format!("{}, step {step}, {target:?}", context());
            match run(&image.copy()?, target) {
                Err(Error::TooSmall { .. } | Error::NoRoom(_) | Error::NoGroup) => refused += 1,
                Err(error) => bail!("{}: {error}", what()),
                Ok(_) => {
                    done += 1;
                    now = resized(&image, target).context(what)?.bytes();
                }
            }
        }
    }
    report(&format!(
        "{done} resizes of volumes with clusters, {refused} refused"
    ));
    ensure!(done > count, "only {done} of {count} volumes");
    Ok(())
}
