//! NBD servers of other projects, as processes that the tests can kill.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use extant_testkit::cmd::Running;
use extant_testkit::{Cmd, Result, TempDir, ensure, is_listening, patience};

/// Command of one start of a server; it listens at the given socket.
type Program = Box<dyn Fn(&Path) -> Cmd + Send + Sync>;

/// A server at a Unix socket.
pub(crate) struct NbdServer {
    program: Program,
    running: Option<Running>,
    dir: TempDir,
}

impl NbdServer {
    /// nbdkit with `arguments`: filters, a plugin and its parameters.
    pub(crate) fn nbdkit(arguments: &[String]) -> Result<NbdServer> {
        let arguments = arguments.to_vec();
        NbdServer::start(Box::new(move |socket| {
            let cmd = Cmd::new("nbdkit").args(["-f", "-U"]).arg(socket);
            cmd.args(&arguments)
        }))
    }

    /// qemu-nbd over the image at `path`.
    pub(crate) fn qemu(path: &Path, format: &str) -> Result<NbdServer> {
        let (path, format) = (path.to_owned(), format.to_owned());
        NbdServer::start(Box::new(move |socket| {
            let cmd = Cmd::new("qemu-nbd").args(["--persistent", "--shared=8"]);
            let cmd = cmd.args(["-f", &format, "--discard=unmap", "-k"]);
            cmd.arg(socket).arg(&path)
        }))
    }

    fn start(program: Program) -> Result<NbdServer> {
        let mut server = NbdServer {
            program,
            running: None,
            dir: TempDir::new("nbd-server")?,
        };
        server.restart()?;
        Ok(server)
    }

    /// The directory with its socket, which is called `socket`.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// Starts it again after [`NbdServer::kill`].
    pub(crate) fn restart(&mut self) -> Result<()> {
        let mut running = (self.program)(&self.socket())
            .limit(Duration::from_secs(400))
            .spawn()?;
        let end = Instant::now() + patience(Duration::from_secs(30));
        while !is_listening(&self.socket()) {
            if let Some(output) = running.poll()? {
                extant_testkit::bail!("the server ended: {}", output.describe());
            }
            ensure!(Instant::now() < end, "the server does not listen");
            std::thread::sleep(Duration::from_millis(2));
        }
        self.running = Some(running);
        Ok(())
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<()> {
        if let Some(mut running) = self.running.take() {
            running.kill()?;
        }
        std::fs::remove_file(self.socket())?;
        Ok(())
    }

    /// The address of its export, with parameters.
    pub(crate) fn address(&self, parameters: &str) -> String {
        let socket = self.socket();
        format!("nbd+unix:///?socket={}&{parameters}", socket.display())
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
