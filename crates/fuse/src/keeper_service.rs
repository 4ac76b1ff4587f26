//! What a keeper does for its daemon; [`crate::keeper`] is the daemon's end, and has the questions.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use tracing::debug;

use crate::capabilities::{self, Caller};
use crate::fd_passing::{receive, send};
use crate::keeper::{
    ANSWER_LEN, CAPABILITIES, DETACH, DETACH_LAZILY, DIAL, DIALS, DONE, FAILED, FAREWELL, IS_THERE,
    MEMBERSHIP, MOUNT, MOUNT_READ_ONLY, NOT, QUESTION_LEN, SET_LIMITS, WRITE_BACK,
};
use crate::mount::{self, Attached, MountOptions, MountPoint};

/// How a daemon left its keeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// In order, or before there was a mount.
    InOrder,
    /// It has died, and its mount with it.
    Dead,
}

/// What a keeper serves.
struct Service {
    source: String,
    dir: PathBuf,
    options: MountOptions,
    point: OnceLock<MountPoint>,
    dial: Box<Dial>,
    /// Set by the one question for a socket that asks for connections.
    dials: OnceLock<()>,
}

/// The purpose of a socket. It takes the questions of its purpose: what waits keeps no other one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Mount,
    WriteBack,
    Dial,
}

impl Purpose {
    /// Returns whether a socket for this takes questions that begin with `word`.
    fn takes(self, word: u8) -> bool {
        match self {
            Purpose::Mount => ![WRITE_BACK, DIAL].contains(&word),
            Purpose::WriteBack => word == WRITE_BACK,
            Purpose::Dial => word == DIAL,
        }
    }
}

/// Connects to the server of the image, within this time.
type Dial = dyn Fn(Duration) -> io::Result<OwnedFd> + Send + Sync;

/// Keeps the mount of `source` on `dir` for the daemon behind standard input and output, until it
/// is gone. `dial` connects to the server of the image, if that is where it is. The process should
/// end then: a thread may still wait for the kernel, or for a server.
///
/// # Errors
/// The daemon cannot be heard.
pub fn keep(
    source: &str,
    dir: &Path,
    options: &MountOptions,
    dial: impl Fn(Duration) -> io::Result<OwnedFd> + Send + Sync + 'static,
) -> io::Result<Left> {
    let service = Arc::new(Service {
        source: source.to_owned(),
        dir: dir.to_owned(),
        options: options.clone(),
        point: OnceLock::new(),
        dial: Box::new(dial),
        dials: OnceLock::new(),
    });
    service.serve_apart("write-back", rustix::stdio::stdout(), Purpose::WriteBack)?;
    service.serve(rustix::stdio::stdin(), Purpose::Mount)
}

impl Service {
    /// Has a thread of its own answer the questions of one socket.
    fn serve_apart(
        self: &Arc<Self>,
        name: &str,
        socket: impl AsFd + Send + 'static,
        purpose: Purpose,
    ) -> io::Result<()> {
        let service = Arc::clone(self);
        let thread = thread::Builder::new().name(name.into());
        thread.spawn(move || {
            if let Err(error) = service.serve(socket.as_fd(), purpose) {
                debug!("questions are not heard any more: {error}");
            }
        })?;
        Ok(())
    }

    /// Answers the questions of one socket until its other end is gone.
    fn serve(self: &Arc<Self>, socket: BorrowedFd<'_>, purpose: Purpose) -> io::Result<Left> {
        loop {
            let mut question = [0; QUESTION_LEN];
            let (len, fd) = receive(socket, &mut question)?;
            match question.get(..len).unwrap_or(&question) {
                [] if self.point.get().is_some() => return Ok(Left::Dead),
                [] | [FAREWELL] => return Ok(Left::InOrder),
                question => {
                    let outcome = match question {
                        [word, ..] if purpose.takes(*word) => self.outcome(question, fd),
                        _ => Err(Errno::INVAL.into()),
                    };
                    answer(socket, outcome)?;
                }
            }
        }
    }

    /// Does what a question asks for: the bytes of the answer, and its descriptor.
    fn outcome(
        self: &Arc<Self>,
        question: &[u8],
        given: Option<OwnedFd>,
    ) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let with = |made| (vec![DONE], Some(made));
        let bytes = match question {
            [MOUNT | MOUNT_READ_ONLY] => {
                return self.mount(question == [MOUNT_READ_ONLY]).map(with);
            }
            [DIAL, millis @ ..] => {
                let patience = Duration::from_millis(number(millis)?.into());
                return (self.dial)(patience).map(with);
            }
            [CAPABILITIES, asked @ ..] => capabilities_of(asked),
            [MEMBERSHIP, asked @ ..] => is_in_group(asked).map(yes_or_no),
            [SET_LIMITS] => self.point()?.set_limits().map(with_number),
            [DIALS] => self.take_dials(given).map(|()| vec![DONE]),
            &[question] => on(self.point()?, question).map(yes_or_no),
            _ => Err(Errno::INVAL.into()),
        };
        Ok((bytes?, None))
    }

    /// Hears questions for connections at `socket`, the only one that it takes.
    fn take_dials(self: &Arc<Self>, socket: Option<OwnedFd>) -> io::Result<()> {
        let socket = socket.ok_or(Errno::INVAL)?;
        self.dials.set(()).map_err(|()| Errno::BUSY)?;
        self.serve_apart("dial", socket, Purpose::Dial)
    }

    /// Mounts, once.
    fn mount(&self, read_only: bool) -> io::Result<OwnedFd> {
        if self.point.get().is_some() {
            return Err(Errno::BUSY.into());
        }
        let mut options = self.options.clone();
        if read_only {
            options.set_read_only();
        }
        let Attached { fd, point } = mount::attach(&self.source, &self.dir, &options)?;
        // One socket carries this question, one at a time: nothing else has set it.
        let _ = self.point.set(point);
        Ok(fd)
    }

    fn point(&self) -> io::Result<&MountPoint> {
        self.point.get().ok_or_else(|| Errno::NOTCONN.into())
    }
}

/// Answers a question with what came of it.
fn answer(
    socket: BorrowedFd<'_>,
    outcome: io::Result<(Vec<u8>, Option<OwnedFd>)>,
) -> io::Result<()> {
    let (bytes, fd) = outcome.unwrap_or_else(|error| {
        let mut bytes = vec![FAILED];
        // Zero says that the error has no number.
        bytes.extend(error.raw_os_error().unwrap_or(0).to_le_bytes());
        bytes.extend(error.to_string().into_bytes());
        bytes.truncate(ANSWER_LEN);
        (bytes, None)
    });
    // Our `/dev/fuse` is closed with `fd`: the daemon's alone keeps the mount alive.
    Ok(send(socket, &bytes, fd.as_ref().map(AsFd::as_fd))?)
}

/// The number behind a question.
fn number(bytes: &[u8]) -> io::Result<u32> {
    let bytes = bytes.try_into().map_err(|_| Errno::INVAL)?;
    Ok(u32::from_le_bytes(bytes))
}

/// The caller that `asked` begins with, and the rest.
fn caller(asked: &[u8]) -> io::Result<(Caller, &[u8])> {
    let (tid, rest) = asked.split_at_checked(4).ok_or(Errno::INVAL)?;
    let (uid, rest) = rest.split_at_checked(4).ok_or(Errno::INVAL)?;
    let (tid, uid) = (number(tid)?, number(uid)?);
    Ok((Caller { tid, uid }, rest))
}

/// The answer about the caller in `asked`.
fn capabilities_of(asked: &[u8]) -> io::Result<Vec<u8>> {
    let (caller, []) = caller(asked)? else {
        return Err(Errno::INVAL.into());
    };
    let found = capabilities::of_caller(caller)?;
    Ok(with_number(found.bits()))
}

/// Returns whether the caller in `asked` is in the group behind it.
fn is_in_group(asked: &[u8]) -> io::Result<bool> {
    let (caller, gid) = caller(asked)?;
    capabilities::is_in_group(caller, number(gid)?)
}

fn yes_or_no(yes: bool) -> Vec<u8> {
    vec![if yes { DONE } else { NOT }]
}

/// An answer that says a number.
fn with_number(number: u64) -> Vec<u8> {
    [&[DONE][..], &number.to_le_bytes()].concat()
}

/// Does what a question about the mount at `point` asks for.
fn on(point: &MountPoint, question: u8) -> io::Result<bool> {
    match question {
        IS_THERE => Ok(point.is_topmost()),
        DETACH | DETACH_LAZILY => point.detach(question == DETACH_LAZILY).map(|()| true),
        WRITE_BACK => point.write_back().map(|()| true),
        _ => Err(Errno::INVAL.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::Line;
    use crate::mount::MountId;
    use extant_testkit::{Need, TempDir, need};
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    /// A keeper of the mount on `dir`, as a thread that answers at a socket of this purpose.
    fn keeper(dir: &Path, purpose: Purpose) -> (Line, thread::JoinHandle<Left>) {
        let (line, its) = Line::pair().unwrap();
        let service = Arc::new(Service {
            source: "image".into(),
            dir: dir.to_owned(),
            options: MountOptions::default(),
            point: OnceLock::new(),
            dial: Box::new(|_| Err(io::ErrorKind::ConnectionRefused.into())),
            dials: OnceLock::new(),
        });
        let thread = thread::spawn(move || service.serve(its.as_fd(), purpose).unwrap());
        (line, thread)
    }

    fn said(line: &Line, question: &[u8], fd: Option<BorrowedFd<'_>>) -> String {
        match line.ask(question, fd) {
            Ok((answer, _)) => String::from_utf8_lossy(&answer).into_owned(),
            Err(error) => error.to_string(),
        }
    }

    /// The answers of a keeper without a mount.
    fn answers(purpose: Purpose, questions: &[u8]) -> Vec<String> {
        let (line, thread) = keeper("/nowhere/at/all".as_ref(), purpose);
        let answers = questions.iter().map(|&word| said(&line, &[word], None));
        let answers = answers.collect();
        drop(line);
        assert_eq!(thread.join().unwrap(), Left::InOrder);
        answers
    }

    #[test]
    fn questions_that_cannot_be_answered_are_refused() {
        let said = answers(Purpose::Mount, &[MOUNT, DETACH, 0, 255]);
        assert!(said[0].contains("No such file"), "{said:?}");
        assert!(said[1].contains("not connected"), "{said:?}");
        assert!(said[2..].iter().all(|s| s == &said[1]), "{said:?}");
    }

    #[test]
    fn a_socket_takes_the_questions_of_its_purpose() {
        let refused = |said: &str| said.contains("Invalid argument");
        let apart = [WRITE_BACK, DIAL];
        assert!(answers(Purpose::Mount, &apart).iter().all(|s| refused(s)));
        let others = [MOUNT, SET_LIMITS, IS_THERE, DETACH, CAPABILITIES, DIALS];
        let others = [&others[..], &[MEMBERSHIP]].concat();
        for (purpose, other) in [(Purpose::WriteBack, DIAL), (Purpose::Dial, WRITE_BACK)] {
            let said = answers(purpose, &[&others[..], &[other]].concat());
            assert!(said.iter().all(|s| refused(s)), "{purpose:?}: {said:?}");
        }
        let (line, _) = keeper("/".as_ref(), Purpose::Mount);
        assert!(refused(&said(&line, &[DIAL, 255, 255, 255, 255], None)));
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let user = rustix::process::geteuid().as_raw();
        let of_this = [&[MEMBERSHIP][..], &own.to_le_bytes(), &user.to_le_bytes()].concat();
        let of_group = |gid: u32| [&of_this[..], &gid.to_le_bytes()].concat();
        assert_eq!(said(&line, &of_group(u32::MAX - 1), None), "-");
        assert!(refused(&said(&line, &of_this, None)));
        let (dials, its) = Line::pair().unwrap();
        assert_eq!(said(&line, &[DIALS], Some(its.as_fd())), "+");
        let (_second, its) = Line::pair().unwrap();
        let again = said(&line, &[DIALS], Some(its.as_fd()));
        assert!(again.contains("busy"), "{again}");
        let dialled = said(&dials, &[DIAL, 1, 0, 0, 0], None);
        assert!(dialled.contains("refused"), "{dialled}");
        assert!(refused(&said(&dials, &[DIALS], None)));
    }

    /// A thread of the kernel's server of NFS is root's and acts for a client: what it may do says
    /// nothing of what the user of its request may.
    #[test]
    fn a_thread_that_acts_as_another_user_has_no_privileges() {
        let (line, _) = keeper("/".as_ref(), Purpose::Mount);
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let uid = rustix::process::geteuid().as_raw();
        let own = rustix::thread::capabilities(None).unwrap().effective;
        let gid = rustix::process::getegid().as_raw();
        for (uid, expected) in [(uid, own.bits()), (uid + 1, 0)] {
            let of = [&tid.to_le_bytes()[..], &uid.to_le_bytes()].concat();
            let (found, _) = line
                .ask(&[&[CAPABILITIES][..], &of].concat(), None)
                .unwrap();
            assert_eq!(found, with_number(expected), "as {uid}");
        }
        let question = |uid: u32| {
            let of = [&tid.to_le_bytes()[..], &uid.to_le_bytes()].concat();
            [&[MEMBERSHIP][..], &of, &gid.to_le_bytes()].concat()
        };
        assert!(["+", "-"].contains(&said(&line, &question(uid), None).as_str()));
        let refused = said(&line, &question(uid + 1), None);
        assert!(refused.contains("unsupported"), "{refused}");
    }

    /// Mounts below and above its own are not the keeper's.
    #[test]
    fn only_the_own_mount_is_taken_off() {
        if !need(&[Need::Root, Need::Fuse]) {
            return;
        }
        let dir = TempDir::new("keeper").unwrap();
        let dir = dir.path();
        let mount = || mount("tmpfs", dir, "tmpfs", MountFlags::empty(), c"").unwrap();
        mount();
        let below = MountId::at(dir).unwrap();
        let (line, thread) = keeper(dir, Purpose::Mount);
        let (_, device) = line.ask(&[MOUNT], None).unwrap();
        let own = MountId::at(dir).unwrap();
        mount();
        let above = MountId::at(dir).unwrap();
        assert!(below != own && own != above && above != below);
        for word in [DETACH, DETACH_LAZILY, SET_LIMITS] {
            let refused = said(&line, &[word], None);
            assert!(refused.contains("Invalid argument"), "{refused}");
        }
        assert_eq!(said(&line, &[IS_THERE], None), "-");
        assert_eq!(MountId::at(dir).unwrap(), above);
        unmount(dir, UnmountFlags::empty()).unwrap();
        assert_eq!(said(&line, &[IS_THERE], None), "+");
        assert_eq!(said(&line, &[DETACH], None), "+");
        drop(device);
        // One that comes later may get the number of the device.
        let (second, other) = keeper(dir, Purpose::Mount);
        let device = second.ask(&[MOUNT], None).unwrap();
        for word in [DETACH, DETACH_LAZILY, IS_THERE] {
            assert_ne!(said(&line, &[word], None), "+");
        }
        assert_eq!(said(&second, &[DETACH_LAZILY], None), "+");
        drop((device, second, line));
        assert_eq!(MountId::at(dir).unwrap(), below);
        unmount(dir, UnmountFlags::empty()).unwrap();
        for thread in [thread, other] {
            assert_eq!(thread.join().unwrap(), Left::Dead);
        }
    }

    #[test]
    fn a_dead_keeper_is_an_error() {
        let said = answers(Purpose::Mount, &[FAREWELL, IS_THERE]);
        assert!(said.iter().all(|s| s.contains("has died")), "{said:?}");
    }
}
