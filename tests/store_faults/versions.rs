//! Versions when lists are old, credentials expire and pushes meet.

use std::fs;
use std::time::Duration;

use extant_store_proxy::{RequestLine, StoreFault};
use extant_testkit::{Result, Rng, ensure};

use crate::line::{Line, STORED, Volume, ensure_plain_error, text};

fn stale_lists(line: &RequestLine) -> StoreFault {
    match line.is_list() {
        true => StoreFault::Stale,
        false => StoreFault::None,
    }
}

#[test]
fn a_stale_list_makes_no_second_version_of_a_number_and_loses_none() -> Result<()> {
    let Some(line) = Line::start()? else {
        return Ok(());
    };
    let volume = Volume::new()?;
    let mut contents = Vec::new();
    // The list before version 2 is the one that is remembered.
    for round in 0..2 {
        volume.change(round)?;
        line.ok(&["push", "-q", &volume.image(), STORED])?;
        contents.push(volume.content()?);
    }
    line.proxy.set_plan(stale_lists);
    for round in 2..5 {
        volume.change(round)?;
        let pushed = line.run(&["push", &volume.image(), STORED])?;
        ensure_plain_error(&pushed, &["another push has made version 2"])?;
    }
    line.proxy.set_plan(|_| StoreFault::None);
    ensure!(line.versions()? == 2, "{} versions", line.versions()?);
    line.ok(&["push", "-q", &volume.image(), STORED])?;
    contents.push(volume.content()?);
    for (nth, content) in contents.iter().enumerate() {
        let same = line.pulled(Some(nth + 1))? == *content;
        ensure!(same, "version {} is another", nth + 1);
    }
    Ok(())
}

/// From some request on the server refuses all: the push ends, and the version before is whole.
#[test]
fn credentials_that_expire_end_a_push() -> Result<()> {
    let Some(line) = Line::start()? else {
        return Ok(());
    };
    let volume = Volume::new()?;
    line.ok(&["push", "-q", &volume.image(), STORED])?;
    let (before, asked) = (volume.content()?, line.proxy.take_traffic().all_requests());
    for from in [1, 2, 4, 8, asked / 2, asked - 4] {
        volume.change(from)?;
        let first = std::sync::OnceLock::new();
        line.proxy.set_plan(move |line| {
            let first = *first.get_or_init(|| line.number);
            match line.number - first + 1 >= from {
                true => StoreFault::Status(403),
                false => StoreFault::None,
            }
        });
        let pushed = line.run(&["push", &volume.image(), STORED])?;
        line.proxy.set_plan(|_| StoreFault::None);
        ensure_plain_error(
            &pushed,
            &["gc: ", "key: ", "names/", "chunks/", "manifests/"],
        )?;
        ensure!(line.versions()? == 1, "{} versions", line.versions()?);
        ensure!(line.pulled(Some(1))? == before, "version 1 is another");
    }
    line.ok(&["push", "-q", &volume.image(), STORED])?;
    ensure!(line.pulled(Some(2))? == volume.content()?, "the last push");
    Ok(())
}

/// Two pushes at once on a slow line: each version is one of the two images, and each push that
/// says that it made one did.
#[test]
fn pushes_that_meet_on_a_slow_line_make_whole_versions() -> Result<()> {
    let Some(line) = Line::start()? else {
        return Ok(());
    };
    let volumes = [Volume::new()?, Volume::new()?];
    let mut made = Vec::new();
    for round in 0..4 {
        volumes[0].change(10 * round)?;
        volumes[1].change(10 * round + 1)?;
        line.proxy.set_plan(move |line| {
            let wait = Rng::new(line.number + 1000 * round).below(60);
            StoreFault::Delay(Duration::from_millis(wait))
        });
        let outcomes = std::thread::scope(|scope| {
            let push = |volume: &Volume| {
                let push = line.extant(&["push", "--json", &volume.image(), STORED]);
                push.and_then(extant_testkit::Cmd::run)
            };
            let threads = volumes
                .each_ref()
                .map(|volume| scope.spawn(move || push(volume)));
            threads.map(|thread| thread.join().expect("no panic"))
        });
        for (outcome, volume) in outcomes.into_iter().zip(&volumes) {
            let outcome = outcome?;
            if outcome.code == Some(0) {
                let said: serde_json::Value = serde_json::from_str(&outcome.out)?;
                let number = said["version"].as_u64().unwrap_or(0);
                made.push((usize::try_from(number)?, volume.content()?));
            } else {
                ensure_plain_error(&outcome, &["another push has made version"])?;
            }
        }
        line.proxy.set_plan(|_| StoreFault::None);
    }
    made.sort_by_key(|(number, _)| *number);
    let numbers: Vec<usize> = made.iter().map(|(number, _)| *number).collect();
    let expected: Vec<usize> = (1..=line.versions()?).collect();
    ensure!(numbers == expected && numbers.len() >= 4, "{numbers:?}");
    for (number, content) in &made {
        ensure!(line.pulled(Some(*number))? == *content, "version {number}");
    }
    let left = fs::read_dir(line.folder.path())?.flatten();
    let left: Vec<_> = left.map(|entry| text(&entry.path())).collect();
    ensure!(left.iter().all(|name| !name.ends_with(".img")), "{left:?}");
    Ok(())
}
