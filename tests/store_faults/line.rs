//! A server of S3, the line to it, and commands that use the line.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use extant_store_proxy::{MemoryStore, StoreProxy};
use extant_testkit::cmd::Output;
use extant_testkit::{Cmd, Image, Need, Result, TempDir, content, ensure, need, tools, wait_until};

const USER: &str = "extant";
const SECRET: &str = "extant-secret";

/// The image of all tests.
pub(crate) const STORED: &str = "s3://images/debian/root";

/// Files of a volume, of 1 MiB each.
pub(crate) const FILES: u64 = 6;

enum Server {
    Minio(Child),
    /// It ends when dropped.
    Memory {
        _store: MemoryStore,
    },
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Self::Minio(process) = self {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A server with a bucket `images`, and a line to it that fails by plan.
pub(crate) struct Line {
    server: Server,
    pub(crate) proxy: StoreProxy,
    pub(crate) folder: TempDir,
}

impl Line {
    /// `None` where the machine lacks what the tests need.
    pub(crate) fn start() -> Result<Option<Self>> {
        if !need(&[Need::Tool("mke2fs")]) {
            return Ok(None);
        }
        let folder = TempDir::new("line")?;
        let (server, address) = match std::env::var_os("EXTANT_MINIO") {
            None => {
                let store = MemoryStore::start()?;
                let address = store.address();
                (Server::Memory { _store: store }, address)
            }
            Some(minio) => minio_at(Path::new(&minio), &folder)?,
        };
        let proxy = StoreProxy::start(address)?;
        Ok(Some(Self {
            server,
            proxy,
            folder,
        }))
    }

    /// Returns whether the server is a real one.
    pub(crate) fn is_real(&self) -> bool {
        matches!(self.server, Server::Minio(_))
    }

    /// The command on this line.
    pub(crate) fn extant(&self, args: &[&str]) -> Result<Cmd> {
        self.within(&text(&tools::extant()?), args)
    }

    /// A program with the environment of the command.
    pub(crate) fn within(&self, program: &str, args: &[&str]) -> Result<Cmd> {
        let cmd = Cmd::new(program).args(args);
        Ok(cmd
            .env("AWS_ACCESS_KEY_ID", USER)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_ENDPOINT", self.proxy.endpoint())
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1")
            .env("EXTANT_CACHE", ""))
    }

    pub(crate) fn run(&self, args: &[&str]) -> Result<Output> {
        self.extant(args)?.run()
    }

    pub(crate) fn ok(&self, args: &[&str]) -> Result<String> {
        Ok(self.extant(args)?.ok()?.out)
    }

    /// The numbers of the versions that are listed.
    pub(crate) fn versions(&self) -> Result<usize> {
        Ok(self.ok(&["versions", STORED])?.lines().count())
    }

    /// The content of a version; `None` is the current one.
    pub(crate) fn pulled(&self, version: Option<usize>) -> Result<Vec<u8>> {
        let copy = self.folder.join("copy.img");
        let at = version.map_or(STORED.to_owned(), |number| format!("{STORED}@{number}"));
        self.ok(&["pull", "-q", &at, &text(&copy)])?;
        let content = fs::read(&copy)?;
        fs::remove_file(&copy)?;
        Ok(content)
    }
}

/// MinIO with its data in a folder.
fn minio_at(minio: &Path, folder: &TempDir) -> Result<(Server, SocketAddr)> {
    fs::create_dir_all(folder.join("data/images"))?;
    // Another process may take the port before the server does: it then says so and ends.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let process = Command::new(minio)
        .args(["server", "--quiet", "--address", &address.to_string()])
        .args(["--console-address", "127.0.0.1:0"])
        .arg(folder.join("data"))
        .env("MINIO_ROOT_USER", USER)
        .env("MINIO_ROOT_PASSWORD", SECRET)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let server = Server::Minio(process);
    wait_until("the server answers", || TcpStream::connect(address).is_ok());
    Ok((server, address))
}

pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A volume with files `tree/f0` and so on.
pub(crate) struct Volume {
    pub(crate) disk: Image,
    folder: TempDir,
}

impl Volume {
    pub(crate) fn new() -> Result<Self> {
        let (disk, folder) = (
            Image::of_mib(24).args("-b 4096").make()?,
            TempDir::new("files")?,
        );
        let volume = Self { disk, folder };
        let tree = volume.folder.join("tree");
        fs::create_dir(&tree)?;
        for number in 0..FILES {
            fs::write(tree.join(format!("f{number}")), file(number))?;
        }
        let to = format!("{}:/", volume.image());
        let cp = Cmd::new(tools::extant()?).args(["cp", "-r", &text(&tree), &to]);
        cp.ok()?;
        Ok(volume)
    }

    pub(crate) fn image(&self) -> String {
        text(self.disk.path())
    }

    pub(crate) fn content(&self) -> Result<Vec<u8>> {
        Ok(fs::read(self.disk.path())?)
    }

    /// Writes a file that no other volume has.
    pub(crate) fn change(&self, seed: u64) -> Result<()> {
        let new: PathBuf = self.folder.join("new");
        fs::write(&new, content::fill(1000 + seed, 0, 2 << 20))?;
        let to = format!("{}:/new", self.image());
        let cp = Cmd::new(tools::extant()?).args(["cp", &text(&new), &to]);
        cp.ok().map(drop)
    }
}

/// The content of a file.
pub(crate) fn file(number: u64) -> Vec<u8> {
    content::fill(number, 0, 1 << 20)
}

/// Fails unless a command ended with a plain error that has one of these words.
pub(crate) fn ensure_plain_error(outcome: &Output, words: &[&str]) -> Result<()> {
    let is_plain = outcome.code == Some(1) && !outcome.err.contains("panicked");
    let says = words.iter().any(|word| outcome.err.contains(word));
    ensure!(is_plain && says, "{}", outcome.describe());
    Ok(())
}

/// The limit of commands that wait for a server.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
