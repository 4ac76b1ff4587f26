//! A directory, its inodes, and what threads do with them.
//!
//! The lowest free inode number is used next, and all generations are the same: what an image that
//! is hostile, or a counter that went round, may show at worst.

use std::collections::BTreeMap;
use std::sync::Arc;

use extant_name_cache::{Entry, NameCache, Step, Target};
use extant_units::Ino;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::{Mutex, RwLock};
use shuttle::thread;

/// Room for one set of short names.
const BYTES: usize = 256;
const GENERATION: u32 = 9;
const KIND: u8 = 1;

/// The step or rule that a model leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Omitted {
    None,
    Step(Step),
    Rule(Rule),
}

/// A rule that the user of the cache keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A lookup fills while it holds the lock.
    FillUnderLock,
    /// A change forgets while it holds the lock.
    ForgetUnderLock,
    /// A rename forgets both names before it changes the first.
    ForgetAllNamesFirst,
}

/// One thread's part in a model.
pub(crate) type Part = fn(&World);

/// A file: the name that it was made with, and the references to it.
#[derive(Clone, Copy)]
struct File {
    serial: u32,
    references: u32,
    linked: bool,
}

#[derive(Default)]
struct Inodes {
    files: BTreeMap<u32, File>,
    made: u32,
}

/// The modelled directory.
///
/// A fault is noted and reported when all threads have ended: a panic under a guard would unwind
/// through steps of the checker, which it cannot schedule.
pub(crate) struct World {
    names: NameCache,
    omitted: Omitted,
    /// The directory: names to inode numbers.
    entries: RwLock<BTreeMap<&'static str, u32>>,
    inodes: Mutex<Inodes>,
    /// The names that each file ever had, by its serial number.
    history: Mutex<Vec<(u32, &'static str)>>,
    fault: AtomicBool,
}

/// Runs each part in a thread of its own. A file "a" is there, and its name in the cache.
pub(crate) fn run(omitted: Omitted, parts: &'static [Part]) {
    let world = Arc::new(World::new(omitted));
    world.create("a");
    world.lookup("a");
    let start = |&part: &Part| {
        let world = world.clone();
        thread::spawn(move || part(&world))
    };
    let threads: Vec<_> = parts.iter().map(start).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    // In the end the cache says what the directory says.
    for name in ["a", "b"] {
        let there = world.entries.read().unwrap().get(name).copied();
        match world.names.get(Ino::ROOT, name.as_bytes()) {
            None => {}
            Some((Entry::Absent, _)) => assert_eq!(there, None, "{name}"),
            Some((Entry::Present(to), _)) => assert_eq!(Some(to.ino.get()), there, "{name}"),
        }
    }
    assert!(!world.fault.load(Ordering::SeqCst), "a wrong answer");
}

fn target(ino: u32) -> Target {
    Target {
        ino: Ino::new(ino).unwrap(),
        generation: GENERATION,
        kind: KIND,
    }
}

impl World {
    fn new(omitted: Omitted) -> Self {
        let step = match omitted {
            Omitted::Step(step) => Some(step),
            _ => None,
        };
        Self {
            names: NameCache::omitting(BYTES, step),
            omitted,
            entries: RwLock::default(),
            inodes: Mutex::default(),
            history: Mutex::default(),
            fault: AtomicBool::new(false),
        }
    }

    fn omits(&self, rule: Rule) -> bool {
        self.omitted == Omitted::Rule(rule)
    }

    fn expect(&self, fine: bool) {
        if !fine {
            self.fault.store(true, Ordering::SeqCst);
        }
    }

    /// The inode of a number, with a reference, if it is in memory and has a name.
    fn iget(&self, ino: u32) -> Option<u32> {
        let mut inodes = self.inodes.lock().unwrap();
        let file = inodes.files.get_mut(&ino).filter(|file| file.linked)?;
        file.references += 1;
        Some(file.serial)
    }

    fn put_back(&self, ino: u32) {
        let mut inodes = self.inodes.lock().unwrap();
        if let Some(file) = inodes.files.get_mut(&ino) {
            file.references -= 1;
            if file.references == 0 && !file.linked {
                inodes.files.remove(&ino);
            }
        }
    }

    /// Looks `name` up. Returns the serial number of its file.
    fn find(&self, name: &'static str) -> Option<u32> {
        let known = self.names.get(Ino::ROOT, name.as_bytes());
        match known {
            Some((Entry::Absent, _)) => return None,
            Some((Entry::Present(to), ticket)) => {
                // A torn entry.
                self.expect(to.generation == GENERATION && to.kind == KIND);
                if let Some(serial) = self.iget(to.ino.get()) {
                    let holds = self.names.holds(&ticket);
                    self.put_back(to.ino.get());
                    if holds {
                        return Some(serial);
                    }
                }
            }
            None => {}
        }
        let entries = self.entries.read().unwrap();
        let there = entries.get(name).copied();
        let late = self.omits(Rule::FillUnderLock);
        let held = (!late).then_some(entries);
        let entry = there.map_or(Entry::Absent, |ino| Entry::Present(target(ino)));
        let serial = there.and_then(|ino| {
            let serial = self.iget(ino);
            self.expect(serial.is_some() || late);
            self.put_back(ino);
            serial
        });
        self.names.put(Ino::ROOT, name.as_bytes(), entry);
        drop(held);
        serial
    }

    /// Looks `name` up: a file that is found has had that name.
    pub(crate) fn lookup(&self, name: &'static str) {
        if let Some(serial) = self.find(name) {
            let history = self.history.lock().unwrap();
            let had = history.contains(&(serial, name));
            drop(history);
            self.expect(had);
        }
    }

    /// Looks `name` up after this thread has created or removed it, and no other does.
    pub(crate) fn lookup_is(&self, name: &'static str, there: bool) {
        let found = self.find(name).is_some();
        self.expect(found == there);
    }

    /// Looks two names up, one of which a rename turns into the other: once the new one is there,
    /// the old one is not.
    pub(crate) fn not_both(&self, new: &'static str, old: &'static str) {
        let found = self.find(new).is_some();
        let after = self.find(old).is_some();
        self.expect(!(found && after));
    }

    pub(crate) fn create(&self, name: &'static str) {
        let mut entries = self.entries.write().unwrap();
        let mut inodes = self.inodes.lock().unwrap();
        let ino = (11..).find(|ino| !inodes.files.contains_key(ino)).unwrap();
        inodes.made += 1;
        let file = File {
            serial: inodes.made,
            references: 0,
            linked: true,
        };
        inodes.files.insert(ino, file);
        drop(inodes);
        self.history.lock().unwrap().push((file.serial, name));
        self.names.forget(Ino::ROOT, name.as_bytes());
        entries.insert(name, ino);
        // A twin that forgets nothing puts nothing in its place either.
        if self.omitted != Omitted::Step(Step::NamesAreForgotten) {
            let entry = Entry::Present(target(ino));
            self.names.put(Ino::ROOT, name.as_bytes(), entry);
        }
    }

    pub(crate) fn unlink(&self, name: &'static str) {
        let mut entries = self.entries.write().unwrap();
        let late = self.omits(Rule::ForgetUnderLock);
        if !late {
            self.names.forget(Ino::ROOT, name.as_bytes());
        }
        let ino = entries.remove(name).unwrap();
        drop(entries);
        let mut inodes = self.inodes.lock().unwrap();
        let file = inodes.files.get_mut(&ino).unwrap();
        file.linked = false;
        if file.references == 0 {
            inodes.files.remove(&ino);
        }
        drop(inodes);
        if late {
            self.names.forget(Ino::ROOT, name.as_bytes());
        }
    }

    pub(crate) fn rename(&self, old: &'static str, new: &'static str) {
        let mut entries = self.entries.write().unwrap();
        let ino = entries.get(old).copied().unwrap();
        let serial = self.inodes.lock().unwrap().files[&ino].serial;
        self.history.lock().unwrap().push((serial, new));
        let all_first = !self.omits(Rule::ForgetAllNamesFirst);
        self.names.forget(Ino::ROOT, new.as_bytes());
        if all_first {
            self.names.forget(Ino::ROOT, old.as_bytes());
        }
        entries.insert(new, ino);
        self.names
            .put(Ino::ROOT, new.as_bytes(), Entry::Present(target(ino)));
        if !all_first {
            self.names.forget(Ino::ROOT, old.as_bytes());
        }
        entries.remove(old);
    }

    /// Enters a name of another directory, and reads it.
    pub(crate) fn other_name(&self, dir: u32, name: &'static str) {
        let dir = Ino::new(dir).unwrap();
        let entry = Entry::Present(Target {
            ino: Ino::new(dir.get() << 8 | u32::from(name.as_bytes()[0])).unwrap(),
            generation: dir.get() << 16 | u32::from(name.as_bytes()[0]),
            kind: name.as_bytes()[0],
        });
        self.names.put(dir, name.as_bytes(), entry);
        if let Some((found, _)) = self.names.get(dir, name.as_bytes()) {
            self.expect(found == entry);
        }
    }
}
