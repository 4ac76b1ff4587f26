//! A confined daemon reaches its server again, and nothing else.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use extant_testkit::cmd::Running;
use extant_testkit::inject::{ATTEMPTS, Injected, inject};
use extant_testkit::{
    Cmd, Error, Image, Need, Result, Subject, TempDir, ensure, need, tools, wait_until,
};

use crate::losses::counter;
use crate::servers::NbdServer;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Tool("nbdkit"),
    Need::Tool("mke2fs"),
    Need::Tool("python3"),
];

/// A mount of an NBD server at a Unix socket: what foreign code tries is refused.
#[test]
fn foreign_code_in_the_daemon_of_a_server_is_refused() -> Result<()> {
    if !need(NEEDS) || cfg!(not(target_arch = "x86_64")) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    for (name, number, arguments, expected) in ATTEMPTS {
        let server = NbdServer::nbdkit(&["file".into(), image.path().display().to_string()])?;
        let mount = Subject::Extant.mount(Path::new(&server.address("")), "")?;
        fs::write(mount.join(name), "x")?;
        let pid = mount.pid().ok_or_else(|| Error::new("no daemon"))?;
        let outcome = inject(pid, number, arguments)?;
        ensure!(outcome == expected, "{name}: {outcome:?}");
        if let Injected::Returned(_) = expected {
            mount.unmount()?;
        } else {
            let o = mount.ended(Duration::from_secs(30))?;
            ensure!(o.code.is_none(), "{name}: {}", o.describe());
        }
    }
    Ok(())
}

/// A daemon in the background leaves the directory that the path of the socket is relative to.
#[test]
fn the_path_of_a_socket_may_be_relative() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let extant = tools::extant()?;
    for options in ["sandbox", "nosandbox"] {
        let image = Image::of_mib(16).make()?;
        let arguments = ["file".into(), image.path().display().to_string()];
        let mut server = NbdServer::nbdkit(&arguments)?;
        let at = TempDir::new_in(&std::env::temp_dir(), "mnt-relative")?;
        Cmd::new(&extant)
            .args(["mount", "-o", options, "nbd+unix:///?socket=socket"])
            .arg(at.path())
            .dir(server.dir())
            .ok()?;
        fs::write(at.join("before"), "x")?;
        server.kill()?;
        server.restart()?;
        fs::write(at.join("after"), "x")?;
        fs::File::open(at.join("after"))?.sync_all()?;
        Cmd::new(&extant).arg("umount").arg(at.path()).ok()?;
        server.kill()?;
        image.fsck_clean()?;
    }
    Ok(())
}

fn tcp_server(port: u16, image: &Path) -> Result<Running> {
    let port = port.to_string();
    let cmd = Cmd::new("nbdkit").args(["-f", "-i", "127.0.0.1", "-p", &port, "file"]);
    cmd.arg(image).limit(Duration::from_secs(400)).spawn()
}

/// The daemon reaches no network: its keeper looks the name of a TCP server up and connects, again
/// after each loss.
#[test]
fn a_tcp_server_is_reached_again() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let free = TcpListener::bind("127.0.0.1:0")?;
    let port = free.local_addr()?.port();
    drop(free);
    let mut server = tcp_server(port, image.path())?;
    let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
    wait_until("nbdkit listens", listens);
    let address = format!("nbd://localhost:{port}/");
    let mount = Subject::Extant.mount(Path::new(&address), "")?;
    for round in 0..3 {
        fs::write(mount.join(format!("f{round}")), vec![round; 100_000])?;
        fs::File::open(mount.join(format!("f{round}")))?.sync_all()?;
        server.kill()?;
        server = tcp_server(port, image.path())?;
    }
    fs::write(mount.join("last"), "x")?;
    fs::File::open(mount.join("last"))?.sync_all()?;
    ensure!(
        counter(&mount, "nbd_reconnects")? >= 1,
        "no kill was noticed"
    );
    ensure!(counter(&mount, "sandbox_seccomp")? == 1, "unconfined");
    let said = mount.unmount()?;
    // One line for each loss, one for each return.
    let lines = |words: &str| said.lines().filter(|line| line.contains(words)).count();
    let (lost, back) = (lines("the connection is lost"), lines("connected again"));
    ensure!(lost >= 1 && lost == back, "{said}");
    ensure!(said.lines().count() == lost + back, "{said}");
    server.kill()?;
    image.fsck_clean()
}
