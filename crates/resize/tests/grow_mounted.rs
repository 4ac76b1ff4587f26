//! Growing a volume that is mounted: the sizes it gets, what is refused, and writers meanwhile.

mod resize_kit;

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use extant::{Error, Filesystem, Options};
use extant_testkit::limit::{Stop, Watchdog};
use extant_testkit::{Cmd, Image, Need, Result, Rng, ensure, need};
use resize_kit::{NEEDS, content_of, fill, same};

const MIB: u64 = 1 << 20;

/// Volumes: MiB, arguments of mke2fs, and the sizes in MiB that each is grown to, one after the
/// other, in one mount.
const VOLUMES: &[(u64, &str, &[u64])] = &[
    (16, "", &[17, 40, 300, 301, 1000]),
    (6, "-b 1024 -N 200 -J size=2", &[7, 19, 40, 200]),
    (12, "-b 1024 -g 512 -G 4 -N 400 -J size=4", &[13, 14, 30]),
    (40, "-b 2048 -O ^64bit", &[130, 500]),
    (24, "-b 1024 -O ^metadata_csum,uninit_bg -I 128", &[90]),
    (
        24,
        "-b 1024 -O ^metadata_csum,^uninit_bg,^flex_bg",
        &[33, 90],
    ),
    (24, "-t ext3", &[90, 400]),
    (16, "-b 4096 -O ^has_journal", &[700]),
    (64, "-b 1024 -O ^resize_inode", &[80, 128]),
    (
        100,
        "-b 4096 -O orphan_file,metadata_csum_seed -m 9",
        &[8000],
    ),
    (8, "-b 1024 -E resize=400000 -O ^64bit", &[180]),
    (
        6,
        "-b 1024 -g 256 -G 4 -N 400 -O meta_bg,^resize_inode -J size=1",
        &[7, 9, 30, 31],
    ),
    (24, "-b 4096 -O meta_bg,^resize_inode,^64bit", &[200, 9000]),
    (24, "-b 8192 -g 256 -N 400 -J size=8", &[26, 90]),
    (150, "-b 65536 -g 1024 -N 400 -J size=64", &[170, 600]),
    (60, "-b 65536 -g 256 -N 400 -O ^has_journal", &[70, 5000]),
];

fn mounted(image: &Image) -> Result<Filesystem> {
    Ok(Options::new().write(true).open(image.path())?)
}

/// Writes a file of all that is free, and expects the end of the space behind it. Returns its size.
fn fill_up(fs: &Filesystem, name: &str) -> Result<u64> {
    let file = fs.create(name)?;
    let piece = vec![7; 1 << 16];
    let mut at = 0;
    loop {
        match file.write_at(&piece, at) {
            Ok(written) => at += written as u64,
            Err(Error::NoSpace) => return Ok(at),
            Err(error) => return Err(error.into()),
        }
    }
}

#[test]
fn it_grows_in_one_mount_and_stays_sound() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (mib, args, sizes) in VOLUMES {
        let _limit = Watchdog::new(Duration::from_secs(120));
        let what = format!("{mib} MiB {args}");
        println!("{what}");
        let image = Image::of_mib(*mib).args(args).make()?;
        fill(&image, &mut Rng::new(*mib), 60)?;
        let before = content_of(&image)?;
        let fs = mounted(&image)?;
        for size in *sizes {
            let old = fs.statfs()?;
            fs.grow(size * MIB)?;
            let new = fs.statfs()?;
            ensure!(
                new.blocks >= old.blocks,
                "{what} to {size}: {old:?}, {new:?}"
            );
            let missing = size * MIB - fs.volume().size();
            ensure!(
                missing < 10 * MIB,
                "{what} to {size}: {missing} bytes are missing"
            );
        }
        fs.unmount()?;
        image.fsck_clean()?;
        same(&content_of(&image)?, &before)?;
        let findings = extant_check::check_image(image.path(), &resize_kit::options().check)?;
        ensure!(findings.is_clean(), "{what}: {findings:?}");
        // The next mount uses all of it.
        let fs = mounted(&image)?;
        let dirs = fs.statfs()?.inodes_free.min(600);
        for number in 0..dirs {
            fs.create_dir(format!("/new{number}"))?;
        }
        fs.unmount()?;
        image.fsck_clean()?;
    }
    Ok(())
}

#[test]
fn a_full_volume_has_room_at_once() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(20).args("-b 1024 -m 0").make()?;
    let fs = mounted(&image)?;
    let first = fill_up(&fs, "/first")?;
    fs.grow(30 * MIB)?;
    let second = fill_up(&fs, "/second")?;
    ensure!(second > 8 * MIB, "{first} bytes first, {second} then");
    fs.grow(200 * MIB)?;
    let third = fill_up(&fs, "/third")?;
    ensure!(third > 150 * MIB, "{third} bytes");
    let used = fs.statfs()?;
    fs.unmount()?;
    image.fsck_clean()?;
    let len = std::fs::metadata(image.path())?.len();
    ensure!(len == 200 * MIB, "the file has {len} bytes");
    let fs = mounted(&image)?;
    let again = fs.statfs()?;
    ensure!(
        (used.blocks, used.inodes, used.inodes_free)
            == (again.blocks, again.inodes, again.inodes_free),
        "{used:?} grown, {again:?} mounted anew"
    );
    Ok(())
}

/// As in resize2fs, all that `dumpe2fs -h` says of it but the times and what was written.
#[test]
fn the_superblock_is_resize2fs_s() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("resize2fs"), Need::Tool("dumpe2fs")]) {
        return Ok(());
    }
    for (mib, args, to) in [(16, "", 300), (64, "-b 1024", 200), (24, "-t ext3", 90)] {
        let image = Image::of_mib(mib).args(args).make()?;
        let other = image.copy()?;
        let file = std::fs::File::options().write(true).open(other.path())?;
        file.set_len(to * MIB)?;
        Cmd::new("resize2fs").arg(other.path()).ok()?;
        let fs = mounted(&image)?;
        fs.grow(to * MIB)?;
        fs.unmount()?;
        image.fsck_clean()?;
        for field in [
            "Block count",
            "Inode count",
            "Reserved block count",
            "Reserved GDT blocks",
            "Free inodes",
            "Filesystem state",
            "Filesystem features",
        ] {
            let (ours, theirs) = (image.header(field)?, other.header(field)?);
            ensure!(
                ours == theirs,
                "{mib} MiB {args}: {field}: {ours}, resize2fs has {theirs}"
            );
        }
    }
    Ok(())
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (mib, args, to, why) in [
        (20, "", 19 * MIB, "smaller"),
        (20, "-b 1024 -O sparse_super2", 40 * MIB, "sparse_super2"),
        (
            20,
            "-b 1024 -O ^resize_inode",
            400 * MIB,
            "reserved for descriptors",
        ),
        (
            20,
            "-b 1024 -E resize=40000",
            400_000 * MIB,
            "reserved for descriptors",
        ),
        (20, "-b 4096 -O ^resize_inode,64bit", 1 << 60, ""),
        (
            20,
            "-b 1024 -J size=1 -E resize=33554432",
            60 * MIB,
            "journal is too small",
        ),
    ] {
        let image = Image::of_mib(mib).args(args).make()?;
        let fs = mounted(&image)?;
        let (size, stat) = (fs.volume().size(), fs.statfs()?);
        let text = match fs.grow(to) {
            Err(Error::NotSupported(text)) => text,
            other => extant_testkit::bail!("{mib} MiB {args} to {to}: {other:?}"),
        };
        ensure!(text.contains(why), "{args}: {text}");
        ensure!(fs.volume().size() == size, "{args}: it has grown");
        ensure!(fs.statfs()?.blocks == stat.blocks, "{args}: it has grown");
        fs.unmount()?;
        image.fsck_clean()?;
        ensure!(
            std::fs::metadata(image.path())?.len() == mib * MIB,
            "{args}"
        );
    }
    let image = Image::of_mib(20).make()?;
    let fs = Options::new().open(image.path())?;
    ensure!(
        matches!(fs.grow(40 * MIB), Err(Error::ReadOnly)),
        "of a read-only mount"
    );
    Ok(())
}

#[test]
fn a_repeated_grow_mends_copies_that_an_earlier_one_left_old() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(20).args("-b 1024").make()?;
    // Group 1 begins with a copy.
    let at = 8193 << 10;
    let copy = || -> Result<Vec<u8>> { Ok(std::fs::read(image.path())?[at..at + 1024].to_vec()) };
    let old = copy()?;
    let fs = mounted(&image)?;
    fs.grow(60 * MIB)?;
    fs.unmount()?;
    let grown = copy()?;
    ensure!(grown != old, "the copy has the old size");
    std::fs::File::options()
        .write(true)
        .open(image.path())?
        .write_all_at(&old, at as u64)?;
    let fs = mounted(&image)?;
    fs.grow(60 * MIB)?;
    fs.unmount()?;
    let blocks = |copy: &[u8]| copy[4..8].to_vec();
    ensure!(
        blocks(&copy()?) == blocks(&grown),
        "the copy keeps the old size"
    );
    image.fsck_clean()
}

/// Writers, makers and removers of files while the volume grows, mostly by a group at a time.
#[test]
fn writers_go_on_while_it_grows() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let _limit = Watchdog::new(Duration::from_secs(240));
    for args in [
        "-b 1024 -g 1024 -G 4 -N 900 -J size=4",
        "-b 1024 -O ^has_journal -g 2048 -N 900",
    ] {
        let image = Image::of_mib(12).args(args).make()?;
        let fs = Arc::new(mounted(&image)?);
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| -> Result<()> {
            let workers: Vec<_> = (0..4)
                .map(|worker| {
                    let (fs, ended) = (&fs, &ended);
                    scope.spawn(move || work(fs, worker, ended))
                })
                .collect();
            let stop = Stop::at_end(&ended);
            for mib in 13..60 {
                fs.grow(mib * MIB + 300_000)?;
            }
            drop(stop);
            for worker in workers {
                worker.join().unwrap()?;
            }
            Ok(())
        })?;
        let fs = Arc::into_inner(fs).unwrap();
        for worker in 0..4 {
            ensure!(
                fs.exists(format!("/w{worker}"))?,
                "worker {worker} did nothing"
            );
        }
        fs.unmount()?;
        image.fsck_clean()?;
        let report = extant_check::check_image(image.path(), &resize_kit::options().check)?;
        ensure!(report.is_clean(), "{args}: {report:?}");
    }
    Ok(())
}

fn work(fs: &Filesystem, worker: u64, ended: &AtomicBool) -> Result<()> {
    let mut rng = Rng::new(worker);
    let dir = format!("/w{worker}");
    fs.create_dir(&dir)?;
    let mut made = 0;
    while !ended.load(Ordering::Relaxed) {
        let path = format!("{dir}/{}", rng.below(60));
        let result = match rng.below(4) {
            0 => fs.remove_file(&path),
            1 => fs.sync(),
            _ => {
                made += 1;
                fs.write(&path, vec![made; rng.index(200_000)])
            }
        };
        match result {
            Ok(()) | Err(Error::NoSpace | Error::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        made %= 250;
    }
    Ok(())
}
