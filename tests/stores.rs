//! Images in a server that speaks S3. The server is MinIO, which `scripts/stores` builds; the
//! tests do nothing but where `EXTANT_MINIO` names it.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use extant_testkit::{
    Cmd, Context, Image, Need, Result, Rng, TempDir, bail, content, ensure, need, tools,
};

const NEEDS: &[Need] = &[Need::Tool("mke2fs"), Need::Fuse];
const USER: &str = "extant";
const SECRET: &str = "extant-secret";

/// A server of its own with a bucket `images`. It ends when dropped.
struct Server {
    process: std::process::Child,
    endpoint: String,
    folder: TempDir,
}

impl Server {
    /// `None` where no server is named.
    fn start() -> Result<Option<Self>> {
        let Some(minio) = std::env::var_os("EXTANT_MINIO") else {
            eprintln!("stores by S3 are for the soak: EXTANT_MINIO names the server");
            return Ok(None);
        };
        if !need(NEEDS) {
            return Ok(None);
        }
        let folder = TempDir::new("minio")?;
        fs::create_dir_all(folder.join("data/images"))?;
        // Another process may take the port before the server does: it then says so and ends.
        let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let process = std::process::Command::new(minio)
            .args(["server", "--quiet", "--address", &free.to_string()])
            .args(["--console-address", "127.0.0.1:0"])
            .arg(folder.join("data"))
            .env("MINIO_ROOT_USER", USER)
            .env("MINIO_ROOT_PASSWORD", SECRET)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()?;
        let server = Self {
            process,
            endpoint: format!("http://{free}"),
            folder,
        };
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(free).is_err() {
            ensure!(Instant::now() < end, "the server does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Some(server))
    }

    /// The command with the credentials of this server.
    fn extant(&self, args: &[&str]) -> Result<Cmd> {
        let cmd = Cmd::new(tools::extant()?).args(args);
        Ok(cmd
            .env("AWS_ACCESS_KEY_ID", USER)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_ENDPOINT", &self.endpoint)
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1")
            .env("EXTANT_CACHE", self.folder.join("cache")))
    }

    fn ok(&self, args: &[&str]) -> Result<String> {
        Ok(self.extant(args)?.ok()?.out)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A volume with `files` files of random bytes.
fn volume(files: u64) -> Result<(Image, TempDir)> {
    let (disk, folder) = (
        Image::of_mib(96).args("-b 4096").make()?,
        TempDir::new("files")?,
    );
    let tree = folder.join("tree");
    fs::create_dir(&tree)?;
    for number in 0..files {
        fs::write(
            tree.join(format!("f{number}")),
            content::fill(number, 0, 1 << 20),
        )?;
    }
    let to = format!("{}:/", text(disk.path()));
    Cmd::new(tools::extant()?)
        .args(["cp", "-r", &text(&tree), &to])
        .ok()?;
    Ok((disk, folder))
}

#[test]
fn versions_come_back_and_a_hundred_processes_read_one() -> Result<()> {
    let Some(server) = Server::start()? else {
        return Ok(());
    };
    let (disk, folder) = volume(24)?;
    let (image, stored) = (text(disk.path()), "s3://images/debian/root");
    server.ok(&["push", &image, stored])?;
    let before = fs::read(disk.path())?;
    let small = folder.join("small");
    fs::write(&small, b"a small file")?;
    server.ok(&["cp", &text(&small), &format!("{image}:/small")])?;
    let said = server.ok(&["push", "--json", &image, stored])?;
    let said: serde_json::Value = serde_json::from_str(&said)?;
    let sent = said["sent_bytes"].as_u64().unwrap_or(u64::MAX);
    ensure!(sent < 1 << 20, "a small change sends {said}");

    let copy = folder.join("copy.img");
    server.ok(&["pull", &format!("{stored}@1"), &text(&copy)])?;
    ensure!(
        fs::read(&copy)? == before,
        "version 1 is not what was pushed"
    );
    server.ok(&["check", stored])?;
    server.ok(&["diff", stored, &image])?;
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..100_u64)
            .map(|number| {
                let (server, folder) = (&server, &folder);
                scope.spawn(move || -> Result<()> {
                    let file = format!("{stored}:/tree/f{}", number % 24);
                    let to = folder.join(format!("read{number}"));
                    server.ok(&["cp", &file, &text(&to)])?;
                    let read = fs::read(&to)?;
                    ensure!(read == content::fill(number % 24, 0, 1 << 20), "{file}");
                    Ok(())
                })
            })
            .collect();
        let read = readers.into_iter().map(|reader| match reader.join() {
            Ok(read) => read,
            Err(_) => bail!("a reader panicked"),
        });
        read.collect::<Result<()>>()
    })
}

/// A mount that is taken off when dropped.
struct Mounted<'a>(&'a Server, PathBuf);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let umount = self.0.extant(&["umount", &text(&self.1)]);
        let _ = umount.and_then(|umount| umount.run());
    }
}

#[test]
fn a_hundred_mounts_of_one_version_are_there_at_once() -> Result<()> {
    let Some(server) = Server::start()? else {
        return Ok(());
    };
    let (disk, folder) = volume(12)?;
    let stored = "s3://images/many";
    server.ok(&["push", &text(disk.path()), stored])?;
    let mount = |number: u64| -> Result<Mounted<'_>> {
        let dir = folder.join(format!("mnt{number}"));
        fs::create_dir(&dir)?;
        server.ok(&["mount", stored, &text(&dir)])?;
        let mounted = Mounted(&server, dir);
        let file = number % 12;
        let read = fs::read(mounted.1.join(format!("tree/f{file}")))?;
        ensure!(read == content::fill(file, 0, 1 << 20), "{number}: f{file}");
        Ok(mounted)
    };
    // Ten threads make ten mounts each, and all stay.
    let all = std::thread::scope(|scope| {
        let some = |first: u64| (first..first + 10).map(mount).collect::<Result<Vec<_>>>();
        let threads: Vec<_> = (0..10)
            .map(|nth| scope.spawn(move || some(nth * 10)))
            .collect();
        let made = threads.into_iter().map(|thread| match thread.join() {
            Ok(made) => made,
            Err(_) => bail!("a thread panicked"),
        });
        made.collect::<Result<Vec<_>>>()
    })?;
    let all: Vec<_> = all.into_iter().flatten().collect();
    ensure!(all.len() == 100, "{} mounts", all.len());
    for (mounted, number) in all.iter().zip(0..) {
        let file = (number + 5) % 12;
        let read = fs::read(mounted.1.join(format!("tree/f{file}")))?;
        ensure!(read == content::fill(file, 0, 1 << 20), "again: f{file}");
    }
    Ok(())
}

#[test]
fn of_pushes_at_once_one_makes_each_version() -> Result<()> {
    let Some(server) = Server::start()? else {
        return Ok(());
    };
    let volumes: Vec<_> = (0..4).map(|_| volume(4)).collect::<Result<_>>()?;
    let mut made = 0;
    for _ in 0..6 {
        let push = |disk: &Image| {
            let pushed = server.extant(&["push", &text(disk.path()), "s3://images/root"]);
            pushed.and_then(Cmd::run)
        };
        let pushed = std::thread::scope(|scope| {
            let push = &push;
            let threads = volumes
                .iter()
                .map(|(disk, _)| scope.spawn(move || push(disk)));
            let threads: Vec<_> = threads.collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended
                .map(|pushed| pushed.expect("no panic"))
                .collect::<Vec<_>>()
        });
        for outcome in pushed {
            let outcome = outcome?;
            let told = outcome.err.contains("another push has made version");
            ensure!(outcome.code == Some(0) || told, "{}", outcome.describe());
            made += usize::from(outcome.code == Some(0));
        }
    }
    let listed = server.ok(&["versions", "s3://images/root"])?;
    ensure!(
        listed.lines().count() == made && made >= 6,
        "{made} made: {listed}"
    );
    let copy = volumes[0].1.join("copy.img");
    for version in 1..=made {
        server.ok(&[
            "pull",
            "-q",
            &format!("s3://images/root@{version}"),
            &text(&copy),
        ])?;
        ensure!(
            volumes
                .iter()
                .any(|(disk, _)| fs::read(disk.path()).ok() == fs::read(&copy).ok()),
            "version {version} is no image that was pushed"
        );
    }
    Ok(())
}

#[test]
fn a_push_that_is_killed_leaves_whole_versions() -> Result<()> {
    let Some(server) = Server::start()? else {
        return Ok(());
    };
    let (disk, folder) = volume(8)?;
    let stored = "s3://images/killed";
    server.ok(&["push", &text(disk.path()), stored])?;
    let mut expected = fs::read(disk.path())?;
    let mut rng = Rng::new(7);
    let (mut versions, mut killed) = (1, 0);
    for round in 0..50_u64 {
        // A change in most of the chunks.
        let file = folder.join("more");
        fs::write(&file, content::fill(1000 + round, 0, 8 << 20))?;
        server.ok(&["cp", &text(&file), &format!("{}:/more", text(disk.path()))])?;
        let push = server.extant(&["push", &text(disk.path()), stored])?;
        let pause = Duration::from_micros(rng.between(500, 120_000));
        let mut push = push.spawn()?;
        std::thread::sleep(pause);
        let ended = push.poll()?.is_some();
        push.kill()?;
        push.wait(Duration::from_secs(60))?;
        let listed = server.ok(&["versions", stored])?.lines().count();
        if listed == versions + 1 {
            versions = listed;
            expected = fs::read(disk.path())?;
        }
        ensure!(listed == versions, "round {round}: {listed} versions");
        killed += usize::from(!ended);
        let copy = folder.join("copy.img");
        server.ok(&["pull", "-q", stored, &text(&copy)])?;
        let same = fs::read(&copy)? == expected;
        ensure!(same, "round {round}: the current version is not whole");
    }
    ensure!(killed > 15, "only {killed} pushes were killed");
    server.ok(&["push", &text(disk.path()), stored])?;
    server
        .ok(&["diff", stored, &text(disk.path())])
        .context(|| "the last push")?;
    Ok(())
}

/// A chunk in the server's own folder is exchanged: reads of it fail and name it.
#[test]
fn a_missing_chunk_is_named() -> Result<()> {
    let Some(server) = Server::start()? else {
        return Ok(());
    };
    let (disk, _folder) = volume(6)?;
    server.ok(&["push", &text(disk.path()), "s3://images/damaged"])?;
    let chunks = server.folder.join("data/images/chunks");
    let mut objects = Vec::new();
    for dir in fs::read_dir(&chunks)? {
        for object in fs::read_dir(dir?.path())? {
            objects.push(object?.path());
        }
    }
    objects.sort();
    let gone: &PathBuf = objects.get(objects.len() / 2).expect("chunks");
    fs::remove_dir_all(gone)?;
    let name = gone
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let copy = server.folder.join("copy.img");
    let pulled = server
        .extant(&["pull", "s3://images/damaged", &text(&copy)])?
        .run()?;
    let named = pulled.err.contains(&name) && pulled.err.contains("missing");
    ensure!(pulled.code == Some(1) && named, "{}", pulled.describe());
    ensure!(!copy.exists(), "half a pull is there");
    Ok(())
}
