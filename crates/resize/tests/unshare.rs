//! Files that share blocks get their own: as e2fsck does it, whole or not at all, and for Linux to
//! write.

mod resize_kit;

use std::collections::BTreeSet;
use std::sync::Arc;

use extant_check::check_image;
use extant_disk::features::RoCompat;
use extant_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_resize::{Error, Target, Unshared, resize_image, unshare, unshare_image};
use extant_testkit::crash::{Budget, CrashState, Explorer, Totals};
use extant_testkit::{
    Cmd, Context, Image, Need, Recorder, Result, Subject, TempDir, bail, ensure, need, report,
};
use extant_units::DevOff;
use resize_kit::cuts::{by_e2fsck, is_sound, mounted, text, told};
use resize_kit::{content, content_of, options, same};

const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];

/// Kinds of volumes: MiB and arguments of mke2fs.
const KINDS: &[(u64, &str)] = &[
    (16, "-b 1024 -N 200"),
    (
        16,
        "-b 1024 -N 200 -O ^extent,^64bit,^metadata_csum -g 2048",
    ),
    (24, "-b 4096 -N 200 -O ^has_journal -g 1024"),
    (24, "-b 1024 -N 400 -O quota,project,^flex_bg,inline_data"),
    (64, "-b 16384 -N 200"),
];

/// Blocks of each file with content that others have too.
const LEN: u64 = 60;

/// Bytes that differ from block to block.
fn bytes_of(seed: u8, blocks: u64, block: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..blocks {
        // Zeros would be holes.
        let of_block = seed.wrapping_add(number.to_le_bytes()[0]).max(1);
        bytes.resize(bytes.len() + extant_units::index(block), of_block);
    }
    bytes
}

/// A volume whose files share blocks: whole, in part, one with itself, and one with the single
/// blocks of many.
fn shared(mib: u64, args: &str) -> Result<Image> {
    let block = args.split_whitespace().nth(1).unwrap_or_default().parse()?;
    let tree = TempDir::new("tree")?;
    let write = |name: &str, bytes: &[u8]| std::fs::write(tree.join(name), bytes);
    for number in 0..12 {
        write(
            &format!("0single{number:02}"),
            &bytes_of(90 + number, 1, block),
        )?;
    }
    std::fs::create_dir(tree.join("sub"))?;
    for name in ["a", "b", "c", "sub/d", "twice"] {
        write(name, &bytes_of(1, LEN, block))?;
    }
    // Its blocks become those of the others.
    write("gone", &bytes_of(170, 2 * LEN, block))?;
    let image = Image::of_mib(mib).args(args).args("-d");
    let image = image.args(&tree.path().display().to_string()).make()?;
    let first = |name: &str| -> Result<u64> {
        Ok(image.debugfs(&format!("bmap {name} 0"))?.trim().parse()?)
    };
    let (run, extents) = (first("/gone")?, !args.contains("^extent"));
    let mut requests = String::from("feature shared_blocks\nrm /gone\n");
    let mut put = |name: &str, slot: u64, value: u64| {
        requests += &format!("sif {name} block[{slot}] {value}\n");
    };
    for (name, at) in [("/a", 0), ("/b", 0), ("/c", LEN / 2), ("/sub/d", LEN)] {
        match extents {
            true => put(name, 5, run + at),
            false => (0..12).for_each(|slot| put(name, slot, run + at / 5 + slot)),
        }
    }
    // Both halves of a file are the same blocks.
    match extents {
        true => {
            let half = LEN / 2;
            let root = [0x2_f30a, 4, 0, 0, half, run, half, half, run];
            (0..)
                .zip(root)
                .for_each(|(slot, word)| put("/twice", slot, word));
        }
        false => (0..12).for_each(|slot| put("/twice", slot, run + slot / 2)),
    }
    for number in 0..12 {
        let slot = if extents { 5 } else { 0 };
        put(&format!("/0single{number:02}"), slot, run + 3 + 4 * number);
    }
    let commands = tree.join("requests");
    std::fs::write(&commands, requests)?;
    let debugfs = Cmd::new("debugfs").args(["-w", "-f"]).arg(&commands);
    debugfs.arg(image.path()).ok()?;
    // The bitmaps still have what is no file's any more.
    image.fsck_repair()?;
    image.fsck_clean()?;
    let checked = check_image(image.path(), &options().check)?;
    ensure!(checked.is_clean(), "{:?}", checked.findings);
    Ok(image)
}

fn has_feature(image: &Image) -> Result<bool> {
    let bytes = image.bytes(SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE)?;
    let Some(bytes) = bytes.first_chunk::<SUPERBLOCK_SIZE>() else {
        bail!("no superblock");
    };
    Ok(Superblock::parse(bytes)?
        .features()
        .has_ro_compat(RoCompat::SHARED_BLOCKS))
}

fn free_blocks(image: &Image) -> Result<u64> {
    Ok(image.header("Free blocks")?.parse()?)
}

#[test]
fn each_file_gets_its_own_blocks_as_by_e2fsck() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (mib, args) in KINDS {
        let image = shared(*mib, args)?;
        let (right, before) = (content_of(&image)?, image.fingerprint()?);
        let by_linux = image.copy()?;
        let counted = unshare_image(image.path(), true, &options())?;
        ensure!(
            image.fingerprint()? == before,
            "{args}: a dry run has written"
        );
        let done = unshare_image(image.path(), false, &options()).context(|| (*args).to_owned())?;
        ensure!(
            done == counted && done.files > 3,
            "{args}: {done:?}, {counted:?}"
        );
        ensure!(!has_feature(&image)?, "{args}: the feature is still there");
        image.fsck_clean()?;
        same(&content_of(&image)?, &right)?;
        let checked = check_image(image.path(), &options().check)?;
        ensure!(checked.is_clean(), "{args}: {:?}", checked.findings);
        let again = unshare_image(image.path(), false, &options())?;
        ensure!(again == Unshared::default(), "{args}: {again:?}");

        let e2fsck = Cmd::new("e2fsck").args(["-fy", "-E", "unshare_blocks"]);
        e2fsck.arg(by_linux.path()).run()?;
        by_linux.fsck_clean()?;
        ensure!(!has_feature(&by_linux)?, "{args}: e2fsck left the feature");
        same(&content_of(&by_linux)?, &right)?;
        // Maps may differ by some nodes.
        let (ours, theirs) = (free_blocks(&image)?, free_blocks(&by_linux)?);
        ensure!(
            ours.abs_diff(theirs) <= 3,
            "{args}: {ours} free, {theirs} by e2fsck"
        );
    }
    Ok(())
}

/// Linux mounts it to be read before, and to be written after.
#[test]
fn linux_writes_what_shares_no_more() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Root, Need::Loop]) {
        return Ok(());
    }
    for (mib, args) in &KINDS[..3] {
        let image = shared(*mib, args)?;
        ensure!(
            Subject::Ext4.mount(image.path(), "").is_err(),
            "{args}: Linux writes shared blocks"
        );
        let reads = |options| -> Result<Vec<Vec<u8>>> {
            let mount = Subject::Ext4.mount(image.path(), options)?;
            let names = ["a", "b", "c", "sub/d", "twice", "0single07"];
            let all = names.map(|name| std::fs::read(mount.join(name)));
            let all: std::io::Result<Vec<_>> = all.into_iter().collect();
            mount.unmount()?;
            Ok(all?)
        };
        let right = reads("ro")?;
        unshare_image(image.path(), false, &options())?;
        ensure!(reads("")? == right, "{args}: other bytes");
        let mount = Subject::Ext4.mount(image.path(), "")?;
        std::fs::write(mount.join("b"), b"changed")?;
        mount.unmount()?;
        image.fsck_clean()?;
        ensure!(
            reads("ro")?[2..] == right[2..],
            "{args}: another file has changed"
        );
    }
    Ok(())
}

/// Without the feature the same blocks are damage.
#[test]
fn shared_blocks_are_damage_without_the_feature() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (mib, args) = KINDS[0];
    let image = shared(mib, args)?;
    image.debugfs_write("feature -shared_blocks")?;
    let checked = check_image(image.path(), &options().check)?;
    ensure!(!checked.is_clean(), "nothing found");
    ensure!(image.fsck_clean().is_err(), "e2fsck finds nothing");
    ensure!(
        unshare_image(image.path(), false, &options())? == Unshared::default(),
        "a volume without the feature was changed"
    );
    Ok(())
}

#[test]
fn without_room_nothing_is_changed() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (mib, args) in &KINDS[..3] {
        let image = shared(*mib, args)?;
        let counted = unshare_image(image.path(), true, &options())?;
        // A file takes all but some blocks, so that one is missing.
        let room = (free_blocks(&image)? - counted.blocks / 2) * image.block_size()?;
        let tree = TempDir::new("big")?;
        std::fs::write(tree.join("big"), vec![7; extant_units::index(room)])?;
        image.debugfs_write(&format!("write {} big", tree.join("big").display()))?;
        image.fsck_repair()?;
        let (before, free) = (image.fingerprint()?, free_blocks(&image)?);
        ensure!(free < counted.blocks, "{args}: {free} blocks are free");
        for dry_run in [true, false] {
            match unshare_image(image.path(), dry_run, &options()) {
                Err(Error::Crowded { needed, free: told }) => {
                    ensure!(
                        (needed, told) == (counted.blocks, free),
                        "{args}: {needed}, {told}"
                    );
                }
                other => bail!("{args}: {other:?}"),
            }
            ensure!(image.fingerprint()? == before, "{args}: written");
        }
        image.fsck_clean()?;
    }
    Ok(())
}

/// Blocks that have a user beside files are damage, and nothing is done about them.
#[test]
fn what_is_not_shared_by_files_alone_is_refused() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (mib, args) = KINDS[0];
    for victim in ["sub", "<8>"] {
        let image = shared(mib, args)?;
        let block = image.debugfs(&format!("bmap {victim} 0"))?;
        image.debugfs_write(&format!("sif /0single03 block[5] {}", block.trim()))?;
        let before = image.fingerprint()?;
        let refused = unshare_image(image.path(), false, &options());
        ensure!(
            matches!(refused, Err(Error::NotClean { .. })),
            "{victim}: {refused:?}"
        );
        ensure!(image.fingerprint()? == before, "{victim}: written");
    }
    Ok(())
}

/// Another size is refused: blocks that several files have would have to move.
#[test]
fn shared_blocks_are_not_resized() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (mib, args) = KINDS[0];
    let image = shared(mib, args)?;
    let before = image.fingerprint()?;
    for target in [
        Target::Bytes(40 << 20),
        Target::Bytes(12 << 20),
        Target::Least,
    ] {
        let refused = resize_image(image.path(), target, &options());
        let told = refused
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        ensure!(told.contains("shared_blocks"), "{target:?}: {told}");
        ensure!(image.fingerprint()? == before, "{target:?}: written");
    }
    Ok(())
}

/// Cuts the power while the files of one volume get their own blocks.
fn explore((mib, args): (u64, &str), budget: Budget) -> Result<Totals> {
    let before = std::fs::read(shared(mib, args)?.path())?;
    let device = extant_blockdev::MemoryDevice::from_bytes(&before);
    let recorder = Arc::new(Recorder::new(device));
    let right = content(Arc::clone(&recorder) as _)?;
    unshare(Arc::clone(&recorder) as _, &options())?;
    Image::of_bytes(&recorder.inner().to_bytes())?.fsck_clean()?;
    let (mut seen, mut ends) = (0_u64, BTreeSet::new());
    let judge = |state: CrashState| -> std::result::Result<(), String> {
        seen += 1;
        if !state.cut.tears() {
            is_sound(&state)?;
            if seen % 12 == 1 {
                by_e2fsck(&state, before.len()).map_err(text)?;
            }
        }
        let fs = mounted(Arc::clone(&state.device) as _).map_err(text)?;
        fs.unmount().map_err(text)?;
        is_sound(&state).map_err(|what| format!("after a mount: {what}"))?;
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let device: &dyn extant_blockdev::BlockDevice = &*state.device;
        let at = DevOff::new(SUPERBLOCK_OFFSET);
        device.read_at(at, &mut bytes).map_err(text)?;
        let features = Superblock::parse(&bytes).map_err(text)?.features();
        ends.insert(features.has_ro_compat(RoCompat::SHARED_BLOCKS));
        match content(Arc::clone(&state.device) as _).map_err(text)? == right {
            true => Ok(()),
            false => Err(String::from("the content has changed")),
        }
    };
    let explorer = Explorer::new(before.clone(), recorder.events(), 1, budget);
    let totals = explorer.run(judge).map_err(|failure| told(args, failure))?;
    ensure!(ends.len() == 2, "{args}: {ends:?}");
    Ok(totals)
}

#[test]
fn a_cut_leaves_all_shared_or_nothing() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let budget = match std::env::var("EXTANT_CUT_BUDGET").as_deref() {
        Ok("long") => Budget::LONG,
        _ => Budget {
            samples: 1,
            cut_stride: 40,
            ..Budget::SHORT
        },
    };
    let mut all = Totals::default();
    for kind in &KINDS[..2] {
        all += explore(*kind, budget)?;
    }
    report(&format!("unshared with power cuts: {all}"));
    Ok(())
}
