//! A measurement that a signal ends leaves no mount, no loop device and no file behind.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use extant_testkit::{Cmd, Need, Result, TempDir, ensure, need, patience};
use rustix::process::{Pid, Signal, kill_process};

/// The mounts and the loop devices that have to do with files below `dir`.
fn in_use(dir: &Path) -> Result<(usize, usize)> {
    let dir = dir.display().to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let mounts = mounts.lines().filter(|line| line.contains(&dir)).count();
    let devices = fs::read_dir("/sys/block")?.flatten();
    let files = devices.map(|device| fs::read_to_string(device.path().join("loop/backing_file")));
    let loops = files.filter(|file| file.as_ref().is_ok_and(|file| file.starts_with(&dir)));
    Ok((mounts, loops.count()))
}

/// Waits until `is_so`.
fn wait(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + patience(Duration::from_secs(120));
    while !is_so()? {
        ensure!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The mount of Extant, its daemon, the mount of Linux and the loop device below it.
#[test]
fn a_signal_leaves_nothing_of_a_measurement() -> Result<()> {
    let needs = [Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")];
    if !need(&needs) {
        return Ok(());
    }
    for signal in [Signal::TERM, Signal::INT] {
        let dir = TempDir::new("ended")?;
        // Whatever the caller of the tests ignores: what a shell starts behind ignores SIGINT.
        let bench = Cmd::new("env")
            .arg("--default-signal=HUP,INT,TERM")
            .arg(env!("CARGO_BIN_EXE_extant"))
            .args(["bench", "psync", "--only", "write/cache/new/4K"])
            // More rounds than there is time for.
            .args(["--runs", "10000"])
            .args(["--variant", "mount", "kernel-ext4"])
            .env("EXTANT_TMP", dir.path())
            .env("TMPDIR", dir.path());
        let mut bench = bench.spawn()?;
        wait("both are mounted", || {
            let ended = bench.poll()?;
            ensure!(ended.is_none(), "{}", ended.unwrap().describe());
            let (mounts, loops) = in_use(dir.path())?;
            Ok(mounts >= 2 && loops >= 1)
        })?;
        let pid = Pid::from_raw(i32::try_from(bench.pid())?).unwrap();
        kill_process(pid, signal)?;
        let ended = bench.wait(Duration::from_secs(120))?;
        ensure!(ended.code.is_none(), "{}", ended.describe());
        // Linux's mount goes with the last file that the process had open there.
        wait("nothing is mounted or attached", || {
            Ok(in_use(dir.path())? == (0, 0))
        })?;
        let left: Vec<_> = fs::read_dir(dir.path())?.flatten().collect();
        ensure!(left.is_empty(), "{signal:?} leaves {left:?}");
    }
    Ok(())
}
