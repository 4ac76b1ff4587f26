//! Every sequence of events, on the type that the server uses: what was accepted has its space, and
//! each writer goes on.
//!
//! A world stands for the kernel and the engine: two writers with a file each, what is free, and
//! what is dirty. Worlds that are equal are visited once.

use std::cell::Cell;
use std::collections::HashSet;
use std::time::Duration;

use super::admission::{
    A_WRITE, Admission, GRACE, Host, Limits, Moment, Occasion, Question, Verdict, Writer,
};
use crate::errno::Errno;

const WRITERS: [usize; 2] = [0, 1];
/// Events of a sequence.
const DEPTH: usize = 8;

const LIMITS: Limits = Limits {
    bound: 3 * A_WRITE,
    margin: 3 * A_WRITE,
    last: A_WRITE,
    can_drain: true,
};

/// A process that writes to its own file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Process {
    /// Its handle, if the file is open.
    handle: Option<u64>,
    /// The kernel asks before its next write.
    is_asked: bool,
    /// Its question is parked.
    is_parked: bool,
    /// It was let write, and has not yet; if so, at which time.
    let_in: Option<Moment>,
    /// Writes in the kernel's cache.
    dirty: u64,
    /// Writes on the volume.
    taken: u64,
    /// Its write was let in alone.
    is_alone: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    admission: Admission,
    processes: [Process; 2],
    free: u64,
    now: Moment,
    /// Until then replies may arrive that were sent while there was space.
    late_until: Moment,
    /// Writes that pass unasked until the files are armed again.
    late_writes: u32,
    takes: bool,
    left_free: u64,
}

/// State of a world as the machine is told of it.
struct Told<'a> {
    free: u64,
    takes: bool,
    left_free: &'a Cell<u64>,
}

impl Host for Told<'_> {
    fn room(&self, _privileged: bool) -> u64 {
        self.free
    }

    fn leave_free(&self, bytes: u64) {
        self.left_free.set(bytes);
    }

    fn has_takers(&self) -> bool {
        self.takes
    }
}

impl World {
    fn new(free: u64) -> Self {
        let mut world = World {
            admission: Admission::new(LIMITS, free * A_WRITE),
            processes: Default::default(),
            free: free * A_WRITE,
            now: Duration::ZERO,
            late_until: Duration::ZERO,
            late_writes: 0,
            takes: false,
            left_free: 0,
        };
        world.step(|_, _| ());
        world
    }

    fn step<R>(&mut self, change: impl FnOnce(&mut Admission, &Told<'_>) -> R) -> R {
        let before = self.admission.unasked_since();
        let left_free = Cell::new(self.left_free);
        let told = Told {
            free: self.free,
            takes: self.takes,
            left_free: &left_free,
        };
        let change = |admission: &mut Admission| change(admission, &told);
        let result = self.admission.step(&told, change);
        self.left_free = left_free.get();
        let after = self.admission.unasked_since();
        if after.is_some() && after != before {
            (self.late_until, self.late_writes) = (self.now + GRACE, 1);
            self.arm();
        }
        result
    }

    /// The thread of the gates tells the kernel that it does not know the files.
    fn arm(&mut self) {
        for process in &mut self.processes {
            process.is_asked |= process.handle.is_some();
        }
    }

    /// It does so for the last time, and drains.
    fn have_all_ask(&mut self, drains: bool) {
        if let Some(shortage) = self.admission.unasked_since() {
            self.pass_time(GRACE);
            self.arm();
            self.pass_time(GRACE);
            self.drain(drains);
            if drains {
                self.step(|admission, _| admission.all_ask(shortage));
            }
        }
    }

    fn writer(&self, of: usize) -> Option<Writer> {
        let id = of as u64 + 1;
        let handle = self.processes[of].handle?;
        Some(Writer {
            node: id,
            handle,
            thread: u32::try_from(id).ok()?,
        })
    }

    /// The question of a process, and what becomes of it.
    fn ask(&mut self, of: usize, occasion: Occasion) -> Option<Verdict> {
        let question = Question {
            writer: self.writer(of)?,
            taken: self.processes[of].taken * A_WRITE,
            privileged: false,
            occasion,
        };
        let (room, before) = (self.free, self.admission.may_be_dirty());
        let now = self.now;
        let verdict = self.step(|admission, told| admission.ask(&question, now, told));
        let is_short = self.admission.is_short();
        let process = &mut self.processes[of];
        process.is_parked = verdict == Verdict::Wait;
        if verdict == Verdict::Pass {
            process.let_in = Some(self.now);
            process.is_asked = is_short;
            process.is_alone = is_short && before == 0 && room < A_WRITE;
        }
        Some(verdict)
    }

    /// Bytes that are dirty, or will be. The kernel keeps its bound: it has a writer wait while it
    /// writes back.
    fn dirty(&self) -> u64 {
        let writes = |process: &Process| {
            let coming = process.let_in.is_some() && !process.is_alone;
            process.dirty + u64::from(coming)
        };
        let sum = self.processes.iter().map(writes).sum::<u64>();
        (sum * A_WRITE).min(LIMITS.bound)
    }

    /// The kernel writes back what is dirty.
    fn write_back(&mut self) {
        for of in WRITERS {
            for _ in 0..std::mem::take(&mut self.processes[of].dirty) {
                self.processes[of].taken += 1;
                self.free -= A_WRITE;
                self.step(|_, _| ());
            }
        }
    }

    fn drain(&mut self, done: bool) {
        let now = self.now;
        self.step(|admission, _| admission.begin_drain(now));
        if done {
            self.write_back();
        }
        self.step(|admission, _| admission.end_drain(done));
    }

    /// A writer dirties its pages in time.
    fn pass_time(&mut self, time: Duration) {
        for of in WRITERS {
            let late = self.processes[of].let_in.map(|at| at + GRACE);
            if late.is_some_and(|late| late <= self.now + time) {
                self.write(of, true);
            }
        }
        self.now += time;
    }

    /// A process that was let in writes: new data, or what is there already.
    fn write(&mut self, of: usize, is_new: bool) {
        let dirty: u64 = self.processes.iter().map(|process| process.dirty).sum();
        if (dirty + 1) * A_WRITE > LIMITS.bound {
            self.write_back();
        }
        let process = &mut self.processes[of];
        process.let_in = None;
        let fits = process.dirty * A_WRITE + A_WRITE <= self.free;
        // A single write of more than is left cannot be told from an overwrite: it is lost.
        let is_lost = std::mem::take(&mut process.is_alone) && !fits;
        if is_new && is_lost {
            let (node, error) = (of as u64 + 1, Errno::NOSPC);
            self.step(|admission, _| admission.lose(node, error));
            self.processes[of].is_asked = true;
        } else if is_new {
            process.dirty += 1;
        }
    }

    /// A round of the server: what `serve_round` does.
    fn round(&mut self, drains: bool) {
        self.have_all_ask(drains);
        self.drain(drains);
        self.takes = false;
        if self.let_pass(Occasion::Early) {
            return;
        }
        let left = self.admission.until_arrived(self.now);
        self.pass_time(left);
        self.drain(drains);
        assert!(self.let_pass(Occasion::Last), "no writer goes on: {self:?}");
    }

    fn let_pass(&mut self, mut occasion: Occasion) -> bool {
        let parked: Vec<_> = WRITERS
            .into_iter()
            .filter(|&of| self.processes[of].is_parked)
            .collect();
        let mut is_one_answered = parked.is_empty();
        for of in parked {
            match self.ask(of, occasion) {
                Some(Verdict::Wait) => break,
                Some(Verdict::Pass) => occasion = Occasion::Early,
                _ => {}
            }
            is_one_answered = true;
        }
        is_one_answered
    }

    /// Each event that may come next, with the world after it.
    fn successors(&self) -> Vec<World> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut World)| {
            let mut world = self.clone();
            change(&mut world);
            all.push(world);
        };
        for of in WRITERS {
            let process = &self.processes[of];
            let is_idle =
                process.handle.is_some() && !process.is_parked && process.let_in.is_none();
            if process.handle.is_none() {
                add(&|world| world.open(of));
            }
            if is_idle {
                add(&|world| world.begin_write(of));
                add(&|world| world.close(of));
                add(&|world| world.show_late(of));
            }
            if process.let_in.is_some() {
                add(&|world| world.write(of, true));
                add(&|world| world.write(of, false));
            }
            if process.is_parked {
                add(&|world| world.processes[of].is_parked = false);
            }
        }
        add(&World::write_back);
        add(&World::park_taker);
        add(&|world| world.drain(true));
        add(&|world| world.have_all_ask(true));
        add(&|world| world.drain(false));
        add(&|world| world.pass_time(GRACE));
        add(&|world| world.give_space());
        add(&|world| world.take_space());
        all
    }

    fn open(&mut self, of: usize) {
        let (node, handle) = (of as u64 + 1, 7);
        let taken = self.processes[of].taken * A_WRITE;
        self.processes[of].handle = Some(handle);
        self.step(|admission, _| admission.open(node, handle, taken));
        self.processes[of].is_asked = self.admission.is_short();
    }

    fn close(&mut self, of: usize) {
        self.write_back();
        let (node, handle) = (of as u64 + 1, 7);
        self.processes[of].handle = None;
        self.step(|admission, _| admission.close(node, handle));
    }

    /// A write: with a question, or without one.
    fn begin_write(&mut self, of: usize) {
        if self.processes[of].is_asked {
            self.ask(of, Occasion::Early);
        } else if !self.admission.is_short() || self.late_writes > 0 {
            self.late_writes = self.late_writes.saturating_sub(1);
            self.processes[of].let_in = Some(self.now);
        }
    }

    /// A reply from times of plenty arrives late, and says that the kernel need not ask.
    fn show_late(&mut self, of: usize) {
        if self.now < self.late_until {
            self.processes[of].is_asked = false;
        }
    }

    /// An operation that takes space by name is parked.
    fn park_taker(&mut self) {
        self.takes = true;
        self.step(|_, _| ());
    }

    fn give_space(&mut self) {
        self.free += A_WRITE;
        self.step(|_, _| ());
    }

    /// An operation takes space by name, if it leaves as much as it has to.
    fn take_space(&mut self) {
        if self.free >= self.left_free + A_WRITE {
            self.free -= A_WRITE;
            self.step(|_, _| ());
        }
    }

    fn check(&self) {
        let dirty = self.dirty();
        assert!(dirty <= self.free, "{dirty} dirty: {self:?}");
        // Both wait, or one: each round answers one at least, whether the drains end or not.
        for drains in [true, false] {
            let mut world = self.clone();
            for _ in WRITERS {
                world.round(drains);
            }
            let is_answered = |process: &Process| !process.is_parked;
            assert!(world.processes.iter().all(is_answered), "{world:?}");
        }
    }
}

#[test]
fn what_is_accepted_has_its_space_and_each_writer_goes_on() {
    let mut visited = HashSet::new();
    let mut last: Vec<World> = (0..13).map(World::new).collect();
    for mut world in last.clone() {
        WRITERS.into_iter().for_each(|of| world.open(of));
        last.push(world);
    }
    for _ in 0..DEPTH {
        let mut next = Vec::new();
        for world in last {
            for after in world.successors() {
                if visited.insert(after.clone()) {
                    after.check();
                    next.push(after);
                }
            }
        }
        last = next;
    }
    assert!(visited.len() > 10_000, "{} worlds", visited.len());
    println!("{} worlds", visited.len());
}

/// The files may have been opened, or shown, between the two.
#[test]
fn what_asks_since_a_shortage_does_not_ask_since_the_next() {
    let mut world = World::new(8);
    let mut turn = |free| {
        world.free = free * A_WRITE;
        world.step(|_, _| ());
        world.admission.unasked_since()
    };
    let first = turn(5).unwrap();
    assert_eq!(turn(9), None);
    let second = turn(5);
    world.step(|admission, _| admission.all_ask(first));
    assert_eq!(world.admission.unasked_since(), second);
    world.step(|admission, _| admission.all_ask(second.unwrap()));
    assert!(world.admission.unasked_since().is_none() && world.admission.is_short());
}

/// A process that writes once and ends does not ask again.
#[test]
fn a_grant_ends_with_its_handle() {
    let mut world = World::new(5);
    world.open(0);
    world.open(1);
    assert_eq!(world.ask(0, Occasion::Early), Some(Verdict::Pass));
    assert_eq!(world.admission.until_arrived(world.now), GRACE);
    world.close(1);
    assert_eq!(world.admission.until_arrived(world.now), GRACE);
    world.open(1);
    let dirty = world.admission.may_be_dirty();
    world.close(0);
    assert!(world.admission.until_arrived(world.now).is_zero());
    assert_eq!(world.admission.may_be_dirty(), dirty);
}

/// The kernel may look a file up and open it while a worker serves the FORGET of its inode.
#[test]
fn a_file_that_was_opened_again_is_not_forgotten() {
    let mut admission = Admission::new(LIMITS, 100 * A_WRITE);
    admission.open(1, 7, 0);
    admission.forget(1);
    assert_eq!(admission.open_files(), [1]);
    admission.close(1, 7);
    assert_eq!(admission.open_files(), [] as [u64; 0]);
    // Without OPEN messages no other one ends the handle.
    admission.open(2, 0, 0);
    admission.forget(2);
    assert_eq!(admission.open_files(), [] as [u64; 0]);
}

/// A writer may leave with EINTR while it is being answered.
#[test]
fn a_loss_whose_answer_does_not_arrive_is_told_again() {
    let mut world = World::new(100);
    world.open(0);
    let writer = world.writer(0).unwrap();
    world.step(|admission, _| admission.lose(writer.node, Errno::IO));
    let told = world.admission.told(writer);
    for _ in 0..2 {
        let answer = world.ask(0, Occasion::Last);
        assert_eq!(answer, Some(Verdict::Refuse(Errno::IO)));
        world.step(|admission, _| admission.untell(writer, told));
    }
    assert_eq!(
        world.ask(0, Occasion::Last),
        Some(Verdict::Refuse(Errno::IO))
    );
    assert_eq!(world.ask(0, Occasion::Last), Some(Verdict::Pass), "once");
}
