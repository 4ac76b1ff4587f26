//! Logs of ours as other readers take them, where these look at more than the fast commits.

use extant_testkit::mount::Subject;
use extant_testkit::tree::Tree;
use extant_testkit::{Cmd, Context, Image, Need, Result, ensure, need};

use crate::kit::{ALIKE, fast_commits, tree_of};
use crate::ours::expect_replays;
use crate::storm::{sync, write_at};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Loop,
    Need::Fuse,
    Need::Tool("mke2fs"),
    Need::Tool("e2fsck"),
    Need::Tool("setfattr"),
];

/// e2fsck's replay of a copy comes to the tree `live`.
fn expect_e2fsck(copy: &Image, live: &Tree) -> Result<()> {
    copy.fsck_replay()?;
    copy.fsck_clean()?;
    tree_of(copy, "ro,noload")?.expect_equal(live, ALIKE)
}

/// Transactions in a small log, to its end and on from its beginning. Beside an area for fast
/// commits e2fsck would read on into the area.
#[test]
fn a_log_that_begins_anew_is_read_by_all() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let args = "-b 1024 -O fast_commit -J size=1,fast_commit_size=64";
    let image = Image::of_mib(24).args(args).make()?;
    let mount = Subject::Extant.mount(image.path(), "commit=300")?;
    for round in 0..120 {
        let dir = mount.dir().join(format!("dir{round}"));
        std::fs::create_dir(&dir)?;
        std::fs::write(dir.join("file"), [2; 5000])?;
        sync(&dir.join("file"))?;
        if round % 5 != 0 {
            continue;
        }
        let copy = image.copy()?;
        let live = Tree::take(mount.dir())?;
        expect_e2fsck(&copy, &live).context(|| format!("round {round}"))?;
    }
    mount.unmount()?;
    Ok(())
}

/// Fast commits up to the end of the area.
#[test]
fn a_full_area_is_read_by_all() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let args = "-b 1024 -O fast_commit -J size=2,fast_commit_size=12";
    let image = Image::of_mib(16).args(args).make()?;
    let mount = Subject::Extant.mount(image.path(), "commit=300")?;
    let path = mount.dir().join("file");
    std::fs::write(&path, b"")?;
    let mut most = 0;
    for round in 0..14 {
        write_at(&path, round * 100, &[3; 100])?;
        sync(&path)?;
        let copy = image.copy()?;
        most = most.max(fast_commits(&copy)?);
        let live = Tree::take(mount.dir())?;
        expect_replays(&copy, &live).context(|| format!("round {round}"))?;
        expect_e2fsck(&copy, &live).context(|| format!("round {round}, e2fsck"))?;
    }
    mount.unmount()?;
    ensure!(most > 8, "{most} fast commits at most");
    Ok(())
}

/// A table of inodes that mkfs left as it was: a replay finds another volume's records there.
#[test]
fn an_older_volume_lends_nothing_to_new_files() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let args = ["-q", "-F", "-b", "1024", "-N", "512", "-O"];
    let lazy = "nodiscard,lazy_itable_init=1,lazy_journal_init=1";
    let made = |image: &Image, features: &str| {
        let mke2fs = Cmd::new("mke2fs").args(args).args([features, "-E", lazy]);
        mke2fs.args(["-t", "ext4"]).arg(image.path()).ok()
    };
    let image = Image::of_mib(24).empty()?;
    made(&image, "fast_commit")?;
    let linux = Subject::Ext4.mount(image.path(), "")?;
    for number in 0..100 {
        let path = linux.dir().join(format!("old{number}"));
        std::fs::write(&path, vec![number; 9000])?;
        let set = Cmd::new("setfattr").args(["-n", "user.old", "-v", "secret"]);
        set.arg(&path).ok()?;
    }
    linux.unmount()?;
    made(&image, "fast_commit")?;
    let mount = Subject::Extant.mount(image.path(), "commit=300")?;
    for number in 0..24 {
        let path = mount.dir().join(format!("new{number}"));
        std::fs::write(&path, [4; 3000])?;
        sync(&path)?;
        let copy = image.copy()?;
        let live = Tree::take(mount.dir())?;
        expect_replays(&copy, &live).context(|| format!("file {number}"))?;
    }
    mount.unmount()?;
    Ok(())
}

/// A crash leaves fast commits, and the next mount writes none: its transactions are read.
#[test]
fn a_mount_without_fast_commits_gives_up_the_area() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = crate::volume("-b 1024")?;
    let mount = Subject::Extant.mount(image.path(), "commit=300")?;
    std::fs::write(mount.dir().join("fast"), [1; 5000])?;
    sync(&mount.dir().join("fast"))?;
    let copy = image.copy()?;
    mount.unmount()?;
    ensure!(fast_commits(&copy)? > 0, "none is fast");
    let mount = Subject::Extant.mount(copy.path(), "data=journal,commit=300")?;
    std::fs::create_dir(mount.dir().join("dir"))?;
    std::fs::write(mount.dir().join("dir/file"), [2; 5000])?;
    sync(&mount.dir().join("dir/file"))?;
    let again = copy.copy()?;
    let live = Tree::take(mount.dir())?;
    mount.unmount()?;
    expect_e2fsck(&again, &live)
}
