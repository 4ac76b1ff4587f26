//! A process that has confined itself is refused what it may not do.
//!
//! Each attempt is made by a process of its own, which calls the function that the daemon of a
//! mount calls, and then tries: this program, started to run the test `child` alone.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::num::NonZeroU32;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio, exit};
use std::{env, thread};

use extant_sandbox::Profile;
use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr};
use rustix::fs::{AtFlags, CWD, OFlags, StatxFlags, fcntl_setfl, statx};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{
    AddressFamily, Protocol, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketType, sendmsg,
    sendto, socket,
};
use rustix::process::{Resource, Rlimit, Signal, getppid, getrlimit, kill_process, prlimit};
use rustix::stdio::stdout;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The outcome of an attempt.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Outcome {
    Done,
    /// An error of the kernel, by its number.
    Error(i32),
    /// The process is ended by SIGSYS.
    Killed,
}
use Outcome::{Done, Error, Killed};

const EACCES: i32 = 13;
/// Error that rustix makes of a kernel that refuses statx(2) whatever it is asked.
const ENOSYS: i32 = 38;
const SIGABRT: i32 = 6;
const SIGSYS: i32 = 31;
/// Exit statuses from here on are errors of the kernel.
const ERRORS: i32 = 100;

/// `O_ASYNC`.
const O_ASYNC: u32 = 0x2000;
/// A limit.
const FEW: Rlimit = Rlimit {
    current: Some(3),
    maximum: Some(3),
};

/// Says to `child` what to try: a profile, an attempt, a port.
const VARIABLE: &str = "EXTANT_SANDBOX_ATTEMPT";

type Attempt = (&'static str, fn(u16) -> io::Result<()>);

/// Attempts, by name.
const ATTEMPTS: &[Attempt] = &[
    ("nothing", |_| Ok(())),
    ("read", |_| File::open("/proc/self/exe").map(drop)),
    ("open", |_| File::open("/etc/passwd").map(drop)),
    ("stat", |_| fs::metadata("/etc/passwd").map(drop)),
    ("list", |_| fs::read_dir("/").map(drop)),
    ("exec", |_| Err(Command::new("/bin/true").exec())),
    ("spawn", |_| Command::new("/bin/true").status().map(drop)),
    ("signal", |_| {
        let parent = getppid().unwrap();
        Ok(kill_process(parent, Signal::CONT)?)
    }),
    ("packet socket", |_| {
        Ok(socket(AddressFamily::PACKET, SocketType::RAW, None).map(drop)?)
    }),
    ("udp", |_| UdpSocket::bind("127.0.0.1:0").map(drop)),
    ("unix", |_| UnixStream::connect("/nowhere").map(drop)),
    ("abstract socket", |port| {
        UnixStream::connect_addr(&abstract_socket(port)?).map(drop)
    }),
    ("tcp", |port| {
        TcpStream::connect(("127.0.0.1", port)).map(drop)
    }),
    ("multipath tcp", |_| {
        const MPTCP: Option<Protocol> = Some(Protocol::from_raw(NonZeroU32::new(262).unwrap()));
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        Ok(socket(family, kind, MPTCP).map(drop)?)
    }),
    ("limit of another", |_| {
        Ok(prlimit(getppid(), Resource::Nofile, FEW).map(drop)?)
    }),
    ("limit of its own", |_| {
        Ok(prlimit(None, Resource::Nofile, FEW).map(drop)?)
    }),
    ("limits", |_| {
        getrlimit(Resource::Stack);
        Ok(())
    }),
    ("processor of another", |_| {
        Ok(sched_setaffinity(getppid(), &CpuSet::new())?)
    }),
    ("processor of its own", |_| {
        Ok(sched_setaffinity(None, &sched_getaffinity(None)?)?)
    }),
    ("another descriptor", |_| {
        Ok(fcntl_dupfd_cloexec(stdout(), 0).map(drop)?)
    }),
    ("signals of a file", |_| {
        Ok(fcntl_setfl(stdout(), OFlags::from_bits_retain(O_ASYNC))?)
    }),
    ("stat by an empty path", |_| {
        Ok(statx(stdout(), "", AtFlags::EMPTY_PATH, StatxFlags::INO).map(drop)?)
    }),
    ("stat past an empty path", |_| {
        let flags = AtFlags::EMPTY_PATH;
        Ok(statx(CWD, "/etc/passwd", flags, StatxFlags::INO).map(drop)?)
    }),
    ("message to an address", |_| {
        let to = SocketAddrUnix::new("/nowhere")?;
        Ok(sendto(stdout(), b"x", SendFlags::NOSIGNAL, &to).map(drop)?)
    }),
    ("message with more", |_| {
        let (data, mut more) = ([IoSlice::new(b"x")], SendAncillaryBuffer::default());
        let sent = sendmsg(stdout(), &data, &mut more, SendFlags::NOSIGNAL);
        Ok(sent.map(drop)?)
    }),
    ("chroot", |_| Ok(rustix::process::chroot("/")?)),
    ("thread", |_| {
        thread::spawn(|| ())
            .join()
            .map_err(|_| io::ErrorKind::Other.into())
    }),
    ("thread opens", |_| {
        let opened = thread::spawn(|| File::open("/etc/passwd").map(drop));
        opened.join().unwrap()
    }),
    ("memory", |_| {
        let bytes = vec![1_u8; 64 << 20];
        drop(bytes);
        Ok(())
    }),
    ("processors", |_| thread::available_parallelism().map(drop)),
    ("abort", |_| std::process::abort()),
];

/// Counters that a process reports of itself, instead of an attempt, by their index.
const REPORTED: &[(&str, usize)] = &[
    ("landlock", 1),
    ("no new privileges", 2),
    ("capabilities", 3),
];

fn kernel_has_landlock() -> bool {
    let asked = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let handled = asked.handle_access(AccessFs::from_all(ABI::V1));
    handled.and_then(Ruleset::create).is_ok()
}

/// The socket without a path that the test listens at.
fn abstract_socket(port: u16) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("extant-{port}"))
}

/// The profiles, by name.
fn profile(name: &str) -> Profile {
    let rings = name == "rings";
    Profile {
        rings,
        ..Profile::default()
    }
}

/// The main function of the processes of the tests below. It does nothing in a run of the suite
/// itself.
#[test]
fn child() {
    let Ok(words) = env::var(VARIABLE) else {
        return;
    };
    let words: Vec<&str> = words.split(',').collect();
    let [profile_name, name, port] = words.as_slice() else {
        panic!("{words:?}");
    };
    let port: u16 = port.parse().unwrap();
    let report = extant_sandbox::enter(&profile(profile_name)).unwrap();
    if let Some((_, at)) = REPORTED.iter().find(|(known, _)| known == name) {
        exit(report.counters()[*at].1.try_into().unwrap());
    }
    let (_, make) = ATTEMPTS.iter().find(|(known, _)| known == name).unwrap();
    match make(port) {
        Ok(()) => exit(0),
        Err(error) => exit(ERRORS + error.raw_os_error().unwrap_or(0)),
    }
}

/// Runs `child` for one attempt.
fn run(profile: &str, name: &str, port: u16) -> ExitStatus {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "child", "--nocapture"]);
    child.env(VARIABLE, format!("{profile},{name},{port}"));
    child.stdout(Stdio::null()).status().unwrap()
}

/// Returns the outcome of the attempt `name` in a process with that profile.
fn outcome(profile: &str, name: &str, port: u16) -> Outcome {
    let status = run(profile, name, port);
    match (status.signal(), status.code()) {
        (Some(SIGSYS), _) => Killed,
        (None, Some(0)) => Done,
        (None, Some(code)) if code >= ERRORS => Error(code - ERRORS),
        other => panic!("{profile}: {name}: {other:?}"),
    }
}

#[test]
fn every_attempt_comes_to_what_it_should() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let _listener = UnixListener::bind_addr(&abstract_socket(port).unwrap()).unwrap();
    for profile in ["file", "rings"] {
        for (name, expected) in [
            ("nothing", Done),
            ("open", Error(EACCES)),
            ("read", Error(EACCES)),
            ("stat", Error(EACCES)),
            ("list", Error(EACCES)),
            ("thread opens", Error(EACCES)),
            ("exec", Killed),
            ("spawn", Killed),
            ("signal", Killed),
            ("packet socket", Killed),
            ("udp", Killed),
            ("unix", Killed),
            ("abstract socket", Killed),
            ("tcp", Killed),
            ("multipath tcp", Killed),
            ("chroot", Killed),
            ("limit of another", Killed),
            ("limit of its own", Killed),
            ("limits", Done),
            ("processor of another", Killed),
            ("another descriptor", Killed),
            ("signals of a file", Killed),
            ("stat by an empty path", Error(ENOSYS)),
            ("stat past an empty path", Error(ENOSYS)),
            ("message to an address", Killed),
            ("message with more", Killed),
            ("thread", Done),
            ("memory", Done),
            ("processors", Done),
        ] {
            assert_eq!(outcome(profile, name, port), expected, "{profile}: {name}");
        }
    }
    assert_eq!(outcome("rings", "processor of its own", port), Done);
    assert_eq!(outcome("file", "processor of its own", port), Killed);
    let landlock = run("file", "landlock", port).code();
    assert_eq!(landlock > Some(0), kernel_has_landlock());
}

#[test]
fn no_capability_is_left() {
    for profile in ["file", "rings"] {
        assert_eq!(run(profile, "capabilities", 9).code(), Some(0), "{profile}");
        assert_eq!(run(profile, "no new privileges", 9).code(), Some(1));
    }
}

#[test]
fn an_abort_shows_as_one() {
    assert_eq!(run("file", "abort", 9).signal(), Some(SIGABRT));
}
