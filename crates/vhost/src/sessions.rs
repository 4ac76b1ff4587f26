//! The sessions of a guest's kernel with a volume, one after the other, and their workers.
//!
//! A session begins with INIT and ends with DESTROY, or with the INIT of a guest that was restarted
//! meanwhile. Requests outside of one are refused.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use extant_fuse::{GuestSession, GuestVolume};
use tracing::warn;

use crate::broken::Broken;
use crate::jobs::{Job, Jobs};

/// Threads that serve requests.
pub(crate) const WORKERS: usize = 8;

/// Serves `jobs` until there will be no more.
pub(crate) fn serve_sessions(volume: &GuestVolume, jobs: &Jobs) {
    let mut memory = Memory::default();
    while let Some(job) = jobs.next(|| false) {
        let Some(request) = memory.request(&job) else {
            continue;
        };
        if !GuestVolume::is_init(request) {
            let refusal = GuestVolume::refusal(request);
            deliver(&job, &refusal);
            job.complete(refusal.len());
            continue;
        }
        let begun = volume.session(request, |session, reply| {
            let arrived = deliver(&job, reply);
            job.complete(reply.len());
            match session {
                Some(session) if arrived => serve_session(session, jobs),
                _ => Ok(()),
            }
        });
        if let Err(error) = begun.and_then(|served| served) {
            warn!("a guest's mount has ended: {error}");
        }
    }
}

/// Serves one session.
fn serve_session(session: &GuestSession<'_>, jobs: &Jobs) -> io::Result<()> {
    let ended = AtomicBool::new(false);
    let work = |number: usize| {
        let mut worker = Worker {
            session,
            number,
            jobs,
            memory: Memory::default(),
        };
        while let Some(job) = jobs.next(|| ended.load(Ordering::Acquire)) {
            let end = || {
                ended.store(true, Ordering::Release);
                jobs.wake_all();
            };
            worker.serve(job, end);
        }
    };
    thread::scope(|scope| {
        for number in 1..WORKERS {
            let worker = thread::Builder::new().name(format!("fuse-{number}"));
            // Fewer will do.
            if let Err(error) = worker.spawn_scoped(scope, move || work(number)) {
                warn!("a worker less: {error}");
                break;
            }
        }
        work(0);
    });
    Ok(())
}

/// A thread that serves the requests of a session.
struct Worker<'a> {
    session: &'a GuestSession<'a>,
    number: usize,
    jobs: &'a Jobs,
    memory: Memory,
}

impl Worker<'_> {
    /// Serves one request. Calls `end` if the session is over: before the guest hears of it and
    /// sends what is of the next one.
    fn serve(&mut self, job: Job, end: impl FnOnce()) {
        let Some((request, room)) = self.memory.request_and_room(&job) else {
            return;
        };
        if GuestVolume::is_init(request) {
            // The guest has forgotten the session.
            self.jobs.put_back(job);
            return end();
        }
        let mut len = 0;
        let is_over = self.session.serve(self.number, request, room, |reply| {
            len = reply.len();
            deliver(&job, reply)
        });
        if is_over {
            end();
        }
        job.complete(len);
    }
}

/// Writes a reply to the guest. Returns whether it arrived.
fn deliver(job: &Job, reply: &[u8]) -> bool {
    let written = job.chain.write(0, reply);
    if let Err(broken) = written {
        let _: Option<()> = job.give_up(broken);
    }
    written.is_ok()
}

/// A worker's memory for a request and its reply, made when it is first needed.
#[derive(Default)]
struct Memory {
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Memory {
    /// The bytes of a request; nothing if it is none, and its queue is broken.
    fn request(&mut self, job: &Job) -> Option<&[u8]> {
        self.request_and_room(job).map(|(request, _)| request)
    }

    /// The same, and the room for its reply that the guest has given, or what the server needs.
    fn request_and_room(&mut self, job: &Job) -> Option<(&[u8], &mut [u8])> {
        let len = job.chain.request.len();
        if len > GuestVolume::REQUEST_LEN {
            return job.give_up(Broken::Length);
        }
        let most = GuestVolume::REPLY_LEN;
        let room = job.chain.answer.len().clamp(GuestVolume::LEAST_REPLY, most);
        if !has(&mut self.request, len) || !has(&mut self.reply, room) {
            return job.give_up(Broken::NoAnswer);
        }
        let request = &mut self.request[..len];
        if let Err(broken) = job.chain.read(0, request) {
            return job.give_up(broken);
        }
        Some((request, &mut self.reply[..room]))
    }
}

/// Makes `bytes` at least `len` long; returns whether there was memory for it.
fn has(bytes: &mut Vec<u8>, len: usize) -> bool {
    let more = len.saturating_sub(bytes.len());
    if more > 0 && bytes.try_reserve_exact(more).is_err() {
        return false;
    }
    if more > 0 {
        bytes.resize(len, 0);
    }
    true
}
