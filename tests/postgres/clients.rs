//! Clients that insert until the volume is full and beyond, and what they were answered.
//!
//! # Invariants
//! A statement inserts [`BATCH`] rows whose contents follow from their key.

use crate::server::Server;
use extant_testkit::{Error, Result, Rng, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

/// Rows of a statement.
const BATCH: usize = 50;
/// Statements of a client: all of them together have some 220 MiB of rows.
const STATEMENTS: usize = 700;
/// Clients at a time.
const CLIENTS: usize = 3;
/// The content of a row.
const CONTENT: &str = "repeat(md5(client || ':' || batch || ':' || number), 60)";

/// The error of a client whose checkpoint met the full volume.
pub(crate) const CHECKPOINT_FAILED: &str = "checkpoint request failed";

/// Answers to a client.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    acknowledged: BTreeSet<usize>,
    refused: BTreeSet<usize>,
    /// Errors that said that there is no space.
    pub(crate) no_space: usize,
    /// The connection was lost.
    pub(crate) broke: bool,
}

impl Answers {
    /// How many rows were acknowledged.
    pub(crate) fn rows(&self) -> usize {
        self.acknowledged.len() * BATCH
    }

    /// Takes what a client printed: `batch error` for each statement.
    fn read(&mut self, out: &str) -> Result<()> {
        for line in out.lines() {
            let (batch, error) = line
                .split_once(' ')
                .ok_or_else(|| Error::new(format!("a strange answer: {line}")))?;
            let answered = match error {
                "false" => &mut self.acknowledged,
                _ => &mut self.refused,
            };
            answered.insert(batch.parse()?);
        }
        Ok(())
    }
}

/// A statement, and the line that shows how it ended.
fn insert(client: usize, batch: usize) -> String {
    let row = format!("(select {client} as client, {batch} as batch, number");
    format!(
        "insert into rows select client, batch, number, {CONTENT} \
         from {row} from generate_series(1, {BATCH}) as number) as key;\n\
         \\echo {batch} :ERROR\n"
    )
}

/// Inserts from several clients. An error does not stop a client, a lost connection does.
pub(crate) fn fill(server: &Server, rng: &mut Rng) -> Result<Vec<Answers>> {
    let mut running = Vec::new();
    for client in 0..CLIENTS {
        let mut script = String::new();
        for batch in 0..STATEMENTS {
            script += &insert(client, batch);
            if rng.chance(1) {
                writeln!(script, "checkpoint;")?;
            }
        }
        running.push(server.psql().stdin(script).spawn()?);
    }
    let mut all = Vec::new();
    for mut client in running {
        let output = client.wait(Duration::from_secs(300))?;
        let mut answers = Answers::default();
        answers.read(&output.out)?;
        answers.broke = output.code != Some(0);
        let errors = || output.err.lines().filter(|line| line.contains("ERROR:"));
        // A checkpoint writes its reason to the log alone.
        let plain = |line: &&str| {
            line.contains("No space left on device") || line.contains(CHECKPOINT_FAILED)
        };
        answers.no_space = errors().filter(plain).count();
        let strange = errors().find(|line| !plain(line));
        ensure!(strange.is_none(), "not a plain error: {strange:?}");
        all.push(answers);
    }
    Ok(all)
}

/// Inserts more rows by each client: there is space again.
pub(crate) fn insert_more(server: &Server, all: &mut [Answers]) -> Result<()> {
    for (client, answers) in all.iter_mut().enumerate() {
        let batches = STATEMENTS..STATEMENTS + 5;
        let script: String = batches.map(|batch| insert(client, batch)).collect();
        let output = server.psql().stdin(script).ok()?;
        answers.read(&output.out)?;
        let last = answers.acknowledged.contains(&(STATEMENTS + 4));
        ensure!(last, "no space after a file was removed: {}", output.err);
    }
    Ok(())
}

/// Compares the rows that are there with what was answered.
pub(crate) fn verify(server: &Server, all: &[Answers]) -> Result<()> {
    for (client, answers) in all.iter().enumerate() {
        let there = server.sql(&format!(
            "select batch, count(*), bool_and(data = {CONTENT}) from rows \
             where client = {client} group by batch"
        ))?;
        let mut batches = BTreeMap::new();
        for line in there.lines() {
            let (batch, state) = line
                .split_once('|')
                .ok_or_else(|| Error::new(format!("a strange row: {line}")))?;
            batches.insert(batch.parse::<usize>()?, state);
        }
        let whole = format!("{BATCH}|t");
        let damaged = batches.iter().find(|(_, state)| **state != whole);
        ensure!(damaged.is_none(), "client {client}: {damaged:?}");
        let mut acknowledged = answers.acknowledged.iter();
        let lost = acknowledged.find(|batch| !batches.contains_key(batch));
        ensure!(lost.is_none(), "client {client}: batch {lost:?} is lost");
        // A broken connection leaves open how its last statement ended.
        let mut refused = answers.refused.iter();
        let shown = refused.find(|batch| batches.contains_key(batch));
        let open = answers.broke && shown == answers.refused.last();
        ensure!(
            shown.is_none() || open,
            "client {client}: {shown:?} was refused"
        );
    }
    Ok(())
}
