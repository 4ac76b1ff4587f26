//! Calls that the model runs: pushes and runs of gc, with the answers that they had so far.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use extant_blockdev::MemoryDevice;
use parking_lot::Mutex;

use super::shelf::{Answer, Sent, Shelf};
use crate::doomed;
use crate::error::{Error, Result};
use crate::gc::{GcOptions, gc};
use crate::host::{Deadline, Host};
use crate::push::{PushOptions, push};
use crate::requests::{Children, Marks, Requests};
use crate::store::Store;

/// Bytes of a chunk.
const CHUNK: usize = 4096;

/// A call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    /// A push of an image whose chunks have these letters in them.
    Push(&'static str, &'static str),
    Gc {
        keep: Option<usize>,
    },
}

impl Call {
    fn run(self, store: &Store) -> Result<()> {
        match self {
            Self::Push(_, letters) => {
                let chunks = letters.bytes().flat_map(|letter| [letter; CHUNK]);
                let image = MemoryDevice::from_bytes(&chunks.collect::<Vec<_>>());
                let options = PushOptions {
                    chunk_bytes: 4096,
                    threads: 1,
                    resend: false,
                };
                push(store, &image, options, &|| true, &|_| {}).map(drop)
            }
            Self::Gc { keep } => {
                let options = GcOptions {
                    keep: keep.and_then(NonZeroUsize::new),
                    dry_run: false,
                };
                gc(store, options, &|_, _| {}).map(drop)
            }
        }
    }

    fn store(self, requests: Box<dyn Requests>, host: Arc<dyn Host>) -> Store {
        let image = match self {
            Self::Push(name, _) => Some(format!("s3://bucket/{name}").parse().unwrap()),
            Self::Gc { .. } => None,
        };
        Store::new(image, requests, host)
    }

    /// Runs all of it at the time `now`, with nothing beside it.
    pub(super) fn run_alone(self, shelf: &mut Shelf, now: u64) {
        let alone = Alone(Arc::new(Mutex::new((std::mem::take(shelf), now))));
        let host = Clock {
            call: self,
            tape: Mutex::new(None),
            now,
            randoms: Mutex::new(now),
        };
        let ended = self.run(&self.store(Box::new(alone.clone()), Arc::new(host)));
        *shelf = std::mem::take(&mut alone.0.lock().0);
        ended.unwrap();
    }
}

/// The time at which an answer came, and the answer. The first entry is the start.
pub(super) type History = Vec<(u64, Option<Answer>)>;

/// Clocks that a call looks at between two requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Looked {
    No,
    /// Only that of the time since the boot, which a call compares with its start.
    Uptime,
    /// The wall clock, whose time a run of gc writes to the store.
    Wall,
}

/// A call up to its next request.
#[derive(Debug)]
pub(super) struct Progress {
    /// `None` when it has ended.
    pub(super) sent: Option<Sent>,
    /// The clocks that it looked at since the last answer.
    pub(super) looked: Looked,
    pub(super) error: Option<Error>,
}

/// The answers of a call while it runs.
#[derive(Debug)]
struct Tape {
    history: History,
    at: usize,
    sent: Option<Sent>,
    looked: Looked,
}

/// Runs a call until it needs an answer that `history` does not have.
pub(super) fn replay(call: Call, number: usize, history: History) -> Progress {
    let tape = Arc::new(Mutex::new(Tape {
        history,
        at: 0,
        sent: None,
        looked: Looked::No,
    }));
    let host = Clock {
        call,
        tape: Mutex::new(Some(Arc::clone(&tape))),
        now: 0,
        randoms: Mutex::new(number as u64 * 1000),
    };
    let store = call.store(Box::new(Taped(Arc::clone(&tape))), Arc::new(host));
    let ended = call.run(&store);
    let mut tape = tape.lock();
    let sent = tape.sent.take();
    Progress {
        error: ended.err().filter(|_| sent.is_none()),
        sent,
        looked: tape.looked,
    }
}

/// Clocks of a model: one moment, or those of a tape.
struct Clock {
    call: Call,
    tape: Mutex<Option<Arc<Mutex<Tape>>>>,
    now: u64,
    randoms: Mutex<u64>,
}

impl Clock {
    fn now(&self, looked: Looked) -> u64 {
        let Some(tape) = &*self.tape.lock() else {
            return self.now;
        };
        let mut tape = tape.lock();
        if tape.sent.is_none() && tape.at + 1 == tape.history.len() {
            tape.looked = tape.looked.max(looked);
        }
        tape.history[tape.at].0
    }
}

impl Host for Clock {
    fn uptime(&self) -> Duration {
        Duration::from_secs(self.now(Looked::Uptime))
    }

    /// That of a push stands still: it is only for users.
    fn wall(&self) -> u64 {
        match self.call {
            Call::Push(..) => 0,
            Call::Gc { .. } => self.now(Looked::Wall),
        }
    }

    fn boot(&self) -> [u8; 16] {
        [1; 16]
    }

    fn random(&self) -> u64 {
        let mut last = self.randoms.lock();
        *last += 1;
        *last
    }
}

/// Sends single requests.
trait Sender: Send + Sync {
    fn send(&self, sent: Sent) -> Result<Answer>;
}

/// Answers by a tape. What it has no answer to fails, and all that comes then.
struct Taped(Arc<Mutex<Tape>>);

impl Sender for Taped {
    fn send(&self, sent: Sent) -> Result<Answer> {
        let mut tape = self.0.lock();
        let next = tape.at + 1;
        if next < tape.history.len() {
            tape.at = next;
            return Ok(tape.history[next].1.clone().expect("an answer"));
        }
        tape.sent.get_or_insert(sent);
        Err(Error::NoImage)
    }
}

/// Carries out requests at once.
#[derive(Clone)]
struct Alone(Arc<Mutex<(Shelf, u64)>>);

impl Sender for Alone {
    fn send(&self, sent: Sent) -> Result<Answer> {
        let (shelf, now) = &mut *self.0.lock();
        Ok(shelf.carry_out(&sent, *now))
    }
}

impl<S: Sender> Requests for S {
    fn get(&self, object: &str, _: u64) -> Result<Option<(Vec<u8>, Marks)>> {
        match self.send(Sent::Get(object.into()))? {
            Answer::Got(got) => Ok(got.map(|(content, marks)| (content.to_vec(), marks))),
            other => panic!("{other:?}"),
        }
    }

    fn look(&self, object: &str) -> Result<Option<Marks>> {
        match self.send(Sent::Look(object.into()))? {
            Answer::Looked(marks) => Ok(marks),
            other => panic!("{other:?}"),
        }
    }

    fn put(&self, object: &str, content: Vec<u8>) -> Result<()> {
        self.send(Sent::Put(object.into(), content.into()))
            .map(drop)
    }

    fn create(&self, object: &str, content: Vec<u8>) -> Result<bool> {
        match self.send(Sent::Create(object.into(), content.into()))? {
            Answer::Created(is_new) => Ok(is_new),
            other => panic!("{other:?}"),
        }
    }

    fn remove(&self, objects: &[String], until: Option<&Deadline>) -> Result<()> {
        for object in objects {
            if until.is_some_and(Deadline::is_over) {
                break;
            }
            self.send(Sent::Remove(object.as_str().into()))?;
        }
        Ok(())
    }

    /// That of the lists is not one moment: objects come and go between its pages.
    fn children(&self, folder: &str) -> Result<Children> {
        let mut all = Children::default();
        loop {
            let behind = all.objects.last().map(|(name, _)| name.clone());
            let sent = match folder {
                doomed::FOLDER => Sent::Page(folder.into(), behind.unwrap_or_default()),
                _ => Sent::Children(folder.into()),
            };
            let Answer::Listed(mut page) = self.send(sent)? else {
                panic!("no listing");
            };
            let is_last = folder != doomed::FOLDER || page.objects.is_empty();
            all.objects.append(&mut page.objects);
            if is_last {
                all.folders = page.folders;
                return Ok(all);
            }
        }
    }

    fn walk(&self, folder: &str, each: &mut dyn FnMut(&str, Marks) -> Result<()>) -> Result<()> {
        let Answer::Walked(found) = self.send(Sent::Walk(folder.into()))? else {
            panic!("no listing");
        };
        found
            .iter()
            .try_for_each(|(path, marks)| each(path, *marks))
    }
}
