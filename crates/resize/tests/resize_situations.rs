//! Resizes by name: what is refused and why, what moves, and the choices that resize2fs makes too.

mod resize_kit;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_resize::{Error, Target, resize};
use extant_testkit::{
    Cmd, Context, Fault, FaultyDevice, Image, Need, Request, RequestKind, Result, Rng, bail,
    ensure, need,
};
use extant_units::DevOff;
use resize_kit::{NEEDS, content_of, fill, options, resized, run};

const MIB: u64 = 1 << 20;

/// Fields of `dumpe2fs -h` that resize2fs and Extant choose alike.
const FIELDS: &[&str] = &[
    "Block count:",
    "Inode count:",
    "Reserved block count:",
    "Reserved GDT blocks:",
    "First block:",
    "Block size:",
    "Blocks per group:",
    "Inodes per group:",
    "Free inodes:",
    "Filesystem state:",
    "Filesystem features:",
    "First meta block group:",
    "Journal inode:",
    "Total journal blocks:",
];

/// An image of `args`, of which `first_meta_bg=NUMBER` is for the environment of mke2fs.
fn made(mib: u64, args: &str) -> Result<Image> {
    let (first, args) = match args.strip_prefix("first_meta_bg=") {
        Some(rest) => rest.split_once(' ').unwrap_or((rest, "")),
        None => ("0", args),
    };
    let image = Image::of_mib(mib).args(args).make()?;
    if first != "0" {
        let mke2fs = Cmd::new("mke2fs").env("MKE2FS_FIRST_META_BG", first);
        let mke2fs = mke2fs.args(["-q", "-F", "-t", "ext4"]);
        mke2fs
            .args(args.split_whitespace())
            .arg(image.path())
            .ok()?;
    }
    Ok(image)
}

fn header(image: &Image) -> Result<Vec<String>> {
    let text = Cmd::new("dumpe2fs").arg("-h").arg(image.path()).ok()?.out;
    let line = |field: &&str| text.lines().find(|line| line.starts_with(*field));
    Ok(FIELDS.iter().filter_map(line).map(str::to_owned).collect())
}

/// Without checksums a repair believes neither of two superblocks that say different things.
#[test]
fn a_copy_that_is_of_no_other_size_is_not_written() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16)
        .args("-b 1024 -O ^metadata_csum,^uninit_bg,^64bit")
        .make()?;
    let file = std::fs::File::options().write(true).open(image.path())?;
    const UUID: u64 = 0x68;
    std::os::unix::fs::FileExt::write_all_at(&file, &[0x77], SUPERBLOCK_OFFSET + UUID)?;
    drop(file);
    let before = std::fs::read(image.path())?;
    run(&image, Target::Bytes(16 * MIB)).context(|| "same size")?;
    ensure!(std::fs::read(image.path())? == before, "the image changed");
    Ok(())
}

#[test]
fn the_geometry_is_resize2fs_s() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("resize2fs"), Need::Tool("dumpe2fs")]) {
        return Ok(());
    }
    for (mib, args, to) in [
        (16, "", 16 * MIB + 4096 * 3),
        (16, "", 300 * MIB),
        (64, "-b 1024", 200 * MIB),
        (64, "-b 1024", 40 * MIB),
        (300, "", 140 * MIB),
        (40, "-b 2048 -O ^64bit", 130 * MIB + 777_777),
        (24, "-t ext3", 90 * MIB),
        (24, "-b 1024 -O ^resize_inode", 91 * MIB),
        (8, "-b 1024 -E resize=40000 -O ^64bit", 1200 * MIB),
        (24, "-b 8192 -J size=8", 700 * MIB),
        (
            16,
            "-b 1024 -g 256 -N 900 -O meta_bg,^resize_inode",
            40 * MIB,
        ),
        (
            40,
            "-b 1024 -g 256 -N 900 -O meta_bg,^resize_inode,^64bit",
            30 * MIB,
        ),
        (60, "-b 16384 -g 1024 -O ^has_journal", 20 * MIB),
        (150, "-b 65536 -g 512", 400 * MIB),
        (150, "-b 65536", 9000 * MIB),
        // Behind a table: all of it is needed, some, and less than all.
        (
            16,
            "first_meta_bg=3 -b 1024 -g 256 -O meta_bg,^resize_inode",
            30 * MIB,
        ),
        (
            16,
            "first_meta_bg=3 -b 1024 -g 256 -O meta_bg,^resize_inode",
            13 * MIB,
        ),
        (
            16,
            "first_meta_bg=3 -b 1024 -g 256 -O meta_bg,^resize_inode",
            7 * MIB,
        ),
    ] {
        let what = || format!("{mib} MiB {args} to {to}");
        let image = made(mib, args)?;
        fill(&image, &mut Rng::new(mib), 20)?;
        let other = image.copy()?;
        Cmd::new("e2fsck").arg("-fy").arg(other.path()).run()?;
        let size = format!("{}K", to / 1024);
        let file = std::fs::File::options().write(true).open(other.path())?;
        if to > mib * MIB {
            file.set_len(to)?;
        }
        Cmd::new("resize2fs")
            .arg(other.path())
            .arg(&size)
            .ok()
            .context(what)?;
        resized(&image, Target::Bytes(to / 1024 * 1024)).context(what)?;
        let (ours, theirs) = (header(&image)?, header(&other)?);
        ensure!(
            ours == theirs,
            "{}: {ours:#?}\nresize2fs: {theirs:#?}",
            what()
        );
    }
    Ok(())
}

#[test]
fn refusals_name_their_reason_and_change_nothing() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (args, target, says) in [
        ("-O mmp", Target::Bytes(32 * MIB), "tune2fs -O ^mmp"),
        ("", Target::Bytes(0), "too small"),
        ("", Target::Bytes(100_000), "too small"),
        ("-O ^64bit,^resize_inode", Target::Bytes(1 << 45), "64bit"),
        ("", Target::Bytes(u64::MAX), "numbers"),
    ] {
        let image = Image::of_mib(16).args(args).make()?;
        let before = image.fingerprint()?;
        match run(&image, target) {
            Ok(report) => bail!("{args}, {target:?}: {report:?}"),
            Err(error) => {
                let told = error.to_string();
                ensure!(told.contains(says), "{args}, {target:?}: {told}");
            }
        }
        ensure!(
            image.fingerprint()? == before,
            "{args}, {target:?}: written"
        );
    }
    Ok(())
}

/// Attributes would keep the old numbers.
#[test]
fn values_of_attributes_behind_the_cut_are_refused() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let args = "-b 1024 -g 1024 -N 768 -O ea_inode";
    for (made, kept_from, is_moved) in [(20, 0, false), (200, 150, true)] {
        let image = Image::of_mib(24).args(args).make()?;
        {
            let fs = extant::Options::new().write(true).open(image.path())?;
            for file in 0..made {
                let name = format!("/file{file}");
                let value = format!("{file}").repeat(1000);
                let file = fs.create(name)?;
                file.set_xattr("user.value", value.as_bytes(), extant::XattrMode::Create)?;
            }
            // Those in the first groups.
            for file in 0..kept_from {
                fs.remove_file(format!("/file{file}"))?;
            }
            fs.unmount()?;
        }
        match run(&image, Target::Bytes(8 * MIB)) {
            Ok(report) => ensure!(!is_moved, "{report:?}"),
            Err(error) => {
                let told = error.to_string();
                ensure!(is_moved && told.contains("ea_inode"), "{made}: {told}");
            }
        }
        // Free blocks may be others.
        image.fsck_clean()?;
        let fs = extant::Options::new().open(image.path())?;
        for file in kept_from..made {
            let value = fs.open_file(format!("/file{file}"))?.xattr("user.value")?;
            let expected = format!("{file}").repeat(1000);
            ensure!(value == expected.as_bytes(), "file{file}");
        }
    }
    Ok(())
}

/// The sectors of a link count a value that is elsewhere, and its target stays in the inode. The
/// check judges, by the resize: e2fsck 1.47 takes such a target for pointers, one by Linux as well.
#[test]
fn links_with_long_values_keep_their_targets() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).args("-b 1024 -O ea_inode").make()?;
    {
        let fs = extant::Options::new().write(true).open(image.path())?;
        fs.symlink("some/where", "/link")?;
        let volume = fs.volume();
        let node = volume.lookup(&volume.root()?, b"link")?;
        let mode = extant::XattrMode::Create;
        volume.setxattr(&node, b"trusted.x", &[7; 5000], mode, &extant::Cred::root())?;
        drop(node);
        fs.unmount()?;
    }
    for mib in [40, 12] {
        run(&image, Target::Bytes(mib * MIB))?;
        let fs = extant::Options::new().open(image.path())?;
        ensure!(
            fs.read_link("/link")?.as_os_str() == "some/where",
            "{mib} MiB"
        );
    }
    Ok(())
}

#[test]
fn below_the_least_size_the_least_is_told() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(64).args("-b 1024 -N 500").make()?;
    fill(&image, &mut Rng::new(5), 40)?;
    let Err(Error::TooSmall { least }) = run(&image, Target::Bytes(8 * MIB)) else {
        bail!("8 MiB are not refused");
    };
    ensure!(least > 8 * MIB && least < 64 * MIB, "{least}");
    let report = resized(&image, Target::Bytes(least))?;
    ensure!(report.bytes() == least, "{least} and {report:?}");
    let again = resized(&image, Target::Least)?;
    ensure!(again.bytes() <= least, "{again:?}");
    // And back.
    resized(&image, Target::Bytes(64 * MIB))?;
    Ok(())
}

#[test]
fn inodes_behind_the_cut_get_other_numbers() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for args in [
        "-b 1024 -g 1024 -N 1024",
        "-b 1024 -g 1024 -N 1024 -O ^metadata_csum,uninit_bg",
        "-b 1024 -g 1024 -N 1024 -O metadata_csum,^extents,^64bit",
    ] {
        let image = Image::of_mib(24).args(args).make()?;
        {
            let fs = extant::Options::new().write(true).open(image.path())?;
            // Directories spread over the groups; one of them has an index.
            for dir in 0..40 {
                fs.create_dir(format!("/dir{dir}"))?;
                fs.create_dir(format!("/dir{dir}/below"))?;
                for file in 0..8 {
                    // Long names make an index, whose root leads to both directories above.
                    let long = "n".repeat(if dir < 30 { 1 } else { 200 });
                    let name = format!("/dir{dir}/below/{long}{file}");
                    fs.write(name, format!("{dir} {file}"))?;
                }
                // More extents than an inode holds: a node, whose checksum has the inode's number.
                let file = fs.create(format!("/dir{dir}/below/pieces"))?;
                for piece in 0..6 {
                    file.write_at(b"piece", piece * 2048)?;
                }
            }
            for file in 0..70 {
                let name = format!("/dir39/a_rather_long_name_to_fill_more_blocks_of_it_{file}");
                fs.write(name, "x")?;
            }
            for dir in 0..30 {
                fs.remove_dir_all(format!("/dir{dir}"))?;
            }
            fs.unmount()?;
        }
        let report = resized(&image, Target::Least).context(|| args)?;
        ensure!(report.inodes_moved > 10, "{args}: {report:?}");
    }
    Ok(())
}

#[test]
fn a_journal_that_waits_is_replayed_first() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("debugfs")]) {
        return Ok(());
    }
    let image = Image::of_mib(16).args("-b 1024 -N 200").make()?;
    fill(&image, &mut Rng::new(1), 30)?;
    let block = image.path().with_extension("block");
    std::fs::write(&block, image.bytes(1024, 1024)?)?;
    let script = image.path().with_extension("script");
    std::fs::write(&script, format!("jo -c\njw -b 1 {}\njc\n", block.display()))?;
    Cmd::new("debugfs")
        .args(["-w", "-f"])
        .arg(&script)
        .arg(image.path())
        .ok()?;
    ensure!(image.needs_recovery()?, "the journal is empty");
    resized(&image, Target::Bytes(40 * MIB))?;
    Ok(())
}

#[test]
fn a_journal_that_is_too_long_to_move_is_refused() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    // It lies in the middle, behind the cut.
    let image = Image::of_mib(4096).args("-J size=513").make()?;
    let before = image.header("Block count")?;
    let refused = run(&image, Target::Bytes(1024 * MIB));
    let Err(error) = refused else {
        bail!("{refused:?}");
    };
    let told = error.to_string();
    ensure!(told.contains("more than the 131072 blocks"), "{told}");
    ensure!(image.header("Block count")? == before, "it was resized");
    image.fsck_clean()?;
    // Where it need not move, its length does not matter.
    let report = run(&image, Target::Bytes(3584 * MIB))?;
    ensure!(report.bytes() == 3584 * MIB, "{report:?}");
    image.fsck_clean()
}

/// The blocks that the superblock of `dev` counts.
fn blocks(dev: &dyn BlockDevice) -> Result<u64> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    dev.read_at(DevOff::new(SUPERBLOCK_OFFSET), &mut bytes)?;
    Ok(Superblock::parse(&bytes)?.blocks_count().get())
}

#[test]
fn a_round_that_fails_tells_what_the_earlier_ones_did() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let args = "-b 1024 -g 2048 -N 400 -U 6c0de000-0000-4000-8000-000000000001 \
                -E hash_seed=6c0de000-0000-4000-8000-000000000002";
    let image = Image::of_mib(16).args(args).make()?;
    fill(&image, &mut Rng::new(16), 40)?;
    let bytes = std::fs::read(image.path())?;
    // Writes from the one of this number on fail. Returns the outcome, where the volume ends then,
    // and how many writes there were.
    let run = |first: u64| {
        let done = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&done);
        let plan = move |request: Request<'_>| match request.kind {
            RequestKind::Write if count.fetch_add(1, Ordering::Relaxed) >= first => {
                Fault::Fail(std::io::ErrorKind::Other)
            }
            _ => Fault::Pass,
        };
        let dev = Arc::new(FaultyDevice::new(MemoryDevice::from_bytes(&bytes), plan));
        let outcome = resize(Arc::clone(&dev) as _, Target::Least, &options());
        blocks(dev.inner()).map(|blocks| (outcome, blocks, done.load(Ordering::Relaxed)))
    };
    let (_, _, writes) = run(u64::MAX)?;
    let mut told = 0;
    // The first round has most of the writes.
    for first in writes * 3 / 4..writes {
        let (Err(Error::After { report, error }), stands, _) = run(first)? else {
            continue;
        };
        ensure!(report.blocks < report.blocks_before, "{report:?}");
        // A round that had begun may have stored its own size; a repair ends it.
        let has_begun = matches!(*error, Error::Begun(_)) && stands < report.blocks;
        ensure!(
            has_begun || stands == report.blocks,
            "{stands}: {report:?}, {error}"
        );
        told += 1;
    }
    ensure!(told > 0, "no later round failed in {writes} writes");
    Ok(())
}

/// The block of attributes of each of `files`, by debugfs.
fn attributes_of(image: &Image, files: &[String]) -> Result<Vec<u64>> {
    let block = |file: &String| {
        let stat = format!("stat {file}");
        let text = Cmd::new("debugfs")
            .args(["-R", &stat])
            .arg(image.path())
            .ok()?
            .out;
        let told = text.split("File ACL: ").nth(1).unwrap_or_default();
        let number = told.split_whitespace().next().unwrap_or_default();
        Ok(number.parse()?)
    };
    files.iter().map(block).collect()
}

/// A block of attributes moves once, however many files share it, and only if it has to.
#[test]
fn files_share_their_attributes_after_a_move() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("debugfs")]) {
        return Ok(());
    }
    // No room for attributes in an inode.
    let image = Image::of_mib(16)
        .args("-b 1024 -I 128 -O ^has_journal")
        .make()?;
    let fs = extant::Options::new().write(true).open(image.path())?;
    let files: Vec<String> = (0..6).map(|number| format!("/file{number}")).collect();
    let put = |files: &[String], byte: u8| {
        files.iter().try_for_each(|file| {
            fs.write(file, "")?;
            fs.set_xattr(file, "user.name", &[byte; 600])
        })
    };
    // In the second group, and then in the first.
    put(&files[..4], b'a')?;
    fs.write("/filler", vec![1; 12 << 20])?;
    fs.sync()?;
    put(&files[4..], b'b')?;
    fs.remove_file("/filler")?;
    fs.unmount()?;
    let before = attributes_of(&image, &files)?;
    let report = resized(&image, Target::Bytes(8 * MIB))?;
    let after = attributes_of(&image, &files)?;
    let shown = format!("{before:?}, {after:?}, {report:?}");
    ensure!(
        before[0] >= report.blocks && after[0] < report.blocks,
        "{shown}"
    );
    ensure!(
        before[4] < report.blocks && after[4..] == before[4..],
        "{shown}"
    );
    ensure!(after[..4] == [after[0]; 4], "{shown}");
    ensure!(report.blocks_moved == 1, "{shown}");
    Ok(())
}

#[test]
fn files_that_were_deleted_while_open_go_first() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for args in ["-b 1024 -N 200", "-b 1024 -N 200 -O orphan_file"] {
        let image = Image::of_mib(16).args(args).make()?;
        fill(&image, &mut Rng::new(3), 30)?;
        let fs = extant::Options::new().write(true).open(image.path())?;
        let file = fs.create("/open")?;
        file.write_at(&[1; 100_000], 0)?;
        fs.remove_file("/open")?;
        fs.sync()?;
        // As a power cut leaves it.
        let cut = image.copy()?;
        drop(file);
        fs.unmount()?;
        let checked = extant_check::check_image(cut.path(), &options().check)?;
        ensure!(checked.orphans == 1, "{args}: {checked:?}");
        resized(&cut, Target::Bytes(40 * MIB)).context(|| args)?;
    }
    Ok(())
}

/// A mount without a journal leaves orphans as they are, and so does one that finds errors on
/// record. Others end them.
#[test]
fn orphans_that_a_mount_leaves_are_refused() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("debugfs")]) {
        return Ok(());
    }
    for (args, state, says) in [
        (
            "-O ^has_journal",
            1,
            "deleted files or a journal still wait",
        ),
        ("", 2, "marked as having errors"),
        ("", 1, ""),
    ] {
        let image = Image::of_mib(16).args(args).make()?;
        let fs = extant::Options::new().write(true).open(image.path())?;
        fs.write("/gone", [1; 100_000])?;
        let ino = fs.metadata("/gone")?.ino();
        fs.unmount()?;
        image.debugfs_write("unlink /gone")?;
        image.debugfs_write(&format!("sif <{ino}> links_count 0"))?;
        image.debugfs_write(&format!("ssv last_orphan {ino}"))?;
        image.debugfs_write(&format!("ssv state {state}"))?;
        let checked = extant_check::check_image(image.path(), &options().check)?;
        ensure!(checked.orphans == 1 && checked.is_clean(), "{checked:?}");
        let before = image.fingerprint()?;
        if says.is_empty() {
            run(&image, Target::Bytes(40 * MIB))?;
            image.fsck_clean()?;
            continue;
        }
        match run(&image, Target::Bytes(40 * MIB)) {
            Ok(report) => bail!("{args}: {report:?}"),
            Err(error) => ensure!(error.to_string().contains(says), "{args}: {error}"),
        }
        ensure!(image.fingerprint()? == before, "{args}: written");
    }
    Ok(())
}

#[test]
fn damage_is_refused() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("debugfs")]) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    image.debugfs_write("write /dev/null f")?;
    image.debugfs_write("sif f links_count 7")?;
    let before = image.fingerprint()?;
    let refused = run(&image, Target::Bytes(40 * MIB));
    ensure!(
        matches!(refused, Err(Error::NotClean { .. })),
        "{refused:?}"
    );
    ensure!(image.fingerprint()? == before, "written");
    Ok(())
}

#[test]
fn a_journal_too_small_for_the_change_is_lent_more_blocks() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    // Nearly every block in use changes: maps of many files, in tables that stay.
    let args = "-b 1024 -g 8192 -N 3000 -J size=1";
    let image = Image::of_mib(64).args(args).make()?;
    {
        let fs = extant::Options::new().write(true).open(image.path())?;
        for dir in 0..25 {
            fs.create_dir(format!("/{dir}"))?;
            for file in 0..90 {
                fs.write(format!("/{dir}/{file}"), vec![1; 9000])?;
            }
        }
        fs.unmount()?;
    }
    let journal = image
        .header("Total journal blocks")
        .or_else(|_| image.header("Total journal size"))?;
    let before = content_of(&image)?;
    // Past the reserve of descriptors, so that what lies behind them moves.
    let report = resized(&image, Target::Least)?;
    let after = image
        .header("Total journal blocks")
        .or_else(|_| image.header("Total journal size"))?;
    ensure!(journal == after, "{journal}, then {after}: {report:?}");
    ensure!(content_of(&image)? == before, "the content has changed");
    Ok(())
}
