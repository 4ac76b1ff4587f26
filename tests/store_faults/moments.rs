//! Faults of a moment: requests are repeated, and everything ends as without them.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use extant_store_proxy::{RequestLine, StoreFault};
use extant_testkit::{Context, Need, Result, TempDir, ensure, need};

use crate::line::{FILES, Line, PATIENCE, STORED, Volume, file, text};

const FAULTS: [StoreFault; 9] = [
    StoreFault::Delay(Duration::from_millis(100)),
    StoreFault::ResetBefore,
    StoreFault::LostAnswer,
    StoreFault::Status(500),
    StoreFault::Status(502),
    StoreFault::Busy(1),
    StoreFault::Torn,
    StoreFault::Trickle(8, Duration::from_millis(20)),
    StoreFault::None,
];

/// Every fourth request meets this fault.
fn every_fourth(fault: StoreFault) -> impl Fn(&RequestLine) -> StoreFault {
    move |line| match line.number % 4 {
        1 => fault,
        _ => StoreFault::None,
    }
}

#[test]
fn pushes_pulls_and_lists_go_on() -> Result<()> {
    let Some(line) = Line::start()? else {
        return Ok(());
    };
    let volume = Volume::new()?;
    for (nth, fault) in FAULTS.into_iter().enumerate() {
        volume.change(nth as u64)?;
        line.proxy.set_plan(every_fourth(fault));
        let round = || -> Result<()> {
            line.ok(&["push", "-q", &volume.image(), STORED])?;
            ensure!(line.pulled(None)? == volume.content()?, "another image");
            ensure!(line.versions()? == nth + 1, "{}", line.versions()?);
            Ok(())
        };
        round().context(|| format!("{fault:?}"))?;
        let met = line.proxy.take_traffic().faults;
        ensure!((met > 5) == (fault != StoreFault::None), "{fault:?}: {met}");
    }
    Ok(())
}

/// The connection of the request that makes a version ends before it is carried out, or after.
#[test]
fn a_version_is_made_once() -> Result<()> {
    let Some(line) = Line::start()? else {
        return Ok(());
    };
    let volume = Volume::new()?;
    for (nth, fault) in [
        StoreFault::LostAnswer,
        StoreFault::ResetBefore,
        StoreFault::Status(500),
    ]
    .into_iter()
    .enumerate()
    {
        volume.change(nth as u64)?;
        let met = AtomicU64::new(0);
        line.proxy.set_plan(move |line| {
            let is_first = line.is("PUT", "/names/") && met.fetch_add(1, Ordering::SeqCst) == 0;
            if is_first { fault } else { StoreFault::None }
        });
        let said = line.ok(&["push", "--json", &volume.image(), STORED]);
        let said = said.context(|| format!("{fault:?}"))?;
        let said: serde_json::Value = serde_json::from_str(&said)?;
        ensure!(said["version"] == nth + 1, "{fault:?}: {said}");
        ensure!(
            line.proxy.take_traffic().faults == 1,
            "{fault:?} was not met"
        );
        ensure!(
            line.versions()? == nth + 1,
            "{fault:?}: {}",
            line.versions()?
        );
        ensure!(line.pulled(None)? == volume.content()?, "{fault:?}");
    }
    Ok(())
}

/// Nothing comes of some requests: they are repeated when nothing has come for 30 seconds.
#[test]
fn a_server_that_falls_silent_is_asked_again() -> Result<()> {
    let Some(line) = Line::start()? else {
        return Ok(());
    };
    if !line.is_real() {
        eprintln!("silence takes half a minute: it is for the soak");
        return Ok(());
    }
    let volume = Volume::new()?;
    line.ok(&["push", "-q", &volume.image(), STORED])?;
    let met = AtomicU64::new(0);
    line.proxy.set_plan(move |line| {
        let is_first = line.is("GET", "/chunks/") && met.fetch_add(1, Ordering::SeqCst) == 2;
        if is_first {
            StoreFault::NoAnswer
        } else {
            StoreFault::None
        }
    });
    let copy = line.folder.join("copy.img");
    let pull = line.extant(&["pull", "-q", STORED, &text(&copy)])?;
    pull.limit(PATIENCE).ok()?;
    ensure!(fs::read(&copy)? == volume.content()?, "another image");
    ensure!(line.proxy.take_traffic().faults == 1, "no silence");
    Ok(())
}

/// A mount that ends with the test.
struct StoredMount<'a>(&'a Line, TempDir);

impl Drop for StoredMount<'_> {
    fn drop(&mut self) {
        let _ = self.0.run(&["umount", &text(self.1.path())]);
    }
}

#[test]
fn a_mount_reads_on_and_an_altered_chunk_fails_its_reads_alone() -> Result<()> {
    if !need(&[Need::Fuse]) {
        return Ok(());
    }
    let Some(line) = Line::start()? else {
        return Ok(());
    };
    let volume = Volume::new()?;
    line.ok(&["push", "-q", &volume.image(), STORED])?;
    for fault in FAULTS {
        line.proxy.set_plan(every_fourth(fault));
        let mount = StoredMount(&line, TempDir::new("mnt")?);
        line.ok(&["mount", "-o", "nosandbox", STORED, &text(mount.1.path())])?;
        for number in 0..FILES {
            let read = fs::read(mount.1.join(format!("tree/f{number}")));
            let read = read.context(|| format!("{fault:?}, f{number}"))?;
            ensure!(read == file(number), "{fault:?}: f{number} is another");
        }
    }
    line.proxy.set_plan(|_| StoreFault::None);
    let mount = StoredMount(&line, TempDir::new("mnt")?);
    line.ok(&["mount", "-o", "nosandbox", STORED, &text(mount.1.path())])?;
    line.proxy
        .set_plan(|line| match line.is("GET", "/chunks/") {
            true => StoreFault::Altered,
            false => StoreFault::None,
        });
    let altered = fs::read(mount.1.join("tree/f3"));
    ensure!(altered.is_err(), "an altered chunk is read");
    line.proxy.set_plan(|_| StoreFault::None);
    for number in 0..FILES {
        let read = fs::read(mount.1.join(format!("tree/f{number}")))?;
        ensure!(read == file(number), "f{number} is another afterwards");
    }
    Ok(())
}

/// The folder of the cache is on a disk that is full: reads are right, and fetch again.
#[test]
fn a_full_disk_below_the_cache_costs_fetches_alone() -> Result<()> {
    if !need(&[Need::Root, Need::Tool("unshare")]) {
        return Ok(());
    }
    let Some(line) = Line::start()? else {
        return Ok(());
    };
    let volume = Volume::new()?;
    line.ok(&["push", "-q", &volume.image(), STORED])?;
    let extant = text(&extant_testkit::tools::extant()?);
    let cache = line.folder.join("cache");
    fs::create_dir(&cache)?;
    let from = format!("{STORED}:/tree");
    const SCRIPT: &str = "set -e; mount -t tmpfs -o size=700k,mode=700 none \"$1\"
        for time in 1 2; do \"$2\" cp -r \"$3\" \"$4$time\"; done; df --output=avail \"$1\"";
    let to = text(&line.folder.join("to"));
    let args = ["-c", SCRIPT, "sh", &text(&cache), &extant, &from, &to];
    line.proxy.take_traffic();
    // The environment is that of the command, in a program that sets the disk up.
    let shell = line.within("unshare", &[&["--mount", "sh"][..], &args].concat())?;
    let said = shell.env("EXTANT_CACHE", &cache).ok()?.out;
    for number in 0..FILES {
        for time in 1..=2 {
            let read = fs::read(line.folder.join(format!("to{time}/f{number}")))?;
            ensure!(read == file(number), "f{number}, read {time}: {said}");
        }
    }
    let fetched = line.proxy.take_traffic().requests_by("GET");
    ensure!(
        fetched > 20,
        "{fetched} fetched: the disk was not full: {said}"
    );
    Ok(())
}
