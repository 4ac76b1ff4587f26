//! What a keeper does for its daemon; [`crate::keeper`] is the daemon's end, and has the questions.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use tracing::debug;

use crate::capabilities;
use crate::fd_passing::{receive, send};
use crate::keeper::{
    ANSWER_LEN, CAPABILITIES, DETACH, DETACH_LAZILY, DIAL, DIALS, DONE, FAILED, FAREWELL, IS_THERE,
    MOUNT, MOUNT_READ_ONLY, NOT, QUESTION_LEN, RAISE_LIMITS, WRITE_BACK,
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
    });
    service.serve_apart("write-back", rustix::stdio::stdout())?;
    service.serve(rustix::stdio::stdin())
}

impl Service {
    /// Has a thread of its own answer the questions of one socket.
    fn serve_apart(
        self: &Arc<Self>,
        name: &str,
        socket: impl AsFd + Send + 'static,
    ) -> io::Result<()> {
        let service = Arc::clone(self);
        let thread = thread::Builder::new().name(name.into());
        thread.spawn(move || {
            if let Err(error) = service.serve(socket.as_fd()) {
                debug!("questions are not heard any more: {error}");
            }
        })?;
        Ok(())
    }

    /// Answers the questions of one socket until its other end is gone.
    fn serve(self: &Arc<Self>, socket: BorrowedFd<'_>) -> io::Result<Left> {
        loop {
            let mut question = [0; QUESTION_LEN];
            let (len, fd) = receive(socket, &mut question)?;
            match question.get(..len).unwrap_or(&question) {
                [] if self.point.get().is_some() => return Ok(Left::Dead),
                [] | [FAREWELL] => return Ok(Left::InOrder),
                question => self.answer(socket, question, fd)?,
            }
        }
    }

    fn answer(
        self: &Arc<Self>,
        socket: BorrowedFd<'_>,
        question: &[u8],
        given: Option<OwnedFd>,
    ) -> io::Result<()> {
        let mut fd = None;
        let mut with = |made: OwnedFd| {
            fd = Some(made);
            vec![DONE]
        };
        let outcome = match question {
            [MOUNT | MOUNT_READ_ONLY] => self.mount(question == [MOUNT_READ_ONLY]).map(&mut with),
            [CAPABILITIES, tid @ ..] => capabilities_of(tid),
            [DIALS] => match given {
                Some(line) => self.serve_apart("dial", line).map(|()| vec![DONE]),
                None => Err(Errno::INVAL.into()),
            },
            [DIAL, millis @ ..] => number(millis)
                .and_then(|millis| (self.dial)(Duration::from_millis(millis.into())))
                .map(&mut with),
            &[question] => {
                let done = self.point().and_then(|point| on(point, question));
                done.map(|yes| vec![if yes { DONE } else { NOT }])
            }
            _ => Err(Errno::INVAL.into()),
        };
        let answer = match outcome {
            Ok(answer) => answer,
            Err(error) => {
                let mut answer = vec![FAILED];
                // Zero says that the error has no number.
                answer.extend(error.raw_os_error().unwrap_or(0).to_le_bytes());
                answer.extend(error.to_string().into_bytes());
                answer.truncate(ANSWER_LEN);
                answer
            }
        };
        // Our `/dev/fuse` is closed with `fd`: the daemon's alone keeps the mount alive.
        Ok(send(socket, &answer, fd.as_ref().map(AsFd::as_fd))?)
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

/// The number behind a question.
fn number(bytes: &[u8]) -> io::Result<u32> {
    let bytes = bytes.try_into().map_err(|_| Errno::INVAL)?;
    Ok(u32::from_le_bytes(bytes))
}

/// The answer about the thread with the number in `tid`.
fn capabilities_of(tid: &[u8]) -> io::Result<Vec<u8>> {
    let found = capabilities::of_thread(number(tid)?)?;
    Ok([&[DONE][..], &found.bits().to_le_bytes()].concat())
}

/// Does what a question about the mount at `point` asks for.
fn on(point: &MountPoint, question: u8) -> io::Result<bool> {
    match question {
        RAISE_LIMITS => point.raise_limits().map(|()| true),
        IS_THERE => Ok(point.is_there()),
        DETACH | DETACH_LAZILY => point.detach(question == DETACH_LAZILY).map(|()| true),
        WRITE_BACK => point.write_back().map(|()| true),
        _ => Err(Errno::INVAL.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::Line;

    /// A keeper without a mount, as a thread: its answers to these questions.
    fn answers(questions: &[u8]) -> Vec<String> {
        let (line, its) = Line::pair().unwrap();
        let service = Arc::new(Service {
            source: "image".into(),
            dir: "/nowhere/at/all".into(),
            options: MountOptions::default(),
            point: OnceLock::new(),
            dial: Box::new(|_| Err(io::ErrorKind::ConnectionRefused.into())),
        });
        let thread = thread::spawn(move || service.serve(its.as_fd()).unwrap());
        let said = questions
            .iter()
            .map(|&question| match line.ask(&[question], None) {
                Ok((answer, _)) => String::from_utf8_lossy(&answer).into_owned(),
                Err(error) => error.to_string(),
            });
        let said = said.collect();
        drop(line);
        assert_eq!(thread.join().unwrap(), Left::InOrder);
        said
    }

    #[test]
    fn questions_that_cannot_be_answered_are_refused() {
        let said = answers(&[MOUNT, DETACH, WRITE_BACK, 0, 255]);
        assert!(said[0].contains("No such file"), "{said:?}");
        assert!(said[1].contains("not connected"), "{said:?}");
        assert!(said[2..].iter().all(|s| s == &said[1]), "{said:?}");
    }

    #[test]
    fn a_dead_keeper_is_an_error() {
        let said = answers(&[FAREWELL, IS_THERE]);
        assert!(said.iter().all(|s| s.contains("has died")), "{said:?}");
    }
}
