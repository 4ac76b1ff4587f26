//! A moment of a schedule, and the steps from there.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;

use super::actor::{Call, History, Looked, Progress, replay};
use super::shelf::{Answer, Sent, Shelf, key_of};
use crate::error::Error;
use crate::lists::{GRACE, HALF};
use crate::manifest::Manifest;

/// A quarter of [`GRACE`], in seconds: the unit of steps of the clock.
pub(super) const QUARTER: u64 = GRACE.as_secs() / 4;

/// The bounds of a search, and what it has found out.
pub(super) struct Rules {
    pub(super) calls: Vec<Call>,
    /// Steps of the clock.
    pub(super) ticks: u32,
    /// Turns from a call that could go on to another one.
    pub(super) switches: u32,
    /// Answers that may come later than they were made: the host sleeps.
    pub(super) sleeps: u32,
    /// The one call whose host sleeps; `None` for any.
    pub(super) sleeper: Option<usize>,
    /// Calls that may be stopped for good.
    pub(super) kills: u32,
    memo: RefCell<Memo>,
}

#[derive(Default)]
struct Memo {
    /// Calls up to their next request, by the call and its history.
    progress: HashMap<(usize, u64), Arc<Progress>>,
    /// Clocks that a call looks at after an answer.
    looked: HashMap<(usize, u64), Looked>,
    /// An object that is missing in a shelf.
    broken: HashMap<u64, Option<String>>,
}

impl Rules {
    pub(super) fn new(calls: &[Call], ticks: u32, switches: u32) -> Self {
        Self {
            calls: calls.to_vec(),
            ticks,
            switches,
            sleeps: 0,
            sleeper: None,
            kills: 0,
            memo: RefCell::default(),
        }
    }

    pub(super) fn with(mut self, sleeps: u32, kills: u32) -> Self {
        (self.sleeps, self.kills) = (sleeps, kills);
        self
    }
}

#[derive(Clone, Hash, Debug)]
enum Phase {
    Waiting,
    /// The request is under way since then.
    Sent(Arc<Sent>, u64),
    /// It was carried out, and the call does not know yet.
    Served(Answer),
    /// The call was stopped with a request under way.
    Stopped(Arc<Sent>, u64),
    Ended,
}

#[derive(Clone)]
struct Actor {
    phase: Phase,
    history: Arc<History>,
    /// Stands for the history, without times that the call did not ask for.
    key: u64,
}

#[derive(Clone)]
pub(super) struct State {
    pub(super) shelf: Arc<Shelf>,
    shelf_key: u64,
    start: u64,
    now: u64,
    ticks: u32,
    switches: u32,
    /// The call that took the last step.
    last: Option<usize>,
    sleeps: u32,
    kills: u32,
    actors: Vec<Actor>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Starts a call, or carries out its request and goes on with it.
    Go(usize),
    /// Carries out a request. The answer comes later.
    Serve(usize),
    /// Stops a call for good.
    Stop(usize),
    /// The request of a stopped call is never carried out.
    Lose(usize),
    Tick(u64),
}

impl State {
    pub(super) fn new(rules: &Rules, shelf: Shelf, now: u64) -> Self {
        let actor = Actor {
            phase: Phase::Waiting,
            history: Arc::default(),
            key: 0,
        };
        Self {
            shelf_key: shelf.key(),
            shelf: Arc::new(shelf),
            start: now,
            now,
            ticks: rules.ticks,
            switches: rules.switches,
            last: None,
            sleeps: rules.sleeps,
            kills: rules.kills,
            actors: vec![actor; rules.calls.len()],
        }
    }

    pub(super) fn key(&self) -> u64 {
        let actors: Vec<_> = self.actors.iter().map(|a| (&a.phase, a.key)).collect();
        let bounds = (
            self.ticks,
            self.switches,
            self.last,
            self.sleeps,
            self.kills,
        );
        key_of(&(self.shelf_key, self.now, bounds, actors))
    }

    /// The steps that may come next; none at the end.
    pub(super) fn steps(&self, rules: &Rules) -> Vec<Step> {
        let mut steps = Vec::new();
        for (nth, actor) in self.actors.iter().enumerate() {
            if self.is_switch(nth) && self.switches == 0 {
                continue;
            }
            match &actor.phase {
                Phase::Waiting if self.may_start(rules, nth) => steps.push(Step::Go(nth)),
                Phase::Sent(..) => {
                    steps.push(Step::Go(nth));
                    if self.sleeps > 0 && rules.sleeper.is_none_or(|sleeper| sleeper == nth) {
                        steps.push(Step::Serve(nth));
                    }
                    if self.kills > 0 {
                        steps.push(Step::Stop(nth));
                    }
                }
                Phase::Served(_) => steps.push(Step::Go(nth)),
                Phase::Stopped(..) => steps.extend([Step::Serve(nth), Step::Lose(nth)]),
                Phase::Waiting | Phase::Ended => {}
            }
        }
        if steps.is_empty() {
            return steps;
        }
        // A request is carried out within a quarter, or never.
        let under_way = self.actors.iter().filter_map(|actor| match &actor.phase {
            Phase::Sent(_, since) | Phase::Stopped(_, since) => Some(since + QUARTER),
            _ => None,
        });
        let last = under_way.fold(u64::MAX, u64::min);
        let ticks = [1, 2, 4].map(|quarters| quarters * QUARTER).into_iter();
        if self.ticks == 0 {
            return steps;
        }
        steps.extend(ticks.filter(|tick| self.now + tick <= last).map(Step::Tick));
        steps
    }

    /// Returns whether a step of the call leaves another one that could go on.
    fn is_switch(&self, nth: usize) -> bool {
        let Some(last) = self.last.filter(|&last| last != nth) else {
            return false;
        };
        matches!(self.actors[last].phase, Phase::Sent(..) | Phase::Served(_))
            && !matches!(self.actors[nth].phase, Phase::Stopped(..))
    }

    /// Runs of gc start in order: they are all alike.
    fn may_start(&self, rules: &Rules, nth: usize) -> bool {
        let is_gc = |nth: usize| matches!(rules.calls[nth], Call::Gc { .. });
        let waits = |nth: usize| matches!(self.actors[nth].phase, Phase::Waiting);
        !is_gc(nth) || !(0..nth).any(|before| is_gc(before) && waits(before))
    }

    /// Returns whether the call that took the last step goes on with this one.
    pub(super) fn is_next_of_last(&self, step: &Step) -> bool {
        matches!(step, Step::Go(nth) if self.last == Some(*nth))
    }

    pub(super) fn tell(&self, step: &Step) -> String {
        let day = (self.now - self.start) as f64 / GRACE.as_secs() as f64;
        match step {
            Step::Tick(secs) => format!("{day}: {} later", *secs as f64 / GRACE.as_secs() as f64),
            Step::Go(nth) | Step::Serve(nth) | Step::Stop(nth) | Step::Lose(nth) => {
                let sent = match &self.actors[*nth].phase {
                    Phase::Sent(sent, _) | Phase::Stopped(sent, _) => short(sent),
                    phase => short(phase),
                };
                format!("{day}: {step:?} {sent}")
            }
        }
    }

    pub(super) fn take(&self, rules: &Rules, step: &Step) -> State {
        let mut next = self.clone();
        match *step {
            Step::Tick(secs) => {
                next.ticks -= 1;
                next.now += secs;
            }
            Step::Go(nth) => {
                next.turn_to(nth);
                let answer = match &self.actors[nth].phase {
                    Phase::Waiting => None,
                    Phase::Sent(sent, _) => Some(next.carry_out(sent)),
                    Phase::Served(answer) => Some(answer.clone()),
                    phase => panic!("{phase:?}"),
                };
                next.advance(rules, nth, answer);
            }
            Step::Serve(nth) => match &self.actors[nth].phase {
                Phase::Sent(sent, _) => {
                    next.turn_to(nth);
                    next.sleeps -= 1;
                    let answer = next.carry_out(sent);
                    next.actors[nth].phase = Phase::Served(answer);
                }
                Phase::Stopped(sent, _) => {
                    next.carry_out(sent);
                    next.actors[nth].end();
                }
                phase => panic!("{phase:?}"),
            },
            Step::Stop(nth) => {
                next.kills -= 1;
                if let Phase::Sent(sent, since) = &self.actors[nth].phase {
                    next.actors[nth].phase = Phase::Stopped(Arc::clone(sent), *since);
                }
            }
            Step::Lose(nth) => next.actors[nth].end(),
        }
        next
    }

    fn turn_to(&mut self, nth: usize) {
        self.switches -= u32::from(self.is_switch(nth));
        self.last = Some(nth);
    }

    fn carry_out(&mut self, sent: &Sent) -> Answer {
        let now = self.now;
        match sent {
            Sent::Put(..) | Sent::Create(..) | Sent::Remove(..) => {
                let answer = Arc::make_mut(&mut self.shelf).carry_out(sent, now);
                self.shelf_key = self.shelf.key();
                answer
            }
            _ => Shelf::clone(&self.shelf).carry_out(sent, now),
        }
    }

    /// Runs a call with one more answer up to its next request.
    fn advance(&mut self, rules: &Rules, nth: usize, answer: Option<Answer>) {
        let actor = &mut self.actors[nth];
        let untimed = key_of(&(actor.key, &answer));
        Arc::make_mut(&mut actor.history).push((self.now, answer));
        let mut memo = rules.memo.borrow_mut();
        let known = memo.looked.get(&(nth, untimed)).copied();
        let run = || replay(rules.calls[nth], nth, actor.history.to_vec());
        let mut ran = None;
        let looked = known.unwrap_or_else(|| ran.insert(run()).looked);
        memo.looked.insert((nth, untimed), looked);
        let is_early = self.now - actor.history[0].0 <= HALF.as_secs();
        let time = match looked {
            Looked::No => 0,
            // All that it compares is within half of the time.
            Looked::Uptime if is_early && actor.history.len() > 1 => 1,
            Looked::Uptime | Looked::Wall => self.now,
        };
        actor.key = key_of(&(untimed, time));
        let known = memo.progress.entry((nth, actor.key));
        let progress = known.or_insert_with(|| Arc::new(ran.unwrap_or_else(run)));
        match &progress.error {
            None | Some(Error::Overtaken { .. }) => {}
            // Another run removed a version while it was read, and all of it before that ended.
            Some(Error::Missing { .. }) if matches!(rules.calls[nth], Call::Gc { .. }) => {}
            Some(error) => panic!("{:?} fails: {error}", rules.calls[nth]),
        }
        match &progress.sent {
            Some(sent) => actor.phase = Phase::Sent(Arc::new(sent.clone()), self.now),
            None => actor.end(),
        }
    }

    /// An object that a version names and that is not there.
    pub(super) fn broken(&self, rules: &Rules) -> Option<String> {
        let mut memo = rules.memo.borrow_mut();
        let found = memo.broken.entry(self.shelf_key);
        found.or_insert_with(|| missing(&self.shelf)).clone()
    }

    /// An object that runs of gc leave though no version names it.
    pub(super) fn left_over(&self, _: &Rules) -> Option<String> {
        let (mut shelf, mut now) = (Shelf::clone(&self.shelf), self.now);
        for _ in 0..7 {
            now += GRACE.as_secs();
            Call::Gc { keep: None }.run_alone(&mut shelf, now);
        }
        let mut named = HashSet::new();
        let _ = named_objects(&shelf, &mut |object| {
            named.insert(object);
            Ok::<_, ()>(())
        });
        let is_left = |path: &&Arc<str>| {
            !path.starts_with("names/") && &***path != "gc/clock" && !named.contains(&***path)
        };
        shelf.0.keys().find(is_left).map(|path| path.to_string())
    }
}

impl Actor {
    /// Ends it: its history counts no more.
    fn end(&mut self) {
        self.phase = Phase::Ended;
        self.history = Arc::default();
        self.key = 0;
    }
}

fn short(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.chars().take(90).collect()
}

/// The first object that a version names and a shelf does not have.
fn missing(shelf: &Shelf) -> Option<String> {
    let found = named_objects(shelf, &mut |object| match shelf.0.contains_key(&*object) {
        true => Ok(()),
        false => Err(object),
    });
    found.err()
}

/// Calls `each` for all objects that versions name.
fn named_objects<E>(
    shelf: &Shelf,
    each: &mut impl FnMut(String) -> Result<(), E>,
) -> Result<(), E> {
    for (path, (content, _)) in &shelf.0 {
        if !path.starts_with("names/") {
            continue;
        }
        let version: serde_json::Value = serde_json::from_slice(content).unwrap();
        let manifest = format!("manifests/{}", version["manifest"].as_str().unwrap());
        each(manifest.clone())?;
        let Some((content, _)) = shelf.0.get(&*manifest) else {
            continue;
        };
        for name in Manifest::from_bytes(content)
            .unwrap()
            .chunks()
            .iter()
            .flatten()
        {
            each(crate::chunk::path(name))?;
        }
    }
    Ok(())
}
