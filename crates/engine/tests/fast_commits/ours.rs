//! Fast commits that a mount of ours left: its own replay of a copy and Linux's come to the tree
//! that the mount showed, and so does e2fsck's as far as that goes.
//!
//! e2fsck 1.47 reads inodes as they were before it replays the transactions of the same log, and
//! leaves an inode without its last name unattached. It does so with Linux's logs as well.

use extant_engine::{Cred, FallocateMode, RenameFlags, Volume, VolumeOptions};
use extant_testkit::mount::Subject;
use extant_testkit::tree::{Compare, Tree};
use extant_testkit::{Cmd, Context, Image, Need, Result, ensure, need, report};

use crate::kit::{ALIKE, fast_commits, judge, told, tree_of};
use crate::storm::Storm;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Loop,
    Need::Fuse,
    Need::Tool("mke2fs"),
    Need::Tool("e2fsck"),
    Need::Tool("fallocate"),
    Need::Tool("setfattr"),
];

/// Kinds of volumes.
const CASES: &[&str] = &[
    "-b 4096",
    "-b 1024 -O ^metadata_csum,^64bit",
    "-b 1024 -I 128 -O ^orphan_file",
    "-b 2048 -O ^flex_bg,uninit_bg,^metadata_csum",
];

/// Our replay and Linux's of `copy` come to the tree `live`.
pub(crate) fn expect_replays(copy: &Image, live: &Tree) -> Result<()> {
    expect_replays_as(copy, live, ALIKE)
}

fn expect_replays_as(copy: &Image, live: &Tree, how: Compare) -> Result<()> {
    judge(copy, live, how).context(|| "our replay")?;
    let mounted = copy.copy()?;
    let tree = tree_of(&mounted, "")?;
    tree.expect_equal(live, how).context(|| "Linux's replay")?;
    mounted.fsck_clean().context(|| "after Linux's replay")
}

/// A storm on one kind of volume. Returns the number of copies and of fast commits in them.
fn storm(args: &str, seed: u64, only_fast: bool) -> Result<(usize, usize)> {
    let image = crate::volume(args)?;
    let mount = Subject::Extant.mount(image.path(), "commit=300")?;
    let mut storm = Storm::begin(mount.dir(), seed, only_fast)?;
    // A sync of the whole does not get through to a mount over FUSE.
    crate::storm::sync(&mount.dir().join("mark"))?;
    let mut seen = (0, 0);
    // A fallocate is timed by the kernel and by the mount.
    let in_seconds = args.contains("-I 128");
    let how = Compare {
        times_within: if in_seconds { 1_000_000_000 } else { 0 },
        ..ALIKE
    };
    for round in 0..4 {
        for _ in 0..12 {
            storm.step()?;
        }
        let copy = image.copy()?;
        let live = Tree::take(mount.dir())?;
        let commits = fast_commits(&copy)?;
        seen = (seen.0 + 1, seen.1 + commits);
        expect_replays_as(&copy, &live, how)
            .context(|| format!("round {round}, {commits} fast commits"))?;
        if round == 1 {
            storm.commit()?;
        }
    }
    drop(storm);
    mount.unmount()?;
    image.fsck_clean()?;
    Ok(seen)
}

#[test]
fn storms_of_ours_are_replayed_by_all() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let mut seen = (0, 0);
    let only = crate::number("EXTANT_SEED");
    for (seed, args) in (1..).zip(CASES.iter().chain(CASES)) {
        if only.is_some_and(|only| only != seed) {
            continue;
        }
        let only_fast = seed % 2 == 0;
        let (copies, commits) = storm(args, seed, only_fast)
            .context(|| format!("{args}, seed {seed}, only fast: {only_fast}"))?;
        seen = (seen.0 + copies, seen.1 + commits);
    }
    report(&format!(
        "{} logs with {} fast commits replayed by all",
        seen.0, seen.1
    ));
    ensure!(seen.1 > seen.0 * 2, "few of the changes were fast commits");
    Ok(())
}

/// Small changes on top of a log whose transactions are home, none of which takes a last name. With
/// checksums: without, e2fsck finds marks in the groups that it sets itself.
#[test]
fn e2fsck_replays_what_it_can() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for args in ["-b 4096", "-b 1024 -I 128 -O ^orphan_file"] {
        let image = crate::volume(args)?;
        let mount = Subject::Extant.mount(image.path(), "commit=300")?;
        std::fs::create_dir(mount.dir().join("dir"))?;
        for name in ["old", "grows"] {
            std::fs::write(mount.dir().join("dir").join(name), [7; 20_000])?;
        }
        mount.unmount()?;
        let mount = Subject::Extant.mount(image.path(), "commit=300")?;
        let path = |name: &str| mount.dir().join("dir").join(name);
        let mut small = 0;
        for round in 0..6_usize {
            let name = format!("new{round}");
            std::fs::write(path(&name), vec![1; round * 3000])?;
            crate::storm::sync(&path(&name))?;
            std::fs::hard_link(path("old"), path(&format!("link{round}")))?;
            small += round * 500;
            crate::storm::write_at(&path("grows"), 20_000 + small as u64, &[3; 700])?;
            crate::storm::sync(&path("grows"))?;
        }
        let copy = image.copy()?;
        let live = Tree::take(mount.dir())?;
        let commits = fast_commits(&copy)?;
        ensure!(commits == 12, "{args}: {commits} fast commits");
        mount.unmount()?;
        copy.fsck_replay().context(|| args.to_string())?;
        copy.fsck_clean().context(|| args.to_string())?;
        let tree = tree_of(&copy, "ro,noload")?;
        tree.expect_equal(&live, ALIKE)
            .context(|| args.to_string())?;
    }
    Ok(())
}

/// A fast commit, then a commit of the whole: what is left of the first in the area keeps no replay
/// from the second.
#[test]
fn the_whole_that_follows_a_fast_commit_is_replayed_by_all() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for args in ["-b 4096", "-b 1024"] {
        let image = crate::volume(args)?;
        let mount = Subject::Extant.mount(image.path(), "commit=300")?;
        let path = |name: &str| mount.dir().join(name);
        for round in 0..3 {
            let (fast, dir) = (format!("fast{round}"), format!("dir{round}"));
            std::fs::write(path(&fast), [1; 5000])?;
            crate::storm::sync(&path(&fast))?;
            ensure!(fast_commits(&image.copy()?)? > 0, "{args}: none is fast");
            std::fs::create_dir(path(&dir))?;
            std::fs::write(path(&dir).join("file"), [2; 5000])?;
            crate::storm::sync(&path(&dir).join("file"))?;
            let copy = image.copy()?;
            let live = Tree::take(mount.dir())?;
            expect_replays(&copy, &live).context(|| args.to_string())?;
            copy.fsck_replay().context(|| args.to_string())?;
            copy.fsck_clean().context(|| args.to_string())?;
            let tree = tree_of(&copy, "ro,noload")?;
            tree.expect_equal(&live, ALIKE)
                .context(|| args.to_string())?;
        }
        mount.unmount()?;
    }
    Ok(())
}

/// Without its head nothing of a first fast commit of several blocks is read, and no replay refuses
/// the log.
#[test]
fn a_torn_first_fast_commit_is_none() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = crate::volume("-b 1024")?;
    let mount = Subject::Extant.mount(image.path(), "commit=300")?;
    let dir = mount.dir().join("dir");
    std::fs::create_dir(&dir)?;
    std::fs::write(dir.join("file"), [2; 5000])?;
    crate::storm::sync(&dir.join("file"))?;
    let before = Tree::take(mount.dir())?;
    for number in 0..60 {
        std::fs::write(dir.join(format!("many{number}")), [3; 100])?;
    }
    crate::storm::sync(&dir.join("many7"))?;
    let copy = image.copy()?;
    mount.unmount()?;
    ensure!(fast_commits(&copy)? == 1, "one fast commit");
    let log = crate::kit::Log::of(&copy, &crate::kit::device(&copy)?)?;
    let file = std::fs::OpenOptions::new().write(true).open(copy.path())?;
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 1024], log.area[0].get())?;
    expect_replays(&copy, &before)?;
    copy.fsck_replay()?;
    copy.fsck_clean()
}

/// A small log, and a file with blocks in many groups that loses its last name while it is open: a
/// replay would have to free all of it in one transaction.
#[test]
fn no_replay_has_to_free_more_than_a_log_takes() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let args = "-b 1024 -g 256 -O fast_commit,^resize_inode -J size=1,fast_commit_size=16";
    let image = Image::of_mib(400).args(args).make()?;
    let mount = Subject::Extant.mount(image.path(), "commit=300")?;
    let (large, small) = (mount.dir().join("large"), mount.dir().join("small"));
    let file = std::fs::File::create(&large)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 340 << 20)?;
    file.sync_all()?;
    std::fs::remove_file(&large)?;
    std::fs::write(&small, [1; 100])?;
    crate::storm::sync(&small)?;
    let copy = image.copy()?;
    let live = Tree::take(mount.dir())?;
    drop(file);
    mount.unmount()?;
    let again = copy.copy()?;
    let mounted = Subject::Extant.mount(again.path(), "")?;
    Tree::take(mounted.dir())?.expect_equal(&live, ALIKE)?;
    mounted.unmount()?;
    again.fsck_clean()
}

/// Linux leaves the attributes of a file that it deletes in its record. They are not those of the
/// file that gets its number, after any replay.
#[test]
fn attributes_of_a_deleted_file_do_not_come_back() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = crate::volume("-b 4096")?;
    let linux = Subject::Ext4.mount(image.path(), "")?;
    for number in 0..20 {
        let path = linux.dir().join(format!("old{number}"));
        std::fs::write(&path, b"x")?;
        let value = Cmd::new("setfattr").args(["-n", "user.secret", "-v", "old"]);
        value.arg(&path).ok()?;
    }
    for number in 0..20 {
        std::fs::remove_file(linux.dir().join(format!("old{number}")))?;
    }
    linux.unmount()?;
    let mount = Subject::Extant.mount(image.path(), "commit=300")?;
    for number in 0..20 {
        let path = mount.dir().join(format!("new{number}"));
        std::fs::write(&path, b"y")?;
        crate::storm::sync(&path)?;
    }
    let copy = image.copy()?;
    let live = Tree::take(mount.dir())?;
    mount.unmount()?;
    expect_replays(&copy, &live)
}

/// Linux's replay counts what the map of a file takes, and not its block of attributes.
#[test]
fn blocks_of_attributes_are_counted_after_any_replay() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = crate::volume("-b 1024")?;
    let mount = Subject::Extant.mount(image.path(), "commit=300")?;
    let path = |name: &str| mount.dir().join(name);
    for name in ["written", "linked"] {
        std::fs::write(path(name), [1; 3000])?;
        let value = "v".repeat(700);
        let set = Cmd::new("setfattr").args(["-n", "user.large", "-v", &value]);
        set.arg(path(name)).ok()?;
        crate::storm::sync(&path(name))?;
    }
    std::fs::write(path("plain"), [1; 3000])?;
    let expect = |step: &str, fast: bool| {
        let copy = image.copy()?;
        expect_replays(&copy, &Tree::take(mount.dir())?).context(|| step.to_string())?;
        ensure!(
            (fast_commits(&copy)? > 0) == fast,
            "{step}: fast: {}",
            !fast
        );
        Ok(())
    };
    crate::storm::write_at(&path("plain"), 3000, &[2; 3000])?;
    crate::storm::sync(&path("plain"))?;
    expect("a file without", true)?;
    crate::storm::write_at(&path("written"), 3000, &[2; 3000])?;
    crate::storm::sync(&path("written"))?;
    expect("a range", false)?;
    std::fs::hard_link(path("linked"), path("link"))?;
    crate::storm::sync(&path("linked"))?;
    expect("a name", false)?;
    mount.unmount()?;
    Ok(())
}

/// Maps of several levels, whose nodes a replay counts.
#[test]
fn nodes_of_maps_are_counted_after_any_replay() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = crate::volume("-b 1024")?;
    let mount = Subject::Extant.mount(image.path(), "commit=300")?;
    let path = mount.dir().join("deep");
    std::fs::write(&path, [])?;
    crate::storm::sync(&path)?;
    let (mut all, mut fast) = (0, 0);
    for extents in [3, 60, 60, 60, 60, 60, 60] {
        let from = all;
        all += extents;
        for at in from..all {
            crate::storm::write_at(&path, at * 2048, &[7; 1024])?;
        }
        crate::storm::sync(&path)?;
        let copy = image.copy()?;
        fast += usize::from(fast_commits(&copy)? > 0);
        expect_replays(&copy, &Tree::take(mount.dir())?).context(|| format!("{all} extents"))?;
    }
    // A timer may commit one or the other as a whole.
    ensure!(fast > 3, "only {fast} were fast");
    mount.unmount()?;
    Ok(())
}

/// A volume on `image` for one thread, that commits when it is told to.
fn open(image: &Image) -> Result<Volume> {
    let mut options = VolumeOptions::new();
    let options = options.write(true).mount_options("commit=300");
    options.open(image.path()).map_err(told)
}

/// A file that lost its last name before the fast commits, and whose blocks are in more groups than
/// the log has blocks: the replay leaves it to the mount, which frees it step by step.
#[test]
fn an_orphan_larger_than_the_log_keeps_no_volume_from_its_mount() -> Result<()> {
    if !need(&[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return Ok(());
    }
    for orphans in ["orphan_file", "^orphan_file"] {
        let args = format!(
            "-b 1024 -g 256 -N 2048 -O fast_commit,meta_bg,^resize_inode,{orphans} \
             -J size=1,fast_commit_size=32"
        );
        let image = Image::of_mib(320).args(&args).make()?;
        let volume = open(&image)?;
        let (root, cred) = (volume.root().map_err(told)?, Cred::root());
        let create = |name: &[u8]| volume.create(&root, name, 0o644, &cred).map_err(told);
        let large = create(b"large")?;
        let free = volume.statfs().map_err(told)?.blocks_free;
        let mode = FallocateMode::Allocate { keep_size: false };
        let allocated = volume.fallocate(&large, mode, 0, 290 << 20, &cred);
        allocated.map_err(told)?;
        volume.unlink(&root, b"large").map_err(told)?;
        volume.sync().map_err(told)?;
        volume.fsync(&create(b"small")?, false).map_err(told)?;
        volume.shutdown(false).map_err(told)?;
        drop((root, large, volume));
        ensure!(fast_commits(&image)? == 1, "{orphans}: none is fast");

        let volume = open(&image)?;
        let root = volume.root().map_err(told)?;
        volume.lookup(&root, b"small").map_err(told)?;
        let left = volume.statfs().map_err(told)?.blocks_free;
        ensure!(left == free, "{orphans}: {left} blocks are free of {free}");
        drop(root);
        volume.unmount().map_err(told)?;
        image.fsck_clean().context(|| orphans.to_string())?;
    }
    Ok(())
}

/// A rename is told as one more link and one less: of a file that has all links that it may have,
/// too.
#[test]
fn the_rename_of_a_file_with_the_most_links_is_replayed() -> Result<()> {
    if !need(&[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return Ok(());
    }
    let image = crate::volume("-b 4096")?;
    let volume = open(&image)?;
    let (root, cred) = (volume.root().map_err(told)?, Cred::root());
    let file = volume.create(&root, b"0", 0o644, &cred).map_err(told)?;
    for number in 1..65_000 {
        let name = number.to_string();
        let linked = volume.link(&file, &root, name.as_bytes(), &cred);
        linked.map_err(told)?;
    }
    volume.sync().map_err(told)?;
    let renamed = volume.rename(&root, b"7", &root, b"new", RenameFlags::empty(), &cred);
    renamed.map_err(told)?;
    volume.fsync(&file, false).map_err(told)?;
    volume.shutdown(false).map_err(told)?;
    drop((root, file, volume));
    ensure!(fast_commits(&image)? == 1, "none is fast");

    let volume = open(&image)?;
    let root = volume.root().map_err(told)?;
    let file = volume.lookup(&root, b"new").map_err(told)?;
    let links = volume.getattr(&file).map_err(told)?.nlink;
    ensure!(links == 65_000, "{links} links");
    ensure!(volume.lookup(&root, b"7").is_err(), "the old name is there");
    drop((root, file));
    volume.unmount().map_err(told)?;
    image.fsck_clean()
}
