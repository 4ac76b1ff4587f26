//! PostgreSQL fills the volume that it lives on, and keeps every row that it acknowledged.
//!
//! A stage of the soak: the test needs PostgreSQL's server and does nothing unless
//! `EXTANT_POSTGRES=1` asks for it. It repeats all layouts for `EXTANT_SECONDS`, at least once.
//!
//! # Invariants
//! * A client that meets the full volume gets a plain error. With a tablespace on the
//!   volume the server does not panic and goes on; with its own files there it may, as it does
//!   wherever its log or a file of its checkpoints finds no space ([`Layout::may_panic`]).
//! * A statement is there whole if it was acknowledged, and not at all if an error was its answer.
//!   It may be either if the connection broke. That holds after a crash of the server on the full
//!   volume, once a file is removed, and after more rows.
//! * Checksums of PostgreSQL's pages, its indexes and e2fsck find nothing.

mod clients;
mod server;

use clients::{Answers, fill, insert_more, verify};
use extant_testkit::{
    Cmd, Image, Mount, Need, Result, Rng, Subject, TempDir, content, ensure, need, report,
};
use server::{Layout, Server};
use std::fs::{self, File};
use std::time::{Duration, Instant};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Tool("mke2fs"),
    Need::Tool("setpriv"),
    Need::Postgres,
];

/// Results of one volume.
struct Figures {
    answers: Vec<Answers>,
    panics: usize,
    ended: bool,
}

/// The file that is removed to make space. Reading rows for the first time logs their pages, for
/// which a log on the volume needs more.
fn filler(mount: &Mount, layout: Layout, rng: &mut Rng) -> Result<()> {
    let more = match layout {
        Layout::Tablespace | Layout::Data => 0,
        Layout::Everything => 36 << 20,
    };
    let len = usize::try_from(rng.between(12 << 20, 20 << 20) + more)?;
    let path = mount.join("filler");
    fs::write(&path, content::fill(1, 0, len))?;
    Ok(File::open(&path)?.sync_all()?)
}

/// The server on a full volume: it still answers, and holds what it acknowledged.
fn check_full(server: &Server, answers: &[Answers]) -> Result<()> {
    verify(server, answers)?;
    server.try_checkpoint()?;
    verify(server, answers)
}

fn one_volume(layout: Layout, rng: &mut Rng) -> Result<Figures> {
    let options = match Subject::under_test() {
        Subject::Ext4 => "",
        _ => "allow_other",
    };
    let image = Image::of_mib(160).make()?;
    let mount = Subject::under_test().mount(image.path(), options)?;
    let host = TempDir::new("postgres")?;
    let mut server = Server::new(layout, mount.dir(), host.path())?;
    filler(&mount, layout, rng)?;
    server.start()?;
    server.prepare()?;
    let mut answers = fill(&server, rng)?;
    let ended = server.has_ended()?;
    if !ended {
        if !layout.may_panic() {
            check_full(&server, &answers)?;
        }
        server.crash()?;
    }
    fs::remove_file(mount.join("filler"))?;
    server.start()?;
    verify(&server, &answers)?;
    insert_more(&server, &mut answers)?;
    verify(&server, &answers)?;
    server.stop()?;
    server.check_files()?;
    let panics = server.log().matches("PANIC:").count();
    let log = server.brief_log();
    drop(server);
    mount.unmount()?;
    image.fsck_clean()?;
    let reported = answers.iter().any(|client| client.no_space > 0);
    ensure!(
        reported || layout.may_panic(),
        "{}: the volume did not fill\n{log}",
        layout.name()
    );
    let calm = panics == 0 && !ended;
    ensure!(
        calm || layout.may_panic(),
        "{}: {panics} PANIC\n{log}",
        layout.name()
    );
    Ok(Figures {
        answers,
        panics,
        ended,
    })
}

fn print_figures(layout: Layout, figures: &Figures) {
    let sum = |what: fn(&Answers) -> usize| figures.answers.iter().map(what).sum::<usize>();
    let ended = if figures.ended { ", server ended" } else { "" };
    report(&format!(
        "{}, {}: {} rows acknowledged, \
         {} errors for no space, {} connections broke, {} PANIC{ended}",
        Subject::under_test().name(),
        layout.name(),
        sum(Answers::rows),
        sum(|client| client.no_space),
        sum(|client| usize::from(client.broke)),
        figures.panics,
    ));
}

#[test]
fn soak_rows_of_a_database_that_fills_its_volume() -> Result<()> {
    if std::env::var_os("EXTANT_POSTGRES").is_none_or(|asked| asked != "1") {
        eprintln!("PostgreSQL is for the soak: EXTANT_POSTGRES=1 asks for it");
        return Ok(());
    }
    if !need(NEEDS) {
        return Ok(());
    }
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse().ok())
    };
    let end = Instant::now() + Duration::from_secs(number("EXTANT_SECONDS").unwrap_or(0));
    let mut rng = Rng::new(number("EXTANT_SEED").unwrap_or(1));
    loop {
        for layout in Layout::ALL {
            print_figures(layout, &one_volume(layout, &mut rng)?);
        }
        if Instant::now() >= end {
            return Ok(());
        }
    }
}

/// Reports that a command of PostgreSQL's found nothing.
fn quiet(command: Cmd) -> Result<()> {
    let output = command.ok()?;
    ensure!(output.err.trim().is_empty(), "{}", output.describe());
    Ok(())
}
