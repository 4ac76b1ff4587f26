//! Bytes that change on their way: nothing wrong is returned, and what is wrong is named.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_store_proxy::{RequestLine, StoreFault};
use extant_testkit::{Result, ensure};

use crate::line::{Line, STORED, Volume, ensure_plain_error, text};

/// A fault of the requests by a method whose path has this part, from the `nth` on.
fn from(
    nth: u64,
    method: &'static str,
    part: &'static str,
    fault: StoreFault,
) -> impl Fn(&RequestLine) -> StoreFault {
    let seen = AtomicU64::new(0);
    move |line| match line.is(method, part) && seen.fetch_add(1, Ordering::SeqCst) >= nth {
        true => fault,
        false => StoreFault::None,
    }
}

#[test]
fn an_altered_object_is_named() -> Result<()> {
    let Some(line) = Line::start()? else {
        return Ok(());
    };
    let volume = Volume::new()?;
    line.ok(&["push", "-q", &volume.image(), STORED])?;
    let copy = line.folder.join("altered.img");
    for (part, named) in [("/chunks/", "chunks/"), ("/manifests/", "manifests/")] {
        line.proxy
            .set_plan(from(0, "GET", part, StoreFault::Altered));
        let pulled = line.run(&["pull", STORED, &text(&copy)])?;
        ensure_plain_error(&pulled, &[named])?;
        ensure!(!copy.exists(), "half a pull is there");
    }
    // A version is a few bytes of JSON, each of which may change: another number of a push is none
    // that a reader uses.
    line.proxy
        .set_plan(from(0, "GET", "/names/", StoreFault::Altered));
    let pulled = line.run(&["pull", STORED, &text(&copy)])?;
    match pulled.code {
        Some(0) => ensure!(fs::read(&copy)? == volume.content()?, "another image"),
        _ => ensure_plain_error(&pulled, &["names/", "manifests/"])?,
    }
    line.proxy.set_plan(|_| StoreFault::None);
    ensure!(line.pulled(None)? == volume.content()?, "another image");
    Ok(())
}

/// A chunk is altered on its way to the server, which refuses it, or the reader does.
#[test]
fn a_chunk_that_is_altered_when_it_is_sent_is_never_read() -> Result<()> {
    let Some(line) = Line::start()? else {
        return Ok(());
    };
    let volume = Volume::new()?;
    let plan = from(3, "PUT", "/chunks/", StoreFault::AlteredRequest);
    line.proxy.set_plan(plan);
    let pushed = line.run(&["push", &volume.image(), STORED])?;
    line.proxy.set_plan(|_| StoreFault::None);
    if line.is_real() {
        // The signature has the hash of the content.
        ensure_plain_error(&pushed, &["chunks/"])?;
        ensure!(line.versions()? == 0, "there is a version");
    } else {
        ensure!(pushed.code == Some(0), "{}", pushed.describe());
        let copy = line.folder.join("altered.img");
        let pulled = line.run(&["pull", STORED, &text(&copy)])?;
        ensure_plain_error(&pulled, &["chunks/"])?;
    }
    line.ok(&["push", "-q", "--resend", &volume.image(), STORED])?;
    ensure!(line.pulled(None)? == volume.content()?, "another image");
    Ok(())
}

/// A list that is altered is an error, or leads to a version that is whole.
#[test]
fn an_altered_list_leads_to_nothing_wrong() -> Result<()> {
    let Some(line) = Line::start()? else {
        return Ok(());
    };
    let volume = Volume::new()?;
    line.ok(&["push", "-q", &volume.image(), STORED])?;
    line.proxy.set_plan(|line| match line.is_list() {
        true => StoreFault::Altered,
        false => StoreFault::None,
    });
    let copy = line.folder.join("altered.img");
    let pulled = line.run(&["pull", STORED, &text(&copy)])?;
    match pulled.code {
        Some(0) => ensure!(fs::read(&copy)? == volume.content()?, "another image"),
        _ => ensure_plain_error(&pulled, &["names/", "no image", "version"])?,
    }
    Ok(())
}
