//! TLS with nbdkit: the server is the one that the address names, and the client the one that the
//! server wants.

use std::fs;
use std::path::Path;

use extant_blockdev::{BlockDevice, OpenMode};
use extant_nbd::NbdDevice;
use extant_testkit::cmd::Running;
use extant_testkit::{Cmd, Need, TempDir, content, is_listening, need, wait_until};
use extant_units::DevOff;

const NEEDS: &[Need] = &[Need::Tool("nbdkit"), Need::Tool("openssl")];

/// The name in the server's certificate.
const NAME: &str = "disk.example";

fn openssl(dir: &Path, arguments: &str) {
    let cmd = Cmd::new("openssl").dir(dir);
    cmd.args(arguments.split_whitespace()).ok().unwrap();
}

/// An authority, and what it certifies for a server and a client.
fn certificates() -> TempDir {
    const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let dir = TempDir::new("certificates").unwrap();
    let at = dir.path();
    let authority = "-keyout ca-key.pem -out ca-cert.pem -days 2 -subj /CN=authority";
    openssl(at, &format!("req -x509 {KEY} {authority}"));
    for (role, name) in [("server", NAME), ("client", "client.example")] {
        fs::write(dir.join("names"), format!("subjectAltName=DNS:{name}")).unwrap();
        let request = format!("-keyout {role}-key.pem -out {role}.csr -subj /CN={role}");
        openssl(at, &format!("req {KEY} {request}"));
        let signer = "-CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile names";
        openssl(
            at,
            &format!("x509 -req -in {role}.csr {signer} -out {role}-cert.pem"),
        );
    }
    dir
}

/// nbdkit with an export in memory.
struct Nbdkit {
    running: Running,
    dir: TempDir,
}

impl Nbdkit {
    fn start(arguments: &[&str]) -> Nbdkit {
        let dir = TempDir::new("nbdkit").unwrap();
        let cmd = Cmd::new("nbdkit")
            .args(["-f", "-U"])
            .arg(dir.join("socket"));
        let running = cmd.args(arguments).args(["memory", "32M"]).spawn().unwrap();
        wait_until("nbdkit listens", || is_listening(&dir.join("socket")));
        Nbdkit { running, dir }
    }

    fn connect(&self, scheme: &str, parameters: &str) -> Result<NbdDevice, String> {
        let socket = self.dir.join("socket");
        let text = format!("{scheme}:///?socket={}&{parameters}", socket.display());
        let device = NbdDevice::connect(text.parse().unwrap(), OpenMode::ReadWrite);
        device.map_err(|error| error.to_string())
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.running.kill();
    }
}

fn trusting(dir: &Path, name: &str) -> String {
    format!("tls-certificates={}&tls-hostname={name}", dir.display())
}

#[test]
fn requests_go_over_tls() {
    if !need(NEEDS) {
        return;
    }
    let trusted = certificates();
    let certificates = format!("--tls-certificates={}", trusted.path().display());
    let server = Nbdkit::start(&["--tls=require", &certificates, "--tls-verify-peer"]);
    let device = server.connect("nbds+unix", &trusting(trusted.path(), NAME));
    let device = device.unwrap();
    let bytes = content::fill(5, 0, 9 << 20);
    device.write_at(DevOff::new(1000), &bytes).unwrap();
    device.flush().unwrap();
    let mut read = vec![0; bytes.len()];
    device.read_at(DevOff::new(1000), &mut read).unwrap();
    assert!(read == bytes);
    let other = server.connect("nbds+unix", &trusting(trusted.path(), NAME));
    other
        .unwrap()
        .read_at(DevOff::new(1000), &mut read)
        .unwrap();
    assert!(read == bytes);
}

#[test]
fn a_side_that_is_not_trusted_is_refused() {
    if !need(NEEDS) {
        return;
    }
    let (trusted, strange) = (certificates(), certificates());
    let certificates = format!("--tls-certificates={}", trusted.path().display());
    let server = Nbdkit::start(&["--tls=require", &certificates, "--tls-verify-peer"]);
    let refused = |server: &Nbdkit, scheme: &str, parameters: &str, why: &str| {
        let error = server.connect(scheme, parameters).err().unwrap();
        assert!(error.contains(why), "{why}: {error}");
    };
    let (own, name) = (trusted.path(), NAME);
    refused(
        &server,
        "nbds+unix",
        &trusting(own, "other.example"),
        "not valid for name",
    );
    refused(
        &server,
        "nbds+unix",
        &trusting(strange.path(), name),
        "certificate",
    );
    refused(&server, "nbd+unix", "", "requires TLS");
    let nameless = format!("tls-certificates={}", own.display());
    refused(
        &server,
        "nbds+unix",
        &nameless,
        "tls-hostname=NAME is needed",
    );
    let plain = Nbdkit::start(&["--tls=off"]);
    refused(
        &plain,
        "nbds+unix",
        &trusting(own, name),
        "the server has no TLS",
    );
    fs::remove_file(trusted.join("client-cert.pem")).unwrap();
    // The server does not let in a client without a certificate.
    assert!(server.connect("nbds+unix", &trusting(own, name)).is_err());
    fs::remove_file(trusted.join("ca-cert.pem")).unwrap();
    refused(&server, "nbds+unix", &trusting(own, name), "ca-cert.pem");
}
