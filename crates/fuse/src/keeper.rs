//! The keeper: a process beside a confined daemon that does what needs paths and privileges.
//!
//! # Responsibility
//! A confined daemon opens no path, starts no program and has no privileges. It asks its keeper,
//! which it starts before it confines itself. The keeper takes short questions, for one directory
//! and one set of options, and has neither the image nor `/dev/fuse`.
//!
//! ```text
//!   keeper: privileges, paths  <-- sockets -->  daemon: image, /dev/fuse, untrusted bytes
//! ```
//!
//! | the daemon asks | the keeper |
//! |---|---|
//! | [`MOUNT`], [`MOUNT_READ_ONLY`] | mounts; `/dev/fuse` comes with the answer |
//! | [`SET_LIMITS`] | sets the kernel's limits of the mount; the bytes that may be dirty |
//! | [`IS_THERE`] | looks whether the mount is on its directory |
//! | [`DETACH`], [`DETACH_LAZILY`] | takes it off, and no other mount |
//! | [`CAPABILITIES`], a thread's number and its user | looks what that thread may do, as bits |
//! | [`MEMBERSHIP`], the same and a group | looks whether that thread is in the group |
//! | [`FAREWELL`] | ends; a daemon that hangs up without it has died |
//! | [`WRITE_BACK`], on the second socket | has the kernel write back the mount's dirty pages |
//! | [`DIALS`], with a third socket, once | hears questions there as well |
//! | [`DIAL`] and milliseconds, on the third | connects to the server of the image, as `MOUNT` |
//!
//! An answer is [`DONE`], [`NOT`], or [`FAILED`] with the error's number and its words.
//!
//! # Invariants
//! The daemon may be foreign code by now. What it gets of the keeper is the table above: a socket
//! takes no question of another one, and the mount is told apart from others by its identity.
//!
//! # Concurrency
//! Writing back waits for the daemon's workers, and connecting for a server, so each has a socket
//! and a thread of its own: the mount can be taken off meanwhile. A socket carries one question at
//! a time, under its lock, a leaf. As the keeper does not hold `/dev/fuse`, a daemon that is killed
//! ends the mount, and with it what the keeper waits for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use rustix::thread::CapabilitySet;
use tracing::debug;

use crate::capabilities::Caller;
use crate::fd_passing::{receive, send};

pub(crate) const MOUNT: u8 = b'M';
pub(crate) const MOUNT_READ_ONLY: u8 = b'R';
pub(crate) const SET_LIMITS: u8 = b'L';
pub(crate) const IS_THERE: u8 = b'T';
pub(crate) const DETACH: u8 = b'U';
pub(crate) const DETACH_LAZILY: u8 = b'Z';
pub(crate) const WRITE_BACK: u8 = b'W';
pub(crate) const CAPABILITIES: u8 = b'C';
pub(crate) const MEMBERSHIP: u8 = b'G';
pub(crate) const DIALS: u8 = b'S';
pub(crate) const DIAL: u8 = b'D';
pub(crate) const FAREWELL: u8 = b'Q';

pub(crate) const DONE: u8 = b'+';
pub(crate) const NOT: u8 = b'-';
pub(crate) const FAILED: u8 = b'!';
/// How long the end of a keeper is waited for.
const FAREWELL_TIME: Duration = Duration::from_secs(1);

/// The longest question in bytes.
pub(crate) const QUESTION_LEN: usize = 1 + 3 * size_of::<u32>();
/// The longest answer in bytes.
pub(crate) const ANSWER_LEN: usize = 1024;

/// The daemon's end: a keeper that was started. Dropped, it ends.
#[derive(Debug)]
pub struct Keeper {
    child: Mutex<Child>,
    questions: Line,
    write_backs: Line,
}

/// A socket that carries one question at a time.
#[derive(Debug)]
pub(crate) struct Line {
    socket: OwnedFd,
    turn: Mutex<()>,
}

impl Keeper {
    /// Starts `command`, which has to call [`crate::keep`], with the sockets as its standard input
    /// and output.
    ///
    /// # Errors
    /// Those of starting a process.
    pub fn start(mut command: Command) -> io::Result<Arc<Keeper>> {
        let (questions, its) = Line::pair()?;
        let (write_backs, second) = Line::pair()?;
        let child = command.stdin(Stdio::from(its)).stdout(Stdio::from(second));
        Ok(Arc::new(Keeper {
            child: Mutex::new(child.spawn()?),
            questions,
            write_backs,
        }))
    }

    /// Mounts, and returns `/dev/fuse`.
    pub(crate) fn mount(&self, read_only: bool) -> io::Result<OwnedFd> {
        let question = if read_only { MOUNT_READ_ONLY } else { MOUNT };
        let (_, fd) = self.questions.ask(&[question], None)?;
        fd.ok_or_else(|| io::Error::other("the keeper has mounted, but gives no descriptor"))
    }

    /// Sets the kernel's limits of the mount. Returns the bytes that it holds dirty at most.
    pub(crate) fn set_limits(&self) -> io::Result<u64> {
        self.ask_for_number(&[SET_LIMITS])
    }

    /// Whether the mount is on its directory.
    pub(crate) fn is_there(&self) -> bool {
        let answer = self.questions.ask(&[IS_THERE], None);
        answer.is_ok_and(|(answer, _)| answer == [DONE])
    }

    pub(crate) fn detach(&self, lazy: bool) -> io::Result<()> {
        let question = if lazy { DETACH_LAZILY } else { DETACH };
        self.questions.ask(&[question], None).map(drop)
    }

    pub(crate) fn write_back(&self) -> io::Result<()> {
        self.write_backs.ask(&[WRITE_BACK], None).map(drop)
    }

    /// The capabilities of a caller.
    pub(crate) fn capabilities_of(&self, caller: Caller) -> io::Result<CapabilitySet> {
        let (tid, uid) = (caller.tid.to_le_bytes(), caller.uid.to_le_bytes());
        let bits = self.ask_for_number(&[&[CAPABILITIES][..], &tid, &uid].concat())?;
        Ok(CapabilitySet::from_bits_retain(bits))
    }

    /// Returns whether a caller is in a group.
    pub(crate) fn is_in_group(&self, caller: Caller, gid: u32) -> io::Result<bool> {
        let (tid, uid) = (caller.tid.to_le_bytes(), caller.uid.to_le_bytes());
        let question = [&[MEMBERSHIP][..], &tid, &uid, &gid.to_le_bytes()].concat();
        let (answer, _) = self.questions.ask(&question, None)?;
        Ok(answer == [DONE])
    }

    fn ask_for_number(&self, question: &[u8]) -> io::Result<u64> {
        let (answer, _) = self.questions.ask(question, None)?;
        let number = answer.get(1..).and_then(|number| number.try_into().ok());
        Ok(number
            .map(u64::from_le_bytes)
            .ok_or(io::ErrorKind::InvalidData)?)
    }

    /// Returns what has the keeper connect to the server of the image, within the time that it is
    /// given. Call it before the process confines itself.
    ///
    /// # Errors
    /// The host has no socket; the keeper has died.
    pub fn dialer(&self) -> io::Result<impl Fn(Duration) -> io::Result<OwnedFd> + use<>> {
        let (dials, its) = Line::pair()?;
        self.questions.ask(&[DIALS], Some(its.as_fd()))?;
        Ok(move |patience: Duration| {
            // A longer time is as good as this one.
            let millis = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
            let [a, b, c, d] = millis.to_le_bytes();
            let (_, fd) = dials.ask(&[DIAL, a, b, c, d], None)?;
            fd.ok_or_else(|| io::Error::other("the keeper has connected, but gives no descriptor"))
        })
    }

    /// Ends the keeper, in order, and waits a while for its end. Questions that wait for an answer
    /// fail.
    pub fn end(&self) {
        // A keeper that has died hears nothing.
        let _ = send(&self.questions.socket, &[FAREWELL], None);
        for line in [&self.questions, &self.write_backs] {
            let _ = shutdown(&line.socket, Shutdown::Both);
        }
        // It may wait for requests that end only when this process has closed `/dev/fuse`.
        let until = Instant::now() + FAREWELL_TIME;
        let mut child = self.child.lock();
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        debug!("the keeper ended: {:?}", child.try_wait());
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

impl Line {
    /// A line, and its other end.
    pub(crate) fn pair() -> io::Result<(Line, OwnedFd)> {
        let kind = SocketType::SEQPACKET;
        let (socket, other) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        let turn = Mutex::new(());
        Ok((Line { socket, turn }, other))
    }

    /// Asks one question, with a descriptor, and waits for the answer.
    pub(crate) fn ask(
        &self,
        question: &[u8],
        fd: Option<BorrowedFd<'_>>,
    ) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let _turn = self.turn.lock();
        let gone = || io::Error::other("the process that keeps the mount has died");
        send(&self.socket, question, fd).map_err(|_| gone())?;
        let mut answer = vec![0; ANSWER_LEN];
        let (len, fd) = receive(&self.socket, &mut answer)?;
        answer.truncate(len);
        match answer.as_slice() {
            [FAILED, rest @ ..] => Err(error_of(rest)),
            [] => Err(gone()),
            _ => Ok((answer, fd)),
        }
    }
}

/// The error behind [`FAILED`]: its number, and its words where it has none.
fn error_of(answer: &[u8]) -> io::Error {
    let Some((number, words)) = answer.split_first_chunk() else {
        return io::ErrorKind::InvalidData.into();
    };
    match i32::from_le_bytes(*number) {
        0 => io::Error::other(String::from_utf8_lossy(words).into_owned()),
        number => io::Error::from_raw_os_error(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_words_where_they_have_no_number() {
        let answer = [&0_i32.to_le_bytes()[..], b"in words"].concat();
        assert_eq!(error_of(&answer).to_string(), "in words");
        let busy = error_of(&16_i32.to_le_bytes());
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(error_of(&[1]).kind(), io::ErrorKind::InvalidData);
    }
}
