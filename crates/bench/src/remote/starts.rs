//! Starts of a host that has nothing of the image yet: the listed files are read.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use extant_host::{Cmd, Error, Need, Result, TempDir, ensure, programs};
use extant_store_proxy::DelayedLine;

use super::amounts::mib;
use super::remote_store::RemoteStore;
use super::root_image::RootImage;
use crate::plan::Plan;

/// A way to start.
pub(super) struct Start {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) needs: &'static [Need],
    pub(super) measure: fn(&Plan, &RemoteStore, &RootImage, Duration) -> Result<Started>,
}

/// A start that was measured.
pub(super) struct Started {
    pub(super) millis: f64,
    /// Requests, MiB to the host, different chunks.
    pub(super) beside: [Option<f64>; 3],
}

/// All ways.
pub(super) const STARTS: [Start; 4] = [
    Start {
        name: "store",
        about: "a mount of the stored image with empty caches, until the listed files are read",
        needs: &[Need::Fuse],
        measure: |_, store, image, _| by_mount(store, image, "ro,nosandbox"),
    },
    Start {
        name: "prefetch",
        about: "the same, read ahead by the list of an earlier start",
        needs: &[Need::Fuse],
        measure: |_, store, image, _| by_list(store, image),
    },
    Start {
        name: "pull-mount",
        about: "a pull of the whole image and a mount of the copy, until the files are read",
        needs: &[Need::Fuse],
        measure: |_, store, image, _| by_pull(store, image),
    },
    Start {
        name: "nbd",
        about: "a mount of the same image by NBD from qemu-nbd, until the listed files are read",
        needs: &[Need::Fuse, Need::Tool("qemu-nbd")],
        measure: |plan, _, image, round_trip| by_nbd(plan, image, round_trip),
    },
];

/// A mount that ends in any case.
struct StartedMount<'a> {
    extant: &'a Path,
    dir: TempDir,
}

impl<'a> StartedMount<'a> {
    fn by(mount: Cmd, options: &str, image: &str, extant: &'a Path) -> Result<Self> {
        let dir = TempDir::new("mnt")?;
        let mount = mount.args(["mount", "-o", options, image]);
        mount.arg(dir.path()).ok()?;
        Ok(Self { extant, dir })
    }
}

impl Drop for StartedMount<'_> {
    fn drop(&mut self) {
        let _ = Cmd::new(self.extant)
            .arg("umount")
            .arg(self.dir.path())
            .run();
    }
}

/// The counts of a store's line as figures.
fn beside(store: &RemoteStore) -> [Option<f64>; 3] {
    let (traffic, chunks) = store.take_counts();
    #[expect(clippy::cast_precision_loss, reason = "counts of some thousand")]
    let figures = (traffic.all_requests() as f64, chunks as f64);
    [
        Some(figures.0),
        Some(mib(traffic.received_bytes)),
        Some(figures.1),
    ]
}

fn by_mount(store: &RemoteStore, image: &RootImage, options: &str) -> Result<Started> {
    let cache = TempDir::new("cache")?;
    store.take_counts();
    let start = Instant::now();
    let cmd = store.extant(Some(cache.path()));
    let mount = StartedMount::by(cmd, options, store.image(), store.command())?;
    image.read_listed(mount.dir.path())?;
    let millis = start.elapsed().as_secs_f64() * 1e3;
    Ok(Started {
        millis,
        beside: beside(store),
    })
}

fn by_list(store: &RemoteStore, image: &RootImage) -> Result<Started> {
    let dir = TempDir::new("list")?;
    let list = dir.join("start.list").display().to_string();
    by_mount(store, image, &format!("ro,nosandbox,record={list}"))?;
    by_mount(store, image, &format!("ro,nosandbox,prefetch={list}"))
}

fn by_pull(store: &RemoteStore, image: &RootImage) -> Result<Started> {
    let dir = TempDir::new("pulled")?;
    let copy = dir.join("image").display().to_string();
    store.take_counts();
    let start = Instant::now();
    let pull = store.extant(None).args(["pull", "-q", store.image()]);
    pull.arg(&copy).ok()?;
    let cmd = Cmd::new(store.command());
    let mount = StartedMount::by(cmd, "ro", &copy, store.command())?;
    image.read_listed(mount.dir.path())?;
    let millis = start.elapsed().as_secs_f64() * 1e3;
    Ok(Started {
        millis,
        beside: beside(store),
    })
}

/// A server of NBD that ends when dropped.
struct NbdServer(Child);

impl Drop for NbdServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl NbdServer {
    fn start(image: &Path) -> Result<(Self, SocketAddr)> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let program = programs::find("qemu-nbd");
        let program = program.ok_or_else(|| Error::new("no qemu-nbd"))?;
        let server = Command::new(program)
            .args(["--persistent", "--shared=8", "--read-only", "-f", "raw"])
            .args(["-b", "127.0.0.1", "-p", &address.port().to_string()])
            .arg(image)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let server = Self(server);
        let end = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(address).is_err() {
            ensure!(Instant::now() < end, "qemu-nbd does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok((server, address))
    }
}

fn by_nbd(plan: &Plan, image: &RootImage, round_trip: Duration) -> Result<Started> {
    let (_server, address) = NbdServer::start(&image.path())?;
    let line = DelayedLine::start(address, round_trip)?;
    let start = Instant::now();
    let export = format!("nbd://{}/", line.address());
    let mount = StartedMount::by(Cmd::new(&plan.extant), "ro", &export, &plan.extant)?;
    image.read_listed(mount.dir.path())?;
    let millis = start.elapsed().as_secs_f64() * 1e3;
    let bytes = mib(line.received_bytes());
    Ok(Started {
        millis,
        beside: [None, Some(bytes), None],
    })
}
