//! Mounts whose server or daemon is killed: every acknowledged fsync is there.

use std::path::Path;
use std::time::Duration;

use extant_testkit::storm::{Storm, check_noise};
use extant_testkit::{
    Cmd, Error, Image, Mount, Need, Result, Rng, Subject, TempDir, ensure, need, report, tools,
};

use crate::servers::NbdServer;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Tool("nbdkit"),
    Need::Tool("qemu-nbd"),
    Need::Tool("mke2fs"),
];
/// Kills in `make test`; `EXTANT_KILLS` asks for more.
const KILLS: u64 = 3;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A counter of the mount.
pub(crate) fn counter(mount: &Mount, name: &str) -> Result<u64> {
    let stats = Cmd::new(tools::extant()?)
        .arg("stats")
        .arg(mount.dir())
        .ok()?
        .out;
    let line = stats.lines().find_map(|line| line.strip_prefix(name));
    let value = line.ok_or_else(|| Error::new(format!("no counter {name}")))?;
    Ok(value.trim().parse()?)
}

/// Kills of the server during a storm: no operation fails, and all that was acknowledged is there
/// after the daemon is killed as well.
#[test]
fn a_storm_goes_on_while_its_server_is_killed() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let kills = variable("EXTANT_KILLS").unwrap_or(KILLS);
    let seed = variable("EXTANT_SEED").unwrap_or(1);
    for by_qemu in [false, true] {
        let image = Image::of_mib(96).args("-b 4096 -J size=4").make()?;
        let mut server = if by_qemu {
            NbdServer::qemu(image.path(), "raw")?
        } else {
            NbdServer::nbdkit(&["file".to_owned(), image.path().display().to_string()])?
        };
        let address = server.address("");
        let mount = Subject::Extant.mount(Path::new(&address), "commit=1")?;
        let storm = Storm::default();
        let mut rng = Rng::new(seed);
        std::thread::scope(|scope| -> Result<()> {
            let raging = scope.spawn(|| storm.rage(mount.dir(), 3, seed));
            let killed = (0..kills).try_for_each(|_| -> Result<()> {
                std::thread::sleep(Duration::from_millis(rng.between(100, 500)));
                server.kill()?;
                std::thread::sleep(Duration::from_millis(rng.between(0, 200)));
                server.restart()
            });
            std::thread::sleep(Duration::from_millis(300));
            storm.stop.store(true, std::sync::atomic::Ordering::SeqCst);
            let raged = raging.join();
            killed?;
            raged.map_err(|_| Error::new("the storm panicked"))?
        })?;
        let (found, resent) = (
            counter(&mount, "nbd_reconnects")?,
            counter(&mount, "nbd_resent")?,
        );
        ensure!(found >= 1, "no kill was noticed");
        mount.crash()?;
        let again = Subject::Extant.mount(Path::new(&address), "")?;
        let whole = storm.ledger.check(again.dir())?;
        let noise = check_noise(again.dir())?;
        again.unmount()?;
        drop(server);
        image.fsck_clean()?;
        report(&format!(
            "{kills} kills of {}: found again {found} times, {resent} writes sent again, {whole} \
             fsynced files whole, {noise} others without a foreign byte",
            if by_qemu { "qemu-nbd" } else { "nbdkit" }
        ));
    }
    Ok(())
}

/// A server that stays away: callers are told, and the volume is sound.
#[test]
fn a_server_that_stays_away_ends_the_mount() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(64).make()?;
    let mut server = NbdServer::nbdkit(&["file".to_owned(), image.path().display().to_string()])?;
    let address = server.address("reconnect=1");
    let mount = Subject::Extant.mount(Path::new(&address), "")?;
    let sync = |name: &str, byte: u8| -> std::io::Result<()> {
        let file = std::fs::File::create(mount.join(name))?;
        std::os::unix::fs::FileExt::write_all_at(&file, &[byte; 9000], 0)?;
        file.sync_all()
    };
    sync("kept", 7)?;
    server.kill()?;
    ensure!(sync("lost", 8).is_err(), "an fsync without a server");
    server.restart()?;
    // Whether it owed something depends on the moment; then it is not used again.
    let _ = mount.unmount();
    let again = Subject::Extant.mount(Path::new(&address), "")?;
    ensure!(std::fs::read(again.join("kept"))? == [7; 9000], "kept");
    again.unmount()?;
    drop(server);
    image.fsck_clean()
}

/// The mount as users make it: in the background, named by its address, and unmounted by name.
#[test]
fn a_mount_in_the_background_is_named_by_its_address() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(64).make()?;
    let work = TempDir::new("nbd-work")?;
    let server = NbdServer::nbdkit(&["file".to_owned(), image.path().display().to_string()])?;
    let address = server.address("");
    let dir = work.join("mnt");
    std::fs::create_dir(&dir)?;
    let extant = tools::extant()?;
    Cmd::new(&extant)
        .arg("mount")
        .arg(&address)
        .arg(&dir)
        .ok()?;
    std::fs::write(dir.join("file"), "over the network")?;
    let source = Cmd::new("findmnt")
        .args(["-n", "-o", "SOURCE"])
        .arg(&dir)
        .ok()?
        .out;
    Cmd::new(&extant).arg("umount").arg(&dir).ok()?;
    ensure!(source.trim() == address, "{source}");
    let cat = Cmd::new(&extant)
        .arg("cat")
        .arg(format!("{address}:/file"))
        .ok()?
        .out;
    ensure!(cat == "over the network", "{cat}");
    drop(server);
    image.fsck_clean()
}
