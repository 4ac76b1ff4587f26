//! Removal of the objects that no version names.
//!
//! # Concurrency
//! Runs and pushes may go on at any time, beside each other. There are no locks; they rely on time:
//!
//! ```text
//!   a run of gc lists the doomed        removes what is listed     removes the list
//!          |<--------- GRACE ----------->| and in no version         |
//!          |                             |<--------- GRACE --------->|
//!   push --+-- has not seen the list:    |
//!          |   its version is there -----+ in 3/4 GRACE
//!          +-- has seen it: uses no object of it, but the next generation
//! ```
//!
//! 1. A push that relies on a listed object read the lists before this one was made. Its version is
//!    there before the list is [`GRACE`] old, and `sweep` looks at all versions after that.
//! 2. A run that sweeps a list found no mark of it, and then the list itself. The last removal is
//!    3/4 `GRACE` later at most. The list goes when its mark is `GRACE` old, so there is no sweep
//!    left then that could remove what a later push relies on.
//! 3. The list goes before its mark, and a run looks for the mark before the list: a list that goes
//!    meanwhile is not taken for one without a mark. Names of lists are not used twice.
//! 4. Time between runs is counted by the server's clock and by that of the host, and within one
//!    boot by the clock that cannot be set: by the one that counts the fewest.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::doomed::{self, Content, DoomList, Moment};
use crate::error::{Error, Result};
use crate::host::Deadline;
use crate::lists::{GRACE, HALF};
use crate::live::{self, ContentSet};
use crate::object_name::ObjectName;
use crate::store::Store;
use crate::version;

/// Objects that are removed by one call.
const BATCH: usize = 500;

/// The most lists of a store that a run adds to. What is dead beyond waits for the next run.
const MOST_LISTS: usize = 256;

/// The object that tells the server's time.
const CLOCK: &str = "gc/clock";

/// Options of [`gc()`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GcOptions {
    /// Removes all but the last so many versions of each image.
    pub keep: Option<NonZeroUsize>,
    /// Changes nothing.
    pub dry_run: bool,
}

/// Objects, and their bytes in the store.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Amount {
    /// Chunks.
    pub chunks: u64,
    /// Manifests.
    pub manifests: u64,
    /// Bytes of both.
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, content: &Content, bytes: u64) {
        match content {
            Content::Chunk(_) => self.chunks += 1,
            Content::Manifest(_) => self.manifests += 1,
        }
        self.bytes += bytes;
    }
}

/// The outcome of [`gc()`]. A dry run tells what would have been.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Collected {
    /// Versions that were removed.
    pub versions: u64,
    /// Objects that were removed: they had been listed for [`GRACE`].
    pub removed: Amount,
    /// Objects that no version names, and that are not removed yet.
    pub waiting: Amount,
    /// The time until a run removes more, if anything waits.
    pub next: Option<Duration>,
    /// The run took too long to remove all: the next one goes on.
    pub unfinished: bool,
}

/// Removes what was listed long enough ago and is in no version, and lists what else is in no
/// version, for a later run. Calls `progress` with the versions that are read or the objects that
/// are removed, and their number.
///
/// # Errors
/// A failed request; a version, manifest or list that cannot be read: nothing more is removed
/// then. [`Error::NoStore`] if nothing is there.
pub fn gc(store: &Store, options: GcOptions, progress: &dyn Fn(u64, u64)) -> Result<Collected> {
    if live::images(store)?.is_empty() && !has_content(store)? {
        return Err(Error::NoStore);
    }
    let old = match options.keep {
        Some(keep) => live::old_versions(store, keep.get())?,
        None => Vec::new(),
    };
    let mut run = Run {
        store,
        dry_run: options.dry_run,
        // What is counted from here must be before the first look at a mark.
        deadline: Deadline::after(&store.host, HALF),
        now: Moment::now(&*store.host),
        server: 0,
        lists: 0,
        ripe: Vec::new(),
        ripe_content: ContentSet::default(),
        listed: ContentSet::default(),
        collected: Collected {
            versions: old.len() as u64,
            ..Collected::default()
        },
    };
    run.look_at_clocks()?;
    run.read_lists()?;
    let live = live::live(store, &old, progress)?;
    // The versions that stay can be read.
    if !options.dry_run {
        let paths: Vec<_> = old
            .iter()
            .map(|(image, number)| version::path(image, *number))
            .collect();
        for batch in paths.chunks(BATCH) {
            store.requests.remove(batch, None)?;
        }
        run.sweep(&live, progress)?;
    }
    run.list_dead(&live)?;
    Ok(run.collected)
}

fn has_content(store: &Store) -> Result<bool> {
    let manifests = store.requests.children("manifests")?;
    let chunks = store.requests.children("chunks")?;
    let lists = store.requests.children(doomed::FOLDER)?;
    Ok(!manifests.objects.is_empty() || !chunks.folders.is_empty() || !lists.objects.is_empty())
}

/// A run under way.
struct Run<'a> {
    store: &'a Store,
    dry_run: bool,
    /// Nothing that is listed is removed later.
    deadline: Deadline,
    now: Moment,
    /// The server's time, in seconds since 1970.
    server: u64,
    /// Lists that there are.
    lists: usize,
    /// Names of lists to sweep.
    ripe: Vec<String>,
    ripe_content: ContentSet,
    /// Objects of all lists that stay.
    listed: ContentSet,
    collected: Collected,
}

impl Run<'_> {
    /// Finds out the time of the server and of the host.
    fn look_at_clocks(&mut self) -> Result<()> {
        self.now = Moment::now(&*self.store.host);
        if self.dry_run {
            self.server = self.store.host.wall();
            return Ok(());
        }
        self.store.put(CLOCK, b"extant".to_vec())?;
        let found = self.store.requests.look(CLOCK)?;
        let found = found.ok_or_else(|| Error::Missing {
            object: CLOCK.to_owned(),
        })?;
        self.server = found.modified;
        Ok(())
    }

    /// Seconds that a list or a mark is old.
    fn age(&self, (list, modified): &(DoomList, u64)) -> u64 {
        let by_server = self.server.saturating_sub(*modified);
        by_server.min(list.made.secs_to(&self.now))
    }

    /// Sorts the lists into those to sweep and those that stay, and removes those that have a mark
    /// for long enough.
    fn read_lists(&mut self) -> Result<()> {
        let (lists, marks) = doomed::names(self.store)?;
        for name in &marks {
            self.forget(name)?;
        }
        for name in lists {
            // The mark first: see the third rule.
            let mark = doomed::mark_path(&name);
            let is_swept = self.store.requests.look(&mark)?.is_some();
            let Some(list) = doomed::read(self.store, &doomed::list_path(&name))? else {
                continue;
            };
            self.lists += 1;
            let age = self.age(&list);
            let is_ripe = !is_swept && age >= GRACE.as_secs();
            for (content, _) in &list.0.objects {
                self.listed.insert(content);
                if is_ripe {
                    self.ripe_content.insert(content);
                }
            }
            if is_ripe {
                self.ripe.push(name);
            } else if !is_swept {
                self.next(GRACE.as_secs() - age);
            }
        }
        Ok(())
    }

    fn next(&mut self, secs: u64) {
        let next = Duration::from_secs(secs);
        let sooner = self.collected.next.map_or(next, |before| before.min(next));
        self.collected.next = Some(sooner);
    }

    /// Removes a list and its mark, if the mark is old. The mark alone if there is no list.
    fn forget(&mut self, name: &str) -> Result<()> {
        let (list, mark) = (doomed::list_path(name), doomed::mark_path(name));
        let Some(read) = doomed::read(self.store, &mark)? else {
            return Ok(());
        };
        let age = self.age(&read);
        if self.dry_run || age < GRACE.as_secs() {
            self.next(GRACE.as_secs().saturating_sub(age));
            return Ok(());
        }
        self.store.requests.remove(&[list], None)?;
        self.store.requests.remove(&[mark], None)
    }

    /// Removes what the ripe lists have and no version names, and marks them.
    fn sweep(&mut self, live: &ContentSet, progress: &dyn Fn(u64, u64)) -> Result<()> {
        for name in std::mem::take(&mut self.ripe) {
            let Some((list, _)) = doomed::read(self.store, &doomed::list_path(&name))? else {
                continue;
            };
            let mut dead = list.objects;
            dead.retain(|(content, _)| !live.has(content));
            let (mut done, count) = (0, dead.len() as u64);
            for batch in dead.chunks(BATCH) {
                let paths: Vec<_> = batch.iter().map(|(content, _)| content.path()).collect();
                self.store.requests.remove(&paths, Some(&self.deadline))?;
                if self.deadline.is_over() {
                    self.collected.unfinished = true;
                    return Ok(());
                }
                for (content, bytes) in batch {
                    self.collected.removed.add(content, u64::from(*bytes));
                }
                done += batch.len() as u64;
                progress(done, count);
            }
            let mark = DoomList {
                made: Moment::now(&*self.store.host),
                objects: Vec::new(),
            };
            self.store.put(&doomed::mark_path(&name), mark.to_bytes())?;
        }
        Ok(())
    }

    /// Lists what is dead and in no list, unless it is so young that a push may be about to name
    /// it: that would only make the next push store it once more.
    fn list_dead(&mut self, live: &ContentSet) -> Result<()> {
        let store = self.store;
        let mut dead = Vec::new();
        for (folder, content) in [
            ("manifests", manifest_at as fn(&str) -> Option<Content>),
            ("chunks", chunk_at),
        ] {
            store.requests.walk(folder, &mut |path, marks| {
                let Some(content) = content(path).filter(|content| !live.has(content)) else {
                    return Ok(());
                };
                if self.dry_run && self.ripe_content.has(&content) {
                    self.collected.removed.add(&content, marks.bytes);
                    return Ok(());
                }
                self.collected.waiting.add(&content, marks.bytes);
                let age = self.server.saturating_sub(marks.modified);
                if self.listed.has(&content) {
                    return Ok(());
                }
                if age < HALF.as_secs() {
                    self.next(HALF.as_secs() - age + GRACE.as_secs());
                    return Ok(());
                }
                let bytes = u32::try_from(marks.bytes).unwrap_or(u32::MAX);
                dead.push((content, bytes));
                if dead.len() == doomed::MOST_OBJECTS {
                    self.publish(std::mem::take(&mut dead))?;
                }
                Ok(())
            })?;
        }
        self.publish(dead)
    }

    fn publish(&mut self, objects: Vec<(Content, u32)>) -> Result<()> {
        if objects.is_empty() || self.lists >= MOST_LISTS {
            return Ok(());
        }
        self.lists += 1;
        self.next(GRACE.as_secs());
        if self.dry_run {
            return Ok(());
        }
        let host = &*self.store.host;
        let name = doomed::new_name(host);
        let list = DoomList {
            made: Moment::now(host),
            objects,
        };
        self.store.put(&doomed::list_path(&name), list.to_bytes())
    }
}

/// The manifest of this path below `manifests`. Other names are left alone.
fn manifest_at(path: &str) -> Option<Content> {
    path.parse().ok().map(Content::Manifest)
}

/// The chunk of this path below `chunks`.
fn chunk_at(path: &str) -> Option<Content> {
    let (folder, name) = path.split_once('/')?;
    let name: ObjectName = name.parse().ok()?;
    name.to_string().starts_with(folder).then_some(())?;
    (folder.len() == 2).then_some(Content::Chunk(name))
}
