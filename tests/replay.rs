//! Logs that Linux wrote: an image copied while Linux has it mounted is one. Extant replays it, and
//! finds every file that Linux acknowledged.

use extant_testkit::storm::{Storm, check_noise};
use extant_testkit::tree::Compare;
use extant_testkit::{
    Cmd, Context, Error, Image, Need, Result, Subject, Tree, content, ensure, need, report,
};
use std::fs::{self, File};
use std::sync::atomic::Ordering;
use std::time::Duration;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")];

/// Images and mount options whose logs differ.
const CASES: &[(&str, &str)] = &[
    ("-b 4096 -J size=8", ""),
    ("-b 1024 -J size=1", ""),
    ("-b 1024 -J size=2 -O ^metadata_csum,^64bit", ""),
    ("-b 2048 -J size=4 -O ^metadata_csum", "journal_checksum"),
    ("-b 4096 -J size=8 -O ^orphan_file", ""),
    ("-b 1024 -J size=4", "data=journal"),
    (
        "-b 4096 -I 128 -J size=8 -O ^metadata_csum,uninit_bg",
        "journal_async_commit,data=writeback",
    ),
];

#[test]
fn images_copied_while_linux_has_them_mounted() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let mut dirty = 0;
    let mut whole = 0;
    for (round, (args, options)) in CASES.iter().enumerate() {
        let (d, w) = copied(round as u64, args, options)
            .context(|| format!("{args}, mounted with {options:?}"))?;
        dirty += d;
        whole += w;
    }
    report(&format!(
        "{dirty} logs of a mounted Linux replayed, {whole} fsynced files whole"
    ));
    ensure!(
        dirty >= CASES.len(),
        "only {dirty} images had anything to replay"
    );
    Ok(())
}

fn copied(round: u64, args: &str, options: &str) -> Result<(usize, usize)> {
    let image = Image::of_mib(64).args(args).junk().make()?;
    // Its timer must not commit while the image is being copied.
    let linux = Subject::Ext4.mount(image.path(), &format!("commit=300,{options}"))?;
    let mut totals = (0, 0);
    for pass in 0..2u64 {
        let storm = Storm::default();
        std::thread::scope(|s| {
            let raging = s.spawn(|| storm.rage(linux.dir(), 3, round * 10 + pass));
            std::thread::sleep(Duration::from_millis(400));
            storm.stop.store(true, Ordering::SeqCst);
            raging.join().map_err(|_| Error::new("storm panicked"))?
        })?;
        // Orphans: unlinked, still open.
        let open: Vec<File> = (0..5u64)
            .map(|i| {
                let path = linux.join(format!("orphan{i}"));
                fs::write(&path, content::fill(i, 0, 50_000))?;
                let f = File::open(&path)?;
                fs::remove_file(&path)?;
                Ok(f)
            })
            .collect::<Result<_>>()?;
        // Commits everything and leaves the log as it is.
        File::open(linux.dir())?.sync_all()?;
        let copy = image.copy()?;
        drop(open);
        let reference = copy.copy()?;
        totals.0 += usize::from(copy.needs_recovery()?);

        let mount = Subject::under_test().mount(copy.path(), "")?;
        totals.1 += storm.ledger.check(mount.dir())?;
        if !options.contains("writeback") {
            check_noise(mount.dir())?;
        }
        mount.unmount()?;
        copy.fsck_clean().context(|| "after replay by Extant")?;

        // The same log replayed by e2fsck must come to the same tree.
        reference.fsck_replay()?;
        let show = |image: &Image| -> Result<Tree> {
            let m = Subject::Ext4.mount(image.path(), "ro")?;
            Tree::take(m.dir())
        };
        show(&copy)?.expect_equal(&show(&reference)?, Compare::default())?;
        // What one pass leaves must not fill the image for the next.
        for e in fs::read_dir(linux.dir())? {
            let path = e?.path();
            if path
                .file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with('t'))
            {
                fs::remove_dir_all(path)?;
            }
        }
    }
    linux.unmount()?;
    Ok(totals)
}

/// Logs that debugfs writes: the older checksums, 32-bit tags, revokes, an uncommitted end.
#[test]
fn logs_written_by_debugfs() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (version, features) in [
        ("", "^metadata_csum"),
        ("-c -v 2", "^metadata_csum"),
        ("-c -v 3", "^metadata_csum"),
        ("-c -v 2", "^metadata_csum,^64bit"),
        ("-c -v 3", "metadata_csum"),
    ] {
        for mib in [1, 4] {
            let args = format!("-b 1024 -O {features} -J size={mib}");
            debugfs_log(version, &args)
                .context(|| format!("{args}, log opened with {version:?}"))?;
        }
    }
    Ok(())
}

fn debugfs_log(version: &str, args: &str) -> Result<()> {
    // The blocks of a file that is there already are what the log overwrites.
    let image = Image::of_mib(32).args(args).make()?;
    let old = content::fill(1, 0, 40 * 1024);
    let work = extant_testkit::TempDir::new("log")?;
    fs::write(work.join("old"), &old)?;
    image.debugfs_write(&format!("write {} file", work.join("old").display()))?;
    let first: u64 = image.debugfs("bmap /file 0")?.trim().parse()?;
    let last: u64 = image.debugfs("bmap /file 39")?.trim().parse()?;
    ensure!(last == first + 39, "the file is not contiguous");

    // The first block of the new content looks like a journal block and must be escaped.
    let mut new = content::fill(2, 0, 40 * 1024);
    for (to, from) in new.iter_mut().zip([0xc0, 0x3b, 0x39, 0x98]) {
        *to = from;
    }
    fs::write(work.join("new"), &new)?;
    fs::write(work.join("lost"), content::fill(3, 0, 40 * 1024))?;
    let (second, third, fourth) = (first + 9, first + 10, first + 19);
    // debugfs 1.47.0 writes revoke blocks whose checksum e2fsck itself calls corrupt.
    let revoked = version.is_empty();
    let revoke = if revoked {
        format!("jw -r {third}-{fourth}\n")
    } else {
        String::new()
    };
    let script = format!(
        "jo {version}\n\
         jw -b {first}-{second} {new}\n\
         jw -b {third}-{fourth} {new}\n{revoke}\
         jw -b {first}-{second} -c {lost}\n\
         jc\n",
        new = work.join("new").display(),
        lost = work.join("lost").display(),
    );
    Cmd::new("debugfs")
        .args(["-w", "-f", "-"])
        .arg(image.path())
        .stdin(script)
        .ok()?;
    ensure!(image.needs_recovery()?, "debugfs left no log");

    let reference = image.copy()?;
    reference.fsck_replay()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    let got = fs::read(mount.join("file"))?;
    mount.unmount()?;
    image.fsck_clean()?;
    // Written, written and revoked, never in the log: by hand, so that e2fsck's opinion is not all.
    let replayed = if revoked { 10 * 1024 } else { 20 * 1024 };
    let mut want = old;
    want.splice(..10 * 1024, new.iter().take(10 * 1024).copied());
    want.splice(
        10 * 1024..replayed,
        new.iter().take(replayed - 10 * 1024).copied(),
    );
    ensure!(
        got == want,
        "wrong content from byte {:?}",
        got.iter().zip(&want).position(|(a, b)| a != b)
    );
    let by_e2fsck = reference.bytes(first * 1024, 40 * 1024)?;
    ensure!(by_e2fsck == want, "e2fsck sees it differently");
    Ok(())
}
